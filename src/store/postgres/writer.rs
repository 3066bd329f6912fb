//! The session that writes: looks up what a batch needs to know, lets `batch` decide, and carries
//! its plan out, all in one transaction under one lock over all relays. So competing versions and
//! deletions from several relays are settled in the database, one batch after the other.
//!
//! A session may break at any point. Before COMMIT is sent nothing is stored, and the batch is
//! tried again; behind it, the batch's token tells the next session whether it was committed. So
//! each event is answered once, and what is answered is true.

use std::{
    collections::HashSet,
    ops::ControlFlow,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use buzz_actors::ports::{Outcome, Role, StoreError, StoreWriter};
use buzz_protocol::{Pubkey, VerifiedEvent};
use secp256k1::rand::random;

use super::{
    Error, Held, PostgresStore, WRITE_TIMEOUT, apart,
    link::Link,
    members,
    origin::{self, Origin},
    statement::{
        AtPositions, ClaimOrigin, Expired, InBlocks, InsertEntries, InsertEvents, LastBatch,
        LockWrites, OfKeys, RemoveEntries, RemoveEvents, SetLastBatch, Statement,
        Value::{Int, Ints, MaybeInts, Texts},
    },
};
use crate::store::{
    Durability,
    batch::{self, Incoming, Lookup, Plan, StoredRow},
    columns::{Columns, essence_row, stored_row},
    lookup,
};

/// How long a batch whose COMMIT got no answer waits for a server that can tell.
const DOUBT: Duration = Duration::from_secs(10);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

const FULL: &str = "SET synchronous_commit = on; SET application_name = 'buzz-relay writer'";
const NORMAL: &str = "SET synchronous_commit = off; SET application_name = 'buzz-relay writer'";

pub(super) struct PostgresWriter {
    held: Held,
    shared: Origin,
    origin: i64,
}

/// A batch on its way.
struct Batch<'a> {
    events: &'a [Incoming<'a>],
    origin: i64,
    number: u64,
    /// Stored with the batch; no other transaction has it.
    token: i64,
    /// What becomes of the events if the last COMMIT, which got no answer, was carried out.
    in_doubt: Option<Vec<Outcome>>,
    changes: bool,
}

impl PostgresWriter {
    pub(super) fn open(store: &PostgresStore) -> Result<Self, StoreError> {
        let settings = match store.durability {
            Durability::Full => FULL,
            Durability::Normal => NORMAL,
        };
        let mut held = Held::new(store.primary.clone(), WRITE_TIMEOUT, settings);
        let origin = match store.origin.get() {
            Some(origin) => origin,
            None => store.origin.claim(apart(|| claim(&mut held))?),
        };
        Ok(Self {
            held,
            shared: store.origin.clone(),
            origin,
        })
    }

    /// [`StoreWriter::store`], for events that need not be signed.
    pub(super) fn write(
        &mut self,
        events: &[Incoming<'_>],
        number: u64,
    ) -> Result<Vec<Outcome>, StoreError> {
        let mut batch = Batch {
            events,
            origin: self.origin,
            number,
            token: random(),
            in_doubt: None,
            changes: false,
        };
        let started = Instant::now();
        loop {
            let error = match self.held.take() {
                Ok((mut link, used_before)) => match batch.attempt(&mut link) {
                    Ok(outcomes) => {
                        self.held.put_back(link);
                        if batch.changes {
                            self.shared.changed(number);
                        }
                        return Ok(outcomes);
                    }
                    Err(error) => {
                        // The session is given up. A new one may do better, once.
                        let again = used_before && error.may_be_the_sessions_end();
                        let error = error.into_store_error(self.held.server());
                        if again {
                            tracing::warn!(%error, "a batch is tried again");
                            continue;
                        }
                        error
                    }
                },
                Err(error) => error,
            };
            if batch.in_doubt.is_none() || started.elapsed() >= DOUBT {
                return Err(error);
            }
            tracing::warn!(%error, "a batch may have been committed; the database is asked again");
            thread::sleep(BETWEEN_ATTEMPTS);
        }
    }
}

impl Batch<'_> {
    fn attempt(&mut self, link: &mut Link) -> Result<Vec<Outcome>, Error> {
        // Also waits until a broken session's transaction has ended, one way or the other.
        begin(link)?;
        if let Some(outcomes) = &self.in_doubt {
            let mut committed = false;
            let last = Statement::<LastBatch>::new(vec![Int(self.origin)]);
            link.for_each(last, |row| {
                committed = row.int(1) == Some(self.token);
                ControlFlow::Continue(())
            })?;
            if committed {
                let outcomes = outcomes.clone();
                link.roll_back()?;
                self.changes = true;
                return Ok(outcomes);
            }
            self.in_doubt = None;
        }
        let stored = look_up(link, &Lookup::of(self.events))?;
        let plan = batch::plan(
            self.events,
            &stored,
            origin::column(self.origin, self.number),
        )?;
        if plan.is_empty() {
            link.roll_back()?;
            return Ok(plan.outcomes);
        }
        carry_out(link, &plan)?;
        let number = i64::try_from(self.number).unwrap_or(i64::MAX);
        let values = vec![Int(number), Int(self.token), Int(self.origin)];
        if link.execute(Statement::<SetLastBatch>::new(values))? != 1 {
            return Err(Error::Changed);
        }
        self.in_doubt = Some(plan.outcomes.clone());
        link.commit()?;
        self.in_doubt = None;
        self.changes = true;
        Ok(plan.outcomes)
    }
}

impl StoreWriter for PostgresWriter {
    fn store(
        &mut self,
        events: &[Arc<VerifiedEvent>],
        batch: u64,
    ) -> Result<Vec<Outcome>, StoreError> {
        let incoming = events.iter().map(|event| Incoming {
            event,
            json: event.json(),
        });
        let incoming: Vec<_> = incoming.collect();
        apart(|| self.write(&incoming, batch))
    }

    fn last_batch(&mut self) -> Result<u64, StoreError> {
        let origin = self.origin;
        apart(|| {
            self.held.with(|link| {
                let mut batch = 0;
                link.for_each(Statement::<LastBatch>::new(vec![Int(origin)]), |row| {
                    batch = row.int(0).unwrap_or(0).unsigned_abs();
                    ControlFlow::Continue(())
                })?;
                Ok(batch)
            })
        })
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        // The server looks after its own files.
        Ok(())
    }

    fn purge_expired(&mut self, now: u64, max: usize) -> Result<usize, StoreError> {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        apart(|| self.held.with(|link| purge(link, now, max)))
    }

    fn set_role(&mut self, key: &Pubkey, role: Option<Role>) -> Result<Option<Role>, StoreError> {
        apart(|| {
            self.held.with(|link| {
                begin(link)?;
                let before = members::set_role(link, key, role)?;
                link.commit()?;
                Ok(before)
            })
        })
    }
}

/// Begins a transaction that has the lock over all relays.
fn begin(link: &mut Link) -> Result<(), Error> {
    link.begin_write()?;
    link.execute(Statement::<LockWrites>::new(vec![]))?;
    Ok(())
}

/// A new origin for this process.
fn claim(held: &mut Held) -> Result<i64, StoreError> {
    held.with(|link| {
        let mut origin = None;
        link.for_each(Statement::<ClaimOrigin>::new(vec![]), |row| {
            origin = row.int(0);
            ControlFlow::Continue(())
        })?;
        origin.ok_or(Error::Changed)
    })
}

fn purge(link: &mut Link, now: i64, max: i64) -> Result<usize, Error> {
    begin(link)?;
    let mut rows = Vec::new();
    link.for_each(Statement::<Expired>::new(vec![Int(now), Int(max)]), |row| {
        rows.push(stored_row(row));
        ControlFlow::Continue(())
    })?;
    if rows.is_empty() {
        link.roll_back()?;
        return Ok(0);
    }
    carry_out(link, &Plan::removing(&rows)?)?;
    link.commit()?;
    Ok(rows.len())
}

fn look_up(link: &mut Link, lookup: &Lookup) -> Result<Vec<StoredRow>, Error> {
    let mut rows = Vec::new();
    let mut known = HashSet::new();
    let blocks = Statement::<InBlocks>::new(vec![Ints(lookup.blocks.clone())]);
    link.for_each(blocks, |row| {
        let row = stored_row(row);
        if known.insert(row.position) {
            rows.push(row);
        }
        ControlFlow::Continue(())
    })?;
    let mut entries = Vec::new();
    if !lookup.keys.is_empty() {
        let keys = Statement::<OfKeys>::new(vec![Ints(lookup.keys.clone())]);
        link.for_each(keys, |row| {
            entries.extend(row.int(0).zip(row.int(1)));
            ControlFlow::Continue(())
        })?;
    }
    let positions = lookup::to_read(entries, known);
    if !positions.is_empty() {
        link.for_each(
            Statement::<AtPositions>::new(vec![Ints(positions)]),
            |row| {
                rows.extend(essence_row(row, &lookup.authors));
                ControlFlow::Continue(())
            },
        )?;
    }
    Ok(rows)
}

fn carry_out(link: &mut Link, plan: &Plan<'_>) -> Result<(), Error> {
    if !plan.removed.is_empty() {
        let removed = Ints(plan.removed.clone());
        link.execute(Statement::<RemoveEvents>::new(vec![removed]))?;
        let (keys, positions) = plan.removed_entries.iter().copied().unzip();
        link.execute(Statement::<RemoveEntries>::new(vec![
            Ints(keys),
            Ints(positions),
        ]))?;
    }
    if !plan.rows.is_empty() {
        let rows = || plan.rows.iter();
        let inserted = link.execute(Statement::<InsertEvents>::new(vec![
            Ints(rows().map(|row| row.position).collect()),
            Ints(rows().map(|row| row.batch).collect()),
            MaybeInts(rows().map(|row| row.expires_at).collect()),
            Texts(rows().map(|row| row.json).collect()),
        ]))?;
        let (keys, positions) = plan.entries.iter().copied().unzip();
        let entries = link.execute(Statement::<InsertEntries>::new(vec![
            Ints(keys),
            Ints(positions),
        ]))?;
        // A row that is there already was not there under the lock.
        if inserted != plan.rows.len() || entries != plan.entries.len() {
            return Err(Error::Changed);
        }
    }
    Ok(())
}
