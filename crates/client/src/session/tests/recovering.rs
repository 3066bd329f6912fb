//! Catching up: after full queues, and after lost sockets.

use buzz_protocol::Filter;

use super::{super::*, kit::*, world::World};

/// A burst of `n` events in a channel, at the world's present second.
pub(super) fn burst(world: &mut World, channel: u64, n: u64) {
    let second = world.at.as_secs();
    for i in 0..n {
        world.relay_takes(event(9, channel, i, UNIX + second));
    }
}

/// REQs so far that ask for a part of the past only: all but the first of each subscription.
fn history_requests(world: &World) -> usize {
    world
        .sent_of("REQ")
        .iter()
        .filter(|(_, text)| text.contains("\"since\""))
        .count()
}

/// Eighteen live subscriptions.
fn eighteen() -> World {
    let mut world = World::new(1, Config::default(), false);
    world.relay.page = 2000;
    for n in 0..18 {
        world.subscribe(n, vec![channel(n)], false);
    }
    world.until(secs(1));
    world
}

/// Three rounds, 6 s apart; in each a busy channel's queue overflows twice before its consumer
/// reads. Gives the losses.
fn three_overload_rounds(world: &mut World) -> usize {
    let mut losses = 0;
    for round in 0..3 {
        for _ in 0..2 {
            burst(world, 3, 300);
            losses += 1;
            world.until(world.at + secs(1));
        }
        assert_eq!(
            history_requests(world),
            round,
            "nothing is asked while the queue is full"
        );
        for _ in 0..8 {
            world.read(SubId(3), usize::MAX);
            world.until(world.at + ms(500));
        }
    }
    losses
}

#[test]
fn the_recovery_table_three_rounds_over_eighteen_subscriptions_cost_three_requests() {
    let mut world = eighteen();
    let losses = three_overload_rounds(&mut world);
    // What a client does that asks for everything again at each loss.
    assert_eq!(losses * world.consumers.len(), 108);
    assert!(
        history_requests(&world) <= 3,
        "{}",
        history_requests(&world)
    );
    for _ in 0..40 {
        world.read(SubId(3), usize::MAX);
        world.until(world.at + secs(1));
    }
    assert_eq!(
        world.consumers[&SubId(3)].got.len(),
        world.relay.events.len()
    );
}

#[test]
fn eighteen_overflowing_queues_are_recovered_one_by_one_five_seconds_apart() {
    let mut world = eighteen();
    for n in 0..18 {
        for i in 0..300 {
            world.relay_takes(event(9, n, i, UNIX - 300 + i));
        }
    }
    world.until(secs(2));
    for _ in 0..250 {
        (0..18).for_each(|n| world.read(SubId(n), usize::MAX));
        world.until(world.at + ms(400));
    }
    let requests = world.sent_of("REQ");
    let recoveries: Vec<_> = requests
        .iter()
        .filter(|(_, text)| text.contains("since"))
        .collect();
    assert_eq!(recoveries.len(), 18, "one each");
    assert!(
        recoveries
            .windows(2)
            .all(|pair| pair[1].0 - pair[0].0 >= secs(5))
    );
    assert!(
        world
            .consumers
            .values()
            .all(|consumer| consumer.got.len() == 300)
    );
}

#[test]
fn a_bounded_history_of_320_events_is_delivered_whole_and_the_live_ones_after_it() {
    let mut world = World::new(1, Config::default(), false);
    for n in 0..320 {
        world.relay_takes(event(9, 1, n, UNIX - 10_000 + n));
    }
    let sub = world.subscribe(1, vec![channel(1)], false);
    world.until(secs(1));
    assert_eq!(world.consumers[&sub].got.len(), 256, "the queue is full");
    world.read(sub, 127);
    world.until(secs(2));
    assert_eq!(world.sent_of("REQ").len(), 1, "less than half is free");
    world.read(sub, 1);
    world.until(secs(3));
    assert_eq!(world.sent_of("REQ").len(), 2);
    assert_eq!(world.consumers[&sub].got.len(), 320);
    for n in 0..10 {
        world.relay_takes(event(9, 1, 1000 + n, UNIX + 3));
    }
    world.until(secs(4));
    assert_eq!(world.consumers[&sub].got.len(), 330);
}

pub(super) const PAST: u64 = UNIX - 1000;

/// A live subscription to a channel, its queue of 256 overflown by 44 events; the REQ's name.
pub(super) fn overflown(kit: &mut Kit, sub: u64) -> String {
    kit.command(Command::Subscribe(SubId(sub), vec![channel(sub)]));
    kit.until(kit.at + ms(10));
    let wire = wire_of(&kit.sent()[0]);
    kit.frame(relay_frame::eose(&wire));
    for n in 0..300 {
        kit.frame(event_frame(&wire, &event(9, sub, n, PAST + n)));
    }
    kit.messages(SubId(sub));
    wire
}

#[test]
fn a_recovery_waits_for_the_gate_and_wakes_by_itself() {
    let mut kit = Kit::online(false);
    overflown(&mut kit, 1);
    kit.frame(relay_frame::notice("rate-limited: busy; retry in 7s"));
    kit.input(Input::Took(SubId(1), 256));
    kit.until(secs(7));
    assert_eq!(kit.sent(), Vec::<String>::new());
    kit.until(secs(8));
    let (since, until) = (PAST + 256 - 5, PAST + 299);
    let expected =
        format!(r##"["REQ","b1",{{"#h":["1"],"since":{since},"until":{until},"limit":128}}]"##);
    assert_eq!(kit.sent(), [expected]);
}

#[test]
fn a_failed_write_leaves_the_recovery_pending_and_counts_as_an_attempt() {
    let mut kit = Kit::online(false);
    overflown(&mut kit, 1);
    kit.session.handle(Input::Took(SubId(1), 256), kit.now());
    let Some(Output::Send(_, ticket, first)) = kit.session.next_output() else {
        panic!("nothing sent");
    };
    kit.until(kit.at + secs(1));
    let failed_at = kit.at;
    kit.input(Input::WriteFailed(ticket));
    kit.until(failed_at + ms(4999));
    assert_eq!(kit.sent(), Vec::<String>::new());
    kit.until(failed_at + secs(5));
    let again = kit.sent();
    assert_eq!(again.len(), 1);
    assert_eq!(
        again[0].replace("b2", "b1"),
        first,
        "the same part of the past"
    );
    // Written, it is retired: nothing more is asked.
    kit.frame(relay_frame::eose("b2"));
    kit.until(failed_at + secs(20));
    assert_eq!(kit.sent(), ["[\"CLOSE\",\"b2\"]"]);
}

#[test]
fn five_seconds_count_from_the_end_of_an_attempt_and_the_least_recently_attempted_is_next() {
    let mut kit = Kit::online(false);
    for sub in [1, 2] {
        overflown(&mut kit, sub);
    }
    for sub in [1, 2] {
        kit.input(Input::Took(SubId(sub), 256));
    }
    let sent = kit.sent();
    assert!(sent.len() == 1 && sent[0].contains("[\"1\"]"), "{sent:?}");
    // New losses while the first attempt runs: it is no longer the least recently attempted.
    for n in 1000..1300 {
        kit.frame(event_frame("b0", &event(9, 1, n, UNIX)));
    }
    kit.input(Input::Took(SubId(1), 256));
    kit.until(secs(8));
    kit.sent();
    kit.frame(relay_frame::eose(&wire_of(&sent[0])));
    kit.until(ms(12_999));
    assert_eq!(kit.sent().len(), 1, "only the CLOSE");
    kit.until(secs(13));
    let sent = kit.sent();
    assert!(sent.len() == 1 && sent[0].contains("[\"2\"]"), "{sent:?}");
    kit.frame(relay_frame::eose(&wire_of(&sent[0])));
    kit.until(secs(18));
    assert!(
        kit.sent()
            .iter()
            .any(|text| text.contains("REQ") && text.contains("[\"1\"]"))
    );
}

#[test]
fn unsubscribing_clears_the_recovery() {
    let mut kit = Kit::online(false);
    overflown(&mut kit, 1);
    kit.input(Input::Took(SubId(1), 256));
    let wire = wire_of(&kit.sent()[0]);
    kit.command(Command::Unsubscribe(SubId(1)));
    let mut sent = kit.sent();
    sent.sort();
    assert_eq!(
        sent,
        [
            r#"["CLOSE","b0"]"#.to_owned(),
            format!(r#"["CLOSE","{wire}"]"#)
        ]
    );
    kit.until(secs(60));
    assert_eq!(kit.sent(), Vec::<String>::new());
}

#[test]
fn a_reconnect_resumes_from_the_oldest_dropped_and_retires_the_recovery() {
    let mut kit = Kit::online(false);
    overflown(&mut kit, 1);
    kit.lose();
    kit.until(secs(2));
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
    let sent = kit.sent();
    assert_eq!(sent.len(), 1);
    // Not from the last one seen, which came after it.
    let since = format!("\"since\":{},", PAST + 256 - 5);
    assert!(sent[0].contains(&since), "{sent:?}");
    kit.frame(relay_frame::eose(&wire_of(&sent[0])));
    kit.input(Input::Took(SubId(1), 256));
    kit.until(secs(20));
    assert_eq!(kit.sent(), Vec::<String>::new());
}

#[test]
fn live_messages_and_commands_go_on_during_a_recovery() {
    let mut kit = Kit::online(false);
    overflown(&mut kit, 1);
    kit.input(Input::Took(SubId(1), 256));
    kit.sent();
    kit.frame(event_frame("b0", &event(9, 1, 5000, UNIX)));
    assert_eq!(kit.messages(SubId(1)).len(), 1);
    kit.publish(&event(9, 1, 1, UNIX));
    assert_eq!(kit.sent().len(), 1);
}

#[test]
fn catch_up_after_a_gap_of_three_pages_sees_the_boundary_the_future_and_the_past() {
    let mut world = World::new(1, Config::default(), false);
    world.relay.page = 100;
    let sub = world.subscribe(1, vec![channel(1)], true);
    world.until(secs(10));
    // Ten minutes ahead, and seen: it must not become the cursor.
    world.relay_takes(event(9, 1, 0, UNIX + 10 + 600));
    world.relay_takes(event(9, 1, 1, UNIX + 10));
    world.until(secs(11));
    world.refuse_dials = true;
    world.drop_socket();
    // 3 s behind the last one seen; then three pages, with five events in the second in which the
    // first page ends.
    world.relay_takes(event(9, 1, 2, UNIX + 7));
    for n in 0..98 {
        world.relay_takes(event(9, 1, 1000 + n, UNIX + 300 + n));
    }
    for n in 0..5 {
        world.relay_takes(event(9, 1, 2000 + n, UNIX + 299));
    }
    for n in 0..190 {
        world.relay_takes(event(9, 1, 3000 + n, UNIX + 20 + n));
    }
    world.until(secs(500));
    world.refuse_dials = false;
    world.until(secs(600));
    assert_eq!(world.relay.events.len(), 296);
    assert_eq!(world.consumers[&sub].got.len(), 296);
    // The pages of one catch-up follow one another without the pause between attempts.
    let pages = world
        .sent_of("REQ")
        .into_iter()
        .filter(|(_, text)| text.contains("until"));
    let times: Vec<Duration> = pages.map(|(at, _)| *at).collect();
    assert!(
        times.len() >= 2 && times[times.len() - 1] - times[0] < secs(2),
        "{times:?}"
    );
}

#[test]
fn a_socket_lost_during_a_catch_up_does_not_move_its_start() {
    let mut kit = Kit::online(false);
    kit.command(Command::Subscribe(SubId(1), vec![channel(1)]));
    kit.until(ms(10));
    let wire = wire_of(&kit.sent()[0]);
    kit.frame(event_frame(&wire, &event(9, 1, 1, UNIX)));
    kit.frame(relay_frame::eose(&wire));
    kit.until(secs(100));
    let reconnect = |kit: &mut Kit| {
        kit.lose();
        kit.until(kit.at + secs(5));
        let socket = kit.socket();
        kit.input(Input::Opened(socket));
        kit.sent().pop().unwrap()
    };
    let req = reconnect(&mut kit);
    let since = format!("\"since\":{}", UNIX - 5);
    assert!(req.contains(&since), "{req}");
    // The newest event of the catch-up comes first; then the socket is lost before EOSE.
    kit.frame(event_frame(&wire_of(&req), &event(9, 1, 2, UNIX + 99)));
    let req = reconnect(&mut kit);
    assert!(req.contains(&since), "{req}");
    kit.frame(relay_frame::eose(&wire_of(&req)));
    let req = reconnect(&mut kit);
    assert!(req.contains(&format!("\"since\":{}", UNIX + 94)), "{req}");
}

#[test]
fn who_asks_for_nothing_stored_resumes_from_the_time_it_was_live() {
    let mut kit = Kit::online(false);
    let live_only = Filter {
        limit: Some(0),
        ..channel(1)
    };
    kit.command(Command::Subscribe(SubId(1), vec![live_only]));
    kit.until(ms(10));
    let wire = wire_of(&kit.sent()[0]);
    kit.frame(relay_frame::eose(&wire));
    kit.lose();
    kit.until(secs(2));
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
    let req = kit.sent().pop().unwrap();
    assert!(
        req.contains(&format!("\"since\":{},\"limit\":500", UNIX - 5)),
        "{req}"
    );
}

#[test]
fn another_relay_is_read_from_the_start_and_delivers_nothing_twice() {
    let mut kit = Kit::online(false);
    kit.command(Command::Subscribe(SubId(1), vec![channel(1)]));
    kit.until(ms(10));
    let wire = wire_of(&kit.sent()[0]);
    kit.frame(event_frame(&wire, &event(9, 1, 1, UNIX)));
    kit.frame(relay_frame::eose(&wire));
    kit.messages(SubId(1));
    kit.frame(relay_frame::notice("rate-limited: slow down"));
    kit.command(Command::Switch("ws://other".into()));
    let urls = |kit: &Kit| {
        let dials = kit.outputs.iter().filter_map(|output| match output {
            Output::Dial(_, url) => Some(url.clone()),
            _ => None,
        });
        dials.collect::<Vec<_>>()
    };
    assert_eq!(urls(&kit), ["ws://other"]);
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
    let req = kit.sent().pop().unwrap();
    assert!(!req.contains("since"), "{req}");
    kit.frame(event_frame(&wire_of(&req), &event(9, 1, 1, UNIX)));
    kit.frame(event_frame(&wire_of(&req), &event(9, 1, 2, UNIX - 1000)));
    assert_eq!(kit.messages(SubId(1)).len(), 1);
}

#[test]
fn a_recovery_refused_for_now_stays_pending_and_one_refused_for_good_is_over() {
    for (text, again) in [
        ("rate-limited: busy; retry in 1s", true),
        ("error: database unavailable", true),
        ("invalid: no", false),
    ] {
        let mut kit = Kit::online(false);
        overflown(&mut kit, 1);
        kit.input(Input::Took(SubId(1), 256));
        let wire = wire_of(&kit.sent()[0]);
        kit.frame(relay_frame::closed(&wire, text));
        kit.until(secs(20));
        assert_eq!(kit.sent().len(), usize::from(again), "{text}");
        assert!(
            kit.messages(SubId(1)).is_empty(),
            "the subscription lives on"
        );
    }
}

#[test]
fn a_socket_lost_during_a_recovery_resumes_from_what_it_was_to_cover() {
    let mut kit = Kit::online(false);
    overflown(&mut kit, 1);
    kit.input(Input::Took(SubId(1), 256));
    assert_eq!(kit.sent().len(), 1);
    kit.lose();
    kit.until(secs(2));
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
    let sent = kit.sent();
    let since = format!("\"since\":{},", PAST + 256 - 5);
    assert!(sent.len() == 1 && sent[0].contains(&since), "{sent:?}");
}

#[test]
fn a_dead_socket_is_found_before_a_recovery_on_it_is_taken_as_done() {
    let config = Config::default();
    assert!(config.recovery_timeout > config.ping_every + config.ping_timeout);
}
