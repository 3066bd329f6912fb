//! Knows every open connection, so that a shutdown can close them.
//!
//! Bound: one entry a connection, at most `server.max_connections`. Arrives: `Joined`, `Left`,
//! `Drain`. Leaves: `Shutdown` to each connection, spread evenly, so that clients don't come back
//! all at once.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, ResponseFuture};
use tokio::sync::oneshot;

use crate::connection::{Connection, Shutdown};

/// A connection opened.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Joined {
    /// Its number.
    pub connection: u64,
    /// Its address.
    pub addr: Addr<Connection>,
}

/// A connection ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Left {
    /// Its number.
    pub connection: u64,
}

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
pub struct Roster {
    open: HashMap<u64, Addr<Connection>>,
    drained: Option<oneshot::Sender<()>>,
}

/// What the last close frames have to get out.
const LAST_CLOSES: Duration = Duration::from_millis(300);
/// How often a part of the connections is closed during a drain.
const STEP: Duration = Duration::from_millis(10);

/// Connections that are still to be told, and when.
struct Closing {
    rest: Vec<Addr<Connection>>,
    total: usize,
    began: Instant,
    over: Duration,
}

impl Closing {
    /// Tells as many as should be told by now: by the clock, so that late timers make no gaps.
    fn step(mut self, ctx: &mut Context<Roster>) {
        let share = self.began.elapsed().as_secs_f64() / self.over.as_secs_f64().max(1e-3);
        let due = ((share.min(1.0) * self.total as f64).ceil() as usize).max(1);
        let left = self.total.saturating_sub(due).min(self.rest.len());
        for addr in self.rest.drain(left..) {
            addr.do_send(Shutdown);
        }
        if !self.rest.is_empty() {
            ctx.run_later(STEP, move |_, ctx| self.step(ctx));
        }
    }
}

impl Roster {
    fn note_drained(&mut self) {
        if self.open.is_empty()
            && let Some(drained) = self.drained.take()
        {
            // Nobody waits any more where the time was over.
            let _ = drained.send(());
        }
    }
}

impl Actor for Roster {
    type Context = Context<Self>;
}

impl Handler<Joined> for Roster {
    type Result = ();
    fn handle(&mut self, joined: Joined, _: &mut Self::Context) {
        if self.drained.is_some() {
            joined.addr.do_send(Shutdown);
        }
        self.open.insert(joined.connection, joined.addr);
    }
}

impl Handler<Left> for Roster {
    type Result = ();
    fn handle(&mut self, left: Left, _: &mut Self::Context) {
        self.open.remove(&left.connection);
        self.note_drained();
    }
}

impl Handler<Drain> for Roster {
    type Result = ResponseFuture<()>;
    fn handle(&mut self, drain: Drain, ctx: &mut Self::Context) -> Self::Result {
        let (drained, wait) = oneshot::channel();
        self.drained = Some(drained);
        let addrs: Vec<_> = self.open.values().cloned().collect();
        // A tenth of the time stays for the last answers to go out.
        let over = drain.over.mul_f64(0.9);
        let (total, began) = (addrs.len(), Instant::now());
        let closing = Closing {
            rest: addrs,
            total,
            began,
            over,
        };
        closing.step(ctx);
        self.note_drained();
        // Whoever still waits for an answer then is closed without it.
        ctx.run_later(drain.over, |roster, _| {
            for addr in roster.open.values() {
                addr.do_send(Shutdown);
            }
        });
        Box::pin(async move {
            let _ = tokio::time::timeout(drain.over + LAST_CLOSES, wait).await;
        })
    }
}
