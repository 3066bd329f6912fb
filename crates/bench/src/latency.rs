//! Latencies of a run, kept in an HDR histogram with three digits.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer ones count as this long, in nanoseconds: ten minutes.
const MAX_NS: u64 = 600_000_000_000;

/// Collects latencies.
pub(crate) struct Latencies(Histogram<u64>);

/// What a report says about them, in milliseconds; all zero when there were none.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Latencies {
    /// None yet.
    ///
    /// # Errors
    /// Never, for these bounds.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, MAX_NS, 3)?))
    }

    /// Adds one.
    pub(crate) fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(MAX_NS);
        self.0.saturating_record(ns.clamp(1, MAX_NS));
    }

    /// The summary.
    pub(crate) fn percentiles_ms(&self) -> Percentiles {
        let ms = |ns: u64| round3(ns as f64 / 1e6);
        Percentiles {
            p50: ms(self.0.value_at_quantile(0.5)),
            p90: ms(self.0.value_at_quantile(0.9)),
            p99: ms(self.0.value_at_quantile(0.99)),
            max: ms(self.0.max()),
        }
    }
}

/// Three digits behind the point are more than any of these figures is good for.
pub(crate) fn round3(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut latencies = Latencies::new().unwrap();
        (1..=100).for_each(|ms| latencies.record(Duration::from_millis(ms)));
        latencies.record(Duration::from_secs(9000));
        let Percentiles { p50, p90, p99, max } = latencies.percentiles_ms();
        for (got, wanted) in [(p50, 51.0), (p90, 91.0), (p99, 100.0), (max, 600_000.0)] {
            assert!((got - wanted).abs() <= wanted * 2e-3, "{got} for {wanted}");
        }
    }

    #[test]
    fn none_recorded_is_all_zero() {
        let none = Latencies::new().unwrap().percentiles_ms();
        assert_eq!((none.p50, none.p99, none.max), (0.0, 0.0, 0.0));
    }
}
