//! What one address may do: sockets, handshakes, invalid signatures.

use buzz_protocol::relay_frame::RelayFrame;

use crate::{RELAY, admission::logged_in, admission::reqs};
use buzz_testkit::{
    Author, Client, Relay, eventually,
    http::{self, UPGRADE},
    raw::RawSocket,
    relay::URL,
};

async fn handshake(relay: &Relay, headers: &str) -> http::Response {
    http::request(relay.addr, "/", &format!("{UPGRADE}{headers}")).await
}

/// Kills: a bound over all addresses; a place that is never given back; a refusal without its
/// status or its time.
#[tokio::test]
async fn an_address_opens_so_many_sockets() {
    let relay = RELAY
        .start_with("admission.connections_per_ip = 2\nserver.trusted_proxies = [\"127.0.0.1/32\"]")
        .await;
    let first = Client::connect(&relay).await;
    let _second = Client::connect(&relay).await;
    let refused = handshake(&relay, "").await;
    assert_eq!(refused.status, 429);
    let after: u32 = refused
        .header("Retry-After")
        .expect("a time")
        .parse()
        .expect("seconds");
    assert!(after >= 1);
    let elsewhere = handshake(&relay, "X-Forwarded-For: 203.0.113.7\r\n").await;
    assert_eq!(elsewhere.status, 101);
    let refusals = "buzz_admission_rejections_total{transport=\"http\",reason=\"quota\"}";
    assert_eq!(relay.metrics().await.get(refusals), 1.0);
    drop(first);
    eventually("a place comes free", async || {
        (handshake(&relay, "").await.status == 101).then_some(())
    })
    .await;
}

/// Kills: a rate over all addresses; one that counts what is no handshake.
#[tokio::test]
async fn an_address_shakes_hands_so_often() {
    let relay = RELAY
        .start_with(
            "admission.handshakes_per_ip_per_min = 3\nserver.trusted_proxies = [\"127.0.0.1/32\"]",
        )
        .await;
    for _ in 0..10 {
        assert_eq!(http::relay_information(relay.addr).await.status, 200);
    }
    for _ in 0..3 {
        assert_eq!(handshake(&relay, "").await.status, 101);
    }
    let refused = handshake(&relay, "").await;
    assert_eq!(refused.status, 429);
    let after: u32 = refused
        .header("Retry-After")
        .expect("a time")
        .parse()
        .expect("seconds");
    assert!((50..=60).contains(&after), "{after}");
    for (address, status) in [("203.0.113.7", 101), ("2001:db8:0:1::1", 101)] {
        let header = format!("X-Forwarded-For: {address}\r\n");
        assert_eq!(handshake(&relay, &header).await.status, status, "{address}");
    }
}

/// Kills: an address that is made up by the client; one budget for all behind a proxy.
#[tokio::test]
async fn a_forwarded_address_counts_from_trusted_proxies_alone() {
    let quota = "admission.human_ws_events_per_sec = 5\nadmission.burst_window = \"30s\"\n";
    for (trusted, others_served) in [("[\"127.0.0.1/32\"]", true), ("[]", false)] {
        let relay = RELAY
            .start_with(&format!("{quota}server.trusted_proxies = {trusted}"))
            .await;
        let mut used_up = RawSocket::connect_with(&relay, "X-Forwarded-For: 203.0.113.1\r\n").await;
        // The last of the list is what the proxy saw; the rest is what the client says.
        let headers = "X-Forwarded-For: 203.0.113.1, 203.0.113.2\r\n";
        let mut other = RawSocket::connect_with(&relay, headers).await;
        let req = buzz_testkit::raw::frame(
            true,
            buzz_testkit::raw::TEXT,
            b"[\"REQ\",\"s\",{\"limit\":0}]",
        );
        for _ in 0..150 {
            used_up.send(&req).await;
            assert!(used_up.text().await.starts_with("[\"EOSE\""));
        }
        used_up.send(&req).await;
        assert!(used_up.text().await.starts_with("[\"CLOSED\""));
        other.send(&req).await;
        assert_eq!(
            other.text().await.starts_with("[\"EOSE\""),
            others_served,
            "{trusted}"
        );
    }
}

/// Kills: a forger who spends the budget of the key he claims; one who is checked for ever once he
/// has logged in; a neighbour at the same address who suffers.
#[tokio::test]
async fn invalid_signatures_count_against_the_address_they_come_from() {
    let relay = RELAY
        .start_with("admission.invalid_signatures_per_ip_per_min = 3")
        .await;
    let (forger, victim) = (Author::new(1), Author::new(2));
    let mut bad = logged_in(&relay, &forger).await;
    for n in 0..4 {
        let mut forged = victim.note(&n.to_string()).sign();
        forged.content += "!";
        bad.refuse(&forged, "invalid: ").await;
    }
    // The fourth was too much: from now on nothing is checked for this socket.
    eventually("the forger is refused", async || {
        let (accepted, why) = bad.publish(&forger.note("honest").sign()).await;
        (!accepted && why.starts_with("rate-limited: quota exceeded; retry in ")).then_some(())
    })
    .await;
    // Reads need no check.
    assert_eq!(reqs(&mut bad, 1).await, [None]);
    // The victim and the neighbour, at the same address, are served.
    let mut good = logged_in(&relay, &victim).await;
    good.accept(&victim.note("mine").sign()).await;
    // A login that is shed gets a bare close.
    let challenge = bad.challenge().await;
    let login = forger.login(&challenge, URL).sign();
    bad.send_text(&format!("[\"AUTH\",{}]", login.to_json()))
        .await;
    loop {
        match bad.try_next().await {
            Some(RelayFrame::Ok { id, .. }) => assert!(id != login.id, "no OK"),
            Some(_) => {}
            None => break,
        }
    }
    relay
        .log
        .line_with(&["connection finished: denied/invalid_signatures"])
        .await;
}
