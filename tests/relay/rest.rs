//! REST: the same store and the same rules as over a socket.

use buzz_protocol::Event;
use serde_json::{Value, json};

use buzz_testkit::{
    Author, Client, eventually,
    http::{self, exchange},
    now,
    rest::{BASE, answer, authorization, post, post_with, publish},
};

use crate::RELAY;

/// Mutants: an event not passed on; a query of another state; another form of the stored text.
#[tokio::test]
async fn what_is_posted_arrives_live_and_is_read_as_over_a_socket() {
    let relay = RELAY.start().await;
    let (author, reader) = (Author::new(1), Author::new(2));
    let mut client = Client::connect(&relay).await;
    client.subscribe("live", json!({"kinds": [1]})).await;
    let posted = author.note("über \"REST\"\u{1}\n").tag(&["t", "x"]).sign();
    let verdict = publish(&relay, &author, &posted).await;
    assert_eq!(verdict, (true, String::new()));
    assert_eq!(client.live().await, ("live".into(), posted.clone()));
    let again = publish(&relay, &author, &posted).await;
    assert_eq!(again, (true, "duplicate: already have this event".into()));

    // And the other way: an event that came over the socket and was never posted.
    let older = author.note("older").at(now() - 5).sign();
    client.accept(&older).await;
    let found = post(&relay, &reader, "/query", "{\"kinds\":[1]}").await;
    assert_eq!(
        found.body,
        format!("[{},{}]", posted.to_json(), older.to_json())
    );
    let filters = json!([{"#t": ["x"]}, {"ids": [older.id]}, {"kinds": [1], "limit": 1}]);
    let found: Vec<Event> =
        serde_json::from_value(answer(&relay, &reader, "/query", &filters).await).expect("events");
    assert_eq!(found, client.fetch(filters.clone()).await);
    assert_eq!(found.len(), 2, "each event once");
    let count = answer(&relay, &reader, "/count", &filters).await;
    assert_eq!(count, json!({"count": 2}));
    let none = post(&relay, &reader, "/query", "{\"kinds\":[7]}").await;
    assert_eq!(none.body, "[]");
    let metrics = relay.metrics().await;
    for (outcome, count) in [("accepted", 2.0), ("duplicate", 1.0)] {
        let series = format!("buzz_events_total{{outcome=\"{outcome}\"}}");
        assert_eq!(metrics.get(&series), count, "{series}");
    }
}

/// Mutants: a refused event answered as an error; an author not told from another sender.
#[tokio::test]
async fn a_verdict_on_an_event_is_the_one_that_a_socket_gets() {
    let relay = RELAY.start().await;
    let (author, other) = (Author::new(1), Author::new(2));
    let mut forged = author.note("forged").sign();
    forged.content.push('!');
    let mut unsigned = author.note("unsigned").sign();
    unsigned.sig = author.note("").sign().sig;
    let deleted = author.note("deleted").sign();
    publish(&relay, &author, &deleted).await;
    let deletion = author.deletion(&[("e", &deleted.id.to_hex())]).sign();
    assert!(publish(&relay, &author, &deletion).await.0);
    let profile = |at| author.event(0, "{}").at(at).sign();
    assert!(publish(&relay, &author, &profile(now() - 5)).await.0);
    let url = format!("{BASE}/events");
    for (event, message) in [
        (forged, "invalid: event id"),
        (unsigned, "invalid: signature"),
        (
            author.note("").at(now() + 3600).sign(),
            "invalid: created_at",
        ),
        (
            author.note("").tag(&["expiration", "1"]).sign(),
            "invalid: ",
        ),
        (deleted, "blocked: deleted"),
        (profile(now() - 9), "duplicate: a newer version is stored"),
        (author.event(22242, "").sign(), "invalid: a login"),
        (
            author.authorization(&url, "").sign(),
            "invalid: an authorization",
        ),
        (other.note("mine").tag(&["-"]).sign(), "restricted: "),
    ] {
        let (accepted, why) = publish(&relay, &author, &event).await;
        assert!(!accepted && why.starts_with(message), "{message}: {why}");
    }
    let protected = author.note("mine").tag(&["-"]).sign();
    assert!(publish(&relay, &author, &protected).await.0);
    let ephemeral = author.event(20_001, "now").sign();
    assert!(publish(&relay, &author, &ephemeral).await.0);
    let refused = relay.log.line_with(&["denied/blocked", "POST /events"]);
    refused.await;
}

/// Mutants: the first page taken for all; a comma too few or too many between pages.
#[tokio::test]
async fn a_long_answer_comes_in_pages_and_is_the_one_of_a_req() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let content = "x".repeat(3_000);
    for n in 0..100u64 {
        let note = author.note(&format!("{n} {content}")).at(1_000 + n / 2);
        client.accept(&note.sign()).await;
    }
    for limit in [1, 21, 22, 99, 100] {
        let filter = json!({"limit": limit});
        let found = answer(&relay, &author, "/query", &filter).await;
        let found: Vec<Event> = serde_json::from_value(found).expect("events");
        assert_eq!(found, client.fetch(filter).await, "{limit}");
        assert_eq!(found.len(), limit);
    }
}

/// Mutant: the parser's error left out, or with status 200.
#[tokio::test]
async fn what_is_not_what_it_should_be_is_400_and_says_why() {
    let relay = RELAY.start_with("limits.max_filters = 2").await;
    let author = Author::new(1);
    let event = author.note("").sign().to_json();
    for (path, body, why) in [
        ("/events", "", "invalid: "),
        ("/events", "nonsense", "invalid: "),
        ("/events", "{}", "invalid: missing field `id`"),
        ("/events", &format!("[{event}]"), "invalid: "),
        ("/events", &format!("{event}x"), "invalid: "),
        (
            "/events",
            &event.replace("\"kind\":1", "\"kind\":-1"),
            "invalid: kind",
        ),
        ("/query", "", "invalid: "),
        ("/query", "[]", "invalid: at least one filter"),
        ("/query", "[{},{},{}]", "invalid: too many filters"),
        ("/query", "{\"kinds\":\"x\"}", "invalid: kinds"),
        (
            "/query",
            "{\"search\":\"x\"}",
            "unsupported: filter contains",
        ),
        ("/count", "[{},1]", "invalid: "),
        ("/count", "\"\"", "invalid: "),
    ] {
        let response = post(&relay, &author, path, body).await;
        assert_eq!(response.status, 400, "{path} {body}: {}", response.body);
        let error = response.json();
        assert_eq!(error["error"], json!("invalid"));
        let message = error["message"].as_str().expect("a message");
        assert!(message.starts_with(why), "{path} {body}: {message}");
        assert_eq!(error.as_object().map(serde_json::Map::len), Some(2));
    }
}

/// Mutants: no CORS headers on errors; `*` for the headers, which leaves Authorization out.
#[tokio::test]
async fn pages_from_anywhere_may_ask_and_read() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    for path in ["/events", "/query", "/count"] {
        let preflight = format!(
            "OPTIONS {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: https://a.test\r\n\
             Access-Control-Request-Method: POST\r\n\
             Access-Control-Request-Headers: authorization,content-type\r\n\r\n"
        );
        let allowed = exchange(relay.addr, "OPTIONS", preflight.as_bytes()).await;
        assert_eq!(allowed.status, 204);
        for (name, value) in [
            ("access-control-allow-origin", "*"),
            (
                "access-control-allow-headers",
                "Authorization, Content-Type",
            ),
            ("access-control-allow-methods", "POST, OPTIONS"),
            ("access-control-max-age", "86400"),
        ] {
            assert_eq!(allowed.header(name), Some(value), "{path}: {name}");
        }
    }
    let good = post(&relay, &author, "/count", "{}").await;
    let bad = post(&relay, &author, "/count", "x").await;
    let unsigned = post_with(&relay, "/count", "", "{}").await;
    let get = http::get(relay.addr, "/count").await;
    for (response, status) in [(good, 200), (bad, 400), (unsigned, 401), (get, 405)] {
        assert_eq!(response.status, status);
        let origin = response.header("access-control-allow-origin");
        assert_eq!(origin, Some("*"), "{status}");
        let exposed = response.header("access-control-expose-headers");
        assert!(exposed.is_some_and(|names| names.contains("Retry-After")));
    }
}

#[tokio::test]
async fn other_methods_are_told_which_there_are() {
    let relay = RELAY.start().await;
    for (method, path, allow) in [
        ("GET", "/events", "POST, OPTIONS"),
        ("PUT", "/query", "POST, OPTIONS"),
        ("DELETE", "/chat/count", "POST, OPTIONS"),
        ("TRACE", "/count", "POST, OPTIONS"),
        ("MADEUP", "/count", "POST, OPTIONS"),
        ("POST", "/openapi.json", "GET, HEAD, OPTIONS"),
    ] {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let response = exchange(relay.addr, method, request.as_bytes()).await;
        assert_eq!(response.status, 405, "{method} {path}");
        assert_eq!(response.header("allow"), Some(allow), "{method} {path}");
        assert_eq!(response.json()["error"], json!("method_not_allowed"));
    }
    // What is not one of them is a relay as before.
    let elsewhere = http::get(relay.addr, "/events/").await;
    assert!(elsewhere.body.contains("Nostr relay"));
    assert!(!relay.log.text().contains("MADEUP"));
}

/// Mutant: the path of `server.url` needed, or not taken.
#[tokio::test]
async fn a_proxy_may_take_the_path_away_or_leave_it() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    for path in ["/count", "/chat/count"] {
        let header = authorization(&author, "/count", "{}");
        let response = post_with(&relay, path, &header, "{}").await;
        assert_eq!(response.status, 200, "{path}: {}", response.body);
    }
}

#[tokio::test]
async fn the_document_describes_this_relay() {
    let relay = RELAY.start_with("limits.max_filters = 3").await;
    let response = http::get(relay.addr, "/openapi.json").await;
    assert_eq!(response.status, 200);
    let document = response.json();
    assert_eq!(document["servers"][0]["url"], json!(BASE));
    assert_eq!(
        document["info"]["version"],
        json!(env!("CARGO_PKG_VERSION"))
    );
    let filters = &document["components"]["schemas"]["Filters"]["oneOf"][1];
    assert_eq!(filters["maxItems"], json!(3));
    let paths: Vec<_> = document["paths"]
        .as_object()
        .expect("paths")
        .keys()
        .collect();
    assert_eq!(paths, ["/count", "/events", "/query"]);
    let information = http::relay_information(relay.addr).await.json();
    let nips = information["supported_nips"].as_array().expect("a list");
    assert!(nips.contains(&json!(98)));
}

/// Mutants: a members-only relay that answers anybody; a role that is read once.
#[tokio::test]
async fn where_only_members_may_the_others_get_403() {
    let relay = RELAY.start_with("auth.members_only = true").await;
    let author = Author::new(1);
    let refused = post(&relay, &author, "/count", "{}").await;
    assert_eq!(refused.status, 403);
    assert_eq!(
        refused.json(),
        json!({"error": "forbidden", "message": "restricted: not a member of this relay"})
    );
    let added = RELAY
        .command(relay.dir())
        .args(["member", "add", &author.pubkey()])
        .output()
        .expect("the relay's binary");
    assert!(added.status.success(), "{added:?}");
    let count = answer(&relay, &author, "/count", &json!({})).await;
    assert_eq!(count, json!({"count": 0}));
}

/// Mutant: a failure of the database taken for a verdict on the event.
#[tokio::test]
async fn without_its_database_the_relay_says_503_and_recovers() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let note = author.note("kept").sign();
    let aside = relay.database().with_extension("aside");
    std::fs::rename(relay.database(), &aside).expect("the database");
    let refused = post(&relay, &author, "/events", &note.to_json()).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["error"], json!("unavailable"));
    std::fs::rename(aside, relay.database()).expect("the database");
    assert_eq!(publish(&relay, &author, &note).await, (true, String::new()));
}

#[tokio::test]
async fn a_relay_that_shuts_down_says_so() {
    let relay = RELAY.start_with("server.drain = \"3s\"").await;
    let author = Author::new(1);
    let _socket = Client::connect(&relay).await;
    let _another = Client::connect(&relay).await;
    relay.terminate();
    let refused = eventually("a refusal", async || {
        let response = post(&relay, &author, "/count", "{}").await;
        (response.status != 200).then_some(response)
    })
    .await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("5"));
    let error: Value = refused.json();
    assert_eq!(error["error"], json!("unavailable"));
}
