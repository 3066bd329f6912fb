//! What a client has counted since its start, shared between the driver and the handles.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::session::Session;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    observer_dropped: AtomicU64,
    frames_sent: AtomicU64,
    refusals: AtomicU64,
}

impl Counts {
    /// Takes over what the session has counted.
    pub(crate) fn note(&self, session: &Session) {
        let all = [
            (&self.observer_dropped, session.observer_dropped()),
            (&self.frames_sent, session.frames_sent()),
            (&self.refusals, session.refusals()),
        ];
        for (shown, counted) in all {
            shown.store(counted, Relaxed);
        }
    }

    pub(crate) fn observer_dropped(&self) -> u64 {
        self.observer_dropped.load(Relaxed)
    }

    pub(crate) fn frames_sent(&self) -> u64 {
        self.frames_sent.load(Relaxed)
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Relaxed)
    }
}
