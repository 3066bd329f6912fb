//! Nostr as data: events, filters, the frames clients and relays exchange, and the
//! refusal grammar both sides share. No I/O, no clock, no actor: time comes in as an argument.
//!
//! | module | holds |
//! |---|---|
//! | [`event`] | an event: its id, signature, canonical JSON and what its tags mean |
//! | [`verified`] | an event whose id and signature were checked, with its canonical JSON |
//! | [`kind`] | which kinds are stored, replaced, addressed or passed on only |
//! | [`filter`] | a filter, and the one rule by which it matches |
//! | [`client_frame`] | what a client sends, parsed; a bad frame names what it is about |
//! | [`relay_frame`] | what a relay sends, written |
//! | [`refusal`] | the machine-readable reasons (`rate-limited: …; retry in Ns`), written and read |
//! | [`limits`] | the sizes that NIP-11 advertises and the relay enforces |
//! | [`auth`] | the checks of a NIP-42 login |
//! | [`http_auth`] | the checks of a NIP-98 authorization of one HTTP request |
//! | [`url`] | the parts of a URL that decide whether two name the same place |
//! | [`nip19`] | keys as people pass them around (`npub1…`) |
//! | [`hex`] | fixed-size lower-case hex values |

pub mod auth;
pub mod client_frame;
pub mod event;
pub mod filter;
pub mod hex;
pub mod http_auth;
pub mod kind;
pub mod limits;
pub mod nip19;
pub mod refusal;
pub mod relay_frame;
pub mod url;
pub mod verified;

pub use client_frame::ClientFrame;
pub use event::{Event, Tag, UnsignedEvent};
pub use filter::Filter;
pub use hex::{EventId, Pubkey, Sig};
pub use limits::Limits;
pub use refusal::Refusal;
pub use verified::{KeyCache, VerifiedEvent};
