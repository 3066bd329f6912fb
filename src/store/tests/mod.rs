//! Every database against a naive model, on events that need not be signed. What a database does
//! through its contracts alone is tested in `tests/store.rs`.

mod large;
mod model;

use std::ops::ControlFlow;

use buzz_actors::ports::{Outcome, Progress, Query, StoreError, StoreReader, StoreWriter};
use buzz_protocol::{Event, EventId, Filter, Pubkey, Sig, Tag, event::json_layout};

use super::batch::Incoming;

/// A writer that takes events without their signatures.
pub(super) trait RawWriter: StoreWriter {
    fn write_raw(
        &mut self,
        events: &[Incoming<'_>],
        batch: u64,
    ) -> Result<Vec<Outcome>, StoreError>;
}

pub(super) fn write(
    writer: &mut dyn RawWriter,
    events: &[Event],
    batch: u64,
) -> Result<Vec<Outcome>, StoreError> {
    let jsons: Vec<_> = events.iter().map(Event::to_json).collect();
    let incoming = events.iter().zip(&jsons);
    let incoming = incoming.map(|(event, json)| Incoming { event, json });
    writer.write_raw(&incoming.collect::<Vec<_>>(), batch)
}

pub(super) fn query(filters: Vec<(Filter, u64)>) -> Query {
    Query {
        filters,
        now: 1,
        committed: u64::MAX,
        before: None,
    }
}

/// Reads up to `size` events on.
pub(super) fn page(
    reader: &mut dyn StoreReader,
    query: &mut Query,
    size: usize,
) -> (Progress, Vec<EventId>) {
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

pub(super) fn read(reader: &mut dyn StoreReader, filter: Filter) -> Vec<EventId> {
    let limit = filter.limit.unwrap_or(500);
    page(reader, &mut query(vec![(filter, limit)]), usize::MAX).1
}

pub(super) fn event(number: u32, author: u8, kind: u16, created_at: u64, tags: Vec<Tag>) -> Event {
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
