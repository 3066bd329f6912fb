//! The client over real sockets, against the small relay of `common`.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use buzz_client::{Client, Message, Status, Subscription};
use common::{Relay, Rules, channel, keys, message, unix_now};
use futures_util::StreamExt;
use tokio::time::timeout;

async fn next(sub: &mut Subscription) -> Message {
    let message = timeout(Duration::from_secs(30), sub.next()).await;
    message
        .expect("nothing in 30 s")
        .expect("the subscription ended")
}

async fn next_text(sub: &mut Subscription) -> String {
    match next(sub).await {
        Message::Event(event) => event.content.clone(),
        other => panic!("{other:?} instead of an event"),
    }
}

#[tokio::test]
async fn publish_subscribe_and_count_end_to_end() {
    let relay = Relay::start(Rules::default()).await;
    let client = Client::builder(&relay.url).connect().unwrap();
    let stored = message("a", "stored", unix_now());
    assert!(!client.publish(stored.clone()).await.unwrap().duplicate);
    assert!(client.publish(stored).await.unwrap().duplicate);
    let mut sub = client.subscribe(vec![channel("a")]);
    assert_eq!(next_text(&mut sub).await, "stored");
    assert_eq!(next(&mut sub).await, Message::CaughtUp);
    client
        .publish(message("b", "elsewhere", unix_now()))
        .await
        .unwrap();
    client
        .publish(message("a", "live", unix_now()))
        .await
        .unwrap();
    assert_eq!(next_text(&mut sub).await, "live");
    assert_eq!(client.count(vec![channel("a")]).await, Ok(2));
    let statuses = client.status();
    client.close().await;
    assert_eq!(sub.next().await, None);
    assert_eq!(
        statuses.collect::<Vec<_>>().await.last(),
        Some(&Status::Closed)
    );
    let late = client.publish(message("a", "late", unix_now())).await;
    assert_eq!(late, Err(buzz_client::Error::Closed));
}

#[tokio::test]
async fn a_refused_message_arrives_by_itself() {
    let refuse_events = ["rate-limited: quota exceeded; retry in 1s".to_owned()].into();
    let relay = Relay::start(Rules {
        refuse_events,
        ..Rules::default()
    })
    .await;
    let client = Client::builder(&relay.url).connect().unwrap();
    let start = Instant::now();
    client.publish(message("a", "x", unix_now())).await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(relay.frames("EVENT").len(), 2);
}

#[tokio::test]
async fn what_came_while_the_socket_was_lost_is_caught_up() {
    let relay = Relay::start(Rules::default()).await;
    let client = Client::builder(&relay.url).connect().unwrap();
    let writer = Client::builder(&relay.url).connect().unwrap();
    let mut sub = client.subscribe(vec![channel("a")]);
    assert_eq!(next(&mut sub).await, Message::CaughtUp);
    writer.publish(message("a", "1", unix_now())).await.unwrap();
    assert_eq!(next_text(&mut sub).await, "1");
    relay.kick();
    writer.publish(message("a", "2", unix_now())).await.unwrap();
    assert_eq!(next_text(&mut sub).await, "2");
    writer.publish(message("a", "3", unix_now())).await.unwrap();
    assert_eq!(next_text(&mut sub).await, "3");
}

#[tokio::test]
async fn a_relay_that_wants_a_login_gets_one() {
    let relay = Relay::start(Rules {
        auth_required: true,
        shed_logins: 1,
        ..Rules::default()
    })
    .await;
    let client = Client::builder(&relay.url)
        .signer(keys(2))
        .connect()
        .unwrap();
    let mut sub = client.subscribe(vec![channel("a")]);
    client.authenticate().await.unwrap();
    assert_eq!(
        relay.state().sockets,
        2,
        "a login shed by a bare close is an ordinary reconnect"
    );
    client.publish(message("a", "x", unix_now())).await.unwrap();
    loop {
        match next(&mut sub).await {
            Message::Event(event) if event.content == "x" => break,
            Message::CaughtUp => {}
            other => panic!("{other:?}"),
        }
    }
}
