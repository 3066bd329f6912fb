//! What holds after every step, and in every state that can be reached.

use super::*;

/// What a step must keep; the name of the first rule that it breaks.
pub(super) fn broken_by(
    before: &State,
    action: Action,
    after: &State,
    granted: &[usize],
    shed: &[usize],
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
    let granted_units = granted.len() as u64;

    let limit = match action {
        Action::SetLimit(flag) if flag > 0 => (flag as u64).min(ceiling.unwrap_or(u64::MAX)),
        Action::SetLimit(_) => ceiling.unwrap_or(u64::MAX),
        _ => before.limit(),
    };
    let released = u64::from(matches!(action, Action::Release(_)));
    let busy = before.gate.in_flight() - released;
    let due = line.iter().take_while(|&&(_, at)| at <= after.now);
    let sheds = if action == Action::Tick {
        due.count()
    } else {
        0
    };

    let rules = [
        ("the newest limit wins", after.limit() == limit),
        (
            "grants repay debt first, and use all the room that is left",
            granted_units == limit.saturating_sub(busy).min(line.len() as u64),
        ),
        (
            "nothing is granted above the limit of that moment",
            granted.is_empty() || after.gate.in_flight() <= limit,
        ),
        (
            "only a release ends work in flight",
            after.gate.in_flight() == busy + granted_units,
        ),
        ("first come, first served", in_turn(granted)),
        (
            "shed are those that are due, in turn",
            shed.len() == sheds && in_turn(shed),
        ),
        (
            "the queue is the line",
            after.gate.waiters.order().as_ref() == Some(&after.line)
                && after.gate.waiting() == after.line.len()
                && after.gate.next_deadline() == after.line.first().map(|&(_, at)| at),
        ),
    ];
    rules.iter().find(|(_, kept)| !kept).map(|(name, _)| *name)
}

/// What every state keeps, and states that must be reached for the check to mean something.
pub(super) fn properties(patient: bool) -> Vec<Property<World>> {
    let mut properties = vec![
        Property::always("no step breaks a rule", |_, s: &State| s.broken.is_none()),
        Property::always("no permit leaks", |_, s: &State| {
            s.gate.in_flight() == s.count(&[Granted, Gone, Holding])
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
        properties.push(Property::sometimes(
            "a grant to a client that left",
            |_, s: &State| s.clients.contains(&Gone) && s.gate.waiting() > 0,
        ));
    }
    properties
}
