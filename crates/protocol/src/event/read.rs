//! Reads an event from JSON, by hand, so that an error says which field is wrong.

use std::{fmt, ops::Deref};

use serde::{Deserialize, Deserializer, de};

use super::Event;

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EventVisitor)
    }
}

struct EventVisitor;

impl<'de> de::Visitor<'de> for EventVisitor {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event object")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
        let (mut id, mut pubkey, mut created_at) = (None, None, None);
        let (mut kind, mut tags, mut content, mut sig) = (None, None, None, None);
        while let Some(key) = map.next_key::<FieldName>()? {
            match &*key {
                "id" => read_field(&mut map, "id", &mut id)?,
                "pubkey" => read_field(&mut map, "pubkey", &mut pubkey)?,
                "created_at" => read_field(&mut map, "created_at", &mut created_at)?,
                "kind" => read_field(&mut map, "kind", &mut kind)?,
                "tags" => read_field(&mut map, "tags", &mut tags)?,
                "content" => read_field(&mut map, "content", &mut content)?,
                "sig" => read_field(&mut map, "sig", &mut sig)?,
                _ => {
                    map.next_value::<de::IgnoredAny>()?;
                }
            }
        }
        let missing = de::Error::missing_field;
        Ok(Event {
            id: id.ok_or_else(|| missing("id"))?,
            pubkey: pubkey.ok_or_else(|| missing("pubkey"))?,
            created_at: created_at.ok_or_else(|| missing("created_at"))?,
            kind: kind.ok_or_else(|| missing("kind"))?,
            tags: tags.ok_or_else(|| missing("tags"))?,
            content: content.ok_or_else(|| missing("content"))?,
            sig: sig.ok_or_else(|| missing("sig"))?,
        })
    }
}

/// Reads one field's value; an error names the field; a field given twice is an error.
pub(crate) fn read_field<'de, A: de::MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut A,
    name: &'static str,
    slot: &mut Option<T>,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(de::Error::duplicate_field(name));
    }
    let value = map.next_value();
    *slot = Some(value.map_err(|error| de::Error::custom(format_args!("{name}: {error}")))?);
    Ok(())
}

/// An object key, borrowed from the input unless it holds escapes.
pub(crate) struct FieldName<'a>(std::borrow::Cow<'a, str>);

impl Deref for FieldName<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for FieldName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> de::Visitor<'de> for KeyVisitor {
            type Value = FieldName<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(FieldName(text.into()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(FieldName(text.to_owned().into()))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}
