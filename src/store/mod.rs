//! The store: events on disk, behind the contracts of [`buzz_actors::ports`].
//!
//! | module | holds |
//! |---|---|
//! | `position` | the order of events, as one integer: row key and time index |
//! | `keys` | everything else events are found by, as 64-bit integers |
//! | `batch` | what a batch of events does to the store (pure) |
//! | `plan` | which index entries answer a filter (pure) |
//! | `check` | whether a stored event matches a filter (pure) |
//! | `sqlite` | the statements, the writer and the readers on SQLite |

mod batch;
mod check;
mod keys;
mod plan;
mod position;
pub mod sqlite;

use std::{
    fs::{File, TryLockError},
    path::Path,
    sync::Arc,
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

/// Makes sure that no other relay serves the SQLite file that `url` names: two would each hide the
/// other's new events from open histories. Import and export beside a relay need no lock.
///
/// # Errors
/// When another one does, or the lock file (`relay.db.lock`) can't be made.
pub fn serve_alone(url: &str) -> Result<Served, StoreError> {
    let path = format!("{}.lock", url.strip_prefix("sqlite://").unwrap_or(url));
    let unavailable = |why: String| StoreError::Unavailable(format!("{path}: {why}"));
    let file = File::create(&path).map_err(|error| unavailable(error.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(Served { _lock: file }),
        Err(TryLockError::WouldBlock) => Err(unavailable("another relay serves this file".into())),
        Err(TryLockError::Error(error)) => Err(unavailable(error.to_string())),
    }
}

/// Opens the store that `url` names (`sqlite://path`), creating and migrating it where needed.
///
/// # Errors
/// When the URL is no database's, or the database can't be opened; the text names it.
pub fn open(url: &str, durability: Durability) -> Result<Arc<dyn EventStore>, StoreError> {
    let Some(path) = url.strip_prefix("sqlite://") else {
        let scheme = url
            .split_once("://")
            .map_or("no scheme", |(scheme, _)| scheme);
        return Err(StoreError::Failed(format!(
            "the database URL must begin with sqlite://, not with {scheme}"
        )));
    };
    let store = sqlite::SqliteStore::open(Path::new(path), durability)?;
    Ok(Arc::new(store))
}
