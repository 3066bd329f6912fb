//! A client and what it must see. Every frame is judged where it is made, in the order in which
//! the client would get it; what is still owed is judged in the end.

use std::collections::{BTreeMap, HashMap, HashSet};

use buzz_protocol::{EventId, Filter, relay_frame::RelayFrame};

use super::{kit::samples, naive::Store};

/// One REQ frame and what came of it.
pub(super) struct Generation {
    filters: Vec<Filter>,
    /// The session has opened a subscription for it.
    served: bool,
    /// The last batch of its history, once that is known.
    committed: Option<u64>,
    /// Samples, in the order they came.
    got: Vec<usize>,
    /// How many had come when EOSE did.
    eose: Option<usize>,
    closed: bool,
    /// The session has no subscription for it any more.
    over: bool,
    /// The client sent a CLOSE, or another REQ of this name.
    given_up: bool,
}

#[derive(Default)]
pub(super) struct Client {
    generations: Vec<Generation>,
    /// By subscription id: its generations, in the order they were sent.
    by_sub: BTreeMap<String, Vec<usize>>,
    /// Frames without their answer. COUNTs have names that no REQ has.
    pub(super) oks_due: HashMap<EventId, usize>,
    pub(super) counts_due: BTreeMap<String, usize>,
    /// Frames that can't be named, and their NOTICEs.
    pub(super) notices_due: usize,
    accepted: HashSet<EventId>,
}

impl Client {
    /// A REQ is sent; the number goes into its filters, so that its subscription is recognized.
    pub(super) fn send_req(&mut self, sub: &str, mut filters: Vec<Filter>) -> Vec<Filter> {
        let number = self.generations.len();
        filters
            .iter_mut()
            .for_each(|filter| filter.since = Some(number as u64));
        self.give_up(sub);
        self.generations.push(Generation {
            filters: filters.clone(),
            served: false,
            committed: None,
            got: Vec::new(),
            eose: None,
            closed: false,
            over: false,
            given_up: false,
        });
        self.by_sub.entry(sub.to_owned()).or_default().push(number);
        filters
    }

    /// A CLOSE is sent.
    pub(super) fn give_up(&mut self, sub: &str) {
        for number in self.by_sub.get(sub).into_iter().flatten() {
            self.generations[*number].given_up = true;
        }
    }

    /// The session opens a subscription for a generation.
    pub(super) fn served(&mut self, filters: &[Filter]) {
        let generation = self.of(filters);
        assert!(!generation.served, "served twice");
        assert!(!generation.closed, "served after CLOSED");
        generation.served = true;
    }

    /// The history of a generation is what was committed up to then.
    pub(super) fn begun(&mut self, filters: &[Filter], committed: u64) {
        self.of(filters).committed = Some(committed);
    }

    /// The session has no subscription for a generation any more.
    pub(super) fn over(&mut self, filters: &[Filter]) {
        self.of(filters).over = true;
    }

    fn of(&mut self, filters: &[Filter]) -> &mut Generation {
        let number = filters[0].since.expect("a number");
        &mut self.generations[number as usize]
    }

    /// Takes a frame. `serving`: it was made while the client's own frames were served, so a CLOSED
    /// refuses one of them.
    pub(super) fn take(&mut self, frame: &str, serving: bool) {
        if frame.starts_with("[\"EVENT\"") {
            return self.take_event(frame);
        }
        match RelayFrame::parse(frame).expect("a frame") {
            RelayFrame::Ok { id, accepted, .. } => {
                settle(&mut self.oks_due, &id);
                if accepted {
                    self.accepted.insert(id);
                }
            }
            RelayFrame::Count { query, .. } => settle_by_name(&mut self.counts_due, &query),
            RelayFrame::Eose { sub } => {
                let generation = self.live(&sub).unwrap_or_else(|| panic!("EOSE for {sub}"));
                assert_eq!(generation.eose, None, "EOSE twice for {sub}");
                generation.eose = Some(generation.got.len());
            }
            RelayFrame::Closed { sub, .. } if self.by_sub.contains_key(&sub) => {
                let generation = if serving {
                    self.unserved(&sub)
                } else {
                    self.live(&sub)
                };
                let generation = generation.unwrap_or_else(|| panic!("CLOSED for {sub}"));
                generation.closed = true;
            }
            RelayFrame::Closed { sub, .. } => settle_by_name(&mut self.counts_due, &sub),
            RelayFrame::Notice { message } => {
                // A refused COUNT has a NOTICE beside its CLOSED.
                if message.starts_with("invalid") || message.starts_with("rate-limited") {
                    self.notices_due = self.notices_due.saturating_sub(1);
                }
            }
            RelayFrame::Auth { .. } => {}
            other => panic!("unexpected: {other:?}"),
        }
    }

    fn take_event(&mut self, frame: &str) {
        let rest = &frame["[\"EVENT\",\"".len()..];
        let (sub, rest) = rest.split_once('"').expect("a subscription");
        let id = &rest[rest.find("\"id\":\"").expect("an id") + 6..][..64];
        let at = samples().by_hex[id];
        let event = &samples().events[at].event;
        let generation = self.live(sub).unwrap_or_else(|| panic!("EVENT for {sub}"));
        assert!(!generation.closed, "EVENT after CLOSED for {sub}");
        assert!(
            generation
                .filters
                .iter()
                .any(|filter| filter.matches(event))
        );
        assert!(!generation.got.contains(&at), "{sub} got an event twice");
        generation.got.push(at);
    }

    /// The generation of that name that is served and not over.
    fn live(&mut self, sub: &str) -> Option<&mut Generation> {
        let numbers = self.by_sub.get(sub)?;
        let live = |number: &&usize| {
            let generation = &self.generations[**number];
            generation.served && !generation.over && !generation.closed
        };
        let number = *numbers.iter().rev().find(live)?;
        Some(&mut self.generations[number])
    }

    fn unserved(&mut self, sub: &str) -> Option<&mut Generation> {
        let numbers = self.by_sub.get(sub)?;
        let unserved = |number: &&usize| {
            let generation = &self.generations[**number];
            !generation.served && !generation.closed
        };
        let number = *numbers.iter().find(unserved)?;
        Some(&mut self.generations[number])
    }

    /// What holds whenever frames are on their way: what came is the beginning of what must come.
    pub(super) fn check(&self, store: &Store) {
        for generation in &self.generations {
            let Some(committed) = generation.committed else {
                continue;
            };
            let (history, live) = generation
                .got
                .split_at(generation.eose.unwrap_or(generation.got.len()));
            let expected = store.history(&generation.filters, committed);
            assert!(
                expected.starts_with(history),
                "history: {history:?} of {expected:?}"
            );
            let expected = store.live(&generation.filters, committed);
            assert!(expected.starts_with(live), "live: {live:?} of {expected:?}");
            if generation.over && !generation.closed {
                assert!(generation.given_up, "a subscription ended without a word");
            }
        }
        for id in &self.accepted {
            // A login is in no store.
            let at = samples().by_hex.get(&id.to_hex());
            assert!(at.is_none_or(|at| store.has(*at)), "OK true and not stored");
        }
    }

    /// What holds when nothing is on its way any more, and the client is still there.
    pub(super) fn check_settled(&self, store: &Store) {
        self.check(store);
        assert!(self.oks_due.is_empty(), "without OK: {:?}", self.oks_due);
        assert!(
            self.counts_due.is_empty(),
            "without answer: {:?}",
            self.counts_due
        );
        assert_eq!(self.notices_due, 0, "frames without NOTICE");
        for generation in &self.generations {
            if generation.over {
                continue;
            }
            let Some(committed) = generation.committed else {
                assert!(generation.closed, "a REQ without an answer");
                continue;
            };
            let eose = generation.eose.expect("a REQ without EOSE or CLOSED");
            let (history, live) = generation.got.split_at(eose);
            assert_eq!(history, store.history(&generation.filters, committed));
            assert_eq!(live, store.live(&generation.filters, committed));
        }
    }
}

fn settle(due: &mut HashMap<EventId, usize>, id: &EventId) {
    let count = due
        .get_mut(id)
        .unwrap_or_else(|| panic!("an OK too many for {id}"));
    *count -= 1;
    if *count == 0 {
        due.remove(id);
    }
}

fn settle_by_name(due: &mut BTreeMap<String, usize>, name: &str) {
    let count = due
        .get_mut(name)
        .unwrap_or_else(|| panic!("an answer too many for {name}"));
    *count -= 1;
    if *count == 0 {
        due.remove(name);
    }
}
