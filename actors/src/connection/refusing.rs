//! Refusals, by name, and their log lines.
//!
//! Bound: [`LINES`] log lines in [`EVERY`] for each socket, so that a flood of frames is no flood
//! of lines; what is left out is counted in the next line.

use std::time::{Duration, Instant};

use buzz_protocol::{EventId, Refusal, relay_frame};

use super::Connection;

pub(super) const LINES: u32 = 20;
const EVERY: Duration = Duration::from_secs(10);

/// How many lines were written and left out, of at most so many in ten seconds.
pub struct LogLines {
    max: u32,
    since: Instant,
    written: u32,
    pub(super) left_out: u64,
}

impl LogLines {
    /// None so far, and at most `max`.
    pub fn new(max: u32, now: Instant) -> Self {
        Self {
            max,
            since: now,
            written: 0,
            left_out: 0,
        }
    }

    /// Whether one more may be written; `Some` says how many were left out before it.
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= EVERY {
            self.since = now;
            self.written = 0;
        }
        if self.written == self.max {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Connection {
    /// Refuses an EVENT by name.
    pub(super) fn refuse_event(&mut self, id: &EventId, refusal: &Refusal) {
        self.rooms.metrics.events.count_refused(refusal);
        self.rooms.metrics.rejected_frames.count(refusal);
        self.log_refused("EVENT", refusal.reason());
        self.send_ok(id, false, &refusal.to_string());
    }

    /// Refuses a REQ or COUNT by name. To the client, CLOSED ends whatever has that name: so does
    /// a refused REQ here.
    pub(super) fn refuse_sub(&mut self, verb: &'static str, sub: &str, refusal: &Refusal) {
        if verb == "REQ" {
            self.end_subscription_by_id(sub);
        }
        self.rooms.metrics.rejected_frames.count(refusal);
        self.log_refused(verb, refusal.reason());
        let text = refusal.to_string();
        self.send(&relay_frame::closed(sub, &text));
        if verb == "COUNT" && refusal.prefix() == "rate-limited" {
            // What clients that do not know CLOSED for a COUNT read.
            self.send(&relay_frame::notice(&text));
        }
    }

    pub(super) fn log_refused(&mut self, verb: &'static str, reason: &'static str) {
        let Some(left_out) = self.log_lines.next(Instant::now()) else {
            return;
        };
        let left_out = (left_out > 0).then_some(left_out);
        tracing::info!(
            target: "access", outcome = "denied", reason, verb, peer = %self.peer,
            connection = self.number, left_out, "frame refused: denied/{reason}"
        );
    }

    pub(super) fn log_login(&mut self, outcome: &'static str, reason: &'static str) {
        let Some(left_out) = self.log_lines.next(Instant::now()) else {
            return;
        };
        let left_out = (left_out > 0).then_some(left_out);
        tracing::info!(
            target: "access", outcome, reason, verb = "AUTH", peer = %self.peer,
            connection = self.number, left_out, "login {outcome}/{reason}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: lines without a bound; a bound that is never lifted; a count that is lost or said
    /// twice.
    #[test]
    fn lines_are_bounded_and_what_is_left_out_is_said_once() {
        let start = Instant::now();
        let mut lines = LogLines::new(LINES, start);
        let written = (0..100).filter(|_| lines.next(start).is_some()).count();
        assert_eq!(written, LINES as usize);
        assert_eq!(lines.next(start + EVERY), Some(100 - u64::from(LINES)));
        assert_eq!(lines.next(start + EVERY), Some(0));
    }
}
