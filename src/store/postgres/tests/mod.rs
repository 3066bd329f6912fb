//! PostgreSQL's own: query plans, faults, several relays on one database. The suite that every
//! database passes is in `tests/store.rs`, the comparison with a model in `src/store/tests`.

mod dropped;
mod faults;
mod faults_by_code;
mod query_plans;
mod schema;
mod several_relays;

use std::time::Duration;

use buzz_actors::ports::{EventStore, Outcome, Purpose, StoreError, StoreReader};
use buzz_testkit::cluster;

use super::{PostgresStore, writer::PostgresWriter};
use crate::store::{Options, batch::Incoming, tests::RawWriter};

impl RawWriter for PostgresWriter {
    fn write_raw(
        &mut self,
        events: &[Incoming<'_>],
        batch: u64,
    ) -> Result<Vec<Outcome>, StoreError> {
        super::on_own_thread(|| self.write(events, batch))
    }
}

fn options(url: &str) -> Options {
    Options {
        statement_timeout: Duration::from_secs(60),
        start_wait: Duration::ZERO,
        ..Options::new(url)
    }
}

fn store(url: &str) -> PostgresStore {
    PostgresStore::open(&options(url)).expect("a store")
}

fn writer(store: &PostgresStore) -> PostgresWriter {
    PostgresWriter::open(store).expect("a writer")
}

fn reader(store: &PostgresStore) -> Box<dyn StoreReader> {
    store.reader(Purpose::History).expect("a reader")
}

/// A new store's two sides, and what empties it.
pub(in crate::store) fn sides() -> (Box<dyn RawWriter>, Box<dyn StoreReader>, impl Fn()) {
    let url = cluster::database();
    let store = store(&url);
    let empty = move || {
        cluster::sql(&url, "TRUNCATE event, entry");
    };
    (Box::new(writer(&store)), reader(&store), empty)
}
