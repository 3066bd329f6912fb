//! Subscriptions: packing, telling apart, refusals, and what may reach a consumer.

use buzz_protocol::Event;

use super::{super::*, kit::*, world::World};

fn subscribe(kit: &mut Kit, ids: std::ops::Range<u64>) {
    for n in ids {
        kit.command(Command::Subscribe(SubId(n), vec![channel(n)]));
    }
}

/// A kit with one subscription to channels `0..n`, live; and the names of its REQs.
fn live(n: u64) -> (Kit, Vec<String>) {
    let mut kit = Kit::online(false);
    subscribe(&mut kit, 0..n);
    kit.until(ms(10));
    let wires: Vec<String> = kit.sent().iter().map(|frame| wire_of(frame)).collect();
    for wire in &wires {
        kit.frame(relay_frame::eose(wire));
    }
    for sub in 0..n {
        assert_eq!(kit.messages(SubId(sub)), [Message::CaughtUp]);
    }
    (kit, wires)
}

fn texts(messages: &[Message]) -> Vec<&str> {
    let texts = messages.iter().map(|message| match message {
        Message::Event(event) => event.content.as_str(),
        Message::CaughtUp => "caught up",
        Message::Closed(_) => "closed",
    });
    texts.collect()
}

#[test]
fn forty_channels_cost_at_most_five_frames_and_are_told_apart() {
    let (mut kit, wires) = live(40);
    assert!(wires.len() <= 5, "{wires:?}");
    kit.frame(event_frame(&wires[1], &event(9, 13, 1, UNIX)));
    for sub in 0..40 {
        let expected = if sub == 13 { 1 } else { 0 };
        assert_eq!(kit.messages(SubId(sub)).len(), expected, "{sub}");
    }
}

#[test]
fn a_single_subscription_waits_no_longer_than_the_linger() {
    let mut kit = Kit::online(false);
    subscribe(&mut kit, 0..1);
    assert_eq!(kit.sent(), Vec::<String>::new());
    kit.until(ms(10));
    assert_eq!(kit.sent(), [r##"["REQ","b0",{"#h":["0"]}]"##]);
}

#[test]
fn two_subscriptions_to_the_same_events_both_get_them() {
    let mut kit = Kit::online(false);
    for sub in [1, 2] {
        kit.command(Command::Subscribe(SubId(sub), vec![channel(1)]));
    }
    kit.until(ms(10));
    let wire = wire_of(&kit.sent()[0]);
    // A relay sends an event of two filters once or twice; both are right.
    for _ in 0..2 {
        kit.frame(event_frame(&wire, &event(9, 1, 1, UNIX)));
    }
    assert_eq!(texts(&kit.messages(SubId(1))), ["1"]);
    assert_eq!(texts(&kit.messages(SubId(2))), ["1"]);
}

#[test]
fn nothing_unverified_or_unwanted_reaches_the_consumer() {
    let (mut kit, wires) = live(1);
    let good = event(9, 0, 1, UNIX);
    let forged = Event {
        content: "forged".into(),
        ..good.clone()
    };
    let mut wrong_sig = good.clone();
    wrong_sig.sig.0[40] ^= 1;
    for bad in [&forged, &wrong_sig, &event(9, 7, 1, UNIX)] {
        kit.frame(event_frame(&wires[0], bad));
    }
    for text in [
        "",
        "[]",
        "[\"EVENT\"]",
        "[\"EVENT\",\"b0\",{}]",
        "\u{0}",
        "[\"EOSE\",\"\"]",
    ] {
        kit.frame(text);
    }
    kit.frame(event_frame("b99", &good));
    kit.frame(event_frame("other", &good));
    assert_eq!(kit.messages(SubId(0)), []);
    // A forgery with its id does not hide the good one.
    kit.frame(event_frame(&wires[0], &good));
    assert_eq!(texts(&kit.messages(SubId(0))), ["1"]);
}

#[test]
fn closed_by_a_rate_limit_is_asked_again_after_the_gate() {
    let (mut kit, wires) = live(1);
    kit.frame(event_frame(&wires[0], &event(9, 0, 1, UNIX)));
    kit.frame(relay_frame::closed(
        &wires[0],
        "rate-limited: fell behind; retry in 1s",
    ));
    kit.until(ms(999));
    assert_eq!(kit.sent(), Vec::<String>::new());
    kit.until(ms(1200));
    let since = UNIX - 5;
    let expected = format!(r##"["REQ","b0",{{"#h":["0"],"since":{since},"limit":500}}]"##);
    assert_eq!(kit.sent(), [expected]);
    kit.frame(relay_frame::eose(&wires[0]));
    assert_eq!(
        texts(&kit.messages(SubId(0))),
        ["1"],
        "caught up comes once"
    );
}

#[test]
fn closed_for_another_reason_ends_the_stream_with_it() {
    let (mut kit, wires) = live(1);
    kit.frame(relay_frame::closed(&wires[0], "restricted: members only"));
    let reason = "restricted: members only".to_owned();
    assert_eq!(kit.messages(SubId(0)), [Message::Closed(reason)]);
    kit.frame(event_frame(&wires[0], &event(9, 0, 1, UNIX)));
    assert_eq!(kit.messages(SubId(0)), []);
}

#[test]
fn closed_restricted_on_one_of_ten_subscriptions_costs_no_reconnect() {
    let mut world = World::new(1, Config::default(), false);
    world.relay.restricted = vec![4];
    for n in 0..10 {
        world.subscribe(n, vec![channel(n)], true);
    }
    world.until(secs(10));
    for (sub, consumer) in &world.consumers {
        let closed = (sub.0 == 4).then(|| "restricted: no".to_owned());
        assert_eq!(consumer.closed, closed);
        assert_eq!(consumer.caught_up, sub.0 != 4);
    }
    assert_eq!(world.dials.len(), 1);
    assert!(world.sent_of("REQ").len() <= 11);
    world.relay_takes(event(9, 9, 1, UNIX));
    world.until(secs(11));
    assert_eq!(world.consumers[&SubId(9)].got.len(), 1);
}

#[test]
fn unsubscribing_closes_an_empty_req_and_narrows_a_half_empty_one() {
    let (mut kit, wires) = live(4);
    kit.command(Command::Unsubscribe(SubId(0)));
    assert_eq!(kit.sent(), Vec::<String>::new());
    kit.command(Command::Unsubscribe(SubId(1)));
    let sent = kit.sent();
    assert_eq!(sent.len(), 1);
    assert!(
        wire_of(&sent[0]) == wires[0] && !sent[0].contains("[\"1\"]"),
        "{sent:?}"
    );
    kit.frame(event_frame(&wires[0], &event(9, 1, 1, UNIX)));
    assert_eq!(kit.messages(SubId(1)), []);
    kit.frame(relay_frame::eose(&wires[0]));
    kit.command(Command::Unsubscribe(SubId(2)));
    kit.command(Command::Unsubscribe(SubId(3)));
    assert_eq!(
        kit.sent().last().map(String::as_str),
        Some("[\"CLOSE\",\"b0\"]")
    );
}

#[test]
fn a_relay_that_wants_a_login_for_reading_gets_the_reqs_again_after_it() {
    let mut world = World::new(1, Config::default(), true);
    world.relay.auth_required = true;
    for n in 0..40 {
        world.subscribe(n, vec![channel(n)], true);
    }
    world.until(secs(10));
    assert!(world.consumers.values().all(|consumer| consumer.caught_up));
    assert!(world.sent_of("REQ").len() <= 8);
}

#[test]
fn eighty_subscriptions_against_fifty_frames_in_five_seconds_are_live_within_twenty() {
    for max_filters in [1, 10] {
        let config = Config {
            max_filters,
            ..Config::default()
        };
        // The world asserts that there are never more than 50 frames in any 5 s.
        let mut world = World::new(1, config, false);
        world.relay.quota = Some(50);
        for n in 0..80 {
            world.subscribe(n, vec![channel(n)], true);
        }
        world.until(secs(20));
        assert!(world.consumers.values().all(|consumer| consumer.caught_up));
        assert_eq!(world.relay.refusals, 0);
        for n in 0..80 {
            world.relay_takes(event(9, n, 1, UNIX));
        }
        world.until(secs(21));
        assert!(
            world
                .consumers
                .values()
                .all(|consumer| consumer.got.len() == 1)
        );
    }
}

#[test]
fn a_message_finds_room_while_eighty_subscriptions_are_opened() {
    let config = Config {
        max_filters: 1,
        ..Config::default()
    };
    let mut world = World::new(1, config, false);
    world.relay.quota = Some(50);
    for n in 0..80 {
        world.subscribe(n, vec![channel(n)], true);
    }
    world.until(ms(500));
    let id = world.publish(1, event(9, 1, 1, UNIX));
    world.until(ms(1000));
    assert!(world.results[&id].is_ok());
}

#[test]
fn ten_refusals_in_two_seconds_and_four_lost_sockets_in_a_minute_then_live_within_sixty_seconds() {
    for seed in 0..50 {
        let mut world = World::new(seed, Config::default(), false);
        for n in 0..40 {
            world.subscribe(n, vec![channel(n)], true);
        }
        world.until(secs(5));
        for n in 0..10 {
            world.relay_notices("rate-limited: slow down");
            world.until(secs(5) + ms(n * 200));
        }
        for n in 0..4 {
            world.until(secs(10 + n * 15));
            world.drop_socket();
        }
        let last = world.at;
        world.until(last + secs(60));
        for n in 0..40 {
            world.relay_takes(event(9, n, 1, UNIX));
        }
        world.until(last + secs(61));
        let live = world
            .consumers
            .values()
            .filter(|consumer| consumer.got.len() == 1);
        assert_eq!(live.count(), 40, "seed {seed}");
    }
}

#[test]
fn the_limits_a_relay_advertises_are_kept_to_and_do_not_follow_to_the_next() {
    let mut kit = Kit::online(false);
    let limits = RelayLimits {
        max_filters: Some(2),
        ..RelayLimits::default()
    };
    kit.input(Input::Limits("ws://elsewhere".into(), limits));
    subscribe(&mut kit, 0..8);
    kit.until(ms(10));
    assert_eq!(kit.sent().len(), 1, "another relay's limits");
    kit.input(Input::Limits("ws://relay".into(), limits));
    subscribe(&mut kit, 8..16);
    kit.until(ms(20));
    assert_eq!(kit.sent().len(), 4);
    kit.command(Command::Switch("ws://other".into()));
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
    assert_eq!(kit.sent().len(), 2);
}

#[test]
fn an_event_that_one_of_two_subscriptions_had_no_room_for_comes_to_that_one_alone() {
    let mut kit = Kit::online(false);
    for sub in [1, 2] {
        kit.command(Command::Subscribe(SubId(sub), vec![channel(1)]));
    }
    kit.until(ms(10));
    let wire = wire_of(&kit.sent()[0]);
    for n in 0..257 {
        kit.frame(event_frame(&wire, &event(9, 1, n, UNIX)));
        kit.input(Input::Took(SubId(1), 1));
    }
    assert_eq!(kit.messages(SubId(1)).len(), 257);
    assert_eq!(kit.messages(SubId(2)).len(), 256);
    kit.input(Input::Took(SubId(2), 1));
    kit.frame(event_frame(&wire, &event(9, 1, 256, UNIX)));
    assert_eq!(kit.messages(SubId(1)), []);
    assert_eq!(texts(&kit.messages(SubId(2))), ["256"]);
}

#[test]
fn a_req_is_not_narrowed_before_its_eose() {
    let mut kit = Kit::online(false);
    subscribe(&mut kit, 0..4);
    kit.until(ms(10));
    kit.sent();
    for n in 0..3 {
        kit.command(Command::Unsubscribe(SubId(n)));
    }
    assert_eq!(kit.sent(), Vec::<String>::new());
}
