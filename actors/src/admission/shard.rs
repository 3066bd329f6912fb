//! One part of the principals: the actor that counts what they spend.
//!
//! Bound: one batch a connection and one call a REST request are on their way here; budgets of
//! [`super::MAX_PRINCIPALS`] over all shards. Arrives: `Admit`, `Knock`, `Leave`,
//! `InvalidSignatures`. Leaves: a verdict for each, in order. When full: the budget that was
//! silent longest is forgotten for a new one.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use tokio::sync::oneshot;

use super::{
    AdmissionSettings, Visit,
    bounded::Fingerprint,
    budgets::Budgets,
    guards::Guards,
    quota::{Party, Principal, Spend, Verdict},
};
use crate::{
    connection::{Admitted, Connection, Suspect},
    metrics::Metrics,
    ports::{SharedAsk, SharedBudget},
};

/// What one principal wants to spend.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Admit {
    /// Who.
    pub principal: Principal,
    /// The same, for the table.
    pub who: Fingerprint,
    /// Whose quotas count.
    pub party: Party,
    /// What, in order.
    pub spends: Vec<Spend>,
    /// Who waits for the answer.
    pub reply: Reply,
}

/// Who waits for the verdicts. Dropped without an answer, it says that nobody could be asked:
/// whatever happens here, nothing waits for ever and nothing is admitted unseen.
pub struct Reply {
    to: Option<To>,
    count: usize,
}

enum To {
    Connection(Addr<Connection>),
    Call(oneshot::Sender<Verdict>),
}

impl Reply {
    pub(super) fn to_connection(addr: Addr<Connection>, count: usize) -> Self {
        let to = Some(To::Connection(addr));
        Self { to, count }
    }

    pub(super) fn to_call() -> (Self, oneshot::Receiver<Verdict>) {
        let (sender, verdict) = oneshot::channel();
        let to = Some(To::Call(sender));
        (Self { to, count: 1 }, verdict)
    }

    fn send(mut self, verdicts: Vec<Verdict>) {
        self.answer(verdicts);
    }

    fn answer(&mut self, verdicts: Vec<Verdict>) {
        match self.to.take() {
            Some(To::Connection(addr)) => addr.do_send(Admitted { verdicts }),
            Some(To::Call(sender)) => {
                let verdict = verdicts.first().copied();
                // A caller that is gone needs no answer.
                let _ = sender.send(verdict.unwrap_or(Verdict::Unavailable));
            }
            None => {}
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.to.is_some() {
            self.answer(vec![Verdict::Unavailable; self.count]);
        }
    }
}

/// One wants to open a socket.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Knock {
    pub(super) who: Fingerprint,
    pub(super) reply: oneshot::Sender<Result<Visit, NonZeroU32>>,
}

/// A socket that came in has closed.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Leave {
    pub(super) who: Fingerprint,
}

/// Signatures were wrong.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct InvalidSignatures {
    pub(super) who: Fingerprint,
    pub(super) count: usize,
    pub(super) from: Addr<Connection>,
}

/// Sent to itself: handled once everything that waits in the mailbox has been.
#[derive(Message)]
#[rtype(result = "()")]
struct Ask;

/// How often idle principals are forgotten, and the gauge is set.
const TICK: Duration = Duration::from_secs(1);
/// Principals forgotten in one tick; a million are gone after a minute.
const EXPIRED_A_TICK: usize = 20_000;

/// See the module.
pub struct Shard {
    started: Instant,
    budgets: Budgets,
    guards: Guards,
    shared: Option<Shared>,
    metrics: Metrics,
    /// What the gauge and the counter were told.
    told: (usize, u64),
}

/// The budgets are elsewhere: what came in while the mailbox was emptied is asked at once.
struct Shared {
    budget: std::sync::Arc<dyn SharedBudget>,
    waiting: Vec<Admit>,
}

impl Shard {
    pub(super) fn new(settings: AdmissionSettings, capacity: usize, metrics: Metrics) -> Self {
        let shared = settings.shared.map(|budget| Shared {
            budget,
            waiting: Vec::new(),
        });
        Self {
            started: Instant::now(),
            budgets: Budgets::new(settings.quotas, capacity),
            guards: Guards::new(settings.guards, capacity),
            shared,
            metrics,
            told: (0, 0),
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn tick(&mut self) {
        let now = self.now();
        self.budgets.expire(now, EXPIRED_A_TICK);
        self.guards.expire(now, EXPIRED_A_TICK);
        let (known, shed) = (self.budgets.len(), self.budgets.shed());
        let gauge = &self.metrics.admission_principals;
        gauge.increment(known as f64 - self.told.0 as f64);
        self.metrics.admission_shed.increment(shed - self.told.1);
        self.told = (known, shed);
    }
}

impl Actor for Shard {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(TICK, |shard, _| shard.tick());
    }
}

impl Handler<Admit> for Shard {
    type Result = ();
    fn handle(&mut self, admit: Admit, ctx: &mut Self::Context) {
        if let Some(shared) = &mut self.shared {
            if shared.waiting.is_empty() {
                ctx.notify(Ask);
            }
            shared.waiting.push(admit);
            return;
        }
        let now = self.now();
        let verdicts = self
            .budgets
            .spend(admit.who, admit.party, &admit.spends, now);
        admit.reply.send(verdicts);
    }
}

impl Handler<Ask> for Shard {
    type Result = ();
    fn handle(&mut self, _: Ask, ctx: &mut Self::Context) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let (asks, replies): (Vec<_>, Vec<_>) = shared
            .waiting
            .drain(..)
            .map(|admit| {
                let ask = SharedAsk {
                    principal: admit.principal,
                    party: admit.party,
                    spends: admit.spends,
                };
                (ask, admit.reply)
            })
            .unzip();
        let asked = shared.budget.spend(asks).into_actor(self);
        ctx.spawn(asked.map(|answers, _, _| {
            // A reply without an answer says so by its drop.
            for (reply, verdicts) in replies.into_iter().zip(answers) {
                if verdicts.len() == reply.count {
                    reply.send(verdicts);
                }
            }
        }));
    }
}

impl Handler<Knock> for Shard {
    type Result = ();
    fn handle(&mut self, knock: Knock, ctx: &mut Self::Context) {
        let now = self.now();
        let Knock { who, reply } = knock;
        let answer = self.guards.knock(who, now);
        // Where nobody waits any more, the visit's drop gives the place back.
        let _ = reply.send(answer.map(|()| Visit::new(ctx.address(), who)));
    }
}

impl Handler<Leave> for Shard {
    type Result = ();
    fn handle(&mut self, leave: Leave, _: &mut Self::Context) {
        self.guards.leave(leave.who);
    }
}

impl Handler<InvalidSignatures> for Shard {
    type Result = ();
    fn handle(&mut self, invalid: InvalidSignatures, _: &mut Self::Context) {
        let InvalidSignatures { who, count, from } = invalid;
        let now = self.now();
        if let Some(retry_in_secs) = self.guards.invalid_signatures(who, count, now) {
            from.do_send(Suspect { retry_in_secs });
        }
    }
}
