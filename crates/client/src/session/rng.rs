//! Chance from a seed: the only source of it in the session, so that a run replays exactly.

use std::time::Duration;

/// SplitMix64: small, and good enough to spread clients over time; never used for keys.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Any time from zero to `max`, each as likely.
    pub(crate) fn up_to(&mut self, max: Duration) -> Duration {
        let share = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        max.mul_f64(share)
    }
}
