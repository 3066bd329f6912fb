//! A small relay for the tests: real sockets, events in memory, answers by brute force. It can be
//! told to misbehave, so that the load tool can be seen to notice.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use buzz_protocol::{ClientFrame, Event, Filter, auth, relay_frame};
use futures_util::{SinkExt, StreamExt};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::{accept_async, tungstenite::Message};

/// What the relay does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Refuses every second event.
    RefusesHalf,
    /// Answers no event.
    Silent,
    /// Ends a socket at its third event.
    Cuts,
    /// Ties come highest id first.
    TiesWrong,
    /// Delivers each event but the tenth ones live.
    LosesTenth,
    /// Closes every subscription.
    RefusesReq,
    /// Sheds two of three logins by ending the socket without a word.
    ShedsLogins,
    /// Refuses every login for good.
    RefusesLogins,
    /// Takes 50 EVENT and REQ frames in any 5 s, over all sockets.
    Quota,
}

/// The window of [`Fault::Quota`].
const WINDOW: Duration = Duration::from_secs(5);

struct Subscriber {
    socket: u64,
    sub: String,
    filters: Vec<Filter>,
    queue: mpsc::UnboundedSender<String>,
}

struct State {
    fault: Fault,
    events: Vec<Event>,
    live: Vec<Subscriber>,
    published: u64,
    sockets: u64,
    logins: u64,
    /// What logins must name.
    url: String,
    /// When the frames of the quota's window came.
    spent: VecDeque<Instant>,
}

/// Starts it on a free port, for as long as the test's process runs.
pub(crate) fn start(fault: Fault) -> SocketAddr {
    let (tell, address) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tell.send(address).unwrap();
            let state = Arc::new(Mutex::new(State {
                fault,
                events: Vec::new(),
                live: Vec::new(),
                published: 0,
                sockets: 0,
                logins: 0,
                url: format!("ws://{address}"),
                spent: VecDeque::new(),
            }));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&state)));
            }
        });
    });
    address.recv().unwrap()
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) {
    stream.set_nodelay(true).unwrap();
    let Ok(socket) = accept_async(stream).await else {
        return;
    };
    let (mut sink, mut stream) = socket.split();
    let (queue, mut waiting) = mpsc::unbounded_channel::<String>();
    let number = {
        let mut state = state.lock().unwrap();
        state.sockets += 1;
        state.sockets
    };
    queue
        .send(relay_frame::auth_challenge("challenge"))
        .unwrap();
    let mut events = 0;
    loop {
        tokio::select! {
            text = waiting.recv() => {
                let Some(text) = text else { break };
                if sink.feed(Message::text(text)).await.is_err() {
                    break;
                }
                while let Ok(text) = waiting.try_recv() {
                    if sink.feed(Message::text(text)).await.is_err() {
                        break;
                    }
                }
                if sink.flush().await.is_err() {
                    break;
                }
            }
            message = stream.next() => {
                let Some(Ok(Message::Text(text))) = message else { break };
                let frame = ClientFrame::parse(&text).unwrap();
                events += u32::from(matches!(frame, ClientFrame::Event(_)));
                let mut state = state.lock().unwrap();
                if state.fault == Fault::Cuts && events == 3 {
                    break;
                }
                let is_login = matches!(frame, ClientFrame::Auth(_));
                state.logins += u64::from(is_login);
                let shed = is_login && !state.logins.is_multiple_of(3);
                if state.fault == Fault::ShedsLogins && shed {
                    break;
                }
                for text in state.handle(number, frame, &queue) {
                    queue.send(text).unwrap();
                }
            }
        }
    }
    state
        .lock()
        .unwrap()
        .live
        .retain(|one| one.socket != number);
}

impl State {
    fn handle(
        &mut self,
        socket: u64,
        frame: ClientFrame,
        queue: &mpsc::UnboundedSender<String>,
    ) -> Vec<String> {
        if self.fault == Fault::Quota
            && let Some(text) = self.over_quota()
        {
            match &frame {
                ClientFrame::Event(event) => {
                    return vec![relay_frame::ok(&event.id, false, &text)];
                }
                ClientFrame::Req { sub, .. } => return vec![relay_frame::closed(sub, &text)],
                _ => {}
            }
        }
        match frame {
            ClientFrame::Event(event) => self.publish(*event),
            ClientFrame::Auth(login) => vec![self.log_in(&login)],
            ClientFrame::Req { sub, .. } if self.fault == Fault::RefusesReq => {
                vec![relay_frame::closed(&sub, "rate-limited: no; retry in 1s")]
            }
            ClientFrame::Req { sub, filters } => {
                let mut answer = self.stored(&sub, &filters[0]);
                answer.push(relay_frame::eose(&sub));
                self.live.push(Subscriber {
                    socket,
                    sub,
                    filters,
                    queue: queue.clone(),
                });
                answer
            }
            ClientFrame::Close { sub } => {
                self.live
                    .retain(|one| one.socket != socket || one.sub != sub);
                Vec::new()
            }
            other => panic!("the load tool sent {other:?}"),
        }
    }

    fn log_in(&self, login: &Event) -> String {
        login.verify().unwrap();
        let checked = auth::check_login(login, "challenge", &self.url, login.created_at);
        let refusal = match (self.fault, checked) {
            (Fault::RefusesLogins, _) => "restricted: not a member".to_owned(),
            (_, Err(error)) => error.to_string(),
            (_, Ok(())) => String::new(),
        };
        relay_frame::ok(&login.id, refusal.is_empty(), &refusal)
    }

    /// Counts one frame, or says why not.
    fn over_quota(&mut self) -> Option<String> {
        let now = Instant::now();
        while self.spent.front().is_some_and(|at| now - *at >= WINDOW) {
            self.spent.pop_front();
        }
        if self.spent.len() < 50 {
            self.spent.push_back(now);
            return None;
        }
        let wait = WINDOW.saturating_sub(now - self.spent[0]).as_secs() + 1;
        Some(format!("rate-limited: quota exceeded; retry in {wait}s"))
    }

    fn publish(&mut self, event: Event) -> Vec<String> {
        event.verify().unwrap();
        self.published += 1;
        let tenth = self.published.is_multiple_of(10);
        match self.fault {
            Fault::Silent => return Vec::new(),
            Fault::RefusesHalf if self.published.is_multiple_of(2) => {
                return vec![relay_frame::ok(
                    &event.id,
                    false,
                    "blocked: every second one",
                )];
            }
            _ => {}
        }
        if self.events.iter().any(|stored| stored.id == event.id) {
            return vec![relay_frame::ok(
                &event.id,
                true,
                "duplicate: already have this event",
            )];
        }
        if !(self.fault == Fault::LosesTenth && tenth) {
            for one in &self.live {
                if one.filters.iter().any(|filter| filter.matches(&event)) {
                    let _ = one.queue.send(event_frame(&one.sub, &event));
                }
            }
        }
        let ok = relay_frame::ok(&event.id, true, "");
        self.events.push(event);
        vec![ok]
    }

    fn stored(&self, sub: &str, filter: &Filter) -> Vec<String> {
        let mut hits: Vec<&Event> = self.events.iter().filter(|e| filter.matches(e)).collect();
        hits.sort_by(|a, b| {
            let ids = a.id.cmp(&b.id);
            let ids = if self.fault == Fault::TiesWrong {
                ids.reverse()
            } else {
                ids
            };
            b.created_at.cmp(&a.created_at).then(ids)
        });
        let limit = filter.limit.unwrap_or(500) as usize;
        hits.iter()
            .take(limit)
            .map(|event| event_frame(sub, event))
            .collect()
    }
}

fn event_frame(sub: &str, event: &Event) -> String {
    format!("{}{}]", relay_frame::event_prefix(sub), event.to_json())
}
