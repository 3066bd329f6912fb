//! A small relay on real sockets, for tests of clients: it keeps events in memory, answers by brute
//! force, notes every frame it gets, and misbehaves by [`Rules`] where a test wants to see that its
//! client notices.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use buzz_protocol::{ClientFrame, Event, Filter, auth, kind, refusal, relay_frame};
use futures_util::{SinkExt, StreamExt};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{broadcast, mpsc, oneshot},
};
use tokio_tungstenite::{accept_async, tungstenite::Message};

/// What a relay does with a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reaction {
    /// It is taken.
    Take,
    /// An event is stored and acknowledged, but no subscription gets it live.
    TakeUndelivered,
    /// It is refused with this message.
    Refuse(&'static str),
    /// It gets no answer.
    Ignore,
    /// The socket ends without a close frame.
    Cut,
}

/// The reaction to the nth frame of a verb, over all sockets, counted from 1.
pub type Rule = Box<dyn FnMut(u64) -> Reaction + Send>;

/// How a relay behaves. By default it takes everything.
pub struct Rules {
    /// Reactions to EVENT frames.
    pub events: Rule,
    /// Reactions to REQ frames.
    pub reqs: Rule,
    /// Reactions to AUTH frames; a login that is taken is checked all the same.
    pub logins: Rule,
    /// EVENT, REQ and COUNT frames in any [`WINDOW`], over all sockets; more are refused.
    pub quota: Option<usize>,
    /// Everything but AUTH needs a login.
    pub auth_required: bool,
    /// Of events with one time, the highest id comes first: the wrong order.
    pub ties_reversed: bool,
}

/// The window of [`Rules::quota`].
pub const WINDOW: Duration = Duration::from_secs(5);

/// Events that one filter without a limit brings.
const PAGE: u64 = 500;

impl Default for Rules {
    fn default() -> Self {
        let take = || -> Rule { Box::new(|_| Reaction::Take) };
        Self {
            events: take(),
            reqs: take(),
            logins: take(),
            quota: None,
            auth_required: false,
            ties_reversed: false,
        }
    }
}

/// A frame that the relay got.
#[derive(Debug, Clone)]
pub struct ReceivedFrame {
    /// When it came.
    pub at: Instant,
    /// From which socket, counted from 1.
    pub socket: u64,
    /// Its text.
    pub text: String,
}

/// What a relay holds and has seen.
pub struct State {
    rules: Rules,
    url: String,
    events: Vec<Event>,
    live: Vec<Subscription>,
    /// When the frames of the quota's window came.
    spent: VecDeque<Instant>,
    /// EVENT, REQ and AUTH frames that rules have judged.
    judged: [u64; 3],
    /// Frames so far, in the order they came.
    pub frames: Vec<ReceivedFrame>,
    /// Sockets so far.
    pub sockets: u64,
    /// Frames refused for want of quota.
    pub refusals: usize,
}

struct Subscription {
    socket: u64,
    sub: String,
    filters: Vec<Filter>,
    out: mpsc::UnboundedSender<String>,
}

/// A running relay; it ends with all its sockets when it is dropped.
pub struct SmallRelay {
    /// Where it listens.
    pub address: SocketAddr,
    /// The URL that logins must name.
    pub url: String,
    state: Arc<Mutex<State>>,
    kick: broadcast::Sender<()>,
    /// Its drop ends the relay's thread.
    _running: oneshot::Sender<()>,
}

impl SmallRelay {
    /// Starts one on a free port, on a thread of its own.
    pub fn start(rules: Rules) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("an option");
        let address = listener.local_addr().expect("an address");
        let url = format!("ws://{address}");
        let state = Arc::new(Mutex::new(State {
            rules,
            url: url.clone(),
            events: Vec::new(),
            live: Vec::new(),
            spent: VecDeque::new(),
            judged: [0; 3],
            frames: Vec::new(),
            sockets: 0,
            refusals: 0,
        }));
        let kick = broadcast::Sender::new(1);
        let (running, mut dropped) = oneshot::channel::<()>();
        let (accept_state, accept_kick) = (Arc::clone(&state), kick.clone());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                loop {
                    tokio::select! {
                        _ = &mut dropped => return,
                        accepted = listener.accept() => {
                            let (stream, _) = accepted.expect("a connection");
                            let state = Arc::clone(&accept_state);
                            tokio::spawn(serve(stream, state, accept_kick.subscribe()));
                        }
                    }
                }
            });
        });
        Self {
            address,
            url,
            state,
            kick,
            _running: running,
        }
    }

    /// What it holds and has seen.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Events from elsewhere: stored, and delivered to the open subscriptions.
    pub fn publish(&self, events: &[Event]) {
        let mut state = self.state();
        for event in events {
            state.deliver(event);
            state.events.push(event.clone());
        }
    }

    /// Ends all sockets without a close frame.
    pub fn kick(&self) {
        let _ = self.kick.send(());
    }

    /// The frames of one verb, in the order they came.
    pub fn frames(&self, verb: &str) -> Vec<ReceivedFrame> {
        let start = format!("[\"{verb}\"");
        let state = self.state();
        let of_verb = |frame: &&ReceivedFrame| frame.text.starts_with(&start);
        state.frames.iter().filter(of_verb).cloned().collect()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no socket's task has panicked")
}

/// One socket, as its frames need it.
struct Socket {
    number: u64,
    challenge: String,
    logged_in: bool,
    out: mpsc::UnboundedSender<String>,
}

impl Socket {
    fn send(&self, text: String) {
        // The receiver lives as long as the socket's task.
        let _ = self.out.send(text);
    }
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>, mut kick: broadcast::Receiver<()>) {
    let _ = stream.set_nodelay(true);
    let Ok(websocket) = accept_async(stream).await else {
        return;
    };
    let (mut sink, mut stream) = websocket.split();
    let (out, mut waiting) = mpsc::unbounded_channel::<String>();
    let number = {
        let mut state = lock(&state);
        state.sockets += 1;
        state.sockets
    };
    let mut socket = Socket {
        number,
        challenge: format!("challenge-{number}"),
        logged_in: false,
        out,
    };
    socket.send(relay_frame::auth_challenge(&socket.challenge));
    loop {
        tokio::select! {
            _ = kick.recv() => break,
            Some(text) = waiting.recv() => {
                let mut sent = sink.feed(Message::text(text)).await;
                while sent.is_ok() && let Ok(text) = waiting.try_recv() {
                    sent = sink.feed(Message::text(text)).await;
                }
                if sent.is_err() || sink.flush().await.is_err() {
                    break;
                }
            }
            message = stream.next() => {
                let Some(Ok(message)) = message else { break };
                let Message::Text(text) = message else { continue };
                if lock(&state).handle(&mut socket, &text).is_break() {
                    break;
                }
            }
        }
    }
    lock(&state).live.retain(|one| one.socket != number);
}

impl State {
    /// Answers a frame; `Break` ends its socket.
    fn handle(&mut self, socket: &mut Socket, text: &str) -> ControlFlow<()> {
        self.frames.push(ReceivedFrame {
            at: Instant::now(),
            socket: socket.number,
            text: text.to_owned(),
        });
        let frame = ClientFrame::parse(text).unwrap_or_else(|error| panic!("{error:?}: {text}"));
        if let Some(why) = self.not_served(socket, &frame) {
            refuse(socket, &frame, &why);
            return ControlFlow::Continue(());
        }
        let undelivered = match self.judge(&frame) {
            Reaction::Take => false,
            Reaction::TakeUndelivered => true,
            Reaction::Refuse(why) => {
                refuse(socket, &frame, why);
                return ControlFlow::Continue(());
            }
            Reaction::Ignore => return ControlFlow::Continue(()),
            Reaction::Cut => return ControlFlow::Break(()),
        };
        match frame {
            ClientFrame::Event(event) => {
                let message = self.take(*event.clone(), undelivered);
                socket.send(relay_frame::ok(&event.id, true, message));
            }
            ClientFrame::Req { sub, filters } => {
                for event in filters.iter().flat_map(|filter| self.stored(filter)) {
                    socket.send(event_frame(&sub, event));
                }
                socket.send(relay_frame::eose(&sub));
                self.close(socket.number, &sub);
                self.live.push(Subscription {
                    socket: socket.number,
                    sub,
                    filters,
                    out: socket.out.clone(),
                });
            }
            ClientFrame::Count { query, filters } => {
                let matches = |event: &&Event| filters.iter().any(|filter| filter.matches(event));
                let count = self.events.iter().filter(matches).count() as u64;
                socket.send(relay_frame::count(&query, count));
            }
            ClientFrame::Close { sub } => self.close(socket.number, &sub),
            ClientFrame::Auth(login) => {
                login.verify().expect("a login that was signed");
                let now = login.created_at;
                let checked = auth::check_login(&login, &socket.challenge, &self.url, now);
                socket.logged_in = checked.is_ok();
                let message = checked
                    .err()
                    .map_or(String::new(), |error| error.to_string());
                socket.send(relay_frame::ok(&login.id, socket.logged_in, &message));
            }
        }
        ControlFlow::Continue(())
    }

    /// Why a frame isn't served before any rule is asked: no login, or no quota left.
    fn not_served(&mut self, socket: &Socket, frame: &ClientFrame) -> Option<String> {
        if matches!(frame, ClientFrame::Auth(_) | ClientFrame::Close { .. }) {
            return None;
        }
        if self.rules.auth_required && !socket.logged_in {
            return Some("auth-required: log in first".to_owned());
        }
        let (quota, now) = (self.rules.quota?, Instant::now());
        while self.spent.front().is_some_and(|at| now - *at >= WINDOW) {
            self.spent.pop_front();
        }
        if self.spent.len() < quota {
            self.spent.push_back(now);
            return None;
        }
        self.refusals += 1;
        let wait = WINDOW.saturating_sub(now - self.spent[0]).as_secs() + 1;
        Some(format!("rate-limited: quota exceeded; retry in {wait}s"))
    }

    fn judge(&mut self, frame: &ClientFrame) -> Reaction {
        let (verb, rule) = match frame {
            ClientFrame::Event(_) => (0, &mut self.rules.events),
            ClientFrame::Req { .. } => (1, &mut self.rules.reqs),
            ClientFrame::Auth(_) => (2, &mut self.rules.logins),
            ClientFrame::Count { .. } | ClientFrame::Close { .. } => return Reaction::Take,
        };
        self.judged[verb] += 1;
        rule(self.judged[verb])
    }

    /// Takes an event; gives the message of its OK.
    fn take(&mut self, event: Event, undelivered: bool) -> &'static str {
        event.verify().expect("an event that was signed");
        if self.events.iter().any(|stored| stored.id == event.id) {
            return refusal::DUPLICATE;
        }
        if !undelivered {
            self.deliver(&event);
        }
        if kind::class(event.kind) != kind::Class::Ephemeral {
            self.events.push(event);
        }
        ""
    }

    fn deliver(&self, event: &Event) {
        for one in &self.live {
            if one.filters.iter().any(|filter| filter.matches(event)) {
                let _ = one.out.send(event_frame(&one.sub, event));
            }
        }
    }

    fn close(&mut self, socket: u64, sub: &str) {
        self.live
            .retain(|one| one.socket != socket || one.sub != sub);
    }

    /// The newest events of a filter, as many as it may have.
    fn stored(&self, filter: &Filter) -> Vec<&Event> {
        let matching = self.events.iter().filter(|event| filter.matches(event));
        let mut events: Vec<&Event> = matching.collect();
        events.sort_by(|a, b| {
            let ids = a.id.cmp(&b.id);
            let ids = match self.rules.ties_reversed {
                true => ids.reverse(),
                false => ids,
            };
            b.created_at.cmp(&a.created_at).then(ids)
        });
        let limit = filter.limit.unwrap_or(PAGE).min(PAGE);
        events.truncate(usize::try_from(limit).expect("a small number"));
        events
    }
}

/// Refuses a frame by its name.
fn refuse(socket: &Socket, frame: &ClientFrame, why: &str) {
    let id = match frame {
        ClientFrame::Event(event) | ClientFrame::Auth(event) => &event.id,
        ClientFrame::Req { sub: name, .. }
        | ClientFrame::Count { query: name, .. }
        | ClientFrame::Close { sub: name } => {
            return socket.send(relay_frame::closed(name, why));
        }
    };
    socket.send(relay_frame::ok(id, false, why));
}

fn event_frame(sub: &str, event: &Event) -> String {
    format!("{}{}]", relay_frame::event_prefix(sub), event.to_json())
}
