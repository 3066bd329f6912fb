//! Reads stored events, each thread with one connection of its own, and puts them into frames.
//!
//! Bound: every read holds a permit of its gate, and a page ends at [`PAGE_BYTES`], so that a slow
//! client holds neither a connection nor more memory than a page a subscription. Arrives:
//! `ReadHistory`, `CountEvents`, `LookUpRole`, `Ping`. Leaves: `HistoryPage`, `Counted` and
//! `RoleFound` to the connection. How a request gets here: [`request`].

pub mod request;

use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use actix::{Actor, Handler, Message, SyncContext};
use buzz_protocol::Refusal;
use bytes::BytesMut;

use self::request::{CountRequest, HistoryRequest, RoleRequest};
use crate::{
    connection::{Counted, HistoryPage, RoleFound, ws},
    metrics::Metrics,
    ports::{EventStore, Progress, Purpose, StoreError, StoreReader},
};

/// A page of history ends with the frame that reaches this size.
pub const PAGE_BYTES: usize = 64 * 1024;

/// Reads the next page of a subscription's history.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReadHistory {
    /// What to read.
    pub request: Box<HistoryRequest>,
    /// Held while it is read.
    pub permit: request::Permit,
}

/// Counts stored events.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CountEvents {
    /// What to count.
    pub request: CountRequest,
    /// Held while it is counted: a read's permit, and a counter's share of them.
    pub permits: (request::Permit, request::Permit),
}

/// Looks up the role of a key that logs in.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LookUpRole {
    /// Whose.
    pub request: Box<RoleRequest>,
    /// Held while the database is asked.
    pub permit: request::Permit,
}

/// Asks the database for a sign of life.
#[derive(Message)]
#[rtype(result = "Result<(), StoreError>")]
pub struct Ping;

/// See the module.
pub struct DbReader {
    store: Arc<dyn EventStore>,
    purpose: Purpose,
    /// `None` before the first call and after a panic or a failed opening.
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

    /// Runs one database call; a panic inside it costs the connection, not the room.
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

impl DbReader {
    /// Goes on with whoever waits for this permit, in order, without a way through the gate.
    fn pass_on(&mut self, permit: request::Permit) {
        let mut held = Some(permit);
        while let Some(mut permit) = held {
            held = permit
                .next()
                .and_then(|waiter| waiter.passed_on(permit, self));
        }
    }

    fn read_page(&mut self, request: HistoryRequest) {
        let HistoryRequest {
            mut query,
            prefix,
            token,
            from,
            permit,
            span,
            rooms: _,
        } = request;
        if !from.connected() {
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
        self.metrics
            .db_read_seconds
            .record(started.elapsed().as_secs_f64());
        // The permit first: the answer may bring the next frame at once.
        drop(permit);
        let rest = match progress {
            Ok(Progress::Done) => Ok(None),
            Ok(Progress::Paused) => Ok(Some(query)),
            Err(error) => Err(refusal(&error)),
        };
        from.do_send(HistoryPage {
            token,
            frames,
            rest,
        });
    }

    fn count(&mut self, request: CountRequest) {
        let CountRequest {
            query,
            name,
            from,
            permit,
            span,
            rooms: _,
        } = request;
        if !from.connected() {
            return;
        }
        let _read = tracing::debug_span!(parent: &span, "read").entered();
        let started = Instant::now();
        let count = self.with_connection(|connection| connection.count(&query));
        self.metrics
            .db_count_seconds
            .record(started.elapsed().as_secs_f64());
        drop(permit);
        from.do_send(Counted {
            name,
            count: count.map_err(|error| refusal(&error)),
        });
    }
}

impl Handler<ReadHistory> for DbReader {
    type Result = ();
    fn handle(&mut self, read: ReadHistory, _: &mut Self::Context) {
        self.read_page(*read.request);
        self.pass_on(read.permit);
    }
}

impl Handler<CountEvents> for DbReader {
    type Result = ();
    fn handle(&mut self, count: CountEvents, _: &mut Self::Context) {
        let (permit, share) = count.permits;
        self.count(count.request);
        drop(share);
        self.pass_on(permit);
    }
}

impl Handler<LookUpRole> for DbReader {
    type Result = ();
    fn handle(&mut self, look_up: LookUpRole, _: &mut Self::Context) {
        let LookUpRole { request, permit } = look_up;
        if !request.from.connected() {
            return;
        }
        let RoleRequest { key, id, from, .. } = *request;
        let started = Instant::now();
        let role = self.with_connection(|connection| connection.role(&key));
        self.metrics
            .db_role_seconds
            .record(started.elapsed().as_secs_f64());
        drop(permit);
        from.do_send(RoleFound {
            id,
            key,
            role: role.map_err(|error| refusal(&error)),
        });
    }
}

impl Handler<Ping> for DbReader {
    type Result = Result<(), StoreError>;
    fn handle(&mut self, _: Ping, _: &mut Self::Context) -> Self::Result {
        self.with_connection(|connection| connection.ping())
    }
}
