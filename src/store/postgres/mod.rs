//! The store on PostgreSQL, through diesel-async: no C library. Each reader and the writer owns
//! one session (`link`); a session that failed is replaced on its next use. Several relays may
//! share a database (`origin`), and history may be read from a replica (`reader`).
//!
//! Everything here blocks its caller, as the contracts say. The writer's work runs on a thread of
//! its own beside the caller's, which may be inside a runtime where waiting is forbidden.

mod held;
mod link;
mod members;
mod migrate;
mod origin;
mod reader;
mod server;
mod statement;
mod writer;

use std::{thread, time::Duration};

use buzz_actors::{
    metrics::StoreMetrics,
    ports::{EventStore, Purpose, StoreError, StoreReader, StoreWriter},
};
use diesel::result::{DatabaseErrorKind, Error as SqlError};

use self::{
    held::Held, origin::Origin, reader::PostgresReader, server::Server, writer::PostgresWriter,
};
use super::{Durability, Options, batch::BrokenRow};

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
        apart(|| migrate::migrate(&store.primary, options.start_wait))?;
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

/// Runs `work` on a thread of its own and waits for it.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// What goes wrong in a session.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Sql(SqlError),
    #[error("query took too long")]
    TookTooLong,
    /// Also past the server's own limit.
    #[error("the server does not answer")]
    NoAnswer,
    #[error(transparent)]
    Row(#[from] BrokenRow),
    #[error("a row of the member table holds no member")]
    NoMember,
    /// Something writes beside the relays, without their lock.
    #[error("the store changed while a batch was written")]
    Changed,
}

impl Error {
    /// Where a session has ended or can't go on, another one may do better.
    fn may_be_the_sessions_end(&self) -> bool {
        use DatabaseErrorKind::{
            ClosedConnection, SerializationFailure, UnableToSendCommand, Unknown,
        };
        matches!(
            self,
            Self::Sql(SqlError::DatabaseError(
                ClosedConnection | UnableToSendCommand | SerializationFailure | Unknown,
                _
            )) | Self::Changed
        )
    }

    fn into_store_error(self, server: &Server) -> StoreError {
        match self {
            Self::TookTooLong => StoreError::TookTooLong,
            Self::Row(_) | Self::NoMember => StoreError::Failed(self.to_string()),
            // Among them a disk that is full and a server that shuts down; what is left of the
            // codes can't tell, and asking again later is right for all of them.
            _ => server.unavailable(&self),
        }
    }
}

#[cfg(test)]
pub(in crate::store) mod tests;
