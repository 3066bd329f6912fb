//! Clients that are not ours: the Rust `nostr-sdk`, and `nostr-tools` on Node.

use std::{path::Path, process::Command, time::Duration};

use nostr_sdk::prelude::{
    Client as SdkClient, Event as SdkEvent, EventBuilder, Filter, JsonUtil, Keys, Kind,
    RelayPoolNotification, Tag,
};
use serde_json::{Value, json};

use crate::{RELAY, commands::kept};
use buzz_testkit::{DEADLINE, Relay, events::brute_force, soon};

/// A relay that holds the real events.
async fn with_real_events() -> Relay {
    let dir = Relay::prepare("");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/events.jsonl");
    let imported = RELAY.command(dir.path()).arg("import").arg(file).output();
    assert!(imported.expect("the relay starts").status.success());
    RELAY.start_in(dir, |_| {}).await
}

async fn sdk_client(relay: &Relay, keys: Option<Keys>) -> SdkClient {
    let client = match keys {
        Some(keys) => SdkClient::new(keys),
        None => SdkClient::default(),
    };
    client.add_relay(relay.url()).await.expect("a relay");
    client.connect().await;
    client.wait_for_connection(DEADLINE).await;
    client
}

#[tokio::test]
async fn nostr_sdk_fetches_the_real_events_as_they_are() {
    let relay = with_real_events().await;
    let client = sdk_client(&relay, None).await;
    let kept = kept();
    let author = kept[0].pubkey.to_hex();
    let tag = kept
        .iter()
        .find_map(|event| event.tag_values("p").next())
        .expect("a p tag");
    for filter in [
        json!({"limit": 500}),
        json!({"kinds": [1], "limit": 500}),
        json!({"kinds": [0, 3, 7], "limit": 500}),
        json!({"authors": [author], "limit": 20}),
        json!({"#p": [tag], "limit": 500}),
        json!({"ids": [kept[1].id, kept[9].id]}),
        json!({"since": kept[60].created_at, "until": kept[20].created_at, "limit": 500}),
    ] {
        let asked = Filter::from_json(filter.to_string()).expect("a filter");
        let fetched = client.fetch_events(asked, DEADLINE).await.expect("events");
        let values = |text: String| serde_json::from_str::<Value>(&text).expect("JSON");
        let mut got: Vec<_> = fetched
            .iter()
            .map(|event| values(event.as_json()))
            .collect();
        let mut expected: Vec<_> = brute_force(&kept, &filter)
            .iter()
            .map(|event| values(event.to_json()))
            .collect();
        let key = |event: &Value| event["id"].to_string();
        got.sort_by_key(key);
        expected.sort_by_key(key);
        assert_eq!(got, expected, "{filter}");
        for event in fetched {
            event.verify().expect("a good event");
        }
    }
    client.shutdown().await;
}

#[tokio::test]
async fn nostr_sdk_publishes_logs_in_and_hears_live_events() {
    // The client names the address that it dialled when it logs in.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port");
    let relay = RELAY
        .start_with(&format!(
            "server.listen = \"{port}\"\nserver.url = \"ws://{port}\"\nauth.required = true"
        ))
        .await;
    let listener = sdk_client(&relay, Some(Keys::generate())).await;
    let mut notifications = listener.notifications();
    let publisher = sdk_client(&relay, Some(Keys::generate())).await;

    let first = EventBuilder::text_note("first \u{1F355} \u{2028} ñ \"");
    let first = publisher.sign_event_builder(first).await.expect("an event");
    // The login runs in the background: until it is through, events are refused.
    soon("the first event is accepted", async {
        loop {
            match publisher.send_event(&first).await {
                Ok(sent) if !sent.success.is_empty() => break,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;

    let filter = Filter::new().kind(Kind::TextNote);
    let stored = soon("the first event is served", async {
        loop {
            match listener.fetch_events(filter.clone(), DEADLINE).await {
                Ok(stored) if !stored.is_empty() => break stored,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
    assert_eq!(stored.into_iter().collect::<Vec<SdkEvent>>(), [first]);

    let live = Filter::new().kind(Kind::Custom(30_023));
    listener
        .subscribe(live, None)
        .await
        .expect("a subscription");
    let page = EventBuilder::new(Kind::Custom(30_023), "page").tag(Tag::identifier("p"));
    let page = publisher.sign_event_builder(page).await.expect("an event");
    let sent = publisher.send_event(&page).await.expect("an answer");
    assert_eq!(sent.failed.len(), 0, "{:?}", sent.failed);
    let heard = soon("a live event", async {
        loop {
            match notifications.recv().await.expect("notifications") {
                RelayPoolNotification::Event { event, .. } if event.kind == page.kind => {
                    break *event;
                }
                _ => {}
            }
        }
    })
    .await;
    assert_eq!(heard, page);

    let deletion =
        EventBuilder::delete(nostr_sdk::prelude::EventDeletionRequest::new().id(page.id));
    let sent = publisher
        .send_event_builder(deletion)
        .await
        .expect("an answer");
    assert_eq!(sent.failed.len(), 0, "{:?}", sent.failed);
    let gone = Filter::new().id(page.id);
    let left = publisher
        .fetch_events(gone, DEADLINE)
        .await
        .expect("an answer");
    assert!(left.is_empty());
    listener.shutdown().await;
    publisher.shutdown().await;
}

#[tokio::test]
async fn nostr_tools_on_node_passes_its_tests() {
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node");
    for package in ["nostr-tools", "ws"] {
        assert!(
            node.join("node_modules").join(package).is_dir(),
            "{package} is not installed: run scripts/test, or npm ci in tests/node"
        );
    }
    let relay = with_real_events().await;
    let empty = RELAY.start().await;
    let strict = RELAY
        .start_with("admission.human_ws_events_per_sec = 1\nadmission.burst_window = \"3s\"")
        .await;
    let kept: String = kept().iter().map(|event| event.to_json() + "\n").collect();
    let expected = relay.dir().join("expected.jsonl");
    std::fs::write(&expected, kept).expect("a file");
    let tests = tokio::task::spawn_blocking({
        let (full, empty, strict) = (relay.url(), empty.url(), strict.url());
        move || {
            Command::new("node")
                .args(["--test", "--test-reporter=tap"])
                .arg("relay.test.mjs")
                .current_dir(node)
                .env("RELAY_WITH_REAL_EVENTS", full)
                .env("EXPECTED_EVENTS", expected)
                .env("EMPTY_RELAY", empty)
                .env("STRICT_RELAY", strict)
                .output()
        }
    });
    let output = tests.await.expect("a thread").expect("node is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(
        text.contains("# fail 0") && text.contains("# pass "),
        "{text}"
    );
    assert!(!text.contains("# pass 0"), "{text}");
}
