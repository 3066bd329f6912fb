//! The relay as its users meet it: the real binary, spoken to over sockets.

mod abuse;
mod admission;
mod admission_guards;
mod admission_redis;
mod admission_settings;
mod auth;
mod bad_input;
mod caps;
mod cli;
mod commands;
mod configuration;
mod counting;
mod crashes;
mod database_identity;
mod deletion;
mod delivery;
mod documented;
mod escapes;
mod expiration;
mod flags;
mod flags_launchdarkly;
mod foreign;
mod generations;
mod half_open;
mod hostile;
mod keepalive;
mod limits;
mod live;
mod members;
mod open_files;
mod openapi;
mod operations;
mod our_client;
mod postgres;
mod postgres_faults;
mod protected;
mod queries;
mod refusals;
mod replacement;
mod rest;
mod rest_auth;
mod rest_bounds;
mod rest_quota;
mod seam;
mod shutdown;
mod storm;
mod texts;
mod traces;

use buzz_testkit::Program;

/// The program under test.
const RELAY: Program = Program::at(env!("CARGO_BIN_EXE_buzz-relay"));
