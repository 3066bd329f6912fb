//! The way in: the public port (WebSocket, NIP-11, REST) and the admin port (metrics and health).

pub mod admin;
pub mod nip11;
pub mod public;
pub mod rest;
