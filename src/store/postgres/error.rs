//! What goes wrong in a session, and which [`Fault`] it is. That is decided by the server's
//! SQLSTATE, since its messages may be in any language.

use buzz_actors::ports::StoreError;
use diesel::result::Error as SqlError;

use super::session::driver_error;
use crate::store::{batch::BrokenRow, fault::Fault};

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Sql(#[from] SqlError),
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
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::Sql(error) => driver_error(error).map_or(Fault::Failed, fault),
            Self::NoAnswer => Fault::Unreachable,
            Self::Row(_) | Self::NoMember => Fault::Corrupt,
            Self::Changed => Fault::Busy,
        }
    }

    /// For the database at `place`.
    pub(super) fn into_store_error(self, place: &str) -> StoreError {
        let fault = self.fault();
        match self {
            // Diesel's layer adds nothing.
            Self::Sql(SqlError::QueryBuilderError(error)) => fault.at(place, error),
            error => fault.at(place, error),
        }
    }
}

/// What the driver's error means.
pub(super) fn fault(error: &tokio_postgres::Error) -> Fault {
    match error.code() {
        Some(code) => of_code(code.code()),
        // No answer of the server: the connection broke, or never came to be.
        None => Fault::SessionLost,
    }
}

/// What a SQLSTATE means: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn of_code(code: &str) -> Fault {
    match (code.get(..2).unwrap_or_default(), code) {
        // query_canceled: what the statement timeout does.
        (_, "57014") => Fault::TimedOut,
        // data_corrupted, index_corrupted.
        (_, "XX001" | "XX002") => Fault::Corrupt,
        // Conflicts and deadlocks; locks that are not available.
        ("40" | "55", _) => Fault::Busy,
        // Insufficient resources, a full disk among them.
        ("53", _) => Fault::Full,
        // System errors, such as failed reads and writes of the server's files.
        ("58", _) => Fault::Unreachable,
        // Connection exceptions; an operator or a crash ended the session.
        ("08" | "57", _)
        // Invalid transaction states: a transaction was idle for too long, or the server became a
        // standby.
        | ("25", _)
        // Prepared statements that are gone, or whose tables have changed.
        | ("26", _) | (_, "0A000") => Fault::SessionLost,
        _ => Fault::Failed,
    }
}
