//! Counts what each principal spends, and refuses what is over its quota. [`Admission`] is the
//! handle that every connection and the REST side hold. Behind it are as many [`Shard`] actors as
//! there are cores, each with its own principals.
//!
//! docs/admission.md says what is counted and what the client is told.

mod bounded;
mod budgets;
mod guards;
mod log;
mod quota;
mod shard;
mod shared_budget;

#[cfg(test)]
mod tests;

use std::{
    collections::hash_map::RandomState, hash::BuildHasher, net::IpAddr, num::NonZeroU32, sync::Arc,
};

use actix::{Actor, Addr, Arbiter};
use buzz_protocol::Refusal;

use self::shard::{CloseSocket, NoteInvalidSignatures, OpenSocket};
pub use self::{
    bounded::Fingerprint,
    budgets::Budgets,
    guards::GuardSettings,
    quota::{Cost, Principal, Quota, QuotaClass, Quotas, Rates, Verdict},
    shard::{Admit, Admitted, Shard, SignatureChecksPaused},
    shared_budget::{SharedAsk, SharedBudget, SharedVerdicts},
};
use crate::{
    metrics::Metrics,
    reply::{self, Reply},
};

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

    /// The shards, for the health check.
    pub fn shards(&self) -> &[Addr<Shard>] {
        &self.shards
    }

    /// Has a batch of frames decided.
    pub fn admit_frames(
        &self,
        principal: Principal,
        class: QuotaClass,
        costs: Vec<Cost>,
        reply: Reply<Admitted>,
    ) {
        let who = self.fingerprint(&principal);
        self.shard(who).do_send(Admit {
            principal,
            who,
            class,
            costs,
            reply,
        });
    }

    /// Spends one REST call.
    ///
    /// # Errors
    /// The refusal: [`Refusal::Quota`] or [`Refusal::SharedAdmissionUnavailable`].
    pub async fn admit_api_call(
        &self,
        principal: Principal,
        class: QuotaClass,
    ) -> Result<(), Refusal> {
        self.admit_call(principal, class, Cost::ApiCall).await
    }

    /// Spends one message, for an event that comes over REST; ephemeral kinds spend nothing.
    ///
    /// # Errors
    /// As for [`Admission::admit_api_call`].
    pub async fn admit_api_event(
        &self,
        principal: Principal,
        class: QuotaClass,
        kind: u16,
    ) -> Result<(), Refusal> {
        match Cost::event(kind) {
            Cost::StoredEvent => self.admit_call(principal, class, Cost::Message).await,
            _ => Ok(()),
        }
    }

    async fn admit_call(
        &self,
        principal: Principal,
        class: QuotaClass,
        cost: Cost,
    ) -> Result<(), Refusal> {
        let mut quotas = self.quotas.of(class).of(cost);
        if quotas.all(|(_, quota)| quota.is_off()) {
            return Ok(());
        }
        let admitted =
            reply::ask(|reply| self.admit_frames(principal, class, vec![cost], reply)).await;
        let verdict = admitted.verdicts.first().copied();
        verdict.unwrap_or(Verdict::Unavailable).check()
    }

    /// Whether one more socket may be opened from this address.
    ///
    /// # Errors
    /// Whole seconds until it may be tried again.
    pub async fn open_socket(&self, address: IpAddr) -> Result<SocketSlot, NonZeroU32> {
        if self.guards.connections == 0 && self.guards.handshakes.is_off() {
            return Ok(SocketSlot(None));
        }
        let who = self.fingerprint(&Principal::address(address));
        let shard = self.shard(who);
        reply::ask(|reply| shard.do_send(OpenSocket { who, reply })).await
    }

    /// Counts invalid signatures against the address that they came from. Where they are not
    /// counted, `reply` says so by its drop.
    pub fn note_invalid_signatures(
        &self,
        address: IpAddr,
        count: usize,
        reply: Reply<SignatureChecksPaused>,
    ) {
        if self.guards.invalid_signatures.is_off() {
            return;
        }
        let who = self.fingerprint(&Principal::address(address));
        let shard = self.shard(who);
        shard.do_send(NoteInvalidSignatures { who, count, reply });
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

/// A place among the open sockets of an address. Its drop gives the place back.
pub struct SocketSlot(Option<(Addr<Shard>, Fingerprint)>);

impl SocketSlot {
    fn new(shard: Addr<Shard>, who: Fingerprint) -> Self {
        Self(Some((shard, who)))
    }
}

impl Drop for SocketSlot {
    fn drop(&mut self) {
        if let Some((shard, who)) = self.0.take() {
            shard.do_send(CloseSocket { who });
        }
    }
}
