//! The actor of one socket: a thin shell around its [`Session`]. Bytes and answers come in, the
//! session says what they mean, and bytes and questions go out.
//!
//! Bound: what the session bounds; one message that is here in part. Arrives: the client's bytes,
//! answers ([`Input`]), live events ([`Live`]), `Shutdown`. Leaves: the client's bytes, questions
//! to the actors, lines to the access log.
//!
//! Here is what moves bytes; `questions` is what the session asks of the other actors.
//!
//! The HTTP dispatcher polls the actor only while its own buffer has room. So being polled means
//! that what was handed over last is on its way, and a client that does not read stops its actor.

mod questions;

use std::{
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{self, Poll, Waker},
    time::{Duration, Instant},
};

use actix::{Actor, ActorContext, ActorFuture, AsyncContext, Handler};
use actix_web::{Error, HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::{HttpContext, ws::handshake};
use futures_util::Stream;

use crate::{
    admission::SocketSlot,
    fanout::{Live, Unsubscribe},
    permits::Permit,
    registry::{ConnectionClosed, ConnectionOpened, Shutdown},
    services::Services,
    session::{Input, Now, Session},
    ws::{Decoder, Incoming},
};

/// A message must be whole this long after its first byte.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// A socket that may not be read is read up to this, so that its end is noticed.
const READ_AHEAD_BYTES: usize = 16 * 1024;
/// Frames taken in one go before other connections get their turn.
const FRAMES_AT_ONCE: usize = 128;

type Context = HttpContext<Connection>;

/// See the module.
pub struct Connection {
    number: u64,
    peer: IpAddr,
    opened: Instant,
    services: Arc<Services>,
    session: Session,
    decoder: Decoder,
    /// The client sends no more.
    ended: bool,
    /// When the message that is here in part began to arrive.
    unfinished_since: Option<Instant>,
    /// Wakes the pump for what came outside its turn.
    waker: Option<Waker>,
    _permit: Permit,
    _slot: SocketSlot,
}

/// What a connection begins with.
pub struct Opening {
    /// Its number, never used twice.
    pub number: u64,
    /// The client's address.
    pub peer: IpAddr,
    /// What a login must sign; it must not be guessable.
    pub challenge: String,
    /// Its permit among the open sockets.
    pub permit: Permit,
    /// Its place among those of its address.
    pub slot: SocketSlot,
    /// The actors it talks to.
    pub services: Arc<Services>,
}

/// Answers the upgrade request and starts the connection's actor.
///
/// # Errors
/// When the request is no WebSocket handshake.
pub fn start(
    request: &HttpRequest,
    payload: Payload,
    opening: Opening,
) -> Result<HttpResponse, Error> {
    let mut response = handshake(request)?;
    let context = HttpContext::with_factory(move |ctx| {
        ctx.spawn(Pump { payload });
        Connection::new(opening)
    });
    Ok(response.streaming(context))
}

impl Connection {
    fn new(opening: Opening) -> Self {
        let Opening {
            number,
            peer,
            challenge,
            permit,
            slot,
            services,
        } = opening;
        let now = now(&services);
        let shared = Arc::clone(&services.shared);
        Self {
            number,
            peer,
            opened: now.at,
            decoder: Decoder::new(shared.settings.max_frame_bytes),
            session: Session::new(shared, peer, challenge, now),
            ended: false,
            unfinished_since: None,
            waker: None,
            _permit: permit,
            _slot: slot,
            services,
        }
    }

    fn handle_input(&mut self, input: Input) {
        let now = now(&self.services);
        self.session.handle(input, now);
    }

    /// Handles what comes outside the pump's turn, and has the pump polled again.
    fn interrupt(&mut self, input: Input) {
        self.handle_input(input);
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Takes messages while the session may have more. Beyond that, a few bytes are read ahead, so
    /// that the client's end is noticed while its frames wait.
    fn read_socket(
        &mut self,
        payload: &mut Payload,
        ctx: &mut Context,
        task: &mut task::Context<'_>,
    ) {
        let mut taken = 0;
        while self.session.is_open() {
            let may_read = self.session.may_read();
            if may_read {
                if taken >= FRAMES_AT_ONCE {
                    task.waker().wake_by_ref();
                    return;
                }
                match self.decoder.next_message() {
                    Ok(Some(message)) => {
                        taken += 1;
                        if !self.decoder.has_fragments() {
                            self.unfinished_since = None;
                        }
                        self.handle_input(message.into());
                        continue;
                    }
                    Ok(None) if self.ended => return self.handle_input(Input::AllTaken),
                    Ok(None) => self.watch_unfinished(ctx),
                    Err(broken) => return self.handle_input(Input::Broken(broken)),
                }
            }
            if self.ended || !may_read && self.decoder.buffered() >= READ_AHEAD_BYTES {
                return;
            }
            match Pin::new(&mut *payload).poll_next(task) {
                Poll::Ready(Some(Ok(bytes))) => self.decoder.push(&bytes),
                Poll::Ready(Some(Err(_)) | None) => {
                    self.ended = true;
                    // Messages that are here already are taken first: an event may wait for the
                    // login before it.
                    if self.decoder.buffered() == 0 {
                        self.handle_input(Input::ClientGone);
                    }
                }
                Poll::Pending => return,
            }
        }
    }

    /// Starts the clock of a message that is here in part.
    fn watch_unfinished(&mut self, ctx: &mut Context) {
        if self.unfinished_since.is_some() || !self.decoder.is_unfinished() {
            return;
        }
        let since = Instant::now();
        self.unfinished_since = Some(since);
        ctx.run_later(MESSAGE_TIMEOUT, move |connection, _| {
            if connection.unfinished_since == Some(since) {
                connection.interrupt(Input::MessageTimedOut);
            }
        });
    }
}

fn now(services: &Services) -> Now {
    Now {
        at: Instant::now(),
        unix_secs: (services.clock)(),
    }
}

impl From<Incoming> for Input {
    fn from(message: Incoming) -> Self {
        match message {
            Incoming::Text(text) => Self::Text(text),
            Incoming::Binary => Self::Binary,
            Incoming::Ping(payload) => Self::Ping(payload),
            Incoming::Pong => Self::Pong,
            Incoming::Close => Self::ClientClosed,
        }
    }
}

/// Moves bytes and outputs. Polled whenever the actor is, behind the messages of its mailbox.
struct Pump {
    payload: Payload,
}

impl ActorFuture<Connection> for Pump {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        connection: &mut Connection,
        ctx: &mut Context,
        task: &mut task::Context<'_>,
    ) -> Poll<()> {
        connection.read_socket(&mut self.payload, ctx, task);
        connection.handle_input(Input::Ready);
        while let Some(output) = connection.session.next_output() {
            connection.carry_out(output, ctx);
        }
        if let Some(bytes) = connection.session.take_outgoing() {
            ctx.write(bytes);
        }
        if connection.session.is_closed() {
            ctx.stop();
        }
        let waker = task.waker();
        if !connection
            .waker
            .as_ref()
            .is_some_and(|known| known.will_wake(waker))
        {
            connection.waker = Some(waker.clone());
        }
        Poll::Pending
    }
}

impl Actor for Connection {
    type Context = Context;

    fn started(&mut self, ctx: &mut Context) {
        let services = &self.services;
        services.shared.metrics.connections.increment(1.0);
        services.registry.do_send(ConnectionOpened {
            connection: self.number,
            recipient: ctx.address().recipient(),
        });
        let settings = &services.shared.settings;
        if settings.members_only {
            let every = settings.auth_recheck;
            // Spread: sockets that came at once are not rechecked at once.
            let first = every.mul_f64(0.5 + (self.number % 64) as f64 / 128.0);
            ctx.run_later(first, move |connection, ctx| {
                connection.interrupt(Input::RecheckMembers);
                ctx.run_interval(every, |connection, _| {
                    connection.interrupt(Input::RecheckMembers);
                });
            });
        }
        if !settings.ping.is_zero() {
            ctx.run_interval(settings.ping / 2, |connection, _| {
                connection.interrupt(Input::PingTick);
            });
        }
        if settings.auth_required {
            ctx.run_later(settings.auth_timeout, |connection, _| {
                connection.interrupt(Input::LoginDue);
            });
        }
    }

    fn stopped(&mut self, _: &mut Context) {
        // Where the socket broke, the session does not know it yet.
        self.handle_input(Input::ClientGone);
        let (services, session) = (&self.services, &self.session);
        services.shared.metrics.connections.decrement(1.0);
        if session.has_subscriptions() {
            services.fanout.do_send(Unsubscribe {
                connection: self.number,
                token: None,
            });
        }
        services.registry.do_send(ConnectionClosed {
            connection: self.number,
        });
        let (outcome, reason) = session.ending();
        let left_out = session.lines_left_out();
        tracing::info!(
            target: "access", outcome, reason, peer = %self.peer, connection = self.number,
            frames = session.frames_received(), left_out = (left_out > 0).then_some(left_out),
            seconds = self.opened.elapsed().as_secs(), "connection finished: {outcome}/{reason}"
        );
    }
}

impl actix::Message for Input {
    type Result = ();
}

impl Handler<Input> for Connection {
    type Result = ();
    fn handle(&mut self, input: Input, _: &mut Context) {
        self.handle_input(input);
    }
}

impl Handler<Live> for Connection {
    type Result = ();
    fn handle(&mut self, live: Live, _: &mut Context) {
        self.handle_input(Input::Live(live));
    }
}

impl Handler<Shutdown> for Connection {
    type Result = ();
    fn handle(&mut self, _: Shutdown, _: &mut Context) {
        self.interrupt(Input::Shutdown);
    }
}
