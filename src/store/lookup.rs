//! What a batch must read of the rows that its keys lead to: pure, and shared by all databases.

use std::collections::HashSet;

use buzz_protocol::{Event, Pubkey, event::json_layout};

use super::keys;

/// Deletions of one thing that are read: one is enough, more make up for keys that collide.
const DELETIONS_READ: usize = 4;

/// Shorter rows are taken as they are: reading them costs more than they hold.
const WITHOUT_CONTENT_FROM_BYTES: usize = 2048;

/// The positions to be read of these entries (keys and positions), without those `known`.
pub(super) fn to_read(mut entries: Vec<(i64, i64)>, mut known: HashSet<i64>) -> Vec<i64> {
    // The newest first: it is the newest deletion of an address that counts.
    entries.sort_unstable_by(|a, b| b.cmp(a));
    let mut positions: Vec<i64> = Vec::new();
    for of_key in entries.chunk_by(|a, b| a.0 == b.0) {
        let most = if keys::is_deletion(of_key[0].0) {
            DELETIONS_READ
        } else {
            usize::MAX
        };
        let new = of_key.iter().take(most).map(|entry| entry.1);
        positions.extend(new.filter(|position| known.insert(*position)));
    }
    positions
}

/// What a batch can depend on of a row outside the blocks of its events: nothing where the author
/// is none of the batch's (versions, deletions and their targets have one author), and no content:
/// one deletion can name thousands of large events, its author's own or not.
pub(super) fn without_content(json: &str, authors: &[Pubkey]) -> Option<String> {
    let author = json_layout::pubkey(json.as_bytes())?;
    authors.binary_search(&author).ok()?;
    if json.len() < WITHOUT_CONTENT_FROM_BYTES {
        return Some(json.to_owned());
    }
    let event: Event = serde_json::from_str(json).ok()?;
    Some(
        Event {
            content: String::new(),
            ..event
        }
        .to_json(),
    )
}
