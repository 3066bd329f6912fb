//! The events of a load: event `i` depends on the seed, the number of authors and `i` alone, so
//! that a query run knows what an earlier ingest run stored, without signing anything again.
//! Signatures take no randomness either: sending the set twice sends the same bytes.

use anyhow::{Result, ensure};
use buzz_protocol::{Event, EventId, Pubkey, Sig, Tag, UnsignedEvent, event::push_quoted};
use secp256k1::{Keypair, schnorr};
use sha2::{Digest, Sha256};

use crate::rng::Rng;

/// The first event's second, 2026-10-01: fixed, because ids depend on it.
const START: u64 = 1_790_812_800;
/// Events are this many tenths of a second apart: a million of them span 30 days.
const TENTHS_APART: u64 = 26;
/// Events arrive up to this much out of order, as they do at a relay.
const JITTER_SECS: u64 = 3600;
/// Every fourth event is rounded to such a slot, so that equal times are common.
const TIE_SLOT_SECS: u64 = 600;

/// The kinds of the set, none of them replaceable: every event stays stored.
pub(crate) const KINDS: [u16; 5] = [1, 7, 42, 1111, 9802];

/// `e` tags name one of `E_POOL` ids for each run of `E_BLOCK` events: 12 hits on average, the
/// most frequent about 100.
const E_BLOCK: u64 = 10_000;
const E_POOL: u64 = 800;

const WORDS: [&str; 32] = [
    "relay",
    "the",
    "a",
    "note",
    "morning",
    "coffee",
    "block",
    "key",
    "and",
    "signed",
    "of",
    "zap",
    "mountain",
    "to",
    "river",
    "thread",
    "music",
    "is",
    "reply",
    "garden",
    "\"quoted\"",
    "in",
    "event",
    "client",
    "😀",
    "über",
    "train",
    "light",
    "with",
    "open\n",
    "protocol",
    "for",
];

/// The streams of random numbers, one a purpose.
enum Stream {
    Event = 1,
    ETag = 2,
}

/// The authors and the seed, from which every event follows.
pub(crate) struct DataSet {
    seed: u64,
    keys: Vec<Keypair>,
    /// The public halves of `keys`.
    pub(crate) pubkeys: Vec<Pubkey>,
}

/// What a query run must know about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its id.
    pub(crate) id: EventId,
    /// Its author, as an index.
    pub(crate) author: u32,
    /// Its kind.
    pub(crate) kind: u16,
    /// The value of its `e` tag, as an index for [`DataSet::e_value`].
    pub(crate) e: u32,
}

/// An event ready to be sent.
pub(crate) struct Signed {
    /// Its id.
    pub(crate) id: EventId,
    /// Its JSON.
    pub(crate) json: String,
}

impl DataSet {
    /// Makes the authors' keys.
    ///
    /// # Errors
    /// When there are no authors.
    pub(crate) fn new(seed: u64, authors: u32) -> Result<Self> {
        ensure!(authors > 0, "--authors must be above zero");
        let keys: Vec<_> = (0..authors)
            .map(|author| keypair(&format!("buzz-bench {seed} {author}")))
            .collect::<Result<_>>()?;
        let pubkeys = keys.iter().map(pubkey).collect();
        Ok(Self {
            seed,
            keys,
            pubkeys,
        })
    }

    /// The id, author, kind and `e` of event `i`.
    pub(crate) fn head(&self, i: u64) -> Head {
        let (author, e, event) = self.unsigned(i);
        Head {
            id: event_id(&event, &self.pubkeys[author]),
            author: author as u32,
            kind: event.kind,
            e,
        }
    }

    /// Event `i`, signed.
    pub(crate) fn event(&self, i: u64) -> Signed {
        let (author, _, event) = self.unsigned(i);
        sign(event, &self.keys[author])
    }

    /// A value that `e` tags have.
    pub(crate) fn e_value(&self, e: u32) -> String {
        let mut rng = Rng::new(self.seed, Stream::ETag as u64, e.into());
        let words: [u64; 4] = std::array::from_fn(|_| rng.next());
        words.map(|word| format!("{word:016x}")).concat()
    }

    fn unsigned(&self, i: u64) -> (usize, u32, UnsignedEvent) {
        let mut rng = Rng::new(self.seed, Stream::Event as u64, i);
        let authors = self.pubkeys.len() as u64;
        let author = rng.below(authors) as usize;
        let mut created_at = START + i * TENTHS_APART / 10 + rng.below(JITTER_SECS);
        if rng.below(4) == 0 {
            created_at -= created_at % TIE_SLOT_SECS;
        }
        let kind = match rng.below(100) {
            0..82 => KINDS[0],
            82..92 => KINDS[1],
            92..95 => KINDS[2],
            95..98 => KINDS[3],
            _ => KINDS[4],
        };
        // The product of two even draws makes low indexes frequent and high ones rare.
        let e = i / E_BLOCK * E_POOL + rng.below(E_POOL) * rng.below(E_POOL) / E_POOL;
        let tags = vec![
            Tag::new(["e".to_owned(), self.e_value(e as u32)]),
            Tag::new([
                "p".to_owned(),
                self.pubkeys[rng.below(authors) as usize].to_hex(),
            ]),
            Tag::new(["t".to_owned(), format!("topic{}", rng.below(200))]),
        ];
        let mut content = format!("{i}:");
        let length = 130 + rng.below(140) as usize;
        while content.len() < length {
            content.push(' ');
            content.push_str(rng.pick::<&str>(&WORDS));
        }
        let event = UnsignedEvent {
            created_at,
            kind,
            tags,
            content,
        };
        (author, e as u32, event)
    }
}

/// The key that belongs to a name.
pub(crate) fn keypair(name: &str) -> Result<Keypair> {
    Ok(Keypair::from_secret_bytes(Sha256::digest(name).into())?)
}

/// The public half of a key.
pub(crate) fn pubkey(keys: &Keypair) -> Pubkey {
    Pubkey(keys.x_only_public_key().0.to_byte_array())
}

/// Signs without randomness, unlike [`UnsignedEvent::sign`].
pub(crate) fn sign(event: UnsignedEvent, keys: &Keypair) -> Signed {
    let pubkey = pubkey(keys);
    let id = event_id(&event, &pubkey);
    let event = Event {
        id,
        pubkey,
        created_at: event.created_at,
        kind: event.kind,
        tags: event.tags,
        content: event.content,
        sig: Sig(schnorr::sign_no_aux_rand(&id.0, keys).to_byte_array()),
    };
    Signed {
        id,
        json: event.to_json(),
    }
}

/// The id by NIP-01.
fn event_id(event: &UnsignedEvent, pubkey: &Pubkey) -> EventId {
    let UnsignedEvent {
        created_at, kind, ..
    } = event;
    let mut text = format!("[0,\"{pubkey}\",{created_at},{kind},[");
    for (i, tag) in event.tags.iter().enumerate() {
        text.push_str(if i == 0 { "[" } else { ",[" });
        for (j, part) in tag.0.iter().enumerate() {
            text.push_str(if j == 0 { "" } else { "," });
            push_quoted(&mut text, part);
        }
        text.push(']');
    }
    text.push_str("],");
    push_quoted(&mut text, &event.content);
    text.push(']');
    EventId(Sha256::digest(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn events_are_valid_about_700_bytes_and_the_same_each_time() {
        let data = DataSet::new(1, 50).unwrap();
        let mut bytes = 0;
        for i in 0..200 {
            let signed = data.event(i);
            let event: Event = serde_json::from_str(&signed.json).unwrap();
            event.verify().unwrap();
            let head = data.head(i);
            assert_eq!((head.id, head.kind), (event.id, event.kind));
            assert_eq!(data.pubkeys[head.author as usize], event.pubkey);
            assert_eq!(event.tag_values("e").next().unwrap(), data.e_value(head.e));
            assert_eq!(data.event(i).json, signed.json);
            bytes += signed.json.len();
        }
        assert!((650..750).contains(&(bytes / 200)), "{}", bytes / 200);
    }

    #[test]
    fn another_seed_gives_other_events() {
        let [one, two] = [1, 2].map(|seed| DataSet::new(seed, 5).unwrap().head(7).id);
        assert_ne!(one, two);
    }

    #[test]
    fn an_e_value_has_a_few_to_about_a_hundred_hits() {
        let data = DataSet::new(1, 5).unwrap();
        let mut hits = HashMap::new();
        for i in 0..E_BLOCK {
            *hits.entry(data.unsigned(i).1).or_insert(0) += 1;
        }
        let most = hits.values().max().unwrap();
        assert!((60..160).contains(most), "{most}");
        assert!(hits.len() > 600, "{}", hits.len());
    }
}
