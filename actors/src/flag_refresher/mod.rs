//! Owns the flag source and asks it for every cap's flag once a period, on a thread of its own: an
//! evaluation that blocks or panics holds up nobody, and the caps stay as they are.
//!
//! Bound: one message a gate and period. Arrives: `Refresh`, `Flush`. Leaves: `SetLimit`. When it
//! falls behind, missed periods are skipped.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient, ResponseFuture};
use futures_util::future::join_all;

use crate::{
    flags::{FlagSource, IntegerFlag},
    gate::SetLimit,
    metrics::FlagMetrics,
};

/// Evaluates all flags. The answer comes when the gates have their limits.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Refresh;

/// Delivers what the source has to report; the answer comes when that is done. Whoever asks sets
/// himself a limit for the wait: a source may hang.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Flush {
    /// The time the source has for it.
    pub within: Duration,
}

/// A flag and the gate whose limit it is.
pub struct Cap {
    /// What is evaluated.
    pub flag: IntegerFlag,
    /// Who is told.
    pub gate: Recipient<SetLimit>,
}

/// See the module.
pub struct FlagRefresher {
    source: Box<dyn FlagSource>,
    caps: Vec<Cap>,
    every: Duration,
    metrics: FlagMetrics,
    /// Flags whose evaluation failed the last time, so that it is said once.
    failing: Vec<IntegerFlag>,
}

impl FlagRefresher {
    /// Evaluates the flags of `caps` once `every` period, first one period after its start.
    pub fn new(
        source: Box<dyn FlagSource>,
        caps: Vec<Cap>,
        every: Duration,
        metrics: FlagMetrics,
    ) -> Self {
        metrics.ready.set(0.0);
        Self {
            source,
            caps,
            every,
            metrics,
            failing: Vec::new(),
        }
    }

    /// What each gate is to be told now. One whose flag can't be evaluated is told nothing: neither
    /// an error nor a panic moves a cap.
    fn evaluate(&mut self) -> Vec<(Recipient<SetLimit>, SetLimit)> {
        if self
            .catch_panic("refresh", |source| source.refresh())
            .is_none()
        {
            return Vec::new();
        }
        let provider = self.source.provider();
        let mut limits = Vec::new();
        for at in 0..self.caps.len() {
            let flag = self.caps[at].flag;
            match self.catch_panic(flag.key, |source| source.integer(&flag)) {
                Some(Ok(value)) => {
                    self.failing.retain(|failing| *failing != flag);
                    let set = SetLimit {
                        flag: value,
                        source: provider,
                    };
                    limits.push((self.caps[at].gate.clone(), set));
                }
                Some(Err(error)) if !self.failing.contains(&flag) => {
                    tracing::warn!(
                        flag = flag.key, provider, %error,
                        "feature flag can't be evaluated; its last value stays in force"
                    );
                    self.failing.push(flag);
                }
                Some(Err(_)) | None => {}
            }
        }
        if let Some(ready) = self.catch_panic("ready", |source| source.ready()) {
            self.metrics.ready.set(f64::from(u8::from(ready)));
        }
        limits
    }

    /// Calls the source; `None` where it panicked.
    fn catch_panic<T>(
        &mut self,
        what: &str,
        call: impl FnOnce(&mut dyn FlagSource) -> T,
    ) -> Option<T> {
        // What a panic leaves behind in the source is the source's: nothing else is touched here.
        let called = catch_unwind(AssertUnwindSafe(|| call(&mut *self.source)));
        if called.is_err() {
            self.metrics.panics.increment(1);
            tracing::error!(
                what,
                "feature flags: an evaluation panicked; the caps stay, the next refresh tries again"
            );
        }
        called.ok()
    }

    fn refresh_at(&self, at: Instant, ctx: &mut Context<Self>) {
        let left = at.saturating_duration_since(Instant::now());
        ctx.run_later(left, move |refresher, ctx| {
            for (gate, limit) in refresher.evaluate() {
                // Not `try_send`: it fails where the gate has much to do, which is when it matters.
                gate.do_send(limit);
            }
            let next = next_tick(at, refresher.every, Instant::now());
            refresher.refresh_at(next, ctx);
        });
    }
}

/// The first tick after `now` in the rhythm that `last` belongs to.
fn next_tick(last: Instant, every: Duration, now: Instant) -> Instant {
    let late = now.saturating_duration_since(last).as_nanos();
    let into_period = late % every.as_nanos().max(1);
    let left = every - Duration::from_nanos(u64::try_from(into_period).unwrap_or(0)).min(every);
    last.max(now) + left
}

impl Actor for FlagRefresher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.refresh_at(Instant::now() + self.every, ctx);
    }
}

impl Handler<Refresh> for FlagRefresher {
    type Result = ResponseFuture<()>;
    fn handle(&mut self, _: Refresh, _: &mut Self::Context) -> Self::Result {
        let limits = self.evaluate().into_iter();
        let applied = join_all(limits.map(|(gate, limit)| gate.send(limit)));
        Box::pin(async {
            // A gate that is gone admits nobody.
            let _ = applied.await;
        })
    }
}

impl Handler<Flush> for FlagRefresher {
    type Result = ();
    fn handle(&mut self, flush: Flush, _: &mut Self::Context) {
        self.catch_panic("flush", |source| source.flush(flush.within));
    }
}

#[cfg(test)]
mod tests;
