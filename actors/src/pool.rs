//! A pool's members: actors that share one mailbox, each on a thread of its own (actix's
//! `SyncArbiter`). A panic would end the member's thread for good, and the last one's the thread
//! that feeds the pool. So a member's work runs here, and a member that panicked is replaced.

use std::panic::{AssertUnwindSafe, catch_unwind};

use actix::{Actor, ActorContext, SyncContext};
use metrics::Counter;

/// An actor of a pool.
pub(crate) trait Member: Actor<Context = SyncContext<Self>> {
    /// The pool's name in logs and metrics.
    const NAME: &'static str;

    /// Counts the members that were replaced.
    fn restarts(&self) -> &Counter;
}

/// Does one message's work. Where it panics, its replies answer by their drop, and a new member
/// takes this one's place.
pub(crate) fn run<A: Member>(member: &mut A, ctx: &mut SyncContext<A>, work: impl FnOnce(&mut A)) {
    if catch_unwind(AssertUnwindSafe(|| work(member))).is_err() {
        member.restarts().increment(1);
        tracing::error!(pool = A::NAME, "a member panicked and is replaced");
        // In a pool, this replaces the actor by a new one of the pool's making.
        ctx.stop();
    }
}
