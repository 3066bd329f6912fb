//! The reasons a relay gives when it refuses, written in one place and read back by clients:
//! a machine-readable prefix (NIP-01), and for work that may be tried again, when.

use std::{fmt, num::NonZeroU32, time::Duration};

/// Work the relay did not take, and may take later or never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The sender's quota is used up for so many whole seconds.
    Quota {
        /// Seconds until the window admits again, at least 1.
        retry_in_secs: NonZeroU32,
    },
    /// The counter shared by several relays can't be reached: refused, never admitted unseen.
    SharedAdmissionUnavailable,
    /// The relay works on as many frames as it may.
    TooManyRequests,
    /// No reader came free in time.
    HistoryBusy,
    /// No login look-up came free in time.
    LoginsBusy,
    /// The subscription lost events because its client did not take them.
    FellBehind,
    /// The database does not answer.
    DatabaseUnavailable,
    /// The frame itself is wrong.
    Invalid(String),
    /// The event was deleted, or may not be stored.
    Blocked(String),
    /// The sender is known and may not do this.
    Restricted(String),
    /// The sender must log in first (NIP-42).
    AuthRequired(String),
    /// The store has a newer version.
    Superseded,
    /// Something failed on the relay's side.
    Error(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota { retry_in_secs } => {
                write!(f, "rate-limited: quota exceeded; retry in {retry_in_secs}s")
            }
            Self::SharedAdmissionUnavailable => {
                f.write_str("rate-limited: shared admission unavailable; retry in 1s")
            }
            Self::TooManyRequests => {
                f.write_str("rate-limited: too many concurrent requests; retry in 1s")
            }
            Self::HistoryBusy => f.write_str("rate-limited: history reads are busy; retry in 1s"),
            Self::LoginsBusy => f.write_str("rate-limited: logins are busy; retry in 1s"),
            Self::FellBehind => f.write_str("rate-limited: fell behind; retry in 1s"),
            Self::DatabaseUnavailable => f.write_str("error: database unavailable"),
            Self::Invalid(why) => write!(f, "invalid: {why}"),
            Self::Blocked(why) => write!(f, "blocked: {why}"),
            Self::Restricted(why) => write!(f, "restricted: {why}"),
            Self::AuthRequired(why) => write!(f, "auth-required: {why}"),
            Self::Superseded => f.write_str("duplicate: a newer version is stored"),
            Self::Error(why) => write!(f, "error: {why}"),
        }
    }
}

impl Refusal {
    /// The word before the colon.
    pub fn prefix(&self) -> &'static str {
        match self {
            Self::Quota { .. }
            | Self::SharedAdmissionUnavailable
            | Self::TooManyRequests
            | Self::HistoryBusy
            | Self::LoginsBusy
            | Self::FellBehind => "rate-limited",
            Self::DatabaseUnavailable | Self::Error(_) => "error",
            Self::Invalid(_) => "invalid",
            Self::Blocked(_) => "blocked",
            Self::Restricted(_) => "restricted",
            Self::AuthRequired(_) => "auth-required",
            Self::Superseded => "duplicate",
        }
    }
}

impl Refusal {
    /// The word for logs: the prefix, but where that has several causes the cause.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Quota { .. } => "quota",
            Self::SharedAdmissionUnavailable => "unavailable",
            Self::TooManyRequests => "handler",
            Self::HistoryBusy | Self::LoginsBusy => "concurrency_limit",
            Self::FellBehind => "fell_behind",
            other => other.prefix(),
        }
    }
}

/// The message of `OK id true` for an event that was there before.
pub const DUPLICATE: &str = "duplicate: already have this event";

/// The machine-readable prefix of a message, where it has one: lower-case letters and dashes
/// before the first colon.
pub fn prefix(message: &str) -> Option<&str> {
    let (prefix, _) = message.split_once(':')?;
    let is_word = |b: u8| b.is_ascii_lowercase() || b == b'-';
    (!prefix.is_empty() && prefix.bytes().all(is_word)).then_some(prefix)
}

/// Whether the message refuses for now: its prefix is `rate-limited`.
pub fn is_rate_limited(message: &str) -> bool {
    prefix(message) == Some("rate-limited")
}

/// The wait that a `rate-limited:` message asks for: its last `retry in Ns`, where it has one.
/// No wait is ever shorter than a second.
pub fn retry_in(message: &str) -> Option<Duration> {
    if !is_rate_limited(message) {
        return None;
    }
    let rest = &message[message.rfind("retry in ")? + "retry in ".len()..];
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if !rest[digits..].starts_with('s') {
        return None;
    }
    let secs: u32 = rest[..digits].parse().ok()?;
    Some(Duration::from_secs(secs.max(1).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_refusal_is_read_back_with_its_wait() {
        for secs in [1, 7, u32::MAX] {
            let retry_in_secs = NonZeroU32::new(secs).expect("not zero");
            let text = Refusal::Quota { retry_in_secs }.to_string();
            assert_eq!(
                retry_in(&text),
                Some(Duration::from_secs(secs.into())),
                "{text}"
            );
        }
    }

    #[test]
    fn every_refusal_carries_its_own_prefix() {
        for refusal in [
            Refusal::SharedAdmissionUnavailable,
            Refusal::TooManyRequests,
            Refusal::HistoryBusy,
            Refusal::LoginsBusy,
            Refusal::FellBehind,
            Refusal::DatabaseUnavailable,
            Refusal::Superseded,
            Refusal::Invalid("x: y".into()),
            Refusal::Blocked("x".into()),
            Refusal::Error("x".into()),
            Refusal::Restricted("x".into()),
            Refusal::AuthRequired("x".into()),
        ] {
            assert_eq!(prefix(&refusal.to_string()), Some(refusal.prefix()));
        }
    }

    #[test]
    fn only_whole_seconds_behind_the_prefix_are_a_hint() {
        for text in [
            "error: retry in 5s",
            "rate-limited: slow down",
            "rate-limited: retry in s",
            "rate-limited: retry in 5 minutes",
            "rate-limited: retry in 99999999999999s",
            "Rate-limited: retry in 5s",
        ] {
            assert_eq!(retry_in(text), None, "{text}");
        }
        assert_eq!(
            retry_in("rate-limited: retry in 0s"),
            Some(Duration::from_secs(1))
        );
    }
}
