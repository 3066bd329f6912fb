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

#[cfg(test)]
mod tests {
    use actix::{Handler, Message, SyncArbiter};

    use super::*;

    struct Fragile {
        served: u32,
        restarts: Counter,
    }

    impl Actor for Fragile {
        type Context = SyncContext<Self>;
    }

    impl Member for Fragile {
        const NAME: &'static str = "fragile";

        fn restarts(&self) -> &Counter {
            &self.restarts
        }
    }

    /// Panics where it is told so; gives how many messages this member has served.
    #[derive(Message)]
    #[rtype(result = "u32")]
    struct Serve {
        panics: bool,
    }

    impl Handler<Serve> for Fragile {
        type Result = u32;
        fn handle(&mut self, serve: Serve, ctx: &mut Self::Context) -> u32 {
            run(self, ctx, |member| {
                assert!(!serve.panics, "on purpose");
                member.served += 1;
            });
            self.served
        }
    }

    /// Kills: a panic that ends the thread; a member that goes on in the state it panicked in.
    #[actix::test]
    async fn a_member_that_panics_is_replaced_by_a_new_one() {
        let pool = SyncArbiter::start(1, || Fragile {
            served: 0,
            restarts: Counter::noop(),
        });
        assert_eq!(pool.send(Serve { panics: false }).await, Ok(1));
        assert_eq!(pool.send(Serve { panics: true }).await, Ok(1));
        assert_eq!(pool.send(Serve { panics: false }).await, Ok(1));
    }
}
