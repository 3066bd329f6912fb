//! What clients see while their relay's PostgreSQL server fails.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use buzz_protocol::{EventId, relay_frame::RelayFrame};
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::watch;

use crate::{RELAY, postgres::settings};
use buzz_testkit::{
    Author, Client, Relay,
    cluster::{self, Cluster, Lock},
    eventually, soon,
};

/// Publishes one event after the other; each must be answered once. Ends when it is told a time and
/// an event has been accepted after it. `served` counts what was accepted.
async fn publish(
    mut client: Client,
    number: u64,
    stop: watch::Receiver<Option<Instant>>,
    served: Arc<AtomicUsize>,
) -> Answers {
    let author = Author::new(number);
    let mut answers = Answers::default();
    let mut n = 0;
    while stop.borrow().is_none_or(|since| answers.last < Some(since)) {
        n += 1;
        let event = author.note(&format!("{number}/{n}")).sign();
        client
            .send_text(&format!("[\"EVENT\",{}]", event.to_json()))
            .await;
        match client.next().await {
            RelayFrame::Ok {
                id,
                accepted,
                message,
            } => {
                assert_eq!(id, event.id, "each event is answered once, in order");
                if accepted {
                    answers.accepted.push(id);
                    served.fetch_add(1, Ordering::Relaxed);
                    answers.last = Some(Instant::now());
                } else {
                    assert!(message.starts_with("error: "), "{message}");
                    answers.refused += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    answers
}

#[derive(Default)]
struct Answers {
    accepted: Vec<EventId>,
    refused: usize,
    last: Option<Instant>,
}

/// Kills: an `OK true` before the commit, an answer given twice or never, a relay that needs a
/// restart of its own or more than 5 s.
#[tokio::test]
async fn a_server_that_is_killed_under_load_loses_nothing_that_was_acknowledged() {
    let server = Cluster::start();
    let url = server.database();
    let mut relay = RELAY.start_with(&settings(&url)).await;
    let (stop, stopped) = watch::channel(None);
    let served = Arc::new(AtomicUsize::new(0));
    let mut publishers = Vec::new();
    for number in 0..4 {
        let client = Client::connect(&relay).await;
        let (stopped, served) = (stopped.clone(), Arc::clone(&served));
        publishers.push(tokio::spawn(publish(client, number, stopped, served)));
    }
    let server = Arc::new(server);
    let mut returned = Instant::now();
    for _ in 0..3 {
        let before = served.load(Ordering::Relaxed);
        eventually("load", async || {
            (served.load(Ordering::Relaxed) > before + 20).then_some(())
        })
        .await;
        let server = Arc::clone(&server);
        let restart = tokio::task::spawn_blocking(move || {
            server.kill();
            std::thread::sleep(Duration::from_millis(200));
            server.up();
        });
        restart.await.expect("a restart");
        returned = Instant::now();
    }
    let probe = tokio::sync::Mutex::new(Client::connect(&relay).await);
    eventually("a recovery", async || {
        let note = Author::new(99)
            .note(&format!("{:?}", Instant::now()))
            .sign();
        probe.lock().await.publish(&note).await.0.then_some(())
    })
    .await;
    assert!(
        returned.elapsed() < Duration::from_secs(15),
        "{:?}",
        returned.elapsed()
    );
    stop.send(Some(returned)).expect("publishers");
    let mut acknowledged = Vec::new();
    for answers in soon("service for each publisher", join_all(publishers)).await {
        acknowledged.extend(answers.expect("a publisher").accepted);
    }
    assert!(relay.is_running());
    let mut client = Client::connect(&relay).await;
    for ids in acknowledged.chunks(500) {
        let found = client.fetch(json!({"ids": ids})).await;
        let found: HashSet<_> = found.iter().map(|event| event.id).collect();
        for id in ids {
            assert!(found.contains(id), "{id} was acknowledged and is lost");
        }
    }
}

/// Kills: an empty EOSE, silence or an end of the socket while there is no server.
#[tokio::test]
async fn without_a_server_requests_are_refused_by_name_and_work_again_later() {
    let server = Cluster::start();
    let relay = RELAY.start_with(&settings(&server.database())).await;
    let mut client = Client::connect(&relay).await;
    let note = Author::new(1).note("before").sign();
    client.accept(&note).await;
    assert_eq!(client.fetch(json!({})).await, std::slice::from_ref(&note));
    server.kill();
    for _ in 0..3 {
        let later = Author::new(1).note("meanwhile").sign();
        client.refuse(&later, "error: database unavailable").await;
        client.send(json!(["REQ", "s", {}])).await;
        let closed = client.next().await;
        let expected = RelayFrame::Closed {
            sub: "s".into(),
            message: "error: database unavailable".into(),
        };
        assert_eq!(closed, expected);
        let refused = client.count(json!({})).await;
        assert_eq!(refused, Err("error: database unavailable".into()));
    }
    server.up();
    assert_eq!(client.fetch(json!({})).await, [note]);
    client.accept(&Author::new(1).note("after").sign()).await;
}

/// Kills: no exit, another code, an error that names no server or shows the password, no wait.
#[tokio::test]
async fn at_start_a_server_is_waited_for_and_then_named() {
    let server = Cluster::start();
    let url = server.database();
    server.down();
    let wait = |time: &str| settings(&url) + &format!("database.start_wait = \"{time}\"\n");
    let dir = Relay::prepare(&wait("1s"));
    let started = Instant::now();
    let output = RELAY.command(dir.path()).output().expect("an end");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(started.elapsed() < Duration::from_secs(10));
    let last = err.lines().last().expect("an error");
    assert!(last.starts_with("error: database.url: "), "{last}");
    assert!(
        last.contains("127.0.0.1") && last.contains("refused"),
        "{last}"
    );
    assert!(!err.contains("secret"), "{err}");
    let up = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(500));
        server.up();
        server
    });
    let relay = RELAY.start_with(&wait("20s")).await;
    let _server = up.await.expect("a server");
    Client::connect(&relay)
        .await
        .accept(&Author::new(1).note("").sign())
        .await;
}

/// Kills: a query without a limit, another answer than the promised one, a lock-out after it.
#[tokio::test]
async fn a_query_that_takes_too_long_is_named() {
    let url = cluster::database();
    let limits = "history.statement_timeout = \"700ms\"\n";
    let relay = RELAY.start_with(&(settings(&url) + limits)).await;
    let mut client = Client::connect(&relay).await;
    let note = Author::new(1).note("there").sign();
    client.accept(&note).await;
    let lock = Lock::on(&url, "event");
    client.send(json!(["REQ", "s", {}])).await;
    let expected = RelayFrame::Closed {
        sub: "s".into(),
        message: "error: query took too long".into(),
    };
    assert_eq!(client.next().await, expected);
    let late = client.count(json!({"kinds": [1]})).await;
    assert_eq!(late, Err("error: query took too long".into()));
    drop(lock);
    assert_eq!(client.fetch(json!({})).await, [note]);
}

/// Kills: history reads that take the last reader, from which logins read who is a member.
#[tokio::test]
async fn a_login_finds_a_reader_while_every_history_reader_is_busy() {
    let url = cluster::database();
    let limits = "auth.members_only = true\nhistory.statement_timeout = \"60s\"\n";
    let relay = RELAY.start_with(&(settings(&url) + limits)).await;
    let author = Author::new(1);
    let added = RELAY
        .command(relay.dir())
        .args(["member", "add", &author.pubkey()])
        .output()
        .expect("an end");
    assert!(added.status.success(), "{added:?}");
    let mut client = Client::connect(&relay).await;
    client.log_in(&author).await;
    let lock = Lock::on(&url, "event");
    let waiting = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let client = tokio::sync::Mutex::new(client);
    let number = std::cell::Cell::new(0);
    eventually("busy readers", async || {
        number.set(number.get() + 1);
        let name = format!("s{}", number.get());
        client.lock().await.send(json!(["REQ", name, {}])).await;
        (cluster::sql(&url, waiting) == "8").then_some(())
    })
    .await;
    let mut other = Client::connect(&relay).await;
    other.log_in(&author).await;
    assert_eq!(
        cluster::sql(&url, waiting),
        "8",
        "they were busy all the time"
    );
    drop(lock);
}

/// Kills: reads that fail with the replica, a fallback that is not counted, a replica that is
/// never asked again.
#[tokio::test]
async fn without_its_replica_history_comes_from_the_primary_and_is_counted() {
    let primary = Cluster::start();
    let url = primary.database();
    let replica = primary.replica();
    let replica_url = replica.url(url.rsplit('/').next().expect("a name"));
    let both = settings(&url) + &format!("database.replica_url = \"{replica_url}\"\n");
    let relay = RELAY.start_with(&both).await;
    let mut client = Client::connect(&relay).await;
    let note = Author::new(1).note("there").sign();
    client.accept(&note).await;
    // At once, however far the replica is.
    assert_eq!(client.fetch(json!({})).await, std::slice::from_ref(&note));
    let down = "buzz_db_replica_fallbacks_total{reason=\"down\"}";
    let count = async |name: &str| {
        let metrics = relay.metrics().await.0;
        let line = metrics.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("no {name} in {metrics}"))
    };
    assert!(count(down).await < 1.0);
    replica.kill();
    assert_eq!(client.fetch(json!({})).await, std::slice::from_ref(&note));
    assert!(count(down).await > 0.0);
    replica.up();
    let client = tokio::sync::Mutex::new(client);
    eventually("a read from the replica", async || {
        let before = count(down).await;
        assert_eq!(
            client.lock().await.fetch(json!({})).await,
            std::slice::from_ref(&note)
        );
        (count(down).await <= before).then_some(())
    })
    .await;
    // The replica hangs at an old state: what it lacks comes from the primary.
    cluster::sql(&replica_url, "SELECT pg_wal_replay_pause()");
    let mut client = client.into_inner();
    for n in 0..5 {
        let later = Author::new(2).note(&n.to_string()).sign();
        client.accept(&later).await;
        assert_eq!(client.fetch(json!({"ids": [later.id]})).await, [later]);
    }
    assert!(count("buzz_db_replica_fallbacks_total{reason=\"lag\"}").await >= 5.0);
}
