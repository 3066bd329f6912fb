//! The relay on PostgreSQL: what clients and operators do, in a smoke run each. That both
//! databases do the same in detail is tested where the store is.

use std::process::Command;

use serde_json::json;

use buzz_testkit::{
    Author, Client, Relay, cluster,
    events::{REAL_LINES, address, ids},
    http,
};

use crate::RELAY;

/// Settings of a relay on a new database.
pub(crate) fn settings(url: &str) -> String {
    format!("database.url = \"{url}\"\n")
}

/// Kills: any of the main flows that needs SQLite.
#[tokio::test]
async fn publish_query_live_replace_delete_count_and_restart() {
    let url = cluster::database();
    let mut relay = RELAY.start_with(&settings(&url)).await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let mut other = Client::connect(&relay).await;
    assert_eq!(
        other.subscribe("live", json!({"kinds": [1, 0, 5]})).await,
        []
    );
    let note = author
        .note("a \u{1} \u{0} ñ 🍕")
        .tag(&["t", "x"])
        .at(1_000)
        .sign();
    let old = author.event(0, "old").at(1_000).sign();
    let new = author.event(0, "new").at(1_001).sign();
    let gone = author.note("gone").at(1_002).sign();
    let deletion = author
        .deletion(&[("e", &gone.id.to_hex())])
        .at(1_003)
        .sign();
    for event in [&note, &old, &new, &gone, &deletion] {
        client.accept(event).await;
        assert_eq!(other.live().await, ("live".to_owned(), (*event).clone()));
    }
    let (accepted, message) = client.publish(&note).await;
    assert!(accepted && message.starts_with("duplicate:"), "{message}");
    client.refuse(&gone, "blocked:").await;
    let expected = [deletion.clone(), new.clone(), note.clone()];
    for _ in 0..2 {
        let mut client = Client::connect(&relay).await;
        assert_eq!(client.fetch(json!({})).await, expected);
        for filter in [
            json!({"ids": [note.id]}),
            json!({"#t": ["x"]}),
            json!([{"authors": [author.pubkey()], "kinds": [1, 7]}, {"#t": ["x", "y"]}]),
        ] {
            assert_eq!(client.fetch(filter).await, std::slice::from_ref(&note));
        }
        assert_eq!(
            client.count(json!({"authors": [author.pubkey()]})).await,
            Ok(3)
        );
        relay.terminate();
        assert!(relay.ended().await.success());
        relay = relay.again().await;
    }
    let metrics = relay.metrics().await;
    assert!(
        metrics.0.contains("buzz_db_replica_fallbacks_total"),
        "{}",
        metrics.0
    );
}

/// Kills: a relay that hides what another one wrote, or that refuses to share a database.
#[tokio::test]
async fn two_relays_share_a_database() {
    let url = cluster::database();
    let settings = settings(&url);
    let (one, two) = tokio::join!(RELAY.start_with(&settings), RELAY.start_with(&settings));
    let author = Author::new(1);
    let (mut at_one, mut at_two) = (Client::connect(&one).await, Client::connect(&two).await);
    let version = |n: u64| {
        author
            .event(30_000, "")
            .tag(&["d", "x"])
            .at(1_000 + n)
            .sign()
    };
    let versions: Vec<_> = (0..10).map(version).collect();
    for pair in versions.chunks(2) {
        let (_, _) = tokio::join!(at_one.publish(&pair[1]), at_two.publish(&pair[0]));
    }
    let newest = [versions[9].clone()];
    assert_eq!(at_one.fetch(json!({})).await, newest);
    assert_eq!(at_two.fetch(json!({})).await, newest);
    let deletion = author
        .deletion(&[("a", &address(&newest[0]))])
        .at(1_020)
        .sign();
    at_two.accept(&deletion).await;
    at_one.refuse(&version(15), "blocked:").await;
    assert_eq!(at_one.fetch(json!({"kinds": [30_000]})).await, []);
}

fn run(url: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let dir = Relay::prepare(&settings(url));
    std::fs::write(dir.path().join("events.jsonl"), REAL_LINES).expect("a file");
    let mut command: Command = RELAY.command(dir.path());
    let output = command.args(arguments).output().expect("the relay starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Kills: a subcommand that knows SQLite alone, a password that is shown.
#[test]
fn the_subcommands_take_a_postgres_url_and_never_show_its_password() {
    let url = cluster::database();
    for (arguments, shown) in [
        (&["migrate"][..], "up to date"),
        (&["check-config"], "database"),
        (&["import", "events.jsonl"], "accepted"),
        (&["import", "events.jsonl"], "accepted 0, duplicate"),
        (&["export"], "\"sig\""),
    ] {
        let (code, out, err) = run(&url, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {err}");
        assert!(out.contains(shown), "{arguments:?}: {out}");
        assert!(!(out + &err).contains("secret"), "{arguments:?}");
    }
    let (_, on_sqlite, _) = {
        let dir = Relay::prepare("");
        std::fs::write(dir.path().join("events.jsonl"), REAL_LINES).expect("a file");
        let run = |arguments: &[&str]| {
            let output = RELAY
                .command(dir.path())
                .args(arguments)
                .output()
                .expect("the relay starts");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        (run(&["import", "events.jsonl"]), run(&["export"]), ())
    };
    assert_eq!(
        run(&url, &["export"]).1,
        on_sqlite,
        "both databases give the same bytes"
    );
}

/// Kills: a replica of a SQLite file, one that is no PostgreSQL, a time of nothing.
#[test]
fn wrong_settings_are_named() {
    let dir = Relay::prepare("");
    for (text, key) in [
        (
            "database.replica_url = \"postgres://u:secret@h/d\"",
            "database.replica_url",
        ),
        (
            "database.url = \"postgres://h/d\"\ndatabase.replica_url = \"sqlite://x\"",
            "database.replica_url",
        ),
        ("database.url = \"mysql://u:secret@h/d\"", "database.url"),
        (
            "history.statement_timeout = \"0s\"",
            "history.statement_timeout",
        ),
    ] {
        std::fs::write(dir.path().join("relay.toml"), text).expect("a configuration");
        let output = RELAY
            .command(dir.path())
            .arg("check-config")
            .output()
            .expect("an end");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(err.contains(key) && !err.contains("secret"), "{err}");
    }
}

/// Kills: readiness that does not ask the database, or waits without a bound for one that hangs.
#[tokio::test]
async fn readiness_follows_the_database() {
    let server = cluster::Cluster::start();
    let relay = RELAY.start_with(&settings(&server.database())).await;
    let ready = || async { http::get(relay.admin, "/readyz").await.status };
    assert_eq!(ready().await, 200);
    // Every reader of both kinds waits for a server that hangs.
    server.freeze("STOP");
    assert_eq!(ready().await, 503);
    assert_eq!(http::get(relay.admin, "/livez").await.status, 200);
    server.freeze("CONT");
    buzz_testkit::eventually("readiness", || async {
        (ready().await == 200).then_some(())
    })
    .await;
    server.kill();
    assert_eq!(ready().await, 503);
    server.up();
    buzz_testkit::eventually("readiness", || async {
        (ready().await == 200).then_some(())
    })
    .await;
    let mut client = Client::connect(&relay).await;
    let note = Author::new(1).note("after").sign();
    client.accept(&note).await;
    assert_eq!(ids(&client.fetch(json!({})).await), ids(&[note]));
}
