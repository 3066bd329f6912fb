//! Whose a database file is. A file is looked at without writing before it is used, so that the
//! data of another program, or of a newer version, stays as it is.

use std::path::Path;

use buzz_actors::ports::StoreError;
use diesel::{
    Connection, RunQueryDsl, SqliteConnection,
    connection::SimpleConnection,
    dsl::sql,
    migration::{Migration, MigrationSource},
    result::Error as SqlError,
    sql_types::{BigInt, Text},
    sqlite::Sqlite,
};

use super::{MIGRATIONS, SqliteStore, error::Error};
use crate::store::{fault::Fault, migrations};

/// `buzz`: what SQLite's header calls the application's id.
const APPLICATION_ID: i64 = 0x6275_7a7a;

const MIGRATIONS_TABLE: &str = "__diesel_schema_migrations";

impl SqliteStore {
    /// Refuses a file that is not this program's, or a newer version's.
    pub(super) fn check_identity(&self) -> Result<(), StoreError> {
        let is_new = std::fs::metadata(&self.path).map_or(true, |meta| meta.len() == 0);
        if is_new {
            return Ok(());
        }
        let identity = match self.identity("ro") {
            // A program that was killed in the middle of a write: what it left behind is rolled
            // back by whoever opens the file to write.
            Err(StoreError::Unavailable(_)) => self.identity("rw"),
            identity => identity,
        };
        let checked = identity?.check();
        checked.map_err(|why| Fault::Failed.at(self.place(), why))
    }

    fn identity(&self, mode: &str) -> Result<Identity, StoreError> {
        let path = std::fs::canonicalize(&self.path).map_err(|error| self.unavailable(error))?;
        let mut connection = SqliteConnection::establish(&uri(&path, mode))
            .map_err(|error| self.unavailable(error))?;
        let read = connection.batch_execute("PRAGMA busy_timeout = 5000");
        let read = read.and_then(|()| connection.transaction(Identity::read));
        read.map_err(|error| Error::from(error).into_store_error(self.place()))
    }
}

/// The file as SQLite's URI, which can say how it is opened.
fn uri(path: &Path, mode: &str) -> String {
    let path = path.to_string_lossy();
    let path = path.replace('%', "%25").replace('?', "%3f");
    format!("file:{}?mode={mode}", path.replace('#', "%23"))
}

struct Identity {
    application_id: i64,
    tables: Vec<String>,
    migrations: Vec<String>,
}

impl Identity {
    fn read(connection: &mut SqliteConnection) -> Result<Self, SqlError> {
        let application_id = sql::<BigInt>("SELECT application_id FROM pragma_application_id")
            .get_result(connection)?;
        let tables: Vec<String> = sql::<Text>(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' \
             ESCAPE '\\' ORDER BY name",
        )
        .load(connection)?;
        let migrations = if tables.iter().any(|table| table == MIGRATIONS_TABLE) {
            sql::<Text>("SELECT version FROM __diesel_schema_migrations ORDER BY version")
                .load(connection)?
        } else {
            Vec::new()
        };
        Ok(Self {
            application_id,
            tables,
            migrations,
        })
    }

    fn check(&self) -> Result<(), String> {
        let id = self.application_id;
        if id != 0 && id != APPLICATION_ID {
            return Err(format!(
                "the file belongs to another program (application_id {id:#x}); it is left as it is"
            ));
        }
        let foreign = self.tables.iter().find(|table| *table != MIGRATIONS_TABLE);
        if let Some(table) = foreign.filter(|_| self.migrations.is_empty()) {
            return Err(format!(
                "the file belongs to another program (it has a table {table:?}); it is left as it is"
            ));
        }
        migrations::check(&self.migrations, &known())
    }
}

fn known() -> Vec<String> {
    let ours: Result<Vec<Box<dyn Migration<Sqlite>>>, _> = MIGRATIONS.migrations();
    let ours = ours.unwrap_or_default();
    ours.iter()
        .map(|one| one.name().version().to_string())
        .collect()
}

/// Marks a file that nobody has marked.
pub(super) fn mark(connection: &mut SqliteConnection) -> Result<(), SqlError> {
    let id: i64 =
        sql::<BigInt>("SELECT application_id FROM pragma_application_id").get_result(connection)?;
    let tables: i64 = sql::<BigInt>("SELECT count(*) FROM sqlite_master").get_result(connection)?;
    if id == 0 && tables == 0 {
        connection.batch_execute(&format!("PRAGMA application_id = {APPLICATION_ID}"))?;
    }
    Ok(())
}
