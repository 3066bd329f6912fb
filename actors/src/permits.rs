//! Permits for frames in work and for open sockets. A permit is a value: it travels with the work
//! it is for, and its drop releases it, also where the connection is gone before the work is done.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A fixed number of permits. Cheap to clone; all clones share the number.
#[derive(Debug, Clone)]
pub struct Permits {
    semaphore: Arc<Semaphore>,
    total: u32,
}

impl Permits {
    /// At most `total` permits at once.
    pub fn new(total: usize) -> Self {
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        let permits = usize::try_from(total).unwrap_or(usize::MAX);
        let semaphore = Semaphore::new(permits.min(Semaphore::MAX_PERMITS));
        Self {
            semaphore: Arc::new(semaphore),
            total,
        }
    }

    /// One permit, if one is free.
    pub fn try_acquire(&self) -> Option<Permit> {
        let permit = Arc::clone(&self.semaphore).try_acquire_owned();
        permit.ok().map(Permit)
    }

    /// One permit, as soon as one is free. `None` only where the semaphore is closed, which it
    /// never is.
    pub async fn acquire(&self) -> Option<Permit> {
        let permit = Arc::clone(&self.semaphore).acquire_owned().await;
        permit.ok().map(Permit)
    }

    /// Waits until all permits are back. No other permit is granted meanwhile.
    pub async fn all_back(&self) {
        // Fails only where the semaphore is closed.
        drop(self.semaphore.acquire_many(self.total).await);
    }

    /// How many are free now.
    pub fn available(&self) -> usize {
        self.semaphore.available_permits()
    }
}

/// One permit or several.
#[derive(Debug)]
pub struct Permit(OwnedSemaphorePermit);

impl Permit {
    /// Gives back the permits of `frames`, where this holds more than those.
    pub fn give_back(&mut self, frames: usize) {
        drop(self.0.split(frames));
    }

    /// Takes over another's permits.
    pub fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }
}
