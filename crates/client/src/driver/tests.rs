//! The driver over a byte pipe, on a paused clock: time passes only where somebody waits for it.

#![allow(clippy::unwrap_used)]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use buzz_protocol::{Event, Filter, Tag, UnsignedEvent, relay_frame};
use futures_util::{SinkExt, StreamExt};
use secp256k1::{Keypair, SecretKey};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::Message as Ws};

use crate::{
    Client, Config, Error, Message,
    socket::{Io, Transport},
};

type Server = WebSocketStream<DuplexStream>;

/// A transport whose other ends come out of the channel.
fn pipes(buffer: usize) -> (Transport, mpsc::UnboundedReceiver<DuplexStream>) {
    let (ends, accepted) = mpsc::unbounded_channel();
    let ends = Arc::new(Mutex::new(ends));
    let transport: Transport = Arc::new(move |_, _| {
        let (ours, theirs) = tokio::io::duplex(buffer);
        ends.lock().unwrap().send(theirs).unwrap();
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Io>) })
    });
    (transport, accepted)
}

fn client(transport: Transport) -> Client {
    let config = Config {
        read_information: false,
        ..Config::default()
    };
    let builder = Client::builder("ws://relay").config(config);
    builder.transport(transport).connect().unwrap()
}

fn event(n: u64) -> Event {
    let keys = Keypair::from_secret_key(&SecretKey::from_secret_bytes([3; 32]).unwrap());
    let unsigned = UnsignedEvent {
        created_at: 1_700_000_000 + n,
        kind: 9,
        tags: vec![Tag::new(["h", "a"])],
        content: n.to_string(),
    };
    unsigned.sign(&keys)
}

async fn next_text(server: &mut Server) -> String {
    loop {
        match server.next().await.unwrap().unwrap() {
            Ws::Text(text) => return text.as_str().to_owned(),
            Ws::Close(_) => panic!("closed"),
            _ => {}
        }
    }
}

/// The name of the REQ that comes next.
async fn next_req(server: &mut Server) -> String {
    let text = next_text(server).await;
    let parts: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(parts[0], "REQ", "{text}");
    parts[1].as_str().unwrap().to_owned()
}

async fn send_event(server: &mut Server, wire: &str, event: &Event) {
    let text = format!("{}{}]", relay_frame::event_prefix(wire), event.to_json());
    server.send(Ws::text(text)).await.unwrap();
}

/// The time from a ping to its pong.
async fn ping(server: &mut Server) -> Duration {
    let sent = Instant::now();
    server.send(Ws::Ping(vec![7].into())).await.unwrap();
    while !matches!(server.next().await.unwrap().unwrap(), Ws::Pong(_)) {}
    sent.elapsed()
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_within_a_millisecond_through_three_overload_rounds() {
    let (transport, mut accepted) = pipes(1 << 20);
    let client = client(transport);
    let mut sub = client.subscribe(vec![Filter::default()]);
    let mut server = accept_async(accepted.recv().await.unwrap()).await.unwrap();
    let wire = next_req(&mut server).await;
    server
        .send(Ws::text(relay_frame::eose(&wire)))
        .await
        .unwrap();
    let events: Vec<Event> = (0..900).map(event).collect();
    let mut requests = 0;
    for round in events.chunks(300) {
        for event in round {
            send_event(&mut server, &wire, event).await;
        }
        assert!(ping(&mut server).await < Duration::from_millis(1));
        // The consumer wakes up and takes what it has; then the recovery is asked for.
        let mut got = 0;
        while let Ok(Some(message)) = timeout(Duration::from_millis(1), sub.next()).await {
            got += usize::from(matches!(message, Message::Event(_)));
        }
        // What the consumer took and has not reported yet still counts as queued.
        assert!((224..=256).contains(&got), "{got}");
        let recovery = next_req(&mut server).await;
        requests += 1;
        for event in &round[got..] {
            send_event(&mut server, &recovery, event).await;
        }
        server
            .send(Ws::text(relay_frame::eose(&recovery)))
            .await
            .unwrap();
        assert!(ping(&mut server).await < Duration::from_millis(1));
        for event in &round[got..] {
            let message = Message::Event(Box::new(
                buzz_protocol::VerifiedEvent::verify(event.clone()).unwrap(),
            ));
            assert_eq!(sub.next().await, Some(message));
        }
        assert!(next_text(&mut server).await.starts_with("[\"CLOSE\""));
    }
    assert_eq!(requests, 3);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_takes_nothing_blocks_neither_reading_nor_calls_nor_the_close() {
    let (transport, mut accepted) = pipes(4096);
    let client = client(transport);
    let mut sub = client.subscribe(vec![Filter::default()]);
    let mut server = accept_async(accepted.recv().await.unwrap()).await.unwrap();
    let wire = next_req(&mut server).await;
    // Nothing is read from here on: the pipe fills up with these.
    let publishes: Vec<_> = (0..40)
        .map(|n| tokio::spawn(client.publish(event(n))))
        .collect();
    tokio::time::sleep(Duration::from_millis(10)).await;
    send_event(&mut server, &wire, &event(1)).await;
    assert!(matches!(sub.next().await, Some(Message::Event(_))));
    let start = Instant::now();
    client.close().await;
    for publish in publishes {
        assert_eq!(publish.await.unwrap(), Err(Error::Closed));
    }
    assert!(start.elapsed() < Duration::from_millis(1));
    assert_eq!(sub.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn what_the_relay_advertises_is_kept_to() {
    let (transport, mut accepted) = pipes(1 << 16);
    let builder = Client::builder("ws://relay/chat").transport(transport);
    let client = builder.connect().unwrap();
    let mut http = accepted.recv().await.unwrap();
    let mut request = [0; 1024];
    let n = http.read(&mut request).await.unwrap();
    let request = String::from_utf8_lossy(&request[..n]);
    assert_eq!(
        request,
        "GET /chat HTTP/1.0\r\nHost: relay\r\nAccept: application/nostr+json\r\n\r\n"
    );
    let limits = r#"{"max_filters":2,"rate_limits":{"human":{"frames":5,"window_secs":20}}}"#;
    let response = format!("HTTP/1.1 200 OK\r\n\r\n{{\"limitation\":{limits}}}");
    http.write_all(response.as_bytes()).await.unwrap();
    drop(http);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut server = accept_async(accepted.recv().await.unwrap()).await.unwrap();
    let _subs: Vec<_> = (0..8)
        .map(|_| client.subscribe(vec![Filter::default()]))
        .collect();
    for _ in 0..4 {
        let text = next_text(&mut server).await;
        assert_eq!(text.matches("{}").count(), 2, "{text}");
    }
    // Four of five frames are for subscriptions; then one message has room, and the next has not.
    let start = Instant::now();
    for n in 0..2 {
        tokio::spawn(client.publish(event(n)));
        next_text(&mut server).await;
        assert_eq!(start.elapsed() >= Duration::from_secs(20), n == 1);
    }
}

/// Answers the next request for the relay's information with `limitation`.
async fn inform(accepted: &mut mpsc::UnboundedReceiver<DuplexStream>, limitation: &str) {
    let mut http = accepted.recv().await.unwrap();
    let mut request = [0; 1024];
    let n = http.read(&mut request).await.unwrap();
    assert!(request[..n].ends_with(b"application/nostr+json\r\n\r\n"));
    let response = format!("HTTP/1.1 200 OK\r\n\r\n{{\"limitation\":{limitation}}}");
    http.write_all(response.as_bytes()).await.unwrap();
}

/// How many REQs eight subscriptions cost on the next socket.
async fn reqs(accepted: &mut mpsc::UnboundedReceiver<DuplexStream>, n: usize) -> Server {
    let mut server = accept_async(accepted.recv().await.unwrap()).await.unwrap();
    for _ in 0..n {
        next_req(&mut server).await;
    }
    let more = timeout(Duration::from_secs(1), next_text(&mut server)).await;
    assert!(more.is_err(), "more than {n}: {more:?}");
    server
}

/// Kills: limits asked for once only, when the relay was away; asked again with every dial; those
/// of the relay that was left kept, or not asked again where the client comes back to it.
#[tokio::test(start_paused = true)]
async fn limits_are_asked_for_until_they_are_known_and_anew_after_a_switch() {
    let (transport, mut accepted) = pipes(1 << 16);
    let builder = Client::builder("ws://relay").transport(transport);
    let client = builder.connect().unwrap();
    let _subs: Vec<_> = (0..8)
        .map(|_| client.subscribe(vec![Filter::default()]))
        .collect();
    // The relay is away for its information; the defaults stand.
    drop(accepted.recv().await.unwrap());
    drop(reqs(&mut accepted, 1).await);
    inform(&mut accepted, r#"{"max_filters":2}"#).await;
    drop(reqs(&mut accepted, 4).await);
    // Known by now: the next pipe is the socket's.
    let old = reqs(&mut accepted, 4).await;
    client.switch("ws://relay").unwrap();
    inform(&mut accepted, r#"{"max_filters":4}"#).await;
    reqs(&mut accepted, 2).await;
    drop(old);
}

#[tokio::test(start_paused = true)]
async fn a_socket_gone_quiet_is_replaced() {
    let (transport, mut accepted) = pipes(4096);
    let client = client(transport);
    let start = Instant::now();
    let _silent = accept_async(accepted.recv().await.unwrap()).await.unwrap();
    let _second = accept_async(accepted.recv().await.unwrap()).await.unwrap();
    // Ping after 30 s, 10 s for its answer, at most a second of backoff.
    let after = start.elapsed().as_secs();
    assert!((40..=41).contains(&after), "{after}");
    client.close().await;
}

/// A client and a relay that reads `bytes` every five seconds and says something every second; how
/// long until the client dials again, within a minute.
async fn dials_again_after(bytes: usize) -> Option<Duration> {
    let (transport, mut accepted) = pipes(4096);
    let client = client(transport);
    let mut server = accept_async(accepted.recv().await.unwrap()).await.unwrap();
    // A hundred kilobytes: far more than the pipe holds.
    let publishes: Vec<_> = (0..300)
        .map(|n| tokio::spawn(client.publish(event(n))))
        .collect();
    let start = Instant::now();
    for second in 0..60 {
        let notice = Ws::text(relay_frame::notice("still here"));
        // Once the client is gone, the pipe is closed.
        let _ = server.send(notice).await;
        if second % 5 == 4 && bytes > 0 {
            let mut read = vec![0; bytes];
            let _ = server.get_mut().read_exact(&mut read).await;
        }
        if timeout(Duration::from_secs(1), accepted.recv())
            .await
            .is_ok()
        {
            return Some(start.elapsed());
        }
    }
    client.close().await;
    drop(publishes);
    None
}

/// Kills: a stall that is noticed only when nothing arrives either; one that a queue of frames
/// hides; a slow line taken for a stall because no frame was written whole.
#[tokio::test(start_paused = true)]
async fn a_write_that_stalls_ends_the_socket_and_a_slow_one_does_not() {
    let after = dials_again_after(0).await.unwrap().as_secs();
    assert!((10..=13).contains(&after), "{after}");
    assert_eq!(dials_again_after(100).await, None);
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_the_socket() {
    let (transport, mut accepted) = pipes(4096);
    let client = client(transport);
    let sub = client.subscribe(vec![Filter::default()]);
    let mut server = accept_async(accepted.recv().await.unwrap()).await.unwrap();
    next_req(&mut server).await;
    drop(client);
    drop(sub);
    loop {
        match server.next().await {
            Some(Ok(Ws::Close(_))) | None => break,
            Some(Ok(_)) => {}
            Some(Err(error)) => panic!("not a clean end: {error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn urls_that_are_no_relays_are_refused() {
    for url in ["", "relay", "http://relay", "ws://", "wss:// x"] {
        let error = Client::builder(url).connect().err();
        assert!(matches!(error, Some(Error::Url(_))), "{url}: {error:?}");
    }
}
