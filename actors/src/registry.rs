//! Knows every open connection, so that a shutdown can close them.
//!
//! Bound: one entry a connection, at most `server.max_connections`. Arrives: `ConnectionOpened`,
//! `ConnectionClosed`, `Drain`. Leaves: `Shutdown` to each connection, spread evenly, so that
//! clients don't come back all at once.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient, ResponseFuture};
use tokio::sync::oneshot;

/// A connection opened.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ConnectionOpened {
    /// Its number.
    pub connection: u64,
    /// Where it is told to close.
    pub recipient: Recipient<Shutdown>,
}

/// A connection ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ConnectionClosed {
    /// Its number.
    pub connection: u64,
}

/// The relay shuts down: answer what is in work, then close. Sent a second time, it means: close
/// now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Shutdown;

/// Closes every connection, spread over the given time; answered when the last has left or the
/// time is over.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drain {
    /// The time to spread over.
    pub over: Duration,
}

/// See the module.
#[derive(Default)]
pub struct ConnectionRegistry {
    open: HashMap<u64, Recipient<Shutdown>>,
    /// Answered when the last connection has closed, during a drain.
    drained: Option<oneshot::Sender<()>>,
}

/// What the last close frames have to get out.
const LAST_CLOSES: Duration = Duration::from_millis(300);
/// How often a part of the connections is closed during a drain.
const STEP: Duration = Duration::from_millis(10);

/// Connections that are still to be told, and when.
struct Closing {
    rest: Vec<Recipient<Shutdown>>,
    total: usize,
    began: Instant,
    over: Duration,
}

impl Closing {
    /// Tells as many as should be told by now: by the clock, so that late timers make no gaps.
    fn step(mut self, ctx: &mut Context<ConnectionRegistry>) {
        let share = self.began.elapsed().as_secs_f64() / self.over.as_secs_f64().max(1e-3);
        let due = ((share.min(1.0) * self.total as f64).ceil() as usize).max(1);
        let left = self.total.saturating_sub(due).min(self.rest.len());
        for connection in self.rest.drain(left..) {
            connection.do_send(Shutdown);
        }
        if !self.rest.is_empty() {
            ctx.run_later(STEP, move |_, ctx| self.step(ctx));
        }
    }
}

impl ConnectionRegistry {
    fn note_drained(&mut self) {
        if self.open.is_empty()
            && let Some(drained) = self.drained.take()
        {
            // Nobody waits any more where the time was over.
            let _ = drained.send(());
        }
    }
}

impl Actor for ConnectionRegistry {
    type Context = Context<Self>;
}

impl Handler<ConnectionOpened> for ConnectionRegistry {
    type Result = ();
    fn handle(&mut self, opened: ConnectionOpened, _: &mut Self::Context) {
        if self.drained.is_some() {
            opened.recipient.do_send(Shutdown);
        }
        self.open.insert(opened.connection, opened.recipient);
    }
}

impl Handler<ConnectionClosed> for ConnectionRegistry {
    type Result = ();
    fn handle(&mut self, closed: ConnectionClosed, _: &mut Self::Context) {
        self.open.remove(&closed.connection);
        self.note_drained();
    }
}

impl Handler<Drain> for ConnectionRegistry {
    type Result = ResponseFuture<()>;
    fn handle(&mut self, drain: Drain, ctx: &mut Self::Context) -> Self::Result {
        let (drained, wait) = oneshot::channel();
        self.drained = Some(drained);
        let rest: Vec<_> = self.open.values().cloned().collect();
        // A tenth of the time stays for the last answers to go out.
        let over = drain.over.mul_f64(0.9);
        let (total, began) = (rest.len(), Instant::now());
        let closing = Closing {
            rest,
            total,
            began,
            over,
        };
        closing.step(ctx);
        self.note_drained();
        // Whoever still waits for an answer then is closed without it.
        ctx.run_later(drain.over, |registry, _| {
            for connection in registry.open.values() {
                connection.do_send(Shutdown);
            }
        });
        Box::pin(async move {
            let _ = tokio::time::timeout(drain.over + LAST_CLOSES, wait).await;
        })
    }
}
