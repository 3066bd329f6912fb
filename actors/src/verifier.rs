//! Checks ids and signatures, on as many threads as there are cores.
//!
//! Bound: one batch a connection is on its way here at a time, and every frame in it holds a
//! handler permit. Arrives: `VerifyEvents`, `VerifyLogin`. Leaves: good events to the writer, the verdict to the
//! connection.

use std::{sync::Arc, time::Instant};

use actix::{Actor, Addr, Handler, Message, SyncContext};
use buzz_protocol::{Event, EventId, KeyCache, Pubkey, Refusal, VerifiedEvent};
use tracing::Span;

use crate::{
    call::Asker,
    connection::{LoginVerified, Verified},
    metrics::Metrics,
    rooms::Permit,
    writer::{StoreEvents, Writer},
};

/// Events of one connection to check and pass on.
#[derive(Message)]
#[rtype(result = "()")]
pub struct VerifyEvents {
    /// In the order of arrival, each with the trace of its frame.
    pub events: Vec<(Event, Span)>,
    /// Who asked.
    pub from: Asker,
    /// Covers all of them.
    pub permit: Permit,
}

/// A login to check.
#[derive(Message)]
#[rtype(result = "()")]
pub struct VerifyLogin {
    /// Its form, time, challenge and relay are known to be right.
    pub event: Box<Event>,
    /// Who asked.
    pub from: Asker,
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
}

impl Actor for Verifier {
    type Context = SyncContext<Self>;
}

impl Handler<VerifyEvents> for Verifier {
    type Result = ();
    fn handle(&mut self, verify: VerifyEvents, _: &mut Self::Context) {
        let VerifyEvents {
            events,
            from,
            mut permit,
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
        // First the permits: the answer may bring the next frame at once. Then the good events,
        // and the answer last: it brings the next batch, which must not get to the writer first.
        permit.give_back(rejected.len());
        if !good.is_empty() {
            self.writer.do_send(StoreEvents {
                events: good,
                from: from.clone(),
                permit,
            });
        }
        from.do_send(Verified { rejected });
    }
}

impl Handler<VerifyLogin> for Verifier {
    type Result = ();
    fn handle(&mut self, login: VerifyLogin, _: &mut Self::Context) {
        let VerifyLogin { event, from } = login;
        let id = event.id;
        let verdict: Result<Pubkey, Refusal> = VerifiedEvent::verify_with(*event, &mut self.keys)
            .map(|event| event.pubkey)
            .map_err(|error| Refusal::Invalid(error.to_string()));
        from.do_send(LoginVerified { id, verdict });
    }
}
