//! What a database is, is known before it is used: one that is not the relay's, or that it can't
//! work on, is refused as it is, with a text that says why.

use std::{os::unix::fs::symlink, path::Path, process::Command};

use buzz_testkit::{Author, Client, Relay, cluster};
use diesel::{Connection, RunQueryDsl, SqliteConnection, connection::SimpleConnection, sql_query};

use crate::{RELAY, postgres::settings};

fn open(path: &Path) -> SqliteConnection {
    SqliteConnection::establish(path.to_str().expect("UTF-8")).expect("a connection")
}

/// What the program says when it refuses; panics where it succeeds.
fn refusal(dir: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command.arg("20").arg(RELAY.path()).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BUZZ_") {
            command.env_remove(name);
        }
    }
    let output = command
        .args(["--config", "relay.toml"])
        .args(arguments)
        .output();
    let output = output.expect("the relay starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{error}");
    error
}

const COMMANDS: [&[&str]; 4] = [&["serve"], &["migrate"], &["import"], &["member", "list"]];

/// Mutants: no look before the first write; only `application_id`, or only tables looked at.
#[test]
fn a_file_of_another_program_is_refused_untouched() {
    for (schema, why) in [
        (
            "CREATE TABLE event(id INTEGER PRIMARY KEY, content TEXT)",
            "event",
        ),
        ("CREATE TABLE notes(id INTEGER PRIMARY KEY)", "notes"),
        ("PRAGMA application_id = 252006674", "application_id"),
        (
            "CREATE TABLE __diesel_schema_migrations(version VARCHAR(50) PRIMARY KEY, run_on INTEGER); \
             INSERT INTO __diesel_schema_migrations VALUES ('20240101', 0)",
            "another program",
        ),
        (
            "PRAGMA journal_mode = WAL; CREATE TABLE notes(id INTEGER)",
            "notes",
        ),
    ] {
        let dir = Relay::prepare("");
        let path = dir.path().join("relay.db");
        open(&path).batch_execute(schema).expect("another's data");
        let before = std::fs::read(&path).expect("a file");
        for arguments in COMMANDS {
            let error = refusal(dir.path(), arguments);
            assert!(error.contains("another program"), "{arguments:?}: {error}");
            assert!(error.contains(why) && error.contains("relay.db"), "{error}");
            assert!(std::fs::read(&path).expect("a file") == before, "{schema}");
        }
    }
}

/// Mutants: the file emptied, or overwritten, because it is no database.
#[test]
fn a_file_that_is_no_database_is_refused_untouched() {
    let dir = Relay::prepare("");
    let path = dir.path().join("relay.db");
    std::fs::write(
        &path,
        "precious words, many enough for a header of a file".repeat(9),
    )
    .expect("a file");
    let before = std::fs::read(&path).expect("a file");
    for arguments in COMMANDS {
        let error = refusal(dir.path(), arguments);
        assert!(error.contains("not a database"), "{error}");
        assert!(std::fs::read(&path).expect("a file") == before);
    }
}

#[derive(diesel::QueryableByName)]
struct Id {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    application_id: i64,
}

/// Mutants: no mark; another mark; a file of the time before the mark refused.
#[tokio::test]
async fn new_files_are_marked_and_unmarked_ones_of_ours_are_taken() {
    let mut relay = RELAY.start().await;
    let note = Author::new(1).note("kept").sign();
    Client::connect(&relay).await.accept(&note).await;
    relay.kill().await;
    let mut connection = open(&relay.database());
    let ids: Vec<Id> = sql_query("SELECT application_id FROM pragma_application_id")
        .load(&mut connection)
        .expect("an id");
    assert_eq!(
        ids[0].application_id,
        i64::from(u32::from_be_bytes(*b"buzz"))
    );
    connection
        .batch_execute("PRAGMA application_id = 0")
        .expect("no id");
    drop(connection);
    let relay = relay.again().await;
    let found = Client::connect(&relay)
        .await
        .fetch(serde_json::json!({}))
        .await;
    assert_eq!(found, [note]);
}

const NEWER: &str = "INSERT INTO __diesel_schema_migrations(version) VALUES ('9999')";

/// Mutant: migrations that are unknown ignored.
#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let mut relay = RELAY.start().await;
    relay.kill().await;
    open(&relay.database())
        .batch_execute(NEWER)
        .expect("a migration");
    let url = cluster::database();
    let dir = Relay::prepare(&settings(&url));
    let mut migrate = RELAY.command(dir.path());
    assert!(migrate.arg("migrate").status().expect("it runs").success());
    cluster::sql(&url, NEWER);
    for dir in [relay.dir(), dir.path()] {
        for arguments in COMMANDS {
            let error = refusal(dir, arguments);
            assert!(error.contains("newer version"), "{arguments:?}: {error}");
            assert!(error.contains("9999"), "{error}");
        }
    }
}

/// Mutant: any encoding taken.
#[test]
fn a_postgresql_database_that_is_not_utf_8_is_refused() {
    let url = cluster::database();
    let name = format!("latin_{}", std::process::id());
    cluster::sql(
        &url,
        &format!(
            "CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        ),
    );
    let (server, _) = url.rsplit_once('/').expect("a database");
    let latin = format!("{server}/{name}");
    let dir = Relay::prepare(&settings(&latin));
    for arguments in COMMANDS {
        let error = refusal(dir.path(), arguments);
        assert!(
            error.contains("LATIN1") && error.contains("UTF8"),
            "{error}"
        );
    }
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(cluster::sql(&latin, tables), "0");
}

/// Mutants: the name locked and not the file; the lock taken after the file was changed.
#[tokio::test]
async fn a_served_file_is_refused_by_every_name() {
    let relay = RELAY.start().await;
    let here = tempfile::tempdir().expect("a directory");
    symlink(relay.database(), here.path().join("link.db")).expect("a link");
    let absolute = relay.database().display().to_string();
    let through_link = here.path().join("link.db").display().to_string();
    let odd = relay
        .dir()
        .join("./../")
        .join(relay.dir().file_name().expect("a name"));
    let odd = odd.join("relay.db").display().to_string();
    for url in [absolute, through_link, odd] {
        let dir = Relay::prepare(&format!("database.url = \"sqlite://{url}\""));
        let error = refusal(dir.path(), &["serve"]);
        assert!(
            error.contains("another relay serves this file"),
            "{url}: {error}"
        );
    }
    // By a hard link, SQLite would look for its log elsewhere: no program may use it.
    let hard = here.path().join("hard.db");
    std::fs::hard_link(relay.database(), &hard).expect("a link");
    let dir = Relay::prepare(&format!("database.url = \"sqlite://{}\"", hard.display()));
    let error = refusal(dir.path(), &["serve"]);
    assert!(error.contains("another relay serves this file"), "{error}");
    for arguments in &COMMANDS[1..] {
        let error = refusal(dir.path(), arguments);
        assert!(error.contains("hard link"), "{arguments:?}: {error}");
    }
    // The relay writes on, and others by its own name beside it, when the link is gone.
    let mut client = Client::connect(&relay).await;
    client
        .accept(&Author::new(1).note("still here").sign())
        .await;
    std::fs::remove_file(hard).expect("a link");
    let mut list = RELAY.command(relay.dir());
    assert!(
        list.args(["member", "list"])
            .status()
            .expect("it runs")
            .success()
    );
    client
        .accept(&Author::new(1).note("and after").sign())
        .await;
}

/// SQLite's locks and the relay's are of two kinds. Mutant: one that meets SQLite's, or that is
/// lost when SQLite closes a file.
#[tokio::test]
async fn the_lock_outlives_reads_and_writes() {
    let relay = RELAY.start_with("database.readers = 3").await;
    let mut client = Client::connect(&relay).await;
    for n in 0..20 {
        client.accept(&Author::new(n).note("x").sign()).await;
        client.fetch(serde_json::json!({"kinds": [1]})).await;
    }
    let error = refusal(relay.dir(), &["serve"]);
    assert!(error.contains("another relay serves this file"), "{error}");
}

/// A database with some hundred events, all in the file, its relay ended.
async fn filled() -> Relay {
    let mut relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    for n in 0..300 {
        client
            .accept(&Author::new(1).note(&format!("{n:01000}")).at(n).sign())
            .await;
    }
    relay.terminate();
    relay.ended().await;
    relay
}

/// Mutant: a copy that was cut off taken for a whole one.
#[tokio::test]
async fn a_file_that_is_cut_off_is_refused_untouched() {
    let relay = filled().await;
    let path = relay.database();
    let mut bytes = std::fs::read(&path).expect("a file");
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&path, &bytes).expect("a file");
    for arguments in COMMANDS {
        let error = refusal(relay.dir(), arguments);
        assert!(error.contains("malformed"), "{arguments:?}: {error}");
        assert!(std::fs::read(&path).expect("a file") == bytes);
    }
}

/// Mutants: events acknowledged into a file that is known to be broken; an error a read; a relay
/// that says that it is ready.
#[tokio::test]
async fn damage_that_a_read_meets_ends_the_writes() {
    let relay = filled().await.again().await;
    let mut client = Client::connect(&relay).await;
    let path = relay.database();
    let mut bytes = std::fs::read(&path).expect("a file");
    // Not shorter than before: the pages that are mapped stay there.
    bytes[4096..].fill(0xa5);
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    std::io::Write::write_all(&mut file.expect("a file"), &bytes).expect("damage");
    for n in 0..3 {
        let read = serde_json::json!(["REQ", "q", {"kinds": [1]}]);
        client.send(read).await;
        client
            .find(|frame| {
                let text = format!("{frame:?}");
                text.starts_with("Closed").then_some(())
            })
            .await;
        let note = Author::new(2).note(&format!("after {n}")).sign();
        client.refuse(&note, "error: database unavailable").await;
    }
    let ready = buzz_testkit::http::get(relay.admin, "/readyz").await;
    assert_eq!(ready.status, 503);
    let log = relay.log.text();
    let errors = log
        .lines()
        .filter(|line| line.contains("nothing is written to it any more"));
    assert_eq!(errors.count(), 1, "{log}");
}
