//! Against a relay that is not this project's: the in-process relay of `nostr-relay-builder`.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use buzz_client::{Client, Message};
use buzz_testkit::{Author, now};
use common::{channel, message};
use nostr_relay_builder::{LocalRelay, RelayBuilder, prelude::*};
use tokio::time::timeout;

async fn url_of(relay: &LocalRelay) -> String {
    relay.url().await.to_string()
}

async fn next(sub: &mut buzz_client::Subscription) -> Message {
    timeout(Duration::from_secs(20), sub.next())
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_subscribe_count_and_many_channels() {
    let relay = LocalRelay::new(RelayBuilder::default());
    relay.run().await.unwrap();
    let client = Client::builder(url_of(&relay).await).connect().unwrap();
    let mut subs: Vec<_> = (0..40)
        .map(|n| client.subscribe(vec![channel(&n.to_string())]))
        .collect();
    for sub in &mut subs {
        assert_eq!(next(sub).await, Message::CaughtUp);
    }
    let event = message("17", "hello", now());
    assert!(!client.publish(event.clone()).await.unwrap().duplicate);
    assert!(client.publish(event).await.unwrap().duplicate);
    let Message::Event(got) = next(&mut subs[17]).await else {
        panic!("no event");
    };
    assert_eq!(got.content, "hello");
    assert_eq!(client.count(vec![channel("17")]).await, Ok(1));
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_made_where_it_is_wanted() {
    let nip42 = RelayBuilderNip42 {
        mode: RelayBuilderNip42Mode::Both,
    };
    let relay = LocalRelay::new(RelayBuilder::default().nip42(nip42));
    relay.run().await.unwrap();
    let url = url_of(&relay).await;
    let client = Client::builder(&url)
        .signer(Author::new(2).keys())
        .connect()
        .unwrap();
    client.publish(message("1", "x", now())).await.unwrap();
    let mut sub = client.subscribe(vec![channel("1")]);
    assert!(matches!(next(&mut sub).await, Message::Event(_)));
    let nobody = Client::builder(url).connect().unwrap();
    let refused = nobody.publish(message("1", "y", now())).await;
    assert!(
        matches!(refused, Err(buzz_client::Error::Refused { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_of_its_own_kind_is_waited_out() {
    let limit = RateLimit {
        max_reqs: 500,
        notes_per_minute: 12,
    };
    let relay = LocalRelay::new(RelayBuilder::default().rate_limit(limit));
    relay.run().await.unwrap();
    let client = Client::builder(url_of(&relay).await).connect().unwrap();
    // Its refusal names no wait, so ten seconds pass; each message arrives all the same.
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < Duration::from_secs(10) && sent < 100 {
        let event = message("1", &sent.to_string(), now());
        client.publish(event).await.unwrap();
        sent += 1;
    }
    assert!(start.elapsed() >= Duration::from_secs(10));
}
