//! Clients that use what is allowed to harm others: each found in an attack on the relay.

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use buzz_testkit::{
    Author, Client, Relay, http,
    raw::{RawSocket, TEXT, frame},
    soon,
};

use crate::RELAY;

fn text(frame_text: &str) -> Vec<u8> {
    frame(true, TEXT, frame_text.as_bytes())
}

/// All that the relay says before it closes.
async fn answer_to(relay: &Relay, request: &str) -> String {
    let mut stream = TcpStream::connect(relay.addr).await.expect("a connection");
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("a request");
    let mut answer = Vec::new();
    let _ = soon("the end", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Mutant: counts sent to the readers.
#[tokio::test]
async fn a_burst_of_counts_holds_up_no_read() {
    let relay = RELAY.start_with("history.wait = \"60s\"").await;
    let author = Author::new(1);
    let mut publisher = Client::connect(&relay).await;
    let events: Vec<_> = (0..5_000u64)
        .map(|n| author.note(&n.to_string()).at(1_000 + n).sign())
        .collect();
    for event in &events {
        publisher
            .send_text(&format!("[\"EVENT\",{}]", event.to_json()))
            .await;
    }
    for _ in &events {
        publisher.next().await;
    }
    let mut counters = Vec::new();
    for _ in 0..40 {
        let mut socket = RawSocket::connect(&relay).await;
        for _ in 0..16 {
            socket.send(&text("[\"COUNT\",\"c\",{}]")).await;
        }
        counters.push(socket);
    }
    // The burst is at work.
    counters[0].text().await;
    publisher.fetch(json!({"limit": 1})).await;
    assert_eq!(http::get(relay.admin, "/readyz").await.status, 200);
    let waiting = "buzz_concurrency_waiting{gate=\"counts\"}";
    let waiting = relay.metrics().await.get(waiting);
    assert!(waiting > 0.0, "the read was served behind the counts");
}

/// Mutant: rows behind a deletion's keys read whole, also those of other authors (60 MB here).
#[tokio::test]
async fn a_deletion_of_anothers_large_events_takes_no_memory_for_them() {
    let relay = RELAY.start().await;
    let (author, stranger) = (Author::new(1), Author::new(2));
    let mut client = Client::connect(&relay).await;
    let mut targets = Vec::new();
    for n in 0..300u64 {
        let event = author.note(&"x".repeat(200_000)).at(1_000 + n).sign();
        client.accept(&event).await;
        targets.push(event.id.to_hex());
    }
    let before = relay.resident_bytes();
    let tags: Vec<_> = targets.iter().map(|id| ("e", id.as_str())).collect();
    client.accept(&stranger.deletion(&tags).sign()).await;
    let growth = relay.resident_bytes().saturating_sub(before);
    assert!(growth < 20 << 20, "{growth} bytes");
    let count = client.count(json!({"kinds": [1]})).await;
    assert_eq!(count, Ok(300), "another key's request does nothing");
}

/// Mutant: the payload of a chunked request dropped with its handler.
#[tokio::test]
async fn a_request_whose_body_never_ends_is_refused_and_closed() {
    let relay = RELAY.start().await;
    for method in ["GET", "POST"] {
        let head = format!("{method} / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n");
        let answer = answer_to(&relay, &format!("{head}\r\n5\r\nab")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
}

#[tokio::test]
async fn other_methods_and_half_handshakes_are_told_so() {
    let relay = RELAY.start().await;
    let upgrade = "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n";
    for (head, status) in [
        ("PUT / HTTP/1.1\r\n".to_owned(), "405"),
        (
            "OPTIONS / HTTP/1.1\r\nConnection: close\r\n".to_owned(),
            "204",
        ),
        (
            format!("GET / HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n{upgrade}"),
            "400",
        ),
        // An upgrade that the relay does not know is ignored (RFC 9110, section 7.8).
        (
            format!("GET / HTTP/1.1\r\nUpgrade: h2c\r\n{upgrade}"),
            "200",
        ),
    ] {
        let answer = answer_to(&relay, &format!("{head}Host: x\r\n\r\n")).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}: {answer}"
        );
    }
}

/// Mutant: a close frame ends the connection with events in work.
#[tokio::test]
async fn an_event_sent_right_before_a_close_is_answered_and_counted() {
    let relay = RELAY.start().await;
    let mut socket = RawSocket::connect(&relay).await;
    let event = Author::new(1).note("last words").sign();
    let mut bytes = text(&format!("[\"EVENT\",{}]", event.to_json()));
    bytes.extend(frame(
        true,
        buzz_testkit::raw::CLOSE,
        &1000u16.to_be_bytes(),
    ));
    socket.send(&bytes).await;
    let answer = socket.text().await;
    assert!(answer.contains("true"), "{answer}");
    let metrics = relay.metrics().await;
    assert_eq!(metrics.get("buzz_events_total{outcome=\"accepted\"}"), 1.0);
}

/// Mutant: the file's identity not checked: the writer goes on into a file that has no name.
#[tokio::test]
async fn nothing_is_acknowledged_into_a_database_file_that_was_removed() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    client.accept(&author.note("before").sign()).await;
    let aside = relay.database().with_extension("aside");
    std::fs::rename(relay.database(), &aside).expect("the database");
    client.refuse(&author.note("lost").sign(), "error: ").await;
    assert_eq!(http::get(relay.admin, "/readyz").await.status, 503);
    assert!(!relay.database().exists(), "a reader made a new one");
    std::fs::rename(aside, relay.database()).expect("the database");
    client.accept(&author.note("after").sign()).await;
    assert_eq!(client.fetch(json!({})).await.len(), 2);
}

/// Mutant: no lock.
#[tokio::test]
async fn a_second_relay_on_the_same_file_does_not_start() {
    let relay = RELAY.start().await;
    // Killed where it runs on, so that the test fails and does not hang.
    let mut second = tokio::process::Command::from(RELAY.command(relay.dir()));
    second.kill_on_drop(true);
    let output = soon("the second relay's end", second.output()).await;
    let output = output.expect("the binary");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("another relay serves this file"), "{error}");
}
