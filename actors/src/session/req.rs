//! One REQ: its checks, its subscription, its history page by page, EOSE, then its live events.
//!
//! A subscription is sent to the fan-out first; then the last committed batch is read. What is
//! committed later comes live, the rest is history. docs/architecture.md, "The seam".

use std::sync::Arc;

use buzz_protocol::{Filter, Refusal, VerifiedEvent, relay_frame};
use tracing::Span;

use super::{
    Now, Output, Session,
    subscriptions::{Phase, Subscription},
};
use crate::{
    db_reader::HistoryPage, fanout::Live, permits::Permit, ports::Query, reply::no_answer, rules,
};

impl Session {
    pub(super) fn receive_req(&mut self, sub: &str, filters: Vec<Filter>, span: Span, now: Now) {
        span.record("verb", "REQ");
        let permit = match self.check_req(sub, &filters) {
            Ok(permit) => permit,
            Err(refusal) => return self.refuse_sub("REQ", sub, &refusal, now),
        };
        self.end_subscription_by_id(sub);
        self.reads_in_flight += 1;
        let token = self.subscriptions.open(
            sub,
            Phase::Subscribing {
                filters: filters.clone(),
                permit,
                span,
            },
        );
        self.ask(Output::Subscribe { token, filters });
    }

    fn check_req(&self, sub: &str, filters: &[Filter]) -> Result<Permit, Refusal> {
        self.check_query(sub, filters)?;
        let limit = self.shared.settings.limits.max_subscriptions;
        if self.subscriptions.len() >= limit && self.subscriptions.by_id(sub).is_none() {
            let why = format!("too many open subscriptions: at most {limit}");
            return Err(Refusal::Invalid(why));
        }
        self.shared.try_acquire()
    }

    /// Checks what REQ and COUNT have in common.
    pub(super) fn check_query(&self, sub: &str, filters: &[Filter]) -> Result<(), Refusal> {
        let limits = &self.shared.settings.limits;
        limits.check_subid(sub)?;
        rules::check_filters(limits, filters)?;
        self.check_logged_in()
    }

    /// The fan-out has the subscription: its history is what was committed up to then.
    pub(super) fn subscribed(&mut self, token: u32, committed: u64, now: Now) {
        self.reads_in_flight -= 1;
        if self.client_is_gone {
            return;
        }
        let Some(subscription) = self.subscriptions.by_token(token) else {
            return;
        };
        subscription.committed = committed;
        let history = Phase::History {
            rest: None,
            held: Vec::new(),
        };
        let phase = std::mem::replace(&mut subscription.phase, history);
        if let Phase::Subscribing {
            filters,
            permit,
            span,
        } = phase
        {
            let prefix = subscription.prefix.clone();
            let limits = &self.shared.settings.limits;
            let query = Box::new(Query::new(filters, limits, now.unix_secs, committed));
            self.read_page(token, prefix, query, permit, span);
        }
    }

    fn read_page(
        &mut self,
        token: u32,
        prefix: Box<str>,
        query: Box<Query>,
        permit: Permit,
        span: Span,
    ) {
        self.reads_in_flight += 1;
        self.ask(Output::ReadPage {
            token,
            prefix,
            query,
            permit,
            span,
        });
    }

    /// Reads the next page of the oldest subscription that has more to read and whose last page
    /// has been sent.
    pub(super) fn read_next_page(&mut self, now: Now) {
        let Some((token, prefix, query)) = self.subscriptions.take_rest() else {
            return;
        };
        match self.shared.try_acquire() {
            Ok(permit) => self.read_page(token, prefix, query, permit, Span::none()),
            Err(refusal) => self.close_subscription(token, &refusal, now),
        }
    }

    pub(super) fn page(&mut self, token: u32, page: HistoryPage, now: Now) {
        self.reads_in_flight -= 1;
        let Some(subscription) = self.subscriptions.by_token(token) else {
            return;
        };
        self.outgoing.push_page(page.frames);
        match page.rest {
            Ok(None) => {
                let eose = relay_frame::eose(&subscription.id);
                self.outgoing.push_text(&eose);
                let phase = std::mem::replace(&mut subscription.phase, Phase::Live);
                if let Phase::History { held, .. } = phase {
                    for event in held {
                        self.outgoing.push_live(&subscription.prefix, &event);
                    }
                }
            }
            Ok(unread) => {
                if let Phase::History { rest, .. } = &mut subscription.phase {
                    *rest = unread;
                }
            }
            Err(refusal) => self.close_subscription(token, &refusal, now),
        }
    }

    pub(super) fn live(&mut self, live: Live, now: Now) {
        match live {
            Live::Events {
                batch,
                events,
                hits,
            } => {
                for (token, at) in hits {
                    self.live_event(token, batch, &events[at as usize]);
                }
            }
            Live::FellBehind { token } => {
                if let Some(ended) = self.forget_subscription(token) {
                    self.refuse_sub("REQ", &ended.id, &Refusal::FellBehind, now);
                }
            }
            Live::Lost => {
                for token in self.subscriptions.tokens() {
                    self.close_subscription(token, &no_answer(), now);
                }
            }
        }
    }

    fn live_event(&mut self, token: u32, batch: u64, event: &Arc<VerifiedEvent>) {
        match self.subscriptions.by_token(token) {
            // Until the committed number is known, what is live is not known either.
            Some(subscription) => match &mut subscription.phase {
                // Committed before the subscription began: its history has it.
                _ if batch <= subscription.committed => self.outgoing.forget_live(&[event]),
                Phase::Subscribing { .. } => self.outgoing.forget_live(&[event]),
                Phase::History { held, .. } => held.push(Arc::clone(event)),
                Phase::Live => self.outgoing.push_live(&subscription.prefix, event),
            },
            // Closed meanwhile.
            None => self.outgoing.forget_live(&[event]),
        }
    }

    /// Ends a subscription with CLOSED.
    fn close_subscription(&mut self, token: u32, refusal: &Refusal, now: Now) {
        if let Some(ended) = self.end_subscription(token) {
            self.refuse_sub("REQ", &ended.id, refusal, now);
        }
    }

    pub(super) fn end_subscription_by_id(&mut self, id: &str) {
        if let Some(token) = self.subscriptions.by_id(id).map(|open| open.token) {
            self.end_subscription(token);
        }
    }

    fn end_subscription(&mut self, token: u32) -> Option<Subscription> {
        let ended = self.forget_subscription(token)?;
        self.ask(Output::Unsubscribe { token });
        Some(ended)
    }

    /// Forgets a subscription that the fan-out has forgotten or will.
    fn forget_subscription(&mut self, token: u32) -> Option<Subscription> {
        let subscription = self.subscriptions.remove(token)?;
        if let Phase::History { held, .. } = &subscription.phase {
            self.outgoing.forget_live(held);
        }
        Some(subscription)
    }
}
