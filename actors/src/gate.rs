//! Owns one cap: how many may hold a permit at once, and who waits for one, in order.
//!
//! Bound: every waiter holds a handler permit or is a login, one a socket, and waits for a limited
//! time. Arrives: `Acquire`, `SetLimit`, and permits that come back. Leaves: the waiter, with a
//! permit or shed. The rules are `buzz_gate`'s, which is model-checked; here are clock and mailbox.
//!
//! Those who wait longest lie on a tray, where whoever ends its work may pass its permit on
//! ([`Permit::next_waiter`]) without waking this actor first: nothing more is in flight by that, and the
//! order is kept. A changed limit takes them off the tray again, so it holds for them too.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};
use buzz_gate::Acquired;
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::{db_reader::DbReader, metrics::GateMetrics};

/// How many lie on the tray: about as many as end their work while the actor wakes up.
const TRAY: usize = 8;
/// So often a permit is passed on before it comes back, so that a busy reader looks up now and then.
const PASSES: u8 = 8;

/// Work that needs a permit.
pub trait Waiter: Send + 'static {
    /// Whether anybody still waits for what it does. If not, it is dropped in its turn.
    fn wanted(&self) -> bool;
    /// Hands it to whoever does it. The permit goes along, and is dropped when it is done.
    fn admitted(self: Box<Self>, permit: Permit);
    /// Does it on the reader that has ended the work before it, and gives the permit back.
    fn passed_on(self: Box<Self>, permit: Permit, _: &mut DbReader) -> Option<Permit> {
        self.admitted(permit);
        None
    }
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

/// A waiter was taken off the tray.
#[derive(Message)]
#[rtype(result = "()")]
struct PassedOn {
    ticket: u64,
    since: Instant,
}

/// A waiter was taken off the tray, and is gone or too late.
#[derive(Message)]
#[rtype(result = "()")]
struct TurnedDown(Waiting);

struct Waiting {
    ticket: u64,
    waiter: Box<dyn Waiter>,
    since: Instant,
    /// When it is shed.
    deadline: Instant,
}

/// The right to one unit of work. It returns to its gate when it is dropped, wherever that is.
pub struct Permit {
    /// Taken by the drop alone.
    permit: Option<buzz_gate::Permit>,
    passes: u8,
    gate: Addr<Gate>,
    tray: Receiver<Waiting>,
}

impl Permit {
    /// Who is next, where the work that this permit is for has ended and another can go on with it.
    pub fn next_waiter(&mut self) -> Option<Box<dyn Waiter>> {
        if self.passes == PASSES {
            return None;
        }
        let next = self.tray.try_recv().ok()?;
        if !next.waiter.wanted() || next.deadline <= Instant::now() {
            self.gate.do_send(TurnedDown(next));
            return None;
        }
        self.passes += 1;
        let (ticket, since) = (next.ticket, next.since);
        self.gate.do_send(PassedOn { ticket, since });
        Some(next.waiter)
    }
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
    /// By ticket: all who wait and do not lie on the tray.
    waiters: HashMap<u64, Waiting>,
    /// The first in the queue, in order; they keep their place there until they are told of.
    tray: (Sender<Waiting>, Receiver<Waiting>),
    /// The first ticket that was not on the tray yet.
    next_for_tray: u64,
    /// The last ticket; none is used twice.
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
            tray: bounded(TRAY),
            next_for_tray: 1,
            tickets: 0,
            wait,
            timed: false,
            metrics,
        };
        gate.show();
        gate
    }

    fn admit(&self, waiting: Waiting, permit: buzz_gate::Permit, gate: Addr<Self>) {
        let waited = waiting.since.elapsed();
        self.metrics.wait_seconds.record(waited.as_secs_f64());
        waiting.waiter.admitted(Permit {
            permit: Some(permit),
            passes: 0,
            gate,
            tray: self.tray.1.clone(),
        });
    }

    fn take(&mut self, ticket: u64) -> Option<Waiting> {
        if !self.waiters.contains_key(&ticket) {
            self.clear_tray();
        }
        self.waiters.remove(&ticket)
    }

    /// Takes everybody off the tray who has not been taken.
    fn clear_tray(&mut self) {
        for waiting in self.tray.1.try_iter() {
            self.next_for_tray = self.next_for_tray.min(waiting.ticket);
            self.waiters.insert(waiting.ticket, waiting);
        }
    }

    /// Puts those on the tray who wait longest. Nobody waits while there is room, so a permit that
    /// is passed on takes nobody's; in debt none may be.
    fn fill_tray(&mut self) {
        while self.gate.debt() == 0 && !self.tray.0.is_full() && self.next_for_tray <= self.tickets
        {
            if let Some(waiting) = self.waiters.remove(&self.next_for_tray) {
                // Not full, and this actor alone fills it.
                let _ = self.tray.0.try_send(waiting);
            }
            self.next_for_tray += 1;
        }
    }

    /// Passes a permit to its waiter. One that nobody wants goes to the next.
    fn grant(&mut self, granted: Option<(u64, buzz_gate::Permit)>, ctx: &mut Context<Self>) {
        let mut next = granted;
        while let Some((ticket, permit)) = next {
            next = match self.take(ticket) {
                Some(waiting) if waiting.waiter.wanted() => {
                    self.admit(waiting, permit, ctx.address());
                    None
                }
                // Gone, or a permit was passed on to it already.
                _ => self.gate.release(permit),
            };
        }
    }

    /// Sheds those whose time is over.
    fn expire(&mut self) {
        for ticket in self.gate.expire(Instant::now()) {
            if let Some(waiting) = self.take(ticket) {
                self.shed(waiting);
            }
        }
    }

    fn shed(&self, waiting: Waiting) {
        if waiting.waiter.wanted() {
            self.metrics.shed.increment(1);
            waiting.waiter.shed();
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
            gate.settle();
        });
    }

    fn limit(&self) -> u64 {
        self.gate.limit().map_or(0, std::num::NonZeroU64::get)
    }

    /// What follows every message.
    fn settle(&mut self) {
        self.fill_tray();
        self.show();
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
        let waiting = Waiting {
            ticket: self.tickets,
            waiter,
            since,
            deadline: since + self.wait,
        };
        match self.gate.acquire(waiting.ticket, waiting.deadline) {
            Acquired::Granted(permit) => self.admit(waiting, permit, ctx.address()),
            Acquired::Waiting => {
                self.waiters.insert(waiting.ticket, waiting);
                self.set_timer(ctx);
            }
        }
        self.settle();
    }
}

impl Handler<Release> for Gate {
    type Result = ();
    fn handle(&mut self, Release(permit): Release, ctx: &mut Context<Self>) {
        // Who waited too long is shed, even where the permit comes before the timer.
        self.expire();
        let granted = self.gate.release(permit);
        self.grant(granted, ctx);
        self.settle();
    }
}

impl Handler<PassedOn> for Gate {
    type Result = ();
    fn handle(&mut self, passed: PassedOn, _: &mut Context<Self>) {
        let waited = passed.since.elapsed();
        self.metrics.wait_seconds.record(waited.as_secs_f64());
        // The permit is the same, only nobody waits there any more.
        self.gate.give_up(passed.ticket);
        self.settle();
    }
}

impl Handler<TurnedDown> for Gate {
    type Result = ();
    fn handle(&mut self, TurnedDown(waiting): TurnedDown, _: &mut Context<Self>) {
        self.gate.give_up(waiting.ticket);
        self.shed(waiting);
        self.settle();
    }
}

impl Handler<SetLimit> for Gate {
    type Result = ();
    fn handle(&mut self, set: SetLimit, ctx: &mut Context<Self>) {
        self.clear_tray();
        self.expire();
        let old = self.limit();
        for granted in self.gate.set_limit(set.flag) {
            self.grant(Some(granted), ctx);
        }
        let new = self.limit();
        let (gate, source) = (self.name, set.source);
        // 0 is no limit.
        let loosened = old > 0 && (new == 0 || new > old);
        if loosened {
            // On purpose or by a mistyped value: somebody should see it.
            tracing::warn!(gate, old, new, source, "cap changed: loosened");
        } else if new != old {
            tracing::info!(gate, old, new, source, "cap changed");
        }
        self.settle();
    }
}

#[cfg(test)]
mod tests;
