//! Replies belong to a subscription's generation: what an older REQ of the same id asked for is
//! never mixed into the newer one's answer, nor sent after a CLOSE.

use buzz_protocol::{Event, relay_frame::RelayFrame};
use serde_json::json;

use buzz_testkit::{Author, Client, Relay, client::request};

use crate::RELAY;

/// Enough stored events that reading them takes a while.
async fn with_history(relay: &Relay, author: &Author) -> Client {
    let mut client = Client::connect(relay).await;
    let events: Vec<_> = (0..500u64)
        .map(|n| author.note(&"x".repeat(2_000)).at(1_000 + n).sign())
        .collect();
    for event in &events {
        let frame = format!("[\"EVENT\",{}]", event.to_json());
        client.send_text(&frame).await;
    }
    for event in &events {
        assert!(client.verdict(event).await.0);
    }
    client
}

fn of_sub(frames: &[RelayFrame], name: &str) -> (Vec<Event>, usize) {
    let mut events = Vec::new();
    let mut eoses = 0;
    for frame in frames {
        match frame {
            RelayFrame::Event { sub, event } if sub == name => {
                assert_eq!(eoses, 0, "a stored event after EOSE");
                events.push((**event).clone());
            }
            RelayFrame::Eose { sub } if sub == name => eoses += 1,
            other => panic!("{other:?}"),
        }
    }
    (events, eoses)
}

#[tokio::test]
async fn a_replaced_request_gives_one_eose_after_the_second_ones_events() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = with_history(&relay, &author).await;
    let mark = Author::new(2).event(7, "the second one's").at(5_000).sign();
    client.accept(&mark).await;
    for _ in 0..20 {
        client.send(json!(["REQ", "s", {"kinds": [1]}])).await;
        client.send(json!(["REQ", "s", {"kinds": [7]}])).await;
        // Answers may come before and after the barrier's.
        let mut frames = Vec::new();
        while !matches!(frames.last(), Some(RelayFrame::Eose { .. })) {
            frames.push(client.next().await);
        }
        let (events, eoses) = of_sub(&frames, "s");
        assert_eq!(eoses, 1);
        // The first request's events may have been sent before the second was read.
        assert_eq!(events.last(), Some(&mark));
        assert_eq!(client.frames_so_far().await, [], "something after EOSE");
        client.send(json!(["CLOSE", "s"])).await;
    }
}

#[tokio::test]
async fn a_closed_request_gives_no_eose_and_nothing_late() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = with_history(&relay, &author).await;
    for _ in 0..20 {
        client.send(json!(["REQ", "s", {"kinds": [1]}])).await;
        client.send(json!(["CLOSE", "s"])).await;
        client.send(json!(["REQ", "after", {"limit": 0}])).await;
        let mut frames = Vec::new();
        loop {
            match client.next().await {
                RelayFrame::Eose { sub } if sub == "after" => break,
                frame => frames.push(frame),
            }
        }
        let (_, eoses) = of_sub(&frames, "s");
        // A read that ended before CLOSE was read may have said so, with all its events.
        if eoses > 0 {
            assert_eq!(frames.len(), 501);
        }
        client.send(json!(["CLOSE", "after"])).await;
        assert_eq!(client.frames_so_far().await, [], "something after CLOSE");
    }
}

#[tokio::test]
async fn nothing_live_is_sent_after_a_close() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut publisher = Client::connect(&relay).await;
    let mut client = Client::connect(&relay).await;
    for round in 0..10u64 {
        client
            .subscribe("s", json!({"kinds": [1], "limit": 0}))
            .await;
        let events: Vec<_> = (0..40)
            .map(|n| author.note(&n.to_string()).at(1_000 + round).sign())
            .collect();
        for event in &events {
            let frame = format!("[\"EVENT\",{}]", event.to_json());
            publisher.send_text(&frame).await;
        }
        client.live().await;
        client.send(json!(["CLOSE", "s"])).await;
        // Events decided before the CLOSE may precede the barrier, nothing follows it.
        client.frames_so_far().await;
        for event in &events {
            assert!(publisher.verdict(event).await.0);
        }
        client
            .subscribe("marker", json!({"kinds": [7], "limit": 0}))
            .await;
        let marker = author.event(7, &round.to_string()).sign();
        publisher.accept(&marker).await;
        assert_eq!(client.live().await, ("marker".to_owned(), marker));
        client.send(json!(["CLOSE", "marker"])).await;
    }
}

#[tokio::test]
async fn a_replaced_subscription_gets_live_events_by_its_new_filters_only() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    client.subscribe("s", json!({"kinds": [1]})).await;
    client.subscribe("s", json!({"kinds": [7]})).await;
    client.accept(&author.note("no").sign()).await;
    let reaction = author.event(7, "+").sign();
    client.accept(&reaction).await;
    assert_eq!(client.live().await, ("s".to_owned(), reaction));
}

#[tokio::test]
async fn a_refused_request_ends_the_subscription_whose_id_it_takes() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    for bad in [
        json!({"kinds": ["x"]}),
        json!({"search": "x"}),
        json!([{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}]),
    ] {
        client.subscribe("s", json!({"limit": 0})).await;
        client.send(request("REQ", "s", bad.clone())).await;
        let closed = client.next().await;
        assert!(
            matches!(&closed, RelayFrame::Closed { sub, .. } if sub == "s"),
            "{closed:?}"
        );
        // CLOSED says that the subscription is over, so nothing more may come for it.
        client
            .subscribe("marker", json!({"kinds": [1], "limit": 0}))
            .await;
        let note = author.note(&bad.to_string()).sign();
        client.accept(&note).await;
        assert_eq!(client.live().await, ("marker".to_owned(), note));
        assert_eq!(client.frames_so_far().await, [], "{bad}");
        client.send(json!(["CLOSE", "marker"])).await;
    }
}
