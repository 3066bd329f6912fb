//! Arguments.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::{admin::Admin, net::Target, process::Relay};

/// A load tool for any Nostr relay. It prints one JSON line on stdout and a table on stderr.
#[derive(Parser)]
#[command(name = "buzz-bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) mode: Mode,
}

#[derive(Subcommand)]
pub(crate) enum Mode {
    /// Publish the data set over pipelined sockets. Measures OKs per second and their latency.
    Ingest(IngestArgs),
    /// Query the data set that `ingest`, `generate` or --load stored. Measures answers per second.
    Query(QueryArgs),
    /// One publisher, many subscribers. Measures deliveries per second, latency, order and losses.
    Fanout(FanoutArgs),
    /// Open many connections with one subscription each. Measures the relay's memory for each.
    Idle(IdleArgs),
    /// Many clients reconnect at once and log in. Measures the time until all are logged in.
    AuthStorm(AuthStormArgs),
    /// A client with many channels changes relay and sends a message at once. Measures the time to
    /// its OK, with this project's client library and with plain clients.
    Switch(SwitchArgs),
    /// Write the data set to stdout as JSON Lines, for `buzz-relay import -`.
    Generate(DataArgs),
}

#[derive(Args)]
pub(crate) struct RelayArgs {
    /// The relay's ws:// URL. TLS is not supported: it would be measured instead of the relay.
    #[arg(long, default_value = "ws://127.0.0.1:3000")]
    pub(crate) url: Target,
    /// The relay's process id, to report its CPU time and memory.
    #[arg(long)]
    relay_pid: Option<u32>,
    /// Seconds after which the run ends, even if it is not complete.
    #[arg(long, default_value_t = 600)]
    deadline: u64,
}

impl RelayArgs {
    /// The relay's process, if it was named.
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
    /// The time that is left, at most `longest`. Zero once the deadline has passed.
    pub(crate) fn left(self, longest: Duration) -> Duration {
        longest.min(self.0.saturating_duration_since(Instant::now()))
    }

    /// Whether no time is left.
    pub(crate) fn passed(self) -> bool {
        Instant::now() >= self.0
    }
}

#[derive(Args)]
pub(crate) struct DataArgs {
    /// How many events the data set has.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) events: u64,
    /// How many authors the events have.
    #[arg(long, default_value_t = 1000)]
    pub(crate) authors: u32,
    /// The seed of the data set. Another seed gives other events.
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
    /// How many events may be without an answer on each socket at once.
    #[arg(long, default_value_t = 64)]
    pub(crate) in_flight: usize,
    /// Path prefix of the relay's database (data/relay.db), to report its growth per event.
    #[arg(long)]
    pub(crate) disk: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Which kind of query to send.
    #[arg(long, value_enum, default_value_t = Shape::All)]
    pub(crate) shape: Shape,
    /// How many sockets send queries, each one query at a time.
    #[arg(long, default_value_t = 128)]
    pub(crate) sockets: usize,
    /// How many seconds each shape runs.
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
    /// Each of the other shapes in turn.
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
    /// How many events may be without an OK at once.
    #[arg(long, default_value_t = 64, conflicts_with = "rate")]
    pub(crate) in_flight: usize,
    /// Publish this many events a second, instead of as fast as the relay accepts them.
    #[arg(long)]
    pub(crate) rate: Option<f64>,
}

#[derive(Args)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    /// How many connections to open.
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
    /// How many clients log in, each with its own key.
    #[arg(long, default_value_t = 200)]
    pub(crate) clients: usize,
    /// The URL that logins name, if the relay's server.url is another [default: --url].
    #[arg(long)]
    pub(crate) auth_url: Option<String>,
    /// The relay's admin address (http://127.0.0.1:9090), to report what the logins cost the relay.
    #[arg(long)]
    pub(crate) admin: Option<Admin>,
    /// The seed of the run. Another seed gives other keys and other waits.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// What a client of `switch` has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pattern {
    /// One subscription for each channel.
    Channels,
    /// An app's sidebar: two subscriptions for each channel, and ten that belong to no channel.
    Sidebar,
}

#[derive(Args)]
pub(crate) struct SwitchArgs {
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    /// The ws:// URL of the relay to change to [default: --url].
    #[arg(long)]
    pub(crate) to: Option<Target>,
    /// How many channels the client has.
    #[arg(long, default_value_t = 40)]
    pub(crate) channels: usize,
    /// What the client has open.
    #[arg(long, value_enum, default_value_t = Pattern::Channels)]
    pub(crate) pattern: Pattern,
    /// How often each client changes relay.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Seconds to wait before each change, so that the relay's quota recovers from the last one.
    #[arg(long, default_value_t = 6.0)]
    pub(crate) pause: f64,
}
