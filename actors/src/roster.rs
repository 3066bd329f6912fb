//! Knows every open connection, so that a shutdown can close them.
//!
//! Bound: one entry a connection, at most `server.max_connections`. Arrives: `Joined`, `Left`,
//! `Drain`. Leaves: `Shutdown` to each connection, spread evenly, so that clients don't come back
//! all at once.

use std::{collections::HashMap, time::Duration};

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

/// How often a part of the connections is closed during a drain.
const STEP: Duration = Duration::from_millis(10);

impl Roster {
    fn close_some(&mut self, mut rest: Vec<Addr<Connection>>, steps: u32, ctx: &mut Context<Self>) {
        let now = rest.len().div_ceil(steps.max(1) as usize);
        for addr in rest.drain(..now) {
            addr.do_send(Shutdown);
        }
        if !rest.is_empty() {
            ctx.run_later(STEP, move |act, ctx| {
                act.close_some(rest, steps.saturating_sub(1), ctx)
            });
        }
    }

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
        let spread = drain.over.mul_f64(0.9);
        let steps = (spread.as_millis() / STEP.as_millis())
            .max(1)
            .try_into()
            .unwrap_or(u32::MAX);
        self.close_some(addrs, steps, ctx);
        self.note_drained();
        Box::pin(async move {
            let _ = tokio::time::timeout(drain.over, wait).await;
        })
    }
}
