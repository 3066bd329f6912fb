//! Authors and the events they sign.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use buzz_protocol::{Event, Tag, UnsignedEvent};
use secp256k1::{
    Keypair,
    rand::{SeedableRng, rngs::StdRng},
};

use sha2::{Digest, Sha256};

use crate::now;

/// Signed by other software, one JSON object a line.
pub static REAL_EVENTS: LazyLock<Vec<Event>> = LazyLock::new(|| {
    let lines = REAL_LINES.lines();
    lines
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
});

/// The text of [`REAL_EVENTS`].
pub const REAL_LINES: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/events.jsonl"
));

/// Someone with a key.
#[derive(Clone)]
pub struct Author(Keypair);

impl Author {
    /// The same number is the same author.
    pub fn new(number: u64) -> Self {
        Self(Keypair::new(&mut StdRng::seed_from_u64(number)))
    }

    /// The key pair.
    pub fn keys(&self) -> Keypair {
        self.0
    }

    /// The public key, in hex.
    pub fn pubkey(&self) -> String {
        self.note("").sign().pubkey.to_hex()
    }

    /// An event of kind 1, dated now.
    pub fn note(&self, content: &str) -> Draft {
        self.event(1, content)
    }

    /// An event dated now.
    pub fn event(&self, kind: u16, content: &str) -> Draft {
        Draft {
            author: self.clone(),
            event: UnsignedEvent {
                created_at: now(),
                kind,
                tags: Vec::new(),
                content: content.to_owned(),
            },
        }
    }

    /// A request to delete (NIP-09), with one tag for each target.
    pub fn deletion(&self, targets: &[(&str, &str)]) -> Draft {
        let draft = self.event(5, "");
        targets
            .iter()
            .fold(draft, |draft, (name, value)| draft.tag(&[name, value]))
    }

    /// The authorization (NIP-98) of a POST, with a tag of its own.
    pub fn authorization(&self, url: &str, body: &str) -> Draft {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let nonce = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let draft = self.event(27235, "").tag(&["u", url]);
        let draft = draft.tag(&["method", "POST"]).tag(&["nonce", &nonce]);
        match body {
            "" => draft,
            _ => draft.tag(&["payload", &sha256_hex(body)]),
        }
    }

    /// A login (NIP-42) to the relay at `url`.
    pub fn login(&self, challenge: &str, url: &str) -> Draft {
        self.event(22242, "")
            .tag(&["relay", url])
            .tag(&["challenge", challenge])
    }
}

/// The SHA-256 of `text`, in hex.
pub fn sha256_hex(text: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(text).into();
    buzz_protocol::EventId(hash).to_hex()
}

/// An event before it is signed.
#[derive(Clone)]
pub struct Draft {
    author: Author,
    event: UnsignedEvent,
}

impl Draft {
    /// The same, dated `created_at`.
    pub fn at(mut self, created_at: u64) -> Self {
        self.event.created_at = created_at;
        self
    }

    /// The same with one more tag.
    pub fn tag(mut self, parts: &[&str]) -> Self {
        self.event.tags.push(Tag::new(parts.iter().copied()));
        self
    }

    /// The same with another value for its first tag of that name; without it for `None`.
    pub fn retag(mut self, name: &str, value: Option<&str>) -> Self {
        let at = self.event.tags.iter().position(|tag| tag.name() == name);
        let at = at.expect("a tag of that name");
        match value {
            Some(value) => self.event.tags[at] = Tag::new([name, value]),
            None => drop(self.event.tags.remove(at)),
        }
        self
    }

    /// The same with another kind.
    pub fn kind(mut self, kind: u16) -> Self {
        self.event.kind = kind;
        self
    }

    /// The event, signed by its author.
    pub fn sign(self) -> Event {
        self.event.sign(&self.author.0)
    }
}

/// `kind:pubkey:d`, as `a` tags hold it.
pub fn address(event: &Event) -> String {
    let address = event.address().expect("an addressable event");
    format!("{}:{}:{}", address.kind, address.pubkey, address.d)
}

/// What a relay that holds `stored` must send for `filter`: newest first, ties lowest id first.
pub fn brute_force<'a>(
    stored: impl IntoIterator<Item = &'a Event>,
    filter: &serde_json::Value,
) -> Vec<Event> {
    let filter: buzz_protocol::Filter = serde_json::from_value(filter.clone()).expect("a filter");
    let mut found: Vec<Event> = stored
        .into_iter()
        .filter(|event| filter.matches(event))
        .cloned()
        .collect();
    found.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
    let limit = filter.limit.unwrap_or(u64::MAX);
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    found
}

/// The ids of `events`, in hex.
pub fn ids(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.id.to_hex()).collect()
}
