//! What went wrong, and the exit code that says so to scripts.

use std::process::ExitCode;

/// Why the command did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The relay answered that it will not: exit code 1.
    #[error("{0}")]
    Refused(String),
    /// The command makes no sense as it is: exit code 2, which clap uses too.
    #[error("{0}")]
    Usage(String),
    /// The relay gave no answer, or can't work now: exit code 3.
    #[error("{0}")]
    Unreachable(String),
    /// The quota is used up for longer than the command may wait: exit code 4.
    #[error("{0}")]
    RateLimited(String),
}

impl Failure {
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Refused(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
            Self::RateLimited(_) => 4,
        })
    }

    pub(crate) fn usage(what: impl std::fmt::Display) -> Self {
        Self::Usage(what.to_string())
    }
}
