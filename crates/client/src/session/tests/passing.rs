//! Answers that pass: `error:` and a lost socket are tried again, and nothing ends for good.

use super::{super::*, kit::*, world::World};

const AWAY: &str = "error: database unavailable";

fn refused(reason: &str) -> Result<Answer, Error> {
    Err(Error::Refused {
        reason: reason.into(),
    })
}

fn reopen(kit: &mut Kit) {
    kit.lose();
    kit.until(kit.at + secs(1));
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
}

/// Kills: a publish, a count or a subscription that ends because the database was away for a
/// moment; one that is asked again without a wait.
#[test]
fn three_seconds_without_a_database_end_nothing() {
    for seed in 0..20 {
        let mut world = World::new(seed, Config::default(), false);
        world.relay.database_away = true;
        for n in 0..40 {
            world.subscribe(n, vec![channel(n)], true);
        }
        let published = world.publish(1, event(9, 1, 1, UNIX));
        let counted = world.call(2, |id| Command::Count(id, vec![channel(7)]));
        world.until(secs(3));
        // Five REQs and calls in all, each asked at most four times in 3 s.
        assert!(world.sent.len() <= 24, "{}", world.sent.len());
        world.relay.database_away = false;
        world.until(secs(12));
        assert_eq!(world.results[&counted], Ok(Answer::Count(0)));
        assert!(world.results[&published].is_ok());
        for consumer in world.consumers.values() {
            assert!(consumer.caught_up && consumer.closed.is_none());
        }
        assert_eq!(world.dials.len(), 1);
    }
}

/// Kills: a subscription that gives up in a long outage; one asked again ever faster than once in
/// half a minute; waits that don't start anew after an answer.
#[test]
fn a_subscription_is_asked_again_for_as_long_as_it_lives() {
    let mut kit = Kit::online(false);
    kit.command(Command::Subscribe(SubId(1), vec![channel(1)]));
    kit.until(ms(10));
    let wire = wire_of(&kit.sent()[0]);
    let mut waits = Vec::new();
    for _ in 0..12 {
        kit.frame(relay_frame::closed(&wire, AWAY));
        let refused_at = kit.at;
        while kit.sent().is_empty() {
            assert!(kit.at < refused_at + secs(61), "not asked again");
            kit.until(kit.at + ms(100));
        }
        waits.push((kit.at - refused_at).as_secs_f64());
    }
    let ceilings = [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60].map(f64::from);
    for (wait, ceiling) in waits.iter().zip(ceilings) {
        assert!((ceiling / 2.0..=ceiling + 0.1).contains(wait), "{waits:?}");
    }
    kit.frame(relay_frame::eose(&wire));
    assert_eq!(kit.messages(SubId(1)), [Message::CaughtUp]);
    kit.frame(relay_frame::closed(&wire, AWAY));
    kit.until(kit.at + ms(1100));
    assert_eq!(kit.sent().len(), 1, "after an EOSE the waits start anew");
}

/// Kills: one subscription that its relay can't serve keeping those that share its REQ from being
/// live; a REQ that is taken apart at the first error, which costs a frame a subscription.
#[test]
fn an_error_that_stays_is_waited_out_by_the_subscription_at_fault_alone() {
    let mut kit = Kit::online(false);
    for n in 0..5 {
        kit.command(Command::Subscribe(SubId(n), vec![channel(n)]));
    }
    let mut live = std::collections::BTreeSet::new();
    let mut shared = 0;
    for _ in 0..600 {
        kit.until(kit.at + ms(100));
        for req in kit.sent() {
            let wire = wire_of(&req);
            shared += usize::from(req.contains("\"1\"") && req.contains("\"3\""));
            if req.contains("\"3\"") {
                kit.frame(relay_frame::closed(&wire, "error: bad filter"));
            } else {
                kit.frame(relay_frame::eose(&wire));
                live.insert(wire);
            }
        }
    }
    assert_eq!((live.len(), shared), (4, 4));
    assert_eq!(kit.messages(SubId(3)), []);
}

/// Kills: an unsubscribe in the same REQ that asks it again before its wait is over.
#[test]
fn a_neighbour_that_leaves_does_not_shorten_the_wait() {
    let mut kit = Kit::online(false);
    for n in 0..4 {
        kit.command(Command::Subscribe(SubId(n), vec![channel(n)]));
    }
    kit.until(ms(10));
    let wire = wire_of(&kit.sent()[0]);
    kit.frame(relay_frame::eose(&wire));
    kit.frame(relay_frame::closed(&wire, AWAY));
    for n in 0..3 {
        kit.command(Command::Unsubscribe(SubId(n)));
    }
    assert_eq!(kit.sent(), Vec::<String>::new());
    kit.until(ms(1100));
    assert_eq!(kit.sent().len(), 1);
}

/// Kills: a publish given up long before its time is over; one that waits although no further try
/// is possible; a result that hides the relay's words.
#[test]
fn an_error_that_stays_fails_a_publish_near_its_deadline_with_the_relays_words() {
    let mut kit = Kit::online(false);
    let message = event(9, 1, 1, UNIX);
    let id = kit.publish(&message);
    let mut tries = 0;
    while kit.results(id).is_empty() {
        assert!(kit.at < secs(26), "no result");
        if kit.sent().is_empty() {
            kit.until(kit.at + ms(50));
        } else {
            tries += 1;
            kit.ok(&message, false, AWAY);
        }
    }
    assert_eq!(kit.results(id), [refused(AWAY)]);
    assert!(kit.at >= secs(21) && kit.at < secs(25), "{:?}", kit.at);
    assert!((7..=14).contains(&tries), "{tries}");
}

/// Kills: a publish that a refusal which passes and a lost socket end together; an ephemeral event
/// that was sent, refused and sent again, and is sent a third time without an answer.
#[test]
fn a_socket_lost_after_an_error_ends_no_publish() {
    let mut kit = Kit::online(false);
    let (message, ephemeral) = (event(9, 1, 1, UNIX), event(20_001, 1, 1, UNIX));
    let (id, ephemeral_id) = (kit.publish(&message), kit.publish(&ephemeral));
    kit.ok(&message, false, AWAY);
    kit.ok(&ephemeral, false, AWAY);
    kit.sent();
    reopen(&mut kit);
    assert_eq!(kit.sent().len(), 2);
    assert_eq!(
        (kit.results(id), kit.results(ephemeral_id)),
        (vec![], vec![])
    );
    reopen(&mut kit);
    assert_eq!(kit.results(ephemeral_id), [Err(Error::Disconnected)]);
    assert_eq!(kit.sent().len(), 1);
    kit.ok(&message, true, "");
    assert_eq!(kit.results(id).len(), 1);
}

/// Kills: a publish that was refused for want of a login and fails with its socket; one that waits
/// on the next socket for a challenge that comes only when something is refused.
#[test]
fn a_publish_that_wanted_a_login_logs_in_on_the_next_socket() {
    for challenge_first in [true, false] {
        let mut kit = Kit::online(true);
        let message = event(9, 1, 1, UNIX);
        let id = kit.publish(&message);
        if challenge_first {
            kit.frame(relay_frame::auth_challenge("old"));
        }
        kit.ok(&message, false, "auth-required: log in");
        kit.sent();
        reopen(&mut kit);
        assert_eq!(kit.results(id), []);
        let challenge = relay_frame::auth_challenge("c");
        if challenge_first {
            kit.frame(challenge);
        } else {
            assert_eq!(kit.sent().len(), 1, "asked again");
            kit.frame(challenge);
            kit.ok(&message, false, "auth-required: log in");
        }
        let login = event(22_242, 0, 1, UNIX);
        let socket = kit.socket();
        kit.input(Input::Signed(
            socket,
            "c".into(),
            Ok(Box::new(login.clone())),
        ));
        kit.ok(&login, true, "");
        assert!(kit.sent().last().unwrap().contains(&message.id.to_hex()));
        kit.ok(&message, true, "");
        assert_eq!(kit.results(id).len(), 1);
    }
}

/// Kills: a login that could not be taken now ends the publish, count or login call that waits
/// for it; a call that waits on a socket that asks for no other login.
#[test]
fn a_login_that_fails_for_now_is_made_again_for_calls_too() {
    let login = |n| event(22_242, 0, n, UNIX);
    for early in [true, false] {
        let mut kit = Kit::online(true);
        let message = event(9, 1, 1, UNIX);
        let id = kit.publish(&message);
        if early {
            kit.command(Command::Authenticate(RequestId(50)));
        }
        let first = kit.socket();
        kit.frame(relay_frame::auth_challenge("c"));
        kit.ok(&message, false, "auth-required: log in");
        kit.input(Input::Signed(first, "c".into(), Ok(Box::new(login(1)))));
        kit.ok(&login(1), false, AWAY);
        assert!(kit.outputs.contains(&Output::Drop(first)));
        if !early {
            kit.command(Command::Authenticate(RequestId(50)));
        }
        kit.until(kit.at + secs(1));
        let socket = kit.socket();
        kit.input(Input::Opened(socket));
        kit.frame(relay_frame::auth_challenge("d"));
        kit.input(Input::Signed(socket, "d".into(), Ok(Box::new(login(2)))));
        kit.ok(&login(2), true, "");
        assert_eq!(kit.results(RequestId(50)), [Ok(Answer::LoggedIn)]);
        kit.ok(&message, true, "");
        assert_eq!(kit.results(id).len(), 1);
    }
}
