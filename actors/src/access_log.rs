//! How many lines the access log takes from one source.
//!
//! Bound: a number of lines in each window of `WINDOW`, so that a flood of frames is no flood of
//! log lines. What is left out is counted in the next line.

use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(10);

/// Lines written and left out. Plain data: time is an argument.
pub struct LogLines {
    max: u32,
    since: Instant,
    written: u32,
    left_out: u64,
}

impl LogLines {
    /// No line so far, and at most `max` in a window.
    pub fn new(max: u32, now: Instant) -> Self {
        Self {
            max,
            since: now,
            written: 0,
            left_out: 0,
        }
    }

    /// Whether one more line may be written. `Some` says how many were left out before it.
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= WINDOW {
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

    /// Lines left out since the last one that was written.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: lines without a bound; a bound that is never lifted; a count that is lost or said
    /// twice.
    #[test]
    fn lines_are_bounded_and_what_is_left_out_is_said_once() {
        let start = Instant::now();
        let mut lines = LogLines::new(20, start);
        let written = (0..100).filter(|_| lines.next(start).is_some()).count();
        assert_eq!(written, 20);
        assert_eq!(lines.next(start + WINDOW), Some(80));
        assert_eq!(lines.next(start + WINDOW), Some(0));
    }
}
