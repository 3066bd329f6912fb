//! Checks ids and signatures, on as many threads as there are cores.
//!
//! Bound: one batch a connection is here at a time, and every event in it holds a permit. Arrives:
//! `VerifyEvents`, `VerifyLogin`. Leaves: good events to the writer, and the answers. A verifier
//! that panics is replaced by a new one.

use std::{sync::Arc, time::Instant};

use actix::{Actor, Addr, Handler, Message, SyncContext};
use buzz_protocol::{Event, EventId, KeyCache, Pubkey, Refusal, VerifiedEvent};
use tracing::Span;

use crate::{
    metrics::Metrics,
    permits::Permit,
    pool,
    reply::{Answer, Reply},
    writer::{StoreEvents, Stored, Writer},
};

/// Events of one sender to check and pass on to the writer.
#[derive(Message)]
#[rtype(result = "()")]
pub struct VerifyEvents {
    /// In the order of arrival, each with the trace of its frame.
    pub events: Vec<(Event, Span)>,
    /// Covers all of them.
    pub permit: Permit,
    /// Takes the events that are wrong. Answered when the good ones are on their way, so that the
    /// sender's next batch can't get to the writer first.
    pub verified: Reply<Verified>,
    /// Takes what became of the good ones; goes along with them to the writer.
    pub stored: Reply<Stored>,
}

/// The answer to [`VerifyEvents`].
#[derive(Debug)]
pub struct Verified {
    /// Events that are not what they claim to be.
    pub rejected: Vec<(EventId, Refusal)>,
}

impl Answer for Verified {
    fn unanswered() -> Self {
        Self {
            rejected: Vec::new(),
        }
    }
}

/// A login to check.
#[derive(Message)]
#[rtype(result = "()")]
pub struct VerifyLogin {
    /// Its form, time, challenge and relay are known to be right.
    pub event: Box<Event>,
    /// Takes the key that signed it.
    pub reply: Reply<Result<Pubkey, Refusal>>,
}

/// See the module.
pub struct Verifier {
    keys: KeyCache,
    writer: Addr<Writer>,
    metrics: Metrics,
}

impl Verifier {
    /// One thread's verifier.
    pub fn new(writer: Addr<Writer>, metrics: Metrics) -> Self {
        Self {
            keys: KeyCache::default(),
            writer,
            metrics,
        }
    }

    fn verify_events(&mut self, verify: VerifyEvents) {
        let VerifyEvents {
            events,
            mut permit,
            verified,
            stored,
        } = verify;
        let (started, count) = (Instant::now(), events.len());
        let mut good = Vec::with_capacity(count);
        let mut rejected: Vec<(EventId, Refusal)> = Vec::new();
        for (event, span) in events {
            let id = event.id;
            let _verify = tracing::debug_span!(parent: &span, "verify").entered();
            match VerifiedEvent::verify_with(event, &mut self.keys) {
                Ok(event) => good.push((Arc::new(event), span)),
                Err(error) => rejected.push((id, Refusal::Invalid(error.to_string()))),
            }
        }
        let each = started.elapsed().as_secs_f64() / count.max(1) as f64;
        for _ in 0..count {
            self.metrics.verify_seconds.record(each);
        }
        // The permits first: the answer may bring the next frame at once.
        permit.give_back(rejected.len());
        if !good.is_empty() {
            self.writer.do_send(StoreEvents {
                events: good,
                permit,
                reply: stored,
            });
        }
        verified.send(Verified { rejected });
    }

    fn verify_login(&mut self, login: VerifyLogin) {
        let VerifyLogin { event, reply } = login;
        let verified = VerifiedEvent::verify_with(*event, &mut self.keys);
        reply.send(match verified {
            Ok(event) => Ok(event.pubkey),
            Err(error) => Err(Refusal::Invalid(error.to_string())),
        });
    }
}

impl Actor for Verifier {
    type Context = SyncContext<Self>;
}

impl pool::Member for Verifier {
    const NAME: &'static str = "verifier";

    fn restarts(&self) -> &metrics::Counter {
        &self.metrics.verifier_restarts
    }
}

impl Handler<VerifyEvents> for Verifier {
    type Result = ();
    fn handle(&mut self, verify: VerifyEvents, ctx: &mut Self::Context) {
        pool::run(self, ctx, |verifier| verifier.verify_events(verify));
    }
}

impl Handler<VerifyLogin> for Verifier {
    type Result = ();
    fn handle(&mut self, login: VerifyLogin, ctx: &mut Self::Context) {
        pool::run(self, ctx, |verifier| verifier.verify_login(login));
    }
}
