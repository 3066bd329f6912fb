//! Live events: one rule matches stored and live events alike.

use buzz_protocol::relay_frame::RelayFrame;
use serde_json::json;

use buzz_testkit::{Author, Client, events::ids};

use crate::RELAY;

#[tokio::test]
async fn every_shape_of_filter_gets_its_live_events_and_no_others() {
    let relay = RELAY.start().await;
    let authors = [Author::new(1), Author::new(2), Author::new(3)];
    let target = authors[0]
        .event(7, "")
        .at(5_000)
        .tag(&["h", "b"])
        .tag(&["e", &"ab".repeat(32)])
        .tag(&["H", "upper"])
        .sign();
    let key = |n: usize| authors[n].pubkey();
    let matching = [
        json!({}),
        json!({"ids": ["00".repeat(32), target.id]}),
        json!({"authors": [key(1), key(0)]}),
        json!({"kinds": [1, 7]}),
        json!({"kinds": [7], "authors": [key(2), key(0)]}),
        json!({"#h": ["a", "b", "c"]}),
        json!({"#h": ["b"], "#e": ["ab".repeat(32)], "kinds": [7]}),
        json!({"#H": ["upper"]}),
        json!([{"kinds": [1]}, {"#h": ["b"]}]),
        json!([{"kinds": [7]}, {"#h": ["b"]}]),
        json!({"since": 5_000, "until": 5_000}),
        json!({"limit": 0, "kinds": [7]}),
        json!({"limit": 1}),
    ];
    let others = [
        json!({"ids": ["00".repeat(32)]}),
        json!({"ids": []}),
        json!({"authors": [key(1), key(2)]}),
        json!({"kinds": [1, 6]}),
        json!({"kinds": [7], "authors": [key(1)]}),
        json!({"#h": ["a", "c"]}),
        json!({"#h": ["upper"]}),
        json!({"#H": ["b"]}),
        json!({"#h": ["b"], "#e": ["cd".repeat(32)]}),
        json!({"since": 5_001}),
        json!({"until": 4_999}),
        json!({"since": 5_001, "until": 4_999}),
        json!([{"kinds": [1]}, {"#h": ["a"]}]),
    ];
    let mut listener = Client::connect(&relay).await;
    let mut expected = Vec::new();
    for (n, filter) in matching.iter().enumerate() {
        listener
            .subscribe(&format!("match {n:02}"), filter.clone())
            .await;
        expected.push(format!("match {n:02}"));
    }
    for (n, filter) in others.iter().enumerate() {
        listener
            .subscribe(&format!("other {n:02}"), filter.clone())
            .await;
    }
    // The marker matches one subscription only, and comes last.
    let marker = authors[2].event(9, "").sign();
    listener.subscribe("marker", json!({"kinds": [9]})).await;

    let mut client = Client::connect(&relay).await;
    client.accept(&target).await;
    client.accept(&marker).await;
    let mut got = Vec::new();
    loop {
        let (sub, event) = listener.live().await;
        if sub == "marker" {
            assert_eq!(event, marker);
            break;
        }
        if event == target {
            got.push(sub);
        }
    }
    got.sort();
    assert_eq!(got, expected);
    // What is live is what is stored.
    for filter in &matching {
        if filter["limit"] == json!(0) {
            continue;
        }
        let stored = client.fetch(filter.clone()).await;
        let found = ids(&stored).contains(&target.id.to_hex());
        assert!(found || filter["limit"] == json!(1), "{filter}");
    }
    for filter in &others {
        let stored = client.fetch(filter.clone()).await;
        assert!(!stored.contains(&target), "{filter}");
    }
}

#[tokio::test]
async fn the_limit_is_for_stored_events_only() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    client.accept(&author.note("stored").sign()).await;
    let stored = client.subscribe("none", json!({"limit": 0})).await;
    assert_eq!(stored, []);
    for n in 0..5 {
        let event = author.note(&n.to_string()).sign();
        client.accept(&event).await;
        assert_eq!(client.live().await, ("none".to_owned(), event));
    }
}

#[tokio::test]
async fn an_event_is_live_once_for_each_subscription_whatever_its_filters() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let twice = json!([{"kinds": [1]}, {"authors": [author.pubkey()]}, {}]);
    client.subscribe("a", twice.clone()).await;
    client.subscribe("b", twice).await;
    let event = author.note("once").sign();
    client.accept(&event).await;
    let frames = client.frames_so_far().await;
    let mut subs: Vec<_> = frames
        .iter()
        .map(|frame| match frame {
            RelayFrame::Event { sub, .. } => sub.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    // Delivery may come after the barrier's answer: read on until both are there.
    let mut late = Vec::new();
    while subs.len() + late.len() < 2 {
        late.push(client.live().await.0);
    }
    subs.extend(late.iter().map(String::as_str));
    subs.sort_unstable();
    assert_eq!(subs, ["a", "b"]);
    let marker = author.note("marker").sign();
    client.accept(&marker).await;
    assert_eq!(client.live().await.1, marker);
}

#[tokio::test]
async fn live_events_come_in_the_order_of_their_acknowledgements() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut listener = Client::connect(&relay).await;
    listener.subscribe("s", json!({"kinds": [1]})).await;
    let mut client = Client::connect(&relay).await;
    let events: Vec<_> = (0..500)
        .map(|n| author.note(&n.to_string()).sign())
        .collect();
    for event in &events {
        let frame = format!("[\"EVENT\",{}]", event.to_json());
        client.send_text(&frame).await;
    }
    for event in &events {
        assert_eq!(listener.live().await.1, *event);
    }
}

#[tokio::test]
async fn duplicates_and_refused_events_are_not_live() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let known = author.note("known").sign();
    client.accept(&known).await;
    client.subscribe("s", json!({"limit": 0})).await;
    assert!(client.publish(&known).await.0);
    let mut forged = author.note("forged").sign();
    forged.content.push('!');
    client.refuse(&forged, "invalid: ").await;
    let marker = author.note("marker").sign();
    client.accept(&marker).await;
    assert_eq!(client.live().await.1, marker);
}

#[tokio::test]
async fn the_publisher_hears_its_own_events() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    client.subscribe("s", json!({"kinds": [1]})).await;
    let note = Author::new(1).note("echo").sign();
    client.accept(&note).await;
    assert_eq!(client.live().await, ("s".to_owned(), note));
}
