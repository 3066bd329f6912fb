//! Whether a stored event matches a filter, read from its canonical JSON without parsing it. Live
//! events use [`Filter::matches`]; a property test compares the two.

use std::collections::HashSet;

use buzz_protocol::{
    Filter, Pubkey,
    event::{json_layout, push_quoted},
};
use memchr::memmem::{Finder, find_iter};

use super::position;

/// A filter, made ready to check many events.
pub(crate) struct Check<'f> {
    filter: &'f Filter,
    /// Sorted, so that hundreds of them are searched fast.
    authors: Option<Vec<Pubkey>>,
    tags: Vec<TagCheck>,
}

impl<'f> Check<'f> {
    pub(crate) fn new(filter: &'f Filter) -> Self {
        let authors = filter.authors.clone().map(|mut authors| {
            authors.sort_unstable();
            authors
        });
        let tags = filter.tags.iter();
        Self {
            filter,
            authors,
            tags: tags
                .map(|(letter, values)| TagCheck::new(*letter, values))
                .collect(),
        }
    }

    /// Whether the event at `position` with this canonical JSON matches.
    pub(crate) fn matches(&self, position: i64, json: &[u8]) -> bool {
        self.matches_head(position, json).unwrap_or(false)
            && self.tags.iter().all(|tag| tag.matches(json))
    }

    fn matches_head(&self, position: i64, json: &[u8]) -> Option<bool> {
        let created_at = position::created_at(position);
        if self.filter.since.is_some_and(|since| created_at < since)
            || self.filter.until.is_some_and(|until| created_at > until)
        {
            return Some(false);
        }
        if let Some(authors) = &self.authors
            && authors.binary_search(&json_layout::pubkey(json)?).is_err()
        {
            return Some(false);
        }
        if let Some(kinds) = &self.filter.kinds
            && !kinds.contains(&json_layout::created_at_and_kind(json)?.1)
        {
            return Some(false);
        }
        match &self.filter.ids {
            Some(ids) => Some(ids.contains(&json_layout::id(json)?)),
            None => Some(true),
        }
    }
}

/// One letter's condition.
///
/// It searches the whole text for `["e","value"`, which only a tag can hold: inside a string every
/// quote follows a backslash, so `["` can neither stand in a content nor in a tag's value; and
/// where a string ends in `[`, a comma or bracket follows its quote, not a letter.
enum TagCheck {
    /// Few values: each is searched for.
    Few(Vec<Finder<'static>>),
    /// Many values: each tag of the letter is looked up among them, quotes included.
    Many {
        prefix: [u8; 5],
        values: HashSet<String>,
    },
}

const FEW: usize = 4;

impl TagCheck {
    fn new(letter: u8, values: &[String]) -> Self {
        let prefix = [b'[', b'"', letter, b'"', b','];
        if values.len() <= FEW {
            let needles = values.iter().map(|value| {
                let mut needle = String::from_utf8_lossy(&prefix).into_owned();
                push_quoted(&mut needle, value);
                Finder::new(needle.as_bytes()).into_owned()
            });
            return Self::Few(needles.collect());
        }
        let values = values.iter().map(|value| {
            let mut quoted = String::with_capacity(value.len() + 2);
            push_quoted(&mut quoted, value);
            quoted
        });
        Self::Many {
            prefix,
            values: values.collect(),
        }
    }

    fn matches(&self, json: &[u8]) -> bool {
        match self {
            // The closing quote is part of the needle, so nothing longer matches.
            Self::Few(needles) => needles.iter().any(|needle| needle.find(json).is_some()),
            Self::Many { prefix, values } => find_iter(json, prefix).any(|at| {
                let value = quoted(&json[at + prefix.len()..]);
                value.is_some_and(|value| values.contains(value))
            }),
        }
    }
}

/// The JSON string that `text` begins with, quotes included.
fn quoted(text: &[u8]) -> Option<&str> {
    let mut escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })?;
    std::str::from_utf8(&text[..end + 2]).ok()
}

#[cfg(test)]
mod tests;
