//! An event whose id and signature were checked: the only kind that is stored or passed on.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Deref,
};

use secp256k1::XOnlyPublicKey;

use crate::{Event, Pubkey, event::VerifyError};

/// An event that is what it claims to be, and its canonical JSON, written once for store and wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedEvent {
    event: Event,
    json: String,
}

impl VerifiedEvent {
    /// Checks id and signature.
    ///
    /// # Errors
    /// Names the first thing that is wrong.
    pub fn verify(event: Event) -> Result<Self, VerifyError> {
        Self::verify_with(event, &mut KeyCache::default())
    }

    /// Checks id and signature, keeping the author's parsed key for the next event.
    ///
    /// # Errors
    /// Names the first thing that is wrong.
    pub fn verify_with(event: Event, keys: &mut KeyCache) -> Result<Self, VerifyError> {
        event.verify_id()?;
        event.verify_signature(keys.get(&event.pubkey)?)?;
        let json = event.to_json();
        Ok(Self { event, json })
    }

    /// [`Event::to_json`] of it.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Gives the event back.
    pub fn into_event(self) -> Event {
        self.event
    }
}

impl Deref for VerifiedEvent {
    type Target = Event;
    fn deref(&self) -> &Event {
        &self.event
    }
}

/// Parsed keys of recent authors: parsing one costs a tenth of a signature check.
#[derive(Debug, Default)]
pub struct KeyCache {
    keys: HashMap<Pubkey, XOnlyPublicKey>,
}

impl KeyCache {
    /// Emptied when full: cheaper than an order of use, and refilled within one batch or two.
    const MAX_KEYS: usize = 4096;

    fn get(&mut self, pubkey: &Pubkey) -> Result<&XOnlyPublicKey, VerifyError> {
        if self.keys.len() >= Self::MAX_KEYS && !self.keys.contains_key(pubkey) {
            self.keys.clear();
        }
        match self.keys.entry(*pubkey) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let key = XOnlyPublicKey::from_byte_array(pubkey.0);
                Ok(entry.insert(key.map_err(|_| VerifyError::Pubkey)?))
            }
        }
    }
}
