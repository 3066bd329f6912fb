//! Replaceable and addressable events (NIP-01, "Kinds"): one version remains, the right one.

use buzz_protocol::Event;
use futures_util::future::join_all;
use serde_json::json;

use buzz_testkit::{Author, Client, Relay, events::ids, now};

use crate::RELAY;

const SUPERSEDED: &str = "duplicate: a newer version is stored";

/// Publishes `events` from ten sockets at once, and gives the verdicts.
async fn publish_from_ten_sockets(relay: &Relay, events: &[Event]) -> Vec<(bool, String)> {
    let publishers = events
        .chunks(events.len().div_ceil(10))
        .map(async |events| {
            let mut client = Client::connect(relay).await;
            for event in events {
                let frame = format!("[\"EVENT\",{}]", event.to_json());
                client.send_text(&frame).await;
            }
            let mut verdicts = Vec::new();
            for event in events {
                verdicts.push(client.verdict(event).await);
            }
            verdicts
        });
    join_all(publishers).await.concat()
}

/// A fixed order that looks like none.
fn shuffled<T: Clone>(items: &[T]) -> Vec<T> {
    // 37 and 50 have no common factor: every place is taken once.
    (0..items.len())
        .map(|at| items[at * 37 % items.len()].clone())
        .collect()
}

fn check_verdicts(verdicts: &[(bool, String)]) {
    for (accepted, message) in verdicts {
        match accepted {
            true => assert_eq!(message, ""),
            false => assert_eq!(message, SUPERSEDED),
        }
    }
}

#[tokio::test]
async fn of_fifty_versions_sent_at_once_the_newest_remains() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    for (kind, d) in [(0, None), (10_002, None), (30_023, Some("page"))] {
        let versions: Vec<_> = (0..50)
            .map(|n| {
                let draft = author.event(kind, &format!("version {n}")).at(1_000 + n);
                d.map_or(draft.clone(), |d| draft.tag(&["d", d])).sign()
            })
            .collect();
        let verdicts = publish_from_ten_sockets(&relay, &shuffled(&versions)).await;
        check_verdicts(&verdicts);
        let mut client = Client::connect(&relay).await;
        let stored = client.fetch(json!({"kinds": [kind]})).await;
        assert_eq!(ids(&stored), ids(&versions[49..]));
        let by_id = client.fetch(json!({"ids": ids(&versions)})).await;
        assert_eq!(ids(&by_id), ids(&versions[49..]), "no older one by its id");
    }
}

#[tokio::test]
async fn of_versions_of_one_second_the_lowest_id_remains_in_whatever_order_they_came() {
    let relay = RELAY.start().await;
    for number in 0..2 {
        let author = Author::new(number);
        let mut versions: Vec<_> = (0..50)
            .map(|n| author.event(3, &format!("version {n}")).at(1_000).sign())
            .collect();
        versions.sort_by_key(|event| event.id);
        let mut order = shuffled(&versions);
        if number == 1 {
            order = versions.iter().rev().cloned().collect();
        }
        check_verdicts(&publish_from_ten_sockets(&relay, &order).await);
        let mut client = Client::connect(&relay).await;
        let stored = client
            .fetch(json!({"kinds": [3], "authors": [author.pubkey()]}))
            .await;
        assert_eq!(ids(&stored), ids(&versions[..1]));
    }
}

#[tokio::test]
async fn a_superseded_version_is_refused_by_name_and_not_passed_on() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let newer = author.event(0, "newer").at(2_000).sign();
    client.accept(&newer).await;
    client.subscribe("live", json!({"limit": 0})).await;
    let older = author.event(0, "older").at(1_999).sign();
    assert_eq!(client.publish(&older).await, (false, SUPERSEDED.to_owned()));
    let marker = author.note("marker").sign();
    client.accept(&marker).await;
    assert_eq!(client.live().await, ("live".to_owned(), marker));
}

#[tokio::test]
async fn a_replacing_version_is_not_resurrected_by_resending_the_replaced_one() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let first = author.event(10_000, "first").at(1_000).sign();
    let second = author.event(10_000, "second").at(1_001).sign();
    client.accept(&first).await;
    client.accept(&second).await;
    client.refuse(&first, SUPERSEDED).await;
    let again = client.publish(&second).await;
    assert_eq!(
        again,
        (true, "duplicate: already have this event".to_owned())
    );
    let stored = client.fetch(json!({"kinds": [10_000]})).await;
    assert_eq!(ids(&stored), [second.id.to_hex()]);
}

#[tokio::test]
async fn only_addressable_kinds_replace_by_their_d_tag() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    for kind in [1, 4, 9_999, 40_000] {
        let one = author.event(kind, "one").at(1_000).tag(&["d", "x"]).sign();
        let two = author.event(kind, "two").at(1_000).tag(&["d", "x"]).sign();
        client.accept(&one).await;
        client.accept(&two).await;
        let stored = client.fetch(json!({"kinds": [kind]})).await;
        assert_eq!(stored.len(), 2, "kind {kind}");
    }
}

#[tokio::test]
async fn an_address_without_d_with_a_bare_and_with_an_empty_d_is_one() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let none = author.event(30_000, "none").at(1_000).sign();
    let bare = author.event(30_000, "bare").at(1_001).tag(&["d"]).sign();
    let empty = author
        .event(30_000, "empty")
        .at(1_002)
        .tag(&["d", ""])
        .sign();
    for event in [&none, &bare, &empty] {
        client.accept(event).await;
        let stored = client.fetch(json!({"kinds": [30_000]})).await;
        assert_eq!(ids(&stored), [event.id.to_hex()]);
    }
    client.refuse(&none, SUPERSEDED).await;
    client.refuse(&bare, SUPERSEDED).await;
}

#[tokio::test]
async fn authors_kinds_and_d_values_have_addresses_of_their_own() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let mut expected = Vec::new();
    for author in [Author::new(1), Author::new(2)] {
        for kind in [30_000, 30_001] {
            for d in ["", "a", "A", "a ", "ä"] {
                let event = author.event(kind, "").at(1_000).tag(&["d", d]).sign();
                client.accept(&event).await;
                expected.push(event.id.to_hex());
            }
        }
    }
    expected.sort();
    let stored = client.fetch(json!({"kinds": [30_000, 30_001]})).await;
    assert_eq!(ids(&stored), expected);
}

#[tokio::test]
async fn ephemeral_events_are_passed_on_and_never_stored() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut listener = Client::connect(&relay).await;
    listener
        .subscribe("live", json!({"kinds": [20_000, 29_999]}))
        .await;
    let mut client = Client::connect(&relay).await;
    for kind in [20_000, 29_999] {
        let event = author.event(kind, "now").sign();
        client.accept(&event).await;
        assert_eq!(listener.live().await.1, event);
        assert_eq!(client.fetch(json!({"ids": [event.id]})).await, []);
    }
    let count = client.count(json!({"since": now() - 60})).await;
    assert_eq!(count, Ok(0));
}
