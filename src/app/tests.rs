//! The relay's actors are killed one by one, each in a relay of its own with a real database and a
//! real socket. Whatever a client sends then is refused by name, and `/readyz` says who is gone.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use actix::{Actor, Addr, Handler, Message, System, dev::ToEnvelope};
use buzz_actors::{
    admission::Shard,
    db_reader::{CountEvents, DbReader, LookUpRole, Read, RoleLookUp},
    fanout::Fanout,
    gate::Gate,
    ports::{EventStore, Purpose, StoreError, StoreReader, StoreWriter},
    registry::ConnectionRegistry,
    replay::Replay,
    verifier::Verifier,
    writer::Writer,
};
use buzz_protocol::{Event, Tag, UnsignedEvent, kind};
use futures_util::{SinkExt, StreamExt};
use metrics_exporter_prometheus::PrometheusBuilder;
use secp256k1::{Keypair, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, tungstenite};

use super::*;

/// Ends whoever takes it.
#[derive(Message)]
#[rtype(result = "()")]
struct Crash;

macro_rules! can_crash {
    ($($actor:ty),*) => {
        $(impl Handler<Crash> for $actor {
            type Result = ();
            fn handle(&mut self, _: Crash, _: &mut Self::Context) {
                panic!("crashed on purpose");
            }
        })*
    };
}
can_crash!(
    Verifier,
    Writer,
    DbReader,
    Fanout,
    Replay,
    Shard,
    ConnectionRegistry,
    Gate<Read>,
    Gate<CountEvents>,
    Gate<LookUpRole>,
    Gate<RoleLookUp>
);

/// Crashes an actor, or every member of a pool.
async fn crash<A>(addr: &Addr<A>)
where
    A: Actor + Handler<Crash>,
    A::Context: ToEnvelope<A, Crash>,
{
    while addr.connected() {
        addr.do_send(Crash);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn event(kind: u16, tags: Vec<Tag>, content: &str) -> Event {
    let keys = Keypair::from_secret_key(&SecretKey::from_secret_bytes([7; 32]).unwrap());
    let unsigned = UnsignedEvent {
        created_at: crate::commands::unix_now(),
        kind,
        tags,
        content: content.into(),
    };
    unsigned.sign(&keys)
}

struct Relay {
    services: Arc<Services>,
    admin: std::net::SocketAddr,
    client: WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>,
    challenge: String,
    _directory: tempfile::TempDir,
}

impl Relay {
    async fn start(wrap: impl FnOnce(Arc<dyn EventStore>) -> Arc<dyn EventStore>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.server.listen = "127.0.0.1:0".parse().unwrap();
        config.server.admin_listen = config.server.listen;
        config.database.url = format!("sqlite://{}/relay.db", directory.path().display());
        let store = wrap(open_store(&config).unwrap());
        let services = Arc::new(start_services(&config, store).unwrap());
        let flags = flags::start(&config.feature_flags).unwrap();
        let refresher = start_refresher(&config, flags, &services).await;
        let draining = Arc::new(AtomicBool::new(false));
        let admin = Admin {
            services: Arc::clone(&services),
            refresher,
            metrics: PrometheusBuilder::new().build_recorder().handle(),
            draining: Arc::clone(&draining),
        };
        let (_, admin) = start_admin(&config, admin).unwrap();
        let (_, public) = start_public(&config, Arc::clone(&services), draining).unwrap();
        let url = format!("ws://{public}/");
        let (client, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        let mut relay = Self {
            services,
            admin,
            client,
            challenge: String::new(),
            _directory: directory,
        };
        let (_, challenge) = relay.receive().await;
        relay.challenge = challenge;
        relay
    }

    async fn send(&mut self, text: String) {
        let message = tungstenite::Message::text(text);
        self.client.send(message).await.unwrap();
    }

    /// The next message: all of it, and its second element.
    async fn receive(&mut self) -> (String, String) {
        let next = tokio::time::timeout(Duration::from_secs(30), self.client.next());
        let message = next.await.expect("an answer").expect("a message").unwrap();
        let text = message.into_text().unwrap().to_string();
        let frame: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let name = frame[1].as_str().unwrap_or_default().to_owned();
        (text, name)
    }

    /// Publishes an event, and gives the answer behind its id.
    async fn publish(&mut self, content: &str) -> String {
        let event = event(1, vec![], content);
        self.send(format!("[\"EVENT\",{}]", event.to_json())).await;
        let (text, id) = self.receive().await;
        assert_eq!(id, event.id.to_string(), "{text}");
        text[text.find(&id).unwrap() + id.len() + 2..].to_owned()
    }

    /// Asks, and gives the first answer that is no event.
    async fn ask(&mut self, frame: &str) -> String {
        self.send(frame.into()).await;
        loop {
            let (text, _) = self.receive().await;
            if !text.starts_with("[\"EVENT\"") {
                return text;
            }
        }
    }

    async fn readyz(&self) -> String {
        let mut socket = tokio::net::TcpStream::connect(self.admin).await.unwrap();
        let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(head.starts_with("HTTP/1.1 200"), body == "ok\n", "{head}");
        body.trim().to_owned()
    }
}

const LOST: &str = "error: the relay could not answer";

fn run<F: Future<Output = ()>>(test: impl FnOnce(Relay) -> F) {
    System::new().block_on(async {
        let mut relay = Relay::start(|store| store).await;
        assert_eq!(relay.readyz().await, "ok");
        assert_eq!(relay.publish("before").await, "true,\"\"]");
        test(relay).await;
    });
}

/// Kills: a reply whose drop says nothing; events that are counted out by their answers alone.
#[test]
fn without_a_writer_events_are_refused_by_name() {
    run(|mut relay| async move {
        crash(&relay.services.writer).await;
        assert_eq!(relay.publish("a").await, format!("false,\"{LOST}\"]"));
        assert_eq!(relay.ask("[\"REQ\",\"s\",{}]").await, "[\"EOSE\",\"s\"]");
        assert_eq!(relay.readyz().await, "gone: writer");
        assert_permits_are_back(&relay);
    });
}

#[test]
fn without_a_verifier_events_and_logins_are_refused_by_name() {
    run(|mut relay| async move {
        crash(&relay.services.verifier).await;
        assert_eq!(relay.publish("a").await, format!("false,\"{LOST}\"]"));
        assert_login_is_lost(&mut relay).await;
        assert_eq!(relay.readyz().await, "gone: verifier");
        assert_permits_are_back(&relay);
    });
}

#[test]
fn without_readers_queries_and_logins_are_refused_by_name() {
    run(|mut relay| async move {
        crash(&relay.services.reader).await;
        crash(&relay.services.authorizer).await;
        assert_reads_are_lost(&mut relay).await;
        assert_login_is_lost(&mut relay).await;
        assert_eq!(relay.readyz().await, "gone: db_reader");
        assert_permits_are_back(&relay);
    });
}

#[test]
fn without_gates_queries_and_logins_are_refused_by_name() {
    run(|mut relay| async move {
        crash(&relay.services.history_gate).await;
        crash(&relay.services.count_gate).await;
        crash(&relay.services.auth_gate).await;
        assert_reads_are_lost(&mut relay).await;
        assert_login_is_lost(&mut relay).await;
        let gone = "gone: gate:history_reads, gate:counts, gate:auth";
        assert_eq!(relay.readyz().await, gone);
        assert_permits_are_back(&relay);
    });
}

/// Kills: subscriptions that end without a word; new ones that are never live and never closed.
#[test]
fn without_a_fanout_subscriptions_end_by_name() {
    run(|mut relay| async move {
        assert_eq!(relay.ask("[\"REQ\",\"s\",{}]").await, "[\"EOSE\",\"s\"]");
        crash(&relay.services.fanout).await;
        let closed = |name| format!("[\"CLOSED\",\"{name}\",\"{LOST}\"]");
        assert_eq!(relay.receive().await.0, closed("s"));
        // Its end may be known before its history is read, or behind it.
        let answer = relay.ask("[\"REQ\",\"t\",{}]").await;
        if answer == "[\"EOSE\",\"t\"]" {
            assert_eq!(relay.receive().await.0, closed("t"));
        } else {
            assert_eq!(answer, closed("t"));
        }
        assert_eq!(relay.publish("a").await, "true,\"\"]");
        assert_eq!(relay.readyz().await, "gone: fanout");
        assert_permits_are_back(&relay);
    });
}

#[test]
fn without_admission_frames_are_refused_by_name() {
    run(|mut relay| async move {
        for shard in relay.services.admission.shards() {
            crash(shard).await;
        }
        let refused = "rate-limited: shared admission unavailable; retry in 1s";
        assert_eq!(relay.publish("a").await, format!("false,\"{refused}\"]"));
        let answer = relay.ask("[\"REQ\",\"s\",{}]").await;
        assert_eq!(answer, format!("[\"CLOSED\",\"s\",\"{refused}\"]"));
        assert_eq!(relay.readyz().await, "gone: admission");
        assert_permits_are_back(&relay);
    });
}

async fn assert_reads_are_lost(relay: &mut Relay) {
    let closed = |name| format!("[\"CLOSED\",\"{name}\",\"{LOST}\"]");
    assert_eq!(relay.ask("[\"REQ\",\"s\",{}]").await, closed("s"));
    assert_eq!(relay.ask("[\"COUNT\",\"c\",{}]").await, closed("c"));
}

async fn assert_login_is_lost(relay: &mut Relay) {
    let login = login(relay);
    let answer = relay.ask(&format!("[\"AUTH\",{}]", login.to_json())).await;
    assert_eq!(
        answer,
        format!("[\"OK\",\"{}\",false,\"{LOST}\"]", login.id)
    );
}

fn login(relay: &Relay) -> Event {
    let url = &relay.services.shared.settings.relay_url;
    let tags = vec![
        Tag::new(["relay", url]),
        Tag::new(["challenge", &relay.challenge]),
    ];
    event(kind::CLIENT_AUTH, tags, "")
}

fn assert_permits_are_back(relay: &Relay) {
    let permits = Config::default().server.handler_permits;
    assert_eq!(relay.services.shared.frames.available(), permits);
}

/// A store whose next reader panics where no database call is: while it is opened.
struct Fragile {
    store: Arc<dyn EventStore>,
    panics: Arc<AtomicBool>,
}

impl EventStore for Fragile {
    fn writer(&self) -> Result<Box<dyn StoreWriter>, StoreError> {
        self.store.writer()
    }

    fn reader(&self, purpose: Purpose) -> Result<Box<dyn StoreReader>, StoreError> {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "on purpose");
        self.store.reader(purpose)
    }
}

/// Kills: a member of a pool that ends with its panic; a question that is lost with it.
#[test]
fn a_reader_that_panics_is_replaced() {
    System::new().block_on(async {
        let panics = Arc::new(AtomicBool::new(true));
        let wrapped = Arc::clone(&panics);
        let mut relay = Relay::start(|store| {
            Arc::new(Fragile {
                store,
                panics: wrapped,
            })
        })
        .await;
        let closed = format!("[\"CLOSED\",\"s\",\"{LOST}\"]");
        assert_eq!(relay.ask("[\"REQ\",\"s\",{}]").await, closed);
        assert_eq!(relay.ask("[\"REQ\",\"s\",{}]").await, "[\"EOSE\",\"s\"]");
        assert!(!panics.load(Ordering::Relaxed));
        assert_eq!(relay.readyz().await, "ok");
        assert_permits_are_back(&relay);
    });
}

#[test]
fn readyz_names_the_others_too() {
    run(|relay| async move {
        crash(&relay.services.replay).await;
        crash(&relay.services.registry).await;
        assert_eq!(relay.readyz().await, "gone: replay, connection_registry");
    });
}
