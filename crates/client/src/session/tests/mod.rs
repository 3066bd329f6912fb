//! The session as a whole, in virtual time: by hand (`kit`), and in a simulated world (`world`)
//! with a simulated relay (`relay`).

#![allow(clippy::unwrap_used)]

mod kit;
mod logging_in;
mod observing;
mod paging;
mod passing;
mod publishing;
mod recovering;
mod relay;
mod simulation;
mod subscribing;
mod world;
mod writing;
