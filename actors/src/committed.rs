//! The number of the last committed batch. The writer alone sets it; everybody may read it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The number of the last committed batch: what is committed up to it is a new subscription's
/// history, and what comes later reaches the subscription live. See docs/architecture.md, "The
/// seam".
#[derive(Debug, Clone, Default)]
pub struct Committed(Arc<AtomicU64>);

impl Committed {
    /// The last batch whose events every reader sees from now on.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, batch: u64) {
        self.0.store(batch, Ordering::Release);
    }
}
