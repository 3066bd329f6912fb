//! The naive model: all events in one list, and what a subscription must get of them.

use buzz_protocol::{
    Filter,
    kind::{Class, class},
};

use super::kit::samples;

/// What the writer committed, in order.
#[derive(Default)]
pub(super) struct Store {
    /// Batch, sample.
    log: Vec<(u64, usize)>,
    /// The number of the last batch.
    pub(super) batch: u64,
}

fn is_stored(sample: usize) -> bool {
    class(samples().events[sample].event.kind) != Class::Ephemeral
}

impl Store {
    pub(super) fn has(&self, sample: usize) -> bool {
        self.log.iter().any(|(_, known)| *known == sample)
    }

    /// Whether the writer must store it, or pass it on: duplicates of stored ones are not.
    pub(super) fn is_new(&self, sample: usize) -> bool {
        !is_stored(sample) || !self.has(sample)
    }

    pub(super) fn commit(&mut self, sample: usize) {
        self.log.push((self.batch, sample));
    }

    /// Stored events up to a batch that match, as NIP-01 orders them, each filter's newest.
    pub(super) fn history(&self, filters: &[Filter], committed: u64) -> Vec<usize> {
        let place = |sample: &usize| {
            let event = &samples().events[*sample].event;
            (std::cmp::Reverse(event.created_at), event.id)
        };
        let mut all: Vec<usize> = Vec::new();
        for filter in filters {
            let visible = self.log.iter().filter(|(batch, sample)| {
                *batch <= committed
                    && is_stored(*sample)
                    && filter.matches(&samples().events[*sample].event)
            });
            let mut newest: Vec<usize> = visible.map(|(_, sample)| *sample).collect();
            newest.sort_by_key(place);
            newest.truncate(filter.limit.unwrap_or(u64::MAX) as usize);
            all.extend(newest);
        }
        all.sort_by_key(place);
        all.dedup();
        all
    }

    /// What came after a batch and matches, in the order of the commits. An ephemeral event may
    /// come several times, but a subscription gets it once here: the clients send each once.
    pub(super) fn live(&self, filters: &[Filter], committed: u64) -> Vec<usize> {
        let later = self.log.iter().filter(|(batch, sample)| {
            let event = &samples().events[*sample].event;
            *batch > committed && filters.iter().any(|filter| filter.matches(event))
        });
        later.map(|(_, sample)| *sample).collect()
    }
}
