//! What a run cost: the relay's CPU time, this tool's own, and the price of one signature check,
//! which makes figures of different machines comparable.

use std::time::Instant;

use anyhow::Result;
use buzz_protocol::Event;
use secp256k1::XOnlyPublicKey;

use crate::{
    dataset::Signed,
    latency::round3,
    process::{Relay, own_cpu_us},
};

/// CPU time from now on.
pub(crate) struct CpuMeter {
    relay: Option<(Relay, f64)>,
    own_us: f64,
}

impl CpuMeter {
    /// Starts to measure; `relay` is the relay's process, where it is known.
    ///
    /// # Errors
    /// When there is no such process.
    pub(crate) fn start(relay: Option<Relay>) -> Result<Self> {
        let relay = relay.map(|relay| Ok::<_, anyhow::Error>((relay, relay.cpu_us()?)));
        Ok(Self {
            relay: relay.transpose()?,
            own_us: own_cpu_us(),
        })
    }

    /// The relay's CPU time in µs for each of `count`; `None` where its process is not known or
    /// it has ended.
    pub(crate) fn relay_us_per(&self, count: u64) -> Option<f64> {
        let (relay, before) = self.relay?;
        Some(per(relay.cpu_us().ok()? - before, count))
    }

    /// This tool's own.
    pub(crate) fn own_us_per(&self, count: u64) -> f64 {
        per(own_cpu_us() - self.own_us, count)
    }
}

/// `total / count`; zero where there is nothing.
pub(crate) fn per(total: f64, count: u64) -> f64 {
    round3(if count == 0 {
        0.0
    } else {
        total / count as f64
    })
}

/// Times signature checks on this thread, in µs each. The key is parsed before the clock starts,
/// as a relay does for an author it knows.
///
/// # Errors
/// When one of `events` is not valid.
pub(crate) fn verify_us(events: &[Signed]) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(events.len());
    for event in events {
        let event: Event = serde_json::from_str(&event.json)?;
        let key = XOnlyPublicKey::from_byte_array(event.pubkey.0)?;
        let start = Instant::now();
        event.verify_signature(&key)?;
        times.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    Ok(times)
}

/// The middle one.
pub(crate) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().map_or(0.0, round3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_not_moved_by_one_slow_check() {
        assert_eq!(median(vec![900.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn nothing_costs_nothing() {
        assert_eq!(per(5.0, 0), 0.0);
        assert_eq!(per(5.0, 2), 2.5);
    }
}
