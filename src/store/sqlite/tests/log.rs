//! The write-ahead log under readers that overlap, and reads past their time.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use buzz_actors::{
    metrics::StoreMetrics,
    ports::{EventStore, Purpose, StoreError},
};
use buzz_protocol::Filter;
use diesel::connection::SimpleConnection;

use super::{Fixture, event};
use crate::store::{
    sqlite::checkpoint::{self, Outcome, WAL_BOUND},
    tests::{page, query},
};

/// Ends the readers also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Batches of 400 kB: three times the bound.
const BATCHES: u32 = 500;

/// A short form of ten minutes of it; `STORE_WAL_SECONDS` has it go on for so long.
///
/// Kills: no checkpoint past the bound, one that waits for a moment without readers.
#[test]
fn the_log_stays_bounded_while_reads_overlap_and_writes_go_on() {
    let seconds = std::env::var("STORE_WAL_SECONDS");
    let seconds = seconds.map_or(0, |text| text.parse().expect("a number"));
    let mut fixture = Fixture::new();
    let first: Vec<_> = (0..300).map(|n| event(n, 1, 1, 10, vec![])).collect();
    fixture.write(&first, 1);
    let ended = AtomicBool::new(false);
    let (store, ended) = (&fixture.store.clone(), &ended);
    let log = fixture.directory.path().join("relay.db-wal");
    let mut largest = 0;
    thread::scope(|scope| {
        for reader in 0..3 {
            scope.spawn(move || {
                let mut connection = store.connect_reader().expect("a connection");
                thread::sleep(Duration::from_millis(30 * reader));
                while !ended.load(Ordering::Relaxed) {
                    // Each read begins before the one before it ends, and ends 90 ms later.
                    let read = "BEGIN; SELECT count(*) FROM event";
                    connection.batch_execute(read).expect("a read");
                    thread::sleep(Duration::from_millis(90));
                    connection.batch_execute("COMMIT").expect("a read");
                }
            });
        }
        let _ends = Ends(ended);
        let started = Instant::now();
        let mut number = 1_000;
        while number < 1_000 + BATCHES || started.elapsed() < Duration::from_secs(seconds) {
            number += 1;
            let mut large = event(number, 1, 1, 20 + u64::from(number), vec![]);
            large.content = "x".repeat(400_000);
            fixture.write(&[large], u64::from(number));
            largest = std::fs::metadata(&log)
                .map_or(0, |meta| meta.len())
                .max(largest);
        }
    });
    assert!(
        largest < 3 * WAL_BOUND / 2,
        "the log grew to {largest} bytes"
    );
}

/// Kills: counting a checkpoint that did nothing as one that did.
#[test]
fn a_checkpoint_that_did_nothing_is_told_from_one_that_did() {
    let mut fixture = Fixture::new();
    let metrics = StoreMetrics::register();
    fixture.write(&[event(1, 1, 1, 10, vec![])], 1);
    let mut reader = fixture.store.connect_reader().expect("a connection");
    let mut writer = fixture.store.connect_writer().expect("a connection");
    let mut checkpoint = || checkpoint::checkpoint(&mut writer, "PASSIVE", &metrics);
    assert_eq!(checkpoint().expect("a checkpoint"), Outcome::Complete);
    reader
        .batch_execute("BEGIN; SELECT count(*) FROM event")
        .expect("a read");
    fixture.write(&[event(2, 1, 1, 10, vec![])], 2);
    assert_ne!(checkpoint().expect("a checkpoint"), Outcome::Complete);
    reader.batch_execute("COMMIT").expect("a read");
    assert_eq!(checkpoint().expect("a checkpoint"), Outcome::Complete);
}

/// Kills: no limit, a count without one, a limit that ends a read which has what it wants.
#[test]
fn a_read_past_its_time_is_named_and_the_next_one_answered() {
    let mut fixture = Fixture::that_gives_up_after(Duration::from_millis(40));
    let events: Vec<_> = (0..500).map(|n| event(n, 1, 1, 10, vec![])).collect();
    fixture.write(&events, 1);
    let mut reader = fixture.store.reader(Purpose::History).expect("a reader");
    for text in ["[{}]", r#"[{"kinds":[1,2]},{"kinds":[1]}]"#] {
        let filters: Vec<Filter> = serde_json::from_str(text).expect("filters");
        let filters: Vec<_> = filters.into_iter().map(|filter| (filter, 500)).collect();
        let mut rows = 0;
        let late = reader.read(&mut query(filters.clone()), &mut |_| {
            rows += 1;
            thread::sleep(Duration::from_millis(10));
            ControlFlow::Continue(())
        });
        assert!(matches!(late, Err(StoreError::TookTooLong)), "{late:?}");
        assert!((1..20).contains(&rows), "{rows}");
        let (_, ids) = page(&mut *reader, &mut query(filters), 10);
        assert_eq!(ids.len(), 10);
    }
    let mut hasty = Fixture::that_gives_up_after(Duration::ZERO);
    hasty.write(&events, 1);
    let late = hasty.reader.count(&query(vec![(Filter::default(), 1)]));
    assert!(matches!(late, Err(StoreError::TookTooLong)), "{late:?}");
}
