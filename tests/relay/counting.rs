//! COUNT (NIP-45).

use buzz_protocol::relay_frame::RelayFrame;
use serde_json::json;

use buzz_testkit::{Author, Client};

use crate::RELAY;

#[tokio::test]
async fn overlapping_filters_count_each_event_once() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    for n in 0..10 {
        let draft = author.note("").at(1_000 + n);
        client.accept(&draft.tag(&["t", "x"]).sign()).await;
    }
    let key = author.pubkey();
    for (filters, expected) in [
        (json!([{"kinds": [1]}, {"authors": [key]}]), 10),
        (json!([{"#t": ["x"]}, {"#t": ["x"], "kinds": [1]}, {}]), 10),
        (json!([{"until": 1_004}, {"since": 1_003}]), 10),
        (json!([{"until": 1_001}, {"since": 1_008}]), 4),
        (json!([{"kinds": [1], "#t": ["x", "x", "y"]}]), 10),
        (json!([{"kinds": [2]}, {"ids": []}]), 0),
        (json!([{"since": 2, "until": 1}]), 0),
    ] {
        assert_eq!(
            client.count(filters.clone()).await,
            Ok(expected),
            "{filters}"
        );
    }
}

#[tokio::test]
async fn counts_are_not_cut_by_limits() {
    let relay = RELAY.start_with("limits.max_limit = 3").await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    for n in 0..10 {
        client.accept(&author.note("").at(1_000 + n).sign()).await;
    }
    assert_eq!(client.count(json!({"limit": 2})).await, Ok(10));
    assert_eq!(
        client.count(json!([{"kinds": [1]}, {"limit": 1}])).await,
        Ok(10)
    );
}

#[tokio::test]
async fn a_bad_count_is_closed_by_its_query_id() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    client.send(json!(["COUNT", "q", {"kinds": ["x"]}])).await;
    match client.next().await {
        RelayFrame::Closed { sub, message } => {
            assert_eq!(sub, "q");
            assert!(message.starts_with("invalid: "), "{message}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.count(json!({})).await, Ok(0));
}

#[tokio::test]
async fn a_count_under_a_subscriptions_id_leaves_the_subscription() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    client.subscribe("s", json!({"kinds": [1]})).await;
    client.send(json!(["COUNT", "s", {"kinds": [1]}])).await;
    assert_eq!(
        client.next().await,
        RelayFrame::Count {
            query: "s".into(),
            count: 0
        }
    );
    let note = author.note("").sign();
    client.accept(&note).await;
    assert_eq!(client.live().await, ("s".to_owned(), note));
}
