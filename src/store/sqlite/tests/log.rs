//! The write-ahead log under readers that overlap, and reads past their time.

use std::{
    ops::ControlFlow,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use buzz_actors::{
    metrics::StoreMetrics,
    ports::{EventStore, Purpose, StoreError},
};
use buzz_protocol::Filter;
use diesel::{SqliteConnection, connection::SimpleConnection};

use super::{Fixture, event};
use crate::store::{
    sqlite::{
        SqliteStore,
        checkpoint::{self, Outcome, WAL_BOUND},
    },
    tests::{page, query},
};

/// Ends the readers also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Batches of 400 kB: many times the bound, also where each attempt is followed by a pause.
const MOST_BATCHES: u32 = 4_000;

/// Reads that overlap, each `half` twice: each begins before the one before it ends.
fn overlapping_reads(store: &SqliteStore, half: Duration, begun: &Barrier, ended: &AtomicBool) {
    let connect = || store.connect_reader().expect("a connection");
    let (mut earlier, mut later) = (connect(), connect());
    let begin = |connection: &mut SqliteConnection| {
        let read = "BEGIN; SELECT count(*) FROM event";
        connection.batch_execute(read).expect("a read");
    };
    begin(&mut earlier);
    begun.wait();
    while !ended.load(Ordering::Relaxed) {
        begin(&mut later);
        thread::sleep(half);
        earlier.batch_execute("COMMIT").expect("a read");
        std::mem::swap(&mut earlier, &mut later);
    }
}

/// Writes until the log was emptied so often under reads that overlap, and for so long.
fn empties_the_log(times: u32, half: Duration, time: Duration) {
    let mut fixture = Fixture::new();
    fixture.write(&[event(1, 1, 1, 10, vec![])], 1);
    let (begun, ended) = (Barrier::new(2), AtomicBool::new(false));
    let store = fixture.store.clone();
    let (mut emptied, mut longest) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| overlapping_reads(&store, half, &begun, &ended));
        begun.wait();
        let _ends = Ends(&ended);
        let (started, mut since) = (Instant::now(), 0);
        for number in 1_000.. {
            if emptied >= times && started.elapsed() >= time {
                break;
            }
            let mut large = event(number, 1, 1, 20 + u64::from(number), vec![]);
            large.content = "x".repeat(400_000);
            fixture.write(&[large], u64::from(number));
            let log_bytes = store.log_bytes();
            longest = log_bytes.max(longest);
            since += 1;
            // Only the writer's own checkpoint leaves nothing.
            if log_bytes == 0 {
                (emptied, since) = (emptied + 1, 0);
            }
            assert!(since < MOST_BATCHES, "the log has {log_bytes} bytes");
        }
    });
    assert!(longest > WAL_BOUND / 2, "emptied before it was long");
    println!("emptied {emptied} times, at most {longest} bytes");
}

/// A short form of ten minutes of it; `STORE_WAL_SECONDS` has it go on for so long. That reads
/// overlap is by construction and not by timing, and what ends the test is the log: a busy machine
/// only makes it take longer.
///
/// Kills: no checkpoint past the bound, one that waits for a moment without readers.
#[test]
fn the_log_stays_bounded_while_reads_overlap_and_writes_go_on() {
    let seconds = std::env::var("STORE_WAL_SECONDS");
    let seconds = seconds.map_or(0, |text| text.parse().expect("a number"));
    empties_the_log(3, Duration::from_millis(5), Duration::from_secs(seconds));
}

/// Kills: a wait for readers that is as short each time.
#[test]
fn reads_that_outlast_the_first_wait_are_outlasted_in_the_end() {
    empties_the_log(1, Duration::from_millis(400), Duration::ZERO);
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
