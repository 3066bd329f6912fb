//! The ids a subscription has given to its consumer: bounded, the oldest are forgotten first.

use std::collections::{HashSet, VecDeque};

use buzz_protocol::EventId;

/// Remembers the last `capacity` ids.
#[derive(Debug)]
pub(crate) struct Seen {
    capacity: usize,
    ids: HashSet<EventId>,
    order: VecDeque<EventId>,
}

impl Seen {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            ids: HashSet::new(),
            order: VecDeque::new(),
        }
    }

    pub(crate) fn contains(&self, id: &EventId) -> bool {
        self.ids.contains(id)
    }

    pub(crate) fn insert(&mut self, id: EventId) {
        if !self.ids.insert(id) {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_forgets_the_oldest_first() {
        let id = |n: u16| {
            let mut bytes = [0; 32];
            bytes[..2].copy_from_slice(&n.to_be_bytes());
            EventId(bytes)
        };
        let mut seen = Seen::new(100);
        for n in 0..1000 {
            seen.insert(id(n));
            seen.insert(id(n));
        }
        assert_eq!(seen.ids.len(), 100);
        assert_eq!(seen.order.len(), 100);
        assert!(seen.contains(&id(900)) && !seen.contains(&id(899)));
    }
}
