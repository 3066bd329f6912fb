//! Keeps the write-ahead log bounded. SQLite moves it into the database by itself, but starts it
//! anew only in a moment without readers; where reads overlap all the time that never comes, and
//! the log grows. Past [`WAL_BOUND`] the writer makes that moment: new readers wait for nothing,
//! those that read are waited for.

use std::time::{Duration, Instant};

use buzz_actors::metrics::StoreMetrics;
use diesel::{
    QueryableByName, RunQueryDsl, SqliteConnection, connection::SimpleConnection, sql_query,
    sql_types::BigInt,
};

use super::error::Error;

/// Twice where SQLite begins by itself (`wal_autocheckpoint`).
pub(super) const WAL_BOUND: u64 = 64 * 1024 * 1024;

/// Readers that hold the log longer than this are an export or stuck: writes do not wait for them.
const WAIT: Duration = Duration::from_millis(250);
/// Nor does each batch try.
const PAUSE: Duration = Duration::from_secs(5);

/// When the log may be tried again.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    not_before: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The whole log is in the database.
    Complete,
    /// Readers used the rest of it.
    Partial,
    /// Not a page was moved, though there are some.
    Nothing,
}

#[derive(QueryableByName)]
struct Moved {
    #[diesel(sql_type = BigInt)]
    busy: i64,
    #[diesel(sql_type = BigInt)]
    log: i64,
    #[diesel(sql_type = BigInt)]
    checkpointed: i64,
}

impl Checkpoints {
    /// After a batch: where the log is too long, starts it anew.
    pub(super) fn after_a_batch(
        &mut self,
        connection: &mut SqliteConnection,
        log_bytes: u64,
        metrics: &StoreMetrics,
    ) -> Result<(), Error> {
        let now = Instant::now();
        if log_bytes < WAL_BOUND || self.not_before.is_some_and(|at| now < at) {
            return Ok(());
        }
        connection.batch_execute(&format!("PRAGMA busy_timeout = {}", WAIT.as_millis()))?;
        let outcome = checkpoint(connection, "TRUNCATE", metrics);
        connection.batch_execute("PRAGMA busy_timeout = 5000")?;
        if outcome? != Outcome::Complete {
            tracing::warn!(log_bytes, "reads hold the write-ahead log: it grows");
            self.not_before = now.checked_add(PAUSE);
        }
        Ok(())
    }
}

/// Moves what can be moved, and counts what came of it.
pub(super) fn checkpoint(
    connection: &mut SqliteConnection,
    mode: &str,
    metrics: &StoreMetrics,
) -> Result<Outcome, Error> {
    let moved: Moved =
        sql_query(format!("PRAGMA wal_checkpoint({mode})")).get_result(connection)?;
    let outcome = match moved {
        Moved {
            busy: 0,
            log,
            checkpointed,
        } if log == checkpointed => Outcome::Complete,
        Moved {
            checkpointed: 1.., ..
        } => Outcome::Partial,
        _ => Outcome::Nothing,
    };
    match outcome {
        Outcome::Complete => &metrics.checkpoint_complete,
        Outcome::Partial => &metrics.checkpoint_partial,
        Outcome::Nothing => &metrics.checkpoint_nothing,
    }
    .increment(1);
    Ok(outcome)
}
