//! What a gate needs of its hand-off. A holder of a grant whose work has ended takes the first
//! waiter out of it and goes on with that under the same grant, from any thread and at any moment.

use std::collections::VecDeque;

/// A queue between a gate and the holders of its grants, with two ends.
///
/// The gate alone puts waiters in, and takes them back at the end where it put them. Holders take
/// from the other end. So a holder that takes while the gate takes back still gets whoever has
/// waited longest, and what the gate has not got back was taken by holders, in order.
pub trait HandOff<T, D> {
    /// Puts `waiter` behind all others, with its deadline.
    fn put(&mut self, waiter: T, deadline: D);

    /// Takes back the waiter that was put last, unless a holder took it.
    fn take_back(&mut self) -> Option<(T, D)>;
}

/// A hand-off on one thread: a holder there takes with [`VecDeque::pop_front`].
impl<T, D> HandOff<T, D> for VecDeque<(T, D)> {
    fn put(&mut self, waiter: T, deadline: D) {
        self.push_back((waiter, deadline));
    }

    fn take_back(&mut self) -> Option<(T, D)> {
        self.pop_back()
    }
}
