//! The ways into the rooms, and what all of them are told at the start. Shared by every
//! connection; holds no state of its own but two counters, each with one writer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actix::Addr;
use buzz_protocol::{Filter, Limits, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    admission::Admission,
    db_reader::{DbReader, request::RequestGate},
    fanout::Fanout,
    metrics::Metrics,
    ports::Query,
    replay::Replay,
    roster::Roster,
    verifier::Verifier,
    writer::Writer,
};

/// What the connections are told at the start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// NIP-11 limits.
    pub limits: Limits,
    /// The URL that logins must name.
    pub relay_url: String,
    /// Bytes of the largest message a client may send.
    pub max_frame_bytes: usize,
    /// Live frames that may wait for one slow client.
    pub send_queue: usize,
    /// Whether only logged-in clients may publish and read.
    pub auth_required: bool,
    /// Whether only members may log in.
    pub members_only: bool,
    /// How long a socket may stay without a login where one is required.
    pub auth_timeout: Duration,
    /// How often a member that is logged in is looked up again, where only members may log in.
    pub auth_recheck: Duration,
}

/// Addresses of all rooms.
pub struct Rooms {
    /// Counts what each principal spends.
    pub admission: Admission,
    /// Checks signatures.
    pub verifier: Addr<Verifier>,
    /// Writes events.
    pub writer: Addr<Writer>,
    /// Reads and counts events, each with a permit of the history gate.
    pub reader: Addr<DbReader>,
    /// Reads roles, with connections of its own: no history keeps anybody from logging in.
    pub authorizer: Addr<DbReader>,
    /// Caps the reads and counts of stored events.
    pub history_gate: Addr<RequestGate>,
    /// The share of them that counts may take: one may take long, and reads must go on.
    pub count_gate: Addr<RequestGate>,
    /// Caps the logins in their database checks.
    pub auth_gate: Addr<RequestGate>,
    /// Passes live events on.
    pub fanout: Addr<Fanout>,
    /// Knows which authorizations of REST requests were used.
    pub replay: Addr<Replay>,
    /// Knows the open connections.
    pub roster: Addr<Roster>,
    /// What the connections are told.
    pub settings: Settings,
    /// Metric handles.
    pub metrics: Metrics,
    /// The number of the last committed batch.
    pub committed: Committed,
    /// Frames in work over all connections.
    pub handlers: Permits,
    /// Open sockets.
    pub sockets: Permits,
    /// Seconds since the Unix epoch.
    pub clock: fn() -> u64,
}

impl Rooms {
    /// A place among the frames and calls in work.
    ///
    /// # Errors
    /// `rate-limited: …` where there is none.
    pub fn enter(&self) -> Result<Permit, Refusal> {
        self.handlers.try_enter().ok_or(Refusal::TooManyRequests)
    }

    /// A query for what is stored and committed now.
    pub fn query(&self, filters: Vec<Filter>) -> Query {
        let committed = self.committed.get();
        Query::new(filters, &self.settings.limits, (self.clock)(), committed)
    }
}

/// The number of the last committed batch: written by the writer alone, read when a subscription
/// begins. What is committed up to then is its history; what comes later reaches it live.
#[derive(Debug, Clone, Default)]
pub struct Committed(Arc<AtomicU64>);

impl Committed {
    /// The last batch whose events every reader sees from now on.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, batch: u64) {
        self.0.store(batch, Ordering::Release);
    }
}

/// A number of permits, for frames in work or open sockets. A permit travels with its frame and is
/// released by its drop, also when the connection is gone before the work is done.
#[derive(Debug, Clone)]
pub struct Permits(Arc<Semaphore>, u32);

impl Permits {
    /// So many at once.
    pub fn new(permits: usize) -> Self {
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let most = usize::try_from(permits).unwrap_or(usize::MAX);
        let semaphore = Semaphore::new(most.min(Semaphore::MAX_PERMITS));
        Self(Arc::new(semaphore), permits)
    }

    /// One of them, if it is free.
    pub fn try_enter(&self) -> Option<Permit> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(Permit)
    }

    /// Waits until all of them are back. Nobody gets one meanwhile.
    pub async fn all_back(&self) {
        // Fails where they are closed, which they never are.
        drop(self.0.acquire_many(self.1).await);
    }

    /// One of them, once it is free; `None` never, but where they are closed.
    pub async fn enter(&self) -> Option<Permit> {
        Arc::clone(&self.0).acquire_owned().await.ok().map(Permit)
    }
}

/// One permit or several.
#[derive(Debug)]
pub struct Permit(OwnedSemaphorePermit);

impl Permit {
    /// Gives the permits of `frames` back, where it has more than those.
    pub fn give_back(&mut self, frames: usize) {
        drop(self.0.split(frames));
    }

    /// Takes over another's.
    pub fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }
}
