//! The index against the naive scan. Mutants killed: no `seen` check (a subscription is found
//! twice), `max_by_key` on tags is harmless, an event not looked up under one of its values, a
//! removal that leaves a key behind, empty lists taken for "no condition".

use buzz_protocol::{EventId, Pubkey, Sig};
use proptest::{collection::vec, option, prelude::*};

use super::*;

fn small_filter() -> impl Strategy<Value = Filter> {
    let bytes = |max| 0u8..max;
    (
        option::weighted(0.2, vec(bytes(4), 0..3)),
        option::weighted(0.4, vec(bytes(3), 0..3)),
        option::weighted(0.4, vec(0u16..4, 0..3)),
        option::weighted(0.4, vec("[xyz]", 0..3)),
        option::weighted(0.2, vec("[xyz]", 0..3)),
        option::weighted(0.2, 0u64..10),
    )
        .prop_map(|(ids, authors, kinds, e, h, since)| Filter {
            ids: ids.map(|ids| ids.into_iter().map(|b| EventId([b; 32])).collect()),
            authors: authors.map(|keys| keys.into_iter().map(|b| Pubkey([b; 32])).collect()),
            kinds,
            tags: e
                .map(|v| (b'e', v))
                .into_iter()
                .chain(h.map(|v| (b'h', v)))
                .collect(),
            since,
            ..Filter::default()
        })
}

fn small_event() -> impl Strategy<Value = Event> {
    (
        0u8..4,
        0u8..3,
        0u16..4,
        0u64..10,
        vec(("[eh]", "[xyz]"), 0..4),
    )
        .prop_map(|(id, author, kind, created_at, tags)| Event {
            id: EventId([id; 32]),
            pubkey: Pubkey([author; 32]),
            created_at,
            kind,
            tags: tags
                .into_iter()
                .map(|(name, value)| Tag::new([name, value]))
                .collect(),
            content: String::new(),
            sig: Sig([0; 64]),
        })
}

proptest! {
    #[test]
    fn finds_what_a_scan_of_all_subscriptions_finds(
        subscriptions in vec(vec(small_filter(), 1..4), 0..12),
        removed in vec(any::<prop::sample::Index>(), 0..4),
        events in vec(small_event(), 1..12),
    ) {
        let mut index = Index::default();
        let mut naive: Vec<_> = subscriptions.into_iter().enumerate().collect();
        let entries: Vec<_> = naive.iter().map(|(n, f)| index.insert(*n, f.clone())).collect();
        for pick in removed {
            if !entries.is_empty() {
                let n = pick.index(entries.len());
                naive.retain(|(other, _)| *other != n);
                index.remove(entries[n]);
            }
        }
        for event in events {
            let mut found = Vec::new();
            index.for_each_match(&event, |n| found.push(*n));
            found.sort_unstable();
            let expected: Vec<usize> = naive
                .iter()
                .filter(|(_, filters)| filters.iter().any(|filter| filter.matches(&event)))
                .map(|(n, _)| *n)
                .collect();
            prop_assert_eq!(found, expected);
        }
        for (n, _) in naive {
            index.remove(entries[n]);
        }
        prop_assert!(index.under.is_empty() && index.entries.is_empty());
    }
}
