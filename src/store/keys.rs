//! The keys under which an event can be found, besides its position: 64-bit numbers, so that the
//! index is small and compares fast. Two values may share a key, so every event that a key leads to
//! is checked. Keys are on disk: their computation must never change.

use std::hash::Hasher;

use buzz_protocol::{
    Event, EventId, Pubkey,
    event::Address,
    kind::{self, Class},
};
use siphasher::sip::SipHasher13;

// One namespace each, in the uppermost bits: keys that are used together lie together, so that a
// look-up for a deletion that isn't there touches the few pages that hold deletions.
const ID: i64 = 1;
const AUTHOR: i64 = 2;
const KIND: i64 = 3;
const TAG: i64 = 4;
const ADDRESS: i64 = 5;
const DELETED_ID: i64 = 6;
const DELETED_ADDRESS: i64 = 7;

const NAMESPACE_SHIFT: u32 = 60;
const KIND_BITS: u32 = 17;

fn namespaced(namespace: i64, value: u64) -> i64 {
    let mask = (1 << NAMESPACE_SHIFT) - 1;
    // 60 bits: the cast loses nothing.
    (namespace << NAMESPACE_SHIFT) | (value & mask) as i64
}

fn hash(parts: &[&[u8]]) -> u64 {
    // The first digits of pi. Public: colliding values cost their author's readers a check more.
    let mut hasher = SipHasher13::new_with_keys(0x3141_5926_5358_9793, 0x2384_6264_3383_2795);
    for part in parts {
        hasher.write(part);
    }
    hasher.finish()
}

/// The event with this id.
pub(crate) fn id(id: &EventId) -> i64 {
    namespaced(ID, hash(&[&id.0]))
}

/// All events of an author.
pub(crate) fn author(pubkey: &Pubkey) -> i64 {
    author_and(pubkey, 0)
}

/// An author's events of one kind.
pub(crate) fn author_kind(pubkey: &Pubkey, kind: u16) -> i64 {
    author_and(pubkey, u64::from(kind) + 1)
}

/// An author's keys are neighbours: storing an event then mostly touches one page for both.
fn author_and(pubkey: &Pubkey, kind: u64) -> i64 {
    namespaced(AUTHOR, (hash(&[&pubkey.0]) << KIND_BITS) | kind)
}

/// All events of a kind.
pub(crate) fn kind(kind: u16) -> i64 {
    namespaced(KIND, kind.into())
}

/// All events that have a tag of this letter and value.
pub(crate) fn tag(letter: u8, value: &str) -> i64 {
    namespaced(TAG, hash(&[&[letter], value.as_bytes()]))
}

/// The newest version of an address.
pub(crate) fn address(address: &Address) -> i64 {
    match kind::class(address.kind) {
        Class::Replaceable => author_kind(&address.pubkey, address.kind),
        _ => namespaced(ADDRESS, hash_address(address)),
    }
}

/// An author's deletions of an event.
pub(crate) fn deleted_id(author: &Pubkey, id: &EventId) -> i64 {
    namespaced(DELETED_ID, hash(&[&author.0, &id.0]))
}

/// The deletions of an address.
pub(crate) fn deleted_address(address: &Address) -> i64 {
    namespaced(DELETED_ADDRESS, hash_address(address))
}

/// True where the key leads to deletions, of which there may be many for one thing.
pub(crate) fn is_deletion(key: i64) -> bool {
    matches!(key >> NAMESPACE_SHIFT, DELETED_ID | DELETED_ADDRESS)
}

fn hash_address(address: &Address) -> u64 {
    let kind = address.kind.to_be_bytes();
    hash(&[&kind, &address.pubkey.0, address.d.as_bytes()])
}

/// Every key that leads to `event`, each once, in order.
pub(crate) fn of_event(event: &Event, keys: &mut Vec<i64>) {
    keys.clear();
    keys.extend([
        id(&event.id),
        author(&event.pubkey),
        author_kind(&event.pubkey, event.kind),
        kind(event.kind),
    ]);
    let indexed = event.tags.iter().filter_map(buzz_protocol::Tag::indexed);
    keys.extend(indexed.map(|(letter, value)| tag(letter, value)));
    if kind::class(event.kind) == Class::Addressable {
        keys.extend(event.address().as_ref().map(address));
    }
    if event.kind == kind::DELETION {
        keys.extend(deleted_ids(event).map(|id| deleted_id(&event.pubkey, &id)));
        keys.extend(deleted_addresses(event).map(|address| deleted_address(&address)));
    }
    keys.sort_unstable();
    keys.dedup();
}

/// The ids that a deletion names (NIP-09).
pub(crate) fn deleted_ids(event: &Event) -> impl Iterator<Item = EventId> {
    event
        .tag_values("e")
        .filter_map(|id| EventId::from_hex(id).ok())
}

/// The addresses that a deletion names and that are its author's own (NIP-09).
pub(crate) fn deleted_addresses(event: &Event) -> impl Iterator<Item = Address> {
    let addresses = event.tag_values("a").filter_map(Address::parse);
    addresses.filter(|address| address.pubkey == event.pubkey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_they_were_when_the_first_database_was_written() {
        let (id_value, pubkey) = (EventId([1; 32]), Pubkey([2; 32]));
        let address_value = Address {
            kind: 30_000,
            pubkey,
            d: "x".into(),
        };
        let keys = [
            id(&id_value),
            author(&pubkey),
            author_kind(&pubkey, 0),
            author_kind(&pubkey, u16::MAX),
            kind(1),
            tag(b'e', "x"),
            address(&address_value),
            deleted_id(&pubkey, &id_value),
            deleted_address(&address_value),
        ];
        let first = [
            1562714457661538740,
            3259552518285426688,
            3259552518285426689,
            3259552518285492224,
            3458764513820540929,
            4693882618575918191,
            5863406453695807701,
            7070404599387005058,
            8169249462909501653,
        ];
        assert_eq!(keys, first);
    }

    #[test]
    fn a_replaceable_address_is_found_by_author_and_kind() {
        let pubkey = Pubkey([2; 32]);
        let address_value = Address {
            kind: 10_002,
            pubkey,
            d: String::new(),
        };
        assert_eq!(address(&address_value), author_kind(&pubkey, 10_002));
    }
}
