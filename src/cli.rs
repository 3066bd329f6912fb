//! Arguments and subcommands.

use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{app, config::Config};

/// A Nostr relay.
#[derive(Debug, Parser)]
#[command(name = "buzz-relay", version)]
struct Arguments {
    /// The configuration file; without it config/relay.toml if it exists, else the defaults.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the relay (the default).
    Serve,
    /// Print the effective configuration, secrets masked.
    CheckConfig,
    /// Apply the database migrations and exit.
    Migrate,
    /// Read events (JSON Lines), verify and store them.
    Import {
        /// A file, or - for standard input.
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Write stored events as JSON Lines, newest first.
    Export {
        /// A NIP-01 filter: only what it matches.
        #[arg(long, value_name = "JSON")]
        filter: Option<String>,
    },
}

/// The exit code for a wrong configuration.
const BAD_CONFIG: u8 = 2;

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let config = match Config::load(arguments.config.as_deref()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let done = match arguments.command.unwrap_or(Command::Serve) {
        Command::Serve => app::serve(config),
        Command::CheckConfig => check_config(&config),
        Command::Migrate => app::migrate(&config),
        Command::Import { file } => app::import(&config, &file),
        Command::Export { filter } => app::export(&config, filter.as_deref()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check_config(config: &Config) -> anyhow::Result<()> {
    Ok(std::io::stdout().write_all(config.to_toml()?.as_bytes())?)
}
