//! Frames that are wrong: each gets an answer that names it where it can be named, and the
//! socket goes on.

use buzz_protocol::{Event, relay_frame::RelayFrame};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use buzz_testkit::{
    Author, Client,
    raw::{self, RawSocket, frame},
};

use crate::RELAY;

/// Sends `text`, gives its one answer, and sees that the socket goes on and said nothing else.
async fn answer(client: &mut Client, text: &str) -> RelayFrame {
    client.send_text(text).await;
    let answer = client.next().await;
    assert_eq!(client.frames_so_far().await, [], "more than one answer");
    answer
}

fn start(text: &str) -> &str {
    text.get(..120).unwrap_or(text)
}

#[tokio::test]
async fn what_names_nothing_is_answered_by_a_notice() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let long = format!("[\"{}\"]", "X".repeat(200_000));
    let deep = "[".repeat(10_000);
    let deep_event = format!("[\"EVENT\",{}", "{\"a\":".repeat(10_000));
    for text in [
        "",
        " ",
        "hello",
        "{}",
        "[]",
        "null",
        "1",
        "\"REQ\"",
        "[1]",
        "[null,\"s\",{}]",
        "[\"HELLO\",\"s\"]",
        "[\"req\",\"s\",{}]",
        "[\"REQ\"]",
        "[\"REQ\",7,{}]",
        "[\"REQ\",null]",
        "[\"COUNT\",{}]",
        "[\"CLOSE\"]",
        "[\"CLOSE\",7]",
        "[\"CLOSE\",\"s\",\"t\"]",
        "[\"EVENT\"]",
        "[\"EVENT\",null]",
        "[\"EVENT\",[]]",
        "[\"EVENT\",{}]",
        "[\"EVENT\",{\"id\":\"ab\"}]",
        "[\"AUTH\"]",
        "[\"AUTH\",\"challenge\"]",
        "[\"REQ\",\"\\ud800\",{}]",
        "[NaN]",
        &long,
        &deep,
        &deep_event,
    ] {
        match answer(&mut client, text).await {
            RelayFrame::Notice { message } => {
                assert!(
                    message.starts_with("invalid: "),
                    "{}: {message}",
                    start(text)
                );
                assert!(message.len() < 1_000, "{}: a long answer", start(text));
            }
            other => panic!("{}: {other:?}", start(text)),
        }
    }
}

#[tokio::test]
async fn a_bad_request_is_closed_by_its_id() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let hex = "ab".repeat(32);
    let (upper, short) = (hex.to_uppercase(), &hex[1..]);
    let eleven = ["{}"; 11].join(",");
    let long_value = "x".repeat(100_000);
    let deep = format!("{{\"kinds\":{}", "[".repeat(10_000));
    for filter in [
        "",
        "1",
        "null",
        "[]",
        "\"{}\"",
        "{",
        "{}}",
        "{},",
        "{},3",
        "{\"kinds\":[NaN]}",
        "{\"kinds\":[1.5]}",
        "{\"kinds\":[1e3]}",
        "{\"kinds\":[-1]}",
        "{\"kinds\":[65536]}",
        "{\"kinds\":[18446744073709551616]}",
        "{\"kinds\":[\"1\"]}",
        "{\"kinds\":1}",
        "{\"kinds\":null}",
        "{\"ids\":[7]}",
        "{\"ids\":[\"\"]}",
        &format!("{{\"ids\":[\"{upper}\"]}}"),
        &format!("{{\"ids\":[\"{short}\"]}}"),
        &format!("{{\"ids\":[\"{hex}0\"]}}"),
        &format!("{{\"authors\":[\"{upper}\"]}}"),
        &format!("{{\"authors\":[\"{short}\"]}}"),
        "{\"since\":-1}",
        "{\"since\":\"1\"}",
        "{\"until\":1.5}",
        "{\"limit\":-1}",
        "{\"limit\":18446744073709551616}",
        "{\"#e\":[1]}",
        "{\"#e\":\"x\"}",
        "{\"#t\":[\"\\ud800\"]}",
        "{\"limit\":1,\"limit\":2}",
        &eleven,
        &format!("{{\"kinds\":[\"{long_value}\"]}}"),
        &deep,
    ] {
        for verb in ["REQ", "COUNT"] {
            let text = match filter {
                "" => format!("[\"{verb}\",\"s\"]"),
                filter => format!("[\"{verb}\",\"s\",{filter}]"),
            };
            match answer(&mut client, &text).await {
                RelayFrame::Closed { sub, message } => {
                    assert_eq!(sub, "s");
                    assert!(
                        message.starts_with("invalid: "),
                        "{}: {message}",
                        start(&text)
                    );
                }
                other => panic!("{}: {other:?}", start(&text)),
            }
        }
    }
    for filter in ["{\"search\":\"x\"}", "{\"#ab\":[\"x\"]}", "{\"#\":[]}"] {
        match answer(&mut client, &format!("[\"REQ\",\"s\",{filter}]")).await {
            RelayFrame::Closed { sub, message } => {
                assert_eq!(sub, "s");
                assert!(message.starts_with("unsupported: "), "{filter}: {message}");
            }
            other => panic!("{filter}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_empty_subscription_id_is_refused() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    for verb in ["REQ", "COUNT"] {
        match answer(&mut client, &format!("[\"{verb}\",\"\",{{}}]")).await {
            RelayFrame::Closed { sub, message } => {
                assert_eq!(sub, "");
                assert!(message.starts_with("invalid: "), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_matches_nothing_is_answered_by_eose() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    client.accept(&Author::new(1).note("x").sign()).await;
    for filter in [
        json!({"ids": []}),
        json!({"authors": []}),
        json!({"kinds": []}),
        json!({"#e": []}),
        json!({"limit": 0}),
        json!({"since": 2, "until": 1}),
        json!({"since": u64::MAX}),
        json!({"until": 0}),
    ] {
        assert_eq!(client.fetch(filter.clone()).await, [], "{filter}");
    }
    let all = client
        .fetch(json!({"until": u64::MAX, "limit": u64::MAX}))
        .await;
    assert_eq!(all.len(), 1);
}

/// A signed event with one field written as `value` says.
fn with(event: &Event, field: &str, value: &str) -> String {
    let mut fields: serde_json::Map<String, Value> =
        serde_json::from_str(&event.to_json()).expect("JSON");
    fields.remove(field);
    let rest = Value::Object(fields).to_string();
    let head = rest.strip_suffix('}').expect("an object");
    format!("[\"EVENT\",{head},\"{field}\":{value}}}]")
}

#[tokio::test]
async fn a_bad_event_is_refused_by_its_id() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let event = Author::new(1).note("x").sign();
    let (key, sig) = (event.pubkey.to_hex(), event.sig.to_hex());
    let long = format!("\"{}\"", "x".repeat(100_000));
    let deep = "[".repeat(10_000);
    let mut texts = vec![
        with(&event, "content", "\"other\""),
        with(&event, "content", "7"),
        with(&event, "content", "null"),
        with(&event, "content", "\"\\ud800\""),
        with(&event, "content", "\"\\u0000\""),
        with(&event, "content", &long),
        with(&event, "kind", "\"1\""),
        with(&event, "kind", "1.0"),
        with(&event, "kind", "1e0"),
        with(&event, "kind", "-1"),
        with(&event, "kind", "65536"),
        with(&event, "kind", "18446744073709551616"),
        with(&event, "kind", "NaN"),
        with(&event, "kind", &long),
        with(&event, "created_at", "1.5"),
        with(&event, "created_at", "-1"),
        with(&event, "created_at", "\"now\""),
        with(&event, "created_at", "18446744073709551616"),
        with(&event, "tags", "{}"),
        with(&event, "tags", "[\"t\"]"),
        with(&event, "tags", "[[1]]"),
        with(&event, "tags", "[[null]]"),
        with(&event, "tags", &deep),
        with(&event, "pubkey", &format!("\"{}\"", key.to_uppercase())),
        with(&event, "pubkey", &format!("\"{}\"", &key[1..])),
        with(&event, "pubkey", &format!("\"{}\"", "ff".repeat(32))),
        with(&event, "sig", &format!("\"{}\"", sig.to_uppercase())),
        with(&event, "sig", &format!("\"{}\"", &sig[1..])),
        with(&event, "sig", "\"\""),
        with(&event, "sig", &format!("\"{}\"", "00".repeat(64))),
    ];
    let whole = event.to_json();
    texts.push(format!("[\"EVENT\",{whole},1]"));
    texts.push(format!("[\"EVENT\",{whole}"));
    texts.push(format!("[\"EVENT\",{whole}]]"));
    texts.push(format!(
        "[\"EVENT\",{}]",
        whole.replace("\"kind\":1", "\"kind\":1,\"kind\":1")
    ));
    for text in texts {
        match answer(&mut client, &text).await {
            RelayFrame::Ok {
                id,
                accepted,
                message,
            } => {
                assert_eq!((id, accepted), (event.id, false), "{}", start(&text));
                assert!(
                    message.starts_with("invalid: "),
                    "{}: {message}",
                    start(&text)
                );
            }
            other => panic!("{}: {other:?}", start(&text)),
        }
    }
    client.accept(&event).await;
}

#[tokio::test]
async fn nul_in_content_is_content() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let event = Author::new(1).note("a\0b").tag(&["t", "\0"]).sign();
    client.accept(&event).await;
    assert_eq!(client.fetch(json!({"#t": ["\0"]})).await, [event]);
}

#[tokio::test]
async fn closing_what_is_not_open_is_no_fault() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    client.send(json!(["CLOSE", "never opened"])).await;
    assert_eq!(client.frames_so_far().await, []);
}

#[tokio::test]
async fn a_binary_frame_is_answered_and_the_socket_goes_on() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    client
        .send_message(Message::binary(b"[\"REQ\",\"s\",{}]".to_vec()))
        .await;
    match client.next().await {
        RelayFrame::Notice { message } => assert!(message.starts_with("invalid: "), "{message}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.frames_so_far().await, []);
}

#[tokio::test]
async fn fragments_make_one_frame_with_pings_between() {
    let relay = RELAY.start().await;
    let mut socket = RawSocket::connect(&relay).await;
    let text = "[\"REQ\",\"ñ\",{\"limit\":0}]".as_bytes();
    // Cut inside the two bytes of ñ: only the whole must be UTF-8.
    let (head, tail) = text.split_at(9);
    socket.send(&frame(false, raw::TEXT, head)).await;
    socket.send(&frame(true, raw::PING, b"between")).await;
    socket.send(&frame(false, raw::CONTINUATION, b"")).await;
    socket.send(&frame(true, raw::CONTINUATION, tail)).await;
    assert_eq!(socket.text().await, "[\"EOSE\",\"ñ\"]");
}

#[tokio::test]
async fn invalid_utf8_is_answered_and_other_sockets_go_on() {
    let relay = RELAY.start().await;
    let mut other = Client::connect(&relay).await;
    let mut socket = RawSocket::connect(&relay).await;
    let bytes = b"[\"REQ\",\"\xff\xfe\",{}]";
    socket.send(&frame(true, raw::TEXT, bytes)).await;
    let answer = socket.text().await;
    assert!(answer.starts_with("[\"NOTICE\",\"invalid: "), "{answer}");
    socket
        .send(&frame(true, raw::TEXT, b"[\"REQ\",\"s\",{\"limit\":0}]"))
        .await;
    assert_eq!(socket.text().await, "[\"EOSE\",\"s\"]");
    assert_eq!(other.frames_so_far().await, []);
}

#[tokio::test]
async fn a_ping_is_answered_with_its_payload() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    let ping = b"are you there".to_vec();
    client
        .send_message(Message::Ping(ping.clone().into()))
        .await;
    loop {
        match client.message().await {
            Some(Message::Pong(payload)) => break assert_eq!(payload.to_vec(), ping),
            Some(Message::Text(_) | Message::Ping(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_broken_websocket_ends_alone() {
    let relay = RELAY.start().await;
    let mut other = Client::connect(&relay).await;
    for bytes in [
        // Not masked; a reserved opcode; a continuation of nothing; a fragmented ping;
        // a length above 2^63.
        vec![0x81, 0x02, b'[', b']'],
        frame(true, 3, b""),
        frame(true, raw::CONTINUATION, b"x"),
        frame(false, raw::PING, b"x"),
        [&[0x81, 0xff][..], &[0xff; 8], &[0; 4]].concat(),
    ] {
        let mut socket = RawSocket::connect(&relay).await;
        socket.send(&bytes).await;
        socket.ended().await;
        assert_eq!(other.frames_so_far().await, []);
    }
}
