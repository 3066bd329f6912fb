//! Stored events, EOSE, then live ones: none missing, none twice, while others publish.

use std::collections::{HashMap, HashSet};

use buzz_protocol::{Event, EventId, relay_frame::RelayFrame};
use futures_util::future::{join, join_all};
use serde_json::json;
use tokio::sync::watch;

use buzz_testkit::{Author, Client, Relay};

use crate::RELAY;

const PUBLISHERS: u64 = 4;
const EVENTS_EACH: u64 = 300;
const SUBSCRIBERS: usize = 12;

async fn publish(relay: &Relay, number: u64, done: &watch::Sender<usize>) -> Vec<Event> {
    let author = Author::new(number);
    let events: Vec<_> = (0..EVENTS_EACH)
        .map(|n| author.note(&n.to_string()).at(1_000 + n).sign())
        .collect();
    let mut client = Client::connect(relay).await;
    for window in events.chunks(8) {
        for event in window {
            let frame = format!("[\"EVENT\",{}]", event.to_json());
            client.send_text(&frame).await;
        }
        for event in window {
            assert_eq!(client.verdict(event).await, (true, String::new()));
            done.send_modify(|count| *count += 1);
        }
    }
    events
}

/// Subscribes once `after` events are acknowledged, and reads until it has all of them.
async fn subscribe(
    relay: &Relay,
    after: usize,
    mut done: watch::Receiver<usize>,
) -> HashMap<EventId, usize> {
    let mut client = Client::connect(relay).await;
    done.wait_for(|count| *count >= after)
        .await
        .expect("publishers run");
    let acknowledged = *done.borrow();
    client
        .send(json!(["REQ", "s", {"kinds": [1], "limit": 5000}]))
        .await;
    let all = (PUBLISHERS * EVENTS_EACH) as usize;
    let mut seen = HashMap::new();
    let (mut stored, mut last) = (None, None);
    while seen.len() < all || stored.is_none() {
        match client.next().await {
            RelayFrame::Event { event, .. } => {
                if stored.is_none() {
                    let key = (u64::MAX - event.created_at, event.id);
                    assert!(last < Some(key), "stored events out of order");
                    last = Some(key);
                }
                *seen.entry(event.id).or_insert(0) += 1;
            }
            RelayFrame::Eose { .. } => {
                assert_eq!(stored, None, "a second EOSE");
                assert!(
                    seen.len() >= acknowledged,
                    "an acknowledged event is missing"
                );
                stored = Some(seen.len());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.frames_so_far().await, [], "after everything");
    seen
}

#[tokio::test]
async fn no_event_is_missing_or_sent_twice_across_the_seam() {
    let relay = RELAY.start_with("limits.max_limit = 5000").await;
    let (done, progress) = watch::channel(0);
    let publishers = join_all((0..PUBLISHERS).map(|number| publish(&relay, number, &done)));
    let step = (PUBLISHERS * EVENTS_EACH) as usize / SUBSCRIBERS;
    let subscribers =
        join_all((0..SUBSCRIBERS).map(|n| subscribe(&relay, n * step, progress.clone())));
    let (published, received) = join(publishers, subscribers).await;
    let published: HashSet<_> = published.concat().iter().map(|event| event.id).collect();
    for seen in received {
        assert_eq!(seen.keys().copied().collect::<HashSet<_>>(), published);
        assert!(
            seen.values().all(|times| *times == 1),
            "an event came twice"
        );
    }
}

#[tokio::test]
async fn many_short_subscriptions_during_publishing_miss_nothing_acknowledged() {
    let relay = RELAY.start_with("limits.max_limit = 5000").await;
    let (done, progress) = watch::channel(0);
    let publishers = join_all((0..PUBLISHERS).map(|number| publish(&relay, number, &done)));
    let all = (PUBLISHERS * EVENTS_EACH) as usize;
    let reader = async {
        let mut client = Client::connect(&relay).await;
        loop {
            let acknowledged = *progress.borrow();
            let stored = client.fetch(json!({"kinds": [1], "limit": 5000})).await;
            let distinct: HashSet<_> = stored.iter().map(|event| event.id).collect();
            assert_eq!(distinct.len(), stored.len(), "an event came twice");
            assert!(
                distinct.len() >= acknowledged,
                "an acknowledged event is missing"
            );
            if acknowledged == all {
                break;
            }
        }
    };
    join(publishers, reader).await;
}
