//! A client that speaks the wire, one frame at a time.

use std::{collections::VecDeque, net::SocketAddr};

use buzz_protocol::{Event, relay_frame::RelayFrame};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, protocol::CloseFrame, protocol::WebSocketConfig},
};

use crate::{Author, Relay, relay::URL, soon};

/// One socket.
pub struct Client {
    socket: WebSocketStream<TcpStream>,
    /// Read while something else was waited for.
    waiting: VecDeque<String>,
    challenge: Option<String>,
    queries: u64,
}

impl Client {
    /// Opens a socket to `relay`.
    pub async fn connect(relay: &Relay) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        Self::over(socket, relay.addr).await
    }

    /// Takes at most some tens of kilobytes that it has not read.
    pub async fn with_small_buffer(relay: &Relay) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .set_recv_buffer_size(32 * 1024)
            .expect("a small buffer");
        Self::over(socket, relay.addr).await
    }

    async fn over(socket: TcpSocket, addr: SocketAddr) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(None)
            .max_frame_size(None);
        let (socket, _) = soon("a websocket", async {
            let stream = socket.connect(addr).await.expect("a connection");
            stream.set_nodelay(true).expect("a socket option");
            let url = format!("ws://{addr}/");
            client_async_with_config(url, stream, Some(config))
                .await
                .expect("a websocket")
        })
        .await;
        Self {
            socket,
            waiting: VecDeque::new(),
            challenge: None,
            queries: 0,
        }
    }

    /// Sends a frame.
    pub async fn send(&mut self, frame: Value) {
        self.send_text(&frame.to_string()).await;
    }

    /// Sends a text frame as it is.
    pub async fn send_text(&mut self, text: &str) {
        self.send_message(Message::text(text)).await;
    }

    /// Sends any message.
    pub async fn send_message(&mut self, message: Message) {
        let sent = soon("a frame to be taken", self.socket.send(message)).await;
        sent.expect("an open socket");
    }

    /// Sends unless the socket has ended; says whether it could.
    pub async fn try_send(&mut self, text: String) -> bool {
        let sent = soon("a frame to be taken", self.socket.send(Message::text(text))).await;
        sent.is_ok()
    }

    /// The next text frame; `None` where the socket has ended.
    pub async fn try_next(&mut self) -> Option<RelayFrame> {
        loop {
            match self.message().await? {
                Message::Text(text) => return Some(parse(&text)),
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }

    /// The next message, whatever it is; `None` where the stream ended.
    pub async fn message(&mut self) -> Option<Message> {
        let message = soon("a message", self.socket.next()).await?;
        message.ok()
    }

    /// The next text frame that is no login challenge. Fails where the socket closes.
    pub async fn text(&mut self) -> String {
        if let Some(text) = self.waiting.pop_front() {
            return text;
        }
        self.fresh_text().await
    }

    async fn fresh_text(&mut self) -> String {
        loop {
            match self.message().await {
                Some(Message::Text(text)) => match RelayFrame::parse(&text) {
                    Ok(RelayFrame::Auth { challenge }) => self.challenge = Some(challenge),
                    _ => return text.to_string(),
                },
                Some(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("the socket ended: {other:?}"),
            }
        }
    }

    /// The next frame that is no login challenge.
    pub async fn next(&mut self) -> RelayFrame {
        parse(&self.text().await)
    }

    /// The first frame that `wanted` takes; earlier ones stay to be read.
    pub async fn find<T>(&mut self, mut wanted: impl FnMut(&RelayFrame) -> Option<T>) -> T {
        let found =
            |text: &String, wanted: &mut dyn FnMut(&RelayFrame) -> Option<T>| wanted(&parse(text));
        for at in 0..self.waiting.len() {
            if let Some(answer) = found(&self.waiting[at], &mut wanted) {
                self.waiting.remove(at);
                return answer;
            }
        }
        loop {
            let text = self.fresh_text().await;
            match found(&text, &mut wanted) {
                Some(answer) => return answer,
                None => self.waiting.push_back(text),
            }
        }
    }

    /// Publishes, and gives the relay's verdict on it.
    pub async fn publish(&mut self, event: &Event) -> (bool, String) {
        self.send_text(&format!("[\"EVENT\",{}]", event.to_json()))
            .await;
        self.verdict(event).await
    }

    /// The verdict on an event that was sent before.
    pub async fn verdict(&mut self, event: &Event) -> (bool, String) {
        self.find(|frame| match frame {
            RelayFrame::Ok {
                id,
                accepted,
                message,
            } if *id == event.id => Some((*accepted, message.clone())),
            _ => None,
        })
        .await
    }

    /// Publishes what must be accepted.
    pub async fn accept(&mut self, event: &Event) {
        let verdict = self.publish(event).await;
        assert_eq!(verdict, (true, String::new()), "{}", event.to_json());
    }

    /// Publishes what must be refused with a message that starts so.
    pub async fn refuse(&mut self, event: &Event, message: &str) {
        let (accepted, why) = self.publish(event).await;
        assert!(
            !accepted && why.starts_with(message),
            "{accepted}, {why:?} instead of a refusal {message:?}: {}",
            event.to_json()
        );
    }

    /// Everything stored for `filters` (one or a list), in the order it came.
    pub async fn fetch(&mut self, filters: Value) -> Vec<Event> {
        let texts = self.fetch_texts(filters).await;
        let event = |text: &String| match parse(text) {
            RelayFrame::Event { event, .. } => *event,
            other => panic!("{other:?} before EOSE"),
        };
        texts.iter().map(event).collect()
    }

    /// The frames before EOSE, as they came.
    pub async fn fetch_texts(&mut self, filters: Value) -> Vec<String> {
        let name = self.fresh_name();
        self.send(request("REQ", &name, filters)).await;
        let mut texts = Vec::new();
        loop {
            let text = self.fresh_text().await;
            match parse(&text) {
                RelayFrame::Event { sub, .. } if sub == name => texts.push(text),
                RelayFrame::Eose { sub } if sub == name => break,
                RelayFrame::Closed { sub, message } if sub == name => {
                    panic!("refused: {message}")
                }
                _ => self.waiting.push_back(text),
            }
        }
        self.send(json!(["CLOSE", name])).await;
        texts
    }

    /// The count (NIP-45), or the reason of a refusal.
    pub async fn count(&mut self, filters: Value) -> Result<u64, String> {
        let name = self.fresh_name();
        self.send(request("COUNT", &name, filters)).await;
        self.find(|frame| match frame {
            RelayFrame::Count { query, count } if *query == name => Some(Ok(*count)),
            RelayFrame::Closed { sub, message } if *sub == name => Some(Err(message.clone())),
            _ => None,
        })
        .await
    }

    /// Opens a subscription and reads its stored events up to EOSE.
    pub async fn subscribe(&mut self, sub: &str, filters: Value) -> Vec<Event> {
        self.send(request("REQ", sub, filters)).await;
        let mut stored = Vec::new();
        loop {
            match self.next().await {
                RelayFrame::Event { sub: of, event } if of == sub => stored.push(*event),
                RelayFrame::Eose { sub: of } if of == sub => return stored,
                other => panic!("{other:?} while {sub} waits for EOSE"),
            }
        }
    }

    /// The next live event, with its subscription.
    pub async fn live(&mut self) -> (String, Event) {
        match self.next().await {
            RelayFrame::Event { sub, event } => (sub, *event),
            other => panic!("{other:?} instead of a live event"),
        }
    }

    /// Everything that was sent before the answer to a frame sent now.
    pub async fn frames_so_far(&mut self) -> Vec<RelayFrame> {
        let name = self.fresh_name();
        self.send(json!(["REQ", name, {"ids": []}])).await;
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                RelayFrame::Eose { sub } if sub == name => break,
                frame => frames.push(frame),
            }
        }
        self.send(json!(["CLOSE", name])).await;
        frames
    }

    /// The challenge of this connection (NIP-42).
    pub async fn challenge(&mut self) -> String {
        while self.challenge.is_none() {
            match self.message().await {
                Some(Message::Text(text)) => match RelayFrame::parse(&text) {
                    Ok(RelayFrame::Auth { challenge }) => self.challenge = Some(challenge),
                    _ => self.waiting.push_back(text.to_string()),
                },
                Some(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("{other:?} instead of a challenge"),
            }
        }
        self.challenge.clone().expect("just read")
    }

    /// The challenge, where one was read so far.
    pub fn challenge_so_far(&self) -> Option<&str> {
        self.challenge.as_deref()
    }

    /// Sends a login and gives the verdict.
    pub async fn log_in_with(&mut self, login: &Event) -> (bool, String) {
        self.send_text(&format!("[\"AUTH\",{}]", login.to_json()))
            .await;
        self.verdict(login).await
    }

    /// Logs in as `author`.
    pub async fn log_in(&mut self, author: &Author) {
        let login = author.login(&self.challenge().await, URL).sign();
        assert_eq!(self.log_in_with(&login).await, (true, String::new()));
    }

    /// Reads up to the close frame and gives it; `None` where the stream ends without one.
    pub async fn close_frame(&mut self) -> Option<CloseFrame> {
        soon("a close frame", async {
            while let Some(Ok(message)) = self.socket.next().await {
                if let Message::Close(frame) = message {
                    return frame;
                }
            }
            None
        })
        .await
    }

    /// Behind a close frame the connection must end by itself and without a reset.
    pub async fn ends_cleanly(&mut self) {
        let rest = soon("the connection's end", self.socket.next()).await;
        assert!(rest.is_none(), "behind a close frame: {rest:?}");
    }

    /// Reads to the end and gives the close frame, where there was one.
    pub async fn closed(&mut self) -> Option<CloseFrame> {
        let close = self.close_frame().await;
        if close.is_some() {
            self.ends_cleanly().await;
        }
        close
    }

    /// The connection below, for tests that break it.
    pub fn stream(&mut self) -> &mut TcpStream {
        self.socket.get_mut()
    }

    fn fresh_name(&mut self) -> String {
        self.queries += 1;
        format!("q{}", self.queries)
    }
}

/// `[verb, name, filter…]` from one filter or a list of them.
pub fn request(verb: &str, name: &str, filters: Value) -> Value {
    let mut frame = vec![json!(verb), json!(name)];
    match filters {
        Value::Array(filters) => frame.extend(filters),
        filter => frame.push(filter),
    }
    Value::Array(frame)
}

fn parse(text: &str) -> RelayFrame {
    RelayFrame::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
