//! Plain HTTP requests, and the metrics they bring.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::soon;

/// An answer, read to its end.
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    /// The body, without the marks of its chunks.
    pub body: String,
}

impl Response {
    /// The value of the first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect(&self.body)
    }
}

/// GET.
pub async fn get(addr: SocketAddr, path: &str) -> Response {
    request(addr, path, "").await
}

/// What NIP-11 asks for.
pub async fn relay_information(addr: SocketAddr) -> Response {
    request(addr, "/", "Accept: application/nostr+json\r\n").await
}

/// The request that turns a connection into a websocket.
pub const UPGRADE: &str = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// GET with further header lines; reads until the relay closes.
pub async fn request(addr: SocketAddr, path: &str, headers: &str) -> Response {
    let connection = if headers.contains("Upgrade:") {
        "Upgrade"
    } else {
        "close"
    };
    let text = format!(
        "GET {path} HTTP/1.1\r\nHost: relay.test\r\nConnection: {connection}\r\n{headers}\r\n"
    );
    exchange(addr, &format!("GET {path}"), text.as_bytes()).await
}

/// Sends the bytes of a request on a connection of its own.
pub async fn exchange(addr: SocketAddr, what: &str, request: &[u8]) -> Response {
    let bytes = soon(&format!("an answer to {what}"), async {
        let mut stream = TcpStream::connect(addr).await.expect("a connection");
        // A relay that refuses early may not take all of it.
        let _ = stream.write_all(request).await;
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        // A refused upgrade may leave the connection open: stop where the body is complete.
        while !is_complete(&bytes) {
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => break,
                Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            }
        }
        bytes
    })
    .await;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Response {
        status: status.unwrap_or_else(|| panic!("no status line in {head:?}")),
        body: match head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked")
        {
            true => without_chunks(body),
            false => body.to_owned(),
        },
        head: head.to_owned(),
    }
}

/// The content of a chunked body, as far as it is whole: no more than the last whole chunk.
fn without_chunks(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((length, chunk)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a chunk's length");
        let Some(content) = chunk.get(..length) else {
            break;
        };
        body += content;
        rest = chunk[length..].trim_start_matches("\r\n");
    }
    body
}

fn is_complete(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    if head.starts_with("HTTP/1.1 101") {
        return true;
    }
    let length = head.to_ascii_lowercase();
    let length = length
        .split("content-length:")
        .nth(1)
        .and_then(|rest| rest.lines().next()?.trim().parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

/// A reading of `/metrics`, in the Prometheus text format.
pub struct Metrics(pub String);

impl Metrics {
    /// Name with labels, and value, of every sample.
    fn samples(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').expect(line);
                (series, value.parse().expect(line))
            })
    }

    /// The one sample of a series, written as it stands in the text; 0 before its first count.
    pub fn get(&self, series: &str) -> f64 {
        let mut found = self.samples().filter(|(name, _)| *name == series);
        found.next().map_or(0.0, |(_, value)| value)
    }

    /// The sum over all labels of `name`.
    pub fn sum(&self, name: &str) -> f64 {
        self.samples()
            .filter(|(series, _)| series.split('{').next() == Some(name))
            .map(|(_, value)| value)
            .sum()
    }

    /// Whether `name` is exposed at all, with its help and type.
    pub fn describes(&self, name: &str) -> bool {
        [" ", "_bucket{", "{", "_count"].iter().any(|end| {
            self.0
                .lines()
                .any(|line| line.starts_with(&format!("{name}{end}")))
        }) && self.0.contains(&format!("# HELP {name} "))
            && self.0.contains(&format!("# TYPE {name} "))
    }
}
