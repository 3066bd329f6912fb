//! Arguments and subcommands.

use std::{io::Write, path::PathBuf, process::ExitCode};

use buzz_actors::ports::Role;
use buzz_protocol::nip19::{KeyError, parse_pubkey};
use clap::{Parser, Subcommand};

use crate::{
    app, commands,
    config::{Config, ConfigError, Loaded},
    error_chain::chain,
    members, signals,
};

/// A Nostr relay.
#[derive(Debug, Parser)]
#[command(name = "buzz-relay", version)]
struct Arguments {
    /// The configuration file [default: config/relay.toml if it exists, else built-in defaults].
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the relay (the default).
    Serve,
    /// Print the effective configuration, with secrets masked.
    CheckConfig,
    /// Apply the database migrations and exit.
    Migrate,
    /// Read events (JSON Lines), verify them and store them.
    Import {
        /// A file, or - for standard input.
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Add, remove and list the relay's members.
    Member {
        #[command(subcommand)]
        action: MemberAction,
    },
    /// Write stored events as JSON Lines, newest first.
    Export {
        /// A NIP-01 filter: write only the events that match it.
        #[arg(long, value_name = "JSON")]
        filter: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
enum MemberAction {
    /// Make a key a member, or give a member another role.
    Add {
        /// The public key: hex or npub.
        pubkey: String,
        /// The member's role. An agent has the agents' quotas.
        #[arg(long, default_value = "member", value_parser = members::role_parser())]
        role: Role,
    },
    /// End a membership.
    Remove {
        /// The public key: hex or npub.
        pubkey: String,
    },
    /// Print all members with their roles.
    List {
        /// Print only this member: hex or npub.
        pubkey: Option<String>,
        /// Print only the members with this role.
        #[arg(long, value_parser = members::role_parser())]
        role: Option<Role>,
    },
}

/// The exit code for a wrong configuration, and for a database server that can't be reached.
const BAD_CONFIG: u8 = 2;

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let config = match Config::load(arguments.config.as_deref()) {
        Ok(Loaded { config, warnings }) => {
            for warning in warnings {
                eprintln!("warning: {warning}");
            }
            config
        }
        Err(ConfigError(problems)) => {
            for problem in problems {
                eprintln!("error: {problem}");
            }
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let command = arguments.command.unwrap_or(Command::Serve);
    // Those that end in an orderly way say so themselves.
    if matches!(command, Command::Migrate | Command::Member { .. })
        && let Err(error) = signals::end_at_once()
    {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    let done = match command {
        Command::Serve => app::serve(config),
        Command::CheckConfig => check_config(&config),
        Command::Migrate => commands::migrate(&config),
        Command::Import { file } => commands::import(&config, &file),
        Command::Member { action } => member(&config, action),
        Command::Export { filter } => commands::export(&config, filter.as_deref()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", chain(&*error));
            if error.is::<commands::NoServer>() || error.is::<KeyError>() {
                ExitCode::from(BAD_CONFIG)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Keys are parsed here and not by the argument parser, because its errors would print a secret
/// key.
fn member(config: &Config, action: MemberAction) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    match action {
        MemberAction::Add { pubkey, role } => {
            let key = parse_pubkey(&pubkey)?;
            members::add(&*commands::open_store(config)?, &key, role, &mut output)
        }
        MemberAction::Remove { pubkey } => {
            let key = parse_pubkey(&pubkey)?;
            members::remove(&*commands::open_existing_store(config)?, &key, &mut output)
        }
        MemberAction::List { pubkey, role } => {
            let key = pubkey.as_deref().map(parse_pubkey).transpose()?;
            let store = commands::open_existing_store(config)?;
            members::list(&*store, key.as_ref(), role, &mut output)
        }
    }
}

fn check_config(config: &Config) -> anyhow::Result<()> {
    Ok(std::io::stdout().write_all(config.to_toml()?.as_bytes())?)
}
