//! Protected events (NIP-70): only their author may publish them.

use serde_json::json;

use buzz_testkit::{Author, Client};

use crate::RELAY;

#[tokio::test]
async fn only_a_socket_that_logged_in_as_the_author_may_publish() {
    let relay = RELAY.start().await;
    let (author, other) = (Author::new(1), Author::new(2));
    let event = author.note("mine").tag(&["-"]).sign();
    let mut client = Client::connect(&relay).await;
    client.refuse(&event, "auth-required: ").await;
    assert!(client.challenge_so_far().is_some(), "no challenge before");
    client.log_in(&other).await;
    client.refuse(&event, "restricted: ").await;
    client.log_in(&author).await;
    client.accept(&event).await;
    assert_eq!(client.fetch(json!({})).await, [event]);
}

#[tokio::test]
async fn any_of_the_sockets_keys_counts() {
    let relay = RELAY.start().await;
    let authors = [Author::new(1), Author::new(2), Author::new(3)];
    let mut client = Client::connect(&relay).await;
    for author in &authors {
        client.log_in(author).await;
    }
    for author in &authors {
        let event = author.note("mine").tag(&["-"]).sign();
        client.accept(&event).await;
    }
}

#[tokio::test]
async fn a_refused_protected_event_is_not_passed_on() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    client.subscribe("live", json!({"limit": 0})).await;
    for kind in [1, 20_001] {
        let event = author.event(kind, "").tag(&["-"]).sign();
        client.refuse(&event, "auth-required: ").await;
    }
    let marker = author.note("marker").sign();
    client.accept(&marker).await;
    assert_eq!(client.live().await.1, marker);
}

#[tokio::test]
async fn a_repost_that_embeds_a_protected_event_is_refused() {
    let relay = RELAY.start().await;
    let (author, other) = (Author::new(1), Author::new(2));
    let mut client = Client::connect(&relay).await;
    let protected = author.note("mine").tag(&["-"]).sign();
    let open = author.note("anyone's").sign();
    client.log_in(&other).await;
    for kind in [6, 16] {
        let repost = other.event(kind, &protected.to_json());
        let repost = repost.tag(&["e", &protected.id.to_hex()]).sign();
        let (accepted, message) = client.publish(&repost).await;
        assert!(!accepted, "kind {kind}");
        assert!(
            message.starts_with("restricted: ") || message.starts_with("blocked: "),
            "{message}"
        );
        let fine = other.event(kind, &open.to_json());
        client
            .accept(&fine.tag(&["e", &open.id.to_hex()]).sign())
            .await;
        let empty = other.event(kind, "").tag(&["e", &protected.id.to_hex()]);
        client.accept(&empty.sign()).await;
    }
}
