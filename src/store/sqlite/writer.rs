//! The connection that writes: looks up what a batch needs to know with few statements, lets
//! `batch` decide, and carries the changes out in one transaction.

use std::{collections::HashSet, ops::ControlFlow, sync::Arc};

use buzz_actors::ports::{Outcome, Role, StoreError, StoreWriter};
use buzz_protocol::{Pubkey, VerifiedEvent};
use diesel::{QueryResult, RunQueryDsl, SqliteConnection};

use super::{
    Reconnecting, SqliteStore,
    checkpoint::{Checkpoints, checkpoint},
    last_batch, members,
    statement::{
        AtPositions, InBlocks, InsertEntries, InsertEvents, NOTHING, OfKeys, RemoveEntry,
        RemoveEvents, Statement,
        Value::{self, Int, Null, Text},
        list,
    },
    transaction,
};
use crate::store::{
    batch::{self, ChangeSet, Incoming, NewRow, ReadSet, StoredRow},
    columns::{Columns, row_without_content, stored_row},
    lookup,
    statements::expired,
};

pub(super) struct SqliteWriter {
    connection: Reconnecting,
    checkpoints: Checkpoints,
}

impl SqliteWriter {
    pub(super) fn open(store: SqliteStore) -> Result<Self, StoreError> {
        let checkpoints = Checkpoints::new(store.statement_timeout);
        let connection = Reconnecting::open(store, SqliteStore::connect_writer)?;
        Ok(Self {
            connection,
            checkpoints,
        })
    }

    #[cfg(test)]
    pub(super) fn connection_mut(&mut self) -> &mut Reconnecting {
        &mut self.connection
    }

    /// [`StoreWriter::store`], for events that need not be signed.
    pub(super) fn write(
        &mut self,
        events: &[Incoming<'_>],
        batch: u64,
    ) -> Result<Vec<Outcome>, StoreError> {
        self.connection.store.check_damage()?;
        let batch = i64::try_from(batch).unwrap_or(i64::MAX);
        let outcomes = self.connection.with(|connection| {
            transaction(connection, |connection| {
                let stored = look_up(connection, &ReadSet::of(events))?;
                let changes = batch::decide(events, &stored, batch)?;
                if !changes.is_empty() {
                    carry_out(connection, &changes)?;
                    last_batch::set(connection, batch)?;
                }
                Ok(changes.outcomes)
            })
        })?;
        let (log_bytes, metrics) = (
            self.connection.store.log_bytes(),
            self.connection.store.metrics.clone(),
        );
        let checkpoints = &mut self.checkpoints;
        let bounded = self
            .connection
            .with(|connection| checkpoints.after_a_batch(connection, log_bytes, &metrics));
        if let Err(error) = bounded {
            // The batch is stored all the same.
            tracing::warn!(%error, "the write-ahead log was not brought in");
        }
        Ok(outcomes)
    }
}

impl StoreWriter for SqliteWriter {
    fn store(
        &mut self,
        events: &[Arc<VerifiedEvent>],
        batch: u64,
    ) -> Result<Vec<Outcome>, StoreError> {
        let incoming = events.iter().map(|event| Incoming {
            event,
            json: event.json(),
        });
        self.write(&incoming.collect::<Vec<_>>(), batch)
    }

    fn last_batch(&mut self) -> Result<u64, StoreError> {
        self.connection
            .with(|connection| Ok(last_batch::get(connection)?.unsigned_abs()))
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let metrics = self.connection.store.metrics.clone();
        self.connection
            .with(|connection| checkpoint(connection, "TRUNCATE", &metrics).map(drop))
    }

    fn purge_expired(&mut self, now: u64, max: usize) -> Result<usize, StoreError> {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.connection.store.check_damage()?;
        let metrics = self.connection.store.metrics.clone();
        self.connection.with(|connection| {
            // Regular upkeep, and so counted regularly: an operator sees when it does nothing.
            checkpoint(connection, "PASSIVE", &metrics)?;
            transaction(connection, |connection| {
                let rows = RunQueryDsl::load(expired(now, max), connection)?;
                carry_out(connection, &ChangeSet::removing(&rows)?)?;
                Ok(rows.len())
            })
        })
    }

    fn set_role(&mut self, key: &Pubkey, role: Option<Role>) -> Result<Option<Role>, StoreError> {
        self.connection.store.check_damage()?;
        self.connection.with(|connection| {
            transaction(connection, |connection| {
                members::set_role(connection, key, role)
            })
        })
    }
}

fn look_up(connection: &mut SqliteConnection, lookup: &ReadSet) -> QueryResult<Vec<StoredRow>> {
    let mut rows = Vec::new();
    let mut known = HashSet::new();
    list::<InBlocks>(connection, &lookup.blocks, |row| {
        let row = stored_row(row);
        if known.insert(row.position) {
            rows.push(row);
        }
        ControlFlow::Continue(())
    })?;
    let mut entries = Vec::new();
    list::<OfKeys>(connection, &lookup.keys, |row| {
        if let (Some(key), Some(position)) = (row.int(0), row.int(1)) {
            entries.push((key, position));
        }
        ControlFlow::Continue(())
    })?;
    let positions = lookup::to_read(entries, known);
    list::<AtPositions>(connection, &positions, |row| {
        rows.extend(row_without_content(row, &lookup.authors));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

fn carry_out(connection: &mut SqliteConnection, changes: &ChangeSet<'_>) -> QueryResult<()> {
    for positions in changes.removed.chunks(32) {
        let padding = std::iter::repeat_n(&NOTHING, 32 - positions.len());
        let values = positions
            .iter()
            .chain(padding)
            .map(|position| Int(*position));
        Statement::<RemoveEvents, 32>::new(values.collect()).execute(connection)?;
    }
    for (key, position) in &changes.removed_entries {
        Statement::<RemoveEntry, 0>::new(vec![Int(*key), Int(*position)]).execute(connection)?;
    }
    let (full, rest) = changes.rows.as_chunks::<32>();
    for rows in full {
        let values = rows.iter().flat_map(row_values).collect();
        Statement::<InsertEvents, 32>::new(values).execute(connection)?;
    }
    for new in rest {
        Statement::<InsertEvents, 1>::new(row_values(new).into()).execute(connection)?;
    }
    let (full, rest) = changes.entries.as_chunks::<128>();
    for entries in full {
        let values = entries.iter().flat_map(entry_values).collect();
        Statement::<InsertEntries, 128>::new(values).execute(connection)?;
    }
    let (full, rest) = rest.as_chunks::<8>();
    for entries in full {
        let values = entries.iter().flat_map(entry_values).collect();
        Statement::<InsertEntries, 8>::new(values).execute(connection)?;
    }
    for new in rest {
        Statement::<InsertEntries, 1>::new(entry_values(new).into()).execute(connection)?;
    }
    Ok(())
}

fn row_values<'a>(row: &NewRow<'a>) -> [Value<'a>; 4] {
    let expires_at = row.expires_at.map_or(Null, Int);
    [
        Int(row.position),
        Int(row.batch),
        expires_at,
        Text(row.json),
    ]
}

fn entry_values((key, position): &(i64, i64)) -> [Value<'static>; 2] {
    [Int(*key), Int(*position)]
}
