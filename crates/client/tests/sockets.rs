//! The client over real sockets, against a small relay.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use buzz_client::{Client, Message, Status, Subscription};
use buzz_testkit::{
    Author, SmallRelay, now,
    small_relay::{Reaction, Rules},
};
use common::{channel, message};
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
    let relay = SmallRelay::start(Rules::default());
    let client = Client::builder(&relay.url).connect().unwrap();
    let stored = message("a", "stored", now());
    assert!(!client.publish(stored.clone()).await.unwrap().duplicate);
    assert!(client.publish(stored).await.unwrap().duplicate);
    let mut sub = client.subscribe(vec![channel("a")]);
    assert_eq!(next_text(&mut sub).await, "stored");
    assert_eq!(next(&mut sub).await, Message::CaughtUp);
    client
        .publish(message("b", "elsewhere", now()))
        .await
        .unwrap();
    client.publish(message("a", "live", now())).await.unwrap();
    assert_eq!(next_text(&mut sub).await, "live");
    assert_eq!(client.count(vec![channel("a")]).await, Ok(2));
    let statuses = client.status();
    client.close().await;
    assert_eq!(sub.next().await, None);
    assert_eq!(
        statuses.collect::<Vec<_>>().await.last(),
        Some(&Status::Closed)
    );
    let late = client.publish(message("a", "late", now())).await;
    assert_eq!(late, Err(buzz_client::Error::Closed));
}

#[tokio::test]
async fn a_refused_message_arrives_by_itself() {
    let first = |n| match n {
        1 => Reaction::Refuse("rate-limited: quota exceeded; retry in 1s"),
        _ => Reaction::Take,
    };
    let relay = SmallRelay::start(Rules {
        events: Box::new(first),
        ..Rules::default()
    });
    let client = Client::builder(&relay.url).connect().unwrap();
    let start = Instant::now();
    client.publish(message("a", "x", now())).await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(relay.frames("EVENT").len(), 2);
}

#[tokio::test]
async fn what_came_while_the_socket_was_lost_is_caught_up() {
    let relay = SmallRelay::start(Rules::default());
    let client = Client::builder(&relay.url).connect().unwrap();
    let writer = Client::builder(&relay.url).connect().unwrap();
    let mut sub = client.subscribe(vec![channel("a")]);
    assert_eq!(next(&mut sub).await, Message::CaughtUp);
    writer.publish(message("a", "1", now())).await.unwrap();
    assert_eq!(next_text(&mut sub).await, "1");
    relay.kick();
    writer.publish(message("a", "2", now())).await.unwrap();
    assert_eq!(next_text(&mut sub).await, "2");
    writer.publish(message("a", "3", now())).await.unwrap();
    assert_eq!(next_text(&mut sub).await, "3");
}

#[tokio::test]
async fn a_relay_that_wants_a_login_gets_one() {
    let relay = SmallRelay::start(Rules {
        auth_required: true,
        logins: Box::new(|n| match n {
            1 => Reaction::Cut,
            _ => Reaction::Take,
        }),
        ..Rules::default()
    });
    let client = Client::builder(&relay.url)
        .signer(Author::new(2).keys())
        .connect()
        .unwrap();
    let mut sub = client.subscribe(vec![channel("a")]);
    client.authenticate().await.unwrap();
    assert_eq!(
        relay.state().sockets,
        2,
        "a login shed by a bare close is an ordinary reconnect"
    );
    client.publish(message("a", "x", now())).await.unwrap();
    loop {
        match next(&mut sub).await {
            Message::Event(event) if event.content == "x" => break,
            Message::CaughtUp => {}
            other => panic!("{other:?}"),
        }
    }
}

/// `n` live subscriptions.
async fn live(client: &Client, n: usize) -> Vec<Subscription> {
    let open = |n: usize| client.subscribe(vec![channel(&n.to_string())]);
    let mut subs: Vec<_> = (0..n).map(open).collect();
    for sub in &mut subs {
        assert_eq!(next(sub).await, Message::CaughtUp);
    }
    subs
}

#[tokio::test]
async fn a_switch_with_forty_channels_and_a_message_at_once_succeeds_within_a_second() {
    let quota = || Rules {
        quota: Some(50),
        ..Rules::default()
    };
    let (old, new) = (SmallRelay::start(quota()), SmallRelay::start(quota()));
    let client = Client::builder(&old.url).connect().unwrap();
    let mut subs = live(&client, 40).await;
    assert!(old.frames("REQ").len() <= 5);
    let start = Instant::now();
    client.switch(&new.url).unwrap();
    client.publish(message("7", "hello", now())).await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(next_text(&mut subs[7]).await, "hello");
    assert!(new.frames("REQ").len() <= 5);
    assert_eq!(new.state().refusals, 0);
}

#[tokio::test]
async fn a_client_forced_over_quota_succeeds_when_the_gate_clears() {
    let relay = SmallRelay::start(Rules {
        quota: Some(50),
        ..Rules::default()
    });
    let client = Client::builder(&relay.url).connect().unwrap();
    let _subs = live(&client, 40).await;
    // Another client of the same account uses the quota up.
    let other = Client::builder(&relay.url).connect().unwrap();
    for n in 0..46 {
        other
            .publish(message("0", &n.to_string(), now()))
            .await
            .unwrap();
    }
    client.publish(message("7", "hello", now())).await.unwrap();
    assert_eq!(relay.state().refusals, 1);
    // Four REQs, the message, and the message again.
    assert_eq!((client.frames_sent(), client.refusals()), (6, 1));
}

#[tokio::test]
async fn more_events_than_the_queue_holds_reach_a_slow_consumer() {
    let relay = SmallRelay::start(Rules::default());
    let client = Client::builder(&relay.url).connect().unwrap();
    let mut sub = client.subscribe(vec![channel("a")]);
    assert_eq!(next(&mut sub).await, Message::CaughtUp);
    let now = now();
    let events: Vec<_> = (0..400)
        .map(|n| message("a", &n.to_string(), now - n % 100))
        .collect();
    relay.publish(&events);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut got = std::collections::HashSet::new();
    while got.len() < events.len() {
        assert!(got.insert(next_text(&mut sub).await), "twice");
    }
    // The first one, and four pages of what fits in half of the queue.
    assert!(relay.frames("REQ").len() <= 5);
}
