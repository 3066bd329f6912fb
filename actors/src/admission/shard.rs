//! One part of the principals: the actor that counts what they spend.
//!
//! Bound: one batch a connection and one ask a REST call are on their way here; budgets of
//! [`super::MAX_PRINCIPALS`] over all shards. Arrives: `Admit`, `OpenSocket`, `CloseSocket`,
//! `NoteInvalidSignatures`. Leaves: one answer to each question, in order. When full: the budget
//! that was silent longest is forgotten for a new one.

use std::{
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};

use super::{
    AdmissionSettings, SharedAsk, SharedBudget, SocketSlot,
    bounded::Fingerprint,
    budgets::Budgets,
    guards::Guards,
    quota::{Cost, Principal, QuotaClass, Verdict},
};
use crate::{
    metrics::Metrics,
    reply::{Answer, Reply},
};

/// What one principal wants to spend.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Admit {
    /// Who.
    pub principal: Principal,
    /// The same, for the table.
    pub who: Fingerprint,
    /// Which quotas apply.
    pub class: QuotaClass,
    /// What, in order.
    pub costs: Vec<Cost>,
    /// Takes the verdicts.
    pub reply: Reply<Admitted>,
}

/// The answer to [`Admit`].
#[derive(Debug)]
pub struct Admitted {
    /// One for each cost, in order. A missing one is [`Verdict::Unavailable`]: what nobody counted
    /// is never admitted.
    pub verdicts: Vec<Verdict>,
}

impl Answer for Admitted {
    fn unanswered() -> Self {
        Self {
            verdicts: Vec::new(),
        }
    }
}

/// Asks for a place among the open sockets of an address.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct OpenSocket {
    pub(super) who: Fingerprint,
    pub(super) reply: Reply<Result<SocketSlot, NonZeroU32>>,
}

impl Answer for Result<SocketSlot, NonZeroU32> {
    fn unanswered() -> Self {
        Err(NonZeroU32::MIN)
    }
}

/// A socket that had a place has closed.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct CloseSocket {
    pub(super) who: Fingerprint,
}

/// Signatures from an address were wrong.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct NoteInvalidSignatures {
    pub(super) who: Fingerprint,
    pub(super) count: usize,
    pub(super) reply: Reply<SignatureChecksPaused>,
}

/// The answer to `NoteInvalidSignatures`: whether there were too many.
#[derive(Debug, Clone, Copy)]
pub struct SignatureChecksPaused {
    /// For so long, no signature from this socket is checked; `None`: they go on.
    pub retry_in_secs: Option<NonZeroU32>,
}

impl Answer for SignatureChecksPaused {
    fn unanswered() -> Self {
        Self {
            retry_in_secs: None,
        }
    }
}

/// Sent to itself: handled once everything that waits in the mailbox has been.
#[derive(Message)]
#[rtype(result = "()")]
struct AskShared;

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
    budget: Arc<dyn SharedBudget>,
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
                ctx.notify(AskShared);
            }
            shared.waiting.push(admit);
            return;
        }
        let now = self.now();
        let verdicts = self
            .budgets
            .spend(admit.who, admit.class, &admit.costs, now);
        admit.reply.send(Admitted { verdicts });
    }
}

impl Handler<AskShared> for Shard {
    type Result = ();
    fn handle(&mut self, _: AskShared, ctx: &mut Self::Context) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let (asks, replies): (Vec<_>, Vec<_>) = shared
            .waiting
            .drain(..)
            .map(|admit| {
                let ask = SharedAsk {
                    principal: admit.principal,
                    class: admit.class,
                    costs: admit.costs,
                };
                (ask, admit.reply)
            })
            .unzip();
        let asked = shared.budget.spend(asks).into_actor(self);
        ctx.spawn(asked.map(|answers, _, _| {
            // A reply that is left without an answer says so by its drop.
            for (reply, verdicts) in replies.into_iter().zip(answers) {
                reply.send(Admitted { verdicts });
            }
        }));
    }
}

impl Handler<OpenSocket> for Shard {
    type Result = ();
    fn handle(&mut self, open: OpenSocket, ctx: &mut Self::Context) {
        let now = self.now();
        let OpenSocket { who, reply } = open;
        let answer = self.guards.open_socket(who, now);
        // Where nobody waits any more, the slot's drop gives the place back.
        reply.send(answer.map(|()| SocketSlot::new(ctx.address(), who)));
    }
}

impl Handler<CloseSocket> for Shard {
    type Result = ();
    fn handle(&mut self, close: CloseSocket, _: &mut Self::Context) {
        self.guards.close_socket(close.who);
    }
}

impl Handler<NoteInvalidSignatures> for Shard {
    type Result = ();
    fn handle(&mut self, note: NoteInvalidSignatures, _: &mut Self::Context) {
        let now = self.now();
        let retry_in_secs = self.guards.invalid_signatures(note.who, note.count, now);
        note.reply.send(SignatureChecksPaused { retry_in_secs });
    }
}
