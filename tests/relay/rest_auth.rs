//! NIP-98: a request is answered if its own sender signed this very request, once.

use std::collections::HashMap;

use buzz_protocol::{Event, http_auth};
use serde_json::json;

use buzz_testkit::{
    Author, Client,
    events::{Draft, sha256_hex},
    http::Response,
    now,
    rest::{BASE, authorized_by, post, post_with},
};

use crate::RELAY;

const BODY: &str = "{\"kinds\":[1]}";

fn good(author: &Author) -> Draft {
    author.authorization(&format!("{BASE}/count"), BODY)
}

fn assert_unauthorized(what: &str, response: &Response) {
    assert_eq!(response.status, 401, "{what}: {}", response.body);
    let scheme = response.header("www-authenticate");
    assert_eq!(scheme, Some("Nostr"), "{what}");
    let error = response.json();
    assert_eq!(error["error"], json!("unauthorized"), "{what}");
    let message = error["message"].as_str().expect("a message");
    assert!(message.starts_with("auth-required: "), "{what}: {message}");
}

/// Mutants: each check left out.
#[tokio::test]
async fn an_authorization_of_another_request_is_refused() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let url = |url: &str| good(&author).retag("u", Some(url)).sign();
    let mut not_signed = good(&author).sign();
    not_signed.sig = good(&author).sign().sig;
    let mut changed = good(&author).at(now() - 300).sign();
    changed.created_at = now();
    let mut another = good(&author).sign();
    another.pubkey = Author::new(2).note("").sign().pubkey;
    let forgeries: Vec<(&str, Event)> = vec![
        ("kind", good(&author).kind(22242).sign()),
        ("kind 1", good(&author).kind(1).sign()),
        ("a minute late", good(&author).at(now() - 62).sign()),
        ("a minute early", good(&author).at(now() + 62).sign()),
        ("method", good(&author).retag("method", Some("GET")).sign()),
        ("no method", good(&author).retag("method", None).sign()),
        ("no url", good(&author).retag("u", None).sign()),
        ("a second url", good(&author).tag(&["u", BASE]).sign()),
        ("socket's url", url("ws://relay.test/chat/count")),
        ("other scheme", url("https://relay.test/chat/count")),
        ("other host", url("http://relay.test.evil/chat/count")),
        ("other port", url("http://relay.test:81/chat/count")),
        ("other path", url("http://relay.test/chat/query")),
        ("no prefix", url("http://relay.test/count")),
        ("a slash", url("http://relay.test/chat/count/")),
        ("a query", url("http://relay.test/chat/count?a=1")),
        ("address", url(&format!("http://{}/count", relay.addr))),
        ("no payload", good(&author).retag("payload", None).sign()),
        (
            "other payload",
            good(&author)
                .retag("payload", Some(&sha256_hex("{}")))
                .sign(),
        ),
        ("signature", not_signed),
        ("id", changed),
        ("key", another),
    ];
    for (what, event) in forgeries {
        let response = post_with(&relay, "/count", &authorized_by(&event), BODY).await;
        assert_unauthorized(what, &response);
    }
    for url in [
        "http://relay.test:80/chat/count",
        "HTTP://Relay.Test/chat/count",
    ] {
        let event = good(&author).retag("u", Some(url)).sign();
        let response = post_with(&relay, "/count", &authorized_by(&event), BODY).await;
        assert_eq!(response.status, 200, "{url}: {}", response.body);
    }
    let bare = post(&relay, &author, "/count?a=1", BODY).await;
    assert_eq!(
        bare.status, 200,
        "a query is signed with the URL: {}",
        bare.body
    );
    let line = relay
        .log
        .line_with(&["denied/auth-required", "POST /count", "127.0.0.1"]);
    line.await;
}

#[tokio::test]
async fn a_header_that_holds_no_event_is_refused() {
    let relay = RELAY.start().await;
    let header = http_auth::to_header(&good(&Author::new(1)).sign());
    let token = header.strip_prefix("Nostr ").expect("a scheme");
    for headers in [
        String::new(),
        "Authorization: \r\n".into(),
        "Authorization: Nostr\r\n".into(),
        "Authorization: Nostr !!!\r\n".into(),
        "Authorization: Nostr bm8=\r\n".into(),
        "Authorization: Nostr ÿ\r\n".into(),
        format!("Authorization: {token}\r\n"),
        format!("Authorization: Bearer {token}\r\n"),
        format!("Authorization: Nostr {}\r\n", &token[..token.len() / 2]),
        format!("X-Authorization: {header}\r\n"),
    ] {
        let response = post_with(&relay, "/count", &headers, BODY).await;
        assert_unauthorized(&headers, &response);
    }
}

/// Mutants: nothing remembered; remembered only once the request is answered; the first of two
/// headers taken.
#[tokio::test]
async fn an_authorization_works_once() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let header = authorized_by(&good(&author).sign());
    let first = post_with(&relay, "/count", &header, BODY).await;
    assert_eq!(first.status, 200);
    let second = post_with(&relay, "/count", &header, BODY).await;
    assert_unauthorized("a replay", &second);
    assert!(second.body.contains("used before"), "{}", second.body);

    // At once: one of them only.
    let header = authorized_by(&good(&author).sign());
    let requests = (0..16).map(|_| post_with(&relay, "/count", &header, BODY));
    let mut statuses = HashMap::<u16, u32>::new();
    for response in futures_util::future::join_all(requests).await {
        *statuses.entry(response.status).or_default() += 1;
    }
    assert_eq!(statuses, HashMap::from([(200, 1), (401, 15)]));

    // Twice in one request, the same or another.
    let again = good(&author).sign();
    let another = authorized_by(&good(&author).sign());
    let twice = authorized_by(&again) + &authorized_by(&again);
    let two = authorized_by(&again) + &another;
    for headers in [twice, two] {
        let response = post_with(&relay, "/count", &headers, BODY).await;
        assert_unauthorized("two headers", &response);
    }
    // Which has used neither.
    let good = post_with(&relay, "/count", &authorized_by(&again), BODY).await;
    assert_eq!(good.status, 200, "{}", good.body);
}

/// Mutant: a forged authorization remembered, which would keep its true owner out.
#[tokio::test]
async fn who_forges_an_authorization_uses_nothing_up() {
    let relay = RELAY.start().await;
    let event = good(&Author::new(1)).sign();
    let mut forged = event.clone();
    forged.sig = good(&Author::new(1)).sign().sig;
    for _ in 0..3 {
        let response = post_with(&relay, "/count", &authorized_by(&forged), BODY).await;
        assert_unauthorized("a forgery", &response);
    }
    let response = post_with(&relay, "/count", &authorized_by(&event), BODY).await;
    assert_eq!(response.status, 200, "{}", response.body);
}

/// Mutant: a login asked for over a socket needed here, or a request's key good for the socket.
#[tokio::test]
async fn each_request_logs_in_by_itself() {
    let relay = RELAY.start_with("auth.required = true").await;
    let author = Author::new(1);
    let response = post(&relay, &author, "/count", BODY).await;
    assert_eq!(response.status, 200, "{}", response.body);
    let mut client = Client::connect(&relay).await;
    let refused = client.count(json!({})).await.expect_err("a refusal");
    assert!(refused.starts_with("auth-required: "), "{refused}");
}
