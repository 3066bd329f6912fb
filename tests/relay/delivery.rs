//! Slow readers: nothing is dropped silently, and reading on makes good.

use std::time::Duration;

use buzz_protocol::{Event, relay_frame::RelayFrame};
use serde_json::json;

use buzz_testkit::{Author, Client, DEADLINE, Relay, eventually};

use crate::RELAY;

const FELL_BEHIND: &str = "rate-limited: fell behind; retry in 1s";
const BEHIND: &str = "buzz_live_events_total{outcome=\"fell_behind\"}";

/// Publishes large events until the relay says that someone fell behind.
async fn publish_until_someone_falls_behind(relay: &Relay, author: &Author) -> Vec<Event> {
    let mut publisher = Client::connect(relay).await;
    let mut events = Vec::new();
    while relay.metrics().await.get(BEHIND) == 0.0 {
        assert!(events.len() < 5_000, "nobody ever falls behind");
        for _ in 0..20 {
            let n = events.len();
            let event = author.note(&format!("{n} {}", "x".repeat(20_000))).sign();
            publisher.accept(&event).await;
            events.push(event);
        }
    }
    events
}

#[tokio::test]
async fn a_subscription_that_lost_events_is_closed_by_name_once_there_is_room() {
    let relay = RELAY.start_with("server.send_queue = 16").await;
    let author = Author::new(1);
    let mut slow = Client::with_small_buffer(&relay).await;
    slow.subscribe("all", json!({"kinds": [1]})).await;
    slow.subscribe("quiet", json!({"kinds": [7]})).await;
    let mut quick = Client::connect(&relay).await;
    quick.subscribe("all", json!({"kinds": [1]})).await;
    let reading = tokio::spawn(async move {
        let mut got = Vec::new();
        loop {
            let (_, event) = quick.live().await;
            if event.kind == 1 && event.content == "last" {
                return got;
            }
            got.push(event);
        }
    });

    let events = publish_until_someone_falls_behind(&relay, &author).await;
    // In order and without a gap up to the CLOSED, and nothing of that subscription after it.
    let mut got = 0;
    loop {
        match slow.next().await {
            RelayFrame::Event { sub, event } => {
                assert_eq!(sub, "all");
                assert_eq!(*event, events[got]);
                got += 1;
            }
            RelayFrame::Closed { sub, message } => {
                assert_eq!((sub.as_str(), message.as_str()), ("all", FELL_BEHIND));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(got < events.len());

    // The subscription that lost nothing lives on; the other comes back by asking again.
    let mut publisher = Client::connect(&relay).await;
    let reaction = author.event(7, "+").sign();
    publisher.accept(&reaction).await;
    assert_eq!(slow.live().await, ("quiet".to_owned(), reaction));
    let stored = slow
        .subscribe("all", json!({"kinds": [1], "limit": 5}))
        .await;
    assert_eq!(stored.len(), 5);
    let last = author.note("last").sign();
    publisher.accept(&last).await;
    assert_eq!(slow.live().await, ("all".to_owned(), last));

    let got = reading.await.expect("the quick reader");
    assert_eq!(got, events, "a quick reader loses nothing by a slow one");
}

#[tokio::test]
async fn a_long_history_to_a_slow_reader_is_not_falling_behind() {
    let relay = RELAY.start_with("server.send_queue = 4").await;
    let author = Author::new(1);
    let mut publisher = Client::connect(&relay).await;
    for n in 0..200u64 {
        let event = author.note(&"x".repeat(20_000)).at(1_000 + n).sign();
        publisher.accept(&event).await;
    }
    let mut slow = Client::with_small_buffer(&relay).await;
    slow.send(json!(["REQ", "s", {"kinds": [1], "limit": 200}]))
        .await;
    // The relay has all the time to fill what the reader leaves unread.
    let reactions = json!({"kinds": [7]});
    for n in 0..50 {
        publisher
            .accept(&author.event(7, &n.to_string()).at(2_000).sign())
            .await;
        publisher.fetch(reactions.clone()).await;
    }
    let mut stored = 0;
    loop {
        match slow.next().await {
            RelayFrame::Event { .. } => stored += 1,
            RelayFrame::Eose { .. } => break,
            other => panic!("{other:?} after {stored} events"),
        }
    }
    assert_eq!(stored, 200);
}

#[tokio::test]
async fn a_reader_that_catches_up_again_and_again_is_never_cut() {
    let relay = RELAY.start_with("server.send_queue = 8").await;
    let author = Author::new(1);
    let mut publisher = Client::connect(&relay).await;
    let mut reader = Client::with_small_buffer(&relay).await;
    reader.subscribe("s", json!({"kinds": [1]})).await;
    for round in 0..20 {
        let events: Vec<_> = (0..8)
            .map(|n| {
                author
                    .note(&format!("{round} {n} {}", "x".repeat(20_000)))
                    .sign()
            })
            .collect();
        for event in &events {
            publisher.accept(event).await;
        }
        for event in &events {
            assert_eq!(reader.live().await.1, *event);
        }
        assert_eq!(reader.frames_so_far().await, []);
    }
}

#[tokio::test]
async fn a_socket_that_takes_nothing_ends_and_its_memory_is_given_back() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut stalled = Client::with_small_buffer(&relay).await;
    stalled.subscribe("s", json!({"kinds": [1]})).await;
    let mut publisher = Client::connect(&relay).await;
    let before = relay.resident_bytes();
    for n in 0..400 {
        let event = author.note(&format!("{n} {}", "x".repeat(20_000))).sign();
        publisher.accept(&event).await;
    }
    let (began, mut n) = (std::time::Instant::now(), 0);
    while relay.metrics().await.get("buzz_ws_connections_active") > 1.0 {
        n += 1;
        let event = author
            .note(&format!("more {n} {}", "x".repeat(20_000)))
            .sign();
        publisher.accept(&event).await;
        let waited = began.elapsed();
        assert!(waited < 2 * DEADLINE, "a stalled socket is still there");
        let growth = relay.resident_bytes().saturating_sub(before);
        assert!(growth < 100 << 20, "{growth} bytes for one stalled socket");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    eventually("the gauges fall back", async || {
        let metrics = relay.metrics().await;
        let open = metrics.get("buzz_subscriptions_active");
        (open == 0.0).then_some(())
    })
    .await;
    drop(stalled);
}
