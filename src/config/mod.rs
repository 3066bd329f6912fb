//! Every setting once: its default, its unit, where it may come from. TOML file, then
//! `BUZZ_<SECTION>__<KEY>` and a few documented names from the environment; unknown keys are errors.

mod admission;
mod aliases;
mod check;
mod environment;
mod known;
mod load;
mod setting;

pub use self::{admission::Admission, load::Loaded};
pub use crate::values::mask_password;

use std::{net::SocketAddr, path::Path, time::Duration};

use buzz_actors::shared::Settings;
use buzz_protocol::Limits;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    flags::FeatureFlags,
    store::{Durability, Options},
    telemetry, values,
};

/// The file that is read if none is named and this one exists.
pub const DEFAULT_FILE: &str = "config/relay.toml";

/// All settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Sockets and their bounds.
    pub server: Server,
    /// What one client may ask; NIP-11 advertises the same values.
    pub limits: LimitSettings,
    /// Where events are kept.
    pub database: Database,
    /// Logins.
    pub auth: Auth,
    /// Where limits that can be tightened while the relay runs come from.
    pub feature_flags: FeatureFlags,
    /// Reads of stored events.
    pub history: History,
    /// What each key or address may spend.
    pub admission: Admission,
    /// Logs and traces.
    pub telemetry: telemetry::Settings,
}

/// `[server]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// WebSocket and NIP-11.
    pub listen: SocketAddr,
    /// `/metrics`, `/livez`, `/readyz`.
    pub admin_listen: SocketAddr,
    /// The URL that AUTH events must name.
    #[serde(with = "values::text")]
    pub url: String,
    /// Bytes of the largest message a client may send.
    pub max_frame_bytes: usize,
    /// Open sockets.
    pub max_connections: usize,
    /// Frames in work at once over all connections.
    pub handler_permits: usize,
    /// Live frames waiting for one slow client.
    pub send_queue: usize,
    /// A client that is silent for so long is pinged; after two pings without an answer its socket
    /// is cut. 0: no pings.
    #[serde(with = "values::duration")]
    pub ping: Duration,
    /// Shutdown: closes are spread over this time.
    #[serde(with = "values::duration")]
    pub drain: Duration,
    /// Addresses and ranges whose `X-Forwarded-For` counts, from the right.
    #[serde(with = "values::networks")]
    pub trusted_proxies: Vec<IpNet>,
}

/// `[limits]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// Open subscriptions of one socket.
    pub max_subscriptions: usize,
    /// Filters of one REQ or COUNT.
    pub max_filters: usize,
    /// Stored events sent for one filter.
    pub max_limit: u64,
    /// Characters of a subscription id.
    pub max_subid_length: usize,
    /// Tags of one event.
    pub max_event_tags: usize,
    /// How far ahead `created_at` may be.
    #[serde(with = "values::duration")]
    pub created_at_future: Duration,
    /// How far back it may be; empty: any time.
    #[serde(with = "values::optional_duration")]
    pub created_at_past: Option<Duration>,
}

/// `[database]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// `sqlite://path` or `postgres://…`.
    #[serde(with = "values::text")]
    pub url: String,
    /// PostgreSQL: where history is read; empty: from `url`.
    #[serde(with = "values::text")]
    pub replica_url: String,
    /// At start, a PostgreSQL server that is not there yet is waited for this long.
    #[serde(with = "values::duration")]
    pub start_wait: Duration,
    /// Reader connections.
    pub readers: usize,
    /// What an `OK true` promises.
    pub durability: Durability,
}

/// `[auth]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// Only logged-in clients publish and read.
    pub required: bool,
    /// Only members log in, and only they publish and read.
    pub members_only: bool,
    /// When the challenge for a login is sent.
    pub challenge: Challenge,
    /// The longest wait at the auth gate.
    #[serde(with = "values::duration")]
    pub wait: Duration,
    /// With `required`: sockets without a login are closed after it.
    #[serde(with = "values::duration")]
    pub timeout: Duration,
    /// With `members_only`: how often members that are logged in are looked up again.
    #[serde(with = "values::duration")]
    pub recheck: Duration,
}

/// When the challenge for a login is sent (NIP-42 allows both).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Challenge {
    /// As soon as a client connects.
    Connect,
    /// Just before the first answer that asks for a login.
    Need,
}

/// `[history]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct History {
    /// A page of history, or a count, that takes longer is given up.
    #[serde(with = "values::duration")]
    pub statement_timeout: Duration,
    /// The longest wait at the history-read gate.
    #[serde(with = "values::duration")]
    pub wait: Duration,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 3000)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9090)),
            url: "ws://localhost:3000".into(),
            max_frame_bytes: 256 * 1024,
            max_connections: 10_000,
            handler_permits: 1024,
            send_queue: 1024,
            ping: Duration::from_secs(30),
            drain: Duration::from_secs(5),
            trusted_proxies: Vec::new(),
        }
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            max_subscriptions: 1024,
            max_filters: 10,
            max_limit: 500,
            max_subid_length: 64,
            max_event_tags: 5000,
            created_at_future: Duration::from_secs(15 * 60),
            created_at_past: None,
        }
    }
}

impl Default for Database {
    fn default() -> Self {
        Self {
            url: "sqlite://data/relay.db".into(),
            replica_url: String::new(),
            start_wait: Duration::from_secs(5),
            readers: 10,
            durability: Durability::Full,
        }
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            required: false,
            members_only: false,
            wait: Duration::from_secs(2),
            timeout: Duration::from_secs(10),
            challenge: Challenge::Connect,
            recheck: Duration::from_secs(60),
        }
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            statement_timeout: Duration::from_secs(5),
            wait: Duration::from_secs(1),
        }
    }
}

/// What is wrong in the settings: one text for each, with its place, key and reason.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub Vec<String>);

impl Config {
    /// Reads `file`, or [`DEFAULT_FILE`] if it exists, then the environment.
    ///
    /// # Errors
    /// Names everything that is wrong: file and line or variable, key, and reason.
    pub fn load(file: Option<&Path>) -> Result<Loaded, ConfigError> {
        load::load(file)
    }

    /// How the store is opened.
    pub fn store(&self) -> Options {
        let database = &self.database;
        let replica_url = Some(database.replica_url.clone());
        Options {
            url: database.url.clone(),
            replica_url: replica_url.filter(|url| !url.is_empty()),
            durability: database.durability,
            statement_timeout: self.history.statement_timeout,
            start_wait: database.start_wait,
        }
    }

    /// As TOML, secrets masked.
    ///
    /// # Errors
    /// When a value can't be written as TOML; none of today's can't.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut shown = self.clone();
        let database = &mut shown.database;
        for url in [&mut database.url, &mut database.replica_url] {
            *url = mask_password(url);
        }
        shown.admission.backend = mask_password(&shown.admission.backend);
        shown.telemetry.otlp_endpoint = mask_password(&shown.telemetry.otlp_endpoint);
        shown.feature_flags.mask();
        toml::to_string(&shown)
    }

    /// What the connections are told.
    pub fn settings(&self) -> Settings {
        let limits = &self.limits;
        Settings {
            limits: Limits {
                max_subscriptions: limits.max_subscriptions,
                max_filters: limits.max_filters,
                max_limit: limits.max_limit,
                max_subid_length: limits.max_subid_length,
                max_event_tags: limits.max_event_tags,
                created_at_future_secs: limits.created_at_future.as_secs(),
                created_at_past_secs: limits.created_at_past.map(|past| past.as_secs()),
            },
            relay_url: self.server.url.clone(),
            max_frame_bytes: self.server.max_frame_bytes,
            send_queue: self.server.send_queue,
            auth_required: self.auth.required || self.auth.members_only,
            members_only: self.auth.members_only,
            auth_timeout: self.auth.timeout,
            auth_recheck: self.auth.recheck,
            challenge_on_connect: self.auth.challenge == Challenge::Connect,
            ping: self.server.ping,
        }
    }
}

#[cfg(test)]
mod tests;
