//! The queries of one shape while it runs: what each socket waits for, what has come.

use std::time::Instant;

use anyhow::Result;
use buzz_protocol::Event;

use super::plan::Query;
use crate::{
    answer::{self, Answer},
    latency::Latencies,
    net::push_text,
    order,
    problems::Problems,
    rng::Rng,
};

#[derive(Default)]
pub(super) struct Counts {
    pub(super) in_time: u64,
    /// Answered after the end: in the latencies, not in the rate.
    pub(super) late: u64,
    pub(super) events: u64,
    pub(super) refused: u64,
    pub(super) wrong: u64,
    pub(super) short: u64,
}

/// A shape while it runs.
pub(super) struct Asking<'a> {
    queries: &'a [Query],
    rng: Rng,
    slots: Vec<Slot>,
    verify: bool,
    end: Instant,
    pub(super) counts: Counts,
    pub(super) latencies: Latencies,
    problems: &'a mut Problems,
}

/// What one socket waits for.
struct Slot {
    query: usize,
    /// The subscription id: one digit, another one for each query, so that what still comes for
    /// the one before is not taken for an answer.
    sub: u8,
    sent: Instant,
    waiting: bool,
    events: u64,
    /// The answer so far, when it is to be checked.
    answer: Vec<Event>,
}

impl Slot {
    fn new() -> Self {
        Self {
            query: 0,
            sub: b'0',
            sent: Instant::now(),
            waiting: false,
            events: 0,
            answer: Vec::new(),
        }
    }
}

impl<'a> Asking<'a> {
    pub(super) fn new(
        queries: &'a [Query],
        rng: Rng,
        sockets: usize,
        verify: bool,
        end: Instant,
        problems: &'a mut Problems,
    ) -> Result<Self> {
        Ok(Self {
            queries,
            rng,
            slots: (0..sockets).map(|_| Slot::new()).collect(),
            verify,
            end,
            counts: Counts::default(),
            latencies: Latencies::new()?,
            problems,
        })
    }

    /// How many queries are open.
    pub(super) fn waiting(&self) -> u64 {
        self.slots.iter().filter(|slot| slot.waiting).count() as u64
    }

    /// Socket `at` ended.
    pub(super) fn cut(&mut self, at: usize, why: &str) {
        self.problems.add("cut", why);
        self.slots[at].waiting = false;
    }

    /// Sends the next query on socket `at`.
    pub(super) fn ask(&mut self, at: usize, now: Instant, out: &mut Vec<u8>) {
        let slot = &mut self.slots[at];
        slot.query = self.rng.below(self.queries.len() as u64) as usize;
        slot.sub = if slot.sub == b'9' { b'0' } else { slot.sub + 1 };
        slot.sent = now;
        slot.waiting = true;
        slot.events = 0;
        slot.answer.clear();
        let filter = self.queries[slot.query].json.as_bytes();
        push_text(out, &[b"[\"REQ\",\"", &[slot.sub], b"\",", filter, b"]"]);
    }

    /// Takes one message.
    pub(super) fn receive(&mut self, at: usize, message: &[u8], now: Instant, out: &mut Vec<u8>) {
        let slot = &mut self.slots[at];
        let current = |sub: &[u8]| slot.waiting && sub == [slot.sub];
        match answer::parse(message) {
            Answer::Event { sub, event } if current(sub) => {
                slot.events += 1;
                if self.verify {
                    match serde_json::from_slice(event) {
                        Ok(event) => slot.answer.push(event),
                        Err(error) => self.problems.add("wrong", &error.to_string()),
                    }
                }
            }
            Answer::Eose { sub } if current(sub) => {
                push_text(out, &[b"[\"CLOSE\",\"", sub, b"\"]"]);
                self.answered(at, now);
                self.next(at, now, out);
            }
            Answer::Closed { sub, message } if current(sub) => {
                self.counts.refused += 1;
                self.problems.add("CLOSED", &answer::text(message));
                self.next(at, now, out);
            }
            Answer::Notice { message } => self.problems.add("NOTICE", &answer::text(message)),
            _ => {}
        }
    }

    fn answered(&mut self, at: usize, now: Instant) {
        let slot = &self.slots[at];
        let query = &self.queries[slot.query];
        self.latencies.record(now - slot.sent);
        self.counts.events += slot.events;
        if now <= self.end {
            self.counts.in_time += 1;
        } else {
            self.counts.late += 1;
        }
        if self.verify {
            if let Err(why) = order::check(&query.filter, &slot.answer) {
                self.counts.wrong += 1;
                self.problems.add("wrong", &why);
            }
            if slot.events < query.expected {
                self.counts.short += 1;
            }
        }
    }

    fn next(&mut self, at: usize, now: Instant, out: &mut Vec<u8>) {
        if now < self.end {
            self.ask(at, now, out);
        } else {
            self.slots[at].waiting = false;
        }
    }
}
