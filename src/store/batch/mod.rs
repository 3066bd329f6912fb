//! What a batch of events does to the store: pure, and shared by all databases. Each event sees
//! those before it in the batch, so that the outcome is that of storing them one by one.

use std::collections::{BTreeMap, HashMap, HashSet};

use buzz_actors::ports::Outcome;
use buzz_protocol::{
    Event, EventId, Pubkey,
    event::{Address, json_layout},
    kind::{self, Class},
};

use super::{keys, position};

/// An event that is to be stored.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) event: &'a Event,
    /// Its canonical JSON.
    pub(crate) json: &'a str,
}

/// A row of the `event` table.
#[derive(Debug, Clone, PartialEq, Eq, diesel::Queryable)]
pub(crate) struct StoredRow {
    pub(crate) position: i64,
    pub(crate) batch: i64,
    pub(crate) expires_at: Option<i64>,
    pub(crate) json: String,
}

/// What must be read of the store to decide on a batch.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// All rows of these blocks of positions: duplicates, and who sits where.
    pub(crate) blocks: Vec<i64>,
    /// All rows that these keys lead to: versions of an address, deletions and their targets.
    pub(crate) keys: Vec<i64>,
    /// The batch's authors, sorted: no other's rows behind the keys matter, nor does any content.
    pub(crate) authors: Vec<Pubkey>,
}

impl ReadSet {
    pub(crate) fn of(events: &[Incoming<'_>]) -> Self {
        let mut lookup = Self::default();
        for Incoming { event, .. } in events {
            let home = position::home(event.created_at, &event.id);
            lookup.blocks.push(position::block(home));
            if event.kind == kind::DELETION {
                let ids = keys::deleted_ids(event);
                lookup.keys.extend(ids.map(|id| keys::id(&id)));
                let addresses = keys::deleted_addresses(event);
                lookup
                    .keys
                    .extend(addresses.map(|address| keys::address(&address)));
            } else {
                let deletion = keys::deleted_id(&event.pubkey, &event.id);
                lookup.keys.push(deletion);
            }
            if let Some(address) = event.address() {
                lookup.keys.push(keys::address(&address));
                lookup.keys.push(keys::deleted_address(&address));
            }
        }
        lookup
            .authors
            .extend(events.iter().map(|incoming| incoming.event.pubkey));
        lookup.authors.sort_unstable();
        lookup.authors.dedup();
        for list in [&mut lookup.blocks, &mut lookup.keys] {
            list.sort_unstable();
            list.dedup();
        }
        lookup
    }
}

/// What is to be done: first the removals, then the insertions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangeSet<'a> {
    /// One for each event of the batch.
    pub(crate) outcomes: Vec<Outcome>,
    /// Positions, ascending.
    pub(crate) removed: Vec<i64>,
    /// Keys and positions, ascending.
    pub(crate) removed_entries: Vec<(i64, i64)>,
    /// Rows by ascending position.
    pub(crate) rows: Vec<NewRow<'a>>,
    /// Keys and positions, ascending.
    pub(crate) entries: Vec<(i64, i64)>,
}

/// A row to be inserted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewRow<'a> {
    pub(crate) position: i64,
    pub(crate) batch: i64,
    pub(crate) expires_at: Option<i64>,
    pub(crate) json: &'a str,
}

/// Decides on a batch. `stored` must hold every row that [`ReadSet`] asks for; it may hold more.
///
/// # Errors
/// When stored text is not an event.
pub(crate) fn decide<'a>(
    events: &[Incoming<'a>],
    stored: &'a [StoredRow],
    batch: i64,
) -> Result<ChangeSet<'a>, BrokenRow> {
    let mut state = State::default();
    for (index, row) in stored.iter().enumerate() {
        state.know(index, row)?;
    }
    let outcomes = events.iter().enumerate();
    let outcomes = outcomes
        .map(|(index, incoming)| state.store(index, incoming.event))
        .collect();
    state.into_changes(events, stored, batch, outcomes)
}

/// Stored text that is not an event.
#[derive(Debug, thiserror::Error)]
#[error("the row at position {0} holds no event")]
pub(crate) struct BrokenRow(pub(crate) i64);

/// What is known of the store, as the batch's events change it.
#[derive(Default)]
struct State {
    rows: BTreeMap<i64, Known>,
    places: HashMap<EventId, i64>,
    /// The id of the version that an address holds.
    addresses: HashMap<Address, EventId>,
    deleted_ids: HashSet<(Pubkey, EventId)>,
    /// The time of the newest deletion.
    deleted_addresses: HashMap<Address, u64>,
}

struct Known {
    id: EventId,
    pubkey: Pubkey,
    kind: u16,
    created_at: u64,
    address: Option<Address>,
    text: RowText,
}

/// Where a row's text is: its index in the list of stored rows, or in the batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowText {
    Stored(usize),
    Incoming(usize),
}

impl State {
    fn know(&mut self, index: usize, row: &StoredRow) -> Result<(), BrokenRow> {
        let json = row.json.as_bytes();
        let broken = || BrokenRow(row.position);
        let id = json_layout::id(json).ok_or_else(broken)?;
        let pubkey = json_layout::pubkey(json).ok_or_else(broken)?;
        let (created_at, kind) = json_layout::created_at_and_kind(json).ok_or_else(broken)?;
        let address = match kind::class(kind) {
            Class::Replaceable => Some(Address {
                kind,
                pubkey,
                d: String::new(),
            }),
            Class::Addressable => parse(row)?.address(),
            Class::Regular | Class::Ephemeral => None,
        };
        if kind == kind::DELETION {
            self.remember_deletion(&parse(row)?);
        }
        let known = Known {
            id,
            pubkey,
            kind,
            created_at,
            address,
            text: RowText::Stored(index),
        };
        self.insert(row.position, known);
        Ok(())
    }

    fn store(&mut self, index: usize, event: &Event) -> Outcome {
        if self.places.contains_key(&event.id) {
            return Outcome::Duplicate;
        }
        let address = event.address();
        if self.is_deleted(event, address.as_ref()) {
            return Outcome::Deleted;
        }
        if let Some(current) = address
            .as_ref()
            .and_then(|address| self.addresses.get(address))
        {
            let position = self.places.get(current).copied();
            let current = position.and_then(|position| self.rows.get(&position));
            if current.is_some_and(|current| is_newer(current, event)) {
                return Outcome::Superseded;
            }
            self.remove(position);
        }
        let Some(position) = self.make_room(event) else {
            // 32 ids of one second that share 24 bits are made, not met: about 2^29 hashes.
            return Outcome::NoRoom;
        };
        if event.kind == kind::DELETION {
            self.delete_targets(event);
            self.remember_deletion(event);
        }
        let known = Known {
            id: event.id,
            pubkey: event.pubkey,
            kind: event.kind,
            created_at: event.created_at,
            address,
            text: RowText::Incoming(index),
        };
        self.insert(position, known);
        Outcome::Stored
    }

    /// NIP-09: a deletion can't be deleted.
    fn is_deleted(&self, event: &Event, address: Option<&Address>) -> bool {
        let deleted_at = address.and_then(|address| self.deleted_addresses.get(address));
        event.kind != kind::DELETION
            && (deleted_at.is_some_and(|at| event.created_at <= *at)
                || self.deleted_ids.contains(&(event.pubkey, event.id)))
    }

    fn remember_deletion(&mut self, event: &Event) {
        let ids = keys::deleted_ids(event).map(|id| (event.pubkey, id));
        self.deleted_ids.extend(ids);
        for address in keys::deleted_addresses(event) {
            let at = self.deleted_addresses.entry(address).or_default();
            *at = event.created_at.max(*at);
        }
    }

    fn delete_targets(&mut self, deletion: &Event) {
        for id in keys::deleted_ids(deletion) {
            let position = self.places.get(&id).copied();
            let target = position.and_then(|position| self.rows.get(&position));
            let own = |target: &Known| target.pubkey == deletion.pubkey;
            if target.is_some_and(|target| own(target) && target.kind != kind::DELETION) {
                self.remove(position);
            }
        }
        for address in keys::deleted_addresses(deletion) {
            let id = self.addresses.get(&address);
            let position = id.and_then(|id| self.places.get(id)).copied();
            let target = position.and_then(|position| self.rows.get(&position));
            if target.is_some_and(|target| target.created_at <= deletion.created_at) {
                self.remove(position);
            }
        }
    }

    fn insert(&mut self, position: i64, known: Known) {
        self.places.insert(known.id, position);
        if let Some(address) = &known.address {
            self.addresses.insert(address.clone(), known.id);
        }
        self.rows.insert(position, known);
    }

    fn remove(&mut self, position: Option<i64>) {
        let Some(known) = position.and_then(|position| self.rows.remove(&position)) else {
            return;
        };
        self.places.remove(&known.id);
        if let Some(address) = &known.address {
            self.addresses.remove(address);
        }
    }

    /// A free position at which `event` stands in order among its block, moving its neighbours
    /// where they leave no gap. `None` when the block is full.
    fn make_room(&mut self, event: &Event) -> Option<i64> {
        let home = position::home(event.created_at, &event.id);
        let block = position::block(home);
        let end = position::end_of(block);
        // Higher ids stand at lower positions.
        let ids = self
            .rows
            .range(block..end)
            .map(|(at, known)| (*at, known.id));
        let (mut below, mut above, mut count) = (block - 1, end, 0);
        for (at, id) in ids {
            count += 1;
            if id > event.id {
                below = at;
            } else {
                above = above.min(at);
            }
        }
        if count >= end - block {
            return None;
        }
        if above - below > 1 {
            return Some(home.clamp(below + 1, above - 1));
        }
        let crowd: Vec<i64> = self.rows.range(block..end).map(|(at, _)| *at).collect();
        let crowd: Vec<Known> = crowd.iter().filter_map(|at| self.rows.remove(at)).collect();
        let mut next = block;
        let mut room = None;
        for known in crowd {
            if room.is_none() && known.id < event.id {
                room = Some(next);
                next += 1;
            }
            self.insert(next, known);
            next += 1;
        }
        Some(room.unwrap_or(next))
    }

    fn into_changes<'a>(
        self,
        events: &[Incoming<'a>],
        stored: &'a [StoredRow],
        batch: i64,
        outcomes: Vec<Outcome>,
    ) -> Result<ChangeSet<'a>, BrokenRow> {
        let mut changes = ChangeSet {
            outcomes,
            ..ChangeSet::default()
        };
        let mut keys = Vec::new();
        let mut untouched = vec![false; stored.len()];
        for (position, known) in self.rows {
            let row = match known.text {
                RowText::Stored(index) if stored[index].position == position => {
                    untouched[index] = true;
                    continue;
                }
                RowText::Stored(index) => {
                    let row = &stored[index];
                    keys::of_event(&parse(row)?, &mut keys);
                    NewRow {
                        position,
                        batch: row.batch,
                        expires_at: row.expires_at,
                        json: &row.json,
                    }
                }
                RowText::Incoming(index) => {
                    let Incoming { event, json } = events[index];
                    keys::of_event(event, &mut keys);
                    NewRow {
                        position,
                        batch,
                        expires_at: expires_at(event),
                        json,
                    }
                }
            };
            changes
                .entries
                .extend(keys.iter().map(|key| (*key, position)));
            changes.rows.push(row);
        }
        for (row, _) in stored
            .iter()
            .zip(untouched)
            .filter(|(_, untouched)| !untouched)
        {
            changes.remove(row, &mut keys)?;
        }
        changes.removed.sort_unstable();
        changes.removed_entries.sort_unstable();
        changes.entries.sort_unstable();
        Ok(changes)
    }
}

impl ChangeSet<'_> {
    /// Whether the store stays as it is.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.removed.is_empty()
    }

    /// Changes that only remove these rows and all that leads to them.
    pub(crate) fn removing(rows: &[StoredRow]) -> Result<Self, BrokenRow> {
        let mut changes = Self::default();
        for row in rows {
            changes.remove(row, &mut Vec::new())?;
        }
        Ok(changes)
    }

    /// Adds the removal of a row and of all that leads to it.
    fn remove(&mut self, row: &StoredRow, keys: &mut Vec<i64>) -> Result<(), BrokenRow> {
        keys::of_event(&parse(row)?, keys);
        let entries = keys.iter().map(|key| (*key, row.position));
        self.removed_entries.extend(entries);
        self.removed.push(row.position);
        Ok(())
    }
}

fn parse(row: &StoredRow) -> Result<Event, BrokenRow> {
    serde_json::from_str(&row.json).map_err(|_| BrokenRow(row.position))
}

/// NIP-01: the newest version wins, at equal times the one with the lowest id.
fn is_newer(current: &Known, event: &Event) -> bool {
    (current.created_at, std::cmp::Reverse(current.id))
        > (event.created_at, std::cmp::Reverse(event.id))
}

/// The `expires_at` column: a deletion must outlive its own expiry to be remembered, so it stands
/// below zero, where the purge does not look.
fn expires_at(event: &Event) -> Option<i64> {
    let at = event.expires_at()?;
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    Some(if event.kind == kind::DELETION {
        -1 - at
    } else {
        at
    })
}

/// Whether a row with this `expires_at` column has expired.
pub(crate) fn is_expired(expires_at: Option<i64>, now: u64) -> bool {
    let expires_at = expires_at.map(|at| if at < 0 { -1 - at } else { at });
    expires_at.is_some_and(|at| at.unsigned_abs() <= now)
}

#[cfg(test)]
mod tests;
