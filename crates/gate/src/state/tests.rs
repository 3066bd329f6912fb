use super::*;

type HandOffQueue = VecDeque<(char, u64)>;
type TestGate = GateState<char, u64, HandOffQueue>;

fn gate(ceiling: u64) -> TestGate {
    GateState::new(NonZeroU64::new(ceiling), HandOffQueue::new(), 2)
}

/// Acquires for `waiter`, which must get a grant.
fn take(gate: &mut TestGate, waiter: char) -> Grant {
    match gate.acquire(waiter, 10) {
        Some((granted, grant)) if granted == waiter => grant,
        _ => panic!("{waiter} has to wait"),
    }
}

/// Acquires for each of `waiters`, which must all wait; the deadline of each is one later.
fn queue(gate: &mut TestGate, waiters: &str) {
    for (waiter, deadline) in waiters.chars().zip(10..) {
        assert_eq!(gate.acquire(waiter, deadline), None);
    }
}

/// What a holder finds in the hand-off; it is not reported yet.
fn take_over(gate: &mut TestGate) -> Option<char> {
    gate.handoff.pop_front().map(|(waiter, _)| waiter)
}

fn granted(grants: impl IntoIterator<Item = (char, Grant)>) -> String {
    grants.into_iter().map(|(waiter, _)| waiter).collect()
}

fn offered(gate: &TestGate) -> String {
    gate.handoff.iter().map(|&(waiter, _)| waiter).collect()
}

/// Kills: a gate that starts at 1, or without a limit.
#[test]
fn a_new_gate_is_limited_by_its_ceiling() {
    assert_eq!(gate(2).limit(), NonZeroU64::new(2));
    assert_eq!(gate(0).limit(), None);
}

/// Kills: `<=` for `<` in `has_room`; `grant_next` that doesn't count; `acquire` that grants
/// whenever nobody waits, or that forgets the waiter.
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
    let held: Vec<Grant> = ('a'..='z').map(|waiter| take(&mut gate, waiter)).collect();
    assert_eq!(gate.in_flight(), held.len() as u64);
    assert_eq!(gate.debt(), 0);
}

/// Kills: `release` that doesn't grant, or doesn't count; `grant_next` from the back.
#[test]
fn a_release_gives_its_room_to_the_longest_waiter() {
    let mut gate = gate(1);
    let held = take(&mut gate, 'a');
    queue(&mut gate, "bc");
    let (waiter, held) = gate.release(held).expect("b waits");
    assert_eq!((waiter, gate.in_flight()), ('b', 1));
    assert_eq!(granted(gate.release(held)), "c");
}

/// Kills: a lowered limit that grants, or that cuts what is in flight; `release` that grants
/// without room; `debt` the wrong way round.
#[test]
fn lowering_cancels_nothing_and_admits_nothing() {
    let mut gate = gate(3);
    let held = ['a', 'b', 'c'].map(|waiter| take(&mut gate, waiter));
    queue(&mut gate, "d");
    assert_eq!(granted(gate.set_limit(Some(1))), "");
    assert_eq!((gate.in_flight(), gate.debt()), (3, 2));
    let grants = held.map(|grant| granted(gate.release(grant)));
    assert_eq!(grants, ["", "", "d"]);
}

/// Kills: `set_limit` that grants the difference of the limits instead of the room.
#[test]
fn raising_repays_debt_first() {
    let mut gate = gate(4);
    let _held = ['a', 'b', 'c', 'd'].map(|waiter| take(&mut gate, waiter));
    queue(&mut gate, "efg");
    assert_eq!(granted(gate.set_limit(Some(1))), "");
    assert_eq!(granted(gate.set_limit(Some(3))), "");
    assert_eq!((gate.in_flight(), gate.debt()), (4, 1));
}

/// Kills: `set_limit` that grants one at most, none, or without room; `grant_next` that counts
/// before it finds a waiter.
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

/// Kills: `expire` that looks behind one who is not due (it would shed e at 8).
#[test]
fn sheds_nobody_before_those_ahead() {
    let mut gate = gate(1);
    let held = take(&mut gate, 'a');
    for (waiter, deadline) in [('b', 9), ('c', 7), ('d', 10), ('e', 8)] {
        assert_eq!(gate.acquire(waiter, deadline), None);
    }
    assert!(gate.expire(7).is_empty());
    let (waiter, _held) = gate.release(held).expect("b waits");
    assert_eq!((waiter, gate.next_deadline()), ('b', Some(7)));
    assert_eq!(gate.expire(8), ['c']);
}

/// Kills: plain subtraction in `release`.
#[test]
fn a_grant_of_another_gate_does_not_close_this_one() {
    let (mut one, mut other) = (gate(1), gate(1));
    let foreign = take(&mut other, 'a');
    assert_eq!(granted(one.release(foreign)), "");
    let _held = take(&mut one, 'b');
    assert_eq!(one.in_flight(), 1);
}

/// Kills: `acquire` or `taken` without `offer`; `offer` of one at most, of the last, or beyond the
/// capacity; `taken` that frees a unit, or that leaves the place occupied.
#[test]
fn the_longest_waiters_are_in_the_hand_off() {
    let mut gate = gate(1);
    let _held = take(&mut gate, 'a');
    queue(&mut gate, "bcde");
    assert_eq!(offered(&gate), "bc");
    assert_eq!(take_over(&mut gate), Some('b'));
    assert_eq!((gate.waiting(), gate.next_deadline()), (4, Some(10)));
    gate.taken();
    assert_eq!((offered(&gate).as_str(), gate.in_flight()), ("cd", 1));
    assert_eq!((gate.waiting(), gate.next_deadline()), (3, Some(11)));
}

/// Kills: `release` that doesn't recall, or that doesn't offer; `recall` of one at most, to the back
/// of the queue, or that forgets the waiters or that they were offered.
#[test]
fn a_release_grants_to_the_longest_waiter_in_the_hand_off() {
    let mut gate = gate(1);
    let held = take(&mut gate, 'a');
    queue(&mut gate, "bcdef");
    let (waiter, held) = gate.release(held).expect("b waits");
    assert_eq!((waiter, offered(&gate).as_str()), ('b', "cd"));
    assert_eq!(take_over(&mut gate), Some('c'));
    // Not reported yet: its place is still occupied.
    let (waiter, _held) = gate.release(held).expect("d waits");
    assert_eq!((waiter, offered(&gate).as_str()), ('d', "e"));
    gate.taken();
    assert_eq!(offered(&gate), "ef");
    assert_eq!((gate.in_flight(), gate.waiting()), (1, 2));
}

/// Kills: `set_limit` that doesn't recall, or that doesn't offer; `offer` in debt.
#[test]
fn nothing_is_handed_over_in_debt() {
    let mut gate = gate(2);
    let [first, _second] = ['a', 'b'].map(|waiter| take(&mut gate, waiter));
    queue(&mut gate, "cd");
    assert_eq!(granted(gate.set_limit(Some(1))), "");
    queue(&mut gate, "e");
    assert_eq!((take_over(&mut gate), gate.waiting()), (None, 3));
    assert_eq!(granted(gate.release(first)), "");
    assert_eq!((gate.debt(), offered(&gate).as_str()), (0, "cd"));
    assert_eq!(granted(gate.set_limit(None)), "c");
    assert_eq!(offered(&gate), "de");
}

/// Kills: `expire` that doesn't recall, or that doesn't offer.
#[test]
fn sheds_who_is_due_in_the_hand_off() {
    let mut gate = gate(1);
    let _held = take(&mut gate, 'a');
    queue(&mut gate, "bcde");
    assert_eq!(take_over(&mut gate), Some('b'));
    assert_eq!(gate.expire(12), ['c', 'd']);
    assert_eq!((offered(&gate).as_str(), gate.waiting()), ("e", 2));
}
