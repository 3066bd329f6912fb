use super::*;

type TestGate = Gate<char, u64>;

fn gate(ceiling: u64) -> TestGate {
    Gate::new(NonZeroU64::new(ceiling))
}

/// Acquires for `ticket`, which must be granted.
fn take(gate: &mut TestGate, ticket: char) -> Permit {
    match gate.acquire(ticket, 10) {
        Acquired::Granted(permit) => permit,
        Acquired::Waiting => panic!("{ticket} has to wait"),
    }
}

/// Acquires for each of `tickets`, which must all wait; the deadline of each is one later.
fn queue(gate: &mut TestGate, tickets: &str) {
    for (ticket, deadline) in tickets.chars().zip(10..) {
        assert_eq!(gate.acquire(ticket, deadline), Acquired::Waiting);
    }
}

fn granted(grants: impl IntoIterator<Item = (char, Permit)>) -> String {
    grants.into_iter().map(|(ticket, _)| ticket).collect()
}

/// Kills: a gate that starts at 1, or without a limit.
#[test]
fn a_new_gate_is_limited_by_its_ceiling() {
    assert_eq!(gate(2).limit(), NonZeroU64::new(2));
    assert_eq!(gate(0).limit(), None);
}

/// Kills: `<=` for `<` in `has_room`; `admit` that doesn't count; `acquire` that grants whenever nobody
/// waits, or that forgets the waiter.
#[test]
fn admits_up_to_the_limit() {
    let mut gate = gate(2);
    let _held = [take(&mut gate, 'a'), take(&mut gate, 'b')];
    queue(&mut gate, "c");
    assert_eq!((gate.in_flight(), gate.waiting()), (2, 1));
}

/// Kills: no limit read as no room, or as debt.
#[test]
fn admits_all_without_a_limit() {
    let mut gate = gate(0);
    let held: Vec<Permit> = ('a'..='z').map(|ticket| take(&mut gate, ticket)).collect();
    assert_eq!(gate.in_flight(), held.len() as u64);
    assert_eq!(gate.debt(), 0);
}

/// Kills: `release` that doesn't grant, or doesn't count; `pop` from the back.
#[test]
fn a_release_hands_its_room_to_the_longest_waiting() {
    let mut gate = gate(1);
    let held = take(&mut gate, 'a');
    queue(&mut gate, "bc");
    let (ticket, held) = gate.release(held).expect("b waits");
    assert_eq!((ticket, gate.in_flight()), ('b', 1));
    assert_eq!(granted(gate.release(held)), "c");
}

/// Kills: `give_up` that does nothing, or frees a unit; `remove` without its `join`, or with one
/// that drops those ahead; `join` without any of its four assignments.
#[test]
fn a_waiter_that_gives_up_is_passed_over() {
    let mut gate = gate(1);
    let held = take(&mut gate, 'a');
    queue(&mut gate, "bcde");
    assert_eq!(
        ['c', 'e', 'b'].map(|ticket| gate.give_up(ticket)),
        [true; 3]
    );
    queue(&mut gate, "f");
    let (ticket, held) = gate.release(held).expect("d waits");
    assert_eq!(ticket, 'd');
    assert_eq!(granted(gate.release(held)), "f");
}

/// Kills: `give_up` that frees room, or that answers `true` to everyone.
#[test]
fn giving_up_after_the_grant_leaves_the_permit_in_flight() {
    let mut gate = gate(1);
    let on_its_way = take(&mut gate, 'a');
    queue(&mut gate, "b");
    assert!(!gate.give_up('a'));
    assert_eq!((gate.in_flight(), gate.waiting()), (1, 1));
    assert_eq!(granted(gate.release(on_its_way)), "b");
}

/// Kills: a lowered limit that grants, or that cuts what is in flight; `release` that grants
/// without room; `debt` the wrong way round.
#[test]
fn lowering_cancels_nothing_and_admits_nothing() {
    let mut gate = gate(3);
    let held = ['a', 'b', 'c'].map(|ticket| take(&mut gate, ticket));
    queue(&mut gate, "d");
    assert_eq!(granted(gate.set_limit(Some(1))), "");
    assert_eq!((gate.in_flight(), gate.debt()), (3, 2));
    let grants = held.map(|permit| granted(gate.release(permit)));
    assert_eq!(grants, ["", "", "d"]);
}

/// Kills: `set_limit` that grants the difference of the limits instead of the room.
#[test]
fn raising_repays_debt_first() {
    let mut gate = gate(4);
    let _held = ['a', 'b', 'c', 'd'].map(|ticket| take(&mut gate, ticket));
    queue(&mut gate, "efg");
    assert_eq!(granted(gate.set_limit(Some(1))), "");
    assert_eq!(granted(gate.set_limit(Some(3))), "");
    assert_eq!((gate.in_flight(), gate.debt()), (4, 1));
}

/// Kills: `set_limit` that grants one at most, none, or without room; `push` that loses the queue or
/// doesn't move its end; `grant_next` that counts before it finds a waiter.
#[test]
fn raising_grants_all_there_is_room_for_in_order() {
    let mut gate = gate(4);
    assert_eq!(granted(gate.set_limit(Some(1))), "");
    let _held = take(&mut gate, 'a');
    queue(&mut gate, "bcde");
    assert_eq!(granted(gate.set_limit(None)), "bcd");
    assert_eq!((gate.in_flight(), gate.waiting()), (4, 1));
}

/// Kills: `set_limit` that only lowers, or that clamps to the limit before instead of the ceiling.
#[test]
fn the_newest_limit_wins() {
    let mut gate = gate(8);
    let limits = [Some(2), Some(5), Some(99), Some(1), Some(0)].map(|flag| {
        assert_eq!(granted(gate.set_limit(flag)), "");
        gate.limit().map_or(0, NonZeroU64::get)
    });
    assert_eq!(limits, [2, 5, 8, 1, 8]);
}

/// Kills: `<` for `<=` in `expire`; `expire` that sheds one at most, or everyone.
#[test]
fn sheds_who_is_due_in_order() {
    let mut gate = gate(1);
    let _held = take(&mut gate, 'a');
    queue(&mut gate, "bcd");
    assert_eq!(gate.next_deadline(), Some(10));
    assert!(gate.expire(9).is_empty());
    assert_eq!(gate.expire(11), ['b', 'c']);
    assert_eq!((gate.next_deadline(), gate.waiting()), (Some(12), 1));
}

/// Kills: `expire` that looks behind one who is not due (it would shed c at 7).
#[test]
fn sheds_nobody_before_those_ahead() {
    let mut gate = gate(1);
    let held = take(&mut gate, 'a');
    for (ticket, deadline) in [('b', 9), ('c', 7), ('d', 8)] {
        assert_eq!(gate.acquire(ticket, deadline), Acquired::Waiting);
    }
    assert!(gate.expire(7).is_empty());
    let (ticket, _held) = gate.release(held).expect("b waits");
    assert_eq!((ticket, gate.next_deadline()), ('b', Some(7)));
    assert_eq!(gate.expire(7), ['c']);
}

/// Kills: `push` without its `remove`.
#[test]
fn asking_again_while_waiting_goes_to_the_end() {
    let mut gate = gate(1);
    let held = take(&mut gate, 'a');
    queue(&mut gate, "bcb");
    let (ticket, held) = gate.release(held).expect("c waits");
    assert_eq!((ticket, gate.next_deadline()), ('c', Some(12)));
    assert_eq!(granted(gate.release(held)), "b");
    assert_eq!(gate.waiting(), 0);
}

/// Kills: plain subtraction in `release`.
#[test]
fn a_permit_of_another_gate_does_not_close_this_one() {
    let (mut one, mut other) = (gate(1), gate(1));
    let foreign = take(&mut other, 'a');
    assert_eq!(granted(one.release(foreign)), "");
    let _held = take(&mut one, 'b');
    assert_eq!(one.in_flight(), 1);
}
