//! What REST calls spend, and what they are told when it is spent.

use serde_json::json;

use buzz_testkit::{
    Author, Client,
    http::Response,
    relay::DEFAULT_QUOTAS,
    rest::{post, publish},
};

use crate::RELAY;

/// The wait that a 429 names, where it is one of that budget and says so in both places.
fn retry_secs(response: &Response, limit_type: &str) -> u64 {
    assert_eq!(response.status, 429, "{}", response.body);
    let retry = response.header("retry-after").expect("a wait");
    let secs: u64 = retry.parse().expect("whole seconds");
    assert_eq!(
        response.json(),
        json!({"error": "rate_limited", "limit_type": limit_type, "retry_after_secs": secs})
    );
    let origin = response.header("access-control-allow-origin");
    assert_eq!(origin, Some("*"), "a page must be able to read it");
    secs
}

/// Mutants: one call more or less; a budget shared by two keys; frames of a socket counted too.
#[tokio::test]
async fn calls_are_counted_for_each_key_and_role() {
    let relay = RELAY
        .start_with("admission.human_api_calls_per_min = 3\nadmission.agent_api_calls_per_min = 5")
        .await;
    let (human, other, agent) = (Author::new(1), Author::new(2), Author::new(3));
    let added = RELAY
        .command(relay.dir())
        .args(["member", "add", &agent.pubkey(), "--role", "agent"])
        .output()
        .expect("the relay's binary");
    assert!(added.status.success(), "{added:?}");
    let mut client = Client::connect(&relay).await;
    client.log_in(&human).await;
    for (key, calls) in [(&human, 3), (&other, 3), (&agent, 5)] {
        for path in ["/count", "/query"].into_iter().cycle().take(calls) {
            let response = post(&relay, key, path, "{}").await;
            assert_eq!(response.status, 200, "{}", response.body);
            client.fetch(json!({"limit": 1})).await;
        }
        for path in ["/count", "/query", "/events"] {
            let refused = post(&relay, key, path, "{}").await;
            let secs = retry_secs(&refused, "api_calls");
            assert!((1..=60).contains(&secs), "{secs}");
        }
    }
    client.accept(&human.note("sockets go on").sign()).await;
    let rejected = "buzz_admission_rejections_total{transport=\"http\",reason=\"quota\"}";
    assert_eq!(relay.metrics().await.get(rejected), 9.0);
    relay.log.line_with(&["denied/quota", "POST /count"]).await;
}

/// Mutants: an unsigned or repeated request that is paid for by its key.
#[tokio::test]
async fn nobody_else_spends_a_keys_calls() {
    use buzz_testkit::rest::{BASE, authorized_by, post_with};
    let relay = RELAY
        .start_with("admission.human_api_calls_per_min = 2")
        .await;
    let author = Author::new(1);
    let url = format!("{BASE}/count");
    let used = author.authorization(&url, "{}").sign();
    let mut forged = author.authorization(&url, "{}").sign();
    forged.sig = used.sig;
    for event in [&used, &used, &used, &forged, &forged] {
        post_with(&relay, "/count", &authorized_by(event), "{}").await;
    }
    let second = post(&relay, &author, "/count", "{}").await;
    assert_eq!(second.status, 200, "{}", second.body);
    retry_secs(&post(&relay, &author, "/count", "{}").await, "api_calls");
}

/// Mutants: events that spend no message; ephemeral ones that do; sockets with a budget of their
/// own.
#[tokio::test]
async fn a_stored_event_spends_a_message_and_an_ephemeral_one_none() {
    let relay = RELAY.start_with(DEFAULT_QUOTAS).await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    client.log_in(&author).await;
    for n in 0..10 {
        client
            .accept(&author.note(&format!("socket {n}")).sign())
            .await;
    }
    for n in 0..50 {
        let ephemeral = author.event(20_001, &n.to_string()).sign();
        assert!(publish(&relay, &author, &ephemeral).await.0);
        let note = author.note(&n.to_string()).sign();
        assert!(publish(&relay, &author, &note).await.0);
    }
    let one_more = author.note("one more").sign().to_json();
    let refused = post(&relay, &author, "/events", &one_more).await;
    retry_secs(&refused, "messages");
    let ephemeral = author.event(20_001, "still").sign();
    assert!(publish(&relay, &author, &ephemeral).await.0);
    let count = post(&relay, &author, "/count", "{\"kinds\":[1]}").await;
    assert_eq!(count.json(), json!({"count": 60}));
}
