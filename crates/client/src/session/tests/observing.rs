//! The drain of observer frames.

use buzz_protocol::Event;

use super::{super::*, kit::*};

fn frame(n: u64) -> Event {
    event(24_200, 1, n, UNIX)
}

fn observe(kit: &mut Kit, numbers: std::ops::Range<u64>) {
    for n in numbers {
        kit.command(Command::Observe(Box::new(frame(n))));
    }
}

/// The numbers of the frames sent since the last call.
fn numbers(kit: &mut Kit) -> Vec<u64> {
    let sent = kit.sent();
    let number = |text: &String| {
        let parts: serde_json::Value = serde_json::from_str(text).unwrap();
        parts[1]["content"].as_str().unwrap().parse().unwrap()
    };
    sent.iter().map(number).collect()
}

#[test]
fn at_most_one_frame_a_second_and_a_window_in_flight() {
    let mut kit = Kit::online(false);
    observe(&mut kit, 0..20);
    assert_eq!(numbers(&mut kit), [0]);
    kit.until(ms(999));
    assert_eq!(numbers(&mut kit), [0; 0]);
    kit.until(ms(7999));
    assert_eq!(numbers(&mut kit), [1, 2, 3, 4, 5, 6, 7]);
    kit.until(ms(9999));
    assert_eq!(numbers(&mut kit), [0; 0], "eight are unanswered");
    kit.ok(&frame(0), true, "");
    assert_eq!(numbers(&mut kit), [8]);
}

#[test]
fn a_refusal_puts_that_one_frame_back_at_the_head_in_order_and_arms_the_gate() {
    let mut kit = Kit::online(false);
    observe(&mut kit, 0..6);
    kit.until(secs(3));
    assert_eq!(numbers(&mut kit), [0, 1, 2, 3]);
    kit.ok(&frame(2), false, "rate-limited: quota; retry in 2s");
    kit.ok(&frame(1), false, "rate-limited: quota; retry in 2s");
    kit.ok(&frame(3), true, "");
    kit.until(ms(4999));
    assert_eq!(numbers(&mut kit), [0; 0], "the gate is armed");
    kit.until(secs(9));
    assert_eq!(numbers(&mut kit), [1, 2, 4, 5]);
}

#[test]
fn a_notice_puts_back_all_that_is_unanswered() {
    let mut kit = Kit::online(false);
    observe(&mut kit, 0..5);
    kit.until(secs(3));
    assert_eq!(numbers(&mut kit), [0, 1, 2, 3]);
    kit.ok(&frame(1), true, "");
    kit.frame(relay_frame::notice("rate-limited: slow down; retry in 1s"));
    kit.until(secs(9));
    assert_eq!(numbers(&mut kit), [0, 2, 3, 4]);
}

/// Kills: a COUNT's NOTICE taken for another frame's; a NOTICE of its own, which comes later or says
/// something else, taken for the COUNT's.
#[test]
fn the_notice_of_a_refused_count_puts_nothing_back() {
    let refusal = "rate-limited: quota exceeded; retry in 1s";
    for (between, notice, again) in [
        (None, refusal, false),
        (
            Some(event_frame("b0", &event(9, 1, 1, UNIX))),
            refusal,
            false,
        ),
        (Some(relay_frame::eose("b0")), refusal, true),
        (
            None,
            "rate-limited: too many concurrent requests; retry in 1s",
            true,
        ),
    ] {
        let mut kit = Kit::online(false);
        observe(&mut kit, 0..1);
        assert_eq!(numbers(&mut kit), [0]);
        kit.command(Command::Count(RequestId(7), vec![channel(1)]));
        kit.sent();
        kit.frame(relay_frame::closed("q7", refusal));
        if let Some(between) = between {
            kit.frame(between);
        }
        kit.frame(relay_frame::notice(notice));
        kit.until(secs(4));
        let sent = kit.sent();
        let telemetry = sent.iter().filter(|text| text.contains("EVENT"));
        assert_eq!(telemetry.count(), usize::from(again), "{notice}");
    }
}

#[test]
fn the_oldest_is_dropped_and_counted_when_the_drain_is_full() {
    let mut kit = Kit::new(false);
    observe(&mut kit, 0..1010);
    assert_eq!(kit.session.observer_dropped(), 10);
    kit.open();
    kit.lose();
    kit.until(secs(2));
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
    assert_eq!(numbers(&mut kit), [10]);
}

#[test]
fn other_refusals_drop_the_frame_and_silence_ends_its_place_in_the_window() {
    let mut kit = Kit::online(false);
    observe(&mut kit, 0..10);
    kit.ok(&frame(0), false, "restricted: no");
    kit.until(ms(8500));
    assert_eq!(numbers(&mut kit), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    kit.until(ms(10_900));
    assert_eq!(numbers(&mut kit), [0; 0]);
    kit.until(ms(11_000));
    assert_eq!(numbers(&mut kit), [9], "frame 1 is forgotten after 10 s");
}

#[test]
fn an_armed_gate_and_messages_go_before_telemetry() {
    let mut kit = Kit::online(false);
    kit.frame(relay_frame::notice("rate-limited: quota; retry in 2s"));
    observe(&mut kit, 0..1);
    let message = event(9, 1, 77, UNIX);
    kit.publish(&message);
    kit.until(secs(3));
    assert_eq!(numbers(&mut kit), [77, 0]);
}
