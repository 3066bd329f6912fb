//! The relay's adapters: what the rooms of `buzz-actors` need from outside.

pub mod export;
pub mod import;
pub mod store;
