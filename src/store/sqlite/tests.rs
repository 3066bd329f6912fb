//! SQLite's own: query plans, faults of the disk, and the store against a naive model. The suite
//! that every database passes is in `tests/store.rs`.

mod faults;
mod model;
mod query_plans;

use std::ops::ControlFlow;

use buzz_actors::ports::{EventStore, Outcome, Progress, Purpose, Query, StoreReader};
use buzz_protocol::{Event, EventId, Filter, Pubkey, Sig, Tag, event::json_layout};
use tempfile::TempDir;

use super::{SqliteStore, writer::SqliteWriter};
use crate::store::{Durability, batch::Incoming};

struct Fixture {
    directory: TempDir,
    store: SqliteStore,
    writer: SqliteWriter,
    reader: Box<dyn StoreReader>,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("relay.db");
        let store = SqliteStore::open(&path, Durability::Normal).expect("a store");
        Self {
            writer: SqliteWriter::open(store.clone()).expect("a writer"),
            reader: store.reader(Purpose::History).expect("a reader"),
            directory,
            store,
        }
    }

    fn write(&mut self, events: &[Event], batch: u64) -> Vec<Outcome> {
        write(&mut self.writer, events, batch).expect("a batch")
    }

    fn read(&mut self, filter: Filter) -> Vec<EventId> {
        let limit = filter.limit.unwrap_or(500);
        let mut query = query(vec![(filter, limit)]);
        page(&mut *self.reader, &mut query, usize::MAX).1
    }
}

fn write(
    writer: &mut SqliteWriter,
    events: &[Event],
    batch: u64,
) -> Result<Vec<Outcome>, buzz_actors::ports::StoreError> {
    let jsons: Vec<_> = events.iter().map(Event::to_json).collect();
    let incoming = events.iter().zip(&jsons);
    let incoming = incoming.map(|(event, json)| Incoming { event, json });
    writer.write(&incoming.collect::<Vec<_>>(), batch)
}

fn query(filters: Vec<(Filter, u64)>) -> Query {
    Query {
        filters,
        now: 1,
        committed: u64::MAX,
        before: None,
    }
}

/// Reads up to `size` events on.
fn page(reader: &mut dyn StoreReader, query: &mut Query, size: usize) -> (Progress, Vec<EventId>) {
    let mut ids = Vec::new();
    let progress = reader.read(query, &mut |json| {
        ids.extend(json_layout::id(json.as_bytes()));
        if ids.len() < size {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    (progress.expect("rows"), ids)
}

fn event(number: u32, author: u8, kind: u16, created_at: u64, tags: Vec<Tag>) -> Event {
    let mut id = EventId([0; 32]);
    // Spread over all prefixes, as hashes are.
    id.0[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
    id.0[28..].copy_from_slice(&number.to_be_bytes());
    Event {
        id,
        pubkey: Pubkey([author; 32]),
        created_at,
        kind,
        tags,
        content: "x".repeat(300),
        sig: Sig([0; 64]),
    }
}
