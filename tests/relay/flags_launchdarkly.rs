//! Feature flags from LaunchDarkly: the SDK that every build carries against a stand-in for its
//! service. Values arrive, stay in force through every kind of outage, and what is no whole number
//! is no value. Each test names the changes of the code that it catches.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use buzz_testkit::{
    Author, Client, Relay, eventually,
    launchdarkly::{ANY, FlagService, SDK_KEY, flag, reserve},
};

use crate::RELAY;

const HISTORY: &str = "buzz.relay.concurrency.history-reads";
const AUTH: &str = "buzz.relay.concurrency.auth";
/// Of the history gate, with the ten readers there are by default.
const CEILING: f64 = 8.0;

/// A relay that asks the service at `addr`.
async fn relay_of(addr: std::net::SocketAddr, more: &str) -> Relay {
    let settings = format!(
        "feature_flags.provider = \"launchdarkly\"\n\
         feature_flags.refresh = \"100ms\"\n\
         feature_flags.launchdarkly.relay_proxy_url = \"http://{addr}/\"\n\
         {more}\n"
    );
    RELAY
        .start_in(Relay::prepare(&settings), |command| {
            command
                .env("BUZZ_LAUNCHDARKLY_SDK_KEY", SDK_KEY)
                // Whatever proxy this machine has, the service is on it.
                .env("NO_PROXY", "*")
                .env_remove("no_proxy");
        })
        .await
}

fn history(version: u64, value: impl Into<Value>) -> Value {
    flag(HISTORY, version, &value.into())
}

fn auth(version: u64, value: impl Into<Value>) -> Value {
    flag(AUTH, version, &value.into())
}

/// Caps of history reads and logins, and whether the provider is ready.
async fn state(relay: &Relay) -> (f64, f64, f64) {
    let metrics = relay.metrics().await;
    (
        metrics.get("buzz_concurrency_limit{gate=\"history_reads\"}"),
        metrics.get("buzz_concurrency_limit{gate=\"auth\"}"),
        metrics.get("buzz_feature_flags_ready{provider=\"launchdarkly\"}"),
    )
}

async fn state_becomes(relay: &Relay, expected: (f64, f64, f64)) {
    eventually(&format!("state {expected:?}"), async || {
        (state(relay).await == expected).then_some(())
    })
    .await;
}

/// Lets several refreshes pass, and fails where the state changes in one of them.
async fn state_stays(relay: &Relay, expected: (f64, f64, f64)) {
    for _ in 0..10 {
        assert_eq!(state(relay).await, expected, "{}", relay.log.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Kills: a socket opened before the first values; polling once only; another context; a deleted
/// flag that keeps its value; a source not named in the log; a key in the log.
#[tokio::test]
async fn values_are_in_force_at_the_start_and_changes_follow() {
    let service = FlagService::start(&[history(1, 3)]);
    let relay = relay_of(service.addr, "").await;
    assert_eq!(state(&relay).await, (3.0, 0.0, 1.0));
    service.patch(&history(2, 2));
    state_becomes(&relay, (2.0, 0.0, 1.0)).await;
    service.patch(&auth(1, 5));
    state_becomes(&relay, (2.0, 5.0, 1.0)).await;
    relay
        .log
        .line_with(&["cap changed", "auth", "old=0", "new=5", "launchdarkly"])
        .await;
    service.patch(&history(3, 500));
    state_becomes(&relay, (CEILING, 5.0, 1.0)).await;
    service.delete(AUTH);
    state_becomes(&relay, (CEILING, 0.0, 1.0)).await;
    assert_eq!(service.streams(), 1);
    assert!(!relay.log.text().contains(SDK_KEY));
}

/// Kills: the SDK's own conversion, which makes 3 of 3.7; a number read from a string; the last
/// value kept where the new one is mistyped; `null` taken for an error.
#[tokio::test]
async fn what_is_no_whole_number_is_no_value() {
    let service = FlagService::start(&[history(1, "3"), auth(1, 3.7)]);
    let relay = relay_of(service.addr, "").await;
    assert_eq!(state(&relay).await, (CEILING, 0.0, 1.0));
    for key in [HISTORY, AUTH] {
        relay.log.line_with(&["not a whole number", key]).await;
    }
    let wrong = [
        json!("3"),
        json!(3.7),
        json!(true),
        json!({"a": 3}),
        json!(null),
        json!(-1),
    ];
    for (n, value) in (0..).zip(wrong) {
        service.patch(&history(2 * n + 2, 4));
        state_becomes(&relay, (4.0, 0.0, 1.0)).await;
        service.patch(&history(2 * n + 3, value));
        state_becomes(&relay, (CEILING, 0.0, 1.0)).await;
    }
}

/// Kills: values dropped with the stream; ready taken back; a service that is never asked again.
#[tokio::test]
async fn values_stay_through_an_outage() {
    let service = FlagService::start(&[history(1, 2), auth(1, 4)]);
    let relay = relay_of(service.addr, "").await;
    assert_eq!(state(&relay).await, (2.0, 4.0, 1.0));
    // First it answers errors, then it is gone.
    service.answer(Some(503));
    service.end_streams();
    service.streams_reach(2).await;
    state_stays(&relay, (2.0, 4.0, 1.0)).await;
    let later = reserve(service.addr);
    drop(service);
    relay.log.line_with(&["no stream from the service"]).await;
    state_stays(&relay, (2.0, 4.0, 1.0)).await;
    let _service = FlagService::start_on(later, &[history(2, 6), auth(1, 4)]);
    state_becomes(&relay, (6.0, 4.0, 1.0)).await;
    relay.log.line_with(&["stream is back"]).await;
}

/// Kills: a relay that does not start; ready without values; no second client, for the first one
/// gives up for good; the full wait where the answer is there already.
#[tokio::test]
async fn a_refused_key_at_the_start_is_tried_until_it_works() {
    for status in [401, 403] {
        let service = FlagService::start(&[history(1, 2)]);
        service.answer(Some(status));
        let began = Instant::now();
        let wait = "feature_flags.launchdarkly.start_wait = \"20s\"";
        let relay = relay_of(service.addr, wait).await;
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "waited for nothing"
        );
        assert_eq!(state(&relay).await, (CEILING, 0.0, 0.0));
        relay
            .log
            .line_with(&["refuses the SDK key", "no flag has a value"])
            .await;
        service.streams_reach(2).await;
        service.answer(Some(200));
        state_becomes(&relay, (2.0, 0.0, 1.0)).await;
        assert_eq!(relay.log.text().matches("refuses the SDK key").count(), 1);
        assert!(!relay.log.text().contains(SDK_KEY));
    }
}

/// Kills: no second client after a refusal on a reconnect, where the SDK still calls itself
/// initialized; the values of the first one dropped before those of the second are there.
#[tokio::test]
async fn a_key_refused_on_a_reconnect_is_tried_until_it_works() {
    let service = FlagService::start(&[history(1, 2)]);
    let relay = relay_of(service.addr, "").await;
    assert_eq!(state(&relay).await, (2.0, 0.0, 1.0));
    service.answer(Some(401));
    service.end_streams();
    relay
        .log
        .line_with(&["refuses the SDK key", "last values stay"])
        .await;
    service.streams_reach(4).await;
    state_stays(&relay, (2.0, 0.0, 1.0)).await;
    service.put_next(&[history(2, 1)]);
    service.answer(Some(200));
    state_becomes(&relay, (1.0, 0.0, 1.0)).await;
    // The new stream is one that is followed.
    service.patch(&history(3, 5));
    state_becomes(&relay, (5.0, 0.0, 1.0)).await;
}

/// Kills: a start that waits for ever, fails, or waits where no service listens; a service that
/// comes later and is not found.
#[tokio::test]
async fn a_service_that_is_away_at_the_start_holds_it_up_for_the_wait_and_no_longer() {
    let later = reserve(ANY);
    let addr = later.local_addr().expect("an address");
    let wait = "feature_flags.launchdarkly.start_wait = \"1s\"";
    let began = Instant::now();
    let relay = relay_of(addr, wait).await;
    let took = began.elapsed();
    assert!(
        took >= Duration::from_secs(1) && took < Duration::from_secs(10),
        "{took:?}"
    );
    assert_eq!(state(&relay).await, (CEILING, 0.0, 0.0));
    relay.log.line_with(&["starts on defaults"]).await;
    let mut client = Client::connect(&relay).await;
    client.accept(&Author::new(1).note("served").sign()).await;
    let _service = FlagService::start_on(later, &[history(1, 3), auth(1, 2)]);
    state_becomes(&relay, (3.0, 2.0, 1.0)).await;
}

/// Kills: a wait for the connection alone. Here it is made, and nothing is ever answered.
#[tokio::test]
async fn a_service_that_does_not_answer_holds_up_the_start_no_longer() {
    let service = FlagService::start(&[]);
    service.answer(None);
    let began = Instant::now();
    let relay = relay_of(
        service.addr,
        "feature_flags.launchdarkly.start_wait = \"500ms\"",
    )
    .await;
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(service.streams(), 1);
    assert_eq!(state(&relay).await, (CEILING, 0.0, 0.0));
}

/// Kills: a client kept that can't be initialized any more; a malformed change that moves a cap or
/// ends the stream.
#[tokio::test]
async fn a_malformed_flag_holds_up_nothing_for_good() {
    let malformed = json!({"key": "another.team", "version": 1, "on": "yes"});
    let service = FlagService::start(&[history(1, 2), malformed.clone()]);
    let relay = relay_of(service.addr, "").await;
    assert_eq!(state(&relay).await, (CEILING, 0.0, 0.0));
    relay
        .log
        .line_with(&["can't read", "no flag has a value"])
        .await;
    service.put_next(&[history(1, 2)]);
    state_becomes(&relay, (2.0, 0.0, 1.0)).await;
    service.patch(&json!({"key": HISTORY, "version": 2, "on": "yes"}));
    service.patch(&auth(1, 3));
    state_becomes(&relay, (2.0, 3.0, 1.0)).await;
    // Not on a later stream either.
    service.put_next(&[malformed]);
    let streams = service.streams();
    service.end_streams();
    service.streams_reach(streams + 1).await;
    state_stays(&relay, (2.0, 3.0, 1.0)).await;
}

/// Kills: an error of the evaluation taken for "no value". The flag names a variation that it does
/// not have.
#[tokio::test]
async fn a_flag_that_cannot_be_evaluated_keeps_its_cap() {
    let service = FlagService::start(&[history(1, 2)]);
    let relay = relay_of(service.addr, "").await;
    let mut broken = history(2, 5);
    broken["contextTargets"][0]["variation"] = json!(9);
    service.patch(&broken);
    relay.log.line_with(&["can't be evaluated", HISTORY]).await;
    state_stays(&relay, (2.0, 0.0, 1.0)).await;
    service.patch(&history(3, 4));
    state_becomes(&relay, (4.0, 0.0, 1.0)).await;
}

/// Kills: no flush at the end; a flush or a close that is waited for without a limit.
#[tokio::test]
async fn the_end_flushes_and_does_not_wait_for_a_flush_that_hangs() {
    for hangs in [false, true] {
        let service = FlagService::start(&[history(1, 2)]);
        let mut relay = relay_of(service.addr, "server.drain = \"100ms\"").await;
        assert_eq!(service.bulks(), 0);
        if hangs {
            service.hang_bulks();
        }
        let began = Instant::now();
        relay.terminate();
        assert_eq!(relay.ended().await.code(), Some(0));
        let took = began.elapsed();
        assert!(service.bulks() >= 1, "{}", relay.log.text());
        assert!(took < Duration::from_secs(15), "{took:?}");
        assert_eq!(relay.log.text().contains("were not delivered"), hangs);
    }
}
