//! Who signs logins (NIP-42): keys in this process, or something that asks elsewhere.

use std::{future::Future, pin::Pin};

use buzz_protocol::{Event, UnsignedEvent};
use secp256k1::Keypair;

/// Signs events for one author. It may take its time: a login that comes back when its socket is
/// gone is thrown away.
pub trait Signer: Send + Sync + 'static {
    /// Signs `event`.
    ///
    /// # Errors
    /// Why not, for people to read.
    fn sign(
        &self,
        event: UnsignedEvent,
    ) -> Pin<Box<dyn Future<Output = Result<Event, String>> + Send + '_>>;
}

impl Signer for Keypair {
    fn sign(
        &self,
        event: UnsignedEvent,
    ) -> Pin<Box<dyn Future<Output = Result<Event, String>> + Send + '_>> {
        Box::pin(async move { Ok(event.sign(self)) })
    }
}
