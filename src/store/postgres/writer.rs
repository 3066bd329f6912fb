//! The session that writes: looks up what a batch needs to know, lets `batch` decide, and carries
//! the changes out, all in one transaction under one lock over all relays. So competing versions and
//! deletions from several relays are decided in the database, one batch after the other.
//!
//! A session may break at any point. Before COMMIT is sent nothing is stored, and the batch is
//! retried. After it, the batch's token tells the next session whether it was committed. So each
//! event gets one answer, and the answer is true.

use std::{
    collections::HashSet,
    ops::ControlFlow,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use buzz_actors::ports::{Outcome, Role, StoreError, StoreWriter};
use buzz_protocol::{Pubkey, VerifiedEvent};
use diesel_async::RunQueryDsl;
use secp256k1::rand::random;

use super::{
    PostgresStore, WRITE_TIMEOUT,
    error::Error,
    last_batch,
    link::Link,
    members, on_own_thread,
    origin::{self, Origin},
    reconnecting::Reconnecting,
    statement::{
        AtPositions, InBlocks, InsertEntries, InsertEvents, LockWrites, OfKeys, RemoveEntries,
        RemoveEvents, Statement,
        Value::{Ints, MaybeInts, Texts},
    },
};
use crate::store::{
    Durability,
    batch::{self, ChangeSet, Incoming, ReadSet, StoredRow},
    columns::{Columns, row_without_content, stored_row},
    lookup,
    statements::expired,
};

/// How long a batch whose COMMIT got no answer waits for a server that can tell.
const DOUBT: Duration = Duration::from_secs(10);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

const FULL: &str = "SET synchronous_commit = on; SET application_name = 'buzz-relay writer'";
const NORMAL: &str = "SET synchronous_commit = off; SET application_name = 'buzz-relay writer'";

pub(super) struct PostgresWriter {
    session: Reconnecting,
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
        let mut session = Reconnecting::new(store.primary.clone(), WRITE_TIMEOUT, settings);
        let origin = match store.origin.get() {
            Some(origin) => origin,
            None => store
                .origin
                .claim(on_own_thread(|| session.with(last_batch::new_origin))?),
        };
        Ok(Self {
            session,
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
            let error = match self.session.take() {
                Ok((mut link, used_before)) => match batch.attempt(&mut link) {
                    Ok(outcomes) => {
                        self.session.put_back(link);
                        if batch.changes {
                            self.shared.changed(number);
                        }
                        return Ok(outcomes);
                    }
                    Err(error) => {
                        // The session is given up. A new one may do better, once.
                        let again = used_before && error.fault().is_retried();
                        let error = error.into_store_error(self.session.server().shown());
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
            let last = last_batch::of(link, self.origin)?;
            if last.is_some_and(|(_, token)| token == self.token) {
                let outcomes = outcomes.clone();
                link.roll_back()?;
                self.changes = true;
                return Ok(outcomes);
            }
            self.in_doubt = None;
        }
        let stored = look_up(link, &ReadSet::of(self.events))?;
        let changes = batch::decide(
            self.events,
            &stored,
            origin::column(self.origin, self.number),
        )?;
        if changes.is_empty() {
            link.roll_back()?;
            return Ok(changes.outcomes);
        }
        carry_out(link, &changes)?;
        let number = i64::try_from(self.number).unwrap_or(i64::MAX);
        if !last_batch::set(link, self.origin, number, self.token)? {
            return Err(Error::Changed);
        }
        self.in_doubt = Some(changes.outcomes.clone());
        link.commit()?;
        self.in_doubt = None;
        self.changes = true;
        Ok(changes.outcomes)
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
        on_own_thread(|| self.write(&incoming, batch))
    }

    fn last_batch(&mut self) -> Result<u64, StoreError> {
        let origin = self.origin;
        on_own_thread(|| {
            self.session.with(|link| {
                let last = last_batch::of(link, origin)?;
                Ok(last.map_or(0, |(batch, _)| batch.unsigned_abs()))
            })
        })
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        // The server looks after its own files.
        Ok(())
    }

    fn purge_expired(&mut self, now: u64, max: usize) -> Result<usize, StoreError> {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        on_own_thread(|| self.session.with(|link| purge(link, now, max)))
    }

    fn set_role(&mut self, key: &Pubkey, role: Option<Role>) -> Result<Option<Role>, StoreError> {
        on_own_thread(|| {
            self.session.with(|link| {
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

fn purge(link: &mut Link, now: i64, max: i64) -> Result<usize, Error> {
    begin(link)?;
    let rows = link.run(async |session| expired(now, max).load(session).await)?;
    if rows.is_empty() {
        link.roll_back()?;
        return Ok(0);
    }
    carry_out(link, &ChangeSet::removing(&rows)?)?;
    link.commit()?;
    Ok(rows.len())
}

fn look_up(link: &mut Link, lookup: &ReadSet) -> Result<Vec<StoredRow>, Error> {
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
                rows.extend(row_without_content(row, &lookup.authors));
                ControlFlow::Continue(())
            },
        )?;
    }
    Ok(rows)
}

fn carry_out(link: &mut Link, changes: &ChangeSet<'_>) -> Result<(), Error> {
    if !changes.removed.is_empty() {
        let removed = Ints(changes.removed.clone());
        link.execute(Statement::<RemoveEvents>::new(vec![removed]))?;
        let (keys, positions) = changes.removed_entries.iter().copied().unzip();
        link.execute(Statement::<RemoveEntries>::new(vec![
            Ints(keys),
            Ints(positions),
        ]))?;
    }
    if !changes.rows.is_empty() {
        let rows = || changes.rows.iter();
        let inserted = link.execute(Statement::<InsertEvents>::new(vec![
            Ints(rows().map(|row| row.position).collect()),
            Ints(rows().map(|row| row.batch).collect()),
            MaybeInts(rows().map(|row| row.expires_at).collect()),
            Texts(rows().map(|row| row.json).collect()),
        ]))?;
        let (keys, positions) = changes.entries.iter().copied().unzip();
        let entries = link.execute(Statement::<InsertEntries>::new(vec![
            Ints(keys),
            Ints(positions),
        ]))?;
        // A row that is there already was not there under the lock.
        if inserted != changes.rows.len() || entries != changes.entries.len() {
            return Err(Error::Changed);
        }
    }
    Ok(())
}
