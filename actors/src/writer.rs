//! Owns the write connection and the batch being filled. What arrives while a batch is written is
//! the next batch: one transaction and one flush to disk for all of it.
//!
//! Bound: every event holds a permit. Arrives: `StoreEvents`, `Flush`. Leaves, after the commit:
//! what is new to the fan-out, and each sender's answers.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};
use buzz_protocol::{
    EventId, Refusal, VerifiedEvent,
    kind::{Class, class},
};
use tracing::Span;

use crate::{
    committed::Committed,
    fanout::{Fanout, Publish},
    metrics::Metrics,
    permits::Permit,
    ports::{EventStore, Outcome, StoreError, StoreWriter},
    reply::{Answer, Reply},
};

/// Verified events of one sender.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StoreEvents {
    /// In the order of arrival, each with the trace of its frame.
    pub events: Vec<(Arc<VerifiedEvent>, Span)>,
    /// Covers all of them.
    pub permit: Permit,
    /// Takes what became of them.
    pub reply: Reply<Stored>,
}

/// The answer to [`StoreEvents`].
#[derive(Debug)]
pub struct Stored {
    /// What became of each event, with the trace of its frame. An event that is missing here was
    /// lost with the actor that had it: nothing is known of it.
    pub results: Vec<(EventId, Result<Outcome, Refusal>, Span)>,
}

impl Answer for Stored {
    fn unanswered() -> Self {
        Self {
            results: Vec::new(),
        }
    }
}

/// Sent to itself: handled after everything that waits in the mailbox.
#[derive(Message)]
#[rtype(result = "()")]
struct WriteBatch;

/// See the module.
pub struct Writer {
    store: Arc<dyn EventStore>,
    connection: Box<dyn StoreWriter>,
    waiting: Vec<StoreEvents>,
    batch: u64,
    committed: Committed,
    fanout: Addr<Fanout>,
    metrics: Metrics,
    clock: fn() -> u64,
}

/// How often expired events are removed. They are not served meanwhile.
const PURGE_EVERY: Duration = Duration::from_secs(5);
/// Expired events removed in one transaction, so that no batch waits long behind it.
const PURGE_AT_ONCE: usize = 500;

impl Writer {
    /// Opens the write connection.
    ///
    /// # Errors
    /// When the database can't be opened or read.
    pub fn open(
        store: Arc<dyn EventStore>,
        fanout: Addr<Fanout>,
        committed: Committed,
        metrics: Metrics,
        clock: fn() -> u64,
    ) -> Result<Self, StoreError> {
        let mut connection = store.writer()?;
        let batch = connection.last_batch()?;
        committed.set(batch);
        Ok(Self {
            store,
            connection,
            waiting: Vec::new(),
            batch,
            committed,
            fanout,
            metrics,
            clock,
        })
    }

    /// Runs one database call; a panic inside it costs the connection, not the writer.
    fn with_connection<T>(
        &mut self,
        call: impl FnOnce(&mut dyn StoreWriter) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        catch_unwind(AssertUnwindSafe(|| call(&mut *self.connection))).unwrap_or_else(|_| {
            self.connection = self.store.writer()?;
            Err(StoreError::Failed("the write panicked".into()))
        })
    }

    fn write_batch(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        let events = || waiting.iter().flat_map(|message| &message.events);
        let stored: Vec<_> = events()
            .filter(|(event, _)| class(event.kind) != Class::Ephemeral)
            .map(|(event, _)| Arc::clone(event))
            .collect();
        self.batch += 1;
        let batch = self.batch;
        let started = Instant::now();
        let writes: Vec<_> = events()
            .map(|(_, span)| tracing::debug_span!(parent: span, "write"))
            .collect();
        let outcomes = if stored.is_empty() {
            Ok(Vec::new())
        } else {
            self.metrics.write_batch_events.record(stored.len() as f64);
            self.with_connection(|connection| connection.store(&stored, batch))
        };
        drop(writes);
        if !stored.is_empty() {
            self.metrics
                .db_write_seconds
                .record(started.elapsed().as_secs_f64());
        }
        if let Err(error) = &outcomes {
            tracing::error!(%error, events = stored.len(), "write batch failed");
        }
        let mut outcomes = outcomes.map(Vec::into_iter);
        let mut next_outcome = |event: &VerifiedEvent| match &mut outcomes {
            _ if class(event.kind) == Class::Ephemeral => Ok(Outcome::Stored),
            Ok(outcomes) => outcomes
                .next()
                .ok_or_else(|| Refusal::Error("no outcome".into())),
            Err(StoreError::Unavailable(_)) => Err(Refusal::DatabaseUnavailable),
            Err(StoreError::Failed(_) | StoreError::TookTooLong) => {
                Err(Refusal::Error("the database failed".into()))
            }
        };
        let mut fresh = Vec::with_capacity(stored.len());
        let mut answers = Vec::with_capacity(waiting.len());
        for message in &waiting {
            let results = message.events.iter().map(|(event, span)| {
                let outcome = next_outcome(event);
                if outcome == Ok(Outcome::Stored) {
                    fresh.push(Arc::clone(event));
                }
                (event.id, outcome, span.clone())
            });
            answers.push(results.collect::<Vec<(EventId, Result<Outcome, Refusal>, Span)>>());
        }
        // Readers that begin now find the batch in the store; those that began before get it
        // from the fan-out. The order matters: docs/architecture.md, "The seam".
        self.committed.set(batch);
        if !fresh.is_empty() {
            self.fanout.do_send(Publish {
                batch,
                events: fresh.into(),
            });
        }
        for (StoreEvents { permit, reply, .. }, results) in waiting.into_iter().zip(answers) {
            // The permit first: the answer may bring the next frame at once.
            drop(permit);
            reply.send(Stored { results });
        }
    }

    fn purge(&mut self, ctx: &mut Context<Self>) {
        let (now, started) = ((self.clock)(), Instant::now());
        let purged =
            self.with_connection(|connection| connection.purge_expired(now, PURGE_AT_ONCE));
        self.metrics
            .db_purge_seconds
            .record(started.elapsed().as_secs_f64());
        let pause = match purged {
            // More may be waiting; events that wait in the mailbox come first.
            Ok(PURGE_AT_ONCE..) => Duration::ZERO,
            Ok(_) => PURGE_EVERY,
            Err(error) => {
                tracing::warn!(%error, "purge of expired events failed");
                PURGE_EVERY
            }
        };
        ctx.run_later(pause, Self::purge);
    }
}

impl Actor for Writer {
    type Context = Context<Self>;
    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_later(PURGE_EVERY, Self::purge);
    }
}

impl Handler<StoreEvents> for Writer {
    type Result = ();
    fn handle(&mut self, events: StoreEvents, ctx: &mut Self::Context) {
        if self.waiting.is_empty() {
            ctx.notify(WriteBatch);
        }
        self.waiting.push(events);
    }
}

/// Brings the database to rest. Answered when everything sent before it is committed and answered.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Flush;

impl Handler<Flush> for Writer {
    type Result = ();
    fn handle(&mut self, _: Flush, _: &mut Self::Context) {
        self.write_batch();
        if let Err(error) = self.with_connection(|connection| connection.flush()) {
            tracing::warn!(%error, "the database was not brought to rest");
        }
    }
}

impl Handler<WriteBatch> for Writer {
    type Result = ();
    fn handle(&mut self, _: WriteBatch, _: &mut Self::Context) {
        self.write_batch();
    }
}
