//! A filter (NIP-01), and the one rule by which it matches, for stored and live events alike.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, ser::SerializeMap};

use crate::{
    event::{Event, FieldName, Tag, read_field},
    hex::{EventId, Pubkey},
};

/// A filter: an event matches when it meets every condition that is present.
///
/// An empty list is a condition that nothing meets, never "no condition".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The event is one of these.
    pub ids: Option<Vec<EventId>>,
    /// The author is one of these.
    pub authors: Option<Vec<Pubkey>>,
    /// The kind is one of these.
    pub kinds: Option<Vec<u16>>,
    /// For each letter: the event has a tag of that name with one of these values.
    pub tags: BTreeMap<u8, Vec<String>>,
    /// `created_at` is this or later.
    pub since: Option<u64>,
    /// `created_at` is this or earlier.
    pub until: Option<u64>,
    /// At most this many stored events, newest first.
    pub limit: Option<u64>,
}

impl Filter {
    /// Whether `event` meets every condition; `limit` is none.
    pub fn matches(&self, event: &Event) -> bool {
        self.matches_head(&event.id, &event.pubkey, event.created_at, event.kind)
            && self.matches_tags(&event.tags)
    }

    /// The conditions on everything but the tags.
    pub fn matches_head(&self, id: &EventId, pubkey: &Pubkey, created_at: u64, kind: u16) -> bool {
        self.since.is_none_or(|since| created_at >= since)
            && self.until.is_none_or(|until| created_at <= until)
            && self
                .kinds
                .as_ref()
                .is_none_or(|kinds| kinds.contains(&kind))
            && self
                .authors
                .as_ref()
                .is_none_or(|authors| authors.contains(pubkey))
            && self.ids.as_ref().is_none_or(|ids| ids.contains(id))
    }

    fn matches_tags(&self, tags: &[Tag]) -> bool {
        self.tags.iter().all(|(letter, values)| {
            tags.iter()
                .filter_map(Tag::indexed)
                .any(|(name, value)| name == *letter && values.iter().any(|wanted| wanted == value))
        })
    }

    /// True where no event can match: an empty list, or `since` after `until`.
    pub fn is_void(&self) -> bool {
        let empty = |list: Option<usize>| list == Some(0);
        empty(self.ids.as_ref().map(Vec::len))
            || empty(self.authors.as_ref().map(Vec::len))
            || empty(self.kinds.as_ref().map(Vec::len))
            || self.tags.values().any(Vec::is_empty)
            || matches!((self.since, self.until), (Some(since), Some(until)) if since > until)
    }
}

/// How the text of an unknown condition's error starts; a refusal by NIP-01's own example.
pub(crate) const UNKNOWN_ELEMENT: &str = "unsupported: filter contains unknown element ";

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FilterVisitor)
    }
}

struct FilterVisitor;

impl<'de> serde::de::Visitor<'de> for FilterVisitor {
    type Value = Filter;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a filter object")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Filter, A::Error> {
        use serde::de::Error;
        let mut filter = Filter::default();
        while let Some(key) = map.next_key::<FieldName>()? {
            match &*key {
                "ids" => read_field(&mut map, "ids", &mut filter.ids)?,
                "authors" => read_field(&mut map, "authors", &mut filter.authors)?,
                "kinds" => read_field(&mut map, "kinds", &mut filter.kinds)?,
                "since" => read_field(&mut map, "since", &mut filter.since)?,
                "until" => read_field(&mut map, "until", &mut filter.until)?,
                "limit" => read_field(&mut map, "limit", &mut filter.limit)?,
                name => match name.as_bytes() {
                    [b'#', letter] if letter.is_ascii_alphabetic() => {
                        let values = map.next_value();
                        let values =
                            values.map_err(|e| A::Error::custom(format!("{name}: {e}")))?;
                        if filter.tags.insert(*letter, values).is_some() {
                            return Err(A::Error::custom(format!("duplicate field `{name}`")));
                        }
                    }
                    _ => {
                        return Err(A::Error::custom(format!("{UNKNOWN_ELEMENT}`{name}`")));
                    }
                },
            }
        }
        Ok(filter)
    }
}

impl Serialize for Filter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(ids) = &self.ids {
            map.serialize_entry("ids", ids)?;
        }
        if let Some(authors) = &self.authors {
            map.serialize_entry("authors", authors)?;
        }
        if let Some(kinds) = &self.kinds {
            map.serialize_entry("kinds", kinds)?;
        }
        for (letter, values) in &self.tags {
            map.serialize_entry(&format!("#{}", char::from(*letter)), values)?;
        }
        if let Some(since) = self.since {
            map.serialize_entry("since", &since)?;
        }
        if let Some(until) = self.until {
            map.serialize_entry("until", &until)?;
        }
        if let Some(limit) = self.limit {
            map.serialize_entry("limit", &limit)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
