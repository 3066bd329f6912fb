//! What goes wrong with the disk.

use std::{path::Path, time::Duration};

use buzz_actors::ports::{EventStore, StoreError, StoreWriter};
use buzz_protocol::Filter;
use diesel::{RunQueryDsl, SqliteConnection, connection::SimpleConnection};

use super::{Fixture, event, write};
use crate::store::{
    self, Durability, Options,
    fault::Fault,
    sqlite::{SqliteStore, error::Error},
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_full_disk_stores_nothing_of_the_batch_and_is_recovered_from() {
    let mut fixture = Fixture::new();
    let few: Vec<_> = (0..10).map(|i| event(i, 1, 1, 10, vec![])).collect();
    let many: Vec<_> = (10..2_000).map(|i| event(i, 1, 1, 10, vec![])).collect();
    fixture.write(&few, 1);
    let connection = fixture.writer.connection_mut();
    let full =
        connection.with(|connection| Ok(connection.batch_execute("PRAGMA max_page_count = 100")?));
    full.expect("a bound");
    let error = write(&mut fixture.writer, &many, 2).expect_err("a full disk");
    assert!(
        matches!(&error, StoreError::Unavailable(why) if why.to_string().contains("full")),
        "{error}"
    );
    assert_eq!(fixture.read(Filter::default()).len(), 10);
    assert_eq!(fixture.writer.last_batch().expect("a number"), 1);
    // The connection was replaced, and with it the bound.
    assert_eq!(fixture.write(&many, 3).len(), 1_990);
    assert_eq!(fixture.writer.last_batch().expect("a number"), 3);
}

#[test]
fn a_lost_connection_is_opened_again_and_a_lost_file_is_an_error() {
    let mut fixture = Fixture::new();
    fixture.write(&[event(1, 1, 1, 10, vec![])], 1);
    let connection = fixture.writer.connection_mut();
    let broken = connection.with(|connection| Ok(connection.batch_execute("no statement")?));
    assert!(matches!(broken, Err(StoreError::Failed(_))));
    fixture.write(&[event(2, 1, 1, 10, vec![])], 2);
    assert_eq!(fixture.read(Filter::default()).len(), 2);
}

#[test]
fn a_path_that_cannot_be_opened_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "not a directory").expect("a file");
    for path in [file.join("relay.db"), directory.path().to_owned()] {
        let error = SqliteStore::open(&path, Durability::Full, SECOND).expect_err("no database");
        assert!(
            error.to_string().contains(&path.display().to_string()),
            "{error}"
        );
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    }
    let error = SqliteStore::open(&file, Durability::Full, SECOND).expect_err("no database");
    assert!(error.to_string().contains("not a database"), "{error}");
}

#[test]
fn a_missing_directory_is_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite://{}/a/b/relay.db", directory.path().display());
    store::open(&Options::new(url)).expect("a store");
    assert!(directory.path().join("a/b/relay.db").exists());
}

#[test]
fn memory_and_foreign_urls_are_refused() {
    for url in ["sqlite://:memory:", "sqlite://", "mysql://x", "relay.db"] {
        let Err(StoreError::Failed(why)) = store::open(&Options::new(url)) else {
            panic!("{url} was opened");
        };
        let text = why.to_string();
        assert!(
            text.contains("not a file") || text.contains("must begin with"),
            "{text}"
        );
    }
    assert!(!Path::new(":memory:").exists());
}

#[test]
fn a_writer_of_another_process_is_waited_for() {
    let mut fixture = Fixture::new();
    let mut other = fixture.store.writer().expect("a second writer");
    assert_eq!(other.last_batch().expect("a number"), 0);
    let holder = fixture.store.clone();
    let (locked, wait) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut connection = holder.connect_writer().expect("a connection");
        connection.batch_execute("BEGIN IMMEDIATE").expect("a lock");
        locked.send(()).expect("a listener");
        std::thread::sleep(std::time::Duration::from_millis(100));
        connection.batch_execute("COMMIT").expect("released");
    });
    wait.recv().expect("locked");
    fixture.write(&[event(1, 1, 1, 10, vec![])], 1);
    thread.join().expect("no panic");
    assert!(fixture.directory.path().exists());
}

/// What `text` fails with.
fn fault(connection: &mut SqliteConnection, text: &str) -> Fault {
    let error = connection.batch_execute(text).expect_err(text);
    Error::from(error).fault()
}

/// Kills: texts of the library compared in part, or written down here; a code without a fault.
#[test]
fn what_goes_wrong_is_told_by_its_code() {
    let fixture = Fixture::new();
    let mut writer = fixture.store.connect_writer().expect("a connection");
    let mut reader = fixture.store.connect_reader().expect("a connection");
    let write = "INSERT INTO member VALUES (hex(randomblob(32)), 'member')";

    writer.batch_execute("BEGIN IMMEDIATE").expect("a lock");
    let mut other = fixture.store.connect_writer().expect("a connection");
    other
        .batch_execute("PRAGMA busy_timeout = 0")
        .expect("no wait");
    assert_eq!(fault(&mut other, write), Fault::Busy);
    writer.batch_execute("COMMIT").expect("released");

    assert_eq!(fault(&mut reader, write), Fault::Unreachable, "read-only");
    let nowhere = "ATTACH '/nowhere/at/all.db' AS nowhere";
    // The path is part of this message, so it is taken for a wrong statement; the relay has none.
    assert_eq!(fault(&mut reader, nowhere), Fault::Failed);

    let full = "PRAGMA max_page_count = 1; \
        CREATE TABLE large AS SELECT zeroblob(100000) AS many";
    assert_eq!(fault(&mut other, full), Fault::Full);

    // What a statement says is not mistaken for what the library says.
    for text in [
        "SELECT \"database or disk is full\"(1)",
        "SELECT [database is locked] FROM member",
        "INSERT INTO member VALUES ('short', 'member')",
        "nonsense",
    ] {
        assert_eq!(fault(&mut writer, text), Fault::Failed, "{text}");
    }
}

/// Kills: damage taken for something that passes.
#[test]
fn a_damaged_file_is_no_passing_error() {
    let mut fixture = Fixture::new();
    let events: Vec<_> = (0..200).map(|i| event(i, 1, 1, 10, vec![])).collect();
    fixture.write(&events, 1);
    fixture.writer.flush().expect("all in one file");
    let path = fixture.directory.path().join("relay.db");
    let mut bytes = std::fs::read(&path).expect("the file");
    // All but the first page, which holds the schema.
    bytes[4096..].fill(0xa5);
    let damaged = path.with_file_name("damaged.db");
    std::fs::write(&damaged, bytes).expect("a file");
    let store = SqliteStore {
        path: damaged.clone(),
        ..fixture.store.clone()
    };
    let mut connection = store.connect_reader().expect("a connection");
    let read = diesel::sql_query("SELECT count(json) FROM event").execute(&mut connection);
    let error = Error::from(read.expect_err("damage"));
    assert_eq!(error.fault(), Fault::Corrupt, "{error}");
    assert!(matches!(
        error.into_store_error("here"),
        StoreError::Failed(_)
    ));

    std::fs::write(&damaged, [b'x'; 8192]).expect("a file");
    let error = store.connect_writer().err().expect("no database");
    assert!(matches!(error, StoreError::Failed(_)), "{error}");
}
