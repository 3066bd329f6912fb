use super::*;
use crate::{Sig, Tag};

fn event(kind: u16, created_at: u64, tags: Vec<Tag>) -> Event {
    Event {
        id: EventId([1; 32]),
        pubkey: Pubkey([2; 32]),
        created_at,
        kind,
        tags,
        content: String::new(),
        sig: Sig([0; 64]),
    }
}

fn filter(json: &str) -> Filter {
    serde_json::from_str(json).expect("a filter")
}

#[test]
fn since_and_until_are_inclusive() {
    let event = event(1, 10, vec![]);
    for (json, matches) in [
        (r#"{"since":10}"#, true),
        (r#"{"since":11}"#, false),
        (r#"{"until":10}"#, true),
        (r#"{"until":9}"#, false),
        ("{}", true),
    ] {
        assert_eq!(filter(json).matches(&event), matches, "{json}");
    }
}

#[test]
fn conditions_are_joined_by_and_and_their_values_by_or() {
    let event = event(
        1,
        10,
        vec![Tag::new(["h", "b"]), Tag::new(["t", "x"]), Tag::new(["T"])],
    );
    for (json, matches) in [
        (r##"{"kinds":[2,1],"#h":["a","b","c"]}"##, true),
        (r##"{"kinds":[2],"#h":["b"]}"##, false),
        (r##"{"#h":["b"],"#t":["y"]}"##, false),
        (r##"{"#H":["b"]}"##, false),
        (r##"{"#T":[""]}"##, false),
        (r#"{"ids":[]}"#, false),
        (r#"{"kinds":[]}"#, false),
        (r##"{"#h":[]}"##, false),
    ] {
        assert_eq!(filter(json).matches(&event), matches, "{json}");
    }
}

#[test]
fn empty_lists_and_crossed_times_are_void() {
    for json in [
        r#"{"ids":[]}"#,
        r#"{"authors":[]}"#,
        r#"{"kinds":[]}"#,
        r##"{"#e":[]}"##,
        r#"{"since":2,"until":1}"#,
    ] {
        assert!(filter(json).is_void(), "{json}");
    }
    assert!(!filter(r#"{"since":1,"until":1}"#).is_void());
}

#[test]
fn a_filter_is_written_as_it_is_read() {
    let json = r##"{"kinds":[1,2],"#e":["x"],"since":1,"until":2,"limit":3}"##;
    assert_eq!(serde_json::to_string(&filter(json)).expect("json"), json);
}

#[test]
fn errors_name_the_field() {
    for (json, part) in [
        (r#"{"kinds":[1.5]}"#, "kinds: "),
        (r#"{"kinds":[65536]}"#, "kinds: "),
        (r#"{"ids":["AB"]}"#, "ids: "),
        (r#"{"since":-1}"#, "since: "),
        (r#"{"limit":"5"}"#, "limit: "),
        (r##"{"#e":[1]}"##, "#e: "),
        (r#"{"search":"x"}"#, "unknown element `search`"),
        (r##"{"#ab":["x"]}"##, "unknown element `#ab`"),
        (r#"{"limit":1,"limit":2}"#, "duplicate field `limit`"),
        (r##"{"#e":[],"#e":[]}"##, "duplicate field `#e`"),
    ] {
        let error = serde_json::from_str::<Filter>(json)
            .expect_err(json)
            .to_string();
        assert!(error.contains(part), "{json}: {error}");
    }
}
