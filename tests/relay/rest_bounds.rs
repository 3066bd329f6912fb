//! REST bodies and requests that try to cost more than they may.

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use buzz_testkit::{
    Author, Client, eventually,
    http::exchange,
    rest::{authorization, post, post_bytes, post_with, publish},
    soon,
};

use crate::RELAY;

const MAX: usize = 3_000;

fn chunked(path: &str, header: &str, chunks: &[&str]) -> Vec<u8> {
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: relay.test\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n{header}\r\n"
    );
    for chunk in chunks {
        request += &format!("{:x}\r\n{chunk}\r\n", chunk.len());
    }
    request.into_bytes()
}

/// A filter of exactly that many bytes.
fn filter_of(bytes: usize) -> String {
    let filter = |value: &str| format!("{{\"#t\":[\"{value}\"]}}");
    filter(&"x".repeat(bytes - filter("").len()))
}

/// Mutants: no limit; a limit on announced lengths alone; `>=` for `>`.
#[tokio::test]
async fn a_body_of_the_limit_is_taken_and_a_byte_more_is_413() {
    let relay = RELAY
        .start_with(&format!("server.max_frame_bytes = {MAX}"))
        .await;
    let author = Author::new(1);
    for (length, status) in [(MAX, 200), (MAX + 1, 413), (50 * MAX, 413)] {
        let body = filter_of(length);
        let whole = post(&relay, &author, "/count", &body).await;
        let header = authorization(&author, "/count", &body);
        let (one, two) = body.split_at(length / 2);
        let request = chunked("/count", &header, &[one, two, ""]);
        let in_chunks = exchange(relay.addr, "chunks", &request).await;
        for response in [whole, in_chunks] {
            assert_eq!(response.status, status, "{length}: {}", response.body);
            if status == 413 {
                assert_eq!(response.json()["error"], json!("too_large"));
                let message = response.json()["message"].to_string();
                assert!(message.contains(&MAX.to_string()), "{message}");
            }
        }
    }
}

/// Mutant: the body read to its end before anything is checked.
#[tokio::test]
async fn a_body_that_is_not_wanted_is_not_waited_for() {
    let relay = RELAY
        .start_with(&format!("server.max_frame_bytes = {MAX}"))
        .await;
    let author = Author::new(1);
    let unsigned = chunked("/count", "", &["{"]);
    let response = exchange(relay.addr, "no authorization", &unsigned).await;
    assert_eq!(response.status, 401, "{}", response.body);
    let header = authorization(&author, "/count", "{}");
    let announced =
        format!("POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n{header}\r\n{{");
    let response = exchange(relay.addr, "a length", announced.as_bytes()).await;
    assert_eq!(response.status, 413, "{}", response.body);
    let get = "GET /count HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab";
    let response = exchange(relay.addr, "another method", get.as_bytes()).await;
    assert_eq!(response.status, 405, "{}", response.body);
}

/// Mutants: memory for what comes behind the limit; no end to a body without one.
#[tokio::test]
async fn an_endless_body_costs_no_more_than_the_limit() {
    let relay = RELAY
        .start_with(&format!("server.max_frame_bytes = {MAX}"))
        .await;
    let header = authorization(&Author::new(1), "/count", "{}");
    let before = relay.resident_bytes();
    let mut stream = TcpStream::connect(relay.addr).await.expect("a connection");
    let head = chunked("/count", &header, &[]);
    stream.write_all(&head).await.expect("a request");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    // How much is read until the answer is out and the time to close is over depends on the
    // machine; that it ends, and that nothing of it is kept, does not.
    soon("the relay's refusal to read on", async {
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let growth = relay.resident_bytes().saturating_sub(before);
    assert!(growth < 8 << 20, "{growth} bytes");
}

/// Mutant: a permit that is not given back where its client has gone.
#[tokio::test]
async fn a_client_that_goes_away_leaves_no_permit_behind() {
    let relay = RELAY.start_with("server.handler_permits = 2").await;
    let author = Author::new(1);
    let note = author.note("stored or not").sign().to_json();
    for n in 0..40 {
        let (path, body) = [
            ("/events", note.as_str()),
            ("/query", "{}"),
            ("/count", "{}"),
        ][n % 3];
        let request = post_bytes(path, &authorization(&author, path, body), body);
        // All of it, or all but its end.
        let end = request.len() - usize::from(n % 2 == 0);
        let mut stream = TcpStream::connect(relay.addr).await.expect("a connection");
        stream.write_all(&request[..end]).await.expect("a request");
        drop(stream);
    }
    for n in 0..3 {
        eventually("both permits", async || {
            let request = |path, body| {
                let (relay, author) = (&relay, &author);
                async move { post(relay, author, path, body).await.status }
            };
            let (one, two) = tokio::join!(request("/count", "{}"), request("/query", "{}"));
            (one == 200 && two == 200).then_some(())
        })
        .await;
        let last = author.note(&n.to_string()).sign();
        assert!(publish(&relay, &author, &last).await.0);
    }
}

/// Mutants: no permit taken; another status.
#[tokio::test]
async fn without_a_handler_permit_a_request_is_told_to_come_back() {
    let relay = RELAY.start_with("server.handler_permits = 1").await;
    let author = Author::new(1);
    let mut refused = 0u32;
    while refused == 0 {
        let requests = (0..32).map(|_| post(&relay, &author, "/count", "{}"));
        for response in futures_util::future::join_all(requests).await {
            if response.status == 200 {
                continue;
            }
            assert_eq!(response.status, 503);
            assert_eq!(response.header("retry-after"), Some("1"));
            let text = "rate-limited: too many concurrent requests; retry in 1s";
            let error = json!({"error": "unavailable", "message": text});
            assert_eq!(response.json(), error);
            refused += 1;
        }
    }
    let rejected = "buzz_admission_rejections_total{transport=\"http\",reason=\"handler\"}";
    assert_eq!(relay.metrics().await.get(rejected), f64::from(refused));
}

/// Mutant: a connection closed behind every answer; a body's rest taken for the next request.
#[tokio::test]
async fn one_connection_carries_many_requests() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut stream = TcpStream::connect(relay.addr).await.expect("a connection");
    for body in ["{}", "x", "[{},{}]"] {
        let request = post_bytes("/count", &authorization(&author, "/count", body), body);
        let request = String::from_utf8(request).expect("text");
        let request = request.replace("Connection: close\r\n", "");
        stream
            .write_all(request.as_bytes())
            .await
            .expect("a request");
        let mut answer = String::new();
        soon("an answer", async {
            while !answer.contains('}') {
                let mut bytes = [0; 4096];
                let n = stream.read(&mut bytes).await.expect("an open connection");
                assert!(n > 0, "closed behind {answer}");
                answer += &String::from_utf8_lossy(&bytes[..n]);
            }
        })
        .await;
        let status = if body == "x" { "400" } else { "200" };
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
}

/// Mutant: a page, a reader or a permit held for a client that does not read.
#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nobody() {
    let relay = RELAY
        .start_with("server.handler_permits = 4\ndatabase.readers = 5")
        .await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let content = "x".repeat(100_000);
    for n in 0..60u64 {
        client
            .accept(&author.note(&format!("{n}{content}")).at(1_000 + n).sign())
            .await;
    }
    let before = relay.resident_bytes();
    let mut idle = Vec::new();
    for _ in 0..30 {
        let request = post_bytes("/query", &authorization(&author, "/query", "{}"), "{}");
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket
            .set_recv_buffer_size(16 * 1024)
            .expect("a small buffer");
        let mut stream = socket.connect(relay.addr).await.expect("a connection");
        stream.write_all(&request).await.expect("a request");
        let mut first = [0; 12];
        soon("an answer's head", stream.read_exact(&mut first))
            .await
            .expect("a head");
        assert_eq!(&first, b"HTTP/1.1 200");
        idle.push(stream);
    }
    let one = post(&relay, &author, "/query", "{\"limit\":1}").await;
    assert_eq!(one.status, 200, "{}", one.body);
    let growth = relay.resident_bytes().saturating_sub(before);
    assert!(growth < 32 << 20, "{growth} bytes for 30 idle answers");
    let unsigned = post_with(&relay, "/count", "", "{}").await;
    assert_eq!(unsigned.status, 401);
}

/// Kills: bodies that are read however many there are; a place among them that is never given back;
/// a refusal that does not say to come again.
#[tokio::test]
async fn slow_bodies_are_bounded_and_leave_sockets_alone() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut slow = Vec::new();
    for _ in 0..256 {
        let header = authorization(&author, "/count", "{}");
        let head = format!(
            "POST /count HTTP/1.1\r\nHost: relay.test\r\nContent-Length: 2\r\n{header}\r\n{{"
        );
        let mut stream = TcpStream::connect(relay.addr).await.expect("a connection");
        stream.write_all(head.as_bytes()).await.expect("a request");
        slow.push(stream);
    }
    let refused = eventually("a body too many", async || {
        let response = post(&relay, &author, "/count", "{}").await;
        (response.status != 200).then_some(response)
    });
    let refused = refused.await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let note = author.note("sockets go on").sign();
    Client::connect(&relay).await.accept(&note).await;
    drop(slow);
    eventually("an answer again", async || {
        (post(&relay, &author, "/count", "{}").await.status == 200).then_some(())
    })
    .await;
}

/// Kills: calls of an address that are not counted before they are checked.
#[tokio::test]
async fn calls_of_an_address_are_bounded_whoever_signs_them() {
    let relay = RELAY
        .start_with("admission.handshakes_per_ip_per_min = 3")
        .await;
    for number in 0..3 {
        let response = post(&relay, &Author::new(number), "/count", "{}").await;
        assert_eq!(response.status, 200, "{}", response.body);
    }
    let response = post_with(&relay, "/count", "", "{}").await;
    assert_eq!(response.status, 429, "{}", response.body);
    assert_eq!(response.json()["limit_type"], "address");
    let wait = response.json()["retry_after_secs"]
        .as_u64()
        .expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
}
