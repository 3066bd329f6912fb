//! The gate against the plainest thing that could be one: a `Vec`, searched and shifted.

use std::num::NonZeroU64;

use buzz_gate::{Acquired, Gate, Permit};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Acquire { ticket: u8, wait: u64 },
    GiveUp(u8),
    Release { nth: usize },
    SetLimit(Option<i64>),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let ticket = 0..12u8;
    let flag = prop_oneof![
        Just(None),
        (-1..9i64).prop_map(Some),
        any::<i64>().prop_map(Some)
    ];
    prop_oneof![
        6 => (ticket.clone(), 0..20u64).prop_map(|(ticket, wait)| Op::Acquire { ticket, wait }),
        2 => ticket.prop_map(Op::GiveUp),
        4 => any::<prop::sample::Index>().prop_map(|nth| Op::Release { nth: nth.index(1 << 16) }),
        1 => flag.prop_map(Op::SetLimit),
        1 => (0..8u64).prop_map(Op::Advance),
    ]
}

struct Naive {
    ceiling: Option<u64>,
    limit: Option<u64>,
    in_flight: u64,
    /// Ticket and deadline, longest waiting first.
    waiting: Vec<(u8, u64)>,
}

impl Naive {
    fn remove(&mut self, ticket: u8) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|&(waiting, _)| waiting != ticket);
        self.waiting.len() < before
    }

    fn set_limit(&mut self, flag: Option<i64>) {
        let unlimited = i64::MAX as u64;
        let wanted = flag.filter(|&value| value > 0).map(|value| value as u64);
        let limit = wanted
            .unwrap_or(unlimited)
            .min(self.ceiling.unwrap_or(unlimited));
        self.limit = (wanted.is_some() || self.ceiling.is_some()).then_some(limit);
    }

    fn grant(&mut self) -> Vec<u8> {
        let mut granted = vec![];
        while !self.waiting.is_empty() && self.in_flight < self.limit.unwrap_or(u64::MAX) {
            granted.push(self.waiting.remove(0).0);
            self.in_flight += 1;
        }
        granted
    }

    fn expire(&mut self, now: u64) -> Vec<u8> {
        let mut shed = vec![];
        while self
            .waiting
            .first()
            .is_some_and(|&(_, deadline)| deadline <= now)
        {
            shed.push(self.waiting.remove(0).0);
        }
        shed
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Kills every mutant that the unit tests list for `gate` and `waiters`, except the one of a
    /// foreign permit.
    #[test]
    fn the_gate_does_what_the_naive_one_does(
        ceiling in prop::option::of(1..6u64),
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut gate = Gate::new(ceiling.and_then(NonZeroU64::new));
        let mut naive = Naive { ceiling, limit: ceiling, in_flight: 0, waiting: vec![] };
        let mut held: Vec<Permit> = vec![];
        let mut now = 0;
        for op in ops {
            let grants = match op {
                Op::Acquire { ticket, wait } => {
                    naive.remove(ticket);
                    naive.waiting.push((ticket, now + wait));
                    match gate.acquire(ticket, now + wait) {
                        Acquired::Granted(permit) => vec![(ticket, permit)],
                        Acquired::Waiting => vec![],
                    }
                }
                Op::GiveUp(ticket) => {
                    prop_assert_eq!(gate.give_up(ticket), naive.remove(ticket));
                    vec![]
                }
                Op::Release { .. } if held.is_empty() => vec![],
                Op::Release { nth } => {
                    naive.in_flight -= 1;
                    let permit = held.swap_remove(nth % held.len());
                    gate.release(permit).into_iter().collect()
                }
                Op::SetLimit(flag) => {
                    naive.set_limit(flag);
                    gate.set_limit(flag)
                }
                Op::Advance(ticks) => {
                    now += ticks;
                    prop_assert_eq!(gate.expire(now), naive.expire(now));
                    vec![]
                }
            };
            let (granted, permits): (Vec<u8>, Vec<Permit>) = grants.into_iter().unzip();
            prop_assert_eq!(granted, naive.grant());
            held.extend(permits);

            prop_assert_eq!(gate.limit().map(NonZeroU64::get), naive.limit);
            prop_assert_eq!(gate.in_flight(), naive.in_flight);
            prop_assert_eq!(gate.in_flight(), held.len() as u64);
            prop_assert_eq!(gate.waiting(), naive.waiting.len());
            prop_assert_eq!(gate.next_deadline(), naive.waiting.first().map(|&(_, at)| at));
            let debt = naive.in_flight.saturating_sub(naive.limit.unwrap_or(u64::MAX));
            prop_assert_eq!(gate.debt(), debt);
        }
    }
}
