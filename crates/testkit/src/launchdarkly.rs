//! A stand-in for LaunchDarkly's streaming service, as its SDK meets it behind `relay_proxy_url`:
//! `GET /all` is a stream of events (`put`, `patch`, `delete`), `POST /bulk` takes what clients
//! report. The test says what is answered, and sees who asked.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpSocket, TcpStream},
    sync::{broadcast, watch},
    task::{JoinHandle, JoinSet},
};

use crate::soon;

/// The key that relays are given.
pub const SDK_KEY: &str = "sdk-hunter2";

/// What is answered to the next requests.
#[derive(Clone)]
struct Answers {
    /// To `/all`; `None`: nothing, the request hangs.
    status: Option<u16>,
    /// What a stream begins with.
    flags: BTreeMap<String, Value>,
    /// Requests to `/bulk` hang.
    bulk_hangs: bool,
}

/// What goes to all open streams.
#[derive(Clone)]
enum Say {
    Event(String),
    End,
}

/// Requests so far.
#[derive(Clone, Default)]
struct Seen {
    streams: usize,
    bulks: usize,
}

struct Shared {
    answers: watch::Sender<Answers>,
    say: broadcast::Sender<Say>,
    seen: watch::Sender<Seen>,
}

/// Ends with all its connections when it is dropped.
pub struct FlagService {
    /// Where it listens.
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// A port for a service that starts later. The socket holds it until then, so no other process gets
/// it, and connections are refused.
pub fn reserve(addr: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseport(true).expect("an option");
    socket.bind(addr).expect("a free port");
    socket
}

/// Any port.
pub const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl FlagService {
    /// Starts it on any port.
    pub fn start(flags: &[Value]) -> Self {
        Self::start_on(reserve(ANY), flags)
    }

    /// Starts it on a port that was [reserved](reserve).
    pub fn start_on(socket: TcpSocket, flags: &[Value]) -> Self {
        let listener = socket.listen(64).expect("a listener");
        let answers = Answers {
            status: Some(200),
            flags: by_key(flags),
            bulk_hangs: false,
        };
        let shared = Arc::new(Shared {
            answers: watch::Sender::new(answers),
            say: broadcast::Sender::new(64),
            seen: watch::Sender::default(),
        });
        Self {
            addr: listener.local_addr().expect("an address"),
            shared: Arc::clone(&shared),
            accepting: tokio::spawn(async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    let shared = Arc::clone(&shared);
                    connections.spawn(async move { serve(stream, &shared).await });
                }
            }),
        }
    }

    /// Lets each new stream begin with these flags.
    pub fn put_next(&self, flags: &[Value]) {
        let flags = by_key(flags);
        self.shared
            .answers
            .send_modify(|answers| answers.flags = flags);
    }

    /// Answers new streams with this status; `None`: not at all.
    pub fn answer(&self, status: Option<u16>) {
        self.shared
            .answers
            .send_modify(|answers| answers.status = status);
    }

    /// Leaves reports without an answer from now on.
    pub fn hang_bulks(&self) {
        self.shared
            .answers
            .send_modify(|answers| answers.bulk_hangs = true);
    }

    /// Changes a flag on all open streams.
    pub fn patch(&self, flag: &Value) {
        let key = flag["key"].as_str().expect("a key");
        self.say(
            "patch",
            &json!({"path": format!("/flags/{key}"), "data": flag}),
        );
    }

    /// Deletes a flag on all open streams.
    pub fn delete(&self, key: &str) {
        self.say(
            "delete",
            &json!({"path": format!("/flags/{key}"), "version": 1000}),
        );
    }

    fn say(&self, name: &str, data: &Value) {
        let _ = self.shared.say.send(Say::Event(event(name, data)));
    }

    /// Ends all open streams; the relay will ask for new ones.
    pub fn end_streams(&self) {
        let _ = self.shared.say.send(Say::End);
    }

    /// How often a stream was asked for.
    pub fn streams(&self) -> usize {
        self.shared.seen.borrow().streams
    }

    /// Waits until streams were asked for so many times.
    pub async fn streams_reach(&self, times: usize) {
        let mut seen = self.shared.seen.subscribe();
        let reached = seen.wait_for(|seen| seen.streams >= times);
        soon("requests for a stream", reached)
            .await
            .expect("a service");
    }

    /// How often something was reported.
    pub fn bulks(&self) -> usize {
        self.shared.seen.borrow().bulks
    }
}

impl Drop for FlagService {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A flag that is `value` for the relay's own context, and 77 for any other.
pub fn flag(key: &str, version: u64, value: &Value) -> Value {
    json!({
        "key": key,
        "version": version,
        "on": true,
        "targets": [],
        "contextTargets": [{"contextKind": "relay", "values": ["relay"], "variation": 1}],
        "rules": [],
        "prerequisites": [],
        "fallthrough": {"variation": 0},
        "offVariation": 0,
        "variations": [77, value],
        "clientSideAvailability": {"usingMobileKey": false, "usingEnvironmentId": false},
        "salt": "salt"
    })
}

fn by_key(flags: &[Value]) -> BTreeMap<String, Value> {
    let key = |flag: &Value| flag["key"].as_str().expect("a key").to_owned();
    flags.iter().map(|flag| (key(flag), flag.clone())).collect()
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Answers the requests of one connection; ends with it.
async fn serve(stream: TcpStream, shared: &Shared) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let lower = head.to_ascii_lowercase();
        let length = lower.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.ok()?;
        assert!(
            lower.contains(&format!("authorization: {SDK_KEY}")),
            "{head}"
        );
        let answers = shared.answers.borrow().clone();
        if head.starts_with("POST /bulk ") {
            shared.seen.send_modify(|seen| seen.bulks += 1);
            if answers.bulk_hangs {
                std::future::pending::<()>().await;
            }
            let accepted = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(accepted).await.ok()?;
            continue;
        }
        assert!(head.starts_with("GET /all "), "{head}");
        // Before it is counted, so that what a test says after that reaches this stream.
        let mut say = shared.say.subscribe();
        shared.seen.send_modify(|seen| seen.streams += 1);
        match answers.status {
            None => std::future::pending().await,
            Some(200) => {}
            Some(status) => {
                let refused = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(refused.as_bytes()).await.ok()?;
                continue;
            }
        }
        let data = json!({"path": "/", "data": {"flags": answers.flags, "segments": {}}});
        let begin =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        stream.write_all(begin.as_bytes()).await.ok()?;
        stream
            .write_all(event("put", &data).as_bytes())
            .await
            .ok()?;
        while let Ok(Say::Event(text)) = say.recv().await {
            stream.write_all(text.as_bytes()).await.ok()?;
        }
        return None;
    }
}
