//! The socket's pump: moves bytes in and out whenever the socket is ready for either.
//!
//! The HTTP dispatcher polls the actor only while its own buffer has room, so being polled means
//! that what was handed over last is on its way. Then the next bytes are handed over, and the
//! socket is read as long as the client's frames in work allow.

use std::{
    pin::Pin,
    task::{self, Poll},
    time::{Duration, Instant},
};

use actix::{ActorContext, ActorFuture, AsyncContext};
use actix_http::ws::CloseCode;
use actix_web::{Error, HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::{HttpContext, ws::handshake};
use buzz_protocol::relay_frame;
use futures_util::Stream;

use super::{
    Connection, Context, IN_WORK, Opening, READS,
    ws::{self, Broken, Incoming},
};

/// A message must be whole this long after its first byte.
const UNFINISHED_MESSAGE: Duration = Duration::from_secs(30);
/// Frames taken in one go before other connections get their turn.
const FRAMES_AT_ONCE: usize = 128;
/// The socket is not read while more than this waits to be sent.
const UNSENT_BYTES: usize = 512 * 1024;

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

/// Polled whenever the actor is.
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
        connection.ask_admission(ctx);
        connection.verify_events(ctx);
        connection.leave_when_answered();
        connection.write_socket(ctx, task);
        Poll::Pending
    }
}

impl Connection {
    /// Frames that wait for their admission, and events in work, which may be stored already, are
    /// answered first; reads only where it is the relay that closes.
    fn leave_when_answered(&mut self) {
        let Some((code, reason)) = self.leaving else {
            return;
        };
        let reads_count = matches!(code, CloseCode::Restart);
        if self.waiting.is_empty() && self.events.count == 0 && (self.reading == 0 || !reads_count)
        {
            self.close(code, reason);
        }
    }

    fn may_read(&self) -> bool {
        !self.outgoing.closing
            && self.leaving.is_none()
            && !self.login.pending
            && self.waiting.len() + self.events.count + self.reading < IN_WORK
            && self.waiting.reads() + self.reading < READS
            && self.outgoing.bytes.len() < UNSENT_BYTES
    }

    fn read_socket(
        &mut self,
        payload: &mut Payload,
        ctx: &mut Context,
        task: &mut task::Context<'_>,
    ) {
        let mut taken = 0;
        while self.may_read() {
            if taken >= FRAMES_AT_ONCE {
                task.waker().wake_by_ref();
                return;
            }
            match self.decoder.next_message() {
                Ok(Some(message)) => {
                    taken += 1;
                    self.unfinished_since = None;
                    self.take(message, ctx);
                    continue;
                }
                Ok(None) => self.watch_unfinished(ctx),
                Err(broken) => return self.close_broken(&broken),
            }
            match Pin::new(&mut *payload).poll_next(task) {
                Poll::Ready(Some(Ok(bytes))) => self.decoder.push(&bytes),
                // The client went away, with or without saying so.
                Poll::Ready(Some(Err(_)) | None) => {
                    self.leaving = Some((CloseCode::Normal, "client_gone"));
                }
                Poll::Pending => return,
            }
        }
    }

    fn take(&mut self, message: Incoming, ctx: &mut Context) {
        match message {
            Incoming::Text(text) => self.receive(&text, ctx),
            Incoming::Binary => {
                self.log_refused("none", "invalid");
                self.send(&relay_frame::notice(
                    "invalid: binary messages are not accepted",
                ));
            }
            Incoming::Ping(payload) => ws::push_pong(&mut self.outgoing.bytes, &payload),
            Incoming::Pong => {}
            Incoming::Close => self.leaving = Some((CloseCode::Normal, "client_closed")),
        }
    }

    fn close_broken(&mut self, broken: &Broken) {
        let (code, reason) = match broken {
            Broken::TooLarge { .. } => (CloseCode::Size, "message_too_large"),
            Broken::Protocol(_) => (CloseCode::Protocol, "protocol_error"),
        };
        self.log_refused("none", "invalid");
        self.send(&relay_frame::notice(&format!("invalid: {broken}")));
        // What came before it is still answered.
        self.leaving = Some((code, reason));
    }

    /// Starts the clock of a message that is here in part.
    fn watch_unfinished(&mut self, ctx: &mut Context) {
        if self.unfinished_since.is_some() || !self.decoder.is_unfinished() {
            return;
        }
        let since = Instant::now();
        self.unfinished_since = Some(since);
        ctx.run_later(UNFINISHED_MESSAGE, move |connection, _| {
            if connection.unfinished_since == Some(since) {
                connection.close(CloseCode::Policy, "message_took_too_long");
                connection.outgoing.wake();
            }
        });
    }

    fn write_socket(&mut self, ctx: &mut Context, task: &mut task::Context<'_>) {
        let out = &mut self.outgoing;
        let (frames, bytes) = std::mem::take(&mut out.handed);
        out.meter.subtract(frames, bytes);
        if out.bytes.is_empty() {
            self.read_on(ctx);
        }
        let out = &mut self.outgoing;
        if !out
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(task.waker()))
        {
            out.waker = Some(task.waker().clone());
        }
        if !out.bytes.is_empty() {
            out.handed = std::mem::take(&mut out.live);
            ctx.write(std::mem::take(&mut out.bytes).freeze());
        }
        if out.closing {
            ctx.stop();
        }
    }
}

impl super::Outgoing {
    /// Has the pump polled again, for bytes that were added after its turn.
    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}
