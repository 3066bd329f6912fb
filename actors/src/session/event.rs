//! One EVENT: its checks, then the verifier and the writer, then its OK.
//!
//! Bound: one batch is at the verifier at a time; with those that wait for the writer's answer,
//! [`super::MAX_FRAMES_IN_FLIGHT`] events. Every event has exactly one OK: each batch has two
//! answers, and what neither names was lost with an actor and is refused.

use std::collections::VecDeque;

use buzz_protocol::{Event, EventId, Refusal, relay_frame};
use tracing::Span;

use super::{Now, Output, Session};
use crate::{
    permits::Permit,
    reply::no_answer,
    rules::{self, Sender},
    verifier::Verified,
    writer::Stored,
};

/// Events between arrival and answer.
#[derive(Default)]
pub(super) struct EventsInFlight {
    /// Not yet sent to the verifier, with the permit that covers them all.
    unverified: Vec<(Event, Span)>,
    permit: Option<Permit>,
    /// A batch is at the verifier. The next one waits for it: two verifiers would not keep the
    /// order in which a client published.
    verifying: bool,
    /// Sent to the verifier and not wholly answered.
    batches: Vec<Batch>,
    next_batch: u32,
    /// All that have no answer yet.
    count: usize,
}

struct Batch {
    number: u32,
    /// Those without an answer, in the order they were sent.
    ids: VecDeque<EventId>,
    /// Of the verifier and the writer, so many have yet to answer.
    answers_due: u8,
}

impl EventsInFlight {
    /// Events without an answer.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn push(&mut self, event: Event, span: Span, permit: Permit) {
        match &mut self.permit {
            Some(all) => all.merge(permit),
            none => *none = Some(permit),
        }
        self.unverified.push((event, span));
        self.count += 1;
    }

    /// Sends the next batch to the verifier, unless one is there.
    fn next_batch(&mut self) -> Option<Output> {
        if self.verifying {
            return None;
        }
        let permit = self.permit.take()?;
        let events = std::mem::take(&mut self.unverified);
        let number = self.next_batch;
        self.next_batch = number.wrapping_add(1);
        self.verifying = true;
        self.batches.push(Batch {
            number,
            ids: events.iter().map(|(event, _)| event.id).collect(),
            answers_due: 2,
        });
        Some(Output::VerifyEvents {
            batch: number,
            events,
            permit,
        })
    }

    /// Takes one of the answers to a batch, about `answered`. Gives those that no answer named,
    /// once both answers are there.
    fn answered<'a>(
        &mut self,
        number: u32,
        answered: impl Iterator<Item = &'a EventId>,
    ) -> VecDeque<EventId> {
        let Some(at) = self.batches.iter().position(|batch| batch.number == number) else {
            return VecDeque::new();
        };
        let batch = &mut self.batches[at];
        for id in answered {
            // Answers keep the order of the events, so this is nearly always the first one.
            let at = batch.ids.iter().position(|waiting| waiting == id);
            if at.and_then(|at| batch.ids.remove(at)).is_some() {
                self.count -= 1;
            }
        }
        batch.answers_due -= 1;
        if batch.answers_due > 0 {
            return VecDeque::new();
        }
        let lost = self.batches.remove(at).ids;
        self.count -= lost.len();
        if self.batches.is_empty() {
            // An idle session keeps no buffer.
            self.batches = Vec::new();
        }
        lost
    }
}

impl Session {
    pub(super) fn receive_event(&mut self, event: Event, span: Span, now: Now) {
        span.record("verb", "EVENT");
        match self.check_event(&event, now) {
            Ok(permit) => self.events.push(event, span, permit),
            Err(refusal) => self.refuse_event(&event.id, &refusal, now),
        }
    }

    /// Checks what needs no signature, and takes a permit.
    fn check_event(&self, event: &Event, now: Now) -> Result<Permit, Refusal> {
        self.check_logged_in()?;
        self.login.check_signatures_checked(now)?;
        let sender = if self.login.has(&event.pubkey) {
            Sender::Author
        } else if self.login.is_anonymous() {
            Sender::Anonymous
        } else {
            Sender::Other
        };
        rules::check_event(&self.shared.settings.limits, event, sender, now.unix_secs)?;
        self.shared.try_acquire()
    }

    /// Sends the events that came in to the verifier, unless a batch is there.
    pub(super) fn verify_events(&mut self) {
        let batch = self.events.next_batch();
        self.outputs.extend(batch);
    }

    pub(super) fn verified(&mut self, batch: u32, verified: Verified, now: Now) {
        self.events.verifying = false;
        let rejected = verified.rejected;
        self.note_invalid_signatures(rejected.len());
        let ids = rejected.iter().map(|(id, _)| id);
        let lost = self.events.answered(batch, ids);
        for (id, refusal) in &rejected {
            self.refuse_event(id, refusal, now);
        }
        self.refuse_lost(&lost, now);
    }

    pub(super) fn stored(&mut self, batch: u32, stored: Stored, now: Now) {
        let ids = stored.results.iter().map(|(id, ..)| id);
        let lost = self.events.answered(batch, ids);
        for (id, result, span) in stored.results {
            let _send = tracing::debug_span!(parent: &span, "send").entered();
            match self.shared.metrics.events.verdict(result) {
                Ok(message) => self.send(&relay_frame::ok(&id, true, message)),
                Err(refusal) => self.refuse_event(&id, &refusal, now),
            }
        }
        self.refuse_lost(&lost, now);
    }

    fn refuse_lost(&mut self, lost: &VecDeque<EventId>, now: Now) {
        for id in lost {
            self.refuse_event(id, &no_answer(), now);
        }
    }

    /// Counts invalid signatures against the client's address, whoever they claim to be from.
    pub(super) fn note_invalid_signatures(&mut self, count: usize) {
        if count > 0 {
            self.ask(Output::NoteInvalidSignatures { count });
        }
    }
}
