//! One large, random store of each database against the model: ids and order of 2,000 queries over
//! 20,000 events.

use std::{collections::HashMap, ops::ControlFlow};

use buzz_protocol::{Event, EventId, Filter, Pubkey, Sig, Tag, event::json_layout};
use secp256k1::rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::{
    RawWriter,
    model::{Model, in_order},
    query, write,
};
use crate::store::{postgres, sqlite};

const EVENTS: usize = 20_000;
const FILTERS: usize = 2_000;
const AUTHORS: u8 = 150;
const TOPICS: u32 = 60;

fn author(random: &mut StdRng) -> Pubkey {
    // A few write much, many write little.
    let number = random.random_range(0.0..1.0_f64).powi(3) * f64::from(AUTHORS);
    Pubkey([number as u8; 32])
}

fn topic(random: &mut StdRng) -> String {
    format!("t{}", random.random_range(0..TOPICS))
}

fn kind(random: &mut StdRng) -> u16 {
    let kinds = [1, 1, 1, 1, 1, 7, 7, 6, 0, 3, 10_002, 30_023, 30_023, 5];
    *kinds.choose(random).expect("one")
}

fn random_event(random: &mut StdRng, earlier: &[Event]) -> Event {
    let mut tags = Vec::new();
    for _ in 0..random.random_range(0..4) {
        let other = earlier.choose(random);
        tags.push(match (random.random_range(0..5), other) {
            (0, Some(other)) => Tag::new(["e", &other.id.to_hex()]),
            (1, Some(other)) => Tag::new(["p", &other.pubkey.to_hex()]),
            (2, _) => Tag::new(["d", &topic(random)]),
            _ => Tag::new(["t", &topic(random)]),
        });
    }
    let (mut kind, mut pubkey) = (kind(random), author(random));
    // Deletions name what their author wrote, or nothing would be deleted.
    if kind == 5
        && let Some(target) = earlier.choose(random)
    {
        pubkey = target.pubkey;
        tags.push(Tag::new(["e", &target.id.to_hex()]));
    } else if kind == 5 {
        kind = 1;
    }
    Event {
        id: EventId(random.random()),
        pubkey,
        created_at: random.random_range(1_000..9_000),
        kind,
        tags,
        content: "x".repeat(random.random_range(0..200)),
        sig: Sig([0; 64]),
    }
}

fn some<T>(random: &mut StdRng, most: usize, mut one: impl FnMut(&mut StdRng) -> T) -> Vec<T> {
    let count = random.random_range(1..=most);
    (0..count).map(|_| one(random)).collect()
}

fn random_filter(random: &mut StdRng, events: &[Event]) -> Filter {
    let mut filter = Filter::default();
    let shape = random.random_range(0..10);
    if shape == 0 {
        let id = |random: &mut StdRng| events.choose(random).expect("one").id;
        filter.ids = Some(some(random, 30, id));
    }
    if [1, 2, 3].contains(&shape) {
        let most = *[1, 5, 100].choose(random).expect("one");
        filter.authors = Some(some(random, most, author));
    }
    if [2, 4, 5].contains(&shape) {
        filter.kinds = Some(some(random, 3, kind));
    }
    if [5, 6, 7].contains(&shape) {
        filter.tags.insert(b't', some(random, 3, topic));
    }
    if shape == 8 {
        let other = |random: &mut StdRng| events.choose(random).expect("one").pubkey.to_hex();
        filter.tags.insert(b'p', some(random, 10, other));
    }
    if random.random_bool(0.3) {
        filter.since = Some(random.random_range(1_000..9_000));
    }
    if random.random_bool(0.3) {
        filter.until = Some(random.random_range(1_000..9_000));
    }
    filter
}

/// Kills: an index that leads to too little, a merge that loses or repeats an event, a page's end
/// that loses one, an order other than newest first with ties by lowest id.
#[test]
fn two_thousand_queries_over_twenty_thousand_events_are_answered_like_the_models() {
    let random = &mut StdRng::seed_from_u64(3);
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    for _ in 0..EVENTS {
        let event = random_event(random, &events);
        events.push(event);
    }
    let (sqlite_writer, sqlite_reader, _directory) = sqlite::tests::sides();
    let (postgres_writer, postgres_reader, _) = postgres::tests::sides();
    let mut writers: [Box<dyn RawWriter>; 2] = [sqlite_writer, postgres_writer];
    // What becomes of an event depends on its author's others alone: each has a model.
    let mut models: HashMap<Pubkey, Model> = HashMap::new();
    for (batch, events) in (1..).zip(events.chunks(500)) {
        let expected: Vec<_> = events
            .iter()
            .map(|event| models.entry(event.pubkey).or_default().store(event, batch))
            .collect();
        for writer in &mut writers {
            assert_eq!(
                write(&mut **writer, events, batch).expect("a batch"),
                expected
            );
        }
    }
    let stored = in_order(models.values());
    assert!(stored.len() > EVENTS / 2, "{} are stored", stored.len());
    let mut readers = [("sqlite", sqlite_reader), ("postgres", postgres_reader)];
    for _ in 0..FILTERS {
        let filters: Vec<_> = (0..random.random_range(1..3))
            .map(|_| {
                let limit = *[1, 20, 100, 500].choose(random).expect("one");
                (random_filter(random, &events), limit)
            })
            .collect();
        let mut left = filters.clone();
        let expected = Model::query(&stored, &mut left, 1, u64::MAX);
        for (name, reader) in &mut readers {
            let mut ids = Vec::new();
            let mut asked = query(filters.clone());
            let done = reader.read(&mut asked, &mut |json| {
                ids.extend(json_layout::id(json.as_bytes()));
                ControlFlow::Continue(())
            });
            done.expect("rows");
            assert_eq!(ids, expected, "{name}: {filters:?}");
        }
    }
}
