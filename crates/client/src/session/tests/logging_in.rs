//! Logins (NIP-42): when they are made, what waits for them, and what no longer counts.

use buzz_protocol::Event;

use super::{super::*, kit::*};

const LOGIN: u16 = 22_242;

fn challenge(text: &str) -> String {
    relay_frame::auth_challenge(text)
}

fn signs(kit: &mut Kit) -> Vec<String> {
    let mut challenges = Vec::new();
    kit.outputs.retain(|output| match output {
        Output::Sign(_, challenge, url) => {
            assert_eq!(url, "ws://relay");
            challenges.push(challenge.clone());
            false
        }
        _ => true,
    });
    challenges
}

fn signed(kit: &mut Kit, challenge: &str, login: &Event) {
    let socket = kit.socket();
    kit.input(Input::Signed(
        socket,
        challenge.into(),
        Ok(Box::new(login.clone())),
    ));
}

fn login(n: u64) -> Event {
    event(LOGIN, 0, n, UNIX)
}

#[test]
fn publish_answered_auth_required_signs_in_and_retries_once() {
    let mut kit = Kit::online(true);
    let message = event(9, 1, 1, UNIX);
    let id = kit.publish(&message);
    kit.sent();
    kit.frame(challenge("c"));
    kit.ok(&message, false, "auth-required: log in");
    assert_eq!(signs(&mut kit), ["c"]);
    signed(&mut kit, "c", &login(1));
    assert!(kit.sent()[0].starts_with("[\"AUTH\""));
    kit.ok(&login(1), true, "");
    assert_eq!(kit.sent().len(), 1, "the retry");
    kit.ok(&message, false, "auth-required: not you");
    let reason = "auth-required: not you".into();
    assert_eq!(kit.results(id), [Err(Error::Refused { reason })]);
}

#[test]
fn without_a_signer_auth_required_is_final() {
    let mut kit = Kit::online(false);
    let message = event(9, 1, 1, UNIX);
    let id = kit.publish(&message);
    kit.frame(challenge("c"));
    assert_eq!(signs(&mut kit), Vec::<String>::new());
    kit.ok(&message, false, "auth-required: log in");
    let reason = "auth-required: log in".into();
    assert_eq!(kit.results(id), [Err(Error::Refused { reason })]);
    kit.command(Command::Authenticate(RequestId(9)));
    assert_eq!(kit.results(RequestId(9)), [Err(Error::NoSigner)]);
}

#[test]
fn a_refused_login_fails_what_waits_for_it_with_its_reason() {
    let mut kit = Kit::online(true);
    kit.command(Command::Subscribe(SubId(1), vec![channel(1)]));
    kit.until(ms(10));
    let wire = wire_of(&kit.sent()[0]);
    let message = event(9, 1, 1, UNIX);
    let id = kit.publish(&message);
    kit.frame(challenge("c"));
    kit.ok(&message, false, "auth-required: log in");
    kit.frame(relay_frame::closed(&wire, "auth-required: log in"));
    signed(&mut kit, "c", &login(1));
    kit.ok(&login(1), false, "restricted: not a member");
    let reason = "restricted: not a member".to_owned();
    assert_eq!(kit.results(id), [Err(Error::Refused { reason })]);
    let closed = "the relay refused: restricted: not a member".to_owned();
    assert_eq!(kit.messages(SubId(1)), [Message::Closed(closed)]);
}

#[test]
fn authenticate_resolves_only_on_ok() {
    let mut kit = Kit::online(true);
    let id = RequestId(5);
    kit.command(Command::Authenticate(id));
    kit.frame(challenge("c"));
    signed(&mut kit, "c", &login(1));
    assert_eq!(kit.results(id), [], "sent is not accepted");
    kit.ok(&login(2), true, "");
    assert_eq!(kit.results(id), [], "another event's OK");
    kit.ok(&login(1), true, "");
    assert_eq!(kit.results(id), [Ok(Answer::LoggedIn)]);
    kit.command(Command::Authenticate(RequestId(6)));
    assert_eq!(kit.results(RequestId(6)), [Ok(Answer::LoggedIn)]);
    // A new socket is not logged in.
    kit.lose();
    kit.command(Command::Authenticate(RequestId(7)));
    assert_eq!(kit.results(RequestId(7)), []);
}

#[test]
fn an_answer_to_an_old_sockets_challenge_is_never_sent_on_the_new_one() {
    let mut kit = Kit::online(true);
    kit.frame(challenge("same"));
    let old = kit.socket();
    kit.lose();
    kit.until(secs(1));
    let socket = kit.socket();
    assert_ne!(socket, old);
    kit.input(Input::Opened(socket));
    kit.frame(challenge("same"));
    kit.input(Input::Signed(old, "same".into(), Ok(Box::new(login(1)))));
    assert_eq!(kit.sent(), Vec::<String>::new());
    signed(&mut kit, "same", &login(2));
    assert!(kit.sent()[0].contains(&login(2).id.to_hex()));
}

#[test]
fn a_hundred_thousand_challenges_cost_one_slot_and_one_signature_at_a_time() {
    let mut kit = Kit::online(true);
    for n in 0..100_000 {
        kit.frame(challenge(&n.to_string()));
    }
    assert_eq!(signs(&mut kit), ["0"]);
    signed(&mut kit, "0", &login(1));
    assert_eq!(kit.sent(), Vec::<String>::new(), "a newer challenge stands");
    assert_eq!(signs(&mut kit), ["99999"]);
    signed(&mut kit, "99999", &login(2));
    assert_eq!(kit.sent().len(), 1);
}

#[test]
fn a_bare_close_during_a_login_is_an_ordinary_reconnect() {
    let mut kit = Kit::online(true);
    let id = RequestId(5);
    kit.command(Command::Authenticate(id));
    let message = kit.publish(&event(9, 1, 1, UNIX));
    kit.frame(challenge("c"));
    signed(&mut kit, "c", &login(1));
    kit.sent();
    kit.lose();
    kit.until(secs(1));
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
    kit.frame(challenge("d"));
    signed(&mut kit, "d", &login(2));
    kit.ok(&login(2), true, "");
    assert_eq!(kit.results(id), [Ok(Answer::LoggedIn)]);
    assert_eq!(kit.sent().len(), 2, "the login and the message");
    assert_eq!(kit.results(message), []);
}

#[test]
fn frames_wait_for_a_login_under_way_and_on_the_next_socket_for_its_challenge() {
    let mut kit = Kit::online(true);
    kit.frame(challenge("c"));
    kit.publish(&event(9, 1, 1, UNIX));
    assert_eq!(kit.sent(), Vec::<String>::new());
    signed(&mut kit, "c", &login(1));
    kit.ok(&login(1), true, "");
    assert_eq!(kit.sent().len(), 2);
    kit.lose();
    kit.until(secs(1));
    let socket = kit.socket();
    kit.input(Input::Opened(socket));
    assert_eq!(
        kit.sent(),
        Vec::<String>::new(),
        "the challenge is expected"
    );
    kit.until(kit.at + ms(1000));
    assert_eq!(kit.sent().len(), 1, "not for ever");
}

#[test]
fn a_signer_that_fails_ends_the_login() {
    let mut kit = Kit::online(true);
    kit.command(Command::Authenticate(RequestId(5)));
    kit.frame(challenge("c"));
    let socket = kit.socket();
    kit.input(Input::Signed(socket, "c".into(), Err("locked".into())));
    assert_eq!(
        kit.results(RequestId(5)),
        [Err(Error::Signer("locked".into()))]
    );
}

/// A subscription that waits for a login, whose AUTH was given out for writing.
fn waiting_for_a_login() -> (Kit, SocketId) {
    let mut kit = Kit::online(true);
    kit.command(Command::Subscribe(SubId(1), vec![channel(1)]));
    kit.until(ms(10));
    let wire = wire_of(&kit.sent()[0]);
    kit.frame(challenge("c"));
    kit.frame(relay_frame::closed(&wire, "auth-required: log in"));
    let socket = kit.socket();
    (kit, socket)
}

fn drops(kit: &Kit, socket: SocketId) -> bool {
    kit.outputs.contains(&Output::Drop(socket))
}

#[test]
fn a_login_without_an_answer_is_begun_anew_on_another_socket() {
    let (mut kit, socket) = waiting_for_a_login();
    signed(&mut kit, "c", &login(1));
    kit.until(secs(25));
    assert!(!drops(&kit, socket));
    kit.until(secs(26));
    assert!(drops(&kit, socket));
    assert_eq!(kit.messages(SubId(1)), []);
}

/// Kills: a database that is away for a moment ends every subscription for good, in whichever
/// order refused REQ and refused login come; a refused login costs a socket that no
/// request waits for.
#[test]
fn a_login_that_fails_for_now_is_begun_anew_on_another_socket() {
    for why in ["error: database unavailable", "rate-limited: later"] {
        let (mut kit, socket) = waiting_for_a_login();
        signed(&mut kit, "c", &login(1));
        kit.ok(&login(1), false, why);
        assert!(drops(&kit, socket), "{why}");
        assert_eq!(kit.messages(SubId(1)), [], "the subscription lives on");
        kit.until(kit.at + secs(1));
        let socket = kit.socket();
        kit.input(Input::Opened(socket));
        kit.frame(challenge("d"));
        signed(&mut kit, "d", &login(2));
        kit.ok(&login(2), true, "");
        let sent = kit.sent();
        assert!(sent.last().unwrap().starts_with("[\"REQ\""), "{sent:?}");
    }
}

#[test]
fn a_refused_login_costs_a_socket_only_where_a_subscription_needs_it() {
    let mut kit = Kit::online(true);
    kit.frame(challenge("c"));
    signed(&mut kit, "c", &login(1));
    kit.ok(&login(1), false, "error: database unavailable");
    let socket = kit.socket();
    kit.command(Command::Subscribe(SubId(1), vec![channel(1)]));
    kit.until(ms(10));
    assert!(!drops(&kit, socket));
    let sent = kit.sent();
    let wire = wire_of(sent.last().unwrap());
    kit.frame(relay_frame::closed(&wire, "auth-required: log in"));
    assert!(drops(&kit, socket));
    assert_eq!(kit.messages(SubId(1)), []);
}

#[test]
fn a_login_that_was_not_written_is_begun_anew_on_another_socket() {
    let (mut kit, socket) = waiting_for_a_login();
    let event = Ok(Box::new(login(1)));
    kit.session
        .handle(Input::Signed(socket, "c".into(), event), kit.now());
    let sent = std::iter::from_fn(|| kit.session.next_output()).find_map(|output| match output {
        Output::Send(_, ticket, text) if text.starts_with("[\"AUTH\"") => Some(ticket),
        _ => None,
    });
    kit.input(Input::WriteFailed(sent.unwrap()));
    assert!(drops(&kit, socket));
}
