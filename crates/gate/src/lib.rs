//! A concurrency cap as a pure state machine: no clock, no I/O, no actor, no dependency.
//!
//! | part | is |
//! |---|---|
//! | [`Gate`] | limit, ceiling, in flight, waiters; grants while `in_flight < limit` |
//! | [`Permit`] | the right to one unit of work; spent by [`Gate::release`], made nowhere else |
//! | [`Acquired`] | what an attempt got: a permit at once, or a place in the queue |
//! | [`reader_ceiling`] | the ceiling of a gate in front of a pool of readers |
//!
//! The owner (one actor a gate) orders the calls, tells the time and delivers what is granted.

mod gate;
mod limit;
mod waiters;

pub use gate::{Acquired, Gate, Permit};
pub use limit::reader_ceiling;
