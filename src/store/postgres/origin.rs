//! Whose batch it is. Several relays share one database, each numbers its own batches, and each
//! start of a relay is an *origin* of its own. The `batch` column holds both: the origin in its
//! upper bits, the number below. Pure but for the two counters that reader and writer share.
//!
//! A read leaves out what its own relay committed after it began, since that comes live. Another
//! relay's events never come live here, so a read takes whatever of them is there.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

/// Bits of a batch's number: a thousand batches a second for 17 years.
const NUMBER_BITS: u32 = 39;
const MOST: i64 = (1 << NUMBER_BITS) - 1;

/// This process's origin, and its last batch that changed anything.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// 0 until a writer has claimed one.
    origin: AtomicI64,
    last_change: AtomicU64,
}

impl Origin {
    /// The origin; `None` until one is claimed.
    pub(super) fn get(&self) -> Option<i64> {
        Some(self.0.origin.load(Ordering::Acquire)).filter(|origin| *origin > 0)
    }

    /// Takes `claimed` unless another writer of this process has claimed one; says which counts.
    pub(super) fn claim(&self, claimed: i64) -> i64 {
        let origin = &self.0.origin;
        match origin.compare_exchange(0, claimed, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => claimed,
            Err(earlier) => earlier,
        }
    }

    /// Batch `number` changed the store and is committed.
    pub(super) fn changed(&self, number: u64) {
        self.0.last_change.fetch_max(number, Ordering::AcqRel);
    }

    /// The batches that a query must not see, which began when `committed` was the last one.
    pub(super) fn hidden(&self, committed: u64) -> Range<i64> {
        let Some(origin) = self.get() else {
            return 0..0;
        };
        column(origin, committed.saturating_add(1))..column(origin, u64::MAX).saturating_add(1)
    }

    /// The batch that a replica must have for such a query: what changed nothing is not waited for.
    pub(super) fn needed(&self, committed: u64) -> u64 {
        committed.min(self.0.last_change.load(Ordering::Acquire))
    }
}

/// The `batch` column of an origin's batch.
pub(super) fn column(origin: i64, number: u64) -> i64 {
    // The sequence ends where the shift would lose a bit.
    (origin << NUMBER_BITS) | i64::try_from(number).unwrap_or(MOST).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: hiding another origin's batches, hiding one's own up to the query's beginning,
    /// showing one's own later ones.
    #[test]
    fn only_own_later_batches_are_hidden() {
        let origin = Origin::default();
        assert!(!origin.hidden(0).contains(&column(1, 1)), "none claimed");
        assert_eq!((origin.claim(7), origin.claim(8)), (7, 7));
        let hidden = origin.hidden(5);
        assert!(!hidden.contains(&column(7, 5)) && hidden.contains(&column(7, 6)));
        assert!(hidden.contains(&column(7, u64::MAX)));
        for other in [1, 6, 8, 16_777_215] {
            assert!(!hidden.contains(&column(other, 6)), "{other}");
            assert!(!hidden.contains(&column(other, u64::MAX)), "{other}");
        }
    }

    /// Kills: waiting for a batch that changed nothing, not waiting for one that did.
    #[test]
    fn a_replica_needs_the_last_change_up_to_the_querys_beginning() {
        let origin = Origin::default();
        assert_eq!(origin.needed(9), 0);
        origin.changed(4);
        origin.changed(3);
        assert_eq!(
            (origin.needed(9), origin.needed(4), origin.needed(2)),
            (4, 4, 2)
        );
    }
}
