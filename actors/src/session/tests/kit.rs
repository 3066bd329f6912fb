//! What a simulation is made of: chance from a seed, and events that are signed once for all
//! seeds, since signing is what a run would spend its time on.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use buzz_protocol::{Event, EventId, Filter, Pubkey, Sig, Tag, UnsignedEvent, VerifiedEvent, kind};
use bytes::Buf;
use secp256k1::{Keypair, SecretKey};

/// Seconds since the Unix epoch, in every world.
pub(super) const UNIX: u64 = 1_800_000_000;
pub(super) const CHALLENGE: &str = "challenge";
pub(super) const RELAY_URL: &str = "ws://relay";

/// A signature that is wrong.
pub(super) const FORGED: Sig = Sig([7; 64]);

/// SplitMix64.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// True `percent` times of a hundred.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// An event as a client sends it.
pub(super) struct Sample {
    pub(super) event: Arc<VerifiedEvent>,
    /// The EVENT frame; every tenth has a signature that is [`FORGED`].
    pub(super) frame: String,
}

/// A login as a client sends it.
pub(super) struct SampleLogin {
    pub(super) key: Pubkey,
    pub(super) id: EventId,
    pub(super) frame: String,
}

pub(super) struct Samples {
    pub(super) events: Vec<Sample>,
    pub(super) logins: Vec<SampleLogin>,
    /// Where an event is, by its id in hex.
    pub(super) by_hex: HashMap<String, usize>,
}

const AUTHORS: u8 = 3;
const EVENTS: u64 = 120;
/// The kinds of events: two that are stored, one that is not.
pub(super) const KINDS: [u16; 3] = [1, 9, 20_001];

pub(super) fn samples() -> &'static Samples {
    static SAMPLES: OnceLock<Samples> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let events: Vec<Sample> = (0..EVENTS).map(sample).collect();
        let ids = events.iter().map(|sample| sample.event.id.to_hex());
        Samples {
            by_hex: ids.zip(0..).collect(),
            logins: (0..AUTHORS).map(sample_login).collect(),
            events,
        }
    })
}

fn keys(author: u8) -> Keypair {
    Keypair::from_secret_key(&SecretKey::from_secret_bytes([author + 1; 32]).expect("a key"))
}

fn sample(n: u64) -> Sample {
    let unsigned = UnsignedEvent {
        // Many share a second, so that ties happen.
        created_at: UNIX - 40 + n / 3,
        kind: KINDS[n as usize % KINDS.len()],
        tags: vec![Tag::new(["t", if n % 4 < 2 { "a" } else { "b" }])],
        content: n.to_string(),
    };
    let event = unsigned.sign(&keys(n as u8 % AUTHORS));
    let forged = n % 10 == 9;
    let sent = Event {
        sig: if forged { FORGED } else { event.sig },
        ..event.clone()
    };
    Sample {
        frame: format!("[\"EVENT\",{}]", sent.to_json()),
        event: Arc::new(VerifiedEvent::verify(event).expect("signed")),
    }
}

fn sample_login(author: u8) -> SampleLogin {
    let unsigned = UnsignedEvent {
        created_at: UNIX,
        kind: kind::CLIENT_AUTH,
        tags: vec![
            Tag::new(["relay", RELAY_URL]),
            Tag::new(["challenge", CHALLENGE]),
        ],
        content: String::new(),
    };
    let event = unsigned.sign(&keys(author));
    SampleLogin {
        key: event.pubkey,
        id: event.id,
        frame: format!("[\"AUTH\",{}]", event.to_json()),
    }
}

/// A filter, with and without a limit, that matches some of the samples.
pub(super) fn filter(rng: &mut Rng) -> Filter {
    let mut filter = Filter::default();
    match rng.below(4) {
        0 => filter.kinds = Some(vec![KINDS[rng.below(KINDS.len())]]),
        1 => filter.tags = [(b't', vec!["a".to_owned()])].into(),
        2 => filter.authors = Some(vec![samples().logins[rng.below(AUTHORS.into())].key]),
        _ => {}
    }
    if rng.chance(30) {
        filter.limit = Some(rng.below(6) as u64);
    }
    filter
}

/// The text messages among a server's frames.
pub(super) fn text_frames(mut bytes: &[u8]) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        while bytes.len() >= 2 {
            let opcode = bytes.get_u8() & 0xf;
            let length = match bytes.get_u8() {
                126 => usize::from(bytes.get_u16()),
                127 => bytes.get_u64() as usize,
                short => usize::from(short),
            };
            let (payload, rest) = bytes.split_at(length);
            bytes = rest;
            if opcode == 1 {
                return Some(std::str::from_utf8(payload).expect("UTF-8"));
            }
        }
        None
    })
}
