//! The rooms of the relay, each an actor that owns its state alone.

pub mod ports;
