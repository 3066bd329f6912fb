//! What goes into a session and what comes out of it.

use std::time::Instant;

use buzz_protocol::{Event, EventId, Filter, Pubkey, Refusal};
use bytes::Bytes;
use tracing::Span;

use crate::{
    admission::{Admitted, Cost, Principal, QuotaClass, SignatureChecksPaused},
    db_reader::{HistoryPage, RoleFound},
    fanout::Live,
    permits::Permit,
    ports::Query,
    verifier::Verified,
    writer::Stored,
    ws::Broken,
};

/// When an input comes.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For durations.
    pub at: Instant,
    /// Seconds since the Unix epoch, for what events say.
    pub unix_secs: u64,
}

/// What happens to a session: messages of the client, answers to its questions, and the shell's
/// own signs.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "the fields are those of the question that is answered"
)]
pub enum Input {
    /// A whole text message.
    Text(Bytes),
    /// A whole binary message.
    Binary,
    /// A ping, to be answered with the same bytes.
    Ping(Bytes),
    /// A pong, which needs nothing.
    Pong,
    /// The client closes.
    ClientClosed,
    /// The client went away, with or without saying so. Messages that it sent before may follow;
    /// its events are still stored.
    ClientGone,
    /// Everything that the client sent before it went away has been taken.
    AllTaken,
    /// The client's bytes are no messages.
    Broken(Broken),
    /// A message is not whole within its time.
    MessageTimedOut,

    /// Answers [`Output::Admit`].
    Admitted(Admitted),
    /// Answers [`Output::NoteInvalidSignatures`].
    SignatureChecksPaused(SignatureChecksPaused),
    /// Answers [`Output::VerifyEvents`]: the first of its two answers is about the wrong events.
    Verified { batch: u32, verified: Verified },
    /// Answers [`Output::VerifyEvents`]: the second is about the good ones. It may come first.
    Stored { batch: u32, stored: Stored },
    /// Answers [`Output::VerifyLogin`].
    LoginVerified {
        id: EventId,
        verdict: Result<Pubkey, Refusal>,
    },
    /// Answers [`Output::LookUpRole`].
    RoleFound {
        key: Pubkey,
        login: Option<EventId>,
        found: RoleFound,
    },
    /// Answers [`Output::Subscribe`], read after the subscription was sent to the fan-out.
    Subscribed { token: u32, committed: u64 },
    /// Answers [`Output::ReadPage`].
    Page { token: u32, page: HistoryPage },
    /// Answers [`Output::Count`].
    Counted {
        name: String,
        count: Result<u64, Refusal>,
    },
    /// Comes from the fan-out, for subscriptions.
    Live(Live),

    /// What was taken to be sent is on its way, and the socket has room for more. Follows whatever
    /// came before it: what was gathered is asked for now.
    Ready,
    /// Half of the silence has passed after which a client is pinged.
    PingTick,
    /// A login was due by now, where one is required.
    LoginDue,
    /// The members that are logged in are to be looked up again.
    RecheckMembers,
    /// Those whose recheck had no result are to be looked up once more.
    RecheckOverdue,
    /// The relay shuts down. Said twice: at once.
    Shutdown,
}

/// What a session wants done. Each question is answered exactly once, by the input of its name.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are those of the actor's message")]
pub enum Output {
    /// Decide a batch of frames.
    Admit {
        principal: Principal,
        class: QuotaClass,
        costs: Vec<Cost>,
    },
    /// Count wrong signatures against the client's address.
    NoteInvalidSignatures { count: usize },
    /// Check signatures, and store what is right.
    VerifyEvents {
        batch: u32,
        events: Vec<(Event, Span)>,
        permit: Permit,
    },
    /// Check the signature of a login.
    VerifyLogin { event: Box<Event> },
    /// Look up a role; `login` is the login's event, `None` where a member is looked up again.
    LookUpRole { key: Pubkey, login: Option<EventId> },
    /// Bring [`Input::RecheckOverdue`] after a while.
    RecheckLater,
    /// Send matching events from now on. The shell tells the fan-out, then reads the number of the
    /// last committed batch. docs/architecture.md, "The seam".
    Subscribe { token: u32, filters: Vec<Filter> },
    /// Send no more. Has no answer.
    Unsubscribe { token: u32 },
    /// Read a page of history.
    ReadPage {
        token: u32,
        prefix: Box<str>,
        query: Box<Query>,
        permit: Permit,
        span: Span,
    },
    /// Count stored events.
    Count {
        name: String,
        filters: Vec<Filter>,
        permit: Permit,
        span: Span,
    },
    /// Write a line to the access log. Has no answer.
    Log(LogLine),
}

impl Input {
    /// Whether the client itself has sent it.
    pub(super) fn is_from_client(&self) -> bool {
        matches!(
            self,
            Self::Text(_) | Self::Binary | Self::Ping(_) | Self::Pong
        )
    }
}

impl Output {
    /// Whether it is one of the reads in flight.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::ReadPage { .. } | Self::Count { .. })
    }

    /// Whether it costs the database a look-up for this client alone.
    pub(super) fn is_look_up(&self) -> bool {
        self.is_read() || matches!(self, Self::LookUpRole { .. })
    }
}

/// A line of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLine {
    /// The verb of the frame; `none` where it has none.
    pub verb: &'static str,
    /// `ok` or `denied`.
    pub outcome: &'static str,
    /// Why, from a closed set.
    pub reason: &'static str,
    /// Lines of this socket left out before this one.
    pub left_out: u64,
}
