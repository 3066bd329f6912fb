//! SIGTERM and SIGINT: sockets are closed one after the other, what was accepted is kept, exit 0.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use buzz_protocol::relay_frame::RelayFrame;
use rustix::process::{Signal, kill_process};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use buzz_testkit::{Author, Client, eventually, http, raw::RawSocket, soon};

use crate::RELAY;

#[tokio::test]
async fn two_hundred_sockets_are_closed_with_1012_spread_evenly_over_the_drain() {
    const DRAIN: Duration = Duration::from_secs(4);
    let mut relay = RELAY.start_with("server.drain = \"4s\"").await;
    let mut sockets = Vec::new();
    for _ in 0..200 {
        let mut client = Client::connect(&relay).await;
        client.subscribe("s", json!({"limit": 0})).await;
        sockets.push(client);
    }
    let began = Instant::now();
    let closes: Vec<_> = sockets
        .into_iter()
        .map(|mut client| {
            tokio::spawn(async move {
                let close = client.close_frame().await;
                let at = began.elapsed();
                client.ends_cleanly().await;
                (close.map(|close| close.code), at)
            })
        })
        .collect();
    relay.terminate();
    let status = relay.ended().await;
    let lasted = began.elapsed();
    assert_eq!(status.code(), Some(0));
    assert!(lasted < DRAIN + Duration::from_secs(10), "{lasted:?}");

    let slot = Duration::from_millis(500);
    let mut slots = [0; 40];
    for close in closes {
        let (code, at) = close.await.expect("a reader");
        assert_eq!(code, Some(CloseCode::Restart), "after {at:?}");
        slots[at.div_duration_f64(slot) as usize] += 1;
    }
    let mean = 200 / DRAIN.div_duration_f64(slot) as usize;
    assert!(slots.iter().all(|count| *count <= 3 * mean), "{slots:?}");
    let last = slots.iter().rposition(|count| *count > 0).expect("closes");
    assert!(last >= 6, "not over the whole drain: {slots:?}");
}

#[tokio::test]
async fn while_draining_the_relay_is_not_ready_and_takes_no_new_sockets() {
    let mut relay = RELAY.start_with("server.drain = \"3s\"").await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(Client::connect(&relay).await);
    }
    assert_eq!(http::get(relay.admin, "/readyz").await.status, 200);
    relay.terminate();
    let admin = relay.admin;
    eventually("not ready", async || {
        let status = http::get(admin, "/readyz").await.status;
        (status == 503).then_some(())
    })
    .await;
    assert!(relay.is_running(), "the drain is over already");
    // Refused, never answered, or told 503: whichever, it becomes no websocket.
    let mut answer = Vec::new();
    if let Ok(mut stream) = TcpStream::connect(relay.addr).await {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: relay.test\r\nConnection: Upgrade\r\n{}\r\n",
            http::UPGRADE
        );
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = soon(
            "the end of a late connection",
            stream.read_to_end(&mut answer),
        )
        .await;
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.starts_with("HTTP/1.1 101"), "{answer}");
    assert_eq!(relay.ended().await.code(), Some(0));
}

#[tokio::test]
async fn an_interrupt_ends_it_as_well() {
    let mut relay = RELAY.start_with("server.drain = \"100ms\"").await;
    let mut client = Client::connect(&relay).await;
    client.subscribe("s", json!({})).await;
    kill_process(relay.pid(), Signal::INT).expect("the relay runs");
    let close = client.closed().await.expect("a close frame");
    assert_eq!(close.code, CloseCode::Restart);
    assert_eq!(relay.ended().await.code(), Some(0));
}

#[tokio::test]
async fn without_sockets_it_ends_at_once() {
    let mut relay = RELAY.start_with("server.drain = \"20s\"").await;
    let began = Instant::now();
    relay.terminate();
    assert_eq!(relay.ended().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn what_was_answered_before_the_end_is_what_was_stored() {
    let mut relay = RELAY.start_with("server.drain = \"500ms\"").await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    for n in 0..400 {
        let event = author.note(&n.to_string()).at(1_000 + n).sign();
        client
            .send_text(&format!("[\"EVENT\",{}]", event.to_json()))
            .await;
    }
    let mut acknowledged = HashSet::new();
    let mut told = false;
    while let Some(frame) = client.try_next().await {
        if let RelayFrame::Ok {
            id, accepted: true, ..
        } = frame
        {
            acknowledged.insert(id);
        }
        if !told {
            relay.terminate();
            told = true;
        }
    }
    assert_eq!(relay.ended().await.code(), Some(0));
    let relay = relay.again().await;
    let mut client = Client::connect(&relay).await;
    let stored = client.fetch(json!({"limit": 500})).await;
    let stored: HashSet<_> = stored.iter().map(|event| event.id).collect();
    assert_eq!(stored, acknowledged);
}

#[tokio::test]
async fn a_client_that_reads_nothing_does_not_hold_up_the_end() {
    let mut relay = RELAY.start_with("server.drain = \"500ms\"").await;
    let author = Author::new(1);
    let mut publisher = Client::connect(&relay).await;
    let mut stalled = Client::with_small_buffer(&relay).await;
    stalled.subscribe("s", json!({"limit": 0})).await;
    for n in 0..300 {
        publisher
            .accept(&author.note(&format!("{n}{}", "x".repeat(20_000))).sign())
            .await;
    }
    let mut silent = RawSocket::connect(&relay).await;
    let began = Instant::now();
    relay.terminate();
    assert_eq!(relay.ended().await.code(), Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(silent.close_code().await, Some(1012));
}
