//! Every metric the rooms report: name, help, labels. Handles are held, since looking one up by
//! name costs far more than counting. Labels come from closed sets, never from clients.

use buzz_protocol::Refusal;
use metrics::{Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge};
use metrics::{describe_histogram, gauge, histogram};

use crate::ports::Outcome;

/// Seconds-scaled histogram buckets, for the exporter.
pub const SECONDS_BUCKETS: [f64; 14] = [
    2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0,
];

/// Buckets of `buzz_write_batch_events`, for the exporter.
pub const BATCH_BUCKETS: [f64; 11] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0,
];

/// The name of the histogram that [`BATCH_BUCKETS`] belongs to.
pub const WRITE_BATCH_EVENTS: &str = "buzz_write_batch_events";

/// Held handles of all metrics.
#[derive(Clone)]
pub struct Metrics {
    /// Open sockets.
    pub connections: Gauge,
    /// Open subscriptions over all sockets.
    pub subscriptions: Gauge,
    /// EVENT frames by what became of them; adds up to the EVENT frames that arrived.
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
    /// Frames refused before any work.
    pub rejected_frames: Rejections,
    /// REST calls and handshakes refused before any work.
    pub rejected_calls: Rejections,
    /// Principals whose budgets are known.
    pub admission_principals: Gauge,
    /// Budgets forgotten before their time, since too many principals came.
    pub admission_shed: Counter,
    /// One batch of signatures, divided by its size.
    pub verify_seconds: Histogram,
    /// Events of one write batch.
    pub write_batch_events: Histogram,
    /// One write transaction.
    pub db_write_seconds: Histogram,
    /// One page of history.
    pub db_read_seconds: Histogram,
    /// One count.
    pub db_count_seconds: Histogram,
    /// One look at a key's role.
    pub db_role_seconds: Histogram,
    /// One purge of expired events.
    pub db_purge_seconds: Histogram,
    /// Database readers that panicked and were replaced.
    pub reader_restarts: Counter,
    /// Verifiers that panicked and were replaced.
    pub verifier_restarts: Counter,
}

/// What the store counts by itself.
#[derive(Debug, Clone)]
pub struct StoreMetrics {
    /// History reads sent to the primary, since the replica did not answer.
    pub replica_down: Counter,
    /// History reads sent to the primary, since the replica had not all that the query may see.
    pub replica_lag: Counter,
    /// Checkpoints that brought the whole log into the database file.
    pub checkpoint_complete: Counter,
    /// Checkpoints that brought a part of it, since readers still used the rest.
    pub checkpoint_partial: Counter,
    /// Checkpoints that did nothing, or failed.
    pub checkpoint_nothing: Counter,
}

impl StoreMetrics {
    /// Registers them with the installed recorder.
    pub fn register() -> Self {
        describe_counter!(
            "buzz_db_replica_fallbacks_total",
            "History reads that went to the primary instead of the replica."
        );
        describe_counter!(
            "buzz_db_checkpoints_total",
            "SQLite checkpoints by what they did."
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
    /// Was there before.
    pub duplicate: Counter,
    /// A newer version is stored.
    pub superseded: Counter,
    /// Deleted before.
    pub blocked: Counter,
    /// Wrong in itself: form, id, signature, time.
    pub invalid: Counter,
    /// The sender may not, or must log in first.
    pub restricted: Counter,
    /// Refused for now.
    pub rate_limited: Counter,
    /// The database failed.
    pub error: Counter,
}

impl EventOutcomes {
    /// What a sender is told of an event that the writer took; counts it where it is accepted.
    ///
    /// # Errors
    /// Says why it is not, uncounted.
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
    /// The shared counter can't be asked.
    pub unavailable: Counter,
    /// Too many are in work.
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

    /// Counts a refusal, where it is one of these.
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
    /// Wrong in itself.
    pub invalid: Counter,
    /// Not a member, where only members may log in, or too many keys on one socket.
    pub restricted: Counter,
    /// Shed at the auth gate.
    pub concurrency_limit: Counter,
    /// None came in time where one is required.
    pub timeout: Counter,
    /// The database could not be asked.
    pub error: Counter,
}

/// What one gate reports, under its name as the label `gate`.
#[derive(Clone)]
pub struct GateMetrics {
    /// The most that may be in flight; 0: no limit.
    pub limit: Gauge,
    /// Permits granted and not yet back.
    pub in_flight: Gauge,
    /// Who waits for one.
    pub waiting: Gauge,
    /// In flight above the limit.
    pub debt: Gauge,
    /// Waited too long and were refused.
    pub shed: Counter,
    /// How long those that got a permit waited for it.
    pub wait_seconds: Histogram,
}

/// What the flag refresher reports.
#[derive(Clone)]
pub struct FlagMetrics {
    /// 1 while values of the provider are in force, 0 while defaults are.
    pub ready: Gauge,
    /// Evaluations that panicked.
    pub panics: Counter,
}

impl FlagMetrics {
    /// Registers them with the installed recorder. `provider` is one of a closed set.
    pub fn register(provider: &'static str) -> Self {
        describe_gauge!(
            "buzz_feature_flags_ready",
            "1 while values of the provider are in force, 0 while defaults are."
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
            },
            history_gate: GateMetrics::register("history_reads"),
            auth_gate: GateMetrics::register("auth"),
            count_gate: GateMetrics::register("counts"),
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
    describe_counter!(
        "buzz_events_total",
        "Events sent to the relay by what became of them."
    );
    describe_counter!(
        "buzz_live_events_total",
        "Live events by what became of them, per subscription."
    );
    describe_counter!("buzz_auth_outcomes_total", "Logins (NIP-42) by outcome.");
    describe_gauge!(
        "buzz_concurrency_limit",
        "The most that may be in flight; 0: no limit."
    );
    describe_gauge!("buzz_concurrency_in_flight", "Permits in use.");
    describe_gauge!("buzz_concurrency_waiting", "Who waits for a permit.");
    describe_gauge!(
        "buzz_concurrency_debt",
        "Permits in use above the limit, since it was lowered."
    );
    describe_counter!(
        "buzz_concurrency_shed_total",
        "Waited too long for a permit and were refused."
    );
    describe_histogram!(
        "buzz_concurrency_wait_seconds",
        Unit::Seconds,
        "Time from asking for a permit to getting it."
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
        "Budgets forgotten before their time, since too many principals came."
    );
    describe_histogram!(
        "buzz_verify_seconds",
        Unit::Seconds,
        "Id and signature check of one event."
    );
    describe_histogram!(
        WRITE_BATCH_EVENTS,
        Unit::Count,
        "Events of one write batch."
    );
    describe_histogram!(
        "buzz_db_seconds",
        Unit::Seconds,
        "Database calls by operation."
    );
    describe_counter!(
        "buzz_actor_restarts_total",
        "Members of a pool that panicked and were replaced."
    );
}
