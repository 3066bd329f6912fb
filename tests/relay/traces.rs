//! Traces (OTLP over HTTP): one a frame, with what was done for it.

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use buzz_testkit::{Author, Client, soon};

use crate::RELAY;

/// Takes what is posted, and says which paths and bytes came.
async fn collect(listener: TcpListener, received: watch::Sender<Vec<u8>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, received.clone()));
    }
}

async fn serve(mut stream: TcpStream, received: watch::Sender<Vec<u8>>) {
    let mut unread = Vec::new();
    let mut chunk = vec![0; 65_536];
    while let Ok(n @ 1..) = stream.read(&mut chunk).await {
        unread.extend_from_slice(&chunk[..n]);
        received.send_modify(|all| all.extend_from_slice(&chunk[..n]));
        while let Some(length) = request_length(&unread) {
            unread.drain(..length);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
    }
}

/// The length of the first request, once it is complete.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let body = text
        .split("content-length:")
        .nth(1)?
        .lines()
        .next()?
        .trim()
        .parse::<usize>();
    let length = head + body.ok()?;
    (bytes.len() >= length).then_some(length)
}

fn contains(bytes: &[u8], part: &str) -> bool {
    bytes
        .windows(part.len())
        .any(|window| window == part.as_bytes())
}

#[tokio::test]
async fn a_frame_is_one_trace_with_its_steps() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = listener.local_addr().expect("an address");
    let (received, mut traces) = watch::channel(Vec::new());
    tokio::spawn(collect(listener, received));
    let relay = RELAY
        .start_with(&format!("telemetry.otlp_endpoint = \"http://{endpoint}\""))
        .await;
    let mut client = Client::connect(&relay).await;
    let note = Author::new(1).note("SECRET77").sign();
    client.accept(&note).await;
    client.fetch(json!({"kinds": [1]})).await;
    let all = |bytes: &Vec<u8>| {
        [
            "POST /v1/traces",
            "buzz-relay",
            "parse",
            "verify",
            "write",
            "read",
            "send",
        ]
        .iter()
        .all(|part| contains(bytes, part))
    };
    soon("a trace of each step", traces.wait_for(all))
        .await
        .expect("a collector");
    assert!(
        !contains(&traces.borrow(), "SECRET77"),
        "content in a trace"
    );
}

#[tokio::test]
async fn a_collector_that_does_not_answer_stops_nothing() {
    // Bound and never accepting: connections are taken by the system and never answered.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = listener.local_addr().expect("an address");
    let mut relay = RELAY
        .start_with(&format!("telemetry.otlp_endpoint = \"http://{endpoint}\""))
        .await;
    let mut client = Client::connect(&relay).await;
    for n in 0..50 {
        client
            .accept(&Author::new(1).note(&n.to_string()).sign())
            .await;
    }
    drop(client);
    relay.terminate();
    assert_eq!(relay.ended().await.code(), Some(0));
}
