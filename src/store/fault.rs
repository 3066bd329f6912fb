//! What a database's error means to the relay. Each database maps its error codes to [`Fault`] in
//! one function. Whether work is retried and which [`StoreError`] it ends with follow from the
//! fault alone.

use std::{error::Error, fmt};

use buzz_actors::ports::StoreError;

use crate::error_chain::chain;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another connection holds a lock that the statement needs, or won a conflict.
    Busy,
    /// Disk, memory or the server's connections are used up.
    Full,
    /// The file or the server can't be reached, read or written now.
    Unreachable,
    /// The session has ended or is unusable; a new one may work.
    SessionLost,
    /// The statement ran longer than it may and was stopped.
    TimedOut,
    /// What is stored is damaged.
    Corrupt,
    /// The statement or its values are wrong: it would fail again.
    Failed,
}

impl Fault {
    /// Whether the same work may succeed at once in a new session.
    pub(super) fn is_retried(self) -> bool {
        matches!(self, Self::Busy | Self::SessionLost)
    }

    /// What the caller is told: `place` is the database, `error` is kept as the source.
    pub(super) fn at(
        self,
        place: impl Into<String>,
        error: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> StoreError {
        let error = At {
            place: place.into(),
            error: error.into(),
        };
        match self {
            Self::Busy | Self::Full | Self::Unreachable | Self::SessionLost => {
                StoreError::Unavailable(Box::new(error))
            }
            Self::TimedOut => StoreError::TookTooLong,
            Self::Corrupt | Self::Failed => StoreError::Failed(Box::new(error)),
        }
    }
}

/// An error, with the database in which it happened.
#[derive(Debug)]
struct At {
    place: String,
    error: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, chain(&*self.error))
    }
}

impl Error for At {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.error)
    }
}
