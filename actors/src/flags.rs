//! The feature flags that the relay knows, and the contract of whatever provides their values. Flags may only choose between equivalent implementations
//! or tighten an operational limit whose shedding stays retryable: whatever a flag says, a client
//! that is refused may try again, and no limit is looser than without it.

use std::time::Duration;

/// A flag whose value is a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntegerFlag {
    /// Its name at every provider.
    pub key: &'static str,
    /// Its value where the provider `static` is chosen. What is missing elsewhere has no value.
    pub default: i64,
}

/// Caps the reads of stored events. Zero, as every value below 1: no cap but the gate's ceiling.
pub const HISTORY_READS: IntegerFlag = IntegerFlag {
    key: "buzz.relay.concurrency.history-reads",
    default: 0,
};

/// Caps the logins in their database checks. Zero, as every value below 1: no cap.
pub const AUTH: IntegerFlag = IntegerFlag {
    key: "buzz.relay.concurrency.auth",
    default: 0,
};

/// All of them.
pub const DECLARED: [IntegerFlag; 2] = [HISTORY_READS, AUTH];

/// Whom a flag is evaluated for. The relay evaluates for itself and never for a client: a flag is
/// one value a process, and no client's key leaves the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvaluationContext {
    /// What kind of thing it is.
    pub kind: &'static str,
    /// Which of that kind.
    pub key: &'static str,
}

impl EvaluationContext {
    /// The one for this process. All relays share it, so that a change reaches all of them.
    pub fn for_process() -> Self {
        Self {
            kind: "relay",
            key: "relay",
        }
    }
}

/// Where the values of feature flags come from. One is chosen at the start, for the life of the
/// process; the flag refresher owns it, so that it may block without holding up anybody else.
pub trait FlagSource: Send {
    /// What the configuration calls it.
    fn provider(&self) -> &'static str;

    /// Called before each round of evaluations, for sources that have to look by themselves.
    fn refresh(&mut self) {}

    /// The flag's value now. `None` where there is none that is a whole number.
    ///
    /// # Errors
    /// When it can't be evaluated. That says nothing about the value: the last one stays in force.
    fn integer(&mut self, flag: &IntegerFlag) -> Result<Option<i64>, FlagError>;

    /// Whether values of the source itself are in force, be they old; if not, defaults are.
    fn ready(&self) -> bool;

    /// Delivers what the source has to report, before the process ends. Takes about `within` at
    /// most; nobody waits for it longer.
    fn flush(&mut self, _within: Duration) {}
}

/// A flag that could not be evaluated.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FlagError(pub String);
