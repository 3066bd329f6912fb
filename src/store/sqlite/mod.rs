//! The store on SQLite, through plain Diesel on the calling thread. One file, in WAL mode: one
//! connection writes while others read. A connection that failed is replaced on its next use.

mod checkpoint;
mod error;
mod identity;
mod last_batch;
mod members;
mod reader;
mod served;
mod statement;
mod writer;

use std::{
    error::Error as StdError,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use buzz_actors::{
    metrics::StoreMetrics,
    ports::{EventStore, Purpose, StoreError, StoreReader, StoreWriter},
};
use diesel::{Connection, SqliteConnection, connection::SimpleConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

pub use self::served::Served;
use self::{
    error::Error,
    reader::SqliteReader,
    statement::{BeginWrite, Commit, Statement},
    writer::SqliteWriter,
};
use super::{fault::Fault, options::Durability};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// A database file.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    path: PathBuf,
    durability: Durability,
    /// How long one read or count may take.
    statement_timeout: Duration,
    /// Device and inode of the file that was opened.
    file: Option<(u64, u64)>,
    metrics: StoreMetrics,
    /// Set by whichever connection first reads damage; all of them heed it.
    is_damaged: Arc<AtomicBool>,
}

impl SqliteStore {
    /// Opens the database, creating the file, its directory and its tables where needed.
    ///
    /// # Errors
    /// When it can't; the text names the path.
    pub fn open(
        path: &Path,
        durability: Durability,
        statement_timeout: Duration,
    ) -> Result<Self, StoreError> {
        if path.as_os_str().is_empty() || path == Path::new(":memory:") {
            let why = format!(
                "{:?} is not a file: several connections share the database, so it must be one",
                path.display().to_string()
            );
            return Err(StoreError::Failed(why.into()));
        }
        let mut store = Self {
            path: path.to_owned(),
            durability,
            statement_timeout,
            file: None,
            metrics: StoreMetrics::register(),
            is_damaged: Arc::default(),
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| store.unavailable(error))?;
        }
        served::check_links(path)?;
        store.check_identity()?;
        store.connect_writer()?;
        store.file = store.file_now();
        Ok(store)
    }

    fn file_now(&self) -> Option<(u64, u64)> {
        let meta = std::fs::metadata(&self.path).ok()?;
        Some((meta.dev(), meta.ino()))
    }

    /// Bytes of the write-ahead log's file.
    fn log_bytes(&self) -> u64 {
        let mut path = self.path.clone().into_os_string();
        path.push("-wal");
        std::fs::metadata(path).map_or(0, |meta| meta.len())
    }

    /// A damaged file may not give back what is written to it. What can be read still is.
    fn check_damage(&self) -> Result<(), StoreError> {
        if self.is_damaged.load(Ordering::Relaxed) {
            return Err(self.unavailable("the file is damaged; restore a backup and start again"));
        }
        Ok(())
    }

    /// A file that was removed or replaced takes writes that nobody will find again.
    fn check_file(&self) -> Result<(), StoreError> {
        if self.file_now() == self.file {
            return Ok(());
        }
        Err(self.unavailable("the file was removed or replaced while in use"))
    }

    fn unavailable(&self, why: impl Into<Box<dyn StdError + Send + Sync>>) -> StoreError {
        Fault::Unreachable.at(self.place(), why)
    }

    /// What the caller is told. Damage ends the use of the file.
    fn failed(&self, error: Error) -> StoreError {
        let is_damage = matches!(error, Error::Sql(_)) && error.fault() == Fault::Corrupt;
        if is_damage && !self.is_damaged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                database = self.place(), %error,
                "the database file is damaged: nothing is written to it any more"
            );
        }
        error.into_store_error(self.place())
    }

    fn connect(&self, pragmas: &str) -> Result<SqliteConnection, StoreError> {
        let path = self.path.to_str();
        let path = path.ok_or_else(|| self.unavailable("the path is not UTF-8"))?;
        let mut connection =
            SqliteConnection::establish(path).map_err(|error| self.unavailable(error))?;
        // Waits for a lock rather than failing: another process may be reading or importing.
        let common = "PRAGMA busy_timeout = 5000; PRAGMA temp_store = MEMORY; \
                      PRAGMA mmap_size = 8589934592;";
        let setup = connection.batch_execute(common);
        let setup = setup.and_then(|()| connection.batch_execute(pragmas));
        setup.map_err(|error| Error::from(error).into_store_error(self.place()))?;
        Ok(connection)
    }

    fn connect_writer(&self) -> Result<SqliteConnection, StoreError> {
        let synchronous = match self.durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
        };
        // A large cache and rare checkpoints: a page that many batches change is read once and
        // written back once.
        let mut connection = self.connect(&format!(
            "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; \
             PRAGMA cache_size = -262144; PRAGMA wal_autocheckpoint = 8000; \
             PRAGMA journal_size_limit = 40000000;"
        ))?;
        let marked = identity::mark(&mut connection);
        marked.map_err(|error| Error::from(error).into_store_error(self.place()))?;
        connection
            .run_pending_migrations(MIGRATIONS)
            .map_err(|error| self.unavailable(format!("migration failed: {error}")))?;
        Ok(connection)
    }

    fn connect_reader(&self) -> Result<SqliteConnection, StoreError> {
        self.connect("PRAGMA query_only = 1; PRAGMA cache_size = -8192;")
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

impl EventStore for SqliteStore {
    fn writer(&self) -> Result<Box<dyn StoreWriter>, StoreError> {
        Ok(Box::new(SqliteWriter::open(self.clone())?))
    }

    fn reader(&self, _: Purpose) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(SqliteReader::open(self.clone())?))
    }
}

/// Runs `work` in a transaction that writes. After an error it is left to the connection's end,
/// as SQLite has already ended it where the disk is full; Diesel's own would report that instead of
/// the cause.
fn transaction<T>(
    connection: &mut SqliteConnection,
    work: impl FnOnce(&mut SqliteConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    Statement::<BeginWrite, 0>::new(vec![]).execute(connection)?;
    let done = work(connection)?;
    Statement::<Commit, 0>::new(vec![]).execute(connection)?;
    Ok(done)
}

/// A connection that is given up when it fails and opened anew when it is needed next.
struct Reconnecting {
    store: SqliteStore,
    connect: fn(&SqliteStore) -> Result<SqliteConnection, StoreError>,
    connection: Option<SqliteConnection>,
}

impl Reconnecting {
    fn open(
        store: SqliteStore,
        connect: fn(&SqliteStore) -> Result<SqliteConnection, StoreError>,
    ) -> Result<Self, StoreError> {
        store.check_file()?;
        let connection = Some(connect(&store)?);
        Ok(Self {
            store,
            connect,
            connection,
        })
    }

    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut SqliteConnection) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        self.store.check_file()?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => (self.connect)(&self.store)?,
        };
        // Not put back after an error: dropping it also rolls back what it left open.
        let result = work(&mut connection);
        let result = result.map_err(|error| self.store.failed(error))?;
        self.connection = Some(connection);
        Ok(result)
    }
}

#[cfg(test)]
pub(in crate::store) mod tests;
