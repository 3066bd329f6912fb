//! Where events are kept, and how.

use std::time::Duration;

/// What a committed batch survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A power cut.
    Full,
    /// A killed process, not a power cut.
    Normal,
}

/// Where events are kept, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// `sqlite://path` or `postgres://…`.
    pub url: String,
    /// PostgreSQL: where history is read; `None`: where it is written.
    pub replica_url: Option<String>,
    /// What a committed batch survives.
    pub durability: Durability,
    /// How long one read or count may take.
    pub statement_timeout: Duration,
    /// How long a server that does not answer is waited for.
    pub start_wait: Duration,
}

impl Options {
    /// The store at `url`, all else as by default.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            replica_url: None,
            durability: Durability::Full,
            statement_timeout: Duration::from_secs(5),
            start_wait: Duration::from_secs(5),
        }
    }
}

/// True where the URL names a PostgreSQL database.
pub fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}
