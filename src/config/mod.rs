//! Every setting once: its default, its unit, where it may come from. TOML file, then
//! `BUZZ_<SECTION>__<KEY>` and a few documented names from the environment; unknown keys are errors.

mod admission;
mod aliases;
mod environment;

pub use self::admission::Admission;
pub use crate::values::mask_password;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use buzz_actors::shared::Settings;
use buzz_protocol::{Limits, url::Url};
use figment::{
    Figment, Metadata,
    providers::{Env, Format, Serialized, Toml},
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    flags::FeatureFlags,
    store::{Durability, Options, is_postgres},
    telemetry, text, values,
};

/// The file that is read where none is named and it exists.
pub const DEFAULT_FILE: &str = "config/relay.toml";

/// More would each cost a thread and a database connection that no machine has a core for.
const MAX_READERS: usize = 1000;

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
    /// Shutdown: closes are spread over this time.
    #[serde(with = "values::duration")]
    pub drain: Duration,
    /// Address ranges whose `X-Forwarded-For` counts, from the right.
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

/// A setting that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The named file is not there or can't be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A value is wrong: says where it comes from, which key, and why.
    #[error("{0}")]
    Value(String),
}

impl Config {
    /// Reads `file`, or [`DEFAULT_FILE`] if it exists, then the environment.
    ///
    /// # Errors
    /// Names file or variable, key and reason of the first thing that is wrong.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let path = file.map_or_else(|| PathBuf::from(DEFAULT_FILE), Path::to_owned);
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        match text::read(&path) {
            Ok(text) => {
                // Checked alone first: its own errors carry line and column.
                toml::from_str::<toml::Table>(&text).map_err(|error| {
                    ConfigError::Value(format!("{}: {}", path.display(), error.to_string().trim()))
                })?;
                figment = figment.merge(Toml::string(&text));
            }
            Err(error) if file.is_none() && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(ConfigError::File { path, error }),
        }
        let sections = Env::prefixed("BUZZ_").filter(|key| key.as_str().contains("__"));
        environment::check_names()?;
        for alias in environment::aliases()? {
            figment = figment.merge(alias);
        }
        figment = figment.merge(sections.split("__"));
        let config: Self = figment.extract().map_err(|error| describe(&error, &path))?;
        match config.check() {
            Ok(()) => Ok(config),
            Err((key, why)) => {
                let keys: Vec<_> = key.split('.').map(str::to_owned).collect();
                let place = place(figment.find_metadata(key), &keys, &path);
                Err(ConfigError::Value(format!("{place}: {key}: {why}")))
            }
        }
    }

    /// The bounds that types don't hold: the key that crosses one, and why it does.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let positive = [
            ("server.max_frame_bytes", self.server.max_frame_bytes),
            ("server.max_connections", self.server.max_connections),
            ("server.handler_permits", self.server.handler_permits),
            ("server.send_queue", self.server.send_queue),
            ("limits.max_subscriptions", self.limits.max_subscriptions),
            ("limits.max_filters", self.limits.max_filters),
            ("limits.max_subid_length", self.limits.max_subid_length),
            ("database.readers", self.database.readers),
            (
                "limits.max_limit",
                self.limits.max_limit.try_into().unwrap_or(usize::MAX),
            ),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err((key, "must be at least 1".into()));
        }
        if self.auth.recheck < Duration::from_millis(100) {
            return Err(("auth.recheck", "must be at least 100ms".into()));
        }
        let url = &self.server.url;
        if !url.starts_with("ws://") && !url.starts_with("wss://") {
            return Err((
                "server.url",
                format!("`{url}` does not start with ws:// or wss://"),
            ));
        }
        if !Url::parse(url).is_some_and(|url| url.user.is_none() && !url.rest.contains(['?', '#']))
        {
            return Err((
                "server.url",
                format!("`{url}` is no address such as wss://relay.example or ws://host:3000/path"),
            ));
        }
        let database = mask_password(&self.database.url);
        if database == "sqlite://" || database == "sqlite:///" {
            return Err(("database.url", format!("`{database}` names no file")));
        }
        if !database.starts_with("sqlite://") && !is_postgres(&database) {
            return Err((
                "database.url",
                format!("`{database}` does not start with sqlite:// or postgres://"),
            ));
        }
        self.check_replica()?;
        if self.history.statement_timeout.as_millis() == 0 {
            let why = "must be at least 1ms".into();
            return Err(("history.statement_timeout", why));
        }
        if self.database.readers > MAX_READERS {
            return Err(("database.readers", format!("must be at most {MAX_READERS}")));
        }
        self.admission.check()?;
        self.feature_flags.check()?;
        self.telemetry.check()?;
        Ok(())
    }

    fn check_replica(&self) -> Result<(), (&'static str, String)> {
        let Database {
            url, replica_url, ..
        } = &self.database;
        if replica_url.is_empty() || (is_postgres(replica_url) && is_postgres(url)) {
            return Ok(());
        }
        let shown = mask_password(replica_url);
        let why = if is_postgres(url) {
            format!("`{shown}` does not start with postgres://")
        } else {
            "only a PostgreSQL database has replicas".to_owned()
        };
        Err(("database.replica_url", why))
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
        }
    }
}

/// Where wrong values come from, their keys, and why they are wrong.
fn describe(error: &figment::Error, file: &Path) -> ConfigError {
    let lines = error.clone().into_iter().map(|error| {
        let place = place(error.metadata.as_ref(), &error.path, file);
        match error.path.join(".").as_str() {
            "" => format!("{place}: {}", error.kind),
            key => format!("{place}: {key}: {}", error.kind),
        }
    });
    ConfigError::Value(lines.collect::<Vec<_>>().join("\n"))
}

/// The file or the environment variable that a value comes from.
fn place(from: Option<&Metadata>, path: &[String], file: &Path) -> String {
    if from.is_some_and(|from| from.name.contains("TOML")) {
        return file.display().to_string();
    }
    if let Some(from) = from.filter(|from| from.name.starts_with(environment::VARIABLE)) {
        return from.name.to_string();
    }
    if from.is_some_and(|from| from.name.contains("environment")) {
        return format!(
            "environment variable BUZZ_{}",
            path.join("__").to_uppercase()
        );
    }
    // A default has a line of this program as its source.
    let source = from.and_then(|from| from.source.as_ref());
    let source = source.filter(|source| source.code_location().is_none());
    source.map_or_else(|| "configuration".into(), ToString::to_string)
}

#[cfg(test)]
mod tests;
