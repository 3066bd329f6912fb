//! A fan-out while it runs: what is published, answered and delivered.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use buzz_protocol::EventId;

use super::{super::IdMap, deliveries::Deliveries};
use crate::{
    answer::{self, Answer},
    dataset::Signed,
    latency::Latencies,
    net::push_text,
    problems::Problems,
};

/// A run while it runs.
pub(super) struct Fanout<'a> {
    pub(super) events: &'a [Signed],
    pub(super) numbers: IdMap<usize>,
    /// The publisher's socket.
    pub(super) publisher: usize,
    /// Events without an OK at once; none when they are published at a rate.
    pub(super) window: usize,
    /// The longest silence.
    pub(super) patience: Duration,
    /// When each event was published.
    pub(super) sent: Vec<Instant>,
    pub(super) answered: Vec<bool>,
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) deliveries: Deliveries,
    pub(super) latencies: Latencies,
    pub(super) publish_latencies: Latencies,
    pub(super) last_activity: Instant,
    pub(super) last_delivery: Instant,
    pub(super) problems: Problems,
}

impl Fanout<'_> {
    pub(super) fn finished(&self) -> bool {
        let answered = self.accepted + self.refused;
        let published = self.sent.len() == self.events.len();
        let complete = published
            && answered == self.events.len() as u64
            && self.deliveries.unique() >= self.accepted * self.deliveries.subscribers() as u64;
        complete || self.last_activity.elapsed() > self.patience
    }

    pub(super) fn fill(&mut self, now: Instant, out: &mut Vec<u8>) {
        while self.sent.len() < self.events.len()
            && self.sent.len() - ((self.accepted + self.refused) as usize) < self.window
        {
            self.publish(now, out);
        }
    }

    pub(super) fn publish(&mut self, now: Instant, out: &mut Vec<u8>) {
        let event = &self.events[self.sent.len()];
        push_text(out, &[b"[\"EVENT\",", event.json.as_bytes(), b"]"]);
        self.sent.push(now);
        self.last_activity = now;
    }

    pub(super) fn receive(
        &mut self,
        at: usize,
        message: &[u8],
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match answer::parse(message) {
            Answer::Event { event, .. } if at != self.publisher => {
                let id = answer::event_id(event).context("a delivered event has no id")?;
                let number = EventId::from_hex(id)
                    .ok()
                    .and_then(|id| self.numbers.get(&id).copied());
                // Someone else's event: the tag is this run's own, so that should not be.
                let Some(number) = number else {
                    self.problems.add("wrong", "an event nobody asked for");
                    return Ok(());
                };
                if self.deliveries.add(at, number) {
                    self.latencies.record(now - self.sent[number]);
                }
                self.last_activity = now;
                self.last_delivery = now;
            }
            Answer::Ok {
                id,
                accepted,
                message,
            } => {
                let id = EventId::from_hex(id).ok();
                let number = id.and_then(|id| self.numbers.get(&id).copied());
                let Some(number) = number.filter(|number| !self.answered[*number]) else {
                    return Ok(());
                };
                self.answered[number] = true;
                self.publish_latencies.record(now - self.sent[number]);
                self.last_activity = now;
                if accepted {
                    self.accepted += 1;
                } else {
                    self.refused += 1;
                    self.problems.add("OK", &answer::text(message));
                }
                self.fill(now, out);
            }
            Answer::Closed { message, .. } => self.problems.add("CLOSED", &answer::text(message)),
            Answer::Notice { message } => self.problems.add("NOTICE", &answer::text(message)),
            _ => {}
        }
        Ok(())
    }
}
