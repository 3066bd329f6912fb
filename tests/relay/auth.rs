//! Logins (NIP-42).

use serde_json::json;

use buzz_testkit::{Author, Client, now, relay::URL};

use crate::RELAY;

#[tokio::test]
async fn every_connection_gets_a_challenge_of_its_own_first() {
    let relay = RELAY.start().await;
    let mut challenges = std::collections::HashSet::new();
    for _ in 0..20 {
        let mut client = Client::connect(&relay).await;
        challenges.insert(client.challenge().await);
    }
    assert_eq!(challenges.len(), 20);
}

#[tokio::test]
async fn the_relay_tag_is_compared_by_host_port_and_path() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    for url in [
        "ws://relay.test/chat",
        "wss://relay.test/chat",
        "ws://relay.test/chat/",
        "WS://RELAY.TEST/chat",
        "ws://relay.test:80/chat",
        "wss://relay.test:443/chat",
    ] {
        let mut client = Client::connect(&relay).await;
        let login = author.login(&client.challenge().await, url).sign();
        assert_eq!(
            client.log_in_with(&login).await,
            (true, String::new()),
            "{url}"
        );
    }
    for url in [
        "",
        "relay.test/chat",
        "ws://relay.test",
        "ws://relay.test/CHAT",
        "ws://relay.test:81/chat",
        "ws://relay.test.evil/chat",
        "ws://other.test/chat",
        "ftp://relay.test/chat",
    ] {
        let mut client = Client::connect(&relay).await;
        let login = author.login(&client.challenge().await, url).sign();
        let (accepted, message) = client.log_in_with(&login).await;
        assert!(
            !accepted && message.starts_with("invalid: "),
            "{url}: {message}"
        );
    }
}

#[tokio::test]
async fn a_failed_login_is_answered_and_a_right_one_works_after_it() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let protected = author.note("mine").tag(&["-"]).sign();
    let mut client = Client::connect(&relay).await;
    let challenge = client.challenge().await;
    let right = author.login(&challenge, URL);
    let mut forged = right.clone().tag(&["x"]).sign();
    forged.sig = author.note("").sign().sig;
    let wrong = [
        author.login("not the challenge", URL).sign(),
        author.login("", URL).sign(),
        author.event(22242, "").tag(&["relay", URL]).sign(),
        author
            .event(22242, "")
            .tag(&["challenge", &challenge])
            .sign(),
        author
            .note("")
            .tag(&["relay", URL])
            .tag(&["challenge", &challenge])
            .sign(),
        forged,
    ];
    for login in &wrong {
        let (accepted, message) = client.log_in_with(login).await;
        assert!(!accepted && message.starts_with("invalid: "), "{message}");
        client.refuse(&protected, "auth-required: ").await;
    }
    let login = right.sign();
    assert_eq!(client.log_in_with(&login).await, (true, String::new()));
    client.accept(&protected).await;
}

#[tokio::test]
async fn another_connections_challenge_is_no_login_here() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut one = Client::connect(&relay).await;
    let mut two = Client::connect(&relay).await;
    let login = author.login(&one.challenge().await, URL).sign();
    two.challenge().await;
    let (accepted, message) = two.log_in_with(&login).await;
    assert!(!accepted && message.starts_with("invalid: "), "{message}");
    assert!(one.log_in_with(&login).await.0);
}

#[tokio::test]
async fn a_clock_nine_minutes_off_is_accepted_and_twelve_is_named() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    for (at, accepted) in [
        (now() - 9 * 60, true),
        (now() + 9 * 60, true),
        (now() - 12 * 60, false),
        (now() + 12 * 60, false),
    ] {
        let mut client = Client::connect(&relay).await;
        let login = author.login(&client.challenge().await, URL).at(at).sign();
        let verdict = client.log_in_with(&login).await;
        assert_eq!(verdict.0, accepted, "{verdict:?}");
        if !accepted {
            assert!(
                verdict.1.starts_with("invalid: ") && verdict.1.contains("clock"),
                "{verdict:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_login_is_not_stored_and_not_passed_on() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    client.subscribe("live", json!({"limit": 0})).await;
    client.log_in(&author).await;
    let as_event = author.login(&client.challenge().await, URL).sign();
    // Kind 22242 is ephemeral by its number; a login must not travel to other clients.
    let (accepted, message) = client.publish(&as_event).await;
    assert!(!accepted, "a login was published as an event: {message}");
    let marker = author.note("marker").sign();
    client.accept(&marker).await;
    assert_eq!(client.live().await.1, marker);
    assert_eq!(client.count(json!({"kinds": [22242]})).await, Ok(0));
}

#[tokio::test]
async fn where_login_is_required_everything_waits_for_it() {
    let relay = RELAY.start_with("auth.required = true").await;
    let author = Author::new(1);
    let note = author.note("hello").sign();
    let mut client = Client::connect(&relay).await;
    client.refuse(&note, "auth-required: ").await;
    assert!(client.challenge_so_far().is_some(), "no challenge before");
    let refused = client.count(json!({})).await.expect_err("a refusal");
    assert!(refused.starts_with("auth-required: "), "{refused}");
    client.send(json!(["REQ", "s", {}])).await;
    client
        .find(|frame| match frame {
            buzz_protocol::relay_frame::RelayFrame::Closed { sub, message } if sub == "s" => {
                assert!(message.starts_with("auth-required: "), "{message}");
                Some(())
            }
            _ => None,
        })
        .await;
    client.log_in(&author).await;
    client.accept(&note).await;
    assert_eq!(client.fetch(json!({})).await, [note]);
}

#[tokio::test]
async fn where_login_is_required_a_socket_without_one_ends() {
    let relay = RELAY
        .start_with("auth.required = true\nauth.timeout = \"200ms\"")
        .await;
    let mut silent = Client::connect(&relay).await;
    let mut logged_in = Client::connect(&relay).await;
    logged_in.log_in(&Author::new(1)).await;
    silent.closed().await;
    assert_eq!(logged_in.fetch(json!({})).await, []);
}

/// Kills: logins without a limit, each a signature check and a database look-up that no quota
/// counts.
#[tokio::test]
async fn a_socket_has_a_bounded_number_of_logins() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let challenge = client.challenge().await;
    let login = Author::new(1).login(&challenge, URL).sign();
    for _ in 0..256 {
        assert_eq!(client.log_in_with(&login).await, (true, String::new()));
    }
    let refused = "restricted: at most 256 logins on one connection".to_owned();
    assert_eq!(client.log_in_with(&login).await, (false, refused));
    client
        .accept(&Author::new(1).note("still here").sign())
        .await;
}
