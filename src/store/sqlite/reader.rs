//! A connection that reads: SQLite's look-ups for `crate::store::read`. No transaction stays open
//! between two calls.

use std::{
    ops::{ControlFlow, Range},
    time::Duration,
};

use buzz_actors::ports::{Progress, Query, Role, StoreError, StoreReader};
use buzz_protocol::Pubkey;
use diesel::SqliteConnection;

use super::{
    Reconnecting, SqliteStore,
    error::Error,
    last_batch, members,
    statement::{
        self, AllPositions, AtPositions, BeginRead, Commit, KeyPositions, OfKeys, Statement,
        Value::Int, WalkKey, WalkTime, list,
    },
};
use crate::store::{
    columns::{Columns, offer},
    read::{self, Row, Tables},
};

pub(super) struct SqliteReader {
    connection: Reconnecting,
    /// How long one read or count may take.
    time: Duration,
}

impl SqliteReader {
    pub(super) fn open(store: SqliteStore) -> Result<Self, StoreError> {
        let time = store.statement_timeout;
        let connection = Reconnecting::open(store, SqliteStore::connect_reader)?;
        Ok(Self { connection, time })
    }
}

impl StoreReader for SqliteReader {
    fn read(
        &mut self,
        query: &mut Query,
        row: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Progress, StoreError> {
        let committed = i64::try_from(query.committed).unwrap_or(i64::MAX);
        let hidden = committed.saturating_add(1)..i64::MAX;
        read::answer::<SqliteConnection>(query, hidden, self.time, row, |read| {
            self.connection.with(read)
        })
    }

    fn count(&mut self, query: &Query) -> Result<u64, StoreError> {
        read::count(self, query)
    }

    fn role(&mut self, key: &Pubkey) -> Result<Option<Role>, StoreError> {
        self.connection
            .with(|connection| Ok(members::role(connection, key)?))
    }

    fn members(&mut self) -> Result<Vec<(Pubkey, Role)>, StoreError> {
        self.connection.with(members::members)
    }

    fn ping(&mut self) -> Result<(), StoreError> {
        self.connection.store.check_damage()?;
        self.connection
            .with(|connection| Ok(last_batch::get(connection).map(drop)?))
    }
}

impl Tables for SqliteConnection {
    type Error = Error;

    const HEADS: usize = 1;

    fn begin(&mut self) -> Result<(), Error> {
        Statement::<BeginRead, 0>::new(vec![]).execute(self)?;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Error> {
        Statement::<Commit, 0>::new(vec![]).execute(self)?;
        Ok(())
    }

    fn walk(
        &mut self,
        key: Option<i64>,
        bounds: &Range<i64>,
        _: u64,
        mut take: impl FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let (high, low) = (Int(bounds.end), Int(bounds.start));
        let take = |row: &statement::Row<'_, '_>| offer(row, &mut take);
        match key {
            Some(key) => {
                Statement::<WalkKey, 0>::new(vec![Int(key), high, low]).for_each(self, take)?;
            }
            None => Statement::<WalkTime, 0>::new(vec![high, low]).for_each(self, take)?,
        }
        Ok(())
    }

    fn positions(
        &mut self,
        key: Option<i64>,
        bounds: &Range<i64>,
        size: usize,
        mut take: impl FnMut(i64),
    ) -> Result<(), Error> {
        let (high, low) = (Int(bounds.end), Int(bounds.start));
        let mut left = size;
        let take = |row: &statement::Row<'_, '_>| {
            row.int(0).into_iter().for_each(&mut take);
            left -= 1;
            if left > 0 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        match key {
            Some(key) => {
                let values = vec![Int(key), high, low];
                Statement::<KeyPositions, 0>::new(values).for_each(self, take)?;
            }
            None => Statement::<AllPositions, 0>::new(vec![high, low]).for_each(self, take)?,
        }
        Ok(())
    }

    fn at_positions(
        &mut self,
        positions: &[i64],
        mut take: impl FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        Ok(list::<AtPositions>(self, positions, |row| {
            offer(row, &mut take)
        })?)
    }

    fn of_keys(&mut self, keys: &[i64], mut take: impl FnMut(i64)) -> Result<(), Error> {
        Ok(list::<OfKeys>(self, keys, |row| {
            row.int(1).into_iter().for_each(&mut take);
            ControlFlow::Continue(())
        })?)
    }

    fn heads(
        &mut self,
        keys: &[i64],
        bounds: &Range<i64>,
        mut take: impl FnMut(usize, i64),
    ) -> Result<(), Error> {
        for (chunk, keys) in keys.chunks(64).enumerate() {
            statement::heads(self, keys, bounds.end, |index, position| {
                position
                    .into_iter()
                    .for_each(|at| take(chunk * 64 + index, at));
            })?;
        }
        Ok(())
    }
}
