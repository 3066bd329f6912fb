//! Which subscriber has which event: what is lost, doubled or out of order.

/// Counts over all subscribers.
pub(super) struct Deliveries {
    subscribers: Vec<Subscriber>,
    unique: u64,
    /// The same event twice on one socket.
    pub(super) duplicates: u64,
    /// Events that came after a later one.
    pub(super) out_of_order: u64,
}

#[derive(Clone)]
struct Subscriber {
    /// One past the latest event it has.
    next: usize,
    /// A bit for each event.
    seen: Vec<u64>,
}

impl Deliveries {
    pub(super) fn new(subscribers: usize, events: usize) -> Self {
        let subscriber = Subscriber {
            next: 0,
            seen: vec![0; events.div_ceil(64)],
        };
        Self {
            subscribers: vec![subscriber; subscribers],
            unique: 0,
            duplicates: 0,
            out_of_order: 0,
        }
    }

    /// Adds one; false where the subscriber had it.
    pub(super) fn add(&mut self, at: usize, event: usize) -> bool {
        let subscriber = &mut self.subscribers[at];
        let (word, bit) = (&mut subscriber.seen[event / 64], 1 << (event % 64));
        if *word & bit != 0 {
            self.duplicates += 1;
            return false;
        }
        *word |= bit;
        if event < subscriber.next {
            self.out_of_order += 1;
        }
        subscriber.next = subscriber.next.max(event + 1);
        self.unique += 1;
        true
    }

    /// Deliveries, each event and subscriber once.
    pub(super) fn unique(&self) -> u64 {
        self.unique
    }

    pub(super) fn subscribers(&self) -> usize {
        self.subscribers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_no_disorder_but_late_comers_and_doubles_are_found() {
        let mut deliveries = Deliveries::new(2, 100);
        for event in [0, 1, 70, 71] {
            assert!(deliveries.add(0, event));
        }
        assert_eq!(deliveries.out_of_order, 0);
        assert!(deliveries.add(0, 69));
        assert!(!deliveries.add(0, 1));
        assert!(deliveries.add(1, 1), "subscribers are apart");
        assert_eq!(
            (
                deliveries.unique(),
                deliveries.out_of_order,
                deliveries.duplicates
            ),
            (6, 1, 1)
        );
    }
}
