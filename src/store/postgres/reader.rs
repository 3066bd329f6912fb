//! A reader: PostgreSQL's look-ups for `crate::store::read`, and the choice between the replica and
//! the primary.
//!
//! The replica may lag. It serves only queries whose batches it has; the others go to the primary.
//! After a failure the replica is not asked for a second.

use std::{
    ops::{ControlFlow, Range},
    time::{Duration, Instant},
};

use buzz_actors::{
    metrics::StoreMetrics,
    ports::{Progress, Purpose, Query, Role, StoreError, StoreReader},
};
use buzz_protocol::Pubkey;
use diesel::{IntoSql, sql_types::BigInt};
use diesel_async::RunQueryDsl;

use super::{
    PostgresStore,
    error::Error,
    last_batch,
    link::Link,
    members,
    origin::Origin,
    reconnecting::Reconnecting,
    row,
    server::Server,
    statement::{
        AllPositions, AtPositions, Heads, KeyPositions, OfKeys, Statement,
        Value::{Int, Ints},
        WalkKey, WalkTime,
    },
};
use crate::store::{
    columns::{Columns, offer},
    read::{self, Row, Tables},
};

/// About what one page of history takes, so that little more is read than is sent.
const PAGE_BYTES: usize = 80 * 1024;
/// The most that one statement of a longer walk reads, in rows and bytes.
const MOST_ROWS: usize = 1024;
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// A replica that failed is not asked again before.
const REPLICA_PAUSE: Duration = Duration::from_secs(1);

const READ_ONLY: &str = "SET default_transaction_read_only = on; \
    SET application_name = 'buzz-relay reader'";

pub(super) struct PostgresReader {
    primary: Reconnecting,
    replica: Option<Replica>,
    origin: Origin,
    /// How long one read or count may take.
    time: Duration,
    metrics: StoreMetrics,
}

struct Replica {
    session: Reconnecting,
    /// The last batch of this process's origin that its present session has seen there.
    seen: u64,
    /// When it may be asked again.
    from: Option<Instant>,
}

impl PostgresReader {
    pub(super) fn new(store: &PostgresStore, purpose: Purpose) -> Self {
        let time = store.statement_timeout;
        let session = |server: &Server| Reconnecting::new(server.clone(), time, READ_ONLY);
        let replica = store.replica.as_ref();
        let replica = replica.filter(|_| purpose == Purpose::History);
        Self {
            primary: session(&store.primary),
            replica: replica.map(|server| Replica {
                session: session(server),
                seen: 0,
                from: None,
            }),
            origin: store.origin.clone(),
            time,
            metrics: store.metrics.clone(),
        }
    }
}

impl StoreReader for PostgresReader {
    fn read(
        &mut self,
        query: &mut Query,
        row: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Progress, StoreError> {
        let hidden = self.origin.hidden(query.committed);
        let needed = self.origin.needed(query.committed);
        let Self {
            primary,
            replica,
            origin,
            time,
            metrics,
        } = self;
        read::answer::<Link>(query, hidden, *time, row, |read| {
            if let Some(replica) = replica {
                match replica.with(origin, needed, read) {
                    Ok(true) => return Ok(()),
                    Ok(false) => metrics.replica_lag.increment(1),
                    Err(StoreError::TookTooLong) => return Err(StoreError::TookTooLong),
                    Err(error) => {
                        // The pass goes on where it was.
                        tracing::warn!(%error, "history is read from the primary");
                        metrics.replica_down.increment(1);
                    }
                }
            }
            primary.with(read)
        })
    }

    fn count(&mut self, query: &Query) -> Result<u64, StoreError> {
        read::count(self, query)
    }

    fn role(&mut self, key: &Pubkey) -> Result<Option<Role>, StoreError> {
        self.primary.with(|link| members::role(link, key))
    }

    fn members(&mut self) -> Result<Vec<(Pubkey, Role)>, StoreError> {
        self.primary.with(members::members)
    }

    fn ping(&mut self) -> Result<(), StoreError> {
        self.primary.with(|link| {
            let ping = diesel::select(1_i64.into_sql::<BigInt>());
            link.run(async |session| ping.get_result::<i64>(session).await)?;
            Ok(())
        })
    }
}

impl Replica {
    /// Reads there; false where it lags behind what is needed.
    fn with(
        &mut self,
        origin: &Origin,
        needed: u64,
        read: &mut dyn FnMut(&mut Link) -> Result<(), Error>,
    ) -> Result<bool, StoreError> {
        if self.from.is_some_and(|from| Instant::now() < from) {
            let why = "the replica failed a moment ago";
            return Err(self.session.server().unavailable(why));
        }
        let Self { session, seen, .. } = self;
        let done = session.with(|link| {
            // A new session may be to another server, and a promoted or rebuilt one to an older
            // state.
            if link.is_new() {
                *seen = 0;
            }
            if *seen < needed
                && let Some(origin) = origin.get()
            {
                let last = last_batch::of(link, origin)?;
                *seen = last.map_or(0, |(batch, _)| batch.unsigned_abs());
                if *seen < needed {
                    return Ok(false);
                }
            }
            read(link).map(|()| true)
        });
        self.from = match &done {
            Err(StoreError::Unavailable(_) | StoreError::Failed(_)) => {
                Instant::now().checked_add(REPLICA_PAUSE)
            }
            _ => None,
        };
        done
    }
}

fn as_int(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Link {
    /// How many rows of the lately met size are about this many bytes.
    fn rows_of(&self, bytes: usize) -> usize {
        (bytes / self.row_bytes.max(1)).clamp(4, MOST_ROWS)
    }

    fn measure(&mut self, rows: usize, bytes: usize) {
        // Grows at once and shrinks slowly: a few large rows cost more than many small ones.
        if let Some(average) = bytes.checked_div(rows) {
            self.row_bytes = average.max(self.row_bytes - self.row_bytes / 8).max(100);
        }
    }
}

impl Tables for Link {
    type Error = Error;

    const HEADS: usize = 4;

    fn begin(&mut self) -> Result<(), Error> {
        self.begin_read()
    }

    fn commit(&mut self) -> Result<(), Error> {
        // Nothing was written: there is no doubt about it.
        self.roll_back()
    }

    fn walk(
        &mut self,
        key: Option<i64>,
        bounds: &Range<i64>,
        wanted: u64,
        mut take: impl FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let (mut high, low) = (bounds.end, bounds.start);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let mut size = self.rows_of(PAGE_BYTES).min(wanted.max(1));
        loop {
            let (mut rows, mut bytes) = (0, 0);
            let mut flow = ControlFlow::Continue(());
            let limits = [Int(high), Int(low), Int(as_int(size))];
            let each = |row: &row::Row| {
                rows += 1;
                high = row.int(0).unwrap_or(low);
                flow = offer(row, &mut |row| {
                    bytes += row.json.len();
                    take(row)
                });
                flow
            };
            match key {
                Some(key) => {
                    let values = std::iter::once(Int(key)).chain(limits).collect();
                    self.for_each(Statement::<WalkKey>::new(values), each)?;
                }
                None => self.for_each(Statement::<WalkTime>::new(limits.into()), each)?,
            }
            self.measure(rows, bytes);
            if flow.is_break() || rows < size {
                return Ok(());
            }
            size = (size * 2).min(self.rows_of(MOST_BYTES));
        }
    }

    fn positions(
        &mut self,
        key: Option<i64>,
        bounds: &Range<i64>,
        size: usize,
        mut take: impl FnMut(i64),
    ) -> Result<(), Error> {
        let each = |row: &row::Row| {
            row.int(0).into_iter().for_each(&mut take);
            ControlFlow::Continue(())
        };
        let limits = [Int(bounds.end), Int(bounds.start), Int(as_int(size))];
        match key {
            Some(key) => {
                let values = std::iter::once(Int(key)).chain(limits).collect();
                self.for_each(Statement::<KeyPositions>::new(values), each)
            }
            None => self.for_each(Statement::<AllPositions>::new(limits.into()), each),
        }
    }

    fn at_positions(
        &mut self,
        positions: &[i64],
        mut take: impl FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut rest = positions;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.rows_of(PAGE_BYTES).min(rest.len()));
            rest = later;
            let (mut rows, mut bytes) = (0, 0);
            let mut flow = ControlFlow::Continue(());
            self.for_each(
                Statement::<AtPositions>::new(vec![Ints(now.to_vec())]),
                |row| {
                    rows += 1;
                    flow = offer(row, &mut |row| {
                        bytes += row.json.len();
                        take(row)
                    });
                    flow
                },
            )?;
            self.measure(rows, bytes);
            if flow.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn of_keys(&mut self, keys: &[i64], mut take: impl FnMut(i64)) -> Result<(), Error> {
        self.for_each(Statement::<OfKeys>::new(vec![Ints(keys.to_vec())]), |row| {
            row.int(1).into_iter().for_each(&mut take);
            ControlFlow::Continue(())
        })
    }

    fn heads(
        &mut self,
        keys: &[i64],
        bounds: &Range<i64>,
        mut take: impl FnMut(usize, i64),
    ) -> Result<(), Error> {
        let mut heads = Vec::new();
        let values = vec![
            Ints(keys.to_vec()),
            Int(bounds.end),
            Int(bounds.start),
            Int(as_int(Self::HEADS)),
        ];
        self.for_each(Statement::<Heads>::new(values), |row| {
            if let (Some(number), Some(position)) = (row.int(0), row.int(1)) {
                heads.push((number, std::cmp::Reverse(position)));
            }
            ControlFlow::Continue(())
        })?;
        heads.sort_unstable();
        for (number, position) in heads {
            let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
            if index < keys.len() {
                take(index, position.0);
            }
        }
        Ok(())
    }
}
