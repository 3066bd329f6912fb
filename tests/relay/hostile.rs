//! Clients that mean harm or are broken: each costs bounded memory, ends in bounded time, and
//! leaves the others alone.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use buzz_testkit::{
    Author, Client, DEADLINE, Relay, eventually, http,
    raw::{self, RawSocket, frame},
    soon,
};

use crate::RELAY;

const MIB: u64 = 1 << 20;
const CONNECTIONS: &str = "buzz_ws_connections_active";

/// Round trips of a well-behaved client, one after the other, until `done`; the slowest tenth
/// of them is left out: the machine is shared.
async fn quick_while<T>(relay: &Relay, done: impl Future<Output = T>) -> T {
    let mut client = Client::connect(relay).await;
    let author = Author::new(77);
    let mut trips = Vec::new();
    let mut done = std::pin::pin!(done);
    let result = loop {
        let began = Instant::now();
        client
            .accept(&author.note(&trips.len().to_string()).sign())
            .await;
        client.fetch(json!({"kinds": [1], "limit": 1})).await;
        trips.push(began.elapsed());
        // The hostile work runs between the trips, on the same thread.
        tokio::select! {
            biased;
            result = &mut done => break result,
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    };
    trips.sort_unstable();
    let slow = trips[trips.len() * 9 / 10];
    assert!(
        slow < Duration::from_secs(1),
        "a good client waited {slow:?}"
    );
    result
}

async fn connections_fall_to(relay: &Relay, expected: f64) {
    eventually("the gauge falls back", async || {
        let open = relay.metrics().await.get(CONNECTIONS);
        (open == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_empty_continuations_cost_nothing_and_end() {
    let relay = RELAY.start().await;
    let before = relay.resident_bytes();
    let mut socket = RawSocket::connect(&relay).await;
    quick_while(&relay, async {
        socket
            .send(&frame(false, raw::TEXT, b"[\"REQ\",\"s\","))
            .await;
        let empty = frame(false, raw::CONTINUATION, b"");
        for _ in 0..100 {
            let _ = socket.0.write_all(&empty.repeat(100)).await;
        }
        let end = frame(true, raw::CONTINUATION, b"{\"limit\":0}]");
        let _ = socket.0.write_all(&end).await;
        // It is either answered as the one message that it is, or closed.
        let answer = loop {
            match socket.frame().await {
                Some((raw::TEXT, text)) if text.starts_with(b"[\"AUTH\"") => {}
                other => break other,
            }
        };
        match answer {
            Some((raw::TEXT, text)) => {
                let text = String::from_utf8_lossy(&text);
                assert!(
                    text == "[\"EOSE\",\"s\"]" || text.starts_with("[\"NOTICE\""),
                    "{text}"
                );
            }
            Some((raw::CLOSE, _)) | None => {}
            other => panic!("{other:?}"),
        }
    })
    .await;
    let growth = relay.resident_bytes().saturating_sub(before);
    assert!(growth < 32 * MIB, "{growth} bytes");
    drop(socket);
    connections_fall_to(&relay, 0.0).await;
}

#[tokio::test]
async fn a_frame_that_announces_gibibytes_ends_before_they_are_held() {
    let relay = RELAY.start().await;
    let before = relay.resident_bytes();
    let mut socket = RawSocket::connect(&relay).await;
    let mut head = vec![0x81, 0xff];
    head.extend((1u64 << 32).to_be_bytes());
    head.extend([0; 4]);
    socket.send(&head).await;
    let chunk = vec![b' '; 1 << 20];
    for _ in 0..64 {
        if socket.0.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let growth = relay.resident_bytes().saturating_sub(before);
    assert!(growth < 16 * MIB, "{growth} bytes");
    drop(socket);
    connections_fall_to(&relay, 0.0).await;
}

#[tokio::test]
async fn ten_thousand_requests_without_reading_are_bounded_and_end() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut publisher = Client::connect(&relay).await;
    for n in 0..100u64 {
        let event = author.note(&"x".repeat(5_000)).at(1_000 + n).sign();
        publisher.accept(&event).await;
    }
    // What serving such requests takes at all, caches included, is not this client's doing.
    let mut modest = Client::connect(&relay).await;
    for _ in 0..100 {
        modest.fetch(json!({"limit": 500})).await;
    }
    drop(modest);
    let before = relay.resident_bytes();
    let mut greedy = Client::with_small_buffer(&relay).await;
    // Writes what the relay takes; at some point it must stop taking.
    let flood = async {
        for n in 0..10_000 {
            let request = json!(["REQ", format!("s{}", n % 500), {"limit": 500}]);
            let bytes = frame(true, raw::TEXT, request.to_string().as_bytes());
            let sent = tokio::time::timeout(DEADLINE * 2, greedy.stream().write_all(&bytes));
            match sent.await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => panic!("a socket that reads nothing is still there"),
            }
        }
    };
    quick_while(&relay, flood).await;
    let growth = relay.resident_bytes().saturating_sub(before);
    assert!(
        growth < 64 * MIB,
        "{growth} bytes for one client that reads nothing"
    );
    let waited = Instant::now();
    while relay.metrics().await.get(CONNECTIONS) > 1.0 {
        assert!(waited.elapsed() < 2 * DEADLINE, "it is still there");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(greedy);
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_ended() {
    let relay = RELAY.start().await;
    let mut slow = Vec::new();
    for start in [
        "",
        "G",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nA: ",
    ] {
        let mut stream = TcpStream::connect(relay.addr).await.expect("a connection");
        stream.write_all(start.as_bytes()).await.expect("a start");
        slow.push(stream);
    }
    quick_while(&relay, async {
        for mut stream in slow {
            soon("the end of a handshake", async {
                // A byte a second keeps no connection open.
                loop {
                    let mut answer = [0; 1024];
                    let read = tokio::io::AsyncReadExt::read(&mut stream, &mut answer);
                    match tokio::time::timeout(Duration::from_secs(1), read).await {
                        Ok(Ok(0) | Err(_)) => break,
                        Ok(Ok(_)) => {}
                        Err(_) => drop(stream.write_all(b"x").await),
                    }
                }
            })
            .await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_message_that_never_ends_is_ended() {
    let relay = RELAY.start().await;
    let mut socket = RawSocket::connect(&relay).await;
    socket
        .send(&frame(true, raw::TEXT, &[b' '; 100])[..50])
        .await;
    let ended = tokio::time::timeout(2 * DEADLINE, async {
        let mut byte = [0; 64];
        while tokio::io::AsyncReadExt::read(&mut socket.0, &mut byte)
            .await
            .is_ok_and(|read| read > 0)
        {}
    });
    assert!(ended.await.is_ok(), "half a frame keeps a socket open");
    connections_fall_to(&relay, 0.0).await;
}

#[tokio::test]
async fn sockets_that_vanish_without_a_close_frame_are_forgotten() {
    let relay = RELAY.start().await;
    for reset in [false, true] {
        let mut sockets = Vec::new();
        for n in 0..50 {
            let mut client = Client::connect(&relay).await;
            client.subscribe(&format!("s{n}"), json!({})).await;
            sockets.push(client);
        }
        assert_eq!(relay.metrics().await.get(CONNECTIONS), 50.0);
        for client in &mut sockets {
            if reset {
                client.stream().set_zero_linger().expect("a socket option");
            }
        }
        drop(sockets);
        connections_fall_to(&relay, 0.0).await;
        let metrics = relay.metrics().await;
        assert_eq!(metrics.get("buzz_subscriptions_active"), 0.0);
    }
}

#[tokio::test]
async fn connections_past_the_limit_get_503_until_one_ends() {
    let relay = RELAY.start_with("server.max_connections = 3").await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(&relay).await;
        client.subscribe("s", json!({})).await;
        clients.push(client);
    }
    for _ in 0..3 {
        let answer = http::request(relay.addr, "/", http::UPGRADE).await;
        assert_eq!(answer.status, 503);
        let wait = answer.header("retry-after").expect("Retry-After");
        assert!(wait.parse::<u32>().is_ok_and(|secs| secs > 0), "{wait}");
    }
    assert_eq!(clients[0].frames_so_far().await, []);
    clients.pop();
    eventually("room for one more", async || {
        let answer = http::request(relay.addr, "/", http::UPGRADE).await;
        (answer.status == 101).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_thousand_subscriptions_of_one_socket_end_with_it() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    for n in 0..1024 {
        client
            .send(json!(["REQ", format!("s{n}"), {"limit": 0}]))
            .await;
    }
    for _ in 0..1024 {
        client.next().await;
    }
    // The fan-out counts on a thread of its own.
    eventually("the gauge shows all", async || {
        let open = relay.metrics().await.get("buzz_subscriptions_active");
        (open == 1024.0).then_some(())
    })
    .await;
    drop(client);
    eventually("the gauge falls back", async || {
        let open = relay.metrics().await.get("buzz_subscriptions_active");
        (open == 0.0).then_some(())
    })
    .await;
}
