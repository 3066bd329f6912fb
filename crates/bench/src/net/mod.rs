//! The client side of the wire, as cheap as it can be, because relay and load tool share cores:
//! one thread, one `epoll` loop, non-blocking sockets, frames counted rather than parsed.
//! `client` is for modes that measure clients rather than frames.

pub(crate) mod client;
mod connection;
mod frame;
mod handshake;
mod sockets;

pub(crate) use connection::Incoming;
pub(crate) use frame::push_text;
pub(crate) use handshake::Target;
pub(crate) use sockets::Sockets;
