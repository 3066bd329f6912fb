//! What goes wrong inside a connection, and what it means.
//!
//! Diesel keeps SQLite's message and drops its result code, and reading the code from the
//! connection takes `unsafe`. So the code is found from the message. We rely on this: for an error
//! that is not about the statement's text, `sqlite3_errmsg` gives exactly the text that
//! `sqlite3_errstr` gives for the code. That text is taken from the linked library (`code_to_str`)
//! and compared as a whole. A message about a statement, such as `no such column: …`, never equals
//! one of them. Tests provoke these errors in the real library.

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

/// The result codes that do not mean a wrong statement.
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
