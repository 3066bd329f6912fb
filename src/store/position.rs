//! Where an event stands among all others: one integer that sorts as NIP-01 orders events.
//!
//! `created_at` in the upper 34 bits, the inverted first 29 bits of the id below it: descending
//! positions are newest first, ties lowest id first. Ids that share 29 bits and the second are set
//! side by side, in order, inside a block of 32 positions (the ids that share 24 bits).

use buzz_protocol::{EventId, limits::MAX_CREATED_AT};

/// Bits of the position that come from the id.
const ID_BITS: u32 = 29;

/// Positions of one block. Events beyond that in one block can't be stored; by chance (10,000
/// events in one second) the 33rd has odds far below those of a broken disk.
const BLOCK: i64 = 32;

/// Where an event belongs while nothing else is there.
pub(crate) fn home(created_at: u64, id: &EventId) -> i64 {
    let [a, b, c, d, ..] = id.0;
    let prefix = i64::from(!u32::from_be_bytes([a, b, c, d]) >> (32 - ID_BITS));
    floor(created_at) | prefix
}

/// The first position of the block that `position` is in.
pub(crate) fn block(position: i64) -> i64 {
    position & !(BLOCK - 1)
}

/// The position above those of a block. The very last position is never used, so that there is
/// one above all.
pub(crate) fn end_of(block: i64) -> i64 {
    block.saturating_add(BLOCK)
}

/// The lowest position of a second; [`i64::MAX`] for seconds that the store can't hold.
pub(crate) fn floor(created_at: u64) -> i64 {
    if created_at > MAX_CREATED_AT {
        return i64::MAX;
    }
    // At most 34 bits: neither cast nor shift loses any.
    (created_at as i64) << ID_BITS
}

/// The position above all those of a second.
pub(crate) fn ceiling(created_at: u64) -> i64 {
    floor(created_at.saturating_add(1))
}

/// The second an event at `position` was created.
pub(crate) fn created_at(position: i64) -> u64 {
    position.unsigned_abs() >> ID_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(first: u32) -> EventId {
        let mut id = EventId([7; 32]);
        id.0[..4].copy_from_slice(&first.to_be_bytes());
        id
    }

    #[test]
    fn newer_events_come_first_and_ties_by_lowest_id() {
        let mut events = [
            (10, 5 << 20),
            (11, u32::MAX),
            (10, 4 << 20),
            (9, 0),
            (11, 0),
        ];
        events.sort_by_key(|(at, first)| std::cmp::Reverse(home(*at, &id(*first))));
        let order = [
            (11, 0),
            (11, u32::MAX),
            (10, 4 << 20),
            (10, 5 << 20),
            (9, 0),
        ];
        assert_eq!(events, order);
    }

    #[test]
    fn seconds_do_not_touch_and_the_last_one_fits() {
        for at in [0, 1, MAX_CREATED_AT] {
            for first in [0, u32::MAX] {
                let home = home(at, &id(first));
                assert_eq!(created_at(home), at);
                let block = block(home);
                assert!(block >= floor(at) && end_of(block) <= ceiling(at));
                assert!((block..=end_of(block)).contains(&home));
            }
        }
        assert_eq!(floor(MAX_CREATED_AT + 1), i64::MAX);
        assert_eq!(ceiling(u64::MAX), i64::MAX);
    }
}
