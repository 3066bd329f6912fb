//! Why a call of the client failed.

/// Why a publish, a count or a login did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The relay said no; these are its words, with their machine-readable prefix (NIP-01). It was
    /// asked a second time after `rate-limited:` and `auth-required:`, and as often as the time
    /// allowed after `error:`, where that could help.
    #[error("the relay refused: {reason}")]
    Refused {
        /// The relay's text.
        reason: String,
    },
    /// No answer came before the deadline. The event may be stored all the same.
    #[error("no answer in time")]
    Timeout,
    /// The socket was lost before the answer to an ephemeral event, which has no duplicate check
    /// and so is never sent twice.
    #[error("the connection was lost before the answer")]
    Disconnected,
    /// The client was moved to another relay meanwhile.
    #[error("the client changed relay before the answer")]
    Switched,
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// As many calls as [`crate::Config::max_requests`] wait for their result already.
    #[error("too many calls are waiting")]
    TooMany,
    /// A login was asked for and the client has no signer.
    #[error("no signer")]
    NoSigner,
    /// The signer did not sign.
    #[error("the signer failed: {0}")]
    Signer(String),
    /// A root certificate is none that can be trusted.
    #[error("not a root certificate: {0}")]
    Certificate(String),
    /// The URL is no `ws://` or `wss://` URL.
    #[error("not a relay URL: {0}")]
    Url(String),
}

/// The driver is gone, and with it the client.
impl From<tokio::sync::oneshot::error::RecvError> for Error {
    fn from(_: tokio::sync::oneshot::error::RecvError) -> Self {
        Self::Closed
    }
}

/// What [`crate::Client::publish`] fails with.
pub type PublishError = Error;
