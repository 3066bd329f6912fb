//! What holds after every step, and in every state that can be reached.

use super::*;

/// What a step must keep; the name of the first rule that it breaks.
pub(super) fn broken_by(
    before: &State,
    action: Action,
    after: &State,
    step: &Step,
    ceiling: Option<u64>,
) -> Option<&'static str> {
    let mut line = before.line.clone();
    if let Action::Ask { client, wait } = action {
        line.push((client, before.now + wait));
    }
    let in_turn = |who: &[usize]| {
        line.iter()
            .map(|(client, _)| client)
            .take(who.len())
            .eq(who)
    };
    let granted_units = step.granted.len() as u64;

    let limit = match action {
        Action::SetLimit(flag) if flag > 0 => (flag as u64).min(ceiling.unwrap_or(u64::MAX)),
        Action::SetLimit(_) => ceiling.unwrap_or(u64::MAX),
        _ => before.limit(),
    };
    let released = u64::from(matches!(action, Action::Release(_)));
    let busy = before.gate.in_flight() - released;
    let due = line.iter().take_while(|&&(_, at)| at <= after.now).count();
    let sheds = if action == Action::Tick { due } else { 0 };
    // Whoever was taken out of the hand-off holds up those behind it until that is reported.
    let late = before.unreported() > 0 && step.shed.is_empty();

    let rules = [
        ("the newest limit wins", after.limit() == limit),
        (
            "grants repay debt first, and use all the room that is left",
            granted_units == limit.saturating_sub(busy).min(line.len() as u64),
        ),
        (
            "nothing is granted above the limit of that moment",
            step.granted.is_empty() || after.gate.in_flight() <= limit,
        ),
        (
            "only a release ends work in flight",
            after.gate.in_flight() == busy + granted_units,
        ),
        (
            "first come, first served: by a grant of the gate",
            in_turn(&step.granted),
        ),
        (
            "first come, first served: by a grant that is handed over",
            in_turn(&step.taken),
        ),
        (
            "no grant is handed over in debt",
            step.taken.is_empty() || before.gate.debt() == 0,
        ),
        (
            "shed are those that are due, in turn",
            (step.shed.len() == sheds || late) && in_turn(&step.shed),
        ),
        (
            "the hand-off and the queue are the line",
            is_the_line(after),
        ),
        (
            "the hand-off is empty in debt, else full or all there is",
            after.gate.handoff.len() == offers(after),
        ),
    ];
    rules.iter().find(|(_, kept)| !kept).map(|(name, _)| *name)
}

/// Whether the hand-off and behind it the queue are the line, and what the gate says of it fits.
fn is_the_line(state: &State) -> bool {
    let gate = &state.gate;
    let first = state.line.first().map(|&(_, at)| at);
    let deadlines = gate.offered.iter().skip(state.unreported());
    gate.handoff.iter().chain(&gate.queue).eq(&state.line)
        && gate.handoff.iter().map(|(_, at)| at).eq(deadlines)
        && gate.waiting() == state.unreported() + state.line.len()
        && (state.unreported() > 0 || gate.next_deadline() == first)
}

/// How many are to be in the hand-off.
fn offers(state: &State) -> usize {
    let places = state.gate.handoff_capacity;
    let places = if state.gate.debt() > 0 { 0 } else { places };
    let free = places.saturating_sub(state.unreported());
    free.min(state.line.len())
}

/// What every state keeps, and states that must be reached for the check to mean something.
pub(super) fn properties(patient: bool) -> Vec<Property<World>> {
    let mut properties = vec![
        Property::always("no step breaks a rule", |_, s: &State| s.broken.is_none()),
        Property::always("no grant leaks", |_, s: &State| {
            s.gate.in_flight() == s.count(&[Granted, Gone, Holding]) as u64
        }),
        Property::always("who is served does not wait", |_, s: &State| {
            s.line.len() == s.count(&[Waiting, Left])
                && (s.line.iter()).all(|&(client, _)| matches!(s.clients[client], Waiting | Left))
        }),
        Property::always("nobody waits while there is room", |_, s: &State| {
            s.line.is_empty() || s.gate.in_flight() >= s.limit()
        }),
        Property::always(
            "the limit is from 1 to the ceiling",
            |world: &World, s: &State| (1..=world.ceiling.unwrap_or(u64::MAX)).contains(&s.limit()),
        ),
        Property::always("the ceiling is never passed", |world: &World, s: &State| {
            s.gate.in_flight() <= world.ceiling.unwrap_or(u64::MAX)
        }),
        Property::always(
            "debt is what is in flight above the limit",
            |_, s: &State| s.gate.debt() == s.gate.in_flight().saturating_sub(s.limit()),
        ),
        Property::sometimes("a client waits on a gate in debt", |_, s: &State| {
            s.gate.debt() == 1 && s.gate.waiting() == 1
        }),
    ];
    if patient {
        properties.push(Property::always(
            "no waiter starves",
            |world: &World, s: &State| {
                let mut actions = vec![];
                world.actions(s, &mut actions);
                !actions.is_empty() || s.clients == [Served; CLIENTS]
            },
        ));
    } else {
        properties.extend([
            Property::sometimes("a grant to a client that left", |_, s: &State| {
                s.clients.contains(&Gone) && s.gate.waiting() > 0
            }),
            Property::sometimes("a grant was handed over before debt", |_, s: &State| {
                s.handed_over > 0 && s.gate.debt() > 0
            }),
            Property::sometimes("a waiter behind one that is turned down", |_, s: &State| {
                s.clients.contains(&TurnedDown) && !s.line.is_empty()
            }),
        ]);
    }
    properties
}
