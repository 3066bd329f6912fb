//! Owns one cap: how many may hold a permit at once, and who waits for one, in order.
//!
//! Bound: every waiter holds a frame's permit, or is a login, one a socket, or a recheck, one a key
//! that is logged in; and each waits for a limited time. Arrives: `Acquire`, `SetLimit`, and permits that come back. Leaves: the work, with a permit
//! or shed. The rules are `buzz_gate`'s, which is model-checked; here are clock and mailbox.
//!
//! The longest waiters lie in the hand-off, where whoever ends its work goes on with the next one
//! under the same permit ([`GatePermit::next`]), without waking this actor first. A changed limit
//! takes them back, so it holds for them too.

use std::{
    iter::repeat_with,
    num::NonZeroU64,
    time::{Duration, Instant},
};

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};
use buzz_gate::{GateState, Grant, HandOff};
use crossbeam_deque::{Stealer, Worker};

use crate::metrics::GateMetrics;

/// How many lie in the hand-off: about as many as end their work while the actor wakes up.
const HANDOFF_CAPACITY: usize = 8;
/// So often a permit is handed over before it comes back, so that a busy reader looks up now and
/// then.
const MAX_HANDOFFS: u8 = 8;

/// Work that needs a permit.
pub trait Work: Send + 'static {
    /// Whether anybody still waits for what it does. If not, it is dropped in its turn.
    fn is_wanted(&self) -> bool;
    /// Its time is over. What it answers must let the client try again.
    fn shed(self);
}

/// Asks for a permit.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Acquire<W> {
    /// What needs it.
    pub work: W,
    /// Since when it waits.
    pub since: Instant,
}

/// Sets the limit to what an operator wants. It can only tighten: see [`GateState::set_limit`].
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
struct Release(Grant);

/// Work was taken out of the hand-off and goes on under a permit.
#[derive(Message)]
#[rtype(result = "()")]
struct HandedOver {
    since: Instant,
}

/// Work was taken out of the hand-off, and is not wanted or too late.
#[derive(Message)]
#[rtype(result = "()")]
struct TurnedDown<W>(W);

/// Work that waits, and when it is shed.
type Waiting<W> = (Acquire<W>, Instant);

/// The gate's end of the hand-off; permits have the other.
struct HandOffQueue<W>(Worker<Waiting<W>>);

impl<W> HandOffQueue<W> {
    fn new() -> Self {
        // The gate takes back what it put last, holders take what it put first.
        Self(Worker::new_lifo())
    }

    fn stealer(&self) -> Stealer<Waiting<W>> {
        self.0.stealer()
    }
}

/// What waits longest in the hand-off.
fn take<W>(handoff: &Stealer<Waiting<W>>) -> Option<Waiting<W>> {
    let taken = repeat_with(|| handoff.steal()).find(|taken| !taken.is_retry());
    taken?.success()
}

impl<W> HandOff<Acquire<W>, Instant> for HandOffQueue<W> {
    fn put(&mut self, waiter: Acquire<W>, deadline: Instant) {
        self.0.push((waiter, deadline));
    }

    fn take_back(&mut self) -> Option<Waiting<W>> {
        self.0.pop()
    }
}

/// The right to one unit of work. It returns to its gate when it is dropped, wherever that is.
pub struct GatePermit<W: Work> {
    /// Taken by the drop alone.
    grant: Option<Grant>,
    handoffs: u8,
    gate: Addr<Gate<W>>,
    handoff: Stealer<Waiting<W>>,
}

impl<W: Work> GatePermit<W> {
    /// What is next, where the work that this permit is for has ended and other work can go on
    /// with it. On `None` the permit is to be dropped.
    #[expect(
        clippy::should_implement_trait,
        reason = "after `None` there may be more"
    )]
    pub fn next(&mut self) -> Option<W> {
        if self.handoffs == MAX_HANDOFFS {
            return None;
        }
        let (Acquire { work, since }, deadline) = take(&self.handoff)?;
        if !work.is_wanted() || deadline <= Instant::now() {
            self.gate.do_send(TurnedDown(work));
            return None;
        }
        self.handoffs += 1;
        self.gate.do_send(HandedOver { since });
        Some(work)
    }
}

impl<W: Work> Drop for GatePermit<W> {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.gate.do_send(Release(grant));
        }
    }
}

/// See the module.
pub struct Gate<W: Work> {
    name: &'static str,
    state: GateState<Acquire<W>, Instant, HandOffQueue<W>>,
    /// Given to each permit.
    handoff: Stealer<Waiting<W>>,
    /// The longest wait.
    wait: Duration,
    /// A timer is running for the first deadline, or for an earlier one that is settled.
    timed: bool,
    metrics: GateMetrics,
    /// Hands admitted work to whoever does it.
    start: Box<dyn Fn(W, GatePermit<W>) + Send>,
}

impl<W: Work> Gate<W> {
    /// A gate that lets `ceiling` pass at once (`None`: any number) and makes nobody wait longer
    /// than `wait`. `name` is its label in metrics and logs. `start` hands admitted work to whoever
    /// does it; the permit goes along, and is dropped when the work is done.
    pub fn new(
        name: &'static str,
        ceiling: Option<NonZeroU64>,
        wait: Duration,
        metrics: GateMetrics,
        start: impl Fn(W, GatePermit<W>) + Send + 'static,
    ) -> Self {
        let handoff = HandOffQueue::new();
        let gate = Self {
            name,
            handoff: handoff.stealer(),
            state: GateState::new(ceiling, handoff, HANDOFF_CAPACITY),
            wait,
            timed: false,
            metrics,
            start: Box::new(start),
        };
        gate.show();
        gate
    }

    /// Starts the work that a grant is for. The grant for work that nobody wants goes to the next.
    fn grant(&mut self, granted: Option<(Acquire<W>, Grant)>, ctx: &Context<Self>) {
        let mut next = granted;
        while let Some((Acquire { work, since }, grant)) = next {
            if work.is_wanted() {
                self.record_wait(since);
                let permit = GatePermit {
                    grant: Some(grant),
                    handoffs: 0,
                    gate: ctx.address(),
                    handoff: self.handoff.clone(),
                };
                return (self.start)(work, permit);
            }
            next = self.state.release(grant);
        }
    }

    fn record_wait(&self, since: Instant) {
        let waited = since.elapsed();
        self.metrics.wait_seconds.record(waited.as_secs_f64());
    }

    /// Sheds those whose time is over.
    fn expire(&mut self) {
        for Acquire { work, .. } in self.state.expire(Instant::now()) {
            self.shed(work);
        }
    }

    fn shed(&self, work: W) {
        if work.is_wanted() {
            self.metrics.shed.increment(1);
            work.shed();
        }
    }

    /// One timer for all deadlines, which come in the order of arrival.
    fn set_timer(&mut self, ctx: &mut Context<Self>) {
        let Some(deadline) = self.state.next_deadline().filter(|_| !self.timed) else {
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
        self.state.limit().map_or(0, NonZeroU64::get)
    }

    fn show(&self) {
        self.metrics.limit.set(self.limit() as f64);
        self.metrics.in_flight.set(self.state.in_flight() as f64);
        self.metrics.waiting.set(self.state.waiting() as f64);
        self.metrics.debt.set(self.state.debt() as f64);
    }
}

impl<W: Work> Actor for Gate<W> {
    type Context = Context<Self>;
}

/// An actor must be, and no work is pinned here.
impl<W: Work> Unpin for Gate<W> {}

impl<W: Work> Handler<Acquire<W>> for Gate<W> {
    type Result = ();
    fn handle(&mut self, acquire: Acquire<W>, ctx: &mut Context<Self>) {
        let deadline = acquire.since + self.wait;
        let granted = self.state.acquire(acquire, deadline);
        self.grant(granted, ctx);
        self.set_timer(ctx);
        self.show();
    }
}

impl<W: Work> Handler<Release> for Gate<W> {
    type Result = ();
    fn handle(&mut self, Release(grant): Release, ctx: &mut Context<Self>) {
        // Who waited too long is shed, even where the permit comes before the timer.
        self.expire();
        let granted = self.state.release(grant);
        self.grant(granted, ctx);
        self.show();
    }
}

impl<W: Work> Handler<HandedOver> for Gate<W> {
    type Result = ();
    fn handle(&mut self, handed_over: HandedOver, _: &mut Context<Self>) {
        self.record_wait(handed_over.since);
        self.state.taken();
        self.show();
    }
}

impl<W: Work> Handler<TurnedDown<W>> for Gate<W> {
    type Result = ();
    fn handle(&mut self, TurnedDown(work): TurnedDown<W>, _: &mut Context<Self>) {
        self.state.taken();
        self.shed(work);
        self.show();
    }
}

impl<W: Work> Handler<SetLimit> for Gate<W> {
    type Result = ();
    fn handle(&mut self, set: SetLimit, ctx: &mut Context<Self>) {
        self.expire();
        let old = self.limit();
        for granted in self.state.set_limit(set.flag) {
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
        self.show();
    }
}

#[cfg(test)]
mod tests;
