//! Arguments.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{admin::Admin, net::Target, process::Relay};

/// Load tool for any Nostr relay: prints one JSON line on stdout and a table on stderr.
#[derive(Parser)]
#[command(name = "buzz-bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) mode: Mode,
}

#[derive(Subcommand)]
pub(crate) enum Mode {
    /// Publish the data set over pipelined sockets; measure OKs per second and their latency.
    Ingest(IngestArgs),
    /// Ask for the data set that `ingest`, `generate` or --load stored; measure answers per second.
    Query(QueryArgs),
    /// One publisher, many subscribers; measure deliveries per second, latency, order and losses.
    Fanout(FanoutArgs),
    /// Open many connections with one subscription each; measure the relay's memory for each.
    Idle(IdleArgs),
    /// Many clients reconnect at once and log in; measure how long until all are in.
    AuthStorm(AuthStormArgs),
    /// A client with many channels changes relay and sends a message at once; measure the time to
    /// its OK, with this project's client library and with plain clients.
    Switch(SwitchArgs),
    /// Write the data set to stdout as JSON Lines, for `buzz-relay import -`.
    Generate(DataArgs),
}

#[derive(Args)]
pub(crate) struct RelayArgs {
    /// The relay's ws:// URL (no TLS: it would be measured instead of the relay).
    #[arg(long, default_value = "ws://127.0.0.1:3000")]
    pub(crate) url: Target,
    /// The relay's process id: reports its CPU time and memory.
    #[arg(long)]
    relay_pid: Option<u32>,
    /// Seconds after which the run ends, complete or not.
    #[arg(long, default_value_t = 600)]
    deadline: u64,
}

impl RelayArgs {
    /// The relay's process, where it was named.
    pub(crate) fn relay(&self) -> Option<Relay> {
        self.relay_pid.map(|pid| Relay { pid })
    }

    /// Starts the deadline's clock.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline(Instant::now() + Duration::from_secs(self.deadline))
    }
}

/// When a run must have ended.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// What is left, at most `longest`; zero once it passed.
    pub(crate) fn left(self, longest: Duration) -> Duration {
        longest.min(self.0.saturating_duration_since(Instant::now()))
    }

    /// No time is left.
    pub(crate) fn passed(self) -> bool {
        Instant::now() >= self.0
    }
}

#[derive(Args)]
pub(crate) struct DataArgs {
    /// How many events the data set has.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) events: u64,
    /// How many authors they have.
    #[arg(long, default_value_t = 1000)]
    pub(crate) authors: u32,
    /// Seed of the data set.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Args)]
pub(crate) struct IngestArgs {
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// How many sockets publish.
    #[arg(long, default_value_t = 16)]
    pub(crate) sockets: usize,
    /// Events without an answer on each socket at once.
    #[arg(long, default_value_t = 64)]
    pub(crate) in_flight: usize,
    /// Path prefix of the relay's database (data/relay.db): reports its growth per event.
    #[arg(long)]
    pub(crate) disk: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// What to ask for.
    #[arg(long, value_enum, default_value_t = Shape::All)]
    pub(crate) shape: Shape,
    /// How many sockets ask, one query at a time each.
    #[arg(long, default_value_t = 128)]
    pub(crate) sockets: usize,
    /// How long each shape runs.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Check each answer: order, ties, limit, match, completeness. Costs this tool CPU time.
    #[arg(long)]
    pub(crate) verify_order: bool,
    /// Publish the data set first.
    #[arg(long)]
    pub(crate) load: bool,
}

/// A kind of query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// Each of the others in turn.
    All,
    /// One author, limit 50.
    Author,
    /// One kind, limit 500.
    Kind,
    /// One `e` tag value, limit 100.
    E,
    /// Twenty ids.
    Ids,
    /// 500 authors, limit 50.
    Authors500,
}

#[derive(Args)]
pub(crate) struct FanoutArgs {
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    /// How many sockets subscribe.
    #[arg(long, default_value_t = 500)]
    pub(crate) subscribers: usize,
    /// How many events are published [default: 2000, with --rate ten seconds' worth].
    #[arg(long)]
    pub(crate) events: Option<u64>,
    /// Events without an OK at once.
    #[arg(long, default_value_t = 64, conflicts_with = "rate")]
    pub(crate) in_flight: usize,
    /// Publish so many events a second instead of as fast as the relay takes them.
    #[arg(long)]
    pub(crate) rate: Option<f64>,
}

#[derive(Args)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    /// How many connections.
    #[arg(long, default_value_t = 5000)]
    pub(crate) connections: usize,
    /// Seconds to wait before memory is read, and to keep the connections open.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) settle: f64,
}

#[derive(Args)]
pub(crate) struct AuthStormArgs {
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    /// How many clients, each with a key of its own.
    #[arg(long, default_value_t = 200)]
    pub(crate) clients: usize,
    /// The URL that logins name, if the relay's own URL is not the one of --url [default: --url].
    #[arg(long)]
    pub(crate) auth_url: Option<String>,
    /// The relay's admin address (http://127.0.0.1:9090): reports what the logins cost it.
    #[arg(long)]
    pub(crate) admin: Option<Admin>,
    /// Seed of the keys and of the random waits.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Args)]
pub(crate) struct SwitchArgs {
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    /// The ws:// URL of the relay that is changed to [default: --url].
    #[arg(long)]
    pub(crate) to: Option<Target>,
    /// How many channels the client has.
    #[arg(long, default_value_t = 40)]
    pub(crate) channels: usize,
    /// How often each client changes relay.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Seconds before each change, in which the relay's quota recovers from the one before.
    #[arg(long, default_value_t = 6.0)]
    pub(crate) pause: f64,
}
