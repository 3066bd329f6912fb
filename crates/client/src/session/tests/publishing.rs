//! What becomes of a publish: the table of OK answers, the gate, the deadline, and what cancels
//! a retry.

use buzz_protocol::Event;

use super::{super::*, kit::*};

const QUOTA: &str = "rate-limited: quota exceeded; retry in 3s";

fn message(n: u64) -> Event {
    event(9, 1, n, UNIX)
}

fn refused(reason: &str) -> Result<Answer, Error> {
    Err(Error::Refused {
        reason: reason.into(),
    })
}

fn published(duplicate: bool) -> Result<Answer, Error> {
    Ok(Answer::Published(Published { duplicate }))
}

#[test]
fn the_table_of_ok_answers() {
    for (accepted, text, result) in [
        (true, "", Some(published(false))),
        (true, "info: hello", Some(published(false))),
        (true, "duplicate: have it", Some(published(true))),
        (false, "duplicate: have it", Some(published(true))),
        (false, "rate-limited: slow down", None),
        (false, "auth-required: log in", None),
        (false, "blocked: no", Some(refused("blocked: no"))),
        (false, "invalid: no", Some(refused("invalid: no"))),
        (false, "error: no", None),
        (false, "pow: 20 bits", Some(refused("pow: 20 bits"))),
        (false, "restricted: no", Some(refused("restricted: no"))),
        (false, "no prefix", Some(refused("no prefix"))),
        (false, "", Some(refused(""))),
    ] {
        let mut kit = Kit::online(true);
        let id = kit.publish(&message(1));
        assert_eq!(kit.sent().len(), 1);
        kit.ok(&message(1), accepted, text);
        assert_eq!(kit.results(id), Vec::from_iter(result), "{accepted} {text}");
    }
}

#[test]
fn a_refused_publish_is_sent_again_once_the_gate_clears_and_only_once() {
    let mut kit = Kit::online(false);
    let id = kit.publish(&message(1));
    kit.sent();
    kit.ok(&message(1), false, QUOTA);
    kit.until(ms(2999));
    assert_eq!(kit.sent(), Vec::<String>::new());
    kit.until(ms(3200));
    assert_eq!(kit.sent().len(), 1);
    assert_eq!(kit.results(id), []);
    kit.ok(&message(1), false, "rate-limited: still; retry in 1s");
    assert_eq!(
        kit.results(id),
        [refused("rate-limited: still; retry in 1s")]
    );
    kit.until(secs(60));
    assert_eq!(kit.sent(), Vec::<String>::new());
}

#[test]
fn a_gate_that_ends_after_the_deadline_fails_at_once_with_the_relays_reason() {
    let mut kit = Kit::online(false);
    let (first, text) = (
        kit.publish(&message(1)),
        "rate-limited: later; retry in 26s",
    );
    kit.ok(&message(1), false, text);
    assert_eq!(kit.results(first), [refused(text)]);
    // A publish made while the gate is armed knows as much.
    let second = kit.publish(&message(2));
    assert_eq!(kit.results(second), [refused(text)]);
    kit.until(secs(10));
    let third = kit.publish(&message(3));
    assert_eq!(kit.results(third), []);
}

#[test]
fn a_gate_that_another_refusal_prolongs_past_the_deadline_fails_what_waits() {
    let mut kit = Kit::online(false);
    let id = kit.publish(&message(1));
    kit.ok(&message(1), false, QUOTA);
    kit.frame(relay_frame::notice("rate-limited: later; retry in 60s"));
    assert_eq!(kit.results(id), [refused(QUOTA)]);
}

#[test]
fn a_notice_arms_the_gate_and_sends_nothing_again() {
    let mut kit = Kit::online(false);
    let id = kit.publish(&message(1));
    kit.sent();
    kit.frame(relay_frame::notice(QUOTA));
    let later = kit.publish(&message(2));
    assert_eq!(kit.sent(), Vec::<String>::new(), "the gate is armed");
    kit.until(secs(4));
    let sent = kit.sent();
    assert!(
        sent.len() == 1 && sent[0].contains(&message(2).id.to_hex()),
        "{sent:?}"
    );
    kit.ok(&message(1), true, "");
    assert_eq!(kit.results(id), [published(false)]);
    assert_eq!(kit.results(later), []);
}

/// A publish that was refused and waits for the gate.
fn waiting_for_retry() -> (Kit, RequestId) {
    let mut kit = Kit::online(false);
    let id = kit.publish(&message(1));
    kit.ok(
        &message(1),
        false,
        "rate-limited: quota exceeded; retry in 20s",
    );
    kit.sent();
    (kit, id)
}

fn nothing_is_sent_later(mut kit: Kit) {
    kit.open();
    kit.until(secs(90));
    assert_eq!(kit.sent(), Vec::<String>::new());
}

#[test]
fn a_reset_cancels_the_retry() {
    let (mut kit, id) = waiting_for_retry();
    kit.lose();
    assert_eq!(
        kit.results(id),
        [refused("rate-limited: quota exceeded; retry in 20s")]
    );
    kit.until(secs(2));
    nothing_is_sent_later(kit);
}

#[test]
fn a_switch_to_another_relay_cancels_the_retry() {
    let (mut kit, id) = waiting_for_retry();
    kit.command(Command::Switch("ws://other".into()));
    assert_eq!(kit.results(id), [Err(Error::Switched)]);
    nothing_is_sent_later(kit);
}

#[test]
fn a_close_cancels_the_retry_and_all_later_calls() {
    let (mut kit, id) = waiting_for_retry();
    kit.command(Command::Close);
    assert_eq!(kit.results(id), [Err(Error::Closed)]);
    let late = kit.publish(&message(2));
    assert_eq!(kit.results(late), [Err(Error::Closed)]);
    kit.command(Command::Switch("ws://other".into()));
    kit.until(secs(90));
    assert!(
        !kit.outputs
            .iter()
            .any(|output| matches!(output, Output::Dial(..)))
    );
    assert_eq!(kit.sent(), Vec::<String>::new());
}

#[test]
fn a_timeout_cancels_the_retry() {
    let mut kit = Kit::online(false);
    let id = kit.publish(&message(1));
    kit.until(secs(10));
    kit.ok(
        &message(1),
        false,
        "rate-limited: quota exceeded; retry in 14s",
    );
    kit.sent();
    // Held up once more, by a gate that is armed just before it opens.
    kit.until(secs(23));
    kit.frame(relay_frame::notice("rate-limited: more; retry in 1s"));
    kit.session.gate.write_failed(secs(24));
    kit.until(secs(25));
    assert_eq!(
        kit.results(id),
        [refused("rate-limited: quota exceeded; retry in 14s")]
    );
    kit.until(secs(90));
    assert_eq!(kit.sent(), Vec::<String>::new());
}

#[test]
fn one_deadline_counts_from_the_call_whatever_it_waits_for() {
    // Offline, then unanswered: still 25 s from the call.
    let mut kit = Kit::new(false);
    kit.input(Input::Tick);
    let id = kit.publish(&message(1));
    kit.until(secs(9));
    kit.open();
    assert_eq!(kit.session.wake_at(), Some(secs(25)));
    kit.until(ms(24_999));
    assert_eq!(kit.results(id), []);
    kit.until(secs(25));
    assert_eq!(kit.results(id), [Err(Error::Timeout)]);
}

#[test]
fn a_hundred_publishes_during_a_backoff_dial_nothing_extra() {
    let mut kit = Kit::online(false);
    kit.lose();
    for n in 0..100 {
        kit.publish(&message(n));
    }
    let dials = |kit: &Kit| {
        let dials = kit.outputs.iter();
        dials
            .filter(|output| matches!(output, Output::Dial(..)))
            .count()
    };
    assert_eq!(dials(&kit), 0);
    kit.until(secs(1));
    assert_eq!(dials(&kit), 1);
}

#[test]
fn after_a_lost_socket_a_stored_event_is_sent_again_and_an_ephemeral_one_is_not() {
    let mut kit = Kit::online(false);
    let ephemeral = event(20_001, 1, 1, UNIX);
    let (stored_id, ephemeral_id) = (kit.publish(&message(1)), kit.publish(&ephemeral));
    assert_eq!(kit.sent().len(), 2);
    kit.lose();
    assert_eq!(kit.results(ephemeral_id), [Err(Error::Disconnected)]);
    assert_eq!(kit.results(stored_id), []);
    kit.until(secs(1));
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
    assert_eq!(kit.sent().len(), 1);
    kit.ok(&message(1), true, "duplicate: already have this event");
    assert_eq!(kit.results(stored_id), [published(true)]);
}

#[test]
fn twenty_tasks_waiting_on_one_refusal_resume_without_a_burst() {
    let mut kit = Kit::online(false);
    kit.frame(relay_frame::notice(QUOTA));
    for n in 0..20 {
        kit.publish(&message(n));
    }
    let mut sent = Vec::new();
    for tenth in 0..100 {
        kit.until(ms(tenth * 100));
        sent.push(kit.sent().len());
    }
    assert_eq!(sent.iter().sum::<usize>(), 20);
    assert_eq!(sent[..30].iter().sum::<usize>(), 0);
    assert!(sent.iter().all(|n| *n <= 1), "{sent:?}");
}

#[test]
fn a_full_queue_of_ephemeral_frames_drops_those_and_never_a_message() {
    let mut kit = Kit::online(false);
    kit.lose();
    let message_id = kit.publish(&message(1));
    for n in 0..1500 {
        kit.command(Command::Observe(Box::new(event(24_200, 1, n, UNIX))));
    }
    assert_eq!(kit.session.observer_dropped(), 500);
    kit.until(secs(1));
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
    let sent = kit.sent();
    assert!(
        sent[0].contains(&message(1).id.to_hex()),
        "the message goes first"
    );
    kit.ok(&message(1), true, "");
    assert_eq!(kit.results(message_id), [published(false)]);
}

#[test]
fn more_waiting_calls_than_the_bound_fail_at_once() {
    let mut kit = Kit::new(false);
    let ids: Vec<_> = (0..1025).map(|n| kit.publish(&message(n % 5))).collect();
    assert_eq!(kit.results(ids[1023]), []);
    assert_eq!(kit.results(ids[1024]), [Err(Error::TooMany)]);
    kit.until(secs(30));
    assert_eq!(kit.results(ids[1023]), [Err(Error::Timeout)]);
    assert_eq!(kit.results(ids[1024]), [Err(Error::TooMany)], "once");
}

#[test]
fn a_refused_count_is_asked_again_after_the_gate() {
    let mut kit = Kit::online(false);
    kit.command(Command::Count(RequestId(7), vec![channel(1)]));
    assert_eq!(kit.sent().len(), 1);
    kit.frame(relay_frame::closed("q7", QUOTA));
    kit.frame(relay_frame::notice(QUOTA));
    kit.until(secs(4));
    assert_eq!(kit.sent().len(), 1);
    kit.frame(relay_frame::count("q7", 42));
    assert_eq!(kit.results(RequestId(7)), [Ok(Answer::Count(42))]);
}

#[test]
fn a_frame_that_was_not_written_is_not_taken_as_sent() {
    let mut kit = Kit::online(false);
    let id = RequestId(1);
    let publish = Command::Publish(id, Box::new(message(1)));
    kit.session.handle(Input::Command(publish), kit.now());
    let Some(Output::Send(_, ticket, _)) = kit.session.next_output() else {
        panic!("nothing sent");
    };
    kit.input(Input::WriteFailed(ticket));
    kit.until(ms(999));
    assert_eq!(kit.sent(), Vec::<String>::new(), "not in a tight loop");
    kit.until(secs(1));
    assert_eq!(kit.sent().len(), 1);
    kit.ok(&message(1), true, "");
    assert_eq!(kit.results(id), [published(false)]);
}
