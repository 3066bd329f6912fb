//! Filters: read back as written, and matching as a naive reading of NIP-01 does.

use buzz_protocol::{Event, Filter};
use proptest::prelude::*;
use serde_json::Value;

use crate::inputs::{event, filter, filter_near};

/// The rule of NIP-01 on plain JSON, condition by condition.
fn naive_matches(filter: &Value, event: &Value) -> bool {
    let conditions = filter.as_object().expect("a filter object");
    conditions.iter().all(|(name, wanted)| {
        let among = |value: &Value| wanted.as_array().expect("a list").contains(value);
        match name.as_str() {
            "ids" => among(&event["id"]),
            "authors" => among(&event["pubkey"]),
            "kinds" => among(&event["kind"]),
            "since" => event["created_at"].as_u64() >= wanted.as_u64(),
            "until" => event["created_at"].as_u64() <= wanted.as_u64(),
            "limit" => true,
            tag => event["tags"]
                .as_array()
                .expect("tags")
                .iter()
                .any(|of_event| {
                    of_event[0].as_str() == tag.strip_prefix('#')
                        && of_event.get(1).is_some_and(among)
                }),
        }
    })
}

fn agree(filter: &Filter, event: &Event) -> Result<(), TestCaseError> {
    let naive = naive_matches(
        &serde_json::to_value(filter).expect("JSON"),
        &serde_json::to_value(event).expect("JSON"),
    );
    prop_assert_eq!(filter.matches(event), naive);
    if filter.is_void() {
        prop_assert!(!naive, "a void filter matched");
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_filter_is_read_back_as_written(filter in filter()) {
        let json = serde_json::to_string(&filter).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<Filter>(&json).expect(&json), filter);
    }

    #[test]
    fn matching_agrees_with_the_naive_rule(filter in filter(), event in event()) {
        agree(&filter, &event)?;
    }

    #[test]
    fn matching_agrees_with_the_naive_rule_where_most_conditions_meet(
        (event, filter) in event().prop_flat_map(|event| {
            let filter = filter_near(&event);
            (Just(event), filter)
        }),
    ) {
        agree(&filter, &event)?;
    }
}
