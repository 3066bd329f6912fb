//! Content that JSON writers get wrong: the id is right, and the served event decodes to it.

use buzz_protocol::{Event, EventId, event::push_quoted};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use buzz_testkit::{Author, Client};

use crate::RELAY;

const HARD: &[&str] = &[
    "ñ",
    "🍕",
    "\u{2028}\u{2029}",
    "a/b",
    "\u{1}",
    "\u{1f}",
    "\u{7f}",
    "\u{8}\u{c}",
    "\\ \" \\u0041",
    "\0",
    "\u{feff}",
    "مرحبا \u{202e}x",
    "\r\n\t",
    "e\u{301}",
];

#[tokio::test]
async fn hard_content_is_stored_and_served_as_it_was_signed() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    client.subscribe("live", json!({"kinds": [1]})).await;
    for text in HARD {
        let event = author
            .note(text)
            .tag(&["t", text])
            .tag(&[text, text])
            .sign();
        client.accept(&event).await;
        assert_eq!(client.live().await.1, event, "live {text:?}");
        for filter in [json!({"ids": [event.id]}), json!({"#t": [text]})] {
            let frames = client.fetch_texts(filter).await;
            // Read by another JSON reader than the relay's own types.
            let frame: Value = serde_json::from_str(&frames[0]).expect("JSON");
            assert_eq!(frame[2], serde_json::to_value(&event).expect("JSON"));
            assert_eq!(frame[2]["content"], json!(text));
        }
    }
}

#[tokio::test]
async fn a_surrogate_pair_sent_as_escapes_is_the_character() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let event = Author::new(1).note("🍕 ñ").sign();
    let escaped = event
        .to_json()
        .replace('🍕', "\\ud83c\\udf55")
        .replace('ñ', "\\u00F1");
    client.send_text(&format!("[\"EVENT\",{escaped}]")).await;
    assert_eq!(client.verdict(&event).await, (true, String::new()));
    let served = client.fetch(json!({"ids": [event.id]})).await;
    assert_eq!(served[0].content, "🍕 ñ");
}

#[tokio::test]
async fn spaces_foreign_fields_and_order_do_not_count() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let event = Author::new(1).note("x").tag(&["t", "y"]).sign();
    let mut value = serde_json::to_value(&event).expect("JSON");
    value["seen_on"] = json!(["a", {"b": 1}]);
    let pretty = serde_json::to_string_pretty(&json!(["EVENT", value])).expect("JSON");
    client.send_text(&pretty).await;
    assert_eq!(client.verdict(&event).await, (true, String::new()));
    let frames = client.fetch_texts(json!({"ids": [event.id]})).await;
    assert!(!frames[0].contains("seen_on"), "{}", frames[0]);
}

/// The id over a canonical form in which the content is written as given.
fn id_over(event: &Event, content_as_written: &str) -> EventId {
    let Event {
        pubkey, created_at, ..
    } = event;
    let form = format!("[0,\"{pubkey}\",{created_at},1,[],{content_as_written}]");
    EventId(Sha256::digest(form.as_bytes()).into())
}

#[tokio::test]
async fn an_id_over_needless_escapes_is_refused() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    for (content, wrong) in [("a/b", "\"a\\/b\""), ("ñ", "\"\\u00f1\"")] {
        let event = Author::new(1).note(content).sign();
        let mut right = String::new();
        push_quoted(&mut right, content);
        assert_eq!(id_over(&event, &right), event.id);
        let forged = Event {
            id: id_over(&event, wrong),
            ..event
        };
        client.refuse(&forged, "invalid: ").await;
    }
}

#[tokio::test]
async fn the_same_id_with_other_content_or_another_signature_is_refused_each_time() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let author = Author::new(1);
    let genuine = author.note("genuine").sign();
    let forgeries = [
        Event {
            content: "forged".into(),
            ..genuine.clone()
        },
        Event {
            sig: author.note("other").sign().sig,
            ..genuine.clone()
        },
        Event {
            pubkey: Author::new(2).note("").sign().pubkey,
            ..genuine.clone()
        },
        Event {
            created_at: genuine.created_at - 1,
            ..genuine.clone()
        },
    ];
    for round in 0..3 {
        for forged in &forgeries {
            client.refuse(forged, "invalid: ").await;
        }
        if round == 1 {
            client.accept(&genuine).await;
        }
    }
    assert_eq!(client.fetch(json!({})).await, [genuine]);
}
