//! What goes wrong inside a connection, and what it means.
//!
//! Diesel keeps SQLite's message and drops its code, and asking the library for the code takes
//! `unsafe`. So the code is found by its message: what is not about a statement's text has the
//! message that `sqlite3_errstr` gives for the code, word for word. `code_to_str` asks the linked
//! library for it, so no text of its is written down here. Messages about a statement (`no such
//! column: …`) are never equal to one of these; tests provoke what can be provoked.

use buzz_actors::ports::StoreError;
use diesel::result::Error as SqlError;
use libsqlite3_sys as ffi;

use crate::store::{batch::BrokenRow, fault::Fault};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Sql(#[from] SqlError),
    #[error(transparent)]
    Row(#[from] BrokenRow),
    #[error("a row of the member table holds no member")]
    NoMember,
}

impl Error {
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::Sql(SqlError::DatabaseError(_, info)) => of_message(info.message()),
            Self::Sql(_) => Fault::Failed,
            Self::Row(_) | Self::NoMember => Fault::Corrupt,
        }
    }

    /// For the database at `place`.
    pub(super) fn into_store_error(self, place: impl Into<String>) -> StoreError {
        self.fault().at(place, self)
    }
}

/// The result codes that stand for something else than a wrong statement.
const CODES: [(std::ffi::c_int, Fault); 13] = [
    (ffi::SQLITE_BUSY, Fault::Busy),
    (ffi::SQLITE_LOCKED, Fault::Busy),
    (ffi::SQLITE_PROTOCOL, Fault::Busy),
    (ffi::SQLITE_FULL, Fault::Full),
    (ffi::SQLITE_NOMEM, Fault::Full),
    (ffi::SQLITE_IOERR, Fault::Unreachable),
    (ffi::SQLITE_CANTOPEN, Fault::Unreachable),
    (ffi::SQLITE_READONLY, Fault::Unreachable),
    (ffi::SQLITE_PERM, Fault::Unreachable),
    (ffi::SQLITE_INTERRUPT, Fault::TimedOut),
    (ffi::SQLITE_SCHEMA, Fault::SessionLost),
    (ffi::SQLITE_CORRUPT, Fault::Corrupt),
    (ffi::SQLITE_NOTADB, Fault::Corrupt),
];

fn of_message(message: &str) -> Fault {
    let known = CODES
        .into_iter()
        .find(|(code, _)| ffi::code_to_str(*code) == message);
    known.map_or(Fault::Failed, |(_, fault)| fault)
}
