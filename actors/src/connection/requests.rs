//! What a client asks. Each frame is read (`receive`), admitted (`admission.rs`), and then answered
//! at once or handed to a room (`serve`).

use std::sync::Arc;

use actix::AsyncContext;
use buzz_protocol::{
    ClientFrame, Event, Filter, Refusal,
    client_frame::{About, BadFrame},
    refusal,
};
use tracing::Span;

use super::{Connection, Context, admission::Received};
use crate::{
    db_reader::request::{CountRequest, HistoryRequest},
    fanout::Subscribe,
    ports::Query,
    rooms::Permit,
    rules::{self, Sender},
    verifier::VerifyEvents,
};

impl Connection {
    /// Takes one text message.
    pub(super) fn receive(&mut self, message: &[u8], ctx: &mut Context) {
        self.frames_received += 1;
        let span = tracing::debug_span!(parent: None, "frame", verb = tracing::field::Empty);
        let parsed = {
            let _parse = tracing::debug_span!(parent: &span, "parse").entered();
            match std::str::from_utf8(message) {
                Ok(text) => ClientFrame::parse(text),
                Err(error) => Err(BadFrame {
                    about: About::Unknown,
                    verb: None,
                    reason: format!("invalid: the message is not UTF-8: {error}"),
                }),
            }
        };
        self.admit(parsed, span, ctx);
    }

    /// Takes what was admitted.
    pub(super) fn serve(&mut self, frame: Received, span: Span, ctx: &mut Context) {
        match frame {
            Ok(ClientFrame::Event(event)) => self.receive_event(*event, span),
            Ok(ClientFrame::Req { sub, filters }) => self.receive_req(&sub, filters, span, ctx),
            Ok(ClientFrame::Count { query, filters }) => {
                self.receive_count(query, filters, span, ctx);
            }
            Ok(ClientFrame::Close { sub }) => self.end_subscription_by_id(&sub),
            Ok(ClientFrame::Auth(event)) => self.receive_login(event, ctx),
            Err(bad) => self.refuse_bad(&bad),
        }
    }

    fn refuse_bad(&mut self, bad: &BadFrame) {
        match (bad.verb, &bad.about) {
            (Some("EVENT"), _) => self.rooms.metrics.events.invalid.increment(1),
            (Some("AUTH"), _) => self.rooms.metrics.auth.invalid.increment(1),
            (Some("REQ"), About::Sub(sub)) => self.end_subscription_by_id(sub),
            _ => {}
        }
        let reason = match refusal::prefix(&bad.reason) {
            Some("unsupported") => "unsupported",
            _ => "invalid",
        };
        self.log_refused(bad.verb.unwrap_or("none"), reason);
        self.send(&bad.answer());
    }

    fn receive_event(&mut self, event: Event, span: Span) {
        span.record("verb", "EVENT");
        match self.check_event(&event) {
            Ok(permit) => {
                match &mut self.events.permit {
                    Some(all) => all.merge(permit),
                    none => *none = Some(permit),
                }
                self.events.unverified.push((event, span));
                self.events.count += 1;
            }
            Err(refusal) => self.refuse_event(&event.id, &refusal),
        }
    }

    fn check_event(&self, event: &Event) -> Result<Permit, Refusal> {
        self.check_login()?;
        self.check_suspicion()?;
        let sender = if self.login.has(&event.pubkey) {
            Sender::Author
        } else if self.login.is_anonymous() {
            Sender::Anonymous
        } else {
            Sender::Other
        };
        let limits = &self.rooms.settings.limits;
        rules::check_event(limits, event, sender, (self.rooms.clock)())?;
        self.rooms.enter()
    }

    /// Sends the events that came in to the verifier, unless a batch is there.
    pub(super) fn verify_events(&mut self, ctx: &mut Context) {
        if self.events.verifying || self.events.unverified.is_empty() {
            return;
        }
        if let Some(permit) = self.events.permit.take() {
            let events = std::mem::take(&mut self.events.unverified);
            self.events.verifying = true;
            self.rooms.verifier.do_send(VerifyEvents {
                events,
                from: ctx.address().into(),
                permit,
            });
        }
    }

    fn receive_req(&mut self, sub: &str, filters: Vec<Filter>, span: Span, ctx: &mut Context) {
        span.record("verb", "REQ");
        let permit = match self.check_req(sub, &filters) {
            Ok(permit) => permit,
            Err(refusal) => return self.refuse_sub("REQ", sub, &refusal),
        };
        self.end_subscription_by_id(sub);
        let token = self.subscriptions.next_token();
        // First to the fan-out, then the last committed batch: what is committed later comes
        // from the fan-out, the rest is history. docs/architecture.md, "The seam".
        self.rooms.fanout.do_send(Subscribe {
            connection: self.number,
            token,
            filters: filters.clone(),
            addr: ctx.address(),
            meter: Arc::clone(&self.outgoing.meter),
        });
        let query = self.begin_query(filters);
        let opened = self.subscriptions.open(token, sub, query.committed);
        let prefix = opened.prefix.clone();
        self.read_page(token, prefix, query, permit, span, ctx);
    }

    fn read_page(
        &mut self,
        token: u32,
        prefix: Box<str>,
        query: Box<Query>,
        permit: Permit,
        span: Span,
        ctx: &mut Context,
    ) {
        self.reading += 1;
        let request = HistoryRequest {
            query,
            prefix: Some(prefix),
            token,
            from: ctx.address().into(),
            permit,
            span,
            rooms: Arc::clone(&self.rooms),
        };
        request.enter();
    }

    fn check_req(&self, sub: &str, filters: &[Filter]) -> Result<Permit, Refusal> {
        self.check_query(sub, filters)?;
        let limit = self.rooms.settings.limits.max_subscriptions;
        if self.subscriptions.len() >= limit && self.subscriptions.by_id(sub).is_none() {
            let why = format!("too many open subscriptions: at most {limit}");
            return Err(Refusal::Invalid(why));
        }
        self.rooms.enter()
    }

    fn receive_count(&mut self, name: String, filters: Vec<Filter>, span: Span, ctx: &mut Context) {
        span.record("verb", "COUNT");
        match self
            .check_query(&name, &filters)
            .and_then(|()| self.rooms.enter())
        {
            Ok(permit) => {
                let query = self.begin_query(filters);
                self.reading += 1;
                let request = CountRequest {
                    query,
                    name,
                    from: ctx.address().into(),
                    permit,
                    span,
                    rooms: Arc::clone(&self.rooms),
                };
                request.enter();
            }
            Err(refusal) => self.refuse_sub("COUNT", &name, &refusal),
        }
    }

    fn check_query(&self, sub: &str, filters: &[Filter]) -> Result<(), Refusal> {
        let limits = &self.rooms.settings.limits;
        limits.check_subid(sub)?;
        limits.check_filters(filters)?;
        self.check_login()
    }

    /// What is stored and committed now.
    fn begin_query(&self, filters: Vec<Filter>) -> Box<Query> {
        Box::new(self.rooms.query(filters))
    }

    /// Reads the next page of one subscription whose last page has been sent.
    pub(super) fn read_on(&mut self, ctx: &mut Context) {
        let Some(subscription) = self.subscriptions.with_rest() else {
            return;
        };
        let super::Phase::History { rest, .. } = &mut subscription.phase else {
            return;
        };
        let Some(query) = rest.take() else { return };
        let (token, prefix) = (subscription.token, subscription.prefix.clone());
        match self.rooms.enter() {
            Ok(permit) => self.read_page(token, prefix, query, permit, Span::none(), ctx),
            Err(refusal) => {
                if let Some(ended) = self.end_subscription(token) {
                    self.refuse_sub("REQ", &ended.id, &refusal);
                }
            }
        }
    }

    fn check_login(&self) -> Result<(), Refusal> {
        if self.rooms.settings.auth_required && self.login.is_anonymous() {
            return Err(Refusal::AuthRequired("log in first".into()));
        }
        Ok(())
    }
}
