//! Clients that are not ours: the Rust `nostr-sdk`, its Python binding, and `nostr-tools`, NDK,
//! `applesauce-relay` and `@welshman/net` on Node. `docs/clients.md` tells users what is seen here.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use nostr_sdk::prelude::{
    Client as SdkClient, Event as SdkEvent, EventBuilder, Filter, JsonUtil, Keys, Kind,
    RelayPoolNotification, Tag,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{RELAY, commands::kept};
use buzz_testkit::{
    Author, Client, DEADLINE, Relay, events::brute_force, relay::own_address, soon,
};

/// The values of `auth.challenge` that every client is tried with. The first is the default.
const CHALLENGES: [&str; 2] = ["connect", "need"];

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

/// How a client is run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Run {
    /// Without a key, on a relay that anybody may use.
    Open,
    /// With a key, on a relay that requires logins.
    Login,
    /// As `Open`, without the helps of `docs/clients.md`.
    Plain,
}

/// What a client prints that passes every step.
fn all_steps(counts: bool) -> Vec<&'static str> {
    let mut steps = vec![
        "connected",
        "published at first",
        "stored: stored 1, stored 2, stored 3",
        "live",
        "counted: 3",
        "restart",
        "live after a restart",
        "published after a restart",
        "crash",
        "live after a crash",
        "published after a crash",
    ];
    steps.retain(|step| counts || !step.starts_with("counted"));
    steps
}

/// Publishes what the clients are to hear.
struct Publisher {
    client: Client,
    author: Author,
}

impl Publisher {
    async fn new(relay: &Relay, run: Run) -> Self {
        let (mut client, author) = (Client::connect(relay).await, Author::new(1));
        if run == Run::Login {
            let probe = author.note("log in").sign();
            // With `need`, the refusal brings the challenge.
            client.refuse(&probe, "auth-required:").await;
            let challenge = client.challenge().await;
            let login = author.login(&challenge, &relay.url()).sign();
            assert_eq!(client.log_in_with(&login).await, (true, String::new()));
        }
        Self { client, author }
    }

    async fn publish(&mut self, kind: u16, content: &str) {
        let event = self.author.event(kind, content).tag(&["t", "foreign"]);
        self.client.accept(&event.sign()).await;
    }

    /// Publishes without end. Events of this kind are never stored.
    async fn publish_live(&mut self, contents: &[&str]) -> ! {
        loop {
            for content in contents {
                self.publish(20_001, content).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Runs `client` against a relay of its own, which restarts when the client's steps say so, and
/// gives the steps.
async fn steps(client: &[&str], run: Run, challenge: &str) -> Vec<String> {
    let address = own_address();
    let mut settings = format!(
        "server.listen = \"{address}\"\nserver.url = \"ws://{address}\"\n\
         auth.required = {}\n",
        run == Run::Login
    );
    if challenge != CHALLENGES[0] {
        settings += &format!("auth.challenge = \"{challenge}\"\n");
    }
    let mut relay = RELAY.start_with(&settings).await;
    let mut publisher = Publisher::new(&relay, run).await;
    for content in ["stored 1", "stored 2", "stored 3"] {
        publisher.publish(1, content).await;
    }

    let mut child = tokio::process::Command::new(client[0])
        .args(&client[1..])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RELAY", relay.url())
        .env("LOGIN", if run == Run::Login { "1" } else { "0" })
        .env("PLAIN", if run == Run::Plain { "1" } else { "0" })
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{client:?}: {error}; scripts/test installs it"));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut steps: Vec<String> = Vec::new();
    let mut live = ["live", "later"];
    loop {
        // Some clients wait for ten seconds before they connect again.
        let line = tokio::select! {
            line = tokio::time::timeout(DEADLINE * 2, lines.next_line()) => line,
            never = publisher.publish_live(&live) => never,
        };
        let Ok(line) = line else {
            panic!("{client:?}, {run:?}, {challenge}: no step follows {steps:?}")
        };
        let Some(step) = line.expect("lines") else {
            break;
        };
        steps.push(step.clone());
        match step.as_str() {
            "restart" => {
                relay.terminate();
                relay.ended().await;
                live = ["after a restart"; 2];
            }
            "crash" => {
                relay.kill().await;
                live = ["after a crash"; 2];
            }
            _ => continue,
        }
        relay = relay.again().await;
        publisher = Publisher::new(&relay, run).await;
    }
    let status = soon("the client's end", child.wait()).await;
    assert!(
        status.expect("a child").success(),
        "{client:?}, {run:?}, {challenge}: failed after {steps:?}"
    );
    if run != Run::Plain {
        let stored = publisher
            .client
            .count(json!({"kinds": [1], "#t": ["by a client"]}))
            .await;
        assert_eq!(stored, Ok(3), "{client:?}, {run:?}, {challenge}");
    }
    steps
}

/// A client passes every step, with and without a login, under every setting.
async fn passes(client: &[&str], counts: bool) {
    for challenge in CHALLENGES {
        let (open, login) = tokio::join!(
            steps(client, Run::Open, challenge),
            steps(client, Run::Login, challenge)
        );
        assert_eq!(open, all_steps(counts), "open, {challenge}");
        assert_eq!(login, all_steps(counts), "login, {challenge}");
    }
}

#[tokio::test]
async fn nostr_tools_passes_every_step() {
    passes(&["node", "tests/node/clients/nostr-tools.mjs"], true).await;
}

#[tokio::test]
async fn python_nostr_sdk_passes_every_step() {
    let python = "target/nostr-sdk/bin/python";
    passes(&[python, "tests/python/nostr_sdk_client.py"], true).await;
}

#[tokio::test]
async fn ndk_passes_every_step_with_help_and_gives_up_after_a_challenge_without() {
    let ndk = ["node", "tests/node/clients/ndk.mjs"];
    passes(&ndk, true).await;
    for challenge in CHALLENGES {
        let end = match challenge {
            "connect" => "gave up",
            _ => "plans to reconnect",
        };
        assert_eq!(
            steps(&ndk, Run::Plain, challenge).await,
            ["connected", "saw the end of stored events", "restart", end],
            "{challenge}"
        );
    }
}

#[tokio::test]
async fn applesauce_passes_every_step_with_help_and_ends_subscriptions_without() {
    let applesauce = ["node", "tests/node/clients/applesauce.mjs"];
    passes(&applesauce, true).await;
    for challenge in CHALLENGES {
        assert_eq!(
            steps(&applesauce, Run::Plain, challenge).await,
            [
                "connected",
                "saw the end of stored events",
                "restart",
                "the subscription ended"
            ],
            "{challenge}"
        );
    }
}

#[tokio::test]
async fn welshman_passes_every_step_with_help_and_misses_eose_after_a_challenge_without() {
    let welshman = ["node", "tests/node/clients/welshman.mjs"];
    passes(&welshman, false).await;
    for challenge in CHALLENGES {
        let eose = match challenge {
            "connect" => "missed the end of stored events",
            _ => "saw the end of stored events",
        };
        assert_eq!(
            steps(&welshman, Run::Plain, challenge).await,
            ["connected", eose],
            "{challenge}"
        );
    }
}
