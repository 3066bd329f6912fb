//! Counts what each principal spends, and refuses what is over its quota. The way in is
//! [`Admission`], the handle that every connection and the REST side hold; behind it are as many
//! [`Shard`]s as there are cores, each with its own principals.
//!
//! docs/admission.md says what is counted and what the client is told.

mod bounded;
mod budgets;
mod guards;
mod log;
mod quota;
mod shard;

#[cfg(test)]
mod tests;

use std::{
    collections::hash_map::RandomState, hash::BuildHasher, net::IpAddr, num::NonZeroU32, sync::Arc,
};

use actix::{Actor, Addr, Arbiter};
use buzz_protocol::Refusal;
use tokio::sync::oneshot;

use self::shard::{InvalidSignatures, Knock, Leave};
pub use self::{
    bounded::Fingerprint,
    budgets::Budgets,
    guards::GuardSettings,
    quota::{Party, Principal, Quota, Quotas, Rates, Spend, Verdict},
    shard::{Admit, Reply, Shard},
};
use crate::{connection::Connection, metrics::Metrics, ports::SharedBudget};

/// Principals known at once, over all shards: about 115 MB where each spent a little.
pub const MAX_PRINCIPALS: usize = 1 << 20;

/// What the shards are told at the start.
#[derive(Clone)]
pub struct AdmissionSettings {
    /// Of principals.
    pub quotas: Quotas,
    /// Of addresses; counted by this relay alone.
    pub guards: GuardSettings,
    /// Where the budgets are that several relays share; `None`: this relay counts alone.
    pub shared: Option<Arc<dyn SharedBudget>>,
}

/// The way to the shards. Cheap to clone.
#[derive(Clone)]
pub struct Admission {
    shards: Arc<[Addr<Shard>]>,
    /// Random, so that nobody outside can choose principals that share a fingerprint or a shard.
    hashers: (RandomState, RandomState),
    quotas: Quotas,
    guards: GuardSettings,
}

impl Admission {
    /// Starts so many shards, each on a thread of its own.
    pub fn start(settings: &AdmissionSettings, shards: usize, metrics: &Metrics) -> Self {
        let shards = shards.max(1);
        let start = |_| {
            let (settings, metrics) = (settings.clone(), metrics.clone());
            let capacity = MAX_PRINCIPALS / shards;
            Shard::start_in_arbiter(&Arbiter::new().handle(), move |_| {
                Shard::new(settings, capacity, metrics)
            })
        };
        Self {
            shards: (0..shards).map(start).collect(),
            hashers: (RandomState::new(), RandomState::new()),
            quotas: settings.quotas,
            guards: settings.guards,
        }
    }

    /// The quotas that are enforced.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Whether frames of this party are counted at all.
    pub fn counts_frames(&self, party: Party) -> bool {
        let rates = self.quotas.of(party);
        !rates.frames.is_off() || !rates.messages.is_off()
    }

    /// Has a batch of frames decided; the answer is [`crate::connection::Admitted`].
    pub fn admit_frames(
        &self,
        principal: Principal,
        party: Party,
        spends: Vec<Spend>,
        from: Addr<Connection>,
    ) {
        let reply = Reply::to_connection(from, spends.len());
        self.admit(principal, party, spends, reply);
    }

    /// Spends one REST call.
    ///
    /// # Errors
    /// The refusal: [`Refusal::Quota`] or [`Refusal::SharedAdmissionUnavailable`].
    pub async fn admit_api_call(&self, principal: Principal, party: Party) -> Result<(), Refusal> {
        self.admit_call(principal, party, Spend::ApiCall).await
    }

    /// Spends one message, for an event that comes over REST; ephemeral kinds spend nothing.
    ///
    /// # Errors
    /// As for [`Admission::admit_api_call`].
    pub async fn admit_api_event(
        &self,
        principal: Principal,
        party: Party,
        kind: u16,
    ) -> Result<(), Refusal> {
        match Spend::event(kind) {
            Spend::StoredEvent => self.admit_call(principal, party, Spend::Message).await,
            _ => Ok(()),
        }
    }

    async fn admit_call(
        &self,
        principal: Principal,
        party: Party,
        spend: Spend,
    ) -> Result<(), Refusal> {
        if self
            .quotas
            .of(party)
            .of(spend)
            .all(|(_, quota)| quota.is_off())
        {
            return Ok(());
        }
        let (reply, verdict) = Reply::to_call();
        self.admit(principal, party, vec![spend], reply);
        verdict.await.unwrap_or(Verdict::Unavailable).check()
    }

    fn admit(&self, principal: Principal, party: Party, spends: Vec<Spend>, reply: Reply) {
        let who = self.fingerprint(&principal);
        self.shard(who).do_send(Admit {
            principal,
            who,
            party,
            spends,
            reply,
        });
    }

    /// Whether one more socket may be opened from this address.
    ///
    /// # Errors
    /// Whole seconds until it may be tried again.
    pub async fn enter(&self, address: IpAddr) -> Result<Visit, NonZeroU32> {
        if self.guards.connections == 0 && self.guards.handshakes.is_off() {
            return Ok(Visit(None));
        }
        let who = self.fingerprint(&Principal::address(address));
        let (reply, answer) = oneshot::channel();
        let shard = self.shard(who);
        shard.do_send(Knock { who, reply });
        // Where the shard is gone, nobody comes in unseen.
        answer.await.unwrap_or(Err(NonZeroU32::MIN))
    }

    /// Counts invalid signatures against the address that they came from. Where they are too
    /// many, `from` hears [`crate::connection::Suspect`].
    pub fn note_invalid_signatures(&self, address: IpAddr, count: usize, from: Addr<Connection>) {
        if count == 0 || self.guards.invalid_signatures.is_off() {
            return;
        }
        let who = self.fingerprint(&Principal::address(address));
        self.shard(who)
            .do_send(InvalidSignatures { who, count, from });
    }

    fn fingerprint(&self, principal: &Principal) -> Fingerprint {
        let (first, second) = &self.hashers;
        Fingerprint(first.hash_one(principal), second.hash_one(principal))
    }

    fn shard(&self, who: Fingerprint) -> &Addr<Shard> {
        // Not the bits that the shard's own table uses.
        &self.shards[who.1 as usize % self.shards.len()]
    }
}

/// A place among the open sockets of an address; given back when dropped.
pub struct Visit(Option<(Addr<Shard>, Fingerprint)>);

impl Visit {
    fn new(shard: Addr<Shard>, who: Fingerprint) -> Self {
        Self(Some((shard, who)))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some((shard, who)) = self.0.take() {
            shard.do_send(Leave { who });
        }
    }
}
