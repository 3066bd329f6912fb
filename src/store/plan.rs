//! Which index entries a filter is answered from: the fewest streams of events that hold all that
//! can match. Pure; every event found is still checked (see `check.rs`).

use std::ops::Range;

use buzz_protocol::{EventId, Filter};

use super::{keys, position};

/// Where a filter's events are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) source: Source,
    /// Positions within `since` and `until`.
    pub(crate) bounds: Range<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nothing can match.
    Nothing,
    /// These events: a known, small number, to be sorted.
    Ids(Vec<i64>),
    /// One stream of events a key, each newest first.
    Keys(Vec<i64>),
    /// All events, newest first.
    Time,
}

/// More pairs of author and kind than this, and one stream an author costs less.
const MAX_PAIRS: usize = 1_000;

/// Plans one filter.
pub(crate) fn plan(filter: &Filter) -> Plan {
    let since = filter.since.map_or(0, position::floor);
    let until = filter.until.map_or(i64::MAX, position::ceiling);
    let mut source = if filter.is_void() {
        Source::Nothing
    } else {
        source(filter)
    };
    if let Source::Ids(keys) | Source::Keys(keys) = &mut source {
        keys.sort_unstable();
        keys.dedup();
    }
    Plan {
        source,
        bounds: since..until,
    }
}

fn source(filter: &Filter) -> Source {
    if let Some(ids) = &filter.ids {
        return Source::Ids(ids.iter().map(|id: &EventId| keys::id(id)).collect());
    }
    // A tag's values are mostly the rarest thing a filter names.
    let fewest = filter.tags.iter().min_by_key(|(_, values)| values.len());
    if let Some((letter, values)) = fewest {
        return Source::Keys(
            values
                .iter()
                .map(|value| keys::tag(*letter, value))
                .collect(),
        );
    }
    match (&filter.authors, &filter.kinds) {
        (Some(authors), Some(kinds)) if authors.len().saturating_mul(kinds.len()) <= MAX_PAIRS => {
            let pairs = authors.iter().flat_map(|author| {
                let kinds = kinds.iter();
                kinds.map(move |kind| keys::author_kind(author, *kind))
            });
            Source::Keys(pairs.collect())
        }
        (Some(authors), _) => Source::Keys(authors.iter().map(keys::author).collect()),
        (None, Some(kinds)) => Source::Keys(kinds.iter().map(|kind| keys::kind(*kind)).collect()),
        (None, None) => Source::Time,
    }
}

#[cfg(test)]
mod tests {
    use buzz_protocol::Pubkey;

    use super::*;

    fn planned(json: &str) -> Plan {
        plan(&serde_json::from_str(json).expect("a filter"))
    }

    #[test]
    fn the_most_selective_condition_drives() {
        let hex = "ab".repeat(32);
        let pubkey = Pubkey([0xab; 32]);
        let mut pairs = vec![keys::author_kind(&pubkey, 1), keys::author_kind(&pubkey, 2)];
        pairs.sort_unstable();
        for (json, source) in [
            (
                format!(r##"{{"ids":["{hex}"],"#e":["x"],"kinds":[1]}}"##),
                Source::Ids(vec![keys::id(&EventId([0xab; 32]))]),
            ),
            (
                format!(r##"{{"#e":["x"],"#p":["y","z"],"authors":["{hex}"]}}"##),
                Source::Keys(vec![keys::tag(b'e', "x")]),
            ),
            (
                format!(r#"{{"authors":["{hex}","{hex}"],"kinds":[1,2]}}"#),
                Source::Keys(pairs),
            ),
            (
                format!(r#"{{"authors":["{hex}"]}}"#),
                Source::Keys(vec![keys::author(&pubkey)]),
            ),
            (r#"{"kinds":[7]}"#.into(), Source::Keys(vec![keys::kind(7)])),
            (r#"{"since":5}"#.into(), Source::Time),
            (r#"{"kinds":[]}"#.into(), Source::Nothing),
            (r#"{"since":5,"until":4}"#.into(), Source::Nothing),
        ] {
            assert_eq!(planned(&json).source, source, "{json}");
        }
    }

    #[test]
    fn many_pairs_are_one_stream_an_author() {
        let filter = Filter {
            authors: Some((0..=255).map(|byte| Pubkey([byte; 32])).collect()),
            kinds: Some((0..4).collect()),
            ..Filter::default()
        };
        assert!(matches!(plan(&filter).source, Source::Keys(keys) if keys.len() == 256));
    }

    #[test]
    fn since_and_until_are_inclusive_bounds() {
        let Range { start, end } = planned(r#"{"since":5,"until":6}"#).bounds;
        assert_eq!((start, end), (position::floor(5), position::floor(7)));
        assert_eq!(planned("{}").bounds, 0..i64::MAX);
        let future = planned(r#"{"since":17179869184}"#).bounds;
        assert!(future.is_empty());
    }
}
