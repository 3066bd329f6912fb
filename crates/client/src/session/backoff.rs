//! The waits before something is tried again. The ceiling doubles with each failure.

use std::time::Duration;

use super::{Config, rng::Rng};

/// What a wait depends on.
pub(crate) struct Backoff<'a> {
    pub(crate) now: Duration,
    pub(crate) config: &'a Config,
    pub(crate) rng: &'a mut Rng,
}

impl Backoff<'_> {
    /// The longest wait after so many earlier failures in a row.
    pub(crate) fn ceiling(failures: u32, config: &Config) -> Duration {
        let doubled = config.backoff_base * 2u32.pow(failures.min(16));
        doubled.min(config.backoff_max)
    }

    /// When to ask again after an `error:` answer. It is at least half of the ceiling, so that a
    /// relay in trouble is not asked at once; the rest is random, so that clients that failed
    /// together do not return together.
    pub(crate) fn retry_at(&mut self, failures: u32) -> Duration {
        let half = Self::ceiling(failures, self.config) / 2;
        self.now + half + self.rng.up_to(half)
    }
}
