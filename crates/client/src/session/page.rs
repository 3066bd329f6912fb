//! One answer to a catch-up request: a relay sends at most so many stored events a filter, newest
//! first (NIP-01), so what it left out lies at the old end, and the next page is asked from there.

use buzz_protocol::{Event, Filter};

/// Fewer events than this are never taken for a page that was cut short without notice.
const SMALLEST_CUT: usize = 20;

/// The part of the past that one request asks for, and what came of it.
#[derive(Debug)]
pub(crate) struct Page {
    /// An event of this second is expected to be there: it was seen, or dropped, before.
    base: u64,
    since: u64,
    until: Option<u64>,
    size: usize,
    /// For each filter of the subscription, the times of what matched it.
    times: Vec<Vec<u64>>,
}

impl Page {
    pub(crate) fn new(
        base: u64,
        until: Option<u64>,
        filters: usize,
        size: usize,
        overlap_secs: u64,
    ) -> Self {
        Self {
            base,
            since: base.saturating_sub(overlap_secs),
            until,
            size,
            times: vec![Vec::new(); filters],
        }
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The subscription's filters, narrowed to this page.
    pub(crate) fn filters(&self, filters: &[Filter]) -> Vec<Filter> {
        let narrowed = filters.iter().map(|filter| Filter {
            since: Some(filter.since.map_or(self.since, |own| own.max(self.since))),
            until: [filter.until, self.until].into_iter().flatten().min(),
            limit: Some(self.size as u64),
            ..filter.clone()
        });
        narrowed.collect()
    }

    /// Notes an event of the answer, known before or not.
    pub(crate) fn record(&mut self, filters: &[Filter], event: &Event) {
        let inside = event.created_at >= self.since
            && self.until.is_none_or(|until| event.created_at <= until);
        if !inside {
            return;
        }
        for (filter, times) in filters.iter().zip(&mut self.times) {
            // A relay that sends far more than a page has cut nothing short that counts here.
            if times.len() < 4 * self.size && filter.matches(event) {
                times.push(event.created_at);
            }
        }
    }

    /// After EOSE: the newest second that may hold more, where the answer was cut short.
    /// `largest` is the largest page that the relay gives.
    pub(crate) fn remainder(self, largest: usize) -> Option<u64> {
        let (base, since, until, size) = (self.base, self.since, self.until, self.size);
        let rest = |mut times: Vec<u64>| {
            times.sort_unstable_by(|a, b| b.cmp(a));
            let full = times.len() >= size;
            // Another filter's events may lie past this one's cut: count from the new end.
            let boundary = *times.get(size - 1).or(times.last())?;
            if !full && (times.len() < SMALLEST_CUT || boundary <= base || Some(boundary) == until)
            {
                return None;
            }
            // The boundary second may hold more, so it is asked again, with a larger page if this
            // one was not the largest. A second that fills the largest page has to be stepped
            // over, or there would be no end.
            let next = match until {
                Some(until) if boundary >= until && size < largest => until,
                Some(until) if boundary >= until => until.checked_sub(1)?,
                _ => boundary,
            };
            (next >= since).then_some(next)
        };
        self.times.into_iter().filter_map(rest).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(until: Option<u64>, times: &[u64]) -> Page {
        let mut page = Page::new(1000, until, 1, 50, 5);
        page.times = vec![times.to_vec()];
        page
    }

    #[test]
    fn a_full_page_goes_on_from_its_oldest_second() {
        let times: Vec<u64> = (2000..2050).rev().collect();
        assert_eq!(page_of(None, &times).remainder(50), Some(2000));
        assert_eq!(page_of(Some(2049), &times).remainder(50), Some(2000));
    }

    #[test]
    fn a_page_that_reaches_known_ground_is_the_last() {
        let times: Vec<u64> = (1000..1030).rev().collect();
        assert_eq!(page_of(None, &times).remainder(50), None);
        assert_eq!(page_of(None, &[2000, 1999]).remainder(50), None);
        assert_eq!(page_of(None, &[]).remainder(50), None);
    }

    #[test]
    fn a_relay_that_cuts_shorter_than_it_says_is_noticed() {
        let times: Vec<u64> = (2000..2030).rev().collect();
        assert_eq!(page_of(None, &times).remainder(50), Some(2000));
    }

    #[test]
    fn a_second_that_fills_a_page_is_stepped_over() {
        assert_eq!(page_of(None, &[1500; 50]).remainder(50), Some(1500));
        assert_eq!(page_of(Some(1500), &[1500; 50]).remainder(50), Some(1499));
        assert_eq!(page_of(Some(995), &[995; 50]).remainder(50), None);
    }

    #[test]
    fn another_filters_older_events_do_not_hide_a_cut() {
        let mut times: Vec<u64> = (2000..2050).rev().collect();
        times.extend([999, 998]);
        assert_eq!(page_of(None, &times).remainder(50), Some(2000));
    }
}
