//! The gate against the plainest thing that could be one: a `Vec`, searched and shifted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::rc::Rc;

use buzz_gate::{GateState, Grant, HandOff};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Acquire { wait: u64 },
    TakeOver,
    ReportTaken,
    Release { nth: usize },
    SetLimit(Option<i64>),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let flag = prop_oneof![
        Just(None),
        (-1..9i64).prop_map(Some),
        any::<i64>().prop_map(Some)
    ];
    prop_oneof![
        8 => (0..20u64).prop_map(|wait| Op::Acquire { wait }),
        2 => Just(Op::TakeOver),
        2 => Just(Op::ReportTaken),
        4 => any::<prop::sample::Index>().prop_map(|nth| Op::Release { nth: nth.index(1 << 16) }),
        1 => flag.prop_map(Op::SetLimit),
        1 => (0..8u64).prop_map(Op::Advance),
    ]
}

/// A hand-off that the test, as a holder, can take from.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<VecDeque<(u32, u64)>>>);

impl HandOff<u32, u64> for Shared {
    fn put(&mut self, waiter: u32, deadline: u64) {
        self.0.borrow_mut().put(waiter, deadline);
    }
    fn take_back(&mut self) -> Option<(u32, u64)> {
        self.0.borrow_mut().take_back()
    }
}

struct Naive {
    ceiling: Option<u64>,
    limit: Option<u64>,
    in_flight: u64,
    /// Who waits until when, longest waiting first.
    waiting: Vec<(u32, u64)>,
    handoff_capacity: usize,
    /// Deadlines of those that were taken over without a report.
    unreported: Vec<u64>,
}

impl Naive {
    fn set_limit(&mut self, flag: Option<i64>) {
        let unlimited = i64::MAX as u64;
        let wanted = flag.filter(|&value| value > 0).map(|value| value as u64);
        let limit = wanted
            .unwrap_or(unlimited)
            .min(self.ceiling.unwrap_or(unlimited));
        self.limit = (wanted.is_some() || self.ceiling.is_some()).then_some(limit);
    }

    fn debt(&self) -> u64 {
        self.in_flight
            .saturating_sub(self.limit.unwrap_or(u64::MAX))
    }

    fn grant(&mut self) -> Vec<u32> {
        let mut granted = vec![];
        while !self.waiting.is_empty() && self.in_flight < self.limit.unwrap_or(u64::MAX) {
            granted.push(self.waiting.remove(0).0);
            self.in_flight += 1;
        }
        granted
    }

    fn expire(&mut self, now: u64) -> Vec<u32> {
        let mut shed = vec![];
        // Whoever was taken over holds up those behind it until that is reported.
        if self.unreported.first().is_some_and(|&at| at > now) {
            return shed;
        }
        while self
            .waiting
            .first()
            .is_some_and(|&(_, deadline)| deadline <= now)
        {
            shed.push(self.waiting.remove(0).0);
        }
        shed
    }

    /// Whom a holder finds in the hand-off.
    fn offered(&self) -> &[(u32, u64)] {
        let places = self.handoff_capacity.saturating_sub(self.unreported.len());
        let places = if self.debt() > 0 { 0 } else { places };
        &self.waiting[..places.min(self.waiting.len())]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Kills every mutant that the unit tests list for the gate, except the one of a foreign grant.
    /// And one that only it sees: `recall` that drops the first of the offered deadlines, not the last.
    #[test]
    fn the_gate_does_what_the_naive_one_does(
        ceiling in prop::option::of(1..6u64),
        handoff_capacity in 0..4usize,
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let handoff = Shared::default();
        let ceiling_units = ceiling.and_then(NonZeroU64::new);
        let mut gate = GateState::new(ceiling_units, handoff.clone(), handoff_capacity);
        let mut naive = Naive {
            ceiling,
            limit: ceiling,
            in_flight: 0,
            waiting: vec![],
            handoff_capacity,
            unreported: vec![],
        };
        let mut held: Vec<Grant> = vec![];
        let mut now = 0;
        for (waiter, op) in (0..).zip(ops) {
            let grants = match op {
                Op::Acquire { wait } => {
                    naive.waiting.push((waiter, now + wait));
                    gate.acquire(waiter, now + wait).into_iter().collect()
                }
                Op::TakeOver => {
                    let taken = handoff.0.borrow_mut().pop_front();
                    prop_assert_eq!(taken, naive.offered().first().copied());
                    if let Some((_, deadline)) = taken {
                        naive.waiting.remove(0);
                        naive.unreported.push(deadline);
                    }
                    vec![]
                }
                Op::ReportTaken if naive.unreported.is_empty() => vec![],
                Op::ReportTaken => {
                    naive.unreported.remove(0);
                    gate.taken();
                    vec![]
                }
                Op::Release { .. } if held.is_empty() => vec![],
                Op::Release { nth } => {
                    naive.in_flight -= 1;
                    let grant = held.swap_remove(nth % held.len());
                    gate.release(grant).into_iter().collect()
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
            let (granted, grants): (Vec<u32>, Vec<Grant>) = grants.into_iter().unzip();
            prop_assert_eq!(granted, naive.grant());
            held.extend(grants);

            prop_assert_eq!(gate.limit().map(NonZeroU64::get), naive.limit);
            prop_assert_eq!(gate.in_flight(), naive.in_flight);
            prop_assert_eq!(gate.in_flight(), held.len() as u64);
            prop_assert_eq!(gate.waiting(), naive.unreported.len() + naive.waiting.len());
            let first = naive.waiting.first().map(|&(_, at)| at);
            prop_assert_eq!(gate.next_deadline(), naive.unreported.first().copied().or(first));
            prop_assert_eq!(gate.debt(), naive.debt());
            let offered: Vec<_> = handoff.0.borrow().iter().copied().collect();
            prop_assert_eq!(offered.as_slice(), naive.offered());
        }
    }
}
