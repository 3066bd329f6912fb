//! Every metric that the actors report: its name, help text and labels. The handles are kept, since
//! a look-up by name costs far more than the count itself. Labels come from fixed sets, never from
//! clients.

use buzz_protocol::Refusal;
use metrics::{Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge};
use metrics::{describe_histogram, gauge, histogram};

use crate::ports::Outcome;

/// Histogram buckets for durations in seconds, for the exporter.
pub const SECONDS_BUCKETS: [f64; 14] = [
    2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0,
];

/// Buckets of `buzz_write_batch_events`, for the exporter.
pub const BATCH_BUCKETS: [f64; 11] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0,
];

/// The name of the histogram that [`BATCH_BUCKETS`] belongs to.
pub const WRITE_BATCH_EVENTS: &str = "buzz_write_batch_events";

/// The handles of all metrics.
#[derive(Clone)]
pub struct Metrics {
    /// Open sockets.
    pub connections: Gauge,
    /// Open subscriptions over all sockets.
    pub subscriptions: Gauge,
    /// Events by outcome. The outcomes add up to the events that were answered.
    pub events: EventOutcomes,
    /// Live events put into a socket's queue.
    pub live_delivered: Counter,
    /// Live events not delivered because the socket's queue was full.
    pub live_fell_behind: Counter,
    /// Logins by outcome.
    pub auth: AuthOutcomes,
    /// The cap of reads and counts of stored events.
    pub history_gate: GateMetrics,
    /// The cap of logins in their database checks.
    pub auth_gate: GateMetrics,
    /// The share of the history cap that counts may take.
    pub count_gate: GateMetrics,
    /// Lets rechecks of members through to the auth gate one by one.
    pub recheck_gate: GateMetrics,
    /// Frames refused before any work.
    pub rejected_frames: Rejections,
    /// REST calls and handshakes refused before any work.
    pub rejected_calls: Rejections,
    /// Principals whose budgets are known.
    pub admission_principals: Gauge,
    /// Budgets removed early because there were too many principals.
    pub admission_shed: Counter,
    /// The time to verify one batch of signatures, divided by its size.
    pub verify_seconds: Histogram,
    /// Events in one write batch.
    pub write_batch_events: Histogram,
    /// The time of one write transaction.
    pub db_write_seconds: Histogram,
    /// The time to read one page of history.
    pub db_read_seconds: Histogram,
    /// The time of one count.
    pub db_count_seconds: Histogram,
    /// The time to look up a key's role.
    pub db_role_seconds: Histogram,
    /// The time to purge expired events once.
    pub db_purge_seconds: Histogram,
    /// Database readers that panicked and were replaced.
    pub reader_restarts: Counter,
    /// Verifiers that panicked and were replaced.
    pub verifier_restarts: Counter,
}

/// The metrics that the store itself counts.
#[derive(Debug, Clone)]
pub struct StoreMetrics {
    /// History reads sent to the primary because the replica did not answer.
    pub replica_down: Counter,
    /// History reads sent to the primary because the replica did not yet have everything that the
    /// query may see.
    pub replica_lag: Counter,
    /// Checkpoints that moved the whole log into the database file.
    pub checkpoint_complete: Counter,
    /// Checkpoints that moved a part of the log, because readers still used the rest.
    pub checkpoint_partial: Counter,
    /// Checkpoints that moved nothing, or failed.
    pub checkpoint_nothing: Counter,
}

impl StoreMetrics {
    /// Registers these metrics with the installed recorder.
    pub fn register() -> Self {
        describe_counter!(
            "buzz_db_replica_fallbacks_total",
            "History reads that went to the primary instead of the replica."
        );
        describe_counter!(
            "buzz_db_checkpoints_total",
            "SQLite checkpoints by outcome."
        );
        let replica =
            |reason: &'static str| counter!("buzz_db_replica_fallbacks_total", "reason" => reason);
        let checkpoint =
            |outcome: &'static str| counter!("buzz_db_checkpoints_total", "outcome" => outcome);
        Self {
            replica_down: replica("down"),
            replica_lag: replica("lag"),
            checkpoint_complete: checkpoint("complete"),
            checkpoint_partial: checkpoint("partial"),
            checkpoint_nothing: checkpoint("nothing"),
        }
    }
}

/// Counters of `buzz_events_total`.
#[derive(Clone)]
pub struct EventOutcomes {
    /// Stored, or passed on if ephemeral.
    pub accepted: Counter,
    /// Already stored.
    pub duplicate: Counter,
    /// A newer version is stored.
    pub superseded: Counter,
    /// Deleted before.
    pub blocked: Counter,
    /// The event itself is invalid: its form, id, signature or time.
    pub invalid: Counter,
    /// The sender is not allowed to publish it, or must log in first.
    pub restricted: Counter,
    /// Refused for now; the sender may retry.
    pub rate_limited: Counter,
    /// The database failed.
    pub error: Counter,
}

impl EventOutcomes {
    /// The message for the sender of an event that the writer has handled. An accepted event is
    /// counted.
    ///
    /// # Errors
    /// The reason why the event is not accepted. It is not counted.
    pub fn verdict(&self, result: Result<Outcome, Refusal>) -> Result<&'static str, Refusal> {
        let outcome = result?;
        let message = outcome.verdict()?;
        match outcome {
            Outcome::Duplicate => self.duplicate.increment(1),
            _ => self.accepted.increment(1),
        }
        Ok(message)
    }

    /// Counts an event that was not accepted.
    pub fn count_refused(&self, refusal: &Refusal) {
        match refusal.prefix() {
            "invalid" => self.invalid.increment(1),
            "restricted" | "auth-required" => self.restricted.increment(1),
            "rate-limited" => self.rate_limited.increment(1),
            "duplicate" => self.superseded.increment(1),
            "blocked" => self.blocked.increment(1),
            _ => self.error.increment(1),
        }
    }
}

/// Counters of `buzz_admission_rejections_total` for one transport.
#[derive(Clone)]
pub struct Rejections {
    /// The quota is used up.
    pub quota: Counter,
    /// The shared budget does not answer.
    pub unavailable: Counter,
    /// No handler permit is free.
    pub handler: Counter,
}

impl Rejections {
    fn register(transport: &'static str) -> Self {
        let counter = |reason: &'static str| {
            counter!(
                "buzz_admission_rejections_total", "transport" => transport, "reason" => reason
            )
        };
        Self {
            quota: counter("quota"),
            unavailable: counter("unavailable"),
            handler: counter("handler"),
        }
    }

    /// Counts a refusal, if it has one of these reasons.
    pub fn count(&self, refusal: &Refusal) {
        match refusal {
            Refusal::Quota { .. } => self.quota.increment(1),
            Refusal::SharedAdmissionUnavailable => self.unavailable.increment(1),
            Refusal::TooManyRequests => self.handler.increment(1),
            _ => {}
        }
    }
}

/// Counters of `buzz_auth_outcomes_total`.
#[derive(Clone)]
pub struct AuthOutcomes {
    /// Logged in.
    pub ok: Counter,
    /// The login itself is invalid.
    pub invalid: Counter,
    /// The key is not a member although only members may log in, or the socket has too many keys.
    pub restricted: Counter,
    /// Waited too long at the auth gate.
    pub concurrency_limit: Counter,
    /// No login came in time although one is required.
    pub timeout: Counter,
    /// The database did not answer.
    pub error: Counter,
    /// The client went away while its login was checked.
    pub abandoned: Counter,
}

/// The metrics of one gate. The gate's name is the label `gate`.
#[derive(Clone)]
pub struct GateMetrics {
    /// The most operations that may be in flight. 0: no limit.
    pub limit: Gauge,
    /// Permits that are granted and not yet released.
    pub in_flight: Gauge,
    /// Operations that wait for a permit.
    pub waiting: Gauge,
    /// Permits in use above a limit that was lowered.
    pub debt: Gauge,
    /// Operations that waited too long and were refused.
    pub shed: Counter,
    /// The time from the request for a permit to its grant.
    pub wait_seconds: Histogram,
}

/// The metrics of the flag refresher.
#[derive(Clone)]
pub struct FlagMetrics {
    /// 1 while values of the provider are in force, even if they are old. 0 while there are none
    /// yet.
    pub ready: Gauge,
    /// Evaluations that panicked.
    pub panics: Counter,
}

impl FlagMetrics {
    /// Registers these metrics with the installed recorder. `provider` is from a fixed set.
    pub fn register(provider: &'static str) -> Self {
        describe_gauge!(
            "buzz_feature_flags_ready",
            "1 while values of the provider are in force, 0 while there are none yet."
        );
        describe_counter!(
            "buzz_concurrency_limit_refresh_panics_total",
            "Evaluations of feature flags that panicked."
        );
        Self {
            ready: gauge!("buzz_feature_flags_ready", "provider" => provider),
            panics: counter!("buzz_concurrency_limit_refresh_panics_total"),
        }
    }
}

impl GateMetrics {
    pub(crate) fn register(gate: &'static str) -> Self {
        Self {
            limit: gauge!("buzz_concurrency_limit", "gate" => gate),
            in_flight: gauge!("buzz_concurrency_in_flight", "gate" => gate),
            waiting: gauge!("buzz_concurrency_waiting", "gate" => gate),
            debt: gauge!("buzz_concurrency_debt", "gate" => gate),
            shed: counter!("buzz_concurrency_shed_total", "gate" => gate),
            wait_seconds: histogram!("buzz_concurrency_wait_seconds", "gate" => gate),
        }
    }
}

impl Metrics {
    /// Registers every metric with the installed recorder.
    pub fn register() -> Self {
        describe();
        let event = |outcome: &'static str| counter!("buzz_events_total", "outcome" => outcome);
        let auth =
            |outcome: &'static str| counter!("buzz_auth_outcomes_total", "outcome" => outcome);
        let live = |outcome: &'static str| counter!("buzz_live_events_total", "outcome" => outcome);
        let restarts =
            |actor: &'static str| counter!("buzz_actor_restarts_total", "actor" => actor);
        let db = |op: &'static str| histogram!("buzz_db_seconds", "op" => op);
        Self {
            connections: gauge!("buzz_ws_connections_active"),
            subscriptions: gauge!("buzz_subscriptions_active"),
            events: EventOutcomes {
                accepted: event("accepted"),
                duplicate: event("duplicate"),
                superseded: event("superseded"),
                blocked: event("blocked"),
                invalid: event("invalid"),
                restricted: event("restricted"),
                rate_limited: event("rate_limited"),
                error: event("error"),
            },
            live_delivered: live("delivered"),
            live_fell_behind: live("fell_behind"),
            auth: AuthOutcomes {
                ok: auth("ok"),
                invalid: auth("invalid"),
                restricted: auth("restricted"),
                concurrency_limit: auth("concurrency_limit"),
                timeout: auth("timeout"),
                error: auth("error"),
                abandoned: auth("abandoned"),
            },
            history_gate: GateMetrics::register("history_reads"),
            auth_gate: GateMetrics::register("auth"),
            count_gate: GateMetrics::register("counts"),
            recheck_gate: GateMetrics::register("rechecks"),
            rejected_frames: Rejections::register("websocket"),
            rejected_calls: Rejections::register("http"),
            admission_principals: gauge!("buzz_admission_principals"),
            admission_shed: counter!("buzz_admission_shed_total"),
            verify_seconds: histogram!("buzz_verify_seconds"),
            write_batch_events: histogram!(WRITE_BATCH_EVENTS),
            db_write_seconds: db("write"),
            db_read_seconds: db("read"),
            db_count_seconds: db("count"),
            db_role_seconds: db("role"),
            db_purge_seconds: db("purge"),
            reader_restarts: restarts("db_reader"),
            verifier_restarts: restarts("verifier"),
        }
    }
}

fn describe() {
    describe_gauge!("buzz_ws_connections_active", "Open WebSocket connections.");
    describe_gauge!(
        "buzz_subscriptions_active",
        "Open subscriptions over all connections."
    );
    describe_counter!("buzz_events_total", "Events sent to the relay, by outcome.");
    describe_counter!(
        "buzz_live_events_total",
        "Live events by outcome, counted once for each subscription."
    );
    describe_counter!("buzz_auth_outcomes_total", "Logins (NIP-42) by outcome.");
    describe_gauge!(
        "buzz_concurrency_limit",
        "The most operations that may be in flight; 0: no limit."
    );
    describe_gauge!("buzz_concurrency_in_flight", "Permits in use.");
    describe_gauge!(
        "buzz_concurrency_waiting",
        "Operations that wait for a permit."
    );
    describe_gauge!(
        "buzz_concurrency_debt",
        "Permits in use above a limit that was lowered."
    );
    describe_counter!(
        "buzz_concurrency_shed_total",
        "Operations that waited too long for a permit and were refused."
    );
    describe_histogram!(
        "buzz_concurrency_wait_seconds",
        Unit::Seconds,
        "Time from the request for a permit to its grant."
    );
    describe_counter!(
        "buzz_admission_rejections_total",
        "Frames, calls and handshakes refused before any work."
    );
    describe_gauge!(
        "buzz_admission_principals",
        "Keys and addresses whose budgets are known."
    );
    describe_counter!(
        "buzz_admission_shed_total",
        "Budgets removed early because there were too many principals."
    );
    describe_histogram!(
        "buzz_verify_seconds",
        Unit::Seconds,
        "Time to check the id and signature of one event."
    );
    describe_histogram!(
        WRITE_BATCH_EVENTS,
        Unit::Count,
        "Events in one write batch."
    );
    describe_histogram!(
        "buzz_db_seconds",
        Unit::Seconds,
        "Time of database calls, by operation."
    );
    describe_counter!(
        "buzz_actor_restarts_total",
        "Members of a pool that panicked and were replaced."
    );
}
