//! A session, a relay and the network between them in virtual time. Every invariant is checked at
//! every output; what happens depends on the seed alone.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use buzz_protocol::{ClientFrame, Event, EventId, Filter, refusal, relay_frame::RelayFrame};

use super::{
    super::{rng::Rng, *},
    kit::{UNIX, ms, secs},
    relay::SimRelay,
};

#[derive(Debug)]
enum Happening {
    ToRelay(SocketId, String),
    ToClient(SocketId, String),
    Opened(SocketId),
    Lost(SocketId),
    Written(Ticket),
    WriteFailed(Ticket),
    Signed(SocketId, String),
    Pong(SocketId),
}

/// What a consumer got, and has not read.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    pub(super) filters: Vec<Filter>,
    pub(super) queue: usize,
    pub(super) got: BTreeSet<EventId>,
    pub(super) caught_up: bool,
    /// Matching events the relay had when the consumer was told that it is caught up.
    pub(super) had: usize,
    pub(super) closed: Option<String>,
    /// Reads at once whatever comes.
    pub(super) fast: bool,
}

pub(super) struct World {
    pub(super) session: Session,
    pub(super) relay: SimRelay,
    pub(super) at: Duration,
    pub(super) rng: Rng,
    pub(super) consumers: BTreeMap<SubId, Consumer>,
    /// Calls without a result, and when they were made.
    pub(super) calls: BTreeMap<RequestId, Duration>,
    pub(super) results: BTreeMap<RequestId, Result<Answer, Error>>,
    pub(super) delay: Duration,
    pub(super) socket: Option<SocketId>,
    /// Nothing passes any more, and neither side is told.
    pub(super) half_open: bool,
    /// Nothing leaves the client any more, while the relay's frames still arrive.
    pub(super) stalled: bool,
    /// When the client first wrote into the stall.
    stalled_at: Option<Duration>,
    pub(super) refuse_dials: bool,
    /// In a hundred writes, so many fail.
    pub(super) failing_writes: u64,
    pub(super) dials: Vec<Duration>,
    /// Each frame sent, and when.
    pub(super) sent: Vec<(Duration, String)>,
    happenings: BTreeMap<(Duration, u64), Happening>,
    next_seq: u64,
    /// The last arrival in each direction: a socket keeps its order.
    last_arrival: [Duration; 2],
    armed_until: Duration,
    recovering: Option<String>,
    pub(super) trace: bool,
    /// Of all outputs so far: equal for equal seeds.
    pub(super) digest: u64,
}

impl World {
    pub(super) fn new(seed: u64, config: Config, has_signer: bool) -> Self {
        let now = Now {
            at: secs(0),
            unix: UNIX,
        };
        let mut world = Self {
            session: Session::new("ws://relay".into(), has_signer, config, now, seed),
            relay: SimRelay::new(),
            at: secs(0),
            rng: Rng::new(!seed),
            consumers: BTreeMap::new(),
            calls: BTreeMap::new(),
            results: BTreeMap::new(),
            delay: ms(50),
            socket: None,
            half_open: false,
            stalled: false,
            stalled_at: None,
            refuse_dials: false,
            failing_writes: 0,
            dials: Vec::new(),
            sent: Vec::new(),
            happenings: BTreeMap::new(),
            next_seq: 0,
            last_arrival: [secs(0); 2],
            armed_until: secs(0),
            recovering: None,
            trace: false,
            digest: 0,
        };
        world.input(Input::Tick);
        world
    }

    fn schedule(&mut self, at: Duration, happening: Happening) {
        self.next_seq += 1;
        self.happenings.insert((at, self.next_seq), happening);
    }

    /// Something on its way over the socket, in direction 0 (to the relay) or 1.
    fn travel(&mut self, direction: usize, happening: Happening) {
        let at = self.at + self.rng.up_to(self.delay);
        let at = at.max(self.last_arrival[direction]);
        self.last_arrival[direction] = at;
        self.schedule(at, happening);
    }

    fn now(&self) -> Now {
        Now {
            at: self.at,
            unix: UNIX + self.at.as_secs(),
        }
    }

    pub(super) fn input(&mut self, input: Input) {
        if self.trace {
            eprintln!("{:?} > {input:?}", self.at);
        }
        self.session.handle(input, self.now());
        while let Some(output) = self.session.next_output() {
            if self.trace {
                eprintln!("{:?} < {output:?}", self.at);
            }
            self.note_output(&output);
            self.output(output);
        }
        let fast = self.consumers.iter().filter(|(_, c)| c.fast && c.queue > 0);
        let readers: Vec<SubId> = fast.map(|(sub, _)| *sub).collect();
        for sub in readers {
            self.read(sub, usize::MAX);
        }
        if let Some(since) = self.stalled_at {
            // What was written before may be reported later, and is progress.
            let given_up = since + self.delay + self.session.config.write_timeout;
            assert!(self.at <= given_up, "a stalled write is not noticed");
        }
        let timeout = self.session.config.request_timeout;
        for (id, called) in &self.calls {
            assert!(
                self.at <= *called + timeout,
                "{id:?} is unresolved past its timeout"
            );
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Dial(socket, _) => {
                assert_eq!(self.socket, None, "one socket at a time");
                self.dials.push(self.at);
                self.socket = Some(socket);
                let happening = if self.refuse_dials {
                    Happening::Lost(socket)
                } else {
                    Happening::Opened(socket)
                };
                self.travel(1, happening);
            }
            Output::Drop(socket) => {
                assert_eq!(self.socket, Some(socket));
                self.disconnect();
            }
            Output::Send(socket, ticket, text) => {
                assert_eq!(self.socket, Some(socket), "only to the open socket: {text}");
                self.check_frame(&text);
                self.sent.push((self.at, text.clone()));
                if self.stalled {
                    self.stalled_at.get_or_insert(self.at);
                } else if self.rng.next_u64() % 100 < self.failing_writes {
                    self.recovering
                        .take_if(|wire| text.contains(&format!("\"{wire}\"")));
                    self.schedule(self.at, Happening::WriteFailed(ticket));
                } else {
                    self.written(ticket);
                    self.travel(0, Happening::ToRelay(socket, text));
                }
            }
            Output::Ping(_, _) if self.stalled => {
                self.stalled_at.get_or_insert(self.at);
            }
            Output::Ping(socket, ticket) => {
                self.written(ticket);
                if !self.half_open {
                    self.travel(1, Happening::Pong(socket));
                }
            }
            Output::Sign(socket, challenge, _) => {
                let at = self.at + self.rng.up_to(secs(1));
                self.schedule(at, Happening::Signed(socket, challenge));
            }
            Output::Resolved(id, result) => {
                let called = self.calls.remove(&id);
                let called = called.unwrap_or_else(|| panic!("{id:?} resolved twice"));
                if let Err(Error::Refused { reason }) = &result
                    && reason.starts_with("error:")
                {
                    let due = called + self.session.config.request_timeout;
                    assert!(self.at + secs(4) >= due, "{id:?} gave up on {reason}");
                }
                self.results.insert(id, result);
            }
            Output::Deliver(sub, message) => self.deliver(sub, message),
            Output::Status(_) => {}
        }
    }

    /// A frame is on the socket; its writer says so a little later, perhaps after the answer.
    fn written(&mut self, ticket: Ticket) {
        let at = self.at + self.rng.up_to(self.delay);
        self.schedule(at, Happening::Written(ticket));
    }

    fn deliver(&mut self, sub: SubId, message: Message) {
        let Some(consumer) = self.consumers.get_mut(&sub) else {
            panic!("delivered to {sub:?}, which is gone");
        };
        assert_eq!(consumer.closed, None, "nothing follows the end");
        match message {
            Message::Event(event) => {
                assert!(consumer.filters.iter().any(|f| f.matches(&event)));
                assert!(consumer.got.insert(event.id), "{} twice", event.id);
                consumer.queue += 1;
                assert!(
                    consumer.queue <= self.session.config.queue,
                    "the queue is bounded"
                );
            }
            Message::CaughtUp => {
                assert!(!consumer.caught_up, "comes once");
                consumer.caught_up = true;
                let all = self.relay.events.iter();
                let had = all.filter(|e| consumer.filters.iter().any(|f| f.matches(e)));
                consumer.had = had.count();
            }
            Message::Closed(reason) => consumer.closed = Some(reason),
        }
    }

    /// Equal runs have equal outputs; signatures alone differ.
    fn note_output(&mut self, output: &Output) {
        let text = match output {
            Output::Deliver(sub, Message::Event(event)) => format!("{sub:?}{}", event.id),
            Output::Send(_, ticket, _) => format!("{ticket:?}"),
            other => format!("{other:?}"),
        };
        for byte in format!("{:?}{text}", self.at).bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn check_frame(&mut self, text: &str) {
        let frame = ClientFrame::parse(text).expect("a frame");
        if matches!(frame, ClientFrame::Close { .. } | ClientFrame::Auth(_)) {
            if let ClientFrame::Close { sub } = frame {
                self.recovering.take_if(|wire| *wire == sub);
            }
            return;
        }
        assert!(
            self.at >= self.armed_until,
            "sent while the gate is armed: {text}"
        );
        if let ClientFrame::Req { sub, filters } = frame
            && filters.iter().any(|filter| filter.until.is_some())
        {
            assert_eq!(self.recovering, None, "one recovery at a time");
            self.recovering = Some(sub);
        }
        let spends = |(_, text): &&(Duration, String)| {
            !text.starts_with("[\"CLOSE\"") && !text.starts_with("[\"AUTH\"")
        };
        let window = self
            .sent
            .iter()
            .rev()
            .take_while(|(at, _)| *at + secs(5) >= self.at);
        assert!(
            window.filter(spends).count() < 50,
            "more than 50 frames in 5 s"
        );
    }

    /// The consumer of `sub` reads up to `n` events.
    pub(super) fn read(&mut self, sub: SubId, n: usize) {
        if let Some(consumer) = self.consumers.get_mut(&sub) {
            let n = n.min(consumer.queue);
            consumer.queue -= n;
            if n > 0 {
                self.input(Input::Took(sub, n));
            }
        }
    }

    /// The socket is gone; both sides are told.
    pub(super) fn drop_socket(&mut self) {
        if let Some(socket) = self.socket {
            self.disconnect();
            self.input(Input::Lost(socket));
        }
    }

    fn disconnect(&mut self) {
        self.socket = None;
        self.half_open = false;
        self.stalled = false;
        self.stalled_at = None;
        self.recovering = None;
        self.last_arrival = [self.at; 2];
        self.relay.subs.clear();
    }

    fn relay_sends(&mut self, frames: Vec<String>) {
        if let Some(socket) = self.socket {
            for frame in frames {
                self.travel(1, Happening::ToClient(socket, frame));
            }
        }
    }

    /// An event from elsewhere reaches the relay.
    pub(super) fn relay_takes(&mut self, event: Event) {
        let frames = self.relay.take(event, self.at);
        self.relay_sends(frames);
    }

    /// The relay closes one of the client's REQs.
    pub(super) fn relay_closes(&mut self, nth: usize, text: &str) {
        let wire = self.relay.subs.keys().nth(nth).cloned();
        if let Some(wire) = wire {
            self.relay.subs.remove(&wire);
            self.relay_sends(vec![buzz_protocol::relay_frame::closed(&wire, text)]);
        }
    }

    /// The relay says something that belongs to no frame.
    pub(super) fn relay_notices(&mut self, text: &str) {
        self.relay_sends(vec![buzz_protocol::relay_frame::notice(text)]);
    }

    /// Runs until `at`.
    pub(super) fn until(&mut self, at: Duration) {
        loop {
            let next = self.happenings.keys().next().map(|(at, _)| *at);
            let wake = self.session.wake_at();
            let Some(due) = next.into_iter().chain(wake).min().filter(|due| *due <= at) else {
                break;
            };
            self.at = due.max(self.at);
            if next.is_some_and(|next| next <= self.at) {
                if let Some((_, happening)) = self.happenings.pop_first() {
                    self.happen(happening);
                }
            } else {
                self.input(Input::Tick);
            }
        }
        self.at = at;
    }

    fn happen(&mut self, happening: Happening) {
        let current = |socket| self.socket == Some(socket);
        match happening {
            Happening::ToRelay(socket, text) if current(socket) && !self.half_open => {
                let frames = self.relay.frame(&text, self.at);
                self.relay_sends(frames);
            }
            Happening::ToClient(socket, text) if current(socket) && !self.half_open => {
                self.note_frame(&text);
                self.input(Input::Frame(socket, text));
            }
            Happening::Opened(socket) if current(socket) => {
                self.input(Input::Opened(socket));
                let frames = self.relay.connect();
                self.relay_sends(frames);
            }
            Happening::Lost(socket) if current(socket) => {
                self.disconnect();
                self.input(Input::Lost(socket));
            }
            Happening::Written(ticket) => self.input(Input::Written(ticket)),
            Happening::WriteFailed(ticket) => self.input(Input::WriteFailed(ticket)),
            Happening::Signed(socket, challenge) => {
                let login = super::kit::event(22242, 0, 0, UNIX);
                self.input(Input::Signed(socket, challenge, Ok(Box::new(login))));
            }
            Happening::Pong(socket) if !self.half_open => self.input(Input::Alive(socket)),
            _ => {}
        }
    }

    /// What the client is about to learn, for the invariants.
    fn note_frame(&mut self, text: &str) {
        if text.starts_with("[\"EVENT\"") {
            return;
        }
        let (sub, message) = match RelayFrame::parse(text).expect("a frame") {
            RelayFrame::Eose { sub } => (Some(sub), String::new()),
            RelayFrame::Closed { sub, message } => (Some(sub), message),
            RelayFrame::Ok { message, .. } | RelayFrame::Notice { message } => (None, message),
            _ => return,
        };
        if sub.is_some() {
            self.recovering.take_if(|wire| Some(&*wire) == sub.as_ref());
        }
        if refusal::is_rate_limited(&message) {
            let wait = refusal::retry_in(&message).unwrap_or(secs(10));
            self.armed_until = self.armed_until.max(self.at + wait);
        }
    }

    pub(super) fn subscribe(&mut self, id: u64, filters: Vec<Filter>, fast: bool) -> SubId {
        let sub = SubId(id);
        let consumer = Consumer {
            filters: filters.clone(),
            fast,
            ..Consumer::default()
        };
        self.consumers.insert(sub, consumer);
        self.input(Input::Command(Command::Subscribe(sub, filters)));
        sub
    }

    pub(super) fn unsubscribe(&mut self, sub: SubId) {
        self.consumers.remove(&sub);
        self.input(Input::Command(Command::Unsubscribe(sub)));
    }

    /// To another relay, which knows nothing of what was sent to this one.
    pub(super) fn switch(&mut self) {
        self.armed_until = secs(0);
        self.sent.clear();
        self.relay.forget_client();
        self.consumers
            .values_mut()
            .for_each(|consumer| consumer.caught_up = false);
        self.input(Input::Command(Command::Switch("ws://other".into())));
    }

    pub(super) fn call(
        &mut self,
        id: u64,
        command: impl FnOnce(RequestId) -> Command,
    ) -> RequestId {
        let id = RequestId(id);
        self.calls.insert(id, self.at);
        self.input(Input::Command(command(id)));
        id
    }

    pub(super) fn publish(&mut self, id: u64, event: Event) -> RequestId {
        self.call(id, |id| Command::Publish(id, Box::new(event)))
    }

    /// The REQ, EVENT and COUNT frames sent so far.
    pub(super) fn sent_of(&self, verb: &str) -> VecDeque<&(Duration, String)> {
        let start = format!("[\"{verb}\"");
        self.sent
            .iter()
            .filter(|(_, text)| text.starts_with(&start))
            .collect()
    }
}
