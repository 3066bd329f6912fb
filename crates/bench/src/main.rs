//! `buzz-bench`: a load tool that works against any Nostr relay.
//!
//! | module | holds |
//! |---|---|
//! | `dataset` | the events of a load, derived from a seed |
//! | `net` | sockets, frames and the one loop |
//! | `answer` | relay messages, told apart by their first bytes |
//! | `modes` | what is sent, and what is counted of the answers |
//! | `order` | whether a query's answer is right |
//! | `latency`, `cost`, `process`, `admin` | what is measured |
//! | `problems`, `report` | what a run says |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
mod answer;
mod cli;
mod cost;
mod dataset;
mod latency;
mod modes;
mod net;
mod order;
mod parallel;
mod problems;
mod process;
mod report;
mod rng;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use cli::{Cli, Mode};

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(failure)) => {
            eprintln!("buzz-bench: {failure}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("buzz-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Gives back why the run does not count, where it does not.
fn run(cli: Cli) -> Result<Option<String>> {
    process::raise_file_limit();
    let outcome = match cli.mode {
        Mode::Ingest(args) => modes::ingest::run(&args)?,
        Mode::Query(args) => modes::query::run(&args)?,
        Mode::Fanout(args) => modes::fanout::run(&args)?,
        Mode::Idle(args) => modes::idle::run(&args)?,
        Mode::AuthStorm(args) => modes::auth_storm::run(&args)?,
        Mode::Switch(args) => modes::switch::run(&args)?,
        Mode::Generate(args) => {
            modes::generate::run(&args)?;
            return Ok(None);
        }
    };
    outcome.print();
    Ok(outcome.failure)
}
