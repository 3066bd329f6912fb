//! Remembers which authorizations of REST requests (NIP-98) were used, so that none works twice.
//!
//! Bound: [`MAX_REMEMBERED`] ids, some 40 MiB. Arrives: `FirstUse`, for authorizations whose
//! signature is right. Leaves: nothing. When full: further requests are refused for now, since
//! forgetting one that is still good would let it in again.

use std::collections::{BTreeMap, HashSet};

use actix::{Actor, Context, Handler, Message};
use buzz_protocol::{EventId, Refusal, http_auth::MAX_CLOCK_SKEW_SECS};

use crate::reply::Reply;

/// Ids remembered at once: more than 8,000 requests a second, each for as long as it could be
/// repeated.
pub const MAX_REMEMBERED: usize = 1 << 20;

/// Seconds of `created_at` that are kept in one set, and forgotten with it.
const SPAN_SECS: u64 = 64;

/// Says that an authorization is used.
#[derive(Message)]
#[rtype(result = "()")]
pub struct FirstUse {
    /// Its event.
    pub id: EventId,
    /// When that was made, which the id covers.
    pub created_at: u64,
    /// Takes whether it was good for this one use.
    pub reply: Reply<Result<(), Refusal>>,
}

/// See the module.
pub struct Replay {
    used: Used,
    clock: fn() -> u64,
}

impl Replay {
    /// Remembers up to `max` ids; `clock` gives seconds since the Unix epoch.
    pub fn new(max: usize, clock: fn() -> u64) -> Self {
        let used = Used {
            max,
            ..Used::default()
        };
        Self { used, clock }
    }
}

impl Actor for Replay {
    type Context = Context<Self>;
}

impl Handler<FirstUse> for Replay {
    type Result = ();
    fn handle(&mut self, first: FirstUse, _: &mut Context<Self>) {
        let FirstUse {
            id,
            created_at,
            reply,
        } = first;
        reply.send(self.used.first_use(&id, created_at, (self.clock)()));
    }
}

/// The ids used, in sets by their time. An id has one time, so it can be in one set only.
#[derive(Debug, Default)]
struct Used {
    sets: BTreeMap<u64, HashSet<[u8; 16]>>,
    count: usize,
    max: usize,
    /// The latest time seen: a clock that is set back brings nothing back to life.
    now: u64,
}

impl Used {
    fn first_use(&mut self, id: &EventId, created_at: u64, now: u64) -> Result<(), Refusal> {
        self.now = self.now.max(now);
        self.forget();
        // Checked before too; but a body may have been slow, and a set forgotten meanwhile.
        if self.now > created_at.saturating_add(MAX_CLOCK_SKEW_SECS) {
            let why = "the authorization has expired".to_owned();
            return Err(Refusal::AuthRequired(why));
        }
        let set = created_at / SPAN_SECS;
        // Half of a hash: who finds two events that share it has spent 2^64 tries to be refused.
        let mut half = [0; 16];
        half.copy_from_slice(&id.0[..16]);
        if self.sets.get(&set).is_some_and(|ids| ids.contains(&half)) {
            let why = "this authorization was used before".to_owned();
            return Err(Refusal::AuthRequired(why));
        }
        if self.count >= self.max {
            return Err(Refusal::TooManyRequests);
        }
        self.sets.entry(set).or_default().insert(half);
        self.count += 1;
        Ok(())
    }

    /// Forgets sets of which no authorization is good any more.
    fn forget(&mut self) {
        while let Some(first) = self.sets.first_entry() {
            let last_second = first.key() * SPAN_SECS + SPAN_SECS - 1;
            if last_second.saturating_add(MAX_CLOCK_SKEW_SECS) >= self.now {
                return;
            }
            self.count -= first.remove().len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn id(number: u64) -> EventId {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&number.to_le_bytes());
        EventId(id)
    }

    fn used(max: usize) -> Used {
        Used {
            max,
            ..Used::default()
        }
    }

    /// Mutants: sets forgotten too early, the time not checked here, `>=` for `>`.
    #[test]
    fn no_second_use_is_accepted_at_any_time() {
        for age in 0..=SPAN_SECS {
            let created_at = NOW + age;
            for first in created_at - MAX_CLOCK_SKEW_SECS..=created_at + MAX_CLOCK_SKEW_SECS {
                let mut used = used(10);
                assert_eq!(used.first_use(&id(1), created_at, first), Ok(()));
                for again in first..first + 3 * SPAN_SECS {
                    let verdict = used.first_use(&id(1), created_at, again);
                    assert!(matches!(verdict, Err(Refusal::AuthRequired(_))), "{again}");
                }
            }
        }
    }

    /// Mutant: the clock as it is.
    #[test]
    fn a_clock_that_is_set_back_lets_nothing_in_again() {
        let mut used = used(10);
        assert_eq!(used.first_use(&id(1), NOW, NOW), Ok(()));
        assert_eq!(used.first_use(&id(2), NOW + 300, NOW + 300), Ok(()));
        assert!(used.first_use(&id(1), NOW, NOW).is_err());
    }

    /// Mutants: no bound; the oldest forgotten for a new one; a count that is never lowered.
    #[test]
    fn when_full_it_refuses_for_now_and_forgets_nothing() {
        let mut used = used(2);
        assert_eq!(used.first_use(&id(1), NOW, NOW), Ok(()));
        assert_eq!(used.first_use(&id(2), NOW, NOW), Ok(()));
        assert_eq!(
            used.first_use(&id(3), NOW, NOW),
            Err(Refusal::TooManyRequests)
        );
        assert!(matches!(
            used.first_use(&id(1), NOW, NOW),
            Err(Refusal::AuthRequired(_))
        ));
        let later = NOW + MAX_CLOCK_SKEW_SECS + SPAN_SECS;
        assert_eq!(used.first_use(&id(3), later, later), Ok(()));
        assert_eq!(used.count, 1);
    }
}
