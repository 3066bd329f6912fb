//! The store: events on disk, behind the contracts of [`buzz_actors::ports`].
//!
//! | module | holds |
//! |---|---|
//! | `position` | the order of events, as one integer: row key and time index |
//! | `keys` | everything else events are found by, as 64-bit integers |
//! | `batch` | what a batch of events does to the store (pure) |
//! | `columns` | what is made of a row of either database |
//! | `lookup` | what a batch must read of the store (pure) |
//! | `plan` | which index entries answer a filter (pure) |
//! | `check` | whether a stored event matches a filter (pure) |
//! | `read` | how a query walks and merges what an index leads to |
//! | `sqlite` | the statements, the writer and the readers on SQLite |
//! | `postgres` | the same on PostgreSQL, which several relays may share |

mod batch;
mod check;
mod columns;
mod keys;
mod lookup;
mod plan;
mod position;
pub mod postgres;
mod read;
pub mod sqlite;

use std::{
    fs::{File, TryLockError},
    path::Path,
    sync::Arc,
    time::Duration,
};

use buzz_actors::ports::{EventStore, StoreError};

/// What a committed batch survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A power cut.
    Full,
    /// A killed process, not a power cut.
    Normal,
}

/// Held by the one relay that serves a SQLite file.
#[derive(Debug)]
pub struct Served {
    _lock: File,
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

/// Makes sure that no other relay serves the SQLite file that `url` names: two would each hide the
/// other's new events from open histories. Import and export beside a relay need no lock; nor do
/// relays that share a PostgreSQL database, which tells their batches apart.
///
/// # Errors
/// When another one does, or the lock file (`relay.db.lock`) can't be made.
pub fn serve_alone(url: &str) -> Result<Option<Served>, StoreError> {
    let Some(path) = url.strip_prefix("sqlite://") else {
        return Ok(None);
    };
    let path = format!("{path}.lock");
    let unavailable = |why: String| StoreError::Unavailable(format!("{path}: {why}"));
    let file = File::create(&path).map_err(|error| unavailable(error.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Served { _lock: file })),
        Err(TryLockError::WouldBlock) => Err(unavailable("another relay serves this file".into())),
        Err(TryLockError::Error(error)) => Err(unavailable(error.to_string())),
    }
}

/// True where the URL names a PostgreSQL database.
pub fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Opens the store, creating and migrating it where needed.
///
/// # Errors
/// When the URL is no database's, or the database can't be opened; the text names it.
pub fn open(options: &Options) -> Result<Arc<dyn EventStore>, StoreError> {
    let url = &options.url;
    if is_postgres(url) {
        return Ok(Arc::new(postgres::PostgresStore::open(options)?));
    }
    let Some(path) = url.strip_prefix("sqlite://") else {
        let scheme = url
            .split_once("://")
            .map_or("no scheme", |(scheme, _)| scheme);
        return Err(StoreError::Failed(format!(
            "the database URL must begin with sqlite:// or postgres://, not with {scheme}"
        )));
    };
    let (durability, timeout) = (options.durability, options.statement_timeout);
    let store = sqlite::SqliteStore::open(Path::new(path), durability, timeout)?;
    Ok(Arc::new(store))
}

#[cfg(test)]
mod tests;
