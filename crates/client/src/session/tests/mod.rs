//! The session as a whole, in virtual time: by hand (`kit`), and in a simulated world (`world`)
//! with a simulated relay (`relay`).

#![allow(clippy::unwrap_used)]

mod kit;
mod relay;
mod simulation;
mod world;
