use buzz_protocol::{Event, EventId, Sig, Tag};
use proptest::{collection::vec, prelude::*};

use super::*;

fn event(tags: Vec<Tag>, content: &str) -> Event {
    Event {
        id: EventId([1; 32]),
        pubkey: Pubkey([2; 32]),
        created_at: 10,
        kind: 1,
        tags,
        content: content.into(),
        sig: Sig([0; 64]),
    }
}

fn stored_matches(filter: &Filter, event: &Event) -> bool {
    let position = position::home(event.created_at, &event.id);
    Check::new(filter).matches(position, event.to_json().as_bytes())
}

/// `few` values are searched for, more are looked up: both ways must agree.
fn tagged(letter: char, value: &str, more: usize) -> Filter {
    let others = (0..more).map(|i| format!("other{i}"));
    let values = others.chain([value.to_owned()]).collect();
    Filter {
        tags: [(letter as u8, values)].into(),
        ..Filter::default()
    }
}

#[test]
fn content_and_values_cannot_pose_as_a_tag() {
    let tag = r#"["e","x"]"#;
    let hostile = [
        event(vec![], tag),
        event(vec![], r#""]],"tags":[["e","x"]],"content":""#),
        event(vec![], r#"\"]],"tags":[["e","x"]],"content":""#),
        event(vec![Tag::new(["q", tag]), Tag::new([tag, "y"])], ""),
        event(vec![Tag::new(["[", "e", "x"])], "["),
        event(vec![Tag::new(["q", "[", "e", "x"])], ""),
        event(
            vec![
                Tag::new(["ee", "x"]),
                Tag::new(["e"]),
                Tag::new(["e", "y", "x"]),
            ],
            "",
        ),
        event(
            vec![
                Tag::new(["e", "x\""]),
                Tag::new(["e", "x\\"]),
                Tag::new(["e", "xx"]),
            ],
            "",
        ),
        event(vec![Tag::new(["e", "\"x"]), Tag::new(["E", "x"])], ""),
    ];
    for event in hostile {
        for more in [0, 10] {
            let filter = tagged('e', "x", more);
            assert!(!filter.matches(&event), "{event:?}");
            assert!(!stored_matches(&filter, &event), "{more}: {event:?}");
        }
    }
}

#[test]
fn values_that_need_escapes_are_found() {
    for value in [
        "",
        "x",
        "a\"b",
        "\\",
        "\\\"",
        "a,b]",
        "\u{1}\n\u{8}",
        "ñ🍕\u{2028}/",
        "[\"e\",\"x\"]",
    ] {
        let event = event(
            vec![Tag::new(["p", "q"]), Tag::new(["e", value, "more"])],
            "",
        );
        for more in [0, 10] {
            assert!(
                stored_matches(&tagged('e', value, more), &event),
                "{more}: {value:?}"
            );
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    // The characters that JSON gives a meaning to, and the names that filters use.
    vec(
        prop::sample::select(vec!["\"", "\\", "[", "]", ",", "e", "p", "x", "\u{1}", "ñ"]),
        0..6,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn stored_and_live_matching_are_one_rule(
        tags in vec(vec(text(), 0..4), 0..5),
        content in text(),
        (kind, created_at) in (0..3_u16, 0..4_u64),
        values in vec(text(), 0..7),
        letter in prop::sample::select(vec![b'e', b'p', b'x']),
        (since, until) in (prop::option::of(0..4_u64), prop::option::of(0..4_u64)),
        kinds in prop::option::of(vec(0..3_u16, 0..3)),
        authors in prop::option::of(vec(1..4_u8, 0..4)),
        ids in prop::option::of(vec(1..3_u8, 0..3)),
    ) {
        let mut event = event(tags.into_iter().map(Tag).collect(), &content);
        (event.kind, event.created_at) = (kind, created_at);
        let filter = Filter {
            ids: ids.map(|ids| ids.into_iter().map(|byte| EventId([byte; 32])).collect()),
            authors: authors.map(|keys| keys.into_iter().map(|byte| Pubkey([byte; 32])).collect()),
            kinds,
            tags: [(letter, values)].into(),
            since,
            until,
            limit: None,
        };
        prop_assert_eq!(stored_matches(&filter, &event), filter.matches(&event));
        // Most events lack the tag; without it the rest is compared more often.
        let filter = Filter { tags: Default::default(), ..filter };
        prop_assert_eq!(stored_matches(&filter, &event), filter.matches(&event));
    }

    #[test]
    fn a_tag_that_is_there_is_found(value in text(), before in text(), content in text(), more in 0..8_usize) {
        let event = event(vec![Tag::new(["x", &before]), Tag::new(["e", &value])], &content);
        prop_assert!(stored_matches(&tagged('e', &value, more), &event));
    }
}
