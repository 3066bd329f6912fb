//! Owns one cap: `limit`, `in_flight` and who waits. All else is derived: what is free is
//! `limit - in_flight`, and debt is the same number below zero, so nothing must be kept in step.
//! After every call nobody waits while there is room. The owner bounds how many wait: by the
//! deadlines it gives, and by how many callers it has.

use std::hash::Hash;
use std::num::NonZeroU64;

use crate::limit::limit_for;
use crate::waiters::Waiters;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// A concurrency cap. `T` names an attempt to pass; `D` is a moment, of any clock.
///
/// Every operation takes O(1) for each ticket it grants or sheds, however many wait.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Gate<T, D> {
    ceiling: Option<NonZeroU64>,
    limit: Option<NonZeroU64>,
    in_flight: u64,
    waiters: Waiters<T, D>,
}

/// The right to one unit of work, which counts as in flight until [`Gate::release`] takes it back.
///
/// Only a gate makes one and it can't be copied, so none is released twice. A permit that is
/// dropped instead keeps its unit for good: its owner wraps it in a guard whose drop sends it
/// back. It belongs to the gate that granted it.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq, Eq))]
#[must_use = "a permit that is not released stays in flight for good"]
pub struct Permit(());

/// What [`Gate::acquire`] gave.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq, Eq))]
#[must_use]
pub enum Acquired {
    /// There was room; the ticket is done with.
    Granted(Permit),
    /// The ticket waits, until a later call grants it, sheds it, or gives it up.
    Waiting,
}

impl<T: Copy + Eq + Hash, D: Copy + Ord> Gate<T, D> {
    /// An empty gate, limited by its ceiling; `None` is no ceiling and no limit.
    #[must_use]
    pub fn new(ceiling: Option<NonZeroU64>) -> Self {
        Self {
            ceiling,
            limit: ceiling,
            in_flight: 0,
            waiters: Waiters::new(),
        }
    }

    /// Asks for a permit; without room, `ticket` waits at the end of the queue.
    ///
    /// A ticket names one attempt: take a new one for the next, so that a late
    /// [`give_up`](Self::give_up) never meets another attempt. One that waits already goes to the
    /// end of the queue with the new deadline.
    ///
    /// `deadline` is when [`expire`](Self::expire) sheds it. Deadlines are expected in order of
    /// arrival (all who come to one gate wait equally long); see there for one that isn't.
    pub fn acquire(&mut self, ticket: T, deadline: D) -> Acquired {
        // Room means that nobody waits, so this passes nobody by.
        if self.has_room() {
            return Acquired::Granted(self.admit());
        }
        self.waiters.push(ticket, deadline);
        Acquired::Waiting
    }

    /// Takes `ticket` out of the queue; whether it still waited.
    ///
    /// `false`: it was granted or shed before this call. A grant that is still on its way to a
    /// receiver that is gone comes back by [`release`](Self::release), like every other.
    pub fn give_up(&mut self, ticket: T) -> bool {
        self.waiters.remove(ticket)
    }

    /// Ends one unit of work, and hands its room to the longest waiting ticket if the limit allows.
    #[must_use = "the granted permit stays in flight until it is released"]
    pub fn release(&mut self, permit: Permit) -> Option<(T, Permit)> {
        let Permit(()) = permit;
        // Saturating: a permit of another gate must not turn 0 into a gate that never opens again.
        self.in_flight = self.in_flight.saturating_sub(1);
        self.grant_next()
    }

    /// Replaces the limit by the one `flag` stands for, and grants what it has room for, in order.
    ///
    /// Positive: at most the ceiling. Zero, negative or `None`: the ceiling, or no limit where
    /// there is none. Work in flight above a lowered limit goes on; it is [`debt`](Self::debt).
    #[must_use = "the granted permits stay in flight until they are released"]
    pub fn set_limit(&mut self, flag: Option<i64>) -> Vec<(T, Permit)> {
        self.limit = limit_for(flag, self.ceiling);
        std::iter::from_fn(|| self.grant_next()).collect()
    }

    /// Sheds the tickets whose deadline is `now` or before, in order.
    ///
    /// Order of arrival holds here too: a ticket whose deadline comes before that of one ahead of
    /// it is shed when that one has gone. Late is possible that way, early never.
    #[must_use = "who is shed has to be told"]
    pub fn expire(&mut self, now: D) -> Vec<T> {
        let mut shed = Vec::new();
        while self.waiters.first_deadline().is_some_and(|at| at <= now) {
            shed.extend(self.waiters.pop());
        }
        shed
    }

    /// When [`expire`](Self::expire) has something to do next; `None` while nobody waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<D> {
        self.waiters.first_deadline()
    }

    /// The most that may be in flight, from 1 to the ceiling; `None`: no limit.
    #[must_use]
    pub fn limit(&self) -> Option<NonZeroU64> {
        self.limit
    }

    /// Permits granted and not yet released, in units of work.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Tickets in the queue.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// What is in flight above the limit, in units of work; nothing is granted until it is repaid.
    #[must_use]
    pub fn debt(&self) -> u64 {
        self.limit
            .map_or(0, |limit| self.in_flight.saturating_sub(limit.get()))
    }

    fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.in_flight < limit.get())
    }

    fn admit(&mut self) -> Permit {
        self.in_flight += 1;
        Permit(())
    }

    fn grant_next(&mut self) -> Option<(T, Permit)> {
        if !self.has_room() {
            return None;
        }
        let ticket = self.waiters.pop()?;
        Some((ticket, self.admit()))
    }
}
