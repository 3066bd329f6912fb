//! A Nostr client that recovers by itself: what a desktop app, a phone app, a bot or an agent
//! harness links to talk to a relay. The guide is `docs/client.md`.
//!
//! | module | holds |
//! |---|---|
//! | [`session`] | the core: what a client does, without I/O, clock, threads or chance |
//! | [`Client`] | the handle to a client that runs on tokio |
//! | [`Subscription`] | the stream of one subscription |
//! | [`Signer`] | who signs logins |

pub mod session;

mod client;
mod counts;
mod driver;
mod error;
mod information;
mod signer;
mod socket;
mod subscription;

pub use client::{Builder, Client};
pub use error::{Error, PublishError};
pub use rustls::pki_types::CertificateDer;
pub use session::{Config, Message, Published, Status};
pub use signer::Signer;
pub use subscription::Subscription;
