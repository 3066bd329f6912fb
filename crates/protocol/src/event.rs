//! An event: its id, signature and canonical JSON (NIP-01), and what its tags mean.

use std::{fmt, ops::Deref};

use secp256k1::{Keypair, XOnlyPublicKey, schnorr};
use serde::{Deserialize, Deserializer, Serialize, de};
use sha2::{Digest, Sha256};

use crate::{
    hex::{EventId, Pubkey, Sig, push_hex},
    kind::{self, Class},
};

/// One tag: a name and its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tag(pub Vec<String>);

impl Tag {
    /// A tag from its parts.
    pub fn new<S: Into<String>>(parts: impl IntoIterator<Item = S>) -> Self {
        Self(parts.into_iter().map(Into::into).collect())
    }

    /// The first element; empty where the tag is empty.
    pub fn name(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// The second element; empty where there is none.
    pub fn value(&self) -> &str {
        self.0.get(1).map_or("", String::as_str)
    }

    /// The letter and value that filters can ask for: single-letter names with a value (NIP-01).
    pub fn indexed(&self) -> Option<(u8, &str)> {
        match (self.name().as_bytes(), self.0.get(1)) {
            ([letter], Some(value)) if letter.is_ascii_alphabetic() => Some((*letter, value)),
            _ => None,
        }
    }
}

/// A signed event, as it came: whether id and signature are right is [`Event::verify`]'s answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The claimed id.
    pub id: EventId,
    /// The author.
    pub pubkey: Pubkey,
    /// Seconds since the Unix epoch, by the author's clock.
    pub created_at: u64,
    /// The kind, 0 to 65535.
    pub kind: u16,
    /// The tags, in the author's order.
    pub tags: Vec<Tag>,
    /// The content; what it means depends on the kind.
    pub content: String,
    /// The author's signature of the id.
    pub sig: Sig,
}

/// Why an event is not what it claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The id is not the hash of the event.
    #[error("event id does not match its content")]
    Id,
    /// The public key is not a point of the curve.
    #[error("pubkey is not a valid public key")]
    Pubkey,
    /// The signature is not the author's signature of the id.
    #[error("signature is wrong")]
    Signature,
}

/// The identity under which newer versions replace older ones (NIP-01).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// A replaceable or addressable kind.
    pub kind: u16,
    /// The author.
    pub pubkey: Pubkey,
    /// The `d` tag's value; always empty for replaceable kinds.
    pub d: String,
}

impl Address {
    /// Reads `kind:pubkey:d`, as an `a` tag holds it. `None` where it is no such address.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let kind = parts.next()?.parse().ok()?;
        let pubkey = Pubkey::from_hex(parts.next()?).ok()?;
        let d = parts.next().unwrap_or_default();
        match kind::class(kind) {
            Class::Addressable => Some(Self {
                kind,
                pubkey,
                d: d.to_owned(),
            }),
            Class::Replaceable => Some(Self {
                kind,
                pubkey,
                d: String::new(),
            }),
            Class::Regular | Class::Ephemeral => None,
        }
    }
}

impl Event {
    /// Checks id and signature.
    ///
    /// # Errors
    /// Names the first thing that is wrong.
    pub fn verify(&self) -> Result<(), VerifyError> {
        self.verify_id()?;
        let key =
            XOnlyPublicKey::from_byte_array(self.pubkey.0).map_err(|_| VerifyError::Pubkey)?;
        self.verify_signature(&key)
    }

    /// Checks that the id is the hash of the canonical form.
    ///
    /// NIP-01 wants characters such as U+0001 verbatim; every widespread library writes them as
    /// `\u0001`. An id made either way names this content and no other, so both are right.
    ///
    /// # Errors
    /// [`VerifyError::Id`] when it is neither.
    pub fn verify_id(&self) -> Result<(), VerifyError> {
        let (pubkey, tags) = (&self.pubkey, &self.tags);
        let matches = |escapes| {
            event_id(
                pubkey,
                self.created_at,
                self.kind,
                tags,
                &self.content,
                escapes,
            ) == self.id
        };
        if matches(Escapes::AllControls) || (self.has_rare_controls() && matches(Escapes::Nip01)) {
            Ok(())
        } else {
            Err(VerifyError::Id)
        }
    }

    /// Checks the signature by a key that was parsed before (parsing costs a tenth of checking).
    ///
    /// # Errors
    /// [`VerifyError::Signature`] when it is not `key`'s signature of the id.
    pub fn verify_signature(&self, key: &XOnlyPublicKey) -> Result<(), VerifyError> {
        schnorr::verify(
            &schnorr::Signature::from_byte_array(self.sig.0),
            &self.id.0,
            key,
        )
        .map_err(|_| VerifyError::Signature)
    }

    fn has_rare_controls(&self) -> bool {
        let rare = |text: &str| {
            text.bytes()
                .any(|b| b < 0x20 && !matches!(b, b'\n' | b'\r' | b'\t' | 0x08 | 0x0c))
        };
        rare(&self.content)
            || self
                .tags
                .iter()
                .any(|tag| tag.0.iter().any(|part| rare(part)))
    }

    /// The event as compact JSON, in the field order of NIP-01.
    ///
    /// The layout is fixed (see [`json_layout`]), so that stored text can be read without parsing.
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(400 + self.content.len() + 80 * self.tags.len());
        out.push_str("{\"id\":\"");
        push_hex(&mut out, &self.id.0);
        out.push_str("\",\"pubkey\":\"");
        push_hex(&mut out, &self.pubkey.0);
        out.push_str("\",\"created_at\":");
        push_number(&mut out, self.created_at);
        out.push_str(",\"kind\":");
        push_number(&mut out, self.kind.into());
        out.push_str(",\"tags\":");
        push_tags(&mut out, &self.tags, Escapes::AllControls);
        out.push_str(",\"content\":");
        push_json_string(&mut out, &self.content, Escapes::AllControls);
        out.push_str(",\"sig\":\"");
        push_hex(&mut out, &self.sig.0);
        out.push_str("\"}");
        out
    }

    /// The values of all tags called `name`.
    pub fn tag_values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.tags
            .iter()
            .filter(move |tag| tag.name() == name && tag.0.len() > 1)
            .map(Tag::value)
    }

    /// The second from which the event no longer exists (NIP-40), where it names one.
    pub fn expires_at(&self) -> Option<u64> {
        self.tag_values("expiration")
            .find_map(|value| value.parse().ok())
    }

    /// True from the second that the `expiration` tag names (NIP-40).
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// True where only its author may publish it (NIP-70: a `["-"]` tag).
    pub fn is_protected(&self) -> bool {
        self.tags.iter().any(|tag| tag.name() == "-")
    }

    /// The address under which this event replaces older ones; `None` for kinds that don't.
    pub fn address(&self) -> Option<Address> {
        let d = match kind::class(self.kind) {
            Class::Replaceable => "",
            // A missing `d`, `["d"]` and `["d",""]` are one address.
            Class::Addressable => self
                .tags
                .iter()
                .find(|tag| tag.name() == "d")
                .map_or("", Tag::value),
            Class::Regular | Class::Ephemeral => return None,
        };
        Some(Address {
            kind: self.kind,
            pubkey: self.pubkey,
            d: d.to_owned(),
        })
    }
}

/// What an author signs: everything but the key, the id and the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsignedEvent {
    /// Seconds since the Unix epoch.
    pub created_at: u64,
    /// The kind, 0 to 65535.
    pub kind: u16,
    /// The tags.
    pub tags: Vec<Tag>,
    /// The content.
    pub content: String,
}

impl UnsignedEvent {
    /// Signs with `keys`, taking fresh randomness for the signature.
    pub fn sign(self, keys: &Keypair) -> Event {
        let Self {
            created_at,
            kind,
            tags,
            content,
        } = self;
        let pubkey = Pubkey(keys.x_only_public_key().0.to_byte_array());
        let id = event_id(
            &pubkey,
            created_at,
            kind,
            &tags,
            &content,
            Escapes::AllControls,
        );
        let sig = Sig(schnorr::sign(&id.0, keys).to_byte_array());
        Event {
            id,
            pubkey,
            created_at,
            kind,
            tags,
            content,
            sig,
        }
    }
}

/// Which control characters a canonical form writes as `\u00XX`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    /// All below U+0020 that have no short form: what JSON demands and libraries do.
    AllControls,
    /// None of them: the letter of NIP-01.
    Nip01,
}

fn event_id(
    pubkey: &Pubkey,
    created_at: u64,
    kind: u16,
    tags: &[Tag],
    content: &str,
    escapes: Escapes,
) -> EventId {
    let mut text = String::with_capacity(120 + content.len() + 80 * tags.len());
    text.push_str("[0,\"");
    push_hex(&mut text, &pubkey.0);
    text.push_str("\",");
    push_number(&mut text, created_at);
    text.push(',');
    push_number(&mut text, kind.into());
    text.push(',');
    push_tags(&mut text, tags, escapes);
    text.push(',');
    push_json_string(&mut text, content, escapes);
    text.push(']');
    EventId(Sha256::digest(text.as_bytes()).into())
}

fn push_number(out: &mut String, number: u64) {
    // Writing to a String cannot fail.
    let _ = fmt::Write::write_fmt(out, format_args!("{number}"));
}

fn push_tags(out: &mut String, tags: &[Tag], escapes: Escapes) {
    out.push('[');
    for (i, tag) in tags.iter().enumerate() {
        out.push_str(if i == 0 { "[" } else { ",[" });
        for (j, part) in tag.0.iter().enumerate() {
            if j > 0 {
                out.push(',');
            }
            push_json_string(out, part, escapes);
        }
        out.push(']');
    }
    out.push(']');
}

fn push_json_string(out: &mut String, text: &str, escapes: Escapes) {
    out.push('"');
    let mut clean_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0..0x20 if escapes == Escapes::AllControls => "",
            _ => continue,
        };
        out.push_str(&text[clean_from..at]);
        clean_from = at + 1;
        if short.is_empty() {
            let _ = fmt::Write::write_fmt(out, format_args!("\\u{byte:04x}"));
        } else {
            out.push_str(short);
        }
    }
    out.push_str(&text[clean_from..]);
    out.push('"');
}

/// Appends `text` as a JSON string, quotes included.
pub fn push_quoted(out: &mut String, text: &str) {
    push_json_string(out, text, Escapes::AllControls);
}

impl Serialize for Event {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("Event", 7)?;
        out.serialize_field("id", &self.id)?;
        out.serialize_field("pubkey", &self.pubkey)?;
        out.serialize_field("created_at", &self.created_at)?;
        out.serialize_field("kind", &self.kind)?;
        out.serialize_field("tags", &self.tags)?;
        out.serialize_field("content", &self.content)?;
        out.serialize_field("sig", &self.sig)?;
        out.end()
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EventVisitor)
    }
}

/// Written by hand, so that an error says which field is wrong.
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

/// Reads one field's value; an error names the field, and a field that stands twice is one.
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

/// Where the fields of [`Event::to_json`] stand, for readers of stored text.
pub mod json_layout {
    use std::ops::Range;

    use crate::hex::{EventId, Pubkey};

    const ID: Range<usize> = 7..71;
    const PUBKEY: Range<usize> = 83..147;
    const CREATED_AT: usize = 162;

    /// The id's 64 hex digits.
    pub fn id_hex(json: &[u8]) -> Option<&[u8]> {
        json.get(ID)
    }

    /// The author's 64 hex digits.
    pub fn pubkey_hex(json: &[u8]) -> Option<&[u8]> {
        json.get(PUBKEY)
    }

    /// The id.
    pub fn id(json: &[u8]) -> Option<EventId> {
        EventId::from_hex(id_hex(json)?).ok()
    }

    /// The author.
    pub fn pubkey(json: &[u8]) -> Option<Pubkey> {
        Pubkey::from_hex(pubkey_hex(json)?).ok()
    }

    /// The time and the kind.
    pub fn created_at_and_kind(json: &[u8]) -> Option<(u64, u16)> {
        let (created_at, rest) = leading_number(json.get(CREATED_AT..)?)?;
        let (kind, _) = leading_number(rest.strip_prefix(b",\"kind\":")?)?;
        Some((created_at, kind.try_into().ok()?))
    }

    fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
        let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
        let number = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
        Some((number, &text[digits..]))
    }
}

#[cfg(test)]
mod tests;
