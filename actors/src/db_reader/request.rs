//! What connections and calls want read, and its way through the gates to a reader. A request holds what is
//! needed to answer it at every step, so that no step has to remember who asked.

use std::{sync::Arc, time::Instant};

use actix::Addr;
use buzz_protocol::{EventId, Pubkey, Refusal};
use tracing::Span;

use super::{CountEvents, DbReader, LookUpRole, ReadHistory};
use crate::{
    call::Asker,
    connection::{Counted, HistoryPage, LoginShed},
    gate::{Acquire, Gate, GatePermit, Work},
    ports::Query,
    rooms::{self, Rooms},
};

/// A request at a gate.
pub trait Waiter: Send + 'static {
    /// See [`Work::is_wanted`].
    fn wanted(&self) -> bool;
    /// Hands it to whoever does it.
    fn admitted(self: Box<Self>, permit: Permit);
    /// Does it on the reader that has ended the work before it, and gives the permit back.
    fn passed_on(self: Box<Self>, permit: Permit, _: &mut DbReader) -> Option<Permit> {
        self.admitted(permit);
        None
    }
    /// See [`Work::shed`].
    fn shed(self: Box<Self>);
}

impl Work for Box<dyn Waiter> {
    fn is_wanted(&self) -> bool {
        (**self).wanted()
    }
    fn shed(self) {
        Waiter::shed(self);
    }
}

/// A gate of any requests.
pub type RequestGate = Gate<Box<dyn Waiter>>;
/// Its permit.
pub type Permit = GatePermit<Box<dyn Waiter>>;

/// The next page of a subscription's history.
pub struct HistoryRequest {
    /// What to read, and how far it got.
    pub query: Box<Query>,
    /// What stands before each event in its frame; `None`: no frames, but the elements of a JSON
    /// array, each behind a comma.
    pub prefix: Option<Box<str>>,
    /// The subscription's number.
    pub token: u32,
    /// Who asked.
    pub from: Asker,
    /// Released when the page is read, before the client takes it.
    pub permit: rooms::Permit,
    /// The trace of the REQ.
    pub span: Span,
    /// The rooms on its way.
    pub rooms: Arc<Rooms>,
}

/// A count of stored events.
pub struct CountRequest {
    /// What to count.
    pub query: Box<Query>,
    /// The client's name for it.
    pub name: String,
    /// Who asked.
    pub from: Asker,
    /// Released when it is counted.
    pub permit: rooms::Permit,
    /// The trace of the COUNT.
    pub span: Span,
    /// The rooms on its way.
    pub rooms: Arc<Rooms>,
}

/// The role of somebody whose login is signed as it must be.
pub struct RoleRequest {
    /// Whose role.
    pub key: Pubkey,
    /// The login's event; `None`: a login of before is looked at again.
    pub id: Option<EventId>,
    /// Who asked.
    pub from: Asker,
    /// The rooms on its way.
    pub rooms: Arc<Rooms>,
}

impl HistoryRequest {
    /// Waits at the history gate.
    pub fn enter(self) {
        let gate = self.rooms.history_gate.clone();
        acquire(&gate, self, Instant::now());
    }
}

impl CountRequest {
    /// Waits for a counter's share, then at the history gate.
    pub fn enter(self) {
        let gate = self.rooms.count_gate.clone();
        let request = Counting {
            request: self,
            since: Instant::now(),
            share: None,
        };
        let since = request.since;
        acquire(&gate, request, since);
    }
}

impl RoleRequest {
    /// Waits at the auth gate.
    pub fn enter(self) {
        let gate = self.rooms.auth_gate.clone();
        acquire(&gate, self, Instant::now());
    }
}

fn acquire(gate: &Addr<RequestGate>, waiter: impl Waiter, since: Instant) {
    let work: Box<dyn Waiter> = Box::new(waiter);
    gate.do_send(Acquire { work, since });
}

impl Waiter for HistoryRequest {
    fn wanted(&self) -> bool {
        self.from.connected()
    }

    fn admitted(self: Box<Self>, permit: Permit) {
        let reader = self.rooms.reader.clone();
        reader.do_send(ReadHistory {
            request: self,
            permit,
        });
    }

    fn passed_on(self: Box<Self>, permit: Permit, reader: &mut DbReader) -> Option<Permit> {
        reader.read_page(*self);
        Some(permit)
    }

    fn shed(self: Box<Self>) {
        let Self {
            token,
            from,
            permit,
            ..
        } = *self;
        drop(permit);
        from.do_send(HistoryPage {
            token,
            frames: bytes::BytesMut::new(),
            rest: Err(Refusal::HistoryBusy),
        });
    }
}

/// A count at one of its two gates.
struct Counting {
    request: CountRequest,
    /// Both gates together may make it wait no longer than one.
    since: Instant,
    /// Held from the first gate on.
    share: Option<Permit>,
}

impl Waiter for Counting {
    fn wanted(&self) -> bool {
        self.request.from.connected()
    }

    fn admitted(mut self: Box<Self>, permit: Permit) {
        let rooms = Arc::clone(&self.request.rooms);
        match self.share.take() {
            None => {
                self.share = Some(permit);
                let since = self.since;
                let work: Box<dyn Waiter> = self;
                rooms.history_gate.do_send(Acquire { work, since });
            }
            Some(share) => rooms.reader.do_send(CountEvents {
                request: self.request,
                permits: (permit, share),
            }),
        }
    }

    fn passed_on(self: Box<Self>, permit: Permit, reader: &mut DbReader) -> Option<Permit> {
        if self.share.is_none() {
            self.admitted(permit);
            return None;
        }
        reader.count(self.request);
        Some(permit)
    }

    fn shed(self: Box<Self>) {
        let CountRequest {
            name, from, permit, ..
        } = self.request;
        drop(permit);
        from.do_send(Counted {
            name,
            count: Err(Refusal::HistoryBusy),
        });
    }
}

impl Waiter for RoleRequest {
    fn wanted(&self) -> bool {
        self.from.connected()
    }

    fn admitted(self: Box<Self>, permit: Permit) {
        let authorizer = self.rooms.authorizer.clone();
        authorizer.do_send(LookUpRole {
            request: self,
            permit,
        });
    }

    fn shed(self: Box<Self>) {
        if self.id.is_some() {
            self.from.do_send(LoginShed);
        }
    }
}
