//! REST requests, signed as NIP-98 asks, or not.

use buzz_protocol::{Event, http_auth};
use serde_json::Value;

use crate::{
    Author, Relay,
    http::{self, Response},
};

/// Where clients find the test relay's resources.
pub const BASE: &str = "http://relay.test/chat";

/// A POST with the headers that its sender wants.
pub fn post_bytes(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: relay.test\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

/// The header that carries `event`.
pub fn authorized_by(event: &Event) -> String {
    format!("Authorization: {}\r\n", http_auth::to_header(event))
}

/// The header of `author` for a body sent to `path`.
pub fn authorization(author: &Author, path: &str, body: &str) -> String {
    let event = author.authorization(&format!("{BASE}{path}"), body);
    authorized_by(&event.sign())
}

/// A POST with these headers.
pub async fn post_with(relay: &Relay, path: &str, headers: &str, body: &str) -> Response {
    let bytes = post_bytes(path, headers, body);
    http::exchange(relay.addr, &format!("POST {path}"), &bytes).await
}

/// A POST that `author` signed.
pub async fn post(relay: &Relay, author: &Author, path: &str, body: &str) -> Response {
    let header = authorization(author, path, body);
    post_with(relay, path, &header, body).await
}

/// What must be answered with 200, as JSON.
pub async fn answer(relay: &Relay, author: &Author, path: &str, body: &Value) -> Value {
    let response = post(relay, author, path, &body.to_string()).await;
    assert_eq!(response.status, 200, "{path} {body}: {}", response.body);
    assert_eq!(response.header("content-type"), Some("application/json"));
    response.json()
}

/// The verdict on an event.
pub async fn publish(relay: &Relay, author: &Author, event: &Event) -> (bool, String) {
    let body = serde_json::to_value(event).expect("JSON");
    let verdict = answer(relay, author, "/events", &body).await;
    assert_eq!(verdict["id"], Value::String(event.id.to_hex()));
    let accepted = verdict["accepted"].as_bool().expect("a verdict");
    let message = verdict["message"].as_str().expect("a message");
    (accepted, message.to_owned())
}
