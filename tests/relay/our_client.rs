//! The client library of this repository against the relay.

use std::time::{Duration, Instant};

use buzz_client::{Client as BuzzClient, Message, Subscription};
use buzz_protocol::Filter;

use crate::support::{Author, Client, Relay, soon};

fn channels(client: &BuzzClient) -> Vec<Subscription> {
    let channel = |n: usize| Filter {
        tags: [(b'h', vec![format!("channel-{n}")])].into(),
        ..Filter::default()
    };
    (0..40)
        .map(|n| client.subscribe(vec![channel(n)]))
        .collect()
}

async fn next_event(channel: &mut Subscription) -> String {
    soon("an event of the channel", async {
        loop {
            match channel.next().await.expect("an open channel") {
                Message::Event(event) => return event.content.clone(),
                Message::CaughtUp => {}
                Message::Closed(reason) => panic!("closed: {reason}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_client_with_forty_channels_switches_relay_and_sends_at_once() {
    let (first, second) = (Relay::start().await, Relay::start().await);
    let author = Author::new(1);
    let mut publisher = Client::connect(&second).await;
    let stored = author.note("stored").tag(&["h", "channel-39"]).sign();
    publisher.accept(&stored).await;

    let client = BuzzClient::builder(first.url())
        .connect()
        .expect("a client");
    let mut channels = channels(&client);
    let here = author.note("here").tag(&["h", "channel-0"]).sign();
    soon("the first relay's OK", client.publish(here))
        .await
        .expect("published");
    assert_eq!(next_event(&mut channels[0]).await, "here");

    client.switch(second.url()).expect("a URL");
    let began = Instant::now();
    let there = author.note("there").tag(&["h", "channel-1"]).sign();
    soon("the second relay's OK", client.publish(there))
        .await
        .expect("published");
    let took = began.elapsed();
    assert!(
        took < Duration::from_secs(1),
        "the first send took {took:?}"
    );
    assert_eq!(next_event(&mut channels[1]).await, "there");
    assert_eq!(next_event(&mut channels[39]).await, "stored");
    let live = author.note("live").tag(&["h", "channel-20"]).sign();
    publisher.accept(&live).await;
    assert_eq!(next_event(&mut channels[20]).await, "live");
    let metrics = second.metrics().await;
    assert_eq!(
        metrics.get("buzz_events_total{outcome=\"rate_limited\"}"),
        0.0
    );
    client.close().await;
}
