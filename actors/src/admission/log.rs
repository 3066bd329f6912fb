//! When something was admitted last, for one quota of one principal. Plain data: time is an
//! argument, in milliseconds of a clock that never goes back.
//!
//! At most `limit` admissions lie in any window, exactly: an entry counts until it is `window_ms`
//! old and no longer. A refusal says whole seconds, so it also closes the log until these are
//! over: what comes earlier is refused though the entry may have expired some milliseconds before.
//!
//! Times are kept in 32 bits, since there may be a million logs. They wrap after 49 days; the owner
//! forgets logs that were silent for a window, so none is ever that old.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use super::quota::Quota;

/// The last admissions, at most twice the limit of them.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Ascending. Few principals do more than a few things a window.
    times: SmallVec<[u32; 4]>,
    closed_until: u32,
    is_closed: bool,
}

/// How long ago, on a clock that wraps.
fn age(now: u64, time: u32) -> u32 {
    (now as u32).wrapping_sub(time)
}

impl Log {
    /// Milliseconds until one more is admitted; 0: it is admitted now.
    pub(super) fn wait_ms(&mut self, quota: Quota, now: u64) -> u32 {
        if quota.is_off() {
            return 0;
        }
        if self.is_closed {
            let left = self.closed_until.wrapping_sub(now as u32);
            if (left as i32) > 0 {
                return left;
            }
            self.is_closed = false;
        }
        let expired = |time: &u32| age(now, *time) >= quota.window_ms;
        let dead = self.times.partition_point(expired);
        // Half at a time, so that each entry is moved once on average.
        if dead * 2 >= self.times.len() {
            self.times.drain(..dead);
        }
        let limit = quota.limit as usize;
        // The one that must expire first: the `limit`th from the end.
        let Some(at) = self.times.len().checked_sub(limit) else {
            return 0;
        };
        let age = age(now, self.times[at]);
        quota.window_ms.saturating_sub(age)
    }

    /// Counts one that was admitted.
    pub(super) fn spend(&mut self, quota: Quota, now: u64) {
        if !quota.is_off() {
            self.times.push(now as u32);
        }
    }

    /// Refuses until `wait_ms` have passed, rounded up to whole seconds, and says how many.
    pub(super) fn refuse(&mut self, wait_ms: u32, now: u64) -> NonZeroU32 {
        let secs = NonZeroU32::new(wait_ms.div_ceil(1000)).unwrap_or(NonZeroU32::MIN);
        if !self.is_closed {
            self.is_closed = true;
            self.closed_until = (now as u32).wrapping_add(secs.get() * 1000);
        }
        secs
    }
}
