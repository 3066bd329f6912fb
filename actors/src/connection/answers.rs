//! What the rooms answer, and how it goes on to the client.

use std::sync::Arc;

use actix::{Handler, Message};
use actix_http::ws::CloseCode;
use buzz_protocol::{EventId, Refusal, VerifiedEvent, relay_frame};
use bytes::BytesMut;
use tracing::Span;

use super::{Connection, Context, Phase, ws};
use crate::ports::{Outcome, Query};

/// A batch of signatures was checked; the good events are on their way to the writer.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Verified {
    /// Those that are not what they claim to be.
    pub rejected: Vec<(EventId, Refusal)>,
}

/// A batch was committed, or failed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Stored {
    /// What became of this connection's events, each with the trace of its frame.
    pub results: Vec<(EventId, Result<Outcome, Refusal>, Span)>,
}

/// A page of a subscription's history.
#[derive(Message)]
#[rtype(result = "()")]
pub struct HistoryPage {
    /// The subscription.
    pub token: u32,
    /// Events as frames, ready to send.
    pub frames: BytesMut,
    /// What is left to read; nothing: the history is complete.
    pub rest: Result<Option<Box<Query>>, Refusal>,
}

/// The answer to a COUNT.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Counted {
    /// The client's name for it.
    pub name: String,
    /// How many events match.
    pub count: Result<u64, Refusal>,
}

/// Live events. Each is counted by the connection's meter.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Deliver {
    /// The batch they were committed in.
    pub batch: u64,
    /// All events of the batch.
    pub events: Arc<[Arc<VerifiedEvent>]>,
    /// Subscription and position in `events`, in order.
    pub hits: Vec<(u32, u32)>,
}

/// A subscription lost an event, since too much waits for this client. It gets no further ones.
#[derive(Message)]
#[rtype(result = "()")]
pub struct FellBehind {
    /// The subscription.
    pub token: u32,
}

/// The relay shuts down: what is in work is answered first. Said twice: at once.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Shutdown;

impl Connection {
    /// Ends the history of a subscription: EOSE, then the live events that waited.
    fn finish_history(&mut self, token: u32) {
        let Some(subscription) = self.subscriptions.by_token(token) else {
            return;
        };
        let eose = relay_frame::eose(&subscription.id);
        ws::push_text(&mut self.outgoing.bytes, &[eose.as_bytes()]);
        let phase = std::mem::replace(&mut subscription.phase, Phase::Live);
        if let Phase::History { held, .. } = phase {
            for event in held {
                self.outgoing.push_live(&subscription.prefix, &event);
            }
        }
    }
}

impl super::Outgoing {
    /// Adds a live event that the meter has counted.
    fn push_live(&mut self, prefix: &str, event: &VerifiedEvent) {
        let json = event.json();
        ws::push_text(&mut self.bytes, &[prefix.as_bytes(), json.as_bytes(), b"]"]);
        self.live.0 += 1;
        self.live.1 += json.len();
    }
}

impl Handler<Verified> for Connection {
    type Result = ();
    fn handle(&mut self, verified: Verified, ctx: &mut Context) {
        self.note_invalid_signatures(verified.rejected.len(), ctx);
        self.events.verifying = false;
        self.events.count -= verified.rejected.len();
        for (id, refusal) in &verified.rejected {
            self.refuse_event(id, refusal);
        }
    }
}

impl Handler<Stored> for Connection {
    type Result = ();
    fn handle(&mut self, stored: Stored, _: &mut Context) {
        self.events.count -= stored.results.len();
        for (id, result, span) in stored.results {
            let _send = tracing::debug_span!(parent: &span, "send").entered();
            match self.rooms.metrics.events.verdict(result) {
                Ok(message) => self.send_ok(&id, true, message),
                Err(refusal) => self.refuse_event(&id, &refusal),
            }
        }
    }
}

impl Handler<HistoryPage> for Connection {
    type Result = ();
    fn handle(&mut self, page: HistoryPage, _: &mut Context) {
        self.reading -= 1;
        let Some(subscription) = self.subscriptions.by_token(page.token) else {
            return;
        };
        if self.outgoing.bytes.is_empty() {
            self.outgoing.bytes = page.frames;
        } else {
            self.outgoing.bytes.extend_from_slice(&page.frames);
        }
        match page.rest {
            Ok(None) => self.finish_history(page.token),
            Ok(unread) => {
                if let Phase::History { rest, .. } = &mut subscription.phase {
                    *rest = unread;
                }
            }
            Err(refusal) => {
                if let Some(ended) = self.end_subscription(page.token) {
                    self.refuse_sub("REQ", &ended.id, &refusal);
                }
            }
        }
    }
}

impl Handler<Counted> for Connection {
    type Result = ();
    fn handle(&mut self, counted: Counted, _: &mut Context) {
        self.reading -= 1;
        match counted.count {
            Ok(count) => self.send(&relay_frame::count(&counted.name, count)),
            Err(refusal) => self.refuse_sub("COUNT", &counted.name, &refusal),
        }
    }
}

impl Handler<Deliver> for Connection {
    type Result = ();
    fn handle(&mut self, deliver: Deliver, _: &mut Context) {
        for (token, at) in deliver.hits {
            let event = &deliver.events[at as usize];
            match self.subscriptions.by_token(token) {
                // Committed before the subscription began: its history has it.
                Some(subscription) if deliver.batch <= subscription.committed => {
                    self.outgoing.meter.subtract(1, event.json().len());
                }
                Some(subscription) => match &mut subscription.phase {
                    Phase::History { held, .. } => held.push(Arc::clone(event)),
                    Phase::Live => self.outgoing.push_live(&subscription.prefix, event),
                },
                // Closed meanwhile.
                None => self.outgoing.meter.subtract(1, event.json().len()),
            }
        }
    }
}

impl Handler<FellBehind> for Connection {
    type Result = ();
    fn handle(&mut self, fell: FellBehind, _: &mut Context) {
        if let Some(ended) = self.drop_subscription(fell.token) {
            self.refuse_sub("REQ", &ended.id, &Refusal::FellBehind);
        }
    }
}

impl Handler<Shutdown> for Connection {
    type Result = ();
    fn handle(&mut self, _: Shutdown, _: &mut Context) {
        if self.leaving.is_some() {
            // Told again: there is no more time for what is in work.
            self.close(CloseCode::Restart, "relay_restarts");
            self.outgoing.wake();
        }
        self.leaving = Some((CloseCode::Restart, "relay_restarts"));
    }
}
