//! What was acknowledged is there: after `kill -9` at any instant, and on a full or broken disk.

use std::{collections::HashSet, process::Command};

use buzz_protocol::{Event, EventId, relay_frame::RelayFrame};
use diesel::{Connection, RunQueryDsl, SqliteConnection};
use futures_util::future::join_all;
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::json;
use tokio::sync::watch;

use buzz_testkit::{Author, Client, Relay, events::ids, eventually, http};

use crate::RELAY;

/// Publishes until the relay is gone; gives what it acknowledged.
async fn publish_until_killed(
    mut client: Client,
    number: u64,
    round: u64,
    acknowledged: watch::Sender<usize>,
) -> Vec<EventId> {
    let author = Author::new(number);
    let mut ids = Vec::new();
    let mut n = 0;
    loop {
        for _ in 0..8 {
            let event = author
                .note(&format!("{round} {number} {n}"))
                .at(1_000 + n)
                .sign();
            n += 1;
            if !client
                .try_send(format!("[\"EVENT\",{}]", event.to_json()))
                .await
            {
                return ids;
            }
        }
        for _ in 0..8 {
            match client.try_next().await {
                Some(RelayFrame::Ok {
                    id, accepted: true, ..
                }) => {
                    ids.push(id);
                    acknowledged.send_modify(|count| *count += 1);
                }
                Some(RelayFrame::Auth { .. }) => {}
                Some(other) => panic!("{other:?}"),
                None => return ids,
            }
        }
    }
}

async fn check_all_there(client: &mut Client, ids: &[EventId]) {
    for ids in ids.chunks(500) {
        let found = client.fetch(json!({"ids": ids})).await;
        let found: HashSet<_> = found.iter().map(|event| event.id).collect();
        for id in ids {
            assert!(found.contains(id), "{id} was acknowledged and is lost");
        }
    }
}

#[tokio::test]
async fn twenty_kills_under_load_lose_no_acknowledged_event() {
    let mut relay = RELAY.start().await;
    let mut all = Vec::new();
    for round in 0..20 {
        let (acknowledged, mut progress) = watch::channel(0);
        let mut publishers = Vec::new();
        for number in 0..4 {
            let client = Client::connect(&relay).await;
            publishers.push(tokio::spawn(publish_until_killed(
                client,
                number,
                round,
                acknowledged.clone(),
            )));
        }
        // Another point in each round, and never one that the relay could wait for.
        let enough = 20 + (round as usize * 37) % 200;
        progress
            .wait_for(|count| *count >= enough)
            .await
            .expect("publishers run");
        relay.kill().await;
        let mut ids = Vec::new();
        for publisher in join_all(publishers).await {
            ids.extend(publisher.expect("a publisher"));
        }
        assert!(ids.len() >= enough);
        relay = relay.again().await;
        check_all_there(&mut Client::connect(&relay).await, &ids).await;
        all.extend(ids);
    }
    let mut client = Client::connect(&relay).await;
    check_all_there(&mut client, &all).await;
    // What was written without an answer in time may be there too, once.
    let stored = client.count(json!({"kinds": [1]})).await.expect("a count");
    assert!(stored >= all.len() as u64);
}

#[tokio::test]
async fn a_replacement_and_a_deletion_survive_a_kill_whole() {
    let mut relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let old = author.event(0, "old").at(1_000).sign();
    let new = author.event(0, "new").at(1_001).sign();
    let note = author.note("gone").at(1_000).sign();
    let deletion = author.deletion(&[("e", &note.id.to_hex())]).sign();
    for event in [&old, &note, &new, &deletion] {
        client.accept(event).await;
    }
    relay.kill().await;
    let relay = relay.again().await;
    let mut client = Client::connect(&relay).await;
    assert_eq!(client.fetch(json!({})).await, [deletion, new]);
}

/// A relay whose files may not grow past what `prlimit` allows later.
async fn that_gets_write_errors(settings: &str) -> Relay {
    RELAY
        .start_in(Relay::prepare(settings), |command| {
            // Without this the system would end a process that writes past its limit.
            let mut shell = Command::new("sh");
            shell
                .current_dir(command.get_current_dir().expect("a directory"))
                .args(["-c", "trap '' 25; exec \"$0\" --config relay.toml"])
                .arg(RELAY.path());
            *command = shell;
        })
        .await
}

fn limit_file_size(relay: &Relay, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(Some(relay.pid()), Resource::Fsize, limit).expect("the relay runs");
}

fn largest_file(relay: &Relay) -> u64 {
    let files = std::fs::read_dir(relay.dir()).expect("a directory");
    let sizes = files.map(|file| file.expect("a file").metadata().expect("a file").len());
    sizes.max().expect("a database")
}

#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing_and_room_is_used_again() {
    let mut relay = that_gets_write_errors("").await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let first = author.note("before").at(999).sign();
    client.accept(&first).await;
    limit_file_size(&relay, Some(largest_file(&relay) + 100_000));

    // Each refusal may make the store start its log anew, so one is not yet the end.
    let mut stored: Vec<Event> = vec![first];
    let mut refused = Vec::new();
    while refused.len() < 5 {
        let n = (stored.len() + refused.len()) as u64;
        assert!(n < 10_000, "the disk is never full");
        let event = author.note(&"x".repeat(2_000)).at(1_000 + n).sign();
        let (accepted, message) = client.publish(&event).await;
        if accepted {
            stored.push(event);
        } else {
            assert!(message.starts_with("error: "), "{message}");
            refused.push(event);
        }
    }
    assert!(relay.is_running());
    let missing = client.fetch(json!({"ids": ids(&refused)})).await;
    assert_eq!(missing, [], "refused and there");
    let known = client.fetch(json!({"kinds": [1], "limit": 1})).await;
    assert_eq!(known, stored[stored.len() - 1..], "reads go on");

    limit_file_size(&relay, None);
    let client = tokio::sync::Mutex::new(client);
    for event in &refused {
        eventually("room is used again", async || {
            client.lock().await.publish(event).await.0.then_some(())
        })
        .await;
    }
    stored.extend(refused);
    relay.kill().await;
    let relay = relay.again().await;
    let ids: Vec<_> = stored.iter().map(|event| event.id).collect();
    check_all_there(&mut Client::connect(&relay).await, &ids).await;
}

#[tokio::test]
async fn a_database_that_can_not_be_read_closes_the_request_and_never_says_eose() {
    let mut relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    for n in 0..300u64 {
        let event = author.note(&"x".repeat(2_000)).at(1_000 + n).sign();
        client
            .send_text(&format!("[\"EVENT\",{}]", event.to_json()))
            .await;
    }
    for _ in 0..300 {
        let accepted = client.next().await;
        assert!(
            matches!(accepted, RelayFrame::Ok { accepted: true, .. }),
            "{accepted:?}"
        );
    }
    relay.terminate();
    assert!(relay.ended().await.success());

    // Everything into the one file, as a backup would have it.
    let mut connection =
        SqliteConnection::establish(&relay.database().to_string_lossy()).expect("the database");
    diesel::sql_query("PRAGMA wal_checkpoint(TRUNCATE)")
        .execute(&mut connection)
        .expect("a checkpoint");
    drop(connection);
    // The head with the schema stays, so that the relay starts; most of the rest is noise.
    let path = relay.database();
    let mut bytes = std::fs::read(&path).expect("the database");
    assert!(bytes.len() > 400_000, "{} bytes", bytes.len());
    let from = bytes.len() / 4;
    bytes[from..].fill(0xa5);
    std::fs::write(&path, bytes).expect("the database");

    let mut relay = relay.again().await;
    let mut client = Client::connect(&relay).await;
    client.send(json!(["REQ", "s", {"limit": 400}])).await;
    loop {
        match client.next().await {
            RelayFrame::Event { .. } => {}
            RelayFrame::Closed { sub, message } => {
                assert_eq!(sub, "s");
                assert!(message.starts_with("error: "), "{message}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(relay.is_running());
    assert_eq!(http::get(relay.admin, "/livez").await.status, 200);
    assert_eq!(
        client.fetch(json!({"ids": []})).await,
        [],
        "the socket goes on"
    );
}
