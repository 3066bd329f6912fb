//! Budgets that several relays share, as a contract. Nothing here knows Redis.

use std::{future::Future, pin::Pin};

use super::quota::{Cost, Principal, QuotaClass, Verdict};

/// Budgets that several relays share. Cheap to call from any thread: it never blocks.
pub trait SharedBudget: Send + Sync + 'static {
    /// Decides every ask, each at once and as a whole, in order. The future ends within a bounded
    /// time whatever happens; where the budgets can't be asked, every verdict is
    /// [`Verdict::Unavailable`].
    fn spend(&self, asks: Vec<SharedAsk>) -> SharedVerdicts;
}

/// The verdicts on each ask, one for each of its costs.
pub type SharedVerdicts = Pin<Box<dyn Future<Output = Vec<Vec<Verdict>>> + Send>>;

/// What one principal wants to spend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAsk {
    /// Who.
    pub principal: Principal,
    /// Whose quotas count.
    pub class: QuotaClass,
    /// What, in order.
    pub costs: Vec<Cost>,
}
