//! SQLite's own: query plans, its log, and faults of the disk. The suite that every database passes is in
//! `tests/store.rs`, the comparison with a model in `src/store/tests`.

mod faults;
mod log;
mod query_plans;
mod schema;

use std::time::Duration;

use buzz_actors::ports::{EventStore, Outcome, Purpose, StoreError, StoreReader};
use buzz_protocol::{Event, EventId, Filter};
use tempfile::TempDir;

use super::{SqliteStore, writer::SqliteWriter};
use crate::store::tests::event;
use crate::store::{
    Durability,
    batch::Incoming,
    tests::{self, RawWriter},
};

impl RawWriter for SqliteWriter {
    fn write_raw(
        &mut self,
        events: &[Incoming<'_>],
        batch: u64,
    ) -> Result<Vec<Outcome>, StoreError> {
        self.write(events, batch)
    }
}

pub(in crate::store) struct Fixture {
    directory: TempDir,
    store: SqliteStore,
    writer: SqliteWriter,
    reader: Box<dyn StoreReader>,
}

impl Fixture {
    fn new() -> Self {
        Self::that_gives_up_after(Duration::from_secs(60))
    }

    fn that_gives_up_after(time: Duration) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("relay.db");
        let store = SqliteStore::open(&path, Durability::Normal, time).expect("a store");
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
        tests::read(&mut *self.reader, filter)
    }
}

fn write(
    writer: &mut SqliteWriter,
    events: &[Event],
    batch: u64,
) -> Result<Vec<Outcome>, StoreError> {
    tests::write(writer, events, batch)
}

/// A new store's two sides, and what keeps it.
pub(in crate::store) fn sides() -> (Box<dyn RawWriter>, Box<dyn StoreReader>, TempDir) {
    let Fixture {
        directory,
        writer,
        reader,
        ..
    } = Fixture::new();
    (Box::new(writer), reader, directory)
}
