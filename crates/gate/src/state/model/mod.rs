//! Every interleaving of three clients, an operator and a clock around one gate (`stateright`).
//!
//! Messages take time: a grant is on its way before its client has it, and so is the word that a
//! waiter was taken out of the hand-off. A client leaves without a word and is found gone in its
//! turn. `line` is who waits, kept apart from the gate's own queue and hand-off.

use stateright::{Checker, Model, Property};

use super::*;

mod rules;

const CLIENTS: usize = 3;
const FLAGS: [i64; 4] = [0, 1, 2, 3];
const LAST_TICK: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Away,
    Waiting,
    /// Left while it waited; the gate doesn't know.
    Left,
    /// Granted; it doesn't know yet.
    Granted,
    /// Granted, but gone: the grant will come back unused.
    Gone,
    /// Works under a grant. One that is on its way back is not handed over any more; no rule
    /// depends on that.
    Holding,
    /// A holder found it gone or too late; the gate doesn't know yet.
    TurnedDown,
    /// Back from the one attempt that a patient client makes.
    Served,
}
use Client::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Ask {
        client: usize,
        wait: u8,
    },
    Leave(usize),
    GrantArrives(usize),
    /// A holder ends its work and takes the next waiter out of the hand-off.
    HandOver(usize),
    HandedOverArrives,
    TurnedDownArrives(usize),
    Release(usize),
    SetLimit(i64),
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    gate: GateState<usize, u8, VecDeque<(usize, u8)>>,
    clients: [Client; CLIENTS],
    /// Who waits until when, in order of arrival.
    line: Vec<(usize, u8)>,
    /// Messages on their way that tell of waiters who were handed a grant.
    handed_over: usize,
    now: u8,
    changes: u8,
    broken: Option<&'static str>,
}

/// Whom a step took out of the line.
#[derive(Default)]
struct Step {
    granted: Vec<usize>,
    shed: Vec<usize>,
    /// Handed over or turned down.
    taken: Vec<usize>,
}

impl State {
    fn count(&self, states: &[Client]) -> usize {
        self.clients.iter().filter(|c| states.contains(c)).count()
    }

    /// Waiters that were taken out of the hand-off without the gate's knowledge.
    fn unreported(&self) -> usize {
        self.handed_over + self.count(&[TurnedDown])
    }

    fn limit(&self) -> u64 {
        self.gate.limit().map_or(u64::MAX, NonZeroU64::get)
    }

    /// Does `action`. `after` is what a client turns into once it is served.
    fn perform(&mut self, action: Action, after: Client) -> Step {
        let mut step = Step::default();
        let grants: Vec<(usize, Grant)> = match action {
            Action::Ask { client, wait } => {
                self.clients[client] = Waiting;
                self.line.push((client, self.now + wait));
                let granted = self.gate.acquire(client, self.now + wait);
                granted.into_iter().collect()
            }
            Action::Leave(client) => {
                let granted = self.clients[client] == Granted;
                self.clients[client] = if granted { Gone } else { Left };
                vec![]
            }
            Action::GrantArrives(client) => {
                self.clients[client] = Holding;
                vec![]
            }
            Action::HandOver(holder) => {
                if let Some((client, deadline)) = self.gate.handoff.pop_front() {
                    step.taken.push(client);
                    if self.clients[client] == Left || deadline <= self.now {
                        self.clients[client] = TurnedDown;
                    } else {
                        self.clients[client] = Holding;
                        self.clients[holder] = after;
                        self.handed_over += 1;
                    }
                }
                vec![]
            }
            Action::HandedOverArrives => {
                self.handed_over -= 1;
                self.gate.taken();
                vec![]
            }
            Action::TurnedDownArrives(client) => {
                self.clients[client] = Away;
                self.gate.taken();
                vec![]
            }
            Action::Release(client) => {
                self.clients[client] = after;
                self.gate.release(Grant(())).into_iter().collect()
            }
            Action::SetLimit(flag) => self.gate.set_limit(Some(flag)),
            Action::Tick => {
                self.now += 1;
                step.shed = self.gate.expire(self.now);
                vec![]
            }
        };
        step.granted = grants.into_iter().map(|(client, _)| client).collect();
        for &client in &step.granted {
            let gone = self.clients[client] == Left;
            self.clients[client] = if gone { Gone } else { Granted };
        }
        for &client in &step.shed {
            self.clients[client] = Away;
        }
        let Step {
            granted,
            shed,
            taken,
        } = &step;
        self.line.retain(|(client, _)| {
            ![granted, shed, taken]
                .iter()
                .any(|who| who.contains(client))
        });
        step
    }
}

/// A gate and its surroundings.
struct World {
    ceiling: Option<u64>,
    handoff_capacity: usize,
    /// Each client asks once and stays, the limit changes three times and no deadline passes:
    /// every path ends, so that one which ends with somebody unserved shows a starved waiter.
    patient: bool,
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let ceiling = self.ceiling.and_then(NonZeroU64::new);
        vec![State {
            gate: GateState::new(ceiling, VecDeque::new(), self.handoff_capacity),
            clients: [Away; CLIENTS],
            line: vec![],
            handed_over: 0,
            now: 0,
            changes: if self.patient { 3 } else { u8::MAX },
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        let waits = if self.patient { 1..=1 } else { 1..=2 };
        for (client, now) in state.clients.into_iter().enumerate() {
            if matches!(now, Waiting | Granted) && !self.patient {
                actions.push(Action::Leave(client));
            }
            match now {
                Away => actions.extend(waits.clone().map(|wait| Action::Ask { client, wait })),
                Granted => actions.push(Action::GrantArrives(client)),
                Gone => actions.push(Action::Release(client)),
                Holding => actions.extend([Action::Release(client), Action::HandOver(client)]),
                TurnedDown => actions.push(Action::TurnedDownArrives(client)),
                Waiting | Left | Served => {}
            }
        }
        if state.handed_over > 0 {
            actions.push(Action::HandedOverArrives);
        }
        if state.changes > 0 {
            actions.extend(FLAGS.map(Action::SetLimit));
        }
        if !self.patient && state.now < LAST_TICK {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if matches!(action, Action::HandOver(_)) && last.gate.handoff.is_empty() {
            return None;
        }
        let mut next = last.clone();
        let step = next.perform(action, if self.patient { Served } else { Away });
        if self.patient && matches!(action, Action::SetLimit(_)) {
            next.changes -= 1;
        }
        next.broken = rules::broken_by(last, action, &next, &step, self.ceiling);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules::properties(self.patient)
    }
}

fn check(ceiling: Option<u64>, handoff_capacity: usize, patient: bool) {
    let world = World {
        ceiling,
        handoff_capacity,
        patient,
    };
    world.checker().spawn_bfs().join().assert_properties();
}

/// Kills every mutant that `tests.rs` lists, except two: a new gate that starts at 1, plain
/// subtraction in `release`.
/// And one that no unit test sees: `expire` that frees a unit for each waiter it sheds.
#[test]
fn every_interleaving_keeps_the_rules_without_a_ceiling() {
    for handoff_capacity in [1, 2] {
        check(None, handoff_capacity, false);
    }
}

/// Kills, beyond those: `set_limit` that ignores the ceiling, a new gate without its ceiling.
#[test]
fn every_interleaving_keeps_the_rules_under_a_ceiling() {
    for handoff_capacity in [1, 2] {
        check(Some(2), handoff_capacity, false);
    }
}

/// Kills: `release` or `set_limit` that doesn't grant; `recall` that loses a waiter.
#[test]
fn no_waiter_starves_however_the_limit_moves() {
    for ceiling in [None, Some(2)] {
        for handoff_capacity in 0..=2 {
            check(ceiling, handoff_capacity, true);
        }
    }
}
