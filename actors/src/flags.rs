//! The feature flags that the relay knows. Flags may only choose between equivalent implementations
//! or tighten an operational limit whose shedding stays retryable: whatever a flag says, a client
//! that is refused may try again, and no limit is looser than without it.

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
