//! Events and frames for tests, and a session that is driven by hand.

use std::{
    collections::HashMap,
    sync::{Mutex, OnceLock},
    time::Duration,
};

pub(super) use buzz_protocol::relay_frame;
use buzz_protocol::{Event, Filter, Tag, UnsignedEvent};
use secp256k1::{Keypair, SecretKey};

use super::super::*;

pub(super) const UNIX: u64 = 1_800_000_000;

pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A signed event, made once for all tests: signing is what a simulation would spend its time on.
pub(super) fn event(kind: u16, channel: u64, n: u64, created_at: u64) -> Event {
    type Pool = Mutex<HashMap<(u16, u64, u64, u64), Event>>;
    static POOL: OnceLock<Pool> = OnceLock::new();
    let mut pool = POOL.get_or_init(Pool::default).lock().unwrap();
    let entry = pool.entry((kind, channel, n, created_at));
    entry
        .or_insert_with(|| {
            static KEYS: OnceLock<Keypair> = OnceLock::new();
            let keys = KEYS.get_or_init(|| {
                Keypair::from_secret_key(&SecretKey::from_secret_bytes([7; 32]).unwrap())
            });
            let unsigned = UnsignedEvent {
                created_at,
                kind,
                tags: vec![Tag::new(["h", &channel.to_string()])],
                content: n.to_string(),
            };
            unsigned.sign(keys)
        })
        .clone()
}

pub(super) fn channel(n: u64) -> Filter {
    Filter {
        tags: [(b'h', vec![n.to_string()])].into(),
        ..Filter::default()
    }
}

pub(super) fn event_frame(wire: &str, event: &Event) -> String {
    format!("{}{}]", relay_frame::event_prefix(wire), event.to_json())
}

/// A session by hand: inputs go in, frames and results are read out.
pub(super) struct Kit {
    pub(super) session: Session,
    pub(super) at: Duration,
    pub(super) outputs: Vec<Output>,
    next: u64,
}

impl Kit {
    pub(super) fn new(has_signer: bool) -> Self {
        Self::with(has_signer, Config::default())
    }

    pub(super) fn with(has_signer: bool, config: Config) -> Self {
        let now = Now {
            at: secs(0),
            unix: UNIX,
        };
        Self {
            session: Session::new("ws://relay".into(), has_signer, config, now, 1),
            at: secs(0),
            outputs: Vec::new(),
            next: 0,
        }
    }

    /// With a socket that is open.
    pub(super) fn online(has_signer: bool) -> Self {
        let mut kit = Self::new(has_signer);
        kit.open();
        kit
    }

    pub(super) fn open(&mut self) {
        self.input(Input::Tick);
        let socket = self.socket();
        self.input(Input::Opened(socket));
        self.outputs.clear();
    }

    pub(super) fn socket(&self) -> SocketId {
        self.session.link.socket()
    }

    pub(super) fn now(&self) -> Now {
        Now {
            at: self.at,
            unix: UNIX + self.at.as_secs(),
        }
    }

    pub(super) fn input(&mut self, input: Input) {
        self.session.handle(input, self.now());
        while let Some(output) = self.session.next_output() {
            if let Output::Send(_, ticket, _) | Output::Ping(_, ticket) = &output {
                let ticket = *ticket;
                self.outputs.push(output);
                self.session.handle(Input::Written(ticket), self.now());
            } else {
                self.outputs.push(output);
            }
        }
    }

    pub(super) fn frame(&mut self, text: impl Into<String>) {
        let socket = self.socket();
        self.input(Input::Frame(socket, text.into()));
    }

    pub(super) fn command(&mut self, command: Command) {
        self.input(Input::Command(command));
    }

    pub(super) fn publish(&mut self, event: &Event) -> RequestId {
        self.next += 1;
        let id = RequestId(self.next);
        self.command(Command::Publish(id, Box::new(event.clone())));
        id
    }

    pub(super) fn ok(&mut self, event: &Event, accepted: bool, message: &str) {
        self.frame(relay_frame::ok(&event.id, accepted, message));
    }

    pub(super) fn lose(&mut self) {
        let socket = self.socket();
        self.input(Input::Lost(socket));
    }

    /// Lets time pass to `at`, waking the session whenever it asks to be. Pings are answered.
    pub(super) fn until(&mut self, at: Duration) {
        for _ in 0..100_000 {
            let due = self.session.wake_at().filter(|due| *due <= at);
            self.at = due.unwrap_or(at).max(self.at);
            self.input(Input::Tick);
            if self
                .outputs
                .iter()
                .any(|output| matches!(output, Output::Ping(..)))
            {
                self.outputs
                    .retain(|output| !matches!(output, Output::Ping(..)));
                let socket = self.socket();
                self.input(Input::Alive(socket));
            }
            if due.is_none() {
                return;
            }
        }
        panic!(
            "the session asks to be woken again and again at {:?}",
            self.at
        );
    }

    /// The frames sent since the last call.
    pub(super) fn sent(&mut self) -> Vec<String> {
        let outputs = std::mem::take(&mut self.outputs);
        let (sent, rest) = outputs
            .into_iter()
            .partition(|o| matches!(o, Output::Send(..)));
        self.outputs = rest;
        let sent: Vec<Output> = sent;
        let texts = sent.into_iter().map(|output| match output {
            Output::Send(_, _, text) => text,
            _ => String::new(),
        });
        texts.collect()
    }

    /// The results of `id` so far.
    pub(super) fn results(&self, id: RequestId) -> Vec<Result<Answer, Error>> {
        let results = self.outputs.iter().filter_map(|output| match output {
            Output::Resolved(of, result) if *of == id => Some(result.clone()),
            _ => None,
        });
        results.collect()
    }

    /// The messages delivered to `sub` and not read before.
    pub(super) fn messages(&mut self, sub: SubId) -> Vec<Message> {
        let mut messages = Vec::new();
        self.outputs.retain(|output| match output {
            Output::Deliver(to, message) if *to == sub => {
                messages.push(message.clone());
                false
            }
            _ => true,
        });
        messages
    }
}

/// The name of the REQ in a frame.
pub(super) fn wire_of(frame: &str) -> String {
    let parts: Vec<serde_json::Value> = serde_json::from_str(frame).unwrap();
    assert_eq!(parts[0], "REQ", "{frame}");
    parts[1].as_str().unwrap().to_owned()
}
