//! Work that is given up half-way: it leaves no transaction and no session behind, and loses no
//! later write.

use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use buzz_actors::ports::{Progress, StoreError};
use buzz_protocol::Filter;

use super::{cluster, options, reader, store, writer};
use crate::store::{
    postgres::{PostgresStore, link::Link, server::Server},
    tests::{event, page, query, write},
};

fn sessions(url: &str, condition: &str) -> String {
    let text = format!(
        "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND {condition}"
    );
    cluster::sql(url, &text)
}

/// Waits until no session is left but `kept`.
fn only(url: &str, kept: &str) {
    for _ in 0..200 {
        if sessions(url, "true") == kept {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!(
        "sessions are left: {} and not {kept}",
        sessions(url, "true")
    );
}

/// Kills: a session that outlives the work that was dropped in it.
#[test]
fn a_transaction_dropped_after_any_number_of_polls_leaves_nothing_behind() {
    let url = cluster::database();
    store(&url);
    let server = Server::new(&url).expect("a server");
    only(&url, "");
    let mut finished = false;
    for polls in 1..60 {
        let mut link = Link::open(&server, Duration::from_secs(5), "").expect("a session");
        let text = format!("INSERT INTO entry VALUES ({polls}, 1), ({polls}, 2)");
        finished = link.run_for(polls, &["BEGIN", &text, "SELECT pg_sleep(0)", "COMMIT"]);
        drop(link);
        // A later write waits for no lock that the dropped one left.
        let key = cluster::sql(
            &url,
            &format!("DELETE FROM entry WHERE key = {polls} RETURNING 1"),
        );
        assert!(
            ["", "1\n1"].contains(&key.as_str()),
            "{polls}: half of it: {key}"
        );
        // Where the COMMIT was on its way it may have been carried out.
        assert!(!key.is_empty() || !finished, "{polls}");
        only(&url, "");
        if finished {
            assert!(
                polls > 4,
                "the work ends in {polls} polls: it is dropped nowhere"
            );
            break;
        }
    }
    assert!(finished, "the work never ends");
}

fn filled(url: &str) -> PostgresStore {
    let store = store(url);
    let events: Vec<_> = (0..600)
        .map(|n| event(n, (n % 3) as u8, 1, 10, vec![]))
        .collect();
    let mut writer = writer(&store);
    write(&mut writer, &events, 1).expect("a batch");
    store
}

/// One stream, many, and a merge.
fn shapes() -> Vec<Vec<(Filter, u64)>> {
    [
        r#"[{}]"#,
        r#"[{"kinds":[1]}]"#,
        r#"[{"kinds":[1,2]},{"authors":["0101010101010101010101010101010101010101010101010101010101010101"]}]"#,
    ]
    .iter()
    .map(|text| {
        let filters: Vec<Filter> = serde_json::from_str(text).expect("filters");
        filters.into_iter().map(|filter| (filter, 500)).collect()
    })
    .collect()
}

/// Kills: a session given up because its reader had enough; a transaction left open behind it.
#[test]
fn a_thousand_aborted_reads_use_one_session() {
    let url = cluster::database();
    let store = filled(&url);
    let mut reader = reader(&store);
    reader.ping().expect("a sign of life");
    only(
        &url,
        &sessions(&url, "application_name = 'buzz-relay reader'"),
    );
    let before = sessions(&url, "true");
    for n in 0..1_000 {
        let filters = shapes().swap_remove(n % 3);
        let (progress, ids) = page(&mut *reader, &mut query(filters), 1 + n % 150);
        assert_eq!((progress, ids.len()), (Progress::Paused, 1 + n % 150));
    }
    assert_eq!(sessions(&url, "true"), before);
    assert_eq!(sessions(&url, "state <> 'idle'"), "");
}

/// Kills: a session kept after a panic in the middle of its rows.
#[test]
fn a_read_that_panics_costs_its_session_and_nothing_else() {
    let url = cluster::database();
    let store = filled(&url);
    let mut reader = reader(&store);
    for filters in shapes() {
        for at in [1, 5, 130] {
            let mut rows = 0;
            let mut asked = query(filters.clone());
            let read = AssertUnwindSafe(|| {
                reader.read(&mut asked, &mut |_| {
                    rows += 1;
                    assert!(rows < at, "a test's panic");
                    ControlFlow::Continue(())
                })
            });
            assert!(catch_unwind(read).is_err());
            let (_, ids) = page(&mut *reader, &mut query(filters.clone()), 500);
            assert_eq!(ids.len(), 500);
            only(&url, &sessions(&url, "state = 'idle'"));
            assert_eq!(sessions(&url, "true").split(' ').count(), 1);
        }
    }
}

/// Kills: no limit, a limit reported as a database that is down, a session lost by it or left in
/// its transaction.
#[test]
fn a_read_past_its_time_is_named_and_keeps_its_session() {
    let url = cluster::database();
    filled(&url);
    let store = PostgresStore::open(&crate::store::Options {
        // Longer than a busy machine takes for what is quick.
        statement_timeout: Duration::from_millis(700),
        ..options(&url)
    });
    let mut reader = reader(&store.expect("a store"));
    reader.ping().expect("a sign of life");
    let before = sessions(&url, "true");
    for filters in shapes() {
        let held = "BEGIN; LOCK TABLE event IN ACCESS EXCLUSIVE MODE; \
            SELECT pg_advisory_lock(1); SELECT pg_sleep(20)";
        let mut holder = Command::new(cluster::programs().join("psql"))
            .args(["-X", "-q", "-d", &url, "-c", held])
            .stdout(Stdio::null())
            .spawn()
            .expect("psql runs");
        let locked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
        while cluster::sql(&url, locked) == "0" {}
        let mut asked = query(filters.clone());
        let late = reader.read(&mut asked, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(late, Err(StoreError::TookTooLong)), "{late:?}");
        let late = reader.count(&asked);
        assert!(matches!(late, Err(StoreError::TookTooLong)), "{late:?}");
        holder.kill().expect("psql runs");
        holder.wait().expect("psql ends");
        let holders = "query LIKE '%ACCESS EXCLUSIVE%'";
        cluster::sql(
            &url,
            &format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE {holders} AND pid <> pg_backend_pid()"
            ),
        );
        only(&url, &before);
        assert_eq!(page(&mut *reader, &mut query(filters), 500).1.len(), 500);
    }
    assert_eq!(sessions(&url, "true"), before);
}
