//! The store on PostgreSQL, through diesel-async, without a C library. Each reader and the writer
//! owns one session (`link`). A session that failed is replaced on its next use. Several relays
//! may share a database (`origin`), and history may be read from a replica (`reader`).
//!
//! Everything here blocks its caller, as the ports require. The writer's caller may be inside a
//! runtime, where blocking on a session is forbidden, so its work runs on a separate thread.

mod error;
mod identity;
mod last_batch;
mod link;
mod members;
mod migrate;
mod origin;
mod reader;
mod reconnecting;
mod row;
mod server;
mod session;
mod statement;
mod writer;

use std::{thread, time::Duration};

use buzz_actors::{
    metrics::StoreMetrics,
    ports::{EventStore, Purpose, StoreError, StoreReader, StoreWriter},
};

use self::{origin::Origin, reader::PostgresReader, server::Server, writer::PostgresWriter};
use super::options::{Durability, Options};

/// Writes end by themselves after it: they wait for another relay's batch, or the disk hangs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A database on a server, and perhaps its replica.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    primary: Server,
    replica: Option<Server>,
    durability: Durability,
    statement_timeout: Duration,
    origin: Origin,
    metrics: StoreMetrics,
}

/// Whether a server's URL can be used, as far as that can be told without a connection.
///
/// # Errors
/// When it can't; the text names the URL without its password.
pub fn check_url(url: &str) -> Result<(), StoreError> {
    Server::new(url).map(drop)
}

impl PostgresStore {
    /// Connects and makes the tables where they are missing. Waits up to `start_wait` for a server
    /// that is not there yet, not for one that refuses user or database.
    ///
    /// # Errors
    /// When it can't; the text names the URL without its password.
    pub fn open(options: &Options) -> Result<Self, StoreError> {
        let replica = options
            .replica_url
            .as_deref()
            .map(Server::new)
            .transpose()?;
        let store = Self {
            primary: Server::new(&options.url)?,
            replica,
            durability: options.durability,
            statement_timeout: options.statement_timeout,
            origin: Origin::default(),
            metrics: StoreMetrics::register(),
        };
        on_own_thread(|| migrate::migrate(&store.primary, options.start_wait))?;
        Ok(store)
    }
}

impl EventStore for PostgresStore {
    fn writer(&self) -> Result<Box<dyn StoreWriter>, StoreError> {
        Ok(Box::new(PostgresWriter::open(self)?))
    }

    fn reader(&self, purpose: Purpose) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(PostgresReader::new(self, purpose)))
    }
}

/// Runs `work` on a separate thread and waits for it.
fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[cfg(test)]
pub(in crate::store) mod tests;
