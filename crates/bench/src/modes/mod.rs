//! One load, one file.

pub(crate) mod auth_storm;
pub(crate) mod fanout;
pub(crate) mod generate;
pub(crate) mod idle;
pub(crate) mod ingest;
pub(crate) mod query;
pub(crate) mod switch;

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use buzz_protocol::EventId;

/// Event ids are hashes already, so their first bytes are hash enough.
type IdMap<V> = HashMap<EventId, V, BuildHasherDefault<FirstBytes>>;

#[derive(Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_ne_bytes(*first);
        }
    }

    // The length that a slice hashes first.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
