//! Owns one cap: `limit`, `in_flight` and who waits. What is free is `limit - in_flight`, and debt
//! is the same number below zero. After every call nobody waits while there is room. The owner
//! bounds how many wait: by the deadlines it gives, and by how many callers it has.
//!
//! The longest waiters lie in the hand-off, except in debt. A grant that is handed over there is
//! the same grant: what is in flight stays the same number, and no call is needed before it.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use crate::handoff::HandOff;
use crate::limit::limit_for;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// A concurrency cap. `T` waits; `D` is a moment, of any clock; `H` is the hand-off.
///
/// Every operation takes O(1) for each waiter it grants or sheds, however many wait.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub struct GateState<T, D, H> {
    ceiling: Option<NonZeroU64>,
    limit: Option<NonZeroU64>,
    in_flight: u64,
    /// Behind those in the hand-off, in order of arrival.
    queue: VecDeque<(T, D)>,
    /// Holders take from it between the calls, and during them.
    handoff: H,
    handoff_capacity: usize,
    /// The deadlines of those put in the hand-off, in order: first of those that were taken and
    /// not yet reported by [`GateState::taken`], then of those that still lie there.
    offered: VecDeque<D>,
}

/// The right to one unit of work, which counts as in flight until [`GateState::release`] takes it
/// back.
///
/// Only a gate makes one and it can't be copied, so none is released twice. A grant that is
/// dropped instead keeps its unit for good: its owner wraps it in a guard whose drop sends it
/// back. It belongs to the gate that made it.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq, Eq))]
#[must_use = "a grant that is not released stays in flight for good"]
pub struct Grant(());

impl<T, D: Copy + Ord, H: HandOff<T, D>> GateState<T, D, H> {
    /// An empty gate, limited by its ceiling; `None` is no ceiling and no limit. `handoff` is
    /// empty; it gets at most `handoff_capacity` waiters.
    #[must_use]
    pub fn new(ceiling: Option<NonZeroU64>, handoff: H, handoff_capacity: usize) -> Self {
        Self {
            ceiling,
            limit: ceiling,
            in_flight: 0,
            queue: VecDeque::new(),
            handoff,
            handoff_capacity,
            offered: VecDeque::new(),
        }
    }

    /// Asks for a grant. `None`: there is no room, and `waiter` waits behind all others.
    ///
    /// `deadline` is when [`expire`](Self::expire) sheds it. Deadlines are expected in order of
    /// arrival (all who come to one gate wait equally long); see there for one that isn't.
    #[must_use = "the grant stays in flight until it is released"]
    pub fn acquire(&mut self, waiter: T, deadline: D) -> Option<(T, Grant)> {
        self.queue.push_back((waiter, deadline));
        // Room means that nobody else waits, so this passes nobody by.
        let granted = self.grant_next();
        self.offer();
        granted
    }

    /// Ends one unit of work, and gives its room to the longest waiter if the limit allows.
    #[must_use = "the grant stays in flight until it is released"]
    pub fn release(&mut self, grant: Grant) -> Option<(T, Grant)> {
        let Grant(()) = grant;
        // Saturating: a grant of another gate must not turn 0 into a gate that never opens again.
        self.in_flight = self.in_flight.saturating_sub(1);
        self.recall();
        let granted = self.grant_next();
        self.offer();
        granted
    }

    /// A holder took the first waiter out of the hand-off: it does not wait any more, whatever
    /// becomes of it. Every such waiter is reported once, at any time and in any order.
    pub fn taken(&mut self) {
        // Holders take in order, so after `n` reports the first `n` are gone, whoever reported.
        self.offered.pop_front();
        self.offer();
    }

    /// Replaces the limit by the one `flag` stands for, and grants what it has room for, in order.
    ///
    /// Positive: at most the ceiling. Zero, negative or `None`: the ceiling, or no limit where
    /// there is none. Work in flight above a lowered limit goes on; it is [`debt`](Self::debt).
    #[must_use = "the grants stay in flight until they are released"]
    pub fn set_limit(&mut self, flag: Option<i64>) -> Vec<(T, Grant)> {
        // First, so that nobody is handed a grant under the old limit after this call.
        self.recall();
        self.limit = limit_for(flag, self.ceiling);
        let granted = std::iter::from_fn(|| self.grant_next()).collect();
        self.offer();
        granted
    }

    /// Sheds the waiters whose deadline is `now` or before, in order.
    ///
    /// Order of arrival holds here too: a waiter whose deadline comes before that of one ahead of
    /// it is shed when that one has gone. Late is possible that way, early never.
    #[must_use = "who is shed has to be told"]
    pub fn expire(&mut self, now: D) -> Vec<T> {
        let mut shed = Vec::new();
        if self.next_deadline().is_none_or(|at| at > now) {
            return shed;
        }
        self.recall();
        while let Some((waiter, _)) = self.queue.pop_front_if(|(_, at)| *at <= now) {
            shed.push(waiter);
        }
        self.offer();
        shed
    }

    /// When [`expire`](Self::expire) has something to do next; `None` while nobody waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<D> {
        let queued = self.queue.front().map(|&(_, at)| at);
        self.offered.front().copied().or(queued)
    }

    /// The most that may be in flight, from 1 to the ceiling; `None`: no limit.
    #[must_use]
    pub fn limit(&self) -> Option<NonZeroU64> {
        self.limit
    }

    /// Grants made and not yet released, in units of work.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// How many wait, with those that were taken and not yet reported.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.offered.len() + self.queue.len()
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

    /// Grants to the first in the queue, which must be the longest waiter: the hand-off is empty.
    fn grant_next(&mut self) -> Option<(T, Grant)> {
        if !self.has_room() {
            return None;
        }
        let (waiter, _) = self.queue.pop_front()?;
        self.in_flight += 1;
        Some((waiter, Grant(())))
    }

    /// Takes back what lies in the hand-off, to the front of the queue.
    fn recall(&mut self) {
        while let Some(waiter) = self.handoff.take_back() {
            self.offered.pop_back();
            self.queue.push_front(waiter);
        }
    }

    /// Fills the hand-off, unless in debt. Nobody waits while there is room, so a grant that is
    /// handed over takes nobody's.
    fn offer(&mut self) {
        while self.debt() == 0
            && self.offered.len() < self.handoff_capacity
            && let Some((waiter, deadline)) = self.queue.pop_front()
        {
            self.offered.push_back(deadline);
            self.handoff.put(waiter, deadline);
        }
    }
}
