//! Runs a session on tokio: one task that owns it, one task for each socket. Inputs come in one
//! queue of [`INPUTS`] frames; when it is full the socket is not read, and TCP slows the relay.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use buzz_protocol::{Filter, Tag, UnsignedEvent, kind};
use tokio::{
    sync::{
        mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender},
        oneshot, watch,
    },
    time::Instant,
};
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::{
    Error, Signer,
    counts::Counts,
    information,
    session::{
        Answer, Command, Config, Input, Message, Now, Output, RequestId, Session, SocketId, Status,
        SubId, Ticket,
    },
    socket::{self, Dialer},
};

/// Frames read and not yet handled.
const INPUTS: usize = 64;

/// What handles tell the driver.
#[derive(Debug)]
pub(crate) enum Call {
    Command(Command),
    Request(RequestId, Command, oneshot::Sender<Result<Answer, Error>>),
    Subscribe(SubId, Vec<Filter>, UnboundedSender<Message>),
    Took(SubId, usize),
}

/// The way to the driver. Unbounded, because the driver never waits for anything before it takes
/// the next call; what it keeps of them is bounded in the session.
#[derive(Debug, Clone)]
pub(crate) struct Calls(UnboundedSender<Call>);

impl Calls {
    pub(crate) fn new(calls: UnboundedSender<Call>) -> Self {
        Self(calls)
    }

    /// Does nothing once the driver has ended.
    pub(crate) fn send(&self, call: Call) {
        let _ = self.0.send(call);
    }
}

/// The socket in use: dropping it ends the socket's task.
struct Socket {
    id: SocketId,
    /// Unbounded, because the session paces what it sends.
    writes: UnboundedSender<(Ticket, Frame)>,
    _stop: oneshot::Sender<()>,
}

pub(crate) struct Driver {
    session: Session,
    /// The relay in use.
    url: String,
    signer: Option<Arc<dyn Signer>>,
    dialer: Dialer,
    start: Instant,
    inputs: Receiver<Input>,
    to_self: Sender<Input>,
    socket: Option<Socket>,
    requests: HashMap<RequestId, oneshot::Sender<Result<Answer, Error>>>,
    consumers: HashMap<SubId, UnboundedSender<Message>>,
    status: watch::Sender<Status>,
    counts: Arc<Counts>,
    read_information: bool,
    /// The relay in use has said what its limits are.
    knows_limits: bool,
}

impl Driver {
    pub(crate) fn new(
        url: String,
        config: Config,
        signer: Option<Arc<dyn Signer>>,
        dialer: Dialer,
        seed: u64,
        status: watch::Sender<Status>,
        counts: Arc<Counts>,
    ) -> Self {
        let start = Instant::now();
        let (to_self, inputs) = mpsc::channel(INPUTS);
        let read_information = config.read_information;
        Self {
            session: Session::new(url.clone(), signer.is_some(), config, now(start), seed),
            url,
            signer,
            dialer,
            start,
            inputs,
            to_self,
            socket: None,
            requests: HashMap::new(),
            consumers: HashMap::new(),
            status,
            counts,
            read_information,
            knows_limits: false,
        }
    }

    /// Runs until the client is closed, or until its last handle is gone.
    pub(crate) async fn run(mut self, mut calls: UnboundedReceiver<Call>) {
        self.feed(Input::Tick);
        while *self.status.borrow() != Status::Closed {
            let wake = self.session.wake_at().map(|at| self.start + at);
            let timer = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let input = tokio::select! {
                call = calls.recv() => match call {
                    Some(call) => self.input_of(call),
                    None => return,
                },
                Some(input) = self.inputs.recv() => input,
                () = timer => Input::Tick,
            };
            self.feed(input);
        }
    }

    fn input_of(&mut self, call: Call) -> Input {
        match call {
            Call::Command(command) => {
                match &command {
                    Command::Unsubscribe(id) => {
                        self.consumers.remove(id);
                    }
                    Command::Switch(url) => {
                        self.url.clone_from(url);
                        self.knows_limits = false;
                    }
                    _ => {}
                }
                Input::Command(command)
            }
            Call::Request(id, command, answer) => {
                self.requests.insert(id, answer);
                Input::Command(command)
            }
            Call::Subscribe(id, filters, consumer) => {
                self.consumers.insert(id, consumer);
                Input::Command(Command::Subscribe(id, filters))
            }
            Call::Took(id, n) => Input::Took(id, n),
        }
    }

    fn feed(&mut self, input: Input) {
        if let Input::Limits(url, _) = &input {
            self.knows_limits |= *url == self.url;
        }
        self.session.handle(input, now(self.start));
        // Before the results, so that who has one sees what it took.
        self.counts.note(&self.session);
        while let Some(output) = self.session.next_output() {
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Dial(id, url) => self.dial(id, url),
            Output::Drop(id) => {
                self.socket.take_if(|socket| socket.id == id);
            }
            Output::Send(id, ticket, text) => self.write(id, ticket, Frame::text(text)),
            Output::Ping(id, ticket) => self.write(id, ticket, Frame::Ping(Vec::new().into())),
            Output::Sign(id, challenge, url) => self.sign(id, challenge, url),
            Output::Resolved(id, result) => {
                // A caller that no longer waits has dropped its end.
                if let Some(answer) = self.requests.remove(&id) {
                    let _ = answer.send(result);
                }
            }
            Output::Deliver(id, message) => {
                let ended = matches!(message, Message::Closed(_));
                if let Some(consumer) = self.consumers.get(&id) {
                    let _ = consumer.send(message);
                }
                if ended {
                    self.consumers.remove(&id);
                }
            }
            Output::Status(status) => {
                tracing::debug!(?status, "status");
                self.status.send_replace(status);
            }
        }
    }

    fn dial(&mut self, id: SocketId, url: String) {
        let (writes, to_write) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        self.socket = Some(Socket {
            id,
            writes,
            _stop: stop,
        });
        self.ask_for_limits(&url);
        let (dialer, inputs) = (self.dialer.clone(), self.to_self.clone());
        tokio::spawn(socket::run(id, url, dialer, to_write, stopped, inputs));
    }

    /// With each dial until they are known: a relay that is down says nothing of them.
    fn ask_for_limits(&mut self, url: &str) {
        if !self.read_information || self.knows_limits {
            return;
        }
        let (url, dialer, inputs) = (url.to_owned(), self.dialer.clone(), self.to_self.clone());
        tokio::spawn(async move {
            if let Some(limits) = information::fetch(url.clone(), dialer).await {
                let _ = inputs.send(Input::Limits(url, limits)).await;
            }
        });
    }

    /// A socket whose task has ended reports its loss itself.
    fn write(&self, id: SocketId, ticket: Ticket, frame: Frame) {
        if let Some(socket) = self.socket.as_ref().filter(|socket| socket.id == id) {
            let _ = socket.writes.send((ticket, frame));
        }
    }

    fn sign(&self, id: SocketId, challenge: String, url: String) {
        let Some(signer) = self.signer.clone() else {
            return;
        };
        let login = UnsignedEvent {
            created_at: now(self.start).unix,
            kind: kind::CLIENT_AUTH,
            tags: vec![
                Tag::new(["relay", url.as_str()]),
                Tag::new(["challenge", challenge.as_str()]),
            ],
            content: String::new(),
        };
        let inputs = self.to_self.clone();
        tokio::spawn(async move {
            let signed = signer.sign(login).await.map(Box::new);
            let _ = inputs.send(Input::Signed(id, challenge, signed)).await;
        });
    }
}

fn now(start: Instant) -> Now {
    // A clock before 1970 is taken as 1970.
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    Now {
        at: start.elapsed(),
        unix: unix.map_or(0, |since| since.as_secs()),
    }
}

#[cfg(test)]
mod tests;
