//! What a server's errors mean, by their SQLSTATE, whatever language its messages are in.

use std::{error::Error as _, time::Duration};

use buzz_actors::ports::StoreError;
use diesel_async::SimpleAsyncConnection;

use super::{cluster, store};
use crate::store::{
    fault::Fault,
    postgres::{error::Error, link::Link, server::Server},
};

fn link(url: &str) -> Link {
    let server = Server::new(url).expect("a server");
    Link::open(&server, Duration::from_millis(300), "").expect("a session")
}

fn failure(link: &mut Link, text: &str) -> Error {
    link.run(async |session| session.batch_execute(text).await)
        .expect_err(text)
}

/// Kills: a fault told by its message; a code that stands for another fault.
#[test]
fn a_fault_is_told_by_its_code() {
    let url = cluster::database();
    store(&url);
    let mut link = link(&url);
    for (code, fault) in [
        ("40001", Fault::Busy),
        ("40P01", Fault::Busy),
        ("55P03", Fault::Busy),
        ("53100", Fault::Full),
        ("53300", Fault::Full),
        ("58030", Fault::Unreachable),
        ("57P01", Fault::SessionLost),
        ("57P03", Fault::SessionLost),
        ("25006", Fault::SessionLost),
        ("0A000", Fault::SessionLost),
        ("57014", Fault::TimedOut),
        ("XX001", Fault::Corrupt),
        ("22003", Fault::Failed),
        ("23505", Fault::Failed),
        ("42P01", Fault::Failed),
        ("XX000", Fault::Failed),
    ] {
        let raise = format!(
            "DO $$ BEGIN RAISE EXCEPTION 'canceling statement due to statement timeout' \
             USING ERRCODE = '{code}'; END $$"
        );
        assert_eq!(failure(&mut link, &raise).fault(), fault, "{code}");
    }
    let read_only = "SET default_transaction_read_only = on";
    link.run(async |session| session.batch_execute(read_only).await)
        .expect("a setting");
    // The server's own.
    for (text, fault) in [
        ("SELECT pg_sleep(20)", Fault::TimedOut),
        ("SELECT nothing", Fault::Failed),
        ("DELETE FROM event", Fault::SessionLost),
        (
            "SELECT pg_terminate_backend(pg_backend_pid())",
            Fault::SessionLost,
        ),
        // From here on the connection is closed.
        ("SELECT 1", Fault::SessionLost),
    ] {
        assert_eq!(failure(&mut link, text).fault(), fault, "{text}");
    }
}

/// Kills: an error that has lost its source, or says only where it happened.
#[test]
fn the_servers_error_is_kept_and_shown() {
    let url = cluster::database();
    let server = Server::new(&url).expect("a server");
    let error = failure(&mut link(&url), "SELECT nothing").into_store_error(server.shown());
    let text = error.to_string();
    assert!(matches!(error, StoreError::Failed(_)), "{text}");
    let said = "\"nothing\" does not exist";
    assert_eq!(text.matches(said).count(), 1, "{text}");
    assert!(text.contains("127.0.0.1"), "{text}");
    let at = error.source().expect("where it happened");
    let driver = at.source().expect("the driver's error");
    let driver = driver.downcast_ref::<tokio_postgres::Error>();
    let code = driver.and_then(tokio_postgres::Error::code);
    assert_eq!(code.map(|code| code.code()), Some("42703"));
}

/// Kills: "connection closed" as all that is known of a server that said why.
#[test]
fn what_a_server_says_before_it_ends_a_session_is_known() {
    let url = cluster::database();
    let mut link = link(&url);
    link.run(async |session| session.batch_execute("SELECT 1").await)
        .expect("a session");
    let others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(cluster::sql(&url, others), "t");
    let error = failure(&mut link, "SELECT 1");
    assert_eq!(error.fault(), Fault::SessionLost);
    let text = error.into_store_error("here").to_string();
    assert!(text.contains("terminating connection"), "{text}");
}
