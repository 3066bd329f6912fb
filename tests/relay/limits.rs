//! NIP-11: what the document advertises is what is enforced. Each test reads the limit from the
//! document, meets it, and crosses it by one.

use buzz_protocol::relay_frame::RelayFrame;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use buzz_testkit::{Author, Client, Relay, client::request, events::ids, http, now};

use crate::RELAY;

/// Every limit small, so that crossing it is cheap.
const SMALL: &str = r#"
limits.max_subscriptions = 7
limits.max_filters = 4
limits.max_limit = 9
limits.max_subid_length = 33
limits.max_event_tags = 12
limits.created_at_future = "5m"
limits.created_at_past = "1h"
server.max_frame_bytes = 5000
"#;

async fn limitation(relay: &Relay) -> Value {
    let answer = http::relay_information(relay.addr).await;
    assert_eq!(answer.status, 200);
    answer.json()["limitation"].clone()
}

fn number(limitation: &Value, name: &str) -> usize {
    let value = limitation[name].as_u64();
    let value = value.unwrap_or_else(|| panic!("no {name} in {limitation}"));
    usize::try_from(value).expect("a size")
}

async fn refused(client: &mut Client, frame: Value, sub: &str) {
    client.send(frame).await;
    let why = client
        .find(|frame| match frame {
            RelayFrame::Closed { sub: of, message } if of == sub => Some(message.clone()),
            RelayFrame::Eose { sub: of } if of == sub => panic!("{of} was accepted"),
            _ => None,
        })
        .await;
    assert!(why.starts_with("invalid: "), "{why}");
}

#[tokio::test]
async fn the_document_tells_what_the_relay_is() {
    let relay = RELAY.start().await;
    let answer = http::relay_information(relay.addr).await;
    let kind = answer.header("content-type").expect("a content type");
    assert!(kind.starts_with("application/nostr+json"), "{kind}");
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    let document = answer.json();
    for nip in [1, 9, 11, 40, 42, 45, 70] {
        let nips = document["supported_nips"].as_array().expect("a list");
        assert!(nips.contains(&json!(nip)), "NIP-{nip} is not named");
    }
    assert!(document["software"].is_string());
    assert_eq!(document["version"], json!(env!("CARGO_PKG_VERSION")));
    let limitation = &document["limitation"];
    for (name, value) in [
        ("max_subscriptions", 1024),
        ("max_filters", 10),
        ("max_limit", 500),
        ("max_subid_length", 64),
        ("max_event_tags", 5000),
        ("max_message_length", 262_144),
        ("created_at_upper_limit", 900),
    ] {
        assert_eq!(number(limitation, name), value, "{name}");
    }
    assert_eq!(limitation["auth_required"], json!(false));
}

#[tokio::test]
async fn the_document_follows_the_configuration() {
    let relay = RELAY
        .start_with(&format!("{SMALL}auth.required = true"))
        .await;
    let limitation = limitation(&relay).await;
    for (name, value) in [
        ("max_subscriptions", 7),
        ("max_filters", 4),
        ("max_limit", 9),
        ("max_subid_length", 33),
        ("max_event_tags", 12),
        ("max_message_length", 5000),
        ("created_at_upper_limit", 300),
        ("created_at_lower_limit", 3600),
    ] {
        assert_eq!(number(&limitation, name), value, "{name}");
    }
    assert_eq!(limitation["auth_required"], json!(true));
}

#[tokio::test]
async fn a_plain_request_is_told_that_this_is_a_relay() {
    let relay = RELAY.start().await;
    let answer = http::get(relay.addr, "/").await;
    assert!(answer.status < 500, "{}", answer.status);
    assert!(
        answer.body.contains("ws://relay.test/chat"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn max_subscriptions() {
    let relay = RELAY.start_with(SMALL).await;
    let max = number(&limitation(&relay).await, "max_subscriptions");
    let mut client = Client::connect(&relay).await;
    for n in 0..max {
        client
            .subscribe(&format!("s{n}"), json!({"limit": 0}))
            .await;
    }
    refused(&mut client, json!(["REQ", "one more", {}]), "one more").await;
    // Replacing one is no further one, and closing one makes room.
    client.subscribe("s0", json!({"limit": 0})).await;
    client.send(json!(["CLOSE", "s1"])).await;
    client.subscribe("one more", json!({"limit": 0})).await;
    assert_eq!(client.count(json!({})).await, Ok(0));
}

#[tokio::test]
async fn max_filters() {
    let relay = RELAY.start_with(SMALL).await;
    let max = number(&limitation(&relay).await, "max_filters");
    let mut client = Client::connect(&relay).await;
    client.subscribe("s", json!(vec![json!({}); max])).await;
    for verb in ["REQ", "COUNT"] {
        let frame = request(verb, "t", json!(vec![json!({}); max + 1]));
        refused(&mut client, frame, "t").await;
    }
}

#[tokio::test]
async fn max_limit() {
    let relay = RELAY.start_with(SMALL).await;
    let max = number(&limitation(&relay).await, "max_limit");
    let mut client = Client::connect(&relay).await;
    let mut events = Vec::new();
    // Read once: a second may end between two events.
    let newest = now();
    for n in 0..=max {
        let note = Author::new(1).note(&n.to_string());
        events.push(note.at(newest - n as u64).sign());
        client.accept(&events[n]).await;
    }
    for limit in [max, max + 1, 999_999] {
        let got = client.fetch(json!({"limit": limit})).await;
        assert_eq!(ids(&got), ids(&events[..max]));
    }
}

#[tokio::test]
async fn max_subid_length() {
    let relay = RELAY.start_with(SMALL).await;
    let max = number(&limitation(&relay).await, "max_subid_length");
    let mut client = Client::connect(&relay).await;
    // Characters count, not bytes.
    client.subscribe(&"ñ".repeat(max), json!({})).await;
    for verb in ["REQ", "COUNT"] {
        let long = "x".repeat(max + 1);
        refused(&mut client, json!([verb, long, {}]), &long).await;
    }
}

#[tokio::test]
async fn max_event_tags() {
    let relay = RELAY.start_with(SMALL).await;
    let max = number(&limitation(&relay).await, "max_event_tags");
    let mut client = Client::connect(&relay).await;
    let mut draft = Author::new(1).note("");
    for _ in 0..max {
        draft = draft.tag(&["t", "x"]);
    }
    client.accept(&draft.clone().sign()).await;
    client
        .refuse(&draft.tag(&["t", "x"]).sign(), "invalid: ")
        .await;
}

#[tokio::test]
async fn created_at_limits() {
    let relay = RELAY.start_with(SMALL).await;
    let limitation = limitation(&relay).await;
    let ahead = number(&limitation, "created_at_upper_limit") as u64;
    let behind = number(&limitation, "created_at_lower_limit") as u64;
    let mut client = Client::connect(&relay).await;
    let author = Author::new(1);
    // A minute of room, because the clock moves while this runs.
    client
        .accept(&author.note("").at(now() + ahead).sign())
        .await;
    let late = author.note("").at(now() + ahead + 60).sign();
    client.refuse(&late, "invalid: ").await;
    let old = author.note("").at(now() - behind + 60).sign();
    client.accept(&old).await;
    let older = author.note("").at(now() - behind - 1).sign();
    client.refuse(&older, "invalid: ").await;
}

#[tokio::test]
async fn without_a_bound_on_the_past_the_first_second_is_accepted() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    for at in [0, 1] {
        let event = Author::new(1).note("").at(at).sign();
        client.accept(&event).await;
        assert_eq!(
            client.fetch(json!({"until": at, "limit": 1})).await,
            [event]
        );
    }
}

#[tokio::test]
async fn max_message_length() {
    let relay = RELAY.start_with(SMALL).await;
    let max = number(&limitation(&relay).await, "max_message_length");
    let mut client = Client::connect(&relay).await;
    let padded = |length: usize| {
        let text = "[\"REQ\",\"s\",{\"limit\":0}]";
        text.to_owned() + &" ".repeat(length - text.len())
    };
    client.send_text(&padded(max)).await;
    assert_eq!(client.next().await, RelayFrame::Eose { sub: "s".into() });
    client.send_text(&padded(max + 1)).await;
    match client.next().await {
        RelayFrame::Notice { message } => assert!(message.starts_with("invalid: "), "{message}"),
        other => panic!("{other:?}"),
    }
    let close = client.closed().await.expect("a close frame");
    assert_eq!(close.code, CloseCode::Size);
}

#[tokio::test]
async fn fragments_together_are_held_to_the_length_of_one_frame() {
    use buzz_testkit::raw::{CONTINUATION, RawSocket, TEXT, frame};
    let relay = RELAY.start_with(SMALL).await;
    let mut socket = RawSocket::connect(&relay).await;
    socket.send(&frame(false, TEXT, &[b' '; 3000])).await;
    socket
        .send(&frame(false, CONTINUATION, &[b' '; 2001]))
        .await;
    assert_eq!(socket.close_code().await, Some(1009));
}
