//! Every interleaving of three clients, an operator and a clock around one gate (`stateright`).
//!
//! Messages take time: a grant is on its way before its client has it, and so is the word that a
//! waiting client left. `line` is what the queue must be, kept apart from the gate's own.

use std::hash::{Hash, Hasher};

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
    /// Gave up; the gate doesn't know yet.
    Leaving,
    /// Granted; it doesn't know yet.
    Granted,
    /// Granted, but gone: the permit will come back unused.
    Gone,
    Holding,
    /// Back from the one attempt that a patient client makes.
    Served,
}
use Client::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Ask { client: usize, wait: u8 },
    Leave(usize),
    GiveUpArrives(usize),
    GrantArrives(usize),
    Release(usize),
    SetLimit(i64),
    Tick,
}

#[derive(Clone, Debug)]
struct State {
    gate: Gate<usize, u8>,
    clients: [Client; CLIENTS],
    /// Who waits until when, in order of arrival.
    line: Vec<(usize, u8)>,
    now: u8,
    changes: u8,
    broken: Option<&'static str>,
}

impl State {
    /// All there is to the state: a queue that differs from `line` is a broken rule.
    fn key(&self) -> impl Hash + PartialEq + '_ {
        let gate = (self.gate.limit, self.gate.in_flight);
        let world = (&self.clients, &self.line, self.now, self.changes);
        (gate, world, self.broken)
    }

    fn count(&self, states: &[Client]) -> u64 {
        self.clients.iter().filter(|c| states.contains(c)).count() as u64
    }

    fn limit(&self) -> u64 {
        self.gate.limit().map_or(u64::MAX, NonZeroU64::get)
    }

    /// Does `action`; who was granted and who was shed by it. `after` is what a client turns into
    /// once it is served.
    fn perform(&mut self, action: Action, after: Client) -> (Vec<usize>, Vec<usize>) {
        let mut shed = Vec::new();
        let grants: Vec<(usize, Permit)> = match action {
            Action::Ask { client, wait } => {
                self.clients[client] = Waiting;
                self.line.push((client, self.now + wait));
                match self.gate.acquire(client, self.now + wait) {
                    Acquired::Granted(permit) => vec![(client, permit)],
                    Acquired::Waiting => vec![],
                }
            }
            Action::Leave(client) => {
                let granted = self.clients[client] == Granted;
                self.clients[client] = if granted { Gone } else { Leaving };
                vec![]
            }
            Action::GiveUpArrives(client) => {
                self.gate.give_up(client);
                if self.clients[client] == Leaving {
                    self.clients[client] = Away;
                    self.line.retain(|&(waiting, _)| waiting != client);
                }
                vec![]
            }
            Action::GrantArrives(client) => {
                self.clients[client] = Holding;
                vec![]
            }
            Action::Release(client) => {
                self.clients[client] = after;
                self.gate.release(Permit(())).into_iter().collect()
            }
            Action::SetLimit(flag) => self.gate.set_limit(Some(flag)),
            Action::Tick => {
                self.now += 1;
                shed = self.gate.expire(self.now);
                vec![]
            }
        };
        let granted: Vec<usize> = grants.into_iter().map(|(client, _)| client).collect();
        for &client in &granted {
            let gone = self.clients[client] == Leaving;
            self.clients[client] = if gone { Gone } else { Granted };
        }
        for &client in &shed {
            self.clients[client] = Away;
        }
        self.line
            .retain(|(client, _)| !granted.contains(client) && !shed.contains(client));
        (granted, shed)
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// A gate and its surroundings.
struct World {
    ceiling: Option<u64>,
    /// Each client asks once and stays, the limit changes three times and no deadline passes:
    /// every path ends, so that one which ends with somebody unserved shows a starved waiter.
    patient: bool,
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            gate: Gate::new(self.ceiling.and_then(NonZeroU64::new)),
            clients: [Away; CLIENTS],
            line: vec![],
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
            match now {
                Away => actions.extend(waits.clone().map(|wait| Action::Ask { client, wait })),
                Waiting if !self.patient => actions.push(Action::Leave(client)),
                Granted if !self.patient => {
                    actions.extend([Action::Leave(client), Action::GrantArrives(client)]);
                }
                Leaving => actions.push(Action::GiveUpArrives(client)),
                Granted => actions.push(Action::GrantArrives(client)),
                Gone => actions.extend([Action::GiveUpArrives(client), Action::Release(client)]),
                Holding => actions.push(Action::Release(client)),
                Waiting | Served => {}
            }
        }
        if state.changes > 0 {
            actions.extend(FLAGS.map(Action::SetLimit));
        }
        if !self.patient && state.now < LAST_TICK {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        let (granted, shed) = next.perform(action, if self.patient { Served } else { Away });
        if self.patient && matches!(action, Action::SetLimit(_)) {
            next.changes -= 1;
        }
        next.broken = rules::broken_by(last, action, &next, &granted, &shed, self.ceiling);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules::properties(self.patient)
    }
}

fn check(ceiling: Option<u64>, patient: bool) {
    let world = World { ceiling, patient };
    world.checker().spawn_bfs().join().assert_properties();
}

/// Kills every mutant that `tests.rs` lists, except four: a new gate that starts at 1, `give_up`
/// that answers `true` to everyone, `push` without its `remove`, plain subtraction in `release`.
/// And one that no unit test sees: `expire` that frees a unit for each ticket it sheds.
#[test]
fn every_interleaving_keeps_the_rules_without_a_ceiling() {
    check(None, false);
}

/// Kills, beyond those: `set_limit` that ignores the ceiling, a new gate without its ceiling.
#[test]
fn every_interleaving_keeps_the_rules_under_a_ceiling() {
    check(Some(2), false);
}

/// Kills: `release` or `set_limit` that doesn't grant; `push` that loses the queue.
#[test]
fn no_waiter_starves_however_the_limit_moves() {
    check(None, true);
    check(Some(2), true);
}
