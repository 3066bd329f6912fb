//! Finds the subscriptions that an event matches without asking each of them: every filter stands
//! under the values of its narrowest condition, an event is looked up under all of its own.
//!
//! Plain data. Values are kept as 64-bit hashes; a collision only costs one more check, since
//! every candidate is asked by [`Filter::matches`].

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
};

use buzz_protocol::{Event, Filter, Tag};
use slab::Slab;

/// Subscriptions under the values they ask for; `S` says whose they are.
pub struct Index<S> {
    entries: Slab<Entry<S>>,
    under: HashMap<u64, Vec<usize>>,
    hasher: RandomState,
    /// Counts the events looked up, so that an entry found under two values is asked once.
    round: u64,
}

struct Entry<S> {
    subscriber: S,
    filters: Vec<Filter>,
    seen: u64,
}

/// What a filter can stand under. The order of the variants is no preference.
#[derive(Hash)]
enum Value<'a> {
    Id([u8; 32]),
    Tag(u8, &'a str),
    Author([u8; 32]),
    Kind(u16),
    Any,
}

impl<S> Default for Index<S> {
    fn default() -> Self {
        let (entries, under) = (Slab::new(), HashMap::new());
        Self {
            entries,
            under,
            hasher: RandomState::new(),
            round: 0,
        }
    }
}

impl<S> Index<S> {
    /// Adds a subscription; the number is for [`Index::remove`].
    pub fn insert(&mut self, subscriber: S, filters: Vec<Filter>) -> usize {
        let keys = self.keys_of(&filters);
        let entry = self.entries.insert(Entry {
            subscriber,
            filters,
            seen: 0,
        });
        for key in keys {
            self.under.entry(key).or_default().push(entry);
        }
        entry
    }

    /// Removes a subscription. A number that stands for none is ignored.
    pub fn remove(&mut self, entry: usize) {
        let Some(Entry { filters, .. }) = self.entries.try_remove(entry) else {
            return;
        };
        for key in self.keys_of(&filters) {
            if let Some(entries) = self.under.get_mut(&key) {
                entries.retain(|other| *other != entry);
                if entries.is_empty() {
                    self.under.remove(&key);
                }
            }
        }
    }

    /// Calls `found` once for each subscription that `event` matches.
    pub fn for_each_match(&mut self, event: &Event, mut found: impl FnMut(&S)) {
        self.round += 1;
        let tags = event.tags.iter().filter_map(Tag::indexed);
        let values = tags
            .map(|(letter, value)| Value::Tag(letter, value))
            .chain([
                Value::Id(event.id.0),
                Value::Author(event.pubkey.0),
                Value::Kind(event.kind),
                Value::Any,
            ]);
        for value in values {
            let Some(candidates) = self.under.get(&hash(&self.hasher, &value)) else {
                continue;
            };
            for candidate in candidates {
                let entry = &mut self.entries[*candidate];
                if entry.seen != self.round {
                    entry.seen = self.round;
                    if entry.filters.iter().any(|filter| filter.matches(event)) {
                        found(&entry.subscriber);
                    }
                }
            }
        }
    }

    /// The keys that `filters` stand under, each once.
    fn keys_of(&self, filters: &[Filter]) -> Vec<u64> {
        let mut keys = Vec::new();
        for filter in filters.iter().filter(|filter| !filter.is_void()) {
            let narrowest_tag = filter.tags.iter().min_by_key(|(_, values)| values.len());
            let mut push = |value: Value<'_>| keys.push(hash(&self.hasher, &value));
            if let Some(ids) = &filter.ids {
                ids.iter().for_each(|id| push(Value::Id(id.0)));
            } else if let Some((letter, values)) = narrowest_tag {
                values
                    .iter()
                    .for_each(|value| push(Value::Tag(*letter, value)));
            } else if let Some(authors) = &filter.authors {
                authors
                    .iter()
                    .for_each(|author| push(Value::Author(author.0)));
            } else if let Some(kinds) = &filter.kinds {
                kinds.iter().for_each(|kind| push(Value::Kind(*kind)));
            } else {
                push(Value::Any);
            }
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

fn hash(hasher: &RandomState, value: &impl Hash) -> u64 {
    hasher.hash_one(value)
}

#[cfg(test)]
mod tests;
