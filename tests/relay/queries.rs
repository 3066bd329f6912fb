//! Stored events: the same set and order as a brute-force filter gives, at every call.

use buzz_protocol::Event;
use serde_json::{Value, json};

use buzz_testkit::{
    Author, Client, Relay,
    events::{brute_force, ids},
};

use crate::RELAY;

/// Events that share seconds, authors, kinds and tags in many combinations.
fn population() -> Vec<Event> {
    (0..300u64)
        .map(|n| {
            let author = Author::new(n % 7);
            let kind = [1, 4, 7, 1111][(n % 4) as usize];
            let mut draft = author
                .event(kind, &format!("event {n}"))
                .at(1_000 + n / 10)
                .tag(&["t", ["red", "green", "blue"][(n % 3) as usize]]);
            if n % 5 == 0 {
                draft = draft
                    .tag(&["t", "extra"])
                    .tag(&["h", &format!("h{}", n % 2)]);
            }
            if n % 11 == 0 {
                // The same value twice, and a value that only another letter has.
                draft = draft
                    .tag(&["t", "extra"])
                    .tag(&["T", "red"])
                    .tag(&["long", "red"]);
            }
            draft.sign()
        })
        .collect()
}

async fn with_population() -> (Relay, Client, Vec<Event>) {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let events = population();
    for event in &events {
        let frame = format!("[\"EVENT\",{}]", event.to_json());
        client.send_text(&frame).await;
    }
    for event in &events {
        assert_eq!(client.verdict(event).await, (true, String::new()));
    }
    (relay, client, events)
}

fn filters(events: &[Event]) -> Vec<Value> {
    let keys: Vec<_> = (0..9).map(|n| Author::new(n).pubkey()).collect();
    vec![
        json!({}),
        json!({"limit": 1}),
        json!({"limit": 17}),
        json!({"ids": ids(&events[3..23])}),
        json!({"ids": ids(&events[3..23]), "limit": 5, "kinds": [1, 4]}),
        json!({"ids": [events[0].id, events[0].id]}),
        json!({"authors": [keys[2]], "limit": 20}),
        json!({"authors": keys, "limit": 50}),
        json!({"authors": [keys[1], keys[8], keys[1]]}),
        json!({"kinds": [7], "limit": 33}),
        json!({"kinds": [7, 4, 65535], "limit": 33}),
        json!({"authors": [keys[3], keys[4]], "kinds": [1, 7], "limit": 11}),
        json!({"#t": ["red"], "limit": 40}),
        json!({"#t": ["red", "extra", "none"], "limit": 60}),
        json!({"#t": ["extra"]}),
        json!({"#T": ["red"]}),
        json!({"#T": ["green"]}),
        json!({"#h": ["h0", "h1", "h2"], "limit": 9}),
        json!({"#t": ["extra"], "#h": ["h1"]}),
        json!({"#t": ["blue"], "kinds": [4], "authors": keys[..3]}),
        json!({"since": 1010, "until": 1012}),
        json!({"since": 1012, "until": 1010}),
        json!({"since": 1010, "limit": 15}),
        json!({"until": 1010, "limit": 15}),
        json!({"until": 1010, "limit": 15, "kinds": [1]}),
        json!({"until": 1010, "#t": ["red"], "limit": 15}),
        json!({"ids": []}),
        json!({"authors": []}),
        json!({"kinds": []}),
        json!({"#t": []}),
        json!({"limit": 0}),
    ]
}

#[tokio::test]
async fn every_filter_gives_what_brute_force_gives_in_the_same_order() {
    let (_relay, mut client, events) = with_population().await;
    for filter in filters(&events) {
        let expected = brute_force(&events, &filter);
        assert_eq!(
            ids(&client.fetch(filter.clone()).await),
            ids(&expected),
            "{filter}"
        );
    }
}

#[tokio::test]
async fn several_filters_give_their_union_once_in_order() {
    let (_relay, mut client, events) = with_population().await;
    let all = filters(&events);
    for pair in all.windows(2) {
        let mut expected = brute_force(&events, &pair[0]);
        for event in brute_force(&events, &pair[1]) {
            if !expected.contains(&event) {
                expected.push(event);
            }
        }
        let expected = brute_force(&expected, &json!({}));
        let got = client.fetch(json!(pair)).await;
        assert_eq!(ids(&got), ids(&expected), "{pair:?}");
    }
}

#[tokio::test]
async fn twenty_five_events_of_one_second_come_in_the_same_order_at_each_call() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let author = Author::new(1);
    let events: Vec<_> = (0..25)
        .map(|n| author.note(&format!("note {n}")).at(5_000).sign())
        .collect();
    for event in &events {
        client.accept(event).await;
    }
    let sorted = brute_force(&events, &json!({}));
    for filter in [
        json!({"limit": 10}),
        json!({"kinds": [1], "limit": 10}),
        json!({"authors": [author.pubkey()], "limit": 10}),
        json!({"authors": [author.pubkey()], "kinds": [1], "limit": 10, "until": 5_000}),
        json!({"ids": ids(&events), "limit": 10}),
    ] {
        for _ in 0..5 {
            let page = client.fetch(filter.clone()).await;
            assert_eq!(ids(&page), ids(&sorted[..10]), "{filter}");
        }
    }
}

#[tokio::test]
async fn without_a_limit_the_relays_own_is_in_force() {
    let relay = RELAY.start_with("limits.max_limit = 20").await;
    let mut client = Client::connect(&relay).await;
    let author = Author::new(1);
    let events: Vec<_> = (0..30)
        .map(|n| author.note("").at(1_000 + n).sign())
        .collect();
    for event in &events {
        client.accept(event).await;
    }
    for filter in [json!({}), json!({"limit": 999_999}), json!({"limit": 21})] {
        let got = client.fetch(filter.clone()).await;
        assert_eq!(ids(&got), ids(&brute_force(&events, &json!({"limit": 20}))));
    }
    let got = client.fetch(json!({"limit": 20})).await;
    assert_eq!(got.len(), 20);
}

#[tokio::test]
async fn a_stored_duplicate_is_a_success_that_says_so() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let note = Author::new(1).note("once").sign();
    client.accept(&note).await;
    let again = client.publish(&note).await;
    assert_eq!(
        again,
        (true, "duplicate: already have this event".to_owned())
    );
    assert_eq!(client.count(json!({"kinds": [1]})).await, Ok(1));
}

#[tokio::test]
async fn stored_events_survive_a_restart() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let note = Author::new(1).note("kept").sign();
    client.accept(&note).await;
    let mut relay = relay;
    relay.terminate();
    assert!(relay.ended().await.success());
    let relay = relay.again().await;
    let mut client = Client::connect(&relay).await;
    assert_eq!(client.fetch(json!({})).await, [note]);
}
