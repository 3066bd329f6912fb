//! Owns one cap: how many may hold a permit at once, and who waits for one, in order.
//!
//! Bound: every waiter holds a handler permit or is a login, one a socket, and waits for a limited
//! time. Arrives: `Acquire`, `SetLimit`, and permits that come back. Leaves: the waiter, with a
//! permit or shed. The rules are `buzz_gate`'s, which is model-checked; here are clock and mailbox.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};
use buzz_gate::Acquired;

use crate::metrics::GateMetrics;

/// Work that needs a permit.
pub trait Waiter: Send + 'static {
    /// Whether anybody still waits for what it does. If not, it is dropped in its turn.
    fn wanted(&self) -> bool;
    /// Does it, or hands it to whoever does. The permit goes along, and is dropped when it is done.
    fn admitted(self: Box<Self>, permit: Permit);
    /// Its time is over. What it answers must let the client try again.
    fn shed(self: Box<Self>);
}

/// Asks for a permit.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Acquire {
    /// Who needs it.
    pub waiter: Box<dyn Waiter>,
    /// Since when it waits.
    pub since: Instant,
}

/// Sets the limit to what an operator wants. It can only tighten: see [`buzz_gate::Gate::set_limit`].
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct SetLimit {
    /// `None` where there is no such value; that, and every value below 1, is the ceiling.
    pub flag: Option<i64>,
    /// Where it comes from, for the log.
    pub source: &'static str,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Release(buzz_gate::Permit);

/// The right to one unit of work. It returns to its gate when it is dropped, wherever that is.
pub struct Permit {
    /// Taken by the drop alone.
    permit: Option<buzz_gate::Permit>,
    gate: Addr<Gate>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.gate.do_send(Release(permit));
        }
    }
}

/// See the module.
pub struct Gate {
    name: &'static str,
    gate: buzz_gate::Gate<u64, Instant>,
    /// By ticket: all who wait.
    waiters: HashMap<u64, (Box<dyn Waiter>, Instant)>,
    /// Tickets are never used twice.
    tickets: u64,
    /// The longest wait.
    wait: Duration,
    /// A timer is running for the first deadline, or for an earlier one that is settled.
    timed: bool,
    metrics: GateMetrics,
}

impl Gate {
    /// A gate that lets `ceiling` pass at once (`None`: any number) and makes nobody wait longer
    /// than `wait`. `name` is its label in metrics and logs.
    pub fn new(
        name: &'static str,
        ceiling: Option<std::num::NonZeroU64>,
        wait: Duration,
        metrics: GateMetrics,
    ) -> Self {
        let gate = Self {
            name,
            gate: buzz_gate::Gate::new(ceiling),
            waiters: HashMap::new(),
            tickets: 0,
            wait,
            timed: false,
            metrics,
        };
        gate.show();
        gate
    }

    fn admit(
        &self,
        waiter: Box<dyn Waiter>,
        since: Instant,
        permit: buzz_gate::Permit,
        gate: Addr<Self>,
    ) {
        self.metrics
            .wait_seconds
            .record(since.elapsed().as_secs_f64());
        waiter.admitted(Permit {
            permit: Some(permit),
            gate,
        });
    }

    /// Passes a permit to its waiter. One that nobody wants goes to the next.
    fn grant(&mut self, granted: Option<(u64, buzz_gate::Permit)>, ctx: &mut Context<Self>) {
        let mut next = granted;
        while let Some((ticket, permit)) = next {
            next = match self.waiters.remove(&ticket) {
                Some((waiter, since)) if waiter.wanted() => {
                    self.admit(waiter, since, permit, ctx.address());
                    None
                }
                _ => self.gate.release(permit),
            };
        }
    }

    /// Sheds those whose time is over.
    fn expire(&mut self) {
        for ticket in self.gate.expire(Instant::now()) {
            if let Some((waiter, _)) = self.waiters.remove(&ticket)
                && waiter.wanted()
            {
                self.metrics.shed.increment(1);
                waiter.shed();
            }
        }
    }

    /// One timer for all deadlines, which come in the order of arrival.
    fn set_timer(&mut self, ctx: &mut Context<Self>) {
        let Some(deadline) = self.gate.next_deadline().filter(|_| !self.timed) else {
            return;
        };
        self.timed = true;
        let left = deadline.saturating_duration_since(Instant::now());
        ctx.run_later(left, |gate, ctx| {
            gate.timed = false;
            gate.expire();
            gate.set_timer(ctx);
            gate.show();
        });
    }

    fn limit(&self) -> u64 {
        self.gate.limit().map_or(0, std::num::NonZeroU64::get)
    }

    fn show(&self) {
        self.metrics.limit.set(self.limit() as f64);
        self.metrics.in_flight.set(self.gate.in_flight() as f64);
        self.metrics.waiting.set(self.gate.waiting() as f64);
        self.metrics.debt.set(self.gate.debt() as f64);
    }
}

impl Actor for Gate {
    type Context = Context<Self>;
}

impl Handler<Acquire> for Gate {
    type Result = ();
    fn handle(&mut self, acquire: Acquire, ctx: &mut Context<Self>) {
        let Acquire { waiter, since } = acquire;
        self.tickets += 1;
        match self.gate.acquire(self.tickets, since + self.wait) {
            Acquired::Granted(permit) => self.admit(waiter, since, permit, ctx.address()),
            Acquired::Waiting => {
                self.waiters.insert(self.tickets, (waiter, since));
                self.set_timer(ctx);
            }
        }
        self.show();
    }
}

impl Handler<Release> for Gate {
    type Result = ();
    fn handle(&mut self, Release(permit): Release, ctx: &mut Context<Self>) {
        // Who waited too long is shed, even where the permit comes before the timer.
        self.expire();
        let granted = self.gate.release(permit);
        self.grant(granted, ctx);
        self.show();
    }
}

impl Handler<SetLimit> for Gate {
    type Result = ();
    fn handle(&mut self, set: SetLimit, ctx: &mut Context<Self>) {
        self.expire();
        let old = self.limit();
        for granted in self.gate.set_limit(set.flag) {
            self.grant(Some(granted), ctx);
        }
        let new = self.limit();
        if new != old {
            tracing::info!(
                gate = self.name,
                old,
                new,
                source = set.source,
                "cap changed"
            );
        }
        self.show();
    }
}

#[cfg(test)]
mod tests;
