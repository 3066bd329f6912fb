//! How long a client waits before it comes again.

use std::time::Duration;

use crate::rng::Rng;

/// The longest first wait; it doubles with each one.
const BASE: Duration = Duration::from_millis(250);
/// The longest of all.
const MAX: Duration = Duration::from_secs(8);
/// This purpose's stream of random numbers.
const STREAM: u64 = 4;

/// Full jitter: any wait up to the longest, so that clients shed together do not return together.
pub(super) struct Backoff {
    rng: Rng,
    longest: Duration,
}

impl Backoff {
    pub(super) fn new(seed: u64, client: u64) -> Self {
        Self {
            rng: Rng::new(seed, STREAM, client),
            longest: BASE,
        }
    }

    /// The next wait.
    pub(super) fn next(&mut self) -> Duration {
        let longest = self.longest;
        self.longest = MAX.min(longest * 2);
        Duration::from_micros(self.rng.below(longest.as_micros() as u64 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: no doubling, no ceiling, half jitter (a floor), one wait for all clients.
    #[test]
    fn waits_are_spread_up_to_a_ceiling_that_doubles_to_eight_seconds() {
        let mut clients: Vec<_> = (0..2000).map(|n| Backoff::new(1, n)).collect();
        for ceiling in [250, 500, 1000, 2000, 4000, 8000, 8000] {
            let waits: Vec<_> = (clients.iter_mut())
                .map(|client| client.next().as_millis())
                .collect();
            let (min, max) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
            assert!(*max <= ceiling && *max > ceiling * 98 / 100, "{max}");
            assert!(*min < ceiling / 50, "{min}");
            let mean = waits.iter().sum::<u128>() / waits.len() as u128;
            assert!((ceiling * 46 / 100..ceiling * 54 / 100).contains(&mean));
        }
    }

    /// Kills: chance that does not come from the seed.
    #[test]
    fn the_same_seed_gives_the_same_waits() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed, 3);
            [backoff.next(), backoff.next(), backoff.next()]
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}
