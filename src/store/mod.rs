//! The store: events on disk, behind the traits of [`buzz_actors::ports`].
//!
//! | module | holds |
//! |---|---|
//! | `position` | the order of events, as one integer: row key and time index |
//! | `keys` | everything else events are found by, as 64-bit integers |
//! | `batch` | what a batch of events does to the store (pure) |
//! | `options` | where events are kept, and how |
//! | `fault` | what a database's error means |
//! | `migrations` | whether a database is one that this version can work on |
//! | `schema` | the tables, for Diesel |
//! | `statements` | statements of a fixed shape, for both databases |
//! | `columns` | reads the rows of either database |
//! | `lookup` | what a batch must read of the store (pure) |
//! | `plan` | which index entries answer a filter (pure) |
//! | `check` | whether a stored event matches a filter (pure) |
//! | `read` | how a query walks and merges what an index leads to |
//! | `sqlite` | the statements, the writer and the readers on SQLite |
//! | `postgres` | the same on PostgreSQL, which several relays may share |

mod batch;
mod check;
mod columns;
mod fault;
mod keys;
mod lookup;
mod migrations;
mod options;
mod plan;
mod position;
pub mod postgres;
mod read;
mod schema;
pub mod sqlite;
mod statements;

use std::{path::Path, sync::Arc};

use buzz_actors::ports::{EventStore, StoreError};

pub use self::options::{Durability, Options, is_postgres};
pub use self::sqlite::Served;

/// Makes sure that no other relay serves the SQLite file that `url` names: two would each hide the
/// other's new events from open histories. Call it before [`open`], which may change the file.
/// Import and export beside a relay need no lock; nor do relays that share a PostgreSQL database,
/// which tells their batches apart.
///
/// # Errors
/// When another one does, or the file can't be made.
pub fn serve_alone(url: &str) -> Result<Option<Served>, StoreError> {
    let path = url.strip_prefix("sqlite://");
    path.map(|path| Served::lock(Path::new(path))).transpose()
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
        let why =
            format!("the database URL must begin with sqlite:// or postgres://, not with {scheme}");
        return Err(StoreError::Failed(why.into()));
    };
    let (durability, timeout) = (options.durability, options.statement_timeout);
    let store = sqlite::SqliteStore::open(Path::new(path), durability, timeout)?;
    Ok(Arc::new(store))
}

#[cfg(test)]
mod tests;
