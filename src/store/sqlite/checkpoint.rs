//! Keeps the write-ahead log bounded. SQLite copies the log into the database by itself, but
//! restarts it only at a moment without readers. Where reads always overlap there is no such
//! moment, and the log grows. Past [`WAL_BOUND`] the writer forces a restart: it waits for the
//! reads in progress, while new reads go on without delay.
//!
//! A fixed wait is not enough: if reads overlap and each lasts longer than the wait, every attempt
//! fails and the log grows without limit. So each failed attempt doubles the next wait, up to one
//! that is longer than any read the relay allows. If that one fails too, another process holds the
//! log (such as a stopped export). Then the waits are short again until an attempt succeeds, so
//! that writes are not blocked for long.

use std::time::{Duration, Instant};

use buzz_actors::metrics::StoreMetrics;
use diesel::{
    QueryableByName, RunQueryDsl, SqliteConnection, connection::SimpleConnection, sql_query,
    sql_types::BigInt,
};

use super::error::Error;

/// Twice where SQLite begins by itself (`wal_autocheckpoint`).
pub(super) const WAL_BOUND: u64 = 64 * 1024 * 1024;

/// The first attempt waits this long for readers; writes wait with it.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// No attempt waits longer, whatever a read may take.
const MOST_WAIT: Duration = Duration::from_secs(10);
/// The pause between two attempts, in which batches are written.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after the longest wait has failed.
const LONG_PAUSE: Duration = Duration::from_secs(5);

/// When the log may be tried again, and how long readers are waited for.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Every read of this relay ends within it.
    longest_wait: Duration,
    /// `None` after the longest wait has failed.
    next_wait: Option<Duration>,
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
    /// For reads that take up to `statement_timeout`.
    pub(super) fn new(statement_timeout: Duration) -> Self {
        Self {
            // One that began before the attempt, and one that began while pages were moved.
            longest_wait: (2 * statement_timeout).clamp(FIRST_WAIT, MOST_WAIT),
            next_wait: Some(FIRST_WAIT),
            not_before: None,
        }
    }

    /// After a batch: where the log is too long, starts it anew.
    pub(super) fn after_a_batch(
        &mut self,
        connection: &mut SqliteConnection,
        log_bytes: u64,
        metrics: &StoreMetrics,
    ) -> Result<(), Error> {
        let Some(wait) = self.due(log_bytes, Instant::now()) else {
            return Ok(());
        };
        connection.batch_execute(&format!("PRAGMA busy_timeout = {}", wait.as_millis()))?;
        let outcome = checkpoint(connection, "TRUNCATE", metrics);
        connection.batch_execute("PRAGMA busy_timeout = 5000")?;
        let is_complete = outcome? == Outcome::Complete;
        if !is_complete {
            tracing::warn!(
                log_bytes,
                waited_ms = wait.as_millis(),
                "reads hold the write-ahead log; it grows"
            );
        }
        self.attempted(is_complete, Instant::now());
        Ok(())
    }

    /// How long readers are waited for, if the log is to be tried now.
    fn due(&self, log_bytes: u64, now: Instant) -> Option<Duration> {
        let may = log_bytes >= WAL_BOUND && self.not_before.is_none_or(|at| at <= now);
        may.then(|| self.next_wait.unwrap_or(FIRST_WAIT))
    }

    fn attempted(&mut self, is_complete: bool, now: Instant) {
        if is_complete {
            (self.next_wait, self.not_before) = (Some(FIRST_WAIT), None);
            return;
        }
        let longer = self.next_wait.filter(|wait| *wait < self.longest_wait);
        self.next_wait = longer.map(|wait| (2 * wait).min(self.longest_wait));
        let pause = self.next_wait.map_or(LONG_PAUSE, |_| PAUSE);
        self.not_before = now.checked_add(pause);
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Kills: a wait that stays as it is, one without an end, writes held up again and again by a
    /// reader that never ends, a wait that is not forgotten after a success.
    #[test]
    fn a_failed_attempt_is_followed_by_a_longer_one_up_to_the_longest_read() {
        let mut checkpoints = Checkpoints::new(SECOND);
        let mut now = Instant::now();
        assert_eq!(checkpoints.due(WAL_BOUND - 1, now), None);
        let mut waits = Vec::new();
        for _ in 0..6 {
            let wait = checkpoints.due(WAL_BOUND, now).expect("an attempt");
            waits.push(wait.as_millis());
            checkpoints.attempted(false, now);
            assert_eq!(checkpoints.due(WAL_BOUND, now), None, "no pause");
            now += LONG_PAUSE;
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 250, 250]);
        checkpoints.attempted(true, now);
        assert_eq!(checkpoints.due(WAL_BOUND, now), Some(FIRST_WAIT));
        checkpoints.attempted(false, now);
        now += PAUSE;
        assert_eq!(checkpoints.due(WAL_BOUND, now), Some(2 * FIRST_WAIT));
    }
}
