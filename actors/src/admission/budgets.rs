//! The budgets of many principals. Plain data: time is an argument, in milliseconds.

use super::{
    bounded::{Bounded, Fingerprint},
    log::Log,
    quota::{Cost, QuotaClass, Quotas, Verdict},
};

/// Principals forgotten at most for each one that costs: more than can come anew, so that what
/// is idle never piles up.
const EXPIRED_AT_ONCE: usize = 4;

/// What one principal spent.
#[derive(Default)]
struct Budget {
    frames: Log,
    messages: Log,
    /// Few call over REST.
    api_calls: Option<Box<Log>>,
}

impl Budget {
    fn log(&mut self, counter: usize) -> &mut Log {
        match counter {
            0 => &mut self.frames,
            1 => &mut self.messages,
            _ => self.api_calls.get_or_insert_default(),
        }
    }
}

/// See the module.
pub struct Budgets {
    quotas: Quotas,
    budgets: Bounded<Budget>,
    shed: u64,
}

impl Budgets {
    /// For at most so many principals at once; beyond, the one that was silent longest is
    /// forgotten.
    pub fn new(quotas: Quotas, capacity: usize) -> Self {
        // A refusal in whole seconds may close a window up to a second longer than it is.
        let idle_ms = u64::from(quotas.longest_window_ms()) + 1000;
        Self {
            quotas,
            budgets: Bounded::new(capacity, idle_ms),
            shed: 0,
        }
    }

    /// Decides each of `costs` in order. Each is counted by all its counters or by none.
    pub fn spend(
        &mut self,
        who: Fingerprint,
        class: QuotaClass,
        costs: &[Cost],
        now: u64,
    ) -> Vec<Verdict> {
        self.expire(now, EXPIRED_AT_ONCE);
        let rates = self.quotas.of(class);
        let (budget, shed) = self.budgets.seen(who, now);
        self.shed += u64::from(shed);
        let decide = |&cost: &Cost| {
            let mut refused = None;
            for (counter, quota) in rates.of(cost) {
                let log = budget.log(counter);
                let wait = log.wait_ms(quota, now);
                if wait > 0 {
                    refused = refused.max(Some(log.refuse(wait, now)));
                }
            }
            if let Some(retry_in_secs) = refused {
                return Verdict::Exceeded { retry_in_secs };
            }
            for (counter, quota) in rates.of(cost) {
                budget.log(counter).spend(quota, now);
            }
            Verdict::Admitted
        };
        costs.iter().map(decide).collect()
    }

    /// Forgets up to `most` principals that were silent for the longest window.
    pub fn expire(&mut self, now: u64, most: usize) {
        self.budgets.expire(now, most);
    }

    /// How many principals are known.
    pub fn len(&self) -> usize {
        self.budgets.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many were forgotten before their time, since the table was full.
    pub fn shed(&self) -> u64 {
        self.shed
    }
}
