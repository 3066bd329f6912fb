//! The relay's adapters: what the rooms of `buzz-actors` need from outside.

pub mod store;
