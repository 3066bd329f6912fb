//! The queue of a gate: first in, first out, and anyone may leave from the middle.
//! A linked list whose links are tickets, so that every operation is O(1), a waiter that left
//! leaves nothing behind, and memory is bounded by the most that ever waited at once.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Waiters<T, D> {
    places: HashMap<T, Place<T, D>>,
    first: Option<T>,
    last: Option<T>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Place<T, D> {
    deadline: D,
    ahead: Option<T>,
    behind: Option<T>,
}

impl<T: Copy + Eq + Hash, D: Copy> Waiters<T, D> {
    pub(crate) fn new() -> Self {
        Self {
            places: HashMap::new(),
            first: None,
            last: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Puts `ticket` last; one that waits already leaves its old place.
    pub(crate) fn push(&mut self, ticket: T, deadline: D) {
        self.remove(ticket);
        let place = Place {
            deadline,
            ahead: None,
            behind: None,
        };
        self.places.insert(ticket, place);
        self.join(self.last, Some(ticket));
        self.last = Some(ticket);
    }

    /// Takes `ticket` out, wherever it stands; whether it waited.
    pub(crate) fn remove(&mut self, ticket: T) -> bool {
        let Some(left) = self.places.remove(&ticket) else {
            return false;
        };
        self.join(left.ahead, left.behind);
        true
    }

    /// Takes out the one that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let ticket = self.first?;
        self.remove(ticket).then_some(ticket)
    }

    /// The deadline of the one that has waited longest.
    pub(crate) fn first_deadline(&self) -> Option<D> {
        let place = self.places.get(self.first.as_ref()?)?;
        Some(place.deadline)
    }

    /// Makes `ahead` and `behind` neighbours; `None` is the end of the queue on that side.
    fn join(&mut self, ahead: Option<T>, behind: Option<T>) {
        match ahead.and_then(|ticket| self.places.get_mut(&ticket)) {
            Some(place) => place.behind = behind,
            None => self.first = behind,
        }
        match behind.and_then(|ticket| self.places.get_mut(&ticket)) {
            Some(place) => place.ahead = ahead,
            None => self.last = ahead,
        }
    }

    /// Who waits until when, in order; `None` where the links contradict each other.
    #[cfg(test)]
    pub(crate) fn order(&self) -> Option<Vec<(T, D)>> {
        let (mut ahead, mut next, mut order) = (None, self.first, vec![]);
        while let Some(ticket) = next {
            let place = self.places.get(&ticket)?;
            if place.ahead != ahead {
                return None;
            }
            order.push((ticket, place.deadline));
            (ahead, next) = (next, place.behind);
        }
        (self.last == ahead && order.len() == self.len()).then_some(order)
    }
}
