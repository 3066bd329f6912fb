//! One socket: its login, its subscriptions, what waits to be sent.
//!
//! Bound: [`IN_WORK`] frames and [`READS`] pages in work; then the socket is not read. What waits
//! to be sent is bounded by the same numbers for answers and by [`Meter`] for live events.
//! Arrives: the client's bytes, and answers from the rooms. Leaves: `Admit`, `VerifyEvents`,
//! `VerifyLogin`, requests to the gates, `Subscribe`, and the client's bytes.
//!
//! Follow a frame: `socket` (bytes) → `requests` (what the client asks) → `admission` (what it
//! spends) → `requests` → the rooms → `answers`; an AUTH is `login` both ways.

mod admission;
mod answers;
mod login;
mod refusing;
mod requests;
mod socket;
mod subscriptions;
pub mod ws;

use std::{net::IpAddr, sync::Arc, task::Waker, time::Instant};

use actix::{Actor, AsyncContext};
use actix_http::ws::CloseCode;
use actix_web_actors::HttpContext;
use buzz_protocol::{Event, EventId, Pubkey, relay_frame};
use bytes::BytesMut;
use tracing::Span;

use self::admission::Waiting;
pub use self::admission::{Admitted, Suspect};
pub use self::answers::{Counted, Deliver, FellBehind, HistoryPage, Shutdown, Stored, Verified};
pub use self::login::{LoginShed, LoginVerified, RoleFound};
pub use self::refusing::LogLines;
pub use self::socket::start;
use self::subscriptions::{Phase, Subscription, Subscriptions};
use crate::{
    admission::Visit,
    fanout::Unsubscribe,
    outbox::Meter,
    ports::Role,
    rooms::{Permit, Rooms},
    roster::{Joined, Left},
};

/// EVENT, REQ and COUNT frames of one socket in work at once; further ones wait in the socket, so
/// that one client can't take every handler permit.
pub const IN_WORK: usize = 64;
/// History pages and counts among them.
pub const READS: usize = 16;

type Context = HttpContext<Connection>;

/// See the module.
pub struct Connection {
    number: u64,
    peer: IpAddr,
    opened: Instant,
    rooms: Arc<Rooms>,
    decoder: ws::Decoder,
    /// When the message that is here in part began to arrive.
    unfinished_since: Option<Instant>,
    outgoing: Outgoing,
    subscriptions: Subscriptions,
    waiting: Waiting,
    events: EventsInWork,
    /// Pages and counts on their way.
    reading: usize,
    login: Login,
    /// Until then, no signature from here is checked: too many were wrong.
    suspect_until: Option<Instant>,
    log_lines: LogLines,
    frames_received: u64,
    close_reason: &'static str,
    /// Nothing more is read; once what is in work is answered, the socket closes like this.
    leaving: Option<(CloseCode, &'static str)>,
    _slot: Permit,
    _visit: Visit,
}

/// What a connection begins with.
pub struct Opening {
    /// Its number, never used twice.
    pub number: u64,
    /// The client's address.
    pub peer: IpAddr,
    /// What a login must sign; not to be guessed.
    pub challenge: String,
    /// Its place among the open sockets.
    pub slot: Permit,
    /// Its place among those of its address.
    pub visit: Visit,
    /// The rooms it talks to.
    pub rooms: Arc<Rooms>,
}

/// What waits to be sent.
#[derive(Default)]
struct Outgoing {
    bytes: BytesMut,
    /// Live frames and their JSON's bytes in `bytes`, for the meter.
    live: (usize, usize),
    /// The same of what the socket's buffer was given last.
    handed: (usize, usize),
    meter: Arc<Meter>,
    /// Wakes the socket's pump for bytes that were added outside it.
    waker: Option<Waker>,
    /// Set when nothing more will be read or sent after `bytes`.
    closing: bool,
}

/// Events between arrival and answer.
#[derive(Default)]
struct EventsInWork {
    /// Not yet sent to the verifier, with the permit that covers them all.
    unverified: Vec<(Event, Span)>,
    permit: Option<Permit>,
    /// A batch is at the verifier. The next one waits for it: two verifiers would not keep the
    /// order in which a client published.
    verifying: bool,
    /// All that have no answer yet.
    count: usize,
}

/// Who the client has proved to be.
struct Login {
    challenge: String,
    /// In the order of their logins, with the role each had then.
    keys: Vec<(Pubkey, Option<Role>)>,
    /// A login is being checked; later frames wait for it.
    pending: bool,
    attempts: u32,
}

impl Login {
    fn has(&self, key: &Pubkey) -> bool {
        self.keys.iter().any(|(known, _)| known == key)
    }

    fn is_anonymous(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Connection {
    fn new(opening: Opening) -> Self {
        let Opening {
            number,
            peer,
            challenge,
            slot,
            visit,
            rooms,
        } = opening;
        Self {
            number,
            peer,
            opened: Instant::now(),
            decoder: ws::Decoder::new(rooms.settings.max_frame_bytes),
            unfinished_since: None,
            outgoing: Outgoing::default(),
            subscriptions: Subscriptions::default(),
            waiting: Waiting::default(),
            events: EventsInWork::default(),
            reading: 0,
            login: Login {
                challenge,
                keys: Vec::new(),
                pending: false,
                attempts: 0,
            },
            suspect_until: None,
            log_lines: LogLines::new(refusing::LINES, Instant::now()),
            frames_received: 0,
            close_reason: "client_gone",
            leaving: None,
            _slot: slot,
            _visit: visit,
            rooms,
        }
    }

    fn send(&mut self, text: &str) {
        ws::push_text(&mut self.outgoing.bytes, &[text.as_bytes()]);
    }

    fn send_ok(&mut self, id: &EventId, accepted: bool, message: &str) {
        self.send(&relay_frame::ok(id, accepted, message));
    }

    /// Sends a close frame behind what waits already, and ends.
    fn close(&mut self, code: CloseCode, reason: &'static str) {
        if !self.outgoing.closing {
            ws::push_close(&mut self.outgoing.bytes, code, &reason.replace('_', " "));
            self.end(reason);
        }
    }

    /// Ends when what waits has been sent.
    fn end(&mut self, reason: &'static str) {
        self.outgoing.closing = true;
        self.close_reason = reason;
    }

    /// Forgets a subscription that the fan-out has forgotten or will.
    fn drop_subscription(&mut self, token: u32) -> Option<Subscription> {
        let subscription = self.subscriptions.remove(token)?;
        if let Phase::History { held, .. } = &subscription.phase {
            let bytes = held.iter().map(|event| event.json().len()).sum();
            self.outgoing.meter.subtract(held.len(), bytes);
        }
        Some(subscription)
    }

    fn end_subscription_by_id(&mut self, id: &str) {
        if let Some(token) = self.subscriptions.by_id(id).map(|open| open.token) {
            self.end_subscription(token);
        }
    }

    fn end_subscription(&mut self, token: u32) -> Option<Subscription> {
        let connection = self.number;
        self.rooms.fanout.do_send(Unsubscribe {
            connection,
            token: Some(token),
        });
        self.drop_subscription(token)
    }
}

impl Actor for Connection {
    type Context = Context;

    fn started(&mut self, ctx: &mut Context) {
        self.rooms.metrics.connections.increment(1.0);
        self.rooms.roster.do_send(Joined {
            connection: self.number,
            addr: ctx.address(),
        });
        // Before anything that may ask for a login (NIP-42).
        let challenge = relay_frame::auth_challenge(&self.login.challenge);
        self.send(&challenge);
        if self.rooms.settings.members_only {
            let every = self.rooms.settings.auth_recheck;
            ctx.run_interval(every, |connection, ctx| connection.look_up_again(ctx));
        }
        if self.rooms.settings.auth_required {
            ctx.run_later(self.rooms.settings.auth_timeout, |connection, _| {
                if connection.login.is_anonymous() {
                    connection.rooms.metrics.auth.timeout.increment(1);
                    connection.cut_login("timeout");
                }
            });
        }
    }

    fn stopped(&mut self, _: &mut Context) {
        self.rooms.metrics.connections.decrement(1.0);
        if self.subscriptions.len() > 0 {
            self.rooms.fanout.do_send(Unsubscribe {
                connection: self.number,
                token: None,
            });
        }
        self.rooms.roster.do_send(Left {
            connection: self.number,
        });
        tracing::info!(
            target: "access", outcome = "ok", reason = self.close_reason,
            peer = %self.peer, connection = self.number, frames = self.frames_received,
            left_out = (self.log_lines.left_out > 0).then_some(self.log_lines.left_out),
            seconds = self.opened.elapsed().as_secs(), "connection finished: ok/{}", self.close_reason
        );
    }
}
