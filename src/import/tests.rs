use std::{collections::VecDeque, path::Path};

use buzz_protocol::{Filter, Tag, UnsignedEvent};
use secp256k1::{
    Keypair,
    rand::{SeedableRng, rngs::StdRng},
};

use diesel::{Connection, RunQueryDsl, SqliteConnection, connection::SimpleConnection, sql_query};

use super::*;
use crate::{
    export::export,
    store::{self, Durability, Options},
};

const REAL: &str = include_str!("../../tests/data/events.jsonl");
const NOW: u64 = 1_800_000_000;

fn options() -> ImportOptions {
    ImportOptions {
        limits: Limits {
            max_subscriptions: 1,
            max_filters: 1,
            max_limit: 500,
            max_subid_length: 64,
            max_event_tags: 5_000,
            created_at_future_secs: 900,
            created_at_past_secs: None,
        },
        now: NOW,
        max_line_bytes: 262_144,
        size_bytes: None,
        reasons_shown: 3,
    }
}

fn open(directory: &Path) -> Arc<dyn EventStore> {
    let url = format!("sqlite://{}/relay.db", directory.display());
    store::open(&Options {
        durability: Durability::Normal,
        ..Options::new(url)
    })
    .expect("a store")
}

/// Gives little at once, so that lines cross its end.
struct InPieces(VecDeque<u8>);

impl Read for InPieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = into.len().min(100);
        self.0.read(&mut into[..room])
    }
}

fn import_text(store: &dyn EventStore, text: &str) -> (Imported, String) {
    let mut reasons = Vec::new();
    let input = InPieces(text.as_bytes().to_vec().into());
    let is_to_end = Arc::default();
    let imported = import(input, store, &options(), &mut reasons, &is_to_end).expect("an import");
    let imported = Imported {
        took: Duration::ZERO,
        ..imported
    };
    (imported, String::from_utf8(reasons).expect("text"))
}

fn exported(store: &dyn EventStore, filter: Option<Filter>) -> Vec<String> {
    let mut output = Vec::new();
    let count =
        export(store, filter, NOW, &mut output, &AtomicBool::new(false)).expect("an export");
    let lines = String::from_utf8(output).expect("text");
    let lines: Vec<_> = lines.lines().map(str::to_owned).collect();
    assert_eq!(lines.len() as u64, count);
    lines
}

fn note(content: &str, kind: u16) -> Event {
    UnsignedEvent {
        created_at: 1_700_000_000,
        kind,
        tags: vec![Tag::new(["t", "x"])],
        content: content.into(),
    }
    .sign(&Keypair::new(&mut StdRng::seed_from_u64(1)))
}

#[test]
fn real_events_come_out_as_they_went_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let (imported, reasons) = import_text(&*store, REAL);
    let lines = exported(&*store, None);
    assert_eq!(
        imported.accepted,
        REAL.lines().count() as u64 - imported.rejected,
        "{reasons}"
    );
    // Versions that a later line replaced were accepted, and are gone.
    for line in &lines {
        assert!(REAL.lines().any(|real| real == line), "{line}");
    }
    let events: Vec<Event> = lines
        .iter()
        .map(|line| serde_json::from_str(line).expect("an event"))
        .collect();
    assert!(events.is_sorted_by_key(|event| (std::cmp::Reverse(event.created_at), event.id)));
    let kept = |event: &Event| events.iter().any(|other| other.id == event.id);
    for line in REAL.lines() {
        let event: Event = serde_json::from_str(line).expect("an event");
        let replaced = events
            .iter()
            .any(|other| event.address().is_some() && other.address() == event.address());
        assert!(kept(&event) || replaced || event.is_expired(NOW), "{line}");
    }
    brute_force(&*store, &events);
    let (again, _) = import_text(&*store, REAL);
    assert_eq!((again.accepted, again.duplicate), (0, lines.len() as u64));
}

/// Every value that occurs is asked for, and the answer compared with looking through all events.
fn brute_force(store: &dyn EventStore, events: &[Event]) {
    let mut filters = Vec::new();
    for event in events {
        filters.push(Filter {
            ids: Some(vec![event.id]),
            ..Filter::default()
        });
        filters.push(Filter {
            authors: Some(vec![event.pubkey]),
            kinds: Some(vec![event.kind]),
            ..Filter::default()
        });
        filters.push(Filter {
            since: Some(event.created_at),
            limit: Some(7),
            ..Filter::default()
        });
        for (letter, value) in event.tags.iter().filter_map(Tag::indexed).take(10) {
            let tags = [(letter, vec![value.to_owned(), "x".into()])].into();
            filters.push(Filter {
                tags,
                ..Filter::default()
            });
        }
    }
    for filter in filters {
        let limit = filter.limit.unwrap_or(u64::MAX) as usize;
        let expected = events
            .iter()
            .filter(|event| filter.matches(event))
            .take(limit);
        let expected: Vec<_> = expected.map(Event::to_json).collect();
        assert_eq!(
            exported(store, Some(filter.clone())),
            expected,
            "{filter:?}"
        );
    }
}

#[test]
fn what_is_no_event_is_counted_and_named_by_its_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let good = note("good", 1);
    let mut forged = good.clone();
    forged.content = "forged".into();
    let mut future = good.clone();
    future.created_at = NOW + 901;
    let lines = [
        good.to_json(),
        String::new(),
        "  \r".into(),
        "{\"id\":1}".into(),
        forged.to_json(),
        note("gone", 20_001).to_json(),
        "x".repeat(300_000),
        future.to_json(),
        good.to_json(),
        note("last, without a line end", 1).to_json(),
    ];
    let (imported, reasons) = import_text(&*store, &lines.join("\n"));
    let Imported {
        accepted,
        duplicate,
        rejected,
        ..
    } = imported;
    assert_eq!((accepted, duplicate, rejected), (2, 1, 5));
    let reasons: Vec<_> = reasons.lines().collect();
    assert!(reasons[0].starts_with("line 4: id: "), "{reasons:?}");
    assert!(
        reasons[1].starts_with("line 5: event id does not match"),
        "{reasons:?}"
    );
    assert!(
        reasons[2].starts_with("line 6: kind 20001 is ephemeral"),
        "{reasons:?}"
    );
    assert_eq!(reasons[3..], ["further rejections are only counted"]);
    assert_eq!(
        imported.to_string().split(", ").take(3).collect::<Vec<_>>(),
        ["accepted 2", "duplicate 1", "rejected 5"]
    );
}

#[test]
fn lines_are_bounded_in_memory_and_keep_their_numbers() {
    let mut input = BufReader::with_capacity(10, &b"short\ntoo long for it\n\nlast"[..]);
    let mut number = 0;
    let mut lines = Vec::new();
    loop {
        let more = read_lines(&mut input, &mut number, 5).expect("lines");
        if more.is_empty() {
            break;
        }
        lines.extend(more);
    }
    let lines: Vec<_> = lines
        .into_iter()
        .map(|line| (line.number, line.text))
        .collect();
    assert_eq!(
        lines,
        [
            (1, Some(b"short".to_vec())),
            (2, None),
            (4, Some(b"last".to_vec()))
        ]
    );
}

#[test]
fn thousands_of_events_keep_their_order_through_many_chunks() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    // The same address again and again: only with the order kept is none rejected.
    let keys = Keypair::new(&mut StdRng::seed_from_u64(2));
    let versions = (0..1_500).map(|i| {
        let event = UnsignedEvent {
            created_at: 1_000 + i,
            kind: 0,
            tags: vec![],
            content: String::new(),
        };
        event.sign(&keys).to_json()
    });
    let (imported, _) = import_text(&*store, &versions.collect::<Vec<_>>().join("\n"));
    assert_eq!((imported.accepted, imported.rejected), (1_500, 0));
    assert_eq!(exported(&*store, None).len(), 1);
}

#[test]
fn an_export_stops_at_the_filters_limit_and_goes_on_over_pages() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    import_text(&*store, REAL);
    let filter = Filter {
        limit: Some(3),
        ..Filter::default()
    };
    assert_eq!(exported(&*store, Some(filter)).len(), 3);
}

#[derive(diesel::QueryableByName)]
struct Checkpoint {
    #[diesel(sql_type = diesel::sql_types::Integer)]
    busy: i32,
}

/// An output whose reader pauses: meanwhile others write, and bring the log in.
struct Paused {
    connection: SqliteConnection,
    pauses: usize,
}

impl Write for Paused {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let change = "UPDATE last_batch SET batch = batch + 1";
        self.connection.batch_execute(change).expect("a change");
        let checkpoint: Vec<Checkpoint> = sql_query("PRAGMA wal_checkpoint(TRUNCATE)")
            .load(&mut self.connection)
            .expect("a checkpoint");
        assert_eq!(checkpoint[0].busy, 0, "a read transaction is open");
        self.pauses += 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Kills: rows written out while the transaction that reads them is open.
#[test]
fn an_export_holds_no_transaction_while_its_output_is_not_taken() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    import_text(&*store, REAL);
    let path = directory.path().join("relay.db");
    let path = path.to_str().expect("UTF-8");
    let mut output = Paused {
        connection: SqliteConnection::establish(path).expect("a connection"),
        pauses: 0,
    };
    export(&*store, None, NOW, &mut output, &AtomicBool::new(false)).expect("an export");
    assert!(output.pauses > 0);
}
