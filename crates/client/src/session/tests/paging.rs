//! The pages of a recovery: what they ask for, what they wait for, and what ends them.

use super::{
    super::*,
    kit::*,
    recovering::{PAST, burst, overflown},
    world::World,
};

/// Kills: an attempt kept for a subscription that is gone: it would hold up the others for 45 s.
#[test]
fn a_subscription_that_access_is_denied_to_gives_its_attempt_up() {
    let mut kit = Kit::online(false);
    let live = overflown(&mut kit, 1);
    overflown(&mut kit, 2);
    for sub in [1, 2] {
        kit.input(Input::Took(SubId(sub), 256));
    }
    let recovery = wire_of(&kit.sent()[0]);
    kit.frame(relay_frame::closed(&live, "restricted: not a member"));
    assert_eq!(kit.sent(), [format!("[\"CLOSE\",\"{recovery}\"]")]);
    assert_eq!(kit.messages(SubId(1)).len(), 1);
    kit.until(kit.at + secs(5));
    let sent = kit.sent();
    assert!(sent.len() == 1 && sent[0].contains("[\"2\"]"), "{sent:?}");
}

/// Kills: a recovery asked again and again although no login can help; one given up although the
/// login is under way.
#[test]
fn a_recovery_that_wants_a_login_stays_pending_only_where_a_login_may_help() {
    for has_signer in [false, true] {
        let mut kit = Kit::online(has_signer);
        overflown(&mut kit, 1);
        kit.input(Input::Took(SubId(1), 256));
        let wire = wire_of(&kit.sent()[0]);
        kit.frame(relay_frame::closed(&wire, "auth-required: log in"));
        kit.until(secs(20));
        assert_eq!(kit.sent().len(), usize::from(has_signer));
    }
}

/// The session is given an input; the first REQ that comes of it, and its ticket, not yet reported.
fn unreported_req(kit: &mut Kit, input: Input) -> (Ticket, String) {
    kit.session.handle(input, kit.now());
    match kit.session.next_output() {
        Some(Output::Send(_, ticket, text)) => (ticket, wire_of(&text)),
        other => panic!("{other:?} instead of a REQ"),
    }
}

/// Kills: the clock of a recovery started when its REQ is given out; a REQ that is retired although
/// it was never written.
#[test]
fn the_clock_of_a_recovery_starts_when_its_req_is_written() {
    let config = Config {
        write_timeout: secs(600),
        ..Config::default()
    };
    let mut kit = Kit::with(false, config);
    kit.open();
    overflown(&mut kit, 1);
    let (ticket, wire) = unreported_req(&mut kit, Input::Took(SubId(1), 256));
    kit.until(secs(100));
    assert_eq!(kit.sent(), Vec::<String>::new());
    kit.input(Input::Written(ticket));
    kit.until(ms(144_999));
    assert_eq!(kit.sent(), Vec::<String>::new());
    kit.until(secs(145));
    assert_eq!(kit.sent(), [format!("[\"CLOSE\",\"{wire}\"]")]);
}

/// The REQs sent since the last call.
fn reqs(kit: &mut Kit) -> Vec<String> {
    let sent = kit.sent().into_iter();
    sent.filter(|text| text.starts_with("[\"REQ\"")).collect()
}

/// Two subscriptions that lost events; the first one's recovery is asked for, and answered with
/// a full page, of which its consumer took so many, but without EOSE. Gives the names of the live
/// REQ and of the recovery's.
fn one_page_came(took: usize) -> (Kit, String, String) {
    let mut kit = Kit::online(false);
    overflown(&mut kit, 2);
    let live = overflown(&mut kit, 1);
    kit.frame(event_frame(&live, &event(9, 1, 999, PAST + 999)));
    kit.input(Input::Took(SubId(1), 256));
    let recovery = wire_of(&kit.sent()[0]);
    for n in 872..1000 {
        kit.frame(event_frame(&recovery, &event(9, 1, n, PAST + n)));
    }
    kit.input(Input::Took(SubId(1), took));
    (kit, live, recovery)
}

/// Kills: a pause before the next page although no other subscription waits and the consumer keeps
/// up; a next page that goes out of turn; one at once for a consumer that is behind.
#[test]
fn the_next_page_is_chosen_as_the_first_one_was() {
    let next = format!("\"until\":{},\"limit\":128", PAST + 872);
    let (mut kit, _, recovery) = one_page_came(128);
    kit.frame(relay_frame::eose(&recovery));
    let sent = reqs(&mut kit);
    assert!(sent.len() == 1 && sent[0].contains(&next), "{sent:?}");

    let (mut kit, _, recovery) = one_page_came(128);
    kit.input(Input::Took(SubId(2), 256));
    kit.frame(relay_frame::eose(&recovery));
    kit.until(ms(4999));
    assert_eq!(reqs(&mut kit), Vec::<String>::new());
    kit.until(ms(5100));
    let sent = reqs(&mut kit);
    assert!(sent.len() == 1 && sent[0].contains("[\"2\"]"), "{sent:?}");

    let (mut kit, _, recovery) = one_page_came(0);
    kit.frame(relay_frame::eose(&recovery));
    kit.until(ms(4999));
    assert_eq!(reqs(&mut kit), Vec::<String>::new());
    kit.until(ms(5100));
    let sent = reqs(&mut kit);
    assert!(sent.len() == 1 && sent[0].contains(&next), "{sent:?}");
}

/// Kills: a next page that was checked when the one before it ended, and not when it is sent.
#[test]
fn room_that_is_gone_when_the_gate_opens_holds_the_next_page() {
    let (mut kit, live, recovery) = one_page_came(128);
    kit.frame(relay_frame::notice("rate-limited: busy; retry in 2s"));
    kit.frame(relay_frame::eose(&recovery));
    assert_eq!(reqs(&mut kit), Vec::<String>::new());
    for n in 2000..2200 {
        kit.frame(event_frame(&live, &event(9, 1, n, UNIX)));
    }
    kit.until(secs(20));
    assert_eq!(reqs(&mut kit), Vec::<String>::new());
    kit.input(Input::Took(SubId(1), 200));
    assert_eq!(reqs(&mut kit).len(), 1);
}

/// Kills: a page as large as the relay gives, whose end finds the queue full; one for each filter.
#[test]
fn all_filters_of_a_recovery_together_ask_for_what_fits_in_the_free_half() {
    let mut kit = Kit::online(false);
    let filters = vec![channel(1), channel(2), channel(3)];
    kit.command(Command::Subscribe(SubId(1), filters));
    kit.until(ms(10));
    let wire = wire_of(&kit.sent()[0]);
    for n in 0..300 {
        kit.frame(event_frame(&wire, &event(9, 1, n, PAST + n)));
    }
    kit.input(Input::Took(SubId(1), 128));
    let sent = reqs(&mut kit);
    assert_eq!(sent[0].matches("\"limit\":42}").count(), 3, "{sent:?}");
}

/// Kills: a second that holds more than what fits stepped over, which loses the rest of it.
#[test]
fn a_second_with_more_events_than_fit_is_recovered_whole() {
    let mut world = World::new(1, Config::default(), false);
    let sub = world.subscribe(1, vec![channel(1)], false);
    world.until(secs(1));
    burst(&mut world, 1, 450);
    for _ in 0..20 {
        world.until(world.at + secs(1));
        world.read(sub, usize::MAX);
    }
    assert_eq!(world.consumers[&sub].got.len(), 450);
}
