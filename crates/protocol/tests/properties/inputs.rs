//! Generators: texts that are hard to escape, signed events, filters, and damaged real frames.

use std::{collections::BTreeMap, sync::LazyLock};

use buzz_protocol::{Event, EventId, Filter, Pubkey, Tag, UnsignedEvent};
use proptest::{char, collection::vec, option, prelude::*, sample::Index};
use secp256k1::{
    Keypair,
    rand::{SeedableRng, rngs::StdRng},
};
use serde_json::Value;

/// Signed by other software, one JSON object a line: long contact lists, emoji, escapes.
pub(crate) const REAL_EVENTS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/events.jsonl"
));

/// Every frame a client or relay could send about the real events, as text.
static REAL_FRAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut frames = Vec::new();
    for line in REAL_EVENTS.lines() {
        let event: Value = serde_json::from_str(line).expect("a line of JSON");
        let (id, key) = (&event["id"], &event["pubkey"]);
        frames.push(format!("[\"EVENT\",{line}]"));
        frames.push(format!("[\"AUTH\",{line}]"));
        frames.push(format!("[\"EVENT\",\"sub\",{line}]"));
        frames.push(format!("[\"OK\",{id},false,\"invalid: no\"]"));
        frames.push(format!(
            "[\"REQ\",\"sub\",{{\"ids\":[{id}],\"limit\":1}},{{\"authors\":[{key}],\"#e\":[{id}]}}]"
        ));
        frames.push(format!(
            "[\"COUNT\",\"q\",{{\"authors\":[{key}],\"since\":1}}]"
        ));
    }
    frames.push(r#"["CLOSE","sub"]"#.into());
    frames.push(r#"["COUNT","q",{"count":3}]"#.into());
    frames.push(r#"["NOTICE","hello"]"#.into());
    frames
});

/// Text with what JSON writers get wrong: quotes, controls, separators, astral characters.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let hard = prop_oneof![
        Just('"'),
        Just('\\'),
        Just('/'),
        Just('\u{2028}'),
        Just('\u{feff}'),
        Just('\u{7f}'),
        Just('🍕'),
        Just('ñ'),
        char::range('\0', ' '),
        char::any(),
        char::range('a', 'z'),
    ];
    vec(hard, 0..24).prop_map(|chars| chars.into_iter().collect())
}

pub(crate) fn tag() -> impl Strategy<Value = Tag> {
    let name = prop_oneof![
        ("[a-zA-Z]", text()).prop_map(|(name, _)| name),
        Just("-".to_owned()),
        Just("expiration".to_owned()),
        text(),
    ];
    prop_oneof![
        9 => (name, vec(text(), 0..4)).prop_map(|(name, values)| {
            Tag(std::iter::once(name).chain(values).collect())
        }),
        1 => Just(Tag(Vec::new())),
    ]
}

fn keys(seed: u64) -> Keypair {
    Keypair::new(&mut StdRng::seed_from_u64(seed))
}

/// A rightly signed event by one of four authors.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    let created_at = prop_oneof![any::<u64>(), 0u64..50];
    let kind = prop_oneof![any::<u16>(), 0u16..8];
    (created_at, kind, vec(tag(), 0..6), text(), 0u64..4).prop_map(
        |(created_at, kind, tags, content, author)| {
            let unsigned = UnsignedEvent {
                created_at,
                kind,
                tags,
                content,
            };
            unsigned.sign(&keys(author))
        },
    )
}

/// Any filter: also empty lists, `since` after `until`, and authors that exist.
pub(crate) fn filter() -> impl Strategy<Value = Filter> {
    let author = prop_oneof![
        (0u64..4).prop_map(|seed| Pubkey(keys(seed).x_only_public_key().0.to_byte_array())),
        any::<[u8; 32]>().prop_map(Pubkey),
    ];
    let letter = prop_oneof![b'a'..=b'z', b'A'..=b'Z'];
    let kind = prop_oneof![any::<u16>(), 0u16..8];
    let time = || prop_oneof![any::<u64>(), 0u64..50];
    (
        option::of(vec(any::<[u8; 32]>().prop_map(EventId), 0..3)),
        option::of(vec(author, 0..4)),
        option::of(vec(kind, 0..6)),
        prop::collection::btree_map(letter, vec(text(), 0..3), 0..3),
        (option::of(time()), option::of(time()), option::of(time())),
    )
        .prop_map(
            |(ids, authors, kinds, tags, (since, until, limit))| Filter {
                ids,
                authors,
                kinds,
                tags,
                since,
                until,
                limit,
            },
        )
}

/// A filter that shares most of its conditions with `event`, so that both verdicts occur.
pub(crate) fn filter_near(event: &Event) -> impl Strategy<Value = Filter> + use<> {
    let near = Filter {
        ids: Some(vec![event.id]),
        authors: Some(vec![event.pubkey]),
        kinds: Some(vec![event.kind]),
        tags: event
            .tags
            .iter()
            .filter_map(Tag::indexed)
            .map(|(letter, value)| (letter, vec![value.to_owned()]))
            .collect::<BTreeMap<_, _>>(),
        since: Some(event.created_at),
        until: Some(event.created_at),
        limit: None,
    };
    (Just(near), filter(), any::<[bool; 6]>()).prop_map(|(near, other, keep)| Filter {
        ids: if keep[0] { near.ids } else { None },
        authors: if keep[1] { near.authors } else { other.authors },
        kinds: if keep[2] { near.kinds } else { None },
        tags: if keep[3] { near.tags } else { BTreeMap::new() },
        since: if keep[4] { near.since } else { other.since },
        until: if keep[5] { near.until } else { None },
        limit: other.limit,
    })
}

/// A real frame, damaged at a few places: bytes changed, cut out, doubled, or taken from another
/// frame. What is left need not be UTF-8.
pub(crate) fn damaged_frame() -> impl Strategy<Value = Vec<u8>> {
    let frame = || any::<Index>().prop_map(|at| at.get(&REAL_FRAMES).clone().into_bytes());
    let damage = (0u8..6, any::<Index>(), any::<Index>(), any::<u8>(), frame());
    (frame(), vec(damage, 1..4)).prop_map(|(mut bytes, damages)| {
        for (how, from, to, byte, other) in damages {
            if bytes.is_empty() {
                break;
            }
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            let range = from.min(to)..from.max(to).min(from.min(to) + 40);
            match how {
                0 => bytes[from] = byte,
                1 => drop(bytes.drain(range)),
                2 => bytes.truncate(from),
                3 => bytes.extend_from_within(range),
                4 => bytes.insert(from, b"\"\\[]{},:"[usize::from(byte % 8)]),
                _ => {
                    bytes.truncate(from);
                    bytes.extend(&other[to.min(other.len())..]);
                }
            }
        }
        bytes
    })
}
