//! Measures the store alone, on events of the size and shape that `buzz-bench` sends: CPU per
//! stored event, bytes on disk, and CPU per answer of the queries in `docs/performance.md`.
//!
//! `cargo run --release --example store_bench -- [EVENTS] [BATCH] [full|normal] [DIRECTORY]`
//! `STORE_BENCH_URL` names another database than a new SQLite file.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use buzz_actors::ports::{EventStore, Purpose, Query};
use buzz_protocol::{EventId, Filter, Limits, Tag, UnsignedEvent, VerifiedEvent};
use buzz_relay::store::{self, Durability, Options};
use secp256k1::{
    Keypair, SecretKey,
    rand::{Rng, SeedableRng, rngs::StdRng},
};

const AUTHORS: usize = 1_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let events: usize = args.next().map_or(100_000, |n| n.parse().expect("EVENTS"));
    let batch: usize = args.next().map_or(256, |n| n.parse().expect("BATCH"));
    let durability = match args.next().as_deref() {
        None | Some("full") => Durability::Full,
        Some(_) => Durability::Normal,
    };
    let temporary = tempfile::tempdir().expect("a directory");
    let directory = args
        .next()
        .map_or(temporary.path().to_owned(), PathBuf::from);
    let url = format!("sqlite://{}/bench.db", directory.display());
    let url = std::env::var("STORE_BENCH_URL").unwrap_or(url);
    let options = Options {
        durability,
        ..Options::new(url)
    };
    let store = store::open(&options).expect("a store");
    let fill = Fill::new(events);
    ingest(&*store, &fill, batch, &directory);
    queries(&*store, &fill);
}

/// The events, made as they are needed: a million of them would not fit.
struct Fill {
    keys: Vec<Keypair>,
    events: usize,
}

impl Fill {
    fn new(events: usize) -> Self {
        let key = |i: usize| {
            let mut secret = [1; 32];
            secret[..8].copy_from_slice(&(i as u64 + 1).to_be_bytes());
            Keypair::from_secret_key(&SecretKey::from_secret_bytes(secret).expect("a key"))
        };
        Self {
            keys: (0..AUTHORS).map(key).collect(),
            events,
        }
    }

    fn event(&self, i: usize) -> Arc<VerifiedEvent> {
        let mut random = StdRng::seed_from_u64(i as u64);
        let author = random.random_range(0..AUTHORS);
        let mentioned = random.random_range(0..AUTHORS);
        let referred = random.random_range(0..self.events as u64 / 3 + 1);
        let text = |length| {
            let letters = (0..length).map(|_| char::from(b'a' + (i % 26) as u8));
            letters.collect::<String>()
        };
        let event = UnsignedEvent {
            created_at: 1_700_000_000 + i as u64 / 50,
            kind: [1, 1, 1, 7, 6, 1111][random.random_range(0..6)],
            tags: vec![
                Tag::new(["e", &referenced(referred)]),
                Tag::new(["p", &hex(&self.keys[mentioned])]),
                Tag::new(["t", &format!("topic{}", random.random_range(0..200))]),
            ],
            content: text(80),
        };
        let event = event.sign(&self.keys[author]);
        Arc::new(VerifiedEvent::verify(event).expect("a valid event"))
    }
}

fn hex(keys: &Keypair) -> String {
    buzz_protocol::Pubkey(keys.x_only_public_key().0.to_byte_array()).to_hex()
}

fn referenced(number: u64) -> String {
    let mut id = [0; 32];
    StdRng::seed_from_u64(number ^ 0xe0e0_e0e0).fill(&mut id);
    EventId(id).to_hex()
}

fn ingest(store: &dyn EventStore, fill: &Fill, batch: usize, directory: &Path) {
    let mut writer = store.writer().expect("a writer");
    let (mut cpu, mut wall, mut json_bytes) = (0.0, Duration::ZERO, 0);
    let mut last = (0.0, 0);
    for first in (0..fill.events).step_by(batch) {
        let events: Vec<_> = (first..(first + batch).min(fill.events))
            .map(|i| fill.event(i))
            .collect();
        json_bytes += events.iter().map(|event| event.json().len()).sum::<usize>();
        let (cpu_before, wall_before) = (thread_cpu(), Instant::now());
        writer
            .store(&events, (first / batch) as u64 + 1)
            .expect("stored");
        cpu += thread_cpu() - cpu_before;
        wall += wall_before.elapsed();
        let done = first + events.len();
        if done * 10 / fill.events > first * 10 / fill.events {
            println!(
                "  {done} events: {:.1} µs CPU each since the last line",
                (cpu - last.0) * 1e6 / (done - last.1) as f64
            );
            last = (cpu, done);
        }
    }
    let events = fill.events as f64;
    println!(
        "ingest: {:.1} µs CPU, {:.1} µs wall an event, batches of {batch}",
        cpu * 1e6 / events,
        wall.as_secs_f64() * 1e6 / events
    );
    println!(
        "with WAL: {:.0} bytes on disk an event",
        size(directory) / events
    );
    drop(writer);
    println!(
        "closed: {:.0} bytes on disk an event, {:.0} of JSON",
        size(directory) / events,
        json_bytes as f64 / events
    );
}

fn size(directory: &Path) -> f64 {
    let files = std::fs::read_dir(directory).expect("a directory");
    let sizes = files.map(|file| {
        file.and_then(|file| file.metadata())
            .map_or(0, |data| data.len())
    });
    sizes.sum::<u64>() as f64
}

fn queries(store: &dyn EventStore, fill: &Fill) {
    let mut reader = store.reader(Purpose::History).expect("a reader");
    let mut random = StdRng::seed_from_u64(7);
    let limits = Limits {
        max_subscriptions: 0,
        max_filters: 0,
        max_limit: 500,
        max_subid_length: 0,
        max_event_tags: 0,
        created_at_future_secs: 0,
        created_at_past_secs: None,
    };
    let ids: Vec<EventId> = (0..2_000)
        .map(|_| fill.event(random.random_range(0..fill.events)).id)
        .collect();
    let pubkey = |random: &mut StdRng| hex(&fill.keys[random.random_range(0..AUTHORS)]);
    let mut run = |name: &str, rounds: usize, filter: &mut dyn FnMut(&mut StdRng) -> String| {
        let filters: Vec<Filter> = (0..rounds)
            .map(|_| serde_json::from_str(&filter(&mut random)).expect("a filter"))
            .collect();
        let mut rows = 0;
        let mut once = |filter: &Filter| {
            let mut query = Query::new(vec![filter.clone()], &limits, 1_800_000_000, u64::MAX);
            reader
                .read(&mut query, &mut |json| {
                    rows += std::hint::black_box(json).len().min(1);
                    ControlFlow::Continue(())
                })
                .expect("rows");
        };
        filters.iter().take(rounds / 5).for_each(&mut once);
        let cpu = thread_cpu();
        filters.iter().for_each(&mut once);
        let cpu = thread_cpu() - cpu;
        println!(
            "{name}: {:.0} µs CPU, {:.0} rows",
            cpu * 1e6 / rounds as f64,
            rows as f64 / rounds as f64 / 1.2
        );
    };
    run("author, limit 50", 2000, &mut |random| {
        format!(r#"{{"authors":["{}"],"limit":50}}"#, pubkey(random))
    });
    run("kind, limit 500", 300, &mut |_| {
        r#"{"kinds":[1],"limit":500}"#.into()
    });
    run("#e, limit 100", 2000, &mut |random| {
        format!(
            r##"{{"#e":["{}"],"limit":100}}"##,
            referenced(random.random_range(0..fill.events as u64 / 3 + 1))
        )
    });
    run("20 ids", 2000, &mut |random| {
        let ids: Vec<_> = (0..20)
            .map(|_| ids[random.random_range(0..ids.len())].to_hex())
            .collect();
        format!(
            r#"{{"ids":{}}}"#,
            serde_json::to_string(&ids).expect("JSON")
        )
    });
    let many = |random: &mut StdRng, count: usize, known: bool| {
        let authors: Vec<_> = (0..count)
            .map(|_| {
                if known {
                    pubkey(random)
                } else {
                    referenced(random.random_range(0..u64::MAX))
                }
            })
            .collect();
        serde_json::to_string(&authors).expect("JSON")
    };
    run("500 authors, limit 50", 200, &mut |random| {
        format!(r#"{{"authors":{},"limit":50}}"#, many(random, 500, true))
    });
    run("500 unknown authors, limit 50", 200, &mut |random| {
        format!(r#"{{"authors":{},"limit":50}}"#, many(random, 500, false))
    });
    run("20 authors, limit 50", 500, &mut |random| {
        format!(r#"{{"authors":{},"limit":50}}"#, many(random, 20, true))
    });
    run("author and kind, limit 50", 2000, &mut |random| {
        format!(
            r#"{{"authors":["{}"],"kinds":[7],"limit":50}}"#,
            pubkey(random)
        )
    });
    run("#t, limit 100", 1000, &mut |random| {
        format!(
            r##"{{"#t":["topic{}"],"limit":100}}"##,
            random.random_range(0..200)
        )
    });
}

/// CPU seconds of this thread, from /proc: the events' making is left out by taking differences.
fn thread_cpu() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds: f64 = schedstat
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    nanoseconds / 1e9
}
