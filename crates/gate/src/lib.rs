//! A concurrency cap as a pure state machine: no clock, no I/O, no actor, no dependency.
//!
//! | part | is |
//! |---|---|
//! | [`GateState`] | limit, ceiling, in flight, waiters; grants while `in_flight < limit` |
//! | [`Grant`] | the right to one unit of work; spent by [`GateState::release`], made nowhere else |
//! | [`HandOff`] | where holders of a grant find the longest waiters without asking the gate first |
//! | [`reader_ceiling`] | the ceiling of a gate in front of a pool of readers |
//!
//! The owner (one actor a gate) orders the calls, tells the time and delivers what is granted.

mod handoff;
mod limit;
mod state;

pub use handoff::HandOff;
pub use limit::reader_ceiling;
pub use state::{GateState, Grant};
