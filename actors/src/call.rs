//! One REST call at the actors: the same verifier, writer and readers as for a socket's frames,
//! asked in a straight line.
//!
//! Bound: each call holds a permit while an actor works for it. Arrives: one request. Leaves:
//! questions to the actors, the answer. When full: the call is refused. A call that is dropped,
//! since its client is gone, is skipped where it waits; its permit comes back with the work.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use buzz_protocol::{Event, Filter, Pubkey, Refusal};
use bytes::BytesMut;
use tracing::Span;

use crate::{
    admission::{Principal, QuotaClass},
    db_reader::{CountEvents, LookUpRole, Read, ReadPage, RoleFound, RoleLookUp},
    gate::Acquire,
    permits::Permit,
    ports::{Outcome, Query, Role},
    replay::FirstUse,
    reply::{Reply, ask, no_answer},
    rules::{self, Sender},
    services::Services,
    verifier::{VerifyEvents, VerifyLogin},
};

/// Later pages of an answer wait so long for a permit; then the answer breaks off.
const PAGE_WAIT: Duration = Duration::from_secs(5);

/// A call in work.
pub struct Call {
    services: Arc<Services>,
    key: Pubkey,
    class: QuotaClass,
    permit: Permit,
}

impl Call {
    /// Begins a call with its authorization, which is known to name this request. Checks its
    /// signature, that it was not used before, and its key's membership and quota.
    ///
    /// # Errors
    /// Says why the call may not go on.
    pub async fn begin(
        services: &Arc<Services>,
        permit: Permit,
        authorization: Event,
    ) -> Result<Self, Refusal> {
        let (id, created_at) = (authorization.id, authorization.created_at);
        let event = Box::new(authorization);
        let verified = ask(|reply| services.verifier.do_send(VerifyLogin { event, reply })).await;
        let key = verified.map_err(|refusal| match refusal {
            Refusal::Invalid(why) => Refusal::AuthRequired(why),
            other => other,
        })?;
        // Behind the signature, so that nobody can fill the memory with what is not signed.
        let replay = &services.replay;
        ask(|reply| {
            replay.do_send(FirstUse {
                id,
                created_at,
                reply,
            });
        })
        .await?;
        let role = look_up_role(services, key).await?;
        rules::check_role(services.shared.settings.members_only, role)?;
        let (principal, class) = (Principal::Key(key), QuotaClass::from(role));
        services.admission.admit_api_call(principal, class).await?;
        Ok(Self {
            services: Arc::clone(services),
            key,
            class,
            permit,
        })
    }

    /// Publishes an event, and gives the verdict on it: the message of its OK, or what is wrong
    /// with it.
    ///
    /// # Errors
    /// Where there is no verdict: says why. Nothing is known against the event then.
    pub async fn publish(self, event: Event) -> Result<Result<&'static str, Refusal>, Refusal> {
        let services = Arc::clone(&self.services);
        let events = &services.shared.metrics.events;
        let stored = self.store(event).await;
        let verdict = stored.map(|verdict| verdict.and_then(|outcome| events.verdict(Ok(outcome))));
        if let Ok(Err(refusal)) | Err(refusal) = &verdict {
            events.count_refused(refusal);
        }
        verdict
    }

    async fn store(self, event: Event) -> Result<Result<Outcome, Refusal>, Refusal> {
        let Self {
            services,
            key,
            class,
            permit,
        } = self;
        let sender = match event.pubkey == key {
            true => Sender::Author,
            false => Sender::Other,
        };
        let limits = &services.shared.settings.limits;
        if let Err(refusal) = rules::check_event(limits, &event, sender, (services.clock)()) {
            return Ok(Err(refusal));
        }
        let admission = &services.admission;
        admission
            .admit_api_event(Principal::Key(key), class, event.kind)
            .await?;
        let (verified, rejected) = Reply::to_call();
        let (stored, outcome) = Reply::to_call();
        services.verifier.do_send(VerifyEvents {
            events: vec![(event, Span::none())],
            permit,
            verified,
            stored,
        });
        if let Some((_, refusal)) = rejected.await.rejected.pop() {
            return Ok(Err(refusal));
        }
        let (_, result, _) = outcome.await.results.pop().ok_or_else(no_answer)?;
        result.map(Ok)
    }

    /// How many stored events match.
    ///
    /// # Errors
    /// Says why there is no answer.
    pub async fn count(self, filters: Vec<Filter>) -> Result<u64, Refusal> {
        let Self {
            services, permit, ..
        } = self;
        rules::check_filters(&services.shared.settings.limits, &filters)?;
        let query = Box::new(services.query(filters));
        let since = Instant::now();
        ask(|reply| {
            let work = CountEvents {
                query,
                permit,
                span: Span::none(),
                since,
                reply,
            };
            services.count_gate.do_send(Acquire { work, since });
        })
        .await
    }

    /// The first page of the stored events that match, and what brings the others.
    ///
    /// # Errors
    /// Says why there is no answer.
    pub async fn query(self, filters: Vec<Filter>) -> Result<(BytesMut, Pages), Refusal> {
        let Self {
            services, permit, ..
        } = self;
        rules::check_filters(&services.shared.settings.limits, &filters)?;
        let query = Box::new(services.query(filters));
        let mut pages = Pages {
            services,
            rest: None,
        };
        let first = pages.read(query, permit).await?;
        Ok((first, pages))
    }
}

/// The role of the key that signed the authorization, as at a socket's login.
async fn look_up_role(services: &Services, key: Pubkey) -> Result<Option<Role>, Refusal> {
    let found = ask(|reply| {
        services.auth_gate.do_send(Acquire {
            work: RoleLookUp::Login(LookUpRole { key, reply }),
            since: Instant::now(),
        });
    });
    match found.await {
        RoleFound::Role(role) => Ok(role),
        RoleFound::Shed => {
            services.shared.metrics.auth.concurrency_limit.increment(1);
            Err(Refusal::LoginsBusy)
        }
        RoleFound::Failed(refusal) => Err(refusal),
    }
}

/// What is left of an answer to a query. No reader and no permit is held between two pages, so
/// that a slow client costs neither.
pub struct Pages {
    services: Arc<Services>,
    rest: Option<Box<Query>>,
}

impl Pages {
    /// Whether there is nothing left.
    pub fn is_done(&self) -> bool {
        self.rest.is_none()
    }

    /// The next page, while there is one: elements of a JSON array, each behind a comma.
    ///
    /// # Errors
    /// Says why it can't be read; there is no page behind it.
    pub async fn next(&mut self) -> Option<Result<BytesMut, Refusal>> {
        let query = self.rest.take()?;
        let permit = tokio::time::timeout(PAGE_WAIT, self.services.shared.frames.acquire());
        match permit.await {
            Ok(Some(permit)) => Some(self.read(query, permit).await),
            _ => Some(Err(Refusal::TooManyRequests)),
        }
    }

    async fn read(&mut self, query: Box<Query>, permit: Permit) -> Result<BytesMut, Refusal> {
        let page = ask(|reply| {
            let page = ReadPage {
                query,
                prefix: None,
                permit,
                span: Span::none(),
                reply,
            };
            self.services.history_gate.do_send(Acquire {
                work: Read::Page(Box::new(page)),
                since: Instant::now(),
            });
        })
        .await;
        self.rest = page.rest?;
        Ok(page.frames)
    }
}
