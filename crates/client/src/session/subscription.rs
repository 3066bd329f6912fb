//! One subscription: what it wants, what its consumer holds, where it stands in the relay's past,
//! and what it lost.

use std::time::Duration;

use buzz_protocol::{Event, Filter};

use super::{Config, seen::Seen};

/// The part of the past that holds lost events, in seconds of `created_at`, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) oldest: u64,
    pub(crate) newest: u64,
}

/// What became of an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Deliver,
    Dropped,
}

#[derive(Debug)]
pub(crate) struct Sub {
    pub(crate) filters: Vec<Filter>,
    /// Events its consumer has not taken yet.
    queued: usize,
    seen: Seen,
    /// The newest second seen, never ahead of the wall clock: one event dated tomorrow must not
    /// hide today's.
    cursor: Option<u64>,
    /// The relay has sent all it had at the start.
    caught_up: bool,
    /// A catch-up from there was asked and has not ended: until it has, the cursor runs ahead.
    catching_up: Option<u64>,
    /// What was dropped and not yet asked for again.
    gap: Option<Gap>,
    /// A second that holds more than a page that fits.
    dense_second: Option<u64>,
    /// When a recovery was last begun.
    pub(crate) last_attempt: Option<Duration>,
}

impl Sub {
    pub(crate) fn new(filters: Vec<Filter>, config: &Config) -> Self {
        Self {
            filters,
            queued: 0,
            seen: Seen::new(config.seen),
            cursor: None,
            caught_up: false,
            catching_up: None,
            gap: None,
            dense_second: None,
            last_attempt: None,
        }
    }

    pub(crate) fn matches(&self, event: &Event) -> bool {
        self.filters.iter().any(|filter| filter.matches(event))
    }

    pub(crate) fn has_seen(&self, event: &Event) -> bool {
        self.seen.contains(&event.id)
    }

    /// Takes a verified, matching event that was not seen before.
    pub(crate) fn receive(&mut self, event: &Event, unix: u64, config: &Config) -> Received {
        let at = event.created_at.min(unix);
        self.cursor = Some(self.cursor.map_or(at, |cursor| cursor.max(at)));
        if self.queued >= config.queue {
            self.lose(Gap {
                oldest: event.created_at,
                newest: event.created_at,
            });
            return Received::Dropped;
        }
        self.queued += 1;
        self.seen.insert(event.id);
        Received::Deliver
    }

    /// The consumer has taken `n` events.
    pub(crate) fn took(&mut self, n: usize) {
        self.queued = self.queued.saturating_sub(n);
    }

    /// At least half of the queue is free.
    pub(crate) fn has_room(&self, config: &Config) -> bool {
        self.queued * 2 <= config.queue
    }

    /// Most of the queue is free: the consumer keeps up with what it gets.
    pub(crate) fn keeps_up(&self, config: &Config) -> bool {
        self.queued * 4 <= config.queue
    }

    /// How many events of each filter a recovery asks for: what fits in the free half of the
    /// queue. A second that holds more can't be divided, and is asked with the relay's largest page.
    pub(crate) fn page_size(&self, gap: Gap, config: &Config) -> usize {
        if self.dense_second == Some(gap.newest) {
            return config.page;
        }
        let fits = config.queue / 2 / self.filters.len().max(1);
        config.page.min(fits.max(1))
    }

    /// A page of `gap` was cut short and the next one is to begin at `newest`.
    pub(crate) fn page_cut(&mut self, gap: Gap, newest: u64) {
        if newest == gap.newest {
            self.dense_second = Some(newest);
        }
        self.lose(Gap { newest, ..gap });
    }

    /// Folds a loss into the one pending recovery.
    pub(crate) fn lose(&mut self, lost: Gap) {
        let gap = self.gap.get_or_insert(lost);
        gap.oldest = gap.oldest.min(lost.oldest);
        gap.newest = gap.newest.max(lost.newest);
    }

    pub(crate) fn gap(&self) -> Option<Gap> {
        self.gap
    }

    pub(crate) fn take_gap(&mut self) -> Option<Gap> {
        self.gap.take()
    }

    /// The second from which a new REQ has to start; `None`: from the start, as first asked.
    pub(crate) fn resume_from(&self) -> Option<u64> {
        if !self.caught_up {
            return None;
        }
        let oldest_dropped = self.gap.map(|gap| gap.oldest);
        let known = [self.cursor, self.catching_up, oldest_dropped];
        // Caught up with nothing seen: all that is there by now is new.
        Some(known.into_iter().flatten().min().unwrap_or(0))
    }

    /// A REQ from `base` on was sent: it covers the gap, and until its EOSE nothing later does.
    pub(crate) fn resumed(&mut self, base: u64) {
        self.catching_up = Some(base);
        self.gap = None;
    }

    /// EOSE came; true the first time. `rest` is the newest second that may hold more where the
    /// answer was cut short.
    pub(crate) fn caught_up(&mut self, base: Option<u64>, rest: Option<u64>, unix: u64) -> bool {
        self.catching_up = None;
        if let (Some(oldest), Some(newest)) = (base, rest) {
            self.lose(Gap { oldest, newest });
        }
        // Who asked for nothing stored (`limit: 0`) wants what comes from now on.
        if self.cursor.is_none() && self.filters.iter().any(|f| f.limit == Some(0)) {
            self.cursor = Some(unix);
        }
        !std::mem::replace(&mut self.caught_up, true)
    }

    /// Another relay: it has another past. What the consumer has seen stays known.
    pub(crate) fn forget_relay(&mut self) {
        self.cursor = None;
        self.caught_up = false;
        self.catching_up = None;
        self.gap = None;
    }
}
