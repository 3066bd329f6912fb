//! The actors of the relay. Each owns its state alone and has one mailbox; what crosses between
//! them is a message, and mailbox order replaces locks.
//!
//! | actor | bound | arrives | leaves | when full |
//! |---|---|---|---|---|
//! | [`connection`] | 64 frames in work a socket | the client's bytes, answers, `Live`, `Shutdown` | questions, the client's bytes | the socket is not read |
//! | [`admission`] | one batch a connection; 2²⁰ principals | `Admit`, `OpenSocket`, `CloseSocket`, `NoteInvalidSignatures` | answers | the budget that was silent longest is forgotten |
//! | [`verifier`] | permits | `VerifyEvents`, `VerifyLogin` | `StoreEvents`, answers | the frame is refused by name |
//! | [`writer`] | permits | `StoreEvents`, `Flush` | `Publish`, answers | the same |
//! | [`gate`] | permits, a wait each | `Acquire`, `SetLimit`, permits that come back | work with its permit | who waited too long is refused by name; a login's socket is cut |
//! | [`db_reader`] | the gate's permits, a page a read | `Start`, `Ping` | answers | it is never asked for more |
//! | [`fanout`] | subscriptions × connections | `Subscribe`, `Unsubscribe`, `Publish` | `Live` | the subscription ends by name |
//! | [`replay`] | a million ids | `FirstUse` | its answer | HTTP 503 |
//! | [`flag_refresher`] | one `SetLimit` a gate and refresh | `Refresh`, `Flush` | `SetLimit` | missed refreshes are skipped |
//! | [`registry`] | one entry a connection | `ConnectionOpened`, `ConnectionClosed`, `Drain` | `Shutdown` | HTTP 503 before it gets here |
//!
//! What a socket's messages mean is [`session`], a pure state machine; a REST call is [`call`].
//! Both ask the actors whose addresses [`services`] holds, and get their answers through
//! [`reply`]. What is permitted is in [`rules`].
//!
//! Shared state that is no message: [`committed`] (one number, which the writer sets), [`permits`]
//! (frames in work, open sockets), [`send_queue`] (what waits for each socket) and each gate's
//! hand-off. [`shared`] holds what is fixed at the start, and [`metrics`] counts. The contracts of
//! what is outside: [`ports`] (the store), [`flags`], [`admission::SharedBudget`].

pub mod access_log;
pub mod admission;
pub mod call;
pub mod committed;
pub mod connection;
pub mod db_reader;
pub mod fanout;
pub mod flag_refresher;
pub mod flags;
pub mod gate;
pub mod metrics;
pub mod permits;
mod pool;
pub mod ports;
pub mod registry;
pub mod replay;
pub mod reply;
pub mod rules;
pub mod send_queue;
pub mod services;
pub mod session;
pub mod shared;
pub mod verifier;
pub mod writer;
pub mod ws;
