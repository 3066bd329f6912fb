//! What goes into a session and what comes out of it.

use std::time::Duration;

use buzz_protocol::{Event, Filter, VerifiedEvent};

use crate::Error;

/// The time, as the caller has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since any fixed moment; never goes back.
    pub at: Duration,
    /// Seconds since the Unix epoch, by the wall clock.
    pub unix: u64,
}

/// A dialled socket; every dial has a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub(super) u64);

/// A publish, count or login, as its caller numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A subscription, as its caller numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubId(pub u64);

/// A frame whose write is reported back with [`Input::Written`] or [`Input::WriteFailed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// What the client is asked to do.
#[derive(Debug, Clone)]
pub enum Command {
    /// Publish an event; answered by [`Answer::Published`].
    Publish(RequestId, Box<Event>),
    /// Count stored events (NIP-45); answered by [`Answer::Count`].
    Count(RequestId, Vec<Filter>),
    /// Answered by [`Answer::LoggedIn`] once the relay has accepted a login on this socket.
    Authenticate(RequestId),
    /// Stored events, then live ones, as [`Message`]s.
    Subscribe(SubId, Vec<Filter>),
    /// End a subscription; nothing more is delivered to it.
    Unsubscribe(SubId),
    /// Telemetry: sent when there is room, with no answer.
    Observe(Box<Event>),
    /// Go to another relay. Calls without an answer fail; subscriptions start anew there.
    Switch(String),
    /// End everything.
    Close,
}

/// What a relay says of its limits (NIP-11); what is `None` is as in [`super::Config`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayLimits {
    /// Filters in one REQ.
    pub max_filters: Option<usize>,
    /// Stored events sent for one filter.
    pub max_limit: Option<usize>,
    /// EVENT, REQ and COUNT frames in any window of this length.
    pub quota: Option<(usize, Duration)>,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// Time has passed; see [`super::Session::wake_at`].
    Tick,
    /// A dial succeeded.
    Opened(SocketId),
    /// A dial failed, or a socket ended, from whichever side.
    Lost(SocketId),
    /// A text frame came.
    Frame(SocketId, String),
    /// The relay at this URL has said what its limits are.
    Limits(String, RelayLimits),
    /// A ping or pong came.
    Alive(SocketId),
    /// A frame is on the socket.
    Written(Ticket),
    /// Some bytes of a frame that is not yet [`Input::Written`] went out.
    WriteProgress(SocketId),
    /// A frame could not be written; a socket that is of no use any more is reported as lost too.
    WriteFailed(Ticket),
    /// A login for a challenge was signed, or why not.
    Signed(SocketId, String, Result<Box<Event>, String>),
    /// A consumer took so many [`Message::Event`]s out of its queue.
    Took(SubId, usize),
    /// A user's wish.
    Command(Command),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Open a socket to the URL.
    Dial(SocketId, String),
    /// Drop a socket, or the dial for it.
    Drop(SocketId),
    /// Write a text frame.
    Send(SocketId, Ticket, String),
    /// Write a ping.
    Ping(SocketId, Ticket),
    /// Sign a login (NIP-42) for this challenge and relay URL.
    Sign(SocketId, String, String),
    /// A request has its result.
    Resolved(RequestId, Result<Answer, Error>),
    /// For a subscription's consumer; only [`Message::Event`]s count against its queue.
    Deliver(SubId, Message),
    /// The connection's state changed.
    Status(Status),
}

/// A request's success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The relay has the event.
    Published(Published),
    /// So many stored events match.
    Count(u64),
    /// The relay accepted the login.
    LoggedIn,
}

/// The relay has the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// It had it before.
    pub duplicate: bool,
}

/// What a subscription's consumer gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// An event that matches the filters, whose signature was checked, and that was not delivered
    /// to this subscription before.
    Event(Box<VerifiedEvent>),
    /// The relay has sent what it had stored; comes once, and once more from each relay that the
    /// client switches to.
    CaughtUp,
    /// The relay ended the subscription for good, with its words; nothing follows. `error:` and
    /// `rate-limited:` do not end it: it is asked again.
    Closed(String),
}

/// The connection's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// A socket is being opened.
    Connecting,
    /// A socket is open.
    Online,
    /// No socket; the next dial comes by itself after this wait.
    Offline {
        /// From when the status changed.
        retry_in: Duration,
    },
    /// Ended by [`Command::Close`].
    Closed,
}
