//! What a session may be told, once, with the defaults that suit a relay of this project.

use std::time::Duration;

/// The bounds and waits of a client. All of them have a default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Ask the relay for its limits (NIP-11), which then stand for `quota_frames`, `quota_window`,
    /// `max_filters` and, where smaller, `page`.
    pub read_information: bool,
    /// Frames that spend quota (EVENT, REQ, COUNT) sent in any `quota_window`.
    pub quota_frames: usize,
    /// The relay's window, lengthened by a tenth here: frames may bunch up on their way.
    pub quota_window: Duration,
    /// Filters in one REQ; several subscriptions share a REQ up to this number.
    pub max_filters: usize,
    /// Stored events the relay sends for one filter (NIP-11 `max_limit`); catch-up asks in pages
    /// of this size.
    pub page: usize,
    /// How long new subscriptions wait for others to share their REQ.
    pub linger: Duration,
    /// The wait after a `rate-limited:` answer that names none.
    pub default_retry: Duration,
    /// The longest wait that an answer may ask for; more is taken as this much.
    pub max_retry: Duration,
    /// The time between two frames while the quota window recovers from a refusal.
    pub stagger: Duration,
    /// From the call of a publish, count or login to its result, whatever it waits for.
    pub request_timeout: Duration,
    /// Requests without a result; one more fails at once.
    pub max_requests: usize,
    /// Events waiting for one subscription's consumer.
    pub queue: usize,
    /// How far behind its cursor a catch-up starts, in seconds of `created_at`.
    pub overlap_secs: u64,
    /// Event ids one subscription remembers to tell duplicates.
    pub seen: usize,
    /// From the end of one recovery to the start of the next.
    pub recovery_pause: Duration,
    /// The longest a recovery waits for its EOSE. Longer than a ping and its answer take together,
    /// so that a dead socket is known as such first, and the recovery is not taken as done.
    pub recovery_timeout: Duration,
    /// The longest a frame is being written without any of its bytes leaving; then the socket is
    /// given up, whatever still arrives on it.
    pub write_timeout: Duration,
    /// Between two pings.
    pub ping_every: Duration,
    /// From a ping to a sign of life.
    pub ping_timeout: Duration,
    /// The longest a dial takes.
    pub connect_timeout: Duration,
    /// The ceiling of the first wait before a reconnect, or after an `error:` answer; it doubles
    /// with each failure.
    pub backoff_base: Duration,
    /// The ceiling of any such wait.
    pub backoff_max: Duration,
    /// A socket open for this long makes the next reconnect wait start at its base again.
    pub stable_after: Duration,
    /// How long frames wait for the answer to a login that is under way.
    pub login_hold: Duration,
    /// Observer frames waiting or unanswered; one more drops the oldest.
    pub observer_queue: usize,
    /// Observer frames sent and not yet answered.
    pub observer_window: usize,
    /// Between two observer frames.
    pub observer_every: Duration,
    /// An observer frame without an answer for this long is taken as delivered.
    pub observer_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            read_information: true,
            quota_frames: 50,
            quota_window: secs(5),
            max_filters: 10,
            page: 500,
            linger: Duration::from_millis(10),
            default_retry: secs(10),
            max_retry: secs(300),
            stagger: Duration::from_millis(100),
            request_timeout: secs(25),
            max_requests: 1024,
            queue: 256,
            overlap_secs: 5,
            seen: 12_000,
            recovery_pause: secs(5),
            recovery_timeout: secs(45),
            write_timeout: secs(10),
            ping_every: secs(30),
            ping_timeout: secs(10),
            connect_timeout: secs(10),
            backoff_base: secs(1),
            backoff_max: secs(60),
            stable_after: secs(60),
            login_hold: secs(3),
            observer_queue: 1000,
            observer_window: 8,
            observer_every: secs(1),
            observer_timeout: secs(10),
        }
    }
}
