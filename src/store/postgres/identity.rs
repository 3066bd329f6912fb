//! Whether a database, and the way to it, are ones that the relay can work on. Nothing is changed
//! before this is known.

use std::time::Duration;

use buzz_actors::ports::StoreError;
use diesel::{
    dsl::sql,
    migration::{Migration, MigrationSource},
    pg::Pg,
    sql_types::{Bool, Text},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::{error::fault, server::Server};
use crate::store::{fault::Fault, migrations};

/// What this version makes of a database.
pub(super) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");

/// A pooler that has no second session to give lets its client wait.
const SECOND_SESSION_WITHIN: Duration = Duration::from_secs(5);

/// Refuses a database that can't hold every character: an event with one that it lacks would fail
/// with all others of its batch.
pub(super) async fn check_encoding(server: &Server, client: &Client) -> Result<(), StoreError> {
    let encoding = ask(server, client, "SHOW server_encoding").await?;
    if encoding == "UTF8" {
        return Ok(());
    }
    let name = ask(server, client, "SELECT current_database()").await?;
    let why = format!("the database {name} has encoding {encoding}; UTF8 is needed");
    Err(Fault::Failed.at(server.shown(), why))
}

/// Refuses a pooler that gives each transaction another session: the relay's settings and prepared
/// statements belong to a session. Two clients of such a pooler meet in one of its sessions.
pub(super) async fn check_sessions(server: &Server, first: &Client) -> Result<(), StoreError> {
    const PID: &str = "SELECT pg_backend_pid()";
    let before = ask(server, first, PID).await?;
    let second = async {
        let (second, _driver) = server.connect().await?;
        let begun = second.batch_execute("BEGIN").await;
        begun.map_err(|error| failed(server, error))?;
        let of_second = ask(server, &second, PID).await?;
        Ok((of_second, ask(server, first, PID).await?))
    };
    let second = tokio::time::timeout(SECOND_SESSION_WITHIN, second).await;
    let (of_second, after) =
        second.unwrap_or_else(|_| Err(server.unavailable("no second session is given")))?;
    if of_second != before && after == before {
        return Ok(());
    }
    let why = "sessions are shared by transaction (a pooler such as pgbouncer with \
               pool_mode = transaction); the relay needs pool_mode = session, or no pooler";
    Err(Fault::Failed.at(server.shown(), why))
}

/// Refuses a database that a newer version has changed. Called with the lock held.
pub(super) async fn check_migrations(
    server: &Server,
    connection: &mut AsyncPgConnection,
) -> Result<(), StoreError> {
    let failed = |error: diesel::result::Error| Fault::Failed.at(server.shown(), error);
    let has_table = sql::<Bool>("SELECT to_regclass('__diesel_schema_migrations') IS NOT NULL");
    if !has_table.get_result(connection).await.map_err(failed)? {
        return Ok(());
    }
    let applied = sql::<Text>("SELECT version FROM __diesel_schema_migrations ORDER BY version");
    let applied: Vec<String> = applied.load(connection).await.map_err(failed)?;
    let ours: Result<Vec<Box<dyn Migration<Pg>>>, _> = MIGRATIONS.migrations();
    let ours = ours.unwrap_or_default();
    let known: Vec<_> = ours
        .iter()
        .map(|one| one.name().version().to_string())
        .collect();
    let checked = migrations::check(&applied, &known);
    checked.map_err(|why| Fault::Failed.at(server.shown(), why))
}

fn failed(server: &Server, error: Error) -> StoreError {
    fault(&error).at(server.shown(), error)
}

/// The one value that `text` yields, by the simple protocol: a pooler may not know any other.
async fn ask(server: &Server, client: &Client, text: &str) -> Result<String, StoreError> {
    let messages = client.simple_query(text).await;
    let messages = messages.map_err(|error| failed(server, error))?;
    let value = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    value.ok_or_else(|| Fault::Failed.at(server.shown(), format!("{text}: no answer")))
}
