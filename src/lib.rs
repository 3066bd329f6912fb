//! buzz-relay: a Nostr relay built as actors.
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | arguments and subcommands |
//! | [`commands`] | the subcommands that work on the database |
//! | [`config`] | every setting once |
//! | [`app`] | starts the actors, downstream first; stops them in the other order |
//! | [`flags`] | where feature flags come from |
//! | [`http`] | the HTTP side: upgrade, NIP-11, admin endpoints |
//! | [`store`] | events in SQLite or PostgreSQL |
//! | [`import`], [`export`] | JSON Lines in and out |
//! | `members` | who belongs to the relay |
//! | `shared_budget` | quotas over several relays, in Redis |
//! | `signals` | how a signal ends a subcommand |
//! | [`telemetry`] | logs, traces, metrics exporter |
//! | `error_chain` | an error with its causes, on one line |
//! | `text` | the texts that the programs read: each once |
//! | `values` | how settings are written and shown |
//!
//! The actors themselves are the crate `buzz-actors`.

pub mod app;
pub mod cli;
pub mod commands;
pub mod config;
mod error_chain;
pub mod export;
pub mod flags;
pub mod http;
pub mod import;
mod members;
mod shared_budget;
mod signals;
pub mod store;
pub mod telemetry;
mod text;
mod values;
