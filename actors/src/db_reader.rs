//! Reads stored events, each thread with one connection of its own, and puts them into frames.
//!
//! Bound: every read holds a permit of its gate, and a page ends at [`PAGE_BYTES`], so that a slow
//! client holds neither a connection nor more memory than a page a subscription. Arrives, from a
//! gate: [`Start`] with a [`Read`] or a [`RoleLookUp`]; from the health check: `Ping`. Leaves:
//! answers. A reader that panics is replaced by a new one.

use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use actix::{Actor, Handler, Message, SyncContext};
use buzz_protocol::{Pubkey, Refusal};
use bytes::BytesMut;
use tracing::Span;

use crate::{
    gate::{GatePermit, Work},
    metrics::Metrics,
    permits::Permit,
    pool,
    ports::{EventStore, Progress, Purpose, Query, Role, StoreError, StoreReader},
    reply::{Answer, Reply, no_answer},
    ws,
};

/// A page of history ends with the event that reaches this size.
pub const PAGE_BYTES: usize = 64 * 1024;

/// What passes the history gate.
pub enum Read {
    /// A page.
    Page(Box<ReadPage>),
    /// A count, with its permit of the count gate.
    Count(Box<CountEvents>, GatePermit<CountEvents>),
}

/// Reads the next page of a history.
pub struct ReadPage {
    /// What to read, and how far it got.
    pub query: Box<Query>,
    /// What stands before each event in its frame; `None`: no frames, but the elements of a JSON
    /// array, each behind a comma.
    pub prefix: Option<Box<str>>,
    /// Released when the page is read, before the client takes it.
    pub permit: Permit,
    /// The trace of the REQ.
    pub span: Span,
    /// Takes the page.
    pub reply: Reply<HistoryPage>,
}

/// The answer to [`ReadPage`].
#[derive(Debug)]
pub struct HistoryPage {
    /// Events, ready to send.
    pub frames: BytesMut,
    /// What is left to read; `None`: the history is complete.
    pub rest: Result<Option<Box<Query>>, Refusal>,
}

impl HistoryPage {
    fn refused(refusal: Refusal) -> Self {
        Self {
            frames: BytesMut::new(),
            rest: Err(refusal),
        }
    }
}

impl Answer for HistoryPage {
    fn unanswered() -> Self {
        Self::refused(no_answer())
    }
}

/// Counts stored events.
pub struct CountEvents {
    /// What to count.
    pub query: Box<Query>,
    /// Released when it is counted.
    pub permit: Permit,
    /// The trace of the COUNT.
    pub span: Span,
    /// Since when it waits: both of its gates together may make it wait no longer than one.
    pub since: Instant,
    /// Takes the count.
    pub reply: Reply<Result<u64, Refusal>>,
}

/// What passes the auth gate.
pub enum RoleLookUp {
    /// For a login.
    Login(LookUpRole),
    /// For a member that is logged in, with its permit of the recheck gate: one of them at most
    /// waits among the logins.
    Recheck(LookUpRole, GatePermit<LookUpRole>),
}

/// Looks up the role of a key that logs in, or that is logged in.
pub struct LookUpRole {
    /// Whose.
    pub key: Pubkey,
    /// Takes the role.
    pub reply: Reply<RoleFound>,
}

/// The answer to [`LookUpRole`].
#[derive(Debug)]
pub enum RoleFound {
    /// The key's role; `None`: no member.
    Role(Option<Role>),
    /// It waited too long at the auth gate.
    Shed,
    /// The database could not be asked.
    Failed(Refusal),
}

impl Answer for RoleFound {
    fn unanswered() -> Self {
        Self::Failed(no_answer())
    }
}

impl Work for Read {
    fn is_wanted(&self) -> bool {
        match self {
            Self::Page(page) => page.reply.is_wanted(),
            Self::Count(count, _) => count.is_wanted(),
        }
    }

    fn shed(self) {
        match self {
            Self::Page(page) => {
                let ReadPage { permit, reply, .. } = *page;
                // The permit first: the answer may bring the next frame at once.
                drop(permit);
                reply.send(HistoryPage::refused(Refusal::HistoryBusy));
            }
            Self::Count(count, _) => count.shed(),
        }
    }
}

impl Work for CountEvents {
    fn is_wanted(&self) -> bool {
        self.reply.is_wanted()
    }

    fn shed(self) {
        drop(self.permit);
        self.reply.send(Err(Refusal::HistoryBusy));
    }
}

impl Work for RoleLookUp {
    fn is_wanted(&self) -> bool {
        match self {
            Self::Login(look_up) | Self::Recheck(look_up, _) => look_up.is_wanted(),
        }
    }

    fn shed(self) {
        match self {
            Self::Login(look_up) | Self::Recheck(look_up, _) => look_up.shed(),
        }
    }
}

impl Work for LookUpRole {
    fn is_wanted(&self) -> bool {
        self.reply.is_wanted()
    }

    fn shed(self) {
        self.reply.send(RoleFound::Shed);
    }
}

/// Starts work that its gate has admitted.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Start<W: Work> {
    /// What to do.
    pub work: W,
    /// Held while it is done.
    pub permit: GatePermit<W>,
}

/// Asks the database for a sign of life.
#[derive(Message)]
#[rtype(result = "Result<(), StoreError>")]
pub struct Ping;

/// See the module.
pub struct DbReader {
    store: Arc<dyn EventStore>,
    purpose: Purpose,
    /// `None` before the first call, and after a panic or a failed opening.
    connection: Option<Box<dyn StoreReader>>,
    metrics: Metrics,
}

impl DbReader {
    /// One thread's reader; the connection opens with the first call.
    pub fn new(store: Arc<dyn EventStore>, purpose: Purpose, metrics: Metrics) -> Self {
        Self {
            store,
            purpose,
            connection: None,
            metrics,
        }
    }

    /// Runs one database call; a panic inside it costs the connection, not the reader.
    fn with_connection<T>(
        &mut self,
        call: impl FnOnce(&mut dyn StoreReader) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.store.reader(self.purpose)?,
        };
        let result = catch_unwind(AssertUnwindSafe(|| call(&mut *connection)));
        let result = result.map_err(|_| StoreError::Failed("the read panicked".into()))?;
        self.connection = Some(connection);
        result
    }

    /// Reads, and goes on with the reads that wait for this permit, in order, without waking the
    /// gate first.
    fn read_all(&mut self, read: Read, mut permit: GatePermit<Read>) {
        let mut next = Some(read);
        while let Some(read) = next {
            match read {
                Read::Page(page) => self.read_page(*page),
                Read::Count(count, share) => {
                    self.count(*count);
                    drop(share);
                }
            }
            next = permit.next();
        }
    }

    fn read_page(&mut self, read: ReadPage) {
        let ReadPage {
            mut query,
            prefix,
            permit,
            span,
            reply,
        } = read;
        if !reply.is_wanted() {
            return;
        }
        let _read = tracing::debug_span!(parent: &span, "read").entered();
        let started = Instant::now();
        let mut frames = BytesMut::new();
        let mut row = |json: &str| {
            match &prefix {
                Some(prefix) => {
                    ws::push_text(&mut frames, &[prefix.as_bytes(), json.as_bytes(), b"]"]);
                }
                None => {
                    frames.extend_from_slice(b",");
                    frames.extend_from_slice(json.as_bytes());
                }
            }
            if frames.len() < PAGE_BYTES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let progress = self.with_connection(|connection| connection.read(&mut query, &mut row));
        let seconds = started.elapsed().as_secs_f64();
        self.metrics.db_read_seconds.record(seconds);
        // The permit first: the answer may bring the next frame at once.
        drop(permit);
        let rest = match progress {
            Ok(Progress::Done) => Ok(None),
            Ok(Progress::Paused) => Ok(Some(query)),
            Err(error) => Err(refusal(&error)),
        };
        reply.send(HistoryPage { frames, rest });
    }

    fn count(&mut self, count: CountEvents) {
        let CountEvents {
            query,
            permit,
            span,
            reply,
            since: _,
        } = count;
        if !reply.is_wanted() {
            return;
        }
        let _read = tracing::debug_span!(parent: &span, "read").entered();
        let started = Instant::now();
        let count = self.with_connection(|connection| connection.count(&query));
        let seconds = started.elapsed().as_secs_f64();
        self.metrics.db_count_seconds.record(seconds);
        drop(permit);
        reply.send(count.map_err(|error| refusal(&error)));
    }

    fn look_up_role(&mut self, look_up: RoleLookUp, permit: GatePermit<RoleLookUp>) {
        let (LookUpRole { key, reply }, share) = match look_up {
            RoleLookUp::Login(look_up) => (look_up, None),
            RoleLookUp::Recheck(look_up, share) => (look_up, Some(share)),
        };
        if !reply.is_wanted() {
            return;
        }
        let started = Instant::now();
        let role = self.with_connection(|connection| connection.role(&key));
        let seconds = started.elapsed().as_secs_f64();
        self.metrics.db_role_seconds.record(seconds);
        drop((permit, share));
        reply.send(match role {
            Ok(role) => RoleFound::Role(role),
            Err(error) => RoleFound::Failed(refusal(&error)),
        });
    }
}

fn refusal(error: &StoreError) -> Refusal {
    tracing::error!(%error, "read failed");
    match error {
        StoreError::Unavailable(_) => Refusal::DatabaseUnavailable,
        StoreError::TookTooLong => Refusal::Error("query took too long".into()),
        StoreError::Failed(_) => Refusal::Error("the database failed".into()),
    }
}

impl Actor for DbReader {
    type Context = SyncContext<Self>;
}

impl pool::Member for DbReader {
    const NAME: &'static str = "db_reader";

    fn restarts(&self) -> &metrics::Counter {
        &self.metrics.reader_restarts
    }
}

impl Handler<Start<Read>> for DbReader {
    type Result = ();
    fn handle(&mut self, start: Start<Read>, ctx: &mut Self::Context) {
        pool::run(self, ctx, |reader| {
            reader.read_all(start.work, start.permit)
        });
    }
}

impl Handler<Start<RoleLookUp>> for DbReader {
    type Result = ();
    fn handle(&mut self, start: Start<RoleLookUp>, ctx: &mut Self::Context) {
        pool::run(self, ctx, |reader| {
            reader.look_up_role(start.work, start.permit);
        });
    }
}

impl Handler<Ping> for DbReader {
    type Result = Result<(), StoreError>;
    fn handle(&mut self, _: Ping, _: &mut Self::Context) -> Self::Result {
        self.with_connection(|connection| connection.ping())
    }
}
