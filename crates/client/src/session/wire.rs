//! One REQ on the wire, and the subscriptions it carries.

use std::time::Duration;

use buzz_protocol::Filter;

use super::{SubId, page::Page};

/// The name of a REQ on the wire: `b` and a number that is never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WireId(pub(super) u64);

impl WireId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        text.strip_prefix('b')?.parse().ok().map(Self)
    }

    pub(crate) fn close_frame(self) -> String {
        format!("[\"CLOSE\",\"b{}\"]", self.0)
    }

    pub(super) fn req_frame(self, filters: &[Filter]) -> String {
        frame("REQ", &format!("b{}", self.0), filters)
    }
}

/// A REQ or COUNT frame.
pub(super) fn frame(verb: &str, name: &str, filters: &[Filter]) -> String {
    let mut out = format!("[\"{verb}\",\"{name}\"");
    for filter in filters {
        out.push(',');
        // Filters are maps of strings, numbers and lists: nothing in them fails to serialise.
        out.push_str(&serde_json::to_string(filter).unwrap_or_default());
    }
    out.push(']');
    out
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// To be sent then, when the gate allows.
    Waiting {
        at: Duration,
    },
    Sent {
        logged_in: bool,
    },
    /// Refused until a login.
    Login,
}

pub(super) const READY: Stage = Stage::Waiting { at: Duration::ZERO };

#[derive(Debug)]
pub(super) struct Member {
    pub(super) sub: SubId,
    /// The catch-up it takes part in, until EOSE.
    pub(super) page: Option<Page>,
}

/// One REQ.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) members: Vec<Member>,
    pub(super) stage: Stage,
    /// Filters as last sent, those of members that left included.
    pub(super) filters_sent: usize,
    /// `error:` answers in a row.
    pub(super) errors: u32,
    /// EOSE came since it was sent.
    pub(super) live: bool,
}
