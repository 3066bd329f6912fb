//! What one socket's messages mean: a pure state machine. It knows no actor, no clock and no
//! socket; [`crate::connection`] brings it inputs and carries its outputs out.
//!
//! Bound: [`MAX_FRAMES_IN_FLIGHT`] frames and [`MAX_READS_IN_FLIGHT`] reads in work; then
//! [`Session::may_read`] says that the socket must not be read. What waits to be sent is bounded
//! by the same numbers for answers, and by the fan-out for live events (`send_queue`).
//!
//! Follow a frame: [`Session::handle`] parses it, `admission` orders and pays for it, the verb's
//! file checks it and asks a question ([`Output`]), whose answer ([`Input`]) comes back to the
//! same file. The life of a session: any number of inputs, then [`Input::Ready`], then all outputs.

mod admission;
mod auth;
mod count;
mod event;
mod messages;
mod outgoing;
mod refusing;
mod req;
mod subscriptions;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, net::IpAddr, sync::Arc};

use buzz_protocol::{
    ClientFrame,
    client_frame::{About, BadFrame},
    relay_frame,
};
use bytes::Bytes;
use tracing::Span;

pub use self::messages::{Input, LogLine, Now, Output};
use self::{
    admission::{Received, Waiting},
    auth::Login,
    event::EventsInFlight,
    outgoing::Outgoing,
    subscriptions::Subscriptions,
};
use crate::{
    access_log::LogLines,
    send_queue::SendQueueUsage,
    shared::Shared,
    ws::{Broken, CloseCode},
};

/// EVENT, REQ and COUNT frames of one socket in work at once. Further ones wait in the socket, so
/// that one client can't take every permit.
pub const MAX_FRAMES_IN_FLIGHT: usize = 64;
/// History pages and counts among them.
pub const MAX_READS_IN_FLIGHT: usize = 16;
/// A client that leaves so many pings unanswered is gone.
const UNANSWERED_PINGS: u8 = 2;
/// The socket is not read while more than this waits to be sent, in bytes.
const MAX_UNSENT_BYTES: usize = 512 * 1024;

/// How far a session got.
#[derive(Debug, Clone, Copy)]
enum State {
    Open,
    /// Nothing more is read. Once what is in work is answered, the socket closes like this.
    Leaving(CloseCode, &'static str),
    /// Nothing more is read or sent, but what waits to be sent already.
    Closed(&'static str),
}

/// See the module.
pub struct Session {
    shared: Arc<Shared>,
    peer: IpAddr,
    state: State,
    client_is_gone: bool,
    outgoing: Outgoing,
    outputs: VecDeque<Output>,
    waiting: Waiting,
    events: EventsInFlight,
    subscriptions: Subscriptions,
    /// Pages and counts on their way.
    reads_in_flight: usize,
    login: Login,
    log_lines: LogLines,
    frames_received: u64,
    /// Since the client's last message.
    silent_ticks: u8,
}

impl Session {
    /// A session at its beginning. `challenge` is what a login must sign; it must not be guessable.
    pub fn new(shared: Arc<Shared>, peer: IpAddr, challenge: String, now: Now) -> Self {
        let mut session = Self {
            shared,
            peer,
            state: State::Open,
            client_is_gone: false,
            outgoing: Outgoing::default(),
            outputs: VecDeque::new(),
            waiting: Waiting::default(),
            events: EventsInFlight::default(),
            subscriptions: Subscriptions::default(),
            reads_in_flight: 0,
            login: Login::new(challenge),
            log_lines: LogLines::new(refusing::MAX_LINES, now.at),
            frames_received: 0,
            silent_ticks: 0,
        };
        if session.shared.settings.challenge_on_connect {
            session.send_challenge();
        }
        session
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input, now: Now) {
        if self.is_closed() {
            return;
        }
        if input.is_from_client() {
            self.silent_ticks = 0;
        }
        match input {
            Input::Text(message) => self.receive(&message, now),
            Input::Binary => {
                self.log_refused("none", "invalid", now);
                self.send(&relay_frame::notice(
                    "invalid: binary messages are not accepted",
                ));
            }
            Input::Ping(payload) => self.outgoing.push_pong(&payload),
            Input::Pong => {}
            Input::ClientClosed => self.leave(CloseCode::Normal, "client_closed"),
            Input::ClientGone => self.client_gone(),
            Input::AllTaken => self.leave(CloseCode::Normal, "client_gone"),
            Input::Broken(broken) => self.leave_broken(&broken, now),
            Input::MessageTimedOut => self.close(CloseCode::Policy, "message_took_too_long"),
            Input::Admitted(admitted) => self.serve_admitted(admitted, now),
            Input::SignatureChecksPaused(paused) => self.pause_signature_checks(paused, now),
            Input::Verified { batch, verified } => self.verified(batch, verified, now),
            Input::Stored { batch, stored } => self.stored(batch, stored, now),
            Input::LoginVerified { id, verdict } => self.login_verified(id, verdict, now),
            Input::RoleFound { key, login, found } => self.role_found(key, login, found, now),
            Input::Subscribed { token, committed } => self.subscribed(token, committed, now),
            Input::Page { token, page } => self.page(token, page, now),
            Input::Counted { name, count } => self.counted(&name, count, now),
            Input::Live(live) => self.live(live, now),
            Input::Ready => self.ready(now),
            Input::PingTick => self.ping_tick(),
            Input::LoginDue => self.login_due(now),
            Input::RecheckMembers => self.recheck_members(),
            Input::RecheckOverdue => self.recheck_overdue(),
            Input::Shutdown => match self.state {
                // Told again, or leaving anyhow: there is no more time for what is in work.
                State::Leaving(..) => self.close(CloseCode::Restart, "relay_restarts"),
                _ => self.leave(CloseCode::Restart, "relay_restarts"),
            },
        }
    }

    /// The next thing to be done; to be called until there is none.
    pub fn next_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if self.outputs.is_empty() {
            // An idle session keeps no buffer.
            self.outputs = VecDeque::new();
        }
        output
    }

    /// The bytes to be sent now; [`Input::Ready`] says when they are on their way.
    pub fn take_outgoing(&mut self) -> Option<Bytes> {
        self.outgoing.take()
    }

    /// Whether the client's next message may be read.
    pub fn may_read(&self) -> bool {
        self.is_open()
            && !self.login.is_pending()
            && self.frames_in_flight() < MAX_FRAMES_IN_FLIGHT
            // Of a client that is gone, nothing more is read from the store.
            && (self.client_is_gone
                || self.may_begin_read())
            && self.outgoing.len() < MAX_UNSENT_BYTES
    }

    /// Whether more of the client's messages may follow.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Whether the socket ends when what waits has been sent.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed(_))
    }

    /// How the session ended, for the log: `ok`, or `denied` where the relay cut it; and why.
    pub fn ending(&self) -> (&'static str, &'static str) {
        match self.state {
            State::Closed(
                reason @ ("client_closed" | "client_gone" | "ping_timeout" | "relay_restarts"),
            ) => ("ok", reason),
            State::Closed(reason) => ("denied", reason),
            State::Open | State::Leaving(..) => ("ok", "client_gone"),
        }
    }

    /// Messages received.
    pub fn frames_received(&self) -> u64 {
        self.frames_received
    }

    /// Lines that the access log left out since its last one.
    pub fn lines_left_out(&self) -> u64 {
        self.log_lines.left_out()
    }

    /// Whether the fan-out may know subscriptions of this session.
    pub fn has_subscriptions(&self) -> bool {
        self.subscriptions.len() > 0
    }

    /// Counts the live events that wait to be sent; shared with the fan-out.
    pub fn send_queue_usage(&self) -> Arc<SendQueueUsage> {
        self.outgoing.usage()
    }

    fn may_begin_read(&self) -> bool {
        self.frames_in_flight() < MAX_FRAMES_IN_FLIGHT
            && self.waiting.reads() + self.reads_in_flight < MAX_READS_IN_FLIGHT
    }

    fn frames_in_flight(&self) -> usize {
        self.waiting.len() + self.events.len() + self.reads_in_flight
    }

    fn receive(&mut self, message: &[u8], now: Now) {
        self.frames_received += 1;
        let span = tracing::debug_span!(parent: None, "frame", verb = tracing::field::Empty);
        let parsed = {
            let _parse = tracing::debug_span!(parent: &span, "parse").entered();
            match std::str::from_utf8(message) {
                Ok(text) => ClientFrame::parse(text),
                Err(error) => Err(BadFrame {
                    about: About::Unknown,
                    verb: None,
                    reason: format!("invalid: the message is not UTF-8: {error}"),
                }),
            }
        };
        self.admit(parsed, span, now);
    }

    /// Takes a frame that was admitted, in its turn.
    fn serve(&mut self, frame: Received, span: Span, now: Now) {
        match frame {
            Ok(ClientFrame::Event(event)) => self.receive_event(*event, span, now),
            // Its events are stored; but nobody is there to read anything.
            _ if self.client_is_gone => self.abandon_login(),
            Ok(ClientFrame::Req { sub, filters }) => self.receive_req(&sub, filters, span, now),
            Ok(ClientFrame::Count { query, filters }) => {
                self.receive_count(query, filters, span, now);
            }
            Ok(ClientFrame::Close { sub }) => self.end_subscription_by_id(&sub),
            Ok(ClientFrame::Auth(event)) => self.receive_login(event, now),
            Err(bad) => self.refuse_bad(&bad, now),
        }
    }

    /// Asks for what was gathered since the last time.
    fn ready(&mut self, now: Now) {
        self.outgoing.sent();
        self.ask_admission();
        self.verify_events();
        self.close_when_answered();
        // A page of a history that goes on is one of the reads in flight, as its first one was.
        if self.is_open()
            && !self.client_is_gone
            && self.outgoing.len() == 0
            && self.may_begin_read()
        {
            self.read_next_page(now);
        }
    }

    /// Nobody is there any more for what would be read or who would log in.
    fn client_gone(&mut self) {
        self.client_is_gone = true;
        let questions = self.outputs.len();
        self.outputs.retain(|output| !output.is_read());
        self.reads_in_flight -= questions - self.outputs.len();
        self.outputs.retain(|output| !output.is_look_up());
        self.abandon_login();
    }

    /// A client that is silent for two ticks is pinged, so that no proxy takes the socket for idle;
    /// one that leaves [`UNANSWERED_PINGS`] unanswered is gone.
    fn ping_tick(&mut self) {
        if !self.may_read() {
            // What the client sends is not read now, so it may not be as silent as it seems.
            self.silent_ticks = 0;
            return;
        }
        self.silent_ticks += 1;
        if self.silent_ticks >= 2 * (UNANSWERED_PINGS + 1) {
            self.end("ping_timeout");
        } else if self.silent_ticks.is_multiple_of(2) {
            self.outgoing.push_ping();
        }
    }

    fn leave_broken(&mut self, broken: &Broken, now: Now) {
        let (code, reason) = match broken {
            Broken::TooLarge { .. } => (CloseCode::TooLarge, "message_too_large"),
            Broken::Protocol(_) => (CloseCode::Protocol, "protocol_error"),
        };
        self.log_refused("none", "invalid", now);
        self.send(&relay_frame::notice(&format!("invalid: {broken}")));
        // What came before it is still answered.
        self.leave(code, reason);
    }

    fn leave(&mut self, code: CloseCode, reason: &'static str) {
        self.state = State::Leaving(code, reason);
        if code == CloseCode::Normal {
            self.client_gone();
        }
    }

    /// Frames that wait for their admission, and events in work, which may be stored already, are
    /// answered first; reads only where it is the relay that closes.
    fn close_when_answered(&mut self) {
        let State::Leaving(code, reason) = self.state else {
            return;
        };
        let reads_count = code == CloseCode::Restart;
        if self.waiting.is_empty()
            && self.events.len() == 0
            && (self.reads_in_flight == 0 || !reads_count)
        {
            self.close(code, reason);
        }
    }

    /// Sends a close frame behind what waits already, and ends.
    fn close(&mut self, code: CloseCode, reason: &'static str) {
        self.outgoing.push_close(code, &reason.replace('_', " "));
        self.end(reason);
    }

    /// Ends when what waits has been sent.
    fn end(&mut self, reason: &'static str) {
        self.abandon_login();
        self.state = State::Closed(reason);
    }

    fn send(&mut self, text: &str) {
        self.outgoing.push_text(text);
    }

    fn ask(&mut self, output: Output) {
        self.outputs.push_back(output);
    }
}
