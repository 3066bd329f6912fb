//! What one address may do to the relay itself, whoever is behind it: open sockets, shake hands,
//! send invalid signatures. Plain data: time is an argument, in milliseconds.

use std::{
    collections::{HashMap, hash_map::Entry},
    num::NonZeroU32,
};

use super::{
    bounded::{Bounded, Fingerprint},
    log::Log,
    quota::Quota,
};

/// Addresses forgotten at most for each that does something.
const EXPIRED_AT_ONCE: usize = 4;
/// When a place may come free, where nobody knows.
const RETRY_SECS: NonZeroU32 = NonZeroU32::new(5).expect("not zero");

/// Bounds for one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardSettings {
    /// Open sockets; 0: no limit.
    pub connections: u32,
    /// Handshakes.
    pub handshakes: Quota,
    /// EVENTs and AUTHs whose id or signature is wrong.
    pub invalid_signatures: Quota,
}

impl GuardSettings {
    /// No bounds.
    pub const OFF: Self = Self {
        connections: 0,
        handshakes: Quota::OFF,
        invalid_signatures: Quota::OFF,
    };
}

#[derive(Default)]
struct Guard {
    handshakes: Log,
    invalid_signatures: Log,
}

/// See the module.
pub(super) struct Guards {
    settings: GuardSettings,
    recent: Bounded<Guard>,
    /// Open sockets of each address; bounded by the relay's own bound on sockets.
    open: HashMap<Fingerprint, u32>,
}

impl Guards {
    pub(super) fn new(settings: GuardSettings, capacity: usize) -> Self {
        let windows = [settings.handshakes, settings.invalid_signatures];
        let longest = windows.map(|quota| quota.window_ms).into_iter().max();
        let idle_ms = u64::from(longest.unwrap_or_default()) + 1000;
        Self {
            settings,
            recent: Bounded::new(capacity, idle_ms),
            open: HashMap::new(),
        }
    }

    /// Takes a place for one more socket; `Err` says when it may be tried again.
    pub(super) fn open_socket(&mut self, who: Fingerprint, now: u64) -> Result<(), NonZeroU32> {
        let quota = self.settings.handshakes;
        if !quota.is_off() {
            self.expire(now, EXPIRED_AT_ONCE);
            let log = &mut self.recent.seen(who, now).0.handshakes;
            let wait = log.wait_ms(quota, now);
            if wait > 0 {
                return Err(log.refuse(wait, now));
            }
            log.spend(quota, now);
        }
        let open = self.open.entry(who).or_default();
        if self.settings.connections > 0 && *open >= self.settings.connections {
            return Err(RETRY_SECS);
        }
        *open += 1;
        Ok(())
    }

    /// A socket that had a place has closed.
    pub(super) fn close_socket(&mut self, who: Fingerprint) {
        if let Entry::Occupied(mut open) = self.open.entry(who) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
    }

    /// So many signatures were wrong; `Some` where these are too many, until they are not.
    pub(super) fn invalid_signatures(
        &mut self,
        who: Fingerprint,
        count: usize,
        now: u64,
    ) -> Option<NonZeroU32> {
        self.expire(now, EXPIRED_AT_ONCE);
        let quota = self.settings.invalid_signatures;
        let log = &mut self.recent.seen(who, now).0.invalid_signatures;
        for _ in 0..count {
            let wait = log.wait_ms(quota, now);
            if wait > 0 {
                return Some(log.refuse(wait, now));
            }
            log.spend(quota, now);
        }
        None
    }

    /// Forgets up to `most` addresses that were silent.
    pub(super) fn expire(&mut self, now: u64, most: usize) {
        self.recent.expire(now, most);
    }
}
