//! A small relay on real sockets for the client's tests: it stores events, answers REQ, COUNT,
//! EVENT and AUTH, keeps a quota if told, and notes every frame it gets.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use buzz_protocol::{ClientFrame, Event, Filter, Tag, UnsignedEvent, auth, kind, relay_frame};
use futures_util::{SinkExt, StreamExt};
use secp256k1::Keypair;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{broadcast, mpsc},
    task::JoinHandle,
};
use tokio_tungstenite::tungstenite::Message;

/// How a relay behaves; all off by default.
#[derive(Default)]
pub struct Rules {
    /// Answers to the next EVENTs that are not to be taken; empty: taken.
    pub refuse_events: VecDeque<String>,
    /// Answers to the next REQs that are not to be taken.
    pub refuse_reqs: VecDeque<String>,
    /// EVENT, REQ and COUNT frames in any 5 s of one relay; more are refused.
    pub quota: Option<usize>,
    /// Everything but AUTH needs a login.
    pub auth_required: bool,
    /// Logins are shed by a bare close, so many times.
    pub shed_logins: usize,
    /// Stored events sent for one filter.
    pub page: Option<usize>,
    /// Filters that name this `#h` value are restricted.
    pub restricted: Option<String>,
}

#[derive(Default)]
pub struct State {
    pub rules: Rules,
    pub events: Vec<Event>,
    /// When each frame came, from which socket, and its text.
    pub frames: Vec<(Instant, usize, String)>,
    pub sockets: usize,
    pub refusals: usize,
    spent: VecDeque<Instant>,
}

pub struct Relay {
    pub url: String,
    pub state: Arc<Mutex<State>>,
    kick: broadcast::Sender<()>,
    live: broadcast::Sender<Event>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
        let _ = self.kick.send(());
    }
}

impl Relay {
    pub async fn start(rules: Rules) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            rules,
            ..State::default()
        }));
        let (live, _) = broadcast::channel(10_000);
        let (kick, _) = broadcast::channel(1);
        let accept_live = live.clone();
        let (accept_state, accept_kick, accept_url) = (state.clone(), kick.clone(), url.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(
                    stream,
                    accept_url.clone(),
                    accept_state.clone(),
                    accept_live.clone(),
                    accept_kick.subscribe(),
                ));
            }
        });
        Self {
            url,
            state,
            kick,
            live,
            task,
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Events from elsewhere: stored, and sent to who listens.
    pub fn publish(&self, events: &[Event]) {
        self.state().events.extend_from_slice(events);
        for event in events {
            let _ = self.live.send(event.clone());
        }
    }

    /// Drops all sockets without a close frame.
    pub fn kick(&self) {
        let _ = self.kick.send(());
    }

    /// The frames of one verb, in the order they came.
    pub fn frames(&self, verb: &str) -> Vec<(Instant, usize, String)> {
        let start = format!("[\"{verb}\"");
        let frames = self.state().frames.clone();
        frames
            .into_iter()
            .filter(|(_, _, text)| text.starts_with(&start))
            .collect()
    }
}

impl State {
    fn refuse_by_quota(&mut self) -> Option<String> {
        let quota = self.rules.quota?;
        let (now, window) = (Instant::now(), Duration::from_secs(5));
        while self.spent.front().is_some_and(|at| now - *at >= window) {
            self.spent.pop_front();
        }
        if self.spent.len() < quota {
            self.spent.push_back(now);
            return None;
        }
        self.refusals += 1;
        let wait = window.saturating_sub(now - self.spent[0]).as_secs() + 1;
        Some(format!("rate-limited: quota exceeded; retry in {wait}s"))
    }

    fn stored(&self, filter: &Filter) -> Vec<Event> {
        let matching = self.events.iter().filter(|event| filter.matches(event));
        let mut events: Vec<Event> = matching.cloned().collect();
        events.sort_by(|a, b| b.created_at.cmp(&a.created_at).then(a.id.cmp(&b.id)));
        let page = self.rules.page.unwrap_or(500);
        events.truncate(filter.limit.map_or(page, |limit| page.min(limit as usize)));
        events
    }
}

async fn serve(
    stream: TcpStream,
    url: String,
    state: Arc<Mutex<State>>,
    live: broadcast::Sender<Event>,
    mut kick: broadcast::Receiver<()>,
) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
        return;
    };
    let number = {
        let mut state = state.lock().unwrap();
        state.sockets += 1;
        state.sockets
    };
    let (out, mut to_send) = mpsc::unbounded_channel::<String>();
    let challenge = format!("challenge-{number}");
    out.send(relay_frame::auth_challenge(&challenge)).unwrap();
    let mut subs: HashMap<String, Vec<Filter>> = HashMap::new();
    let mut events = live.subscribe();
    let mut logged_in = false;
    loop {
        tokio::select! {
            _ = kick.recv() => return,
            Some(text) = to_send.recv() => {
                if socket.send(Message::text(text)).await.is_err() { return; }
            }
            Ok(event) = events.recv() => {
                for (sub, filters) in &subs {
                    if filters.iter().any(|filter| filter.matches(&event)) {
                        out.send(format!("{}{}]", relay_frame::event_prefix(sub), event.to_json())).unwrap();
                    }
                }
            }
            message = socket.next() => {
                let Some(Ok(message)) = message else { return };
                let Message::Text(text) = message else { continue };
                let frame = ClientFrame::parse(&text).unwrap();
                let mut state = state.lock().unwrap();
                state.frames.push((Instant::now(), number, text.as_str().to_owned()));
                let anonymous = state.rules.auth_required && !logged_in;
                let needs_login = "auth-required: log in first".to_owned();
                match frame {
                    ClientFrame::Close { sub } => { subs.remove(&sub); }
                    ClientFrame::Auth(event) => {
                        if state.rules.shed_logins > 0 {
                            state.rules.shed_logins -= 1;
                            return;
                        }
                        event.verify().unwrap();
                        let checked = auth::check_login(&event, &challenge, &url, event.created_at);
                        logged_in = checked.is_ok();
                        let text = checked.err().map_or(String::new(), |e| e.to_string());
                        out.send(relay_frame::ok(&event.id, logged_in, &text)).unwrap();
                    }
                    ClientFrame::Event(event) => {
                        let refusal = anonymous.then_some(needs_login)
                            .or_else(|| state.refuse_by_quota())
                            .or_else(|| state.rules.refuse_events.pop_front().filter(|t| !t.is_empty()));
                        let known = state.events.iter().any(|other| other.id == event.id);
                        let text = refusal.clone().unwrap_or_else(|| {
                            if known { buzz_protocol::refusal::DUPLICATE.to_owned() } else { String::new() }
                        });
                        out.send(relay_frame::ok(&event.id, refusal.is_none(), &text)).unwrap();
                        if refusal.is_none() && !known {
                            if kind::class(event.kind) != kind::Class::Ephemeral {
                                state.events.push((*event).clone());
                            }
                            let _ = live.send(*event);
                        }
                    }
                    ClientFrame::Req { sub, filters } => {
                        let restricted = state.rules.restricted.as_ref().is_some_and(|h| {
                            filters.iter().any(|f| f.tags.get(&b'h').is_some_and(|v| v.contains(h)))
                        });
                        let refusal = anonymous.then_some(needs_login)
                            .or_else(|| state.refuse_by_quota())
                            .or_else(|| restricted.then(|| "restricted: not a channel member".to_owned()))
                            .or_else(|| state.rules.refuse_reqs.pop_front());
                        if let Some(text) = refusal {
                            subs.remove(&sub);
                            out.send(relay_frame::closed(&sub, &text)).unwrap();
                            continue;
                        }
                        for filter in &filters {
                            for event in state.stored(filter) {
                                out.send(format!("{}{}]", relay_frame::event_prefix(&sub), event.to_json())).unwrap();
                            }
                        }
                        out.send(relay_frame::eose(&sub)).unwrap();
                        subs.insert(sub, filters);
                    }
                    ClientFrame::Count { query, filters } => {
                        let refusal = anonymous.then_some(needs_login).or_else(|| state.refuse_by_quota());
                        let n = state.events.iter().filter(|e| filters.iter().any(|f| f.matches(e))).count();
                        out.send(match refusal {
                            Some(text) => relay_frame::closed(&query, &text),
                            None => relay_frame::count(&query, n as u64),
                        }).unwrap();
                    }
                }
            }
        }
    }
}

/// Keys from a number.
pub fn keys(n: u8) -> Keypair {
    let secret = secp256k1::SecretKey::from_secret_bytes([n; 32]).unwrap();
    Keypair::from_secret_key(&secret)
}

/// A message in a channel.
pub fn message(channel: &str, text: &str, created_at: u64) -> Event {
    event(9, channel, text, created_at)
}

pub fn event(kind: u16, channel: &str, text: &str, created_at: u64) -> Event {
    let unsigned = UnsignedEvent {
        created_at,
        kind,
        tags: vec![Tag::new(["h", channel])],
        content: text.to_owned(),
    };
    unsigned.sign(&keys(1))
}

pub fn channel(name: &str) -> Filter {
    Filter {
        kinds: Some(vec![9]),
        tags: [(b'h', vec![name.to_owned()])].into(),
        ..Filter::default()
    }
}

pub fn unix_now() -> u64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}
