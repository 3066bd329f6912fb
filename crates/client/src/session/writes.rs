//! Frames that were given out for writing and are not reported back. They are written one after
//! another, so one deadline covers all of them: it starts anew whenever one makes progress.

use std::{collections::BTreeMap, time::Duration};

use buzz_protocol::EventId;

use super::{Config, RequestId, Ticket, wire::WireId};

/// What a ticket means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Request(RequestId),
    Wire(WireId),
    Observer(EventId),
    Login,
    Close,
    Ping,
}

/// The frames of the current socket.
#[derive(Debug, Default)]
pub(super) struct Writes {
    next_ticket: u64,
    pending: BTreeMap<Ticket, Written>,
    /// When the socket is given up without progress; set while frames are pending.
    deadline: Option<Duration>,
}

impl Writes {
    /// A frame is given out.
    pub(super) fn start(&mut self, written: Written) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.pending.insert(ticket, written);
        ticket
    }

    /// A frame is reported back, written or not. `None` where it belongs to an earlier socket.
    pub(super) fn end(&mut self, ticket: Ticket) -> Option<Written> {
        let written = self.pending.remove(&ticket)?;
        self.progressed();
        Some(written)
    }

    /// Bytes went out.
    pub(super) fn progressed(&mut self) {
        self.deadline = None;
    }

    /// The socket is gone, and what it did not write with it.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.deadline = None;
    }

    /// True where nothing went out for too long. Starts the clock where it does not run.
    pub(super) fn are_stalled(&mut self, now: Duration, config: &Config) -> bool {
        if self.pending.is_empty() {
            self.deadline = None;
            return false;
        }
        let deadline = *self.deadline.get_or_insert(now + config.write_timeout);
        deadline <= now
    }

    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.deadline
    }
}
