//! The stores against a model that keeps a list and looks through it. `STORE_MODEL_SEED` repeats
//! one run, `STORE_MODEL_RUNS` sets how many there are.

use std::collections::BTreeMap;

use buzz_actors::ports::{Outcome, Progress, StoreReader};
use buzz_protocol::{Event, EventId, Filter, Pubkey, Sig, Tag, event::Address, kind};
use secp256k1::rand::{
    Rng, SeedableRng,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};

use super::{RawWriter, page, query, write};
use crate::store::{postgres, sqlite};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// Kills: any outcome, order, limit, cursor or removal that differs from the model's.
#[test]
fn random_histories_on_sqlite_end_like_the_models() {
    all_runs(60, |seed| {
        let (writer, reader, _directory) = sqlite::tests::sides();
        run(seed, Sides { writer, reader });
    });
}

#[test]
fn random_histories_on_postgres_end_like_the_models() {
    let (writer, reader, empty) = postgres::tests::sides();
    let sides = std::cell::RefCell::new(Some(Sides { writer, reader }));
    all_runs(8, |seed| {
        empty();
        let again = run(seed, sides.take().expect("the sides"));
        sides.replace(Some(again));
    });
}

fn all_runs(runs: u64, run: impl Fn(u64)) {
    if let Some(seed) = number("STORE_MODEL_SEED") {
        return run(seed);
    }
    for seed in 0..number("STORE_MODEL_RUNS").unwrap_or(runs) {
        let run = std::panic::AssertUnwindSafe(|| run(seed));
        assert!(
            std::panic::catch_unwind(run).is_ok(),
            "STORE_MODEL_SEED={seed}"
        );
    }
}

struct Sides {
    writer: Box<dyn RawWriter>,
    reader: Box<dyn StoreReader>,
}

impl Sides {
    fn write(&mut self, events: &[Event], batch: u64) -> Vec<Outcome> {
        write(&mut *self.writer, events, batch).expect("a batch")
    }
}

#[derive(Default)]
pub(super) struct Model {
    events: Vec<(Event, u64)>,
}

impl Model {
    pub(super) fn store(&mut self, event: &Event, batch: u64) -> Outcome {
        if self.events.iter().any(|(other, _)| other.id == event.id) {
            return Outcome::Duplicate;
        }
        if event.kind != kind::DELETION
            && self.events.iter().any(|(other, _)| deletes(other, event))
        {
            return Outcome::Deleted;
        }
        let rival = |other: &Event| event.address().is_some() && other.address() == event.address();
        let wins = |other: &Event| {
            other.created_at > event.created_at
                || (other.created_at == event.created_at && other.id < event.id)
        };
        if self
            .events
            .iter()
            .any(|(other, _)| rival(other) && wins(other))
        {
            return Outcome::Superseded;
        }
        self.events
            .retain(|(other, _)| !rival(other) && !deletes(event, other));
        self.events.push((event.clone(), batch));
        Outcome::Stored
    }

    /// What `filters` yield of events that are `in_order`.
    pub(super) fn query(
        events: &[&(Event, u64)],
        filters: &mut [(Filter, u64)],
        now: u64,
        committed: u64,
    ) -> Vec<EventId> {
        let mut ids = Vec::new();
        for (event, batch) in events {
            if *batch > committed || event.is_expired(now) {
                continue;
            }
            let mut wanted = false;
            for (filter, left) in &mut *filters {
                if *left > 0 && filter.matches(event) {
                    *left -= 1;
                    wanted = true;
                }
            }
            ids.extend(wanted.then_some(event.id));
            if wanted && filters.iter().all(|(_, left)| *left == 0) {
                break;
            }
        }
        ids
    }
}

/// All events of the models, in the order of NIP-01.
pub(super) fn in_order<'a>(models: impl IntoIterator<Item = &'a Model>) -> Vec<&'a (Event, u64)> {
    let mut events: Vec<_> = models.into_iter().flat_map(|model| &model.events).collect();
    events.sort_by_key(|(event, _)| (std::cmp::Reverse(event.created_at), event.id));
    events
}

fn deletes(deletion: &Event, event: &Event) -> bool {
    let id = || deletion.tag_values("e").any(|id| id == event.id.to_hex());
    let address = || {
        let addresses = deletion.tag_values("a").filter_map(Address::parse);
        addresses
            .map(Some)
            .any(|address| address == event.address())
            && event.created_at <= deletion.created_at
    };
    deletion.kind == kind::DELETION
        && event.kind != kind::DELETION
        && deletion.pubkey == event.pubkey
        && (id() || address())
}

const KINDS: [u16; 8] = [1, 1, 7, 0, 10_002, 30_000, 30_001, 5];
const WORDS: [&str; 4] = ["", "x", "a\"b", "y"];

fn pubkey(random: &mut StdRng) -> Pubkey {
    Pubkey([random.random_range(1..4); 32])
}

/// Few seconds and few prefixes, so that events meet in one block; few authors and addresses.
fn random_events(random: &mut StdRng) -> Vec<Event> {
    let count = random.random_range(1..120);
    let mut events: Vec<Event> = Vec::new();
    for _ in 0..count {
        let mut id: [u8; 32] = random.random();
        id[..3].copy_from_slice(
            [[0; 3], [0, 0, 1], [255; 3], [7, 8, 9]]
                .choose(random)
                .expect("one"),
        );
        id[3] = *[0, 8, 9, 16, 255, id[3]].choose(random).expect("one");
        let kind = *KINDS.choose(random).expect("one");
        let mut tags = Vec::new();
        for _ in 0..random.random_range(0..4) {
            let word = *WORDS.choose(random).expect("one");
            tags.push(match random.random_range(0..5) {
                0 => Tag::new(["d", word]),
                1 => Tag::new(["t", word]),
                2 => Tag::new([
                    "e",
                    &events
                        .choose(random)
                        .map_or(String::new(), |e| e.id.to_hex()),
                ]),
                3 => Tag::new([
                    "a",
                    &format!(
                        "{}:{}:{word}",
                        KINDS.choose(random).expect("one"),
                        pubkey(random)
                    ),
                ]),
                _ => Tag::new(["expiration", &random.random_range(0..30_u64).to_string()]),
            });
        }
        events.push(Event {
            id: EventId(id),
            pubkey: pubkey(random),
            created_at: random.random_range(0..8),
            kind,
            tags,
            content: "[\"t\",\"x\"]".into(),
            sig: Sig([0; 64]),
        });
    }
    let again: Vec<_> = (0..count / 4)
        .filter_map(|_| events.choose(random).cloned())
        .collect();
    events.extend(again);
    events.shuffle(random);
    events
}

fn some<T>(
    random: &mut StdRng,
    odds: f64,
    mut one: impl FnMut(&mut StdRng) -> T,
) -> Option<Vec<T>> {
    let count = random.random_range(0..4);
    random
        .random_bool(odds)
        .then(|| (0..count).map(|_| one(random)).collect())
}

fn random_filter(random: &mut StdRng, events: &[Event]) -> Filter {
    let mut tags = BTreeMap::new();
    let letter = *b"dtea".choose(random).expect("one");
    let value = |random: &mut StdRng| match letter {
        b'e' => events.choose(random).expect("one").id.to_hex(),
        _ => (*WORDS.choose(random).expect("one")).to_owned(),
    };
    if let Some(values) = some(random, 0.3, value) {
        tags.insert(letter, values);
    }
    let mut authors = some(random, 0.3, pubkey);
    if let Some(authors) = authors.as_mut().filter(|_| random.random_bool(0.3)) {
        // Enough of them that the newest events are walked first.
        authors.extend((0..40).map(|byte| Pubkey([byte; 32])));
    }
    Filter {
        ids: some(random, 0.2, |random| events.choose(random).expect("one").id),
        authors,
        kinds: some(random, 0.3, |random| *KINDS.choose(random).expect("one")),
        tags,
        since: random.random_bool(0.2).then(|| random.random_range(0..8)),
        until: random.random_bool(0.2).then(|| random.random_range(0..8)),
        limit: None,
    }
}

fn run(seed: u64, mut sides: Sides) -> Sides {
    let random = &mut StdRng::seed_from_u64(seed);
    let (fixture, mut model) = (&mut sides, Model::default());
    let events = random_events(random);
    let (mut rest, mut batch) = (&events[..], 0);
    while !rest.is_empty() {
        let size = random.random_range(1..=rest.len().min(40));
        let (now, later) = rest.split_at(size);
        (rest, batch) = (later, batch + 1);
        let expected: Vec<_> = now.iter().map(|event| model.store(event, batch)).collect();
        assert_eq!(
            fixture.write(now, batch),
            expected,
            "outcomes of batch {batch}"
        );
        if random.random_bool(0.1) {
            let now = random.random_range(0..10);
            fixture
                .writer
                .purge_expired(now, usize::MAX)
                .expect("a purge");
            model
                .events
                .retain(|(event, _)| event.kind == kind::DELETION || !event.is_expired(now));
        }
        for _ in 0..5 {
            compare(random, fixture, &model, &events, batch);
        }
    }
    sides
}

fn compare(random: &mut StdRng, fixture: &mut Sides, model: &Model, events: &[Event], batch: u64) {
    let filters = (0..random.random_range(1..4)).map(|_| {
        let limit = *[0, 1, 3, 10, 500].choose(random).expect("one");
        (random_filter(random, events), limit)
    });
    let mut query = query(filters.collect());
    query.now = random.random_range(0..30);
    query.committed = if random.random_bool(0.2) {
        batch - 1
    } else {
        batch
    };
    let mut unlimited: Vec<_> = query
        .filters
        .iter()
        .map(|(filter, _)| (filter.clone(), u64::MAX))
        .collect();
    let stored = in_order([model]);
    let count = Model::query(&stored, &mut unlimited, query.now, query.committed).len() as u64;
    assert_eq!(
        fixture.reader.count(&query).expect("a count"),
        count,
        "{query:?}"
    );
    let mut filters = query.filters.clone();
    let expected = Model::query(&stored, &mut filters, query.now, query.committed);
    let (asked, size) = (query.clone(), random.random_range(1..20));
    let mut ids = Vec::new();
    loop {
        let (progress, page) = page(&mut *fixture.reader, &mut query, size);
        ids.extend(page);
        if progress == Progress::Done {
            break;
        }
    }
    assert_eq!(ids, expected, "pages of {size}: {asked:?}");
}
