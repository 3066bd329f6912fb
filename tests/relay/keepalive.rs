//! Who is still there: pings to silent clients, and clients that go away while they wait.

use buzz_protocol::relay_frame::RelayFrame;
use buzz_testkit::{
    Author, Client,
    cluster::Lock,
    eventually,
    raw::{RawSocket, frame},
    relay::URL,
};
use serde_json::json;

use crate::{RELAY, caps};

/// Kills: no pings; a client that answers none and stays; one that answers and is cut.
#[tokio::test]
async fn silent_clients_are_pinged_and_cut_when_they_answer_no_ping() {
    let relay = RELAY.start_with("server.ping = \"200ms\"").await;
    let mut quiet = RawSocket::connect(&relay).await;
    // This library answers pings by itself.
    let mut answering = Client::connect(&relay).await;
    answering.subscribe("s", json!({})).await;
    let live = tokio::spawn(async move { answering.live().await });
    let mut pings = 0;
    while let Some((opcode, _)) = quiet.frame().await {
        pings += u32::from(opcode == 9);
    }
    assert_eq!(pings, 2);
    let published = Author::new(1).note("x").sign();
    let mut other = Client::connect(&relay).await;
    other.accept(&published).await;
    assert_eq!(live.await.expect("a client").1, published);
}

/// Kills: a challenge on connect all the same; none before an answer that asks for a login; one
/// before each.
#[tokio::test]
async fn a_challenge_that_waits_for_its_need_comes_before_the_first_answer_that_asks() {
    let settings = "auth.required = true\nauth.challenge = \"need\"";
    let relay = RELAY.start_with(settings).await;
    let mut raw = RawSocket::connect(&relay).await;
    let mut frames = Vec::new();
    for sub in ["s", "t"] {
        let req = format!("[\"REQ\",\"{sub}\",{{}}]");
        raw.send(&frame(true, 1, req.as_bytes())).await;
    }
    for _ in 0..3 {
        let (_, payload) = raw.frame().await.expect("a frame");
        frames.push(String::from_utf8(payload).expect("UTF-8"));
    }
    let begins = [
        "[\"AUTH\",",
        "[\"CLOSED\",\"s\",\"auth-required:",
        "[\"CLOSED\",\"t\",\"auth-required:",
    ];
    assert!(
        frames
            .iter()
            .zip(begins)
            .all(|(frame, begin)| frame.starts_with(begin)),
        "{frames:?}"
    );
    let mut client = Client::connect(&relay).await;
    client.send(json!(["REQ", "s", {}])).await;
    client.log_in(&Author::new(1)).await;
    assert_eq!(client.fetch(json!({})).await, []);
}

/// Kills: a login or a read whose socket is gone that keeps its place at a gate or costs a look-up;
/// an abandoned login that counts as anything else; outcomes that do not add up to the logins.
#[tokio::test]
async fn what_waits_for_a_client_that_is_gone_keeps_no_place() {
    let settings = "auth.wait = \"30s\"\nhistory.wait = \"30s\"\n\
                    history.statement_timeout = \"30s\"";
    let (relay, url) = caps::relay(settings, &[(caps::AUTH, 1), (caps::HISTORY, 1)]).await;
    let (members, events) = (Lock::on(&url, "member"), Lock::on(&url, "event"));
    let mut first = Client::connect(&relay).await;
    let login = Author::new(1).login(&first.challenge().await, URL).sign();
    first.send(json!(["AUTH", login])).await;
    caps::gate_shows(&relay, "in_flight", "auth", 1.0).await;
    let mut reader = Client::connect(&relay).await;
    reader.send(json!(["REQ", "first", {}])).await;
    caps::gate_shows(&relay, "in_flight", "history_reads", 1.0).await;
    for number in 2..12 {
        let mut gone = Client::connect(&relay).await;
        let login = Author::new(number)
            .login(&gone.challenge().await, URL)
            .sign();
        gone.send(json!(["AUTH", login])).await;
        let mut gone_too = Client::connect(&relay).await;
        for sub in 0..16 {
            gone_too.send(json!(["REQ", sub.to_string(), {}])).await;
        }
        caps::gate_shows(&relay, "waiting", "auth", (number - 1) as f64).await;
        drop((gone, gone_too));
    }
    eventually("the sockets are gone", || async {
        let open = relay.metrics().await.get("buzz_ws_connections_active");
        (open == 2.0).then_some(())
    })
    .await;
    drop((members, events));
    assert_eq!(first.verdict(&login).await, (true, String::new()));
    assert_eq!(
        reader
            .find(|frame| matches!(frame, RelayFrame::Eose { .. }).then_some(()))
            .await,
        ()
    );
    caps::gate_shows(&relay, "waiting", "auth", 0.0).await;
    caps::gate_shows(&relay, "waiting", "history_reads", 0.0).await;
    let metrics = relay.metrics().await;
    let outcome = |outcome| {
        metrics.get(&format!(
            "buzz_auth_outcomes_total{{outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!((outcome("ok"), outcome("abandoned")), (1.0, 10.0));
    assert_eq!(metrics.get("buzz_db_seconds_count{op=\"role\"}"), 1.0);
    assert_eq!(metrics.get("buzz_db_seconds_count{op=\"read\"}"), 1.0);
    assert_eq!(
        metrics.get("buzz_concurrency_shed_total{gate=\"auth\"}"),
        0.0
    );
}

/// Kills: a clean end that abandons a login although an event waits behind it.
#[tokio::test]
async fn an_event_sent_right_behind_a_login_is_stored_though_the_client_ends() {
    let relay = RELAY.start_with("auth.required = true").await;
    let author = Author::new(1);
    let mut raw = RawSocket::connect(&relay).await;
    let (_, challenge) = raw.frame().await.expect("a challenge");
    let challenge: Vec<String> = serde_json::from_slice(&challenge).expect("a frame");
    let event = author.note("sent at once").sign();
    let login = author.login(&challenge[1], URL).sign();
    let mut bytes = frame(true, 1, json!(["AUTH", login]).to_string().as_bytes());
    bytes.extend(frame(
        true,
        1,
        json!(["EVENT", event]).to_string().as_bytes(),
    ));
    raw.send(&bytes).await;
    drop(raw);
    let mut reader = Client::connect(&relay).await;
    reader.log_in(&author).await;
    eventually("the event is stored", async || {
        (reader.fetch(json!({})).await == [event.clone()]).then_some(())
    })
    .await;
}
