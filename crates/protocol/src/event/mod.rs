//! An event: its id, signature and canonical JSON (NIP-01), and what its tags mean.

mod canonical;
mod read;

use secp256k1::{Keypair, XOnlyPublicKey, schnorr};
use serde::{Deserialize, Serialize};

use self::canonical::{Escapes, event_id};
pub use self::canonical::{json_layout, push_quoted};
pub(crate) use self::read::{FieldName, read_field};
use crate::{
    hex::{EventId, Pubkey, Sig},
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

#[cfg(test)]
mod tests;
