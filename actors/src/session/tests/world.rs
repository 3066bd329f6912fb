//! Sessions, their clients and the actors around them. What happens depends on the seed alone; the
//! invariants are checked at every step.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use buzz_protocol::{Filter, Limits};
use bytes::Bytes;

use super::{
    super::*,
    actors::Actors,
    client::Client,
    fanout::SEND_QUEUE,
    kit::{self, CHALLENGE, RELAY_URL, Rng, UNIX, samples, text_frames},
};
use crate::{
    admission::{Quota, Quotas, Rates},
    metrics::Metrics,
    permits::Permits,
    shared::Settings,
    ws::Broken,
};

/// Few, so that they run out.
const PERMITS: usize = 24;
/// No answer or event of the samples is larger.
const MAX_FRAME_BYTES: usize = 1024;

struct Socket {
    session: Session,
    client: Client,
    /// Answers that the actor has not taken yet.
    mailbox: VecDeque<Input>,
    /// Messages that the client sent.
    sent: VecDeque<Input>,
    /// The client reads nothing: the actor is not polled.
    stalled: bool,
    /// The client's side has ended, in whatever way.
    client_gone: bool,
    /// It went away; whether the session knows.
    vanished: Option<bool>,
    /// Bytes of `session.outgoing` that were judged.
    judged: usize,
    /// Subscriptions that the session has, by token.
    open: Vec<(u32, Vec<Filter>)>,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) actors: Actors,
    sockets: Vec<Option<Socket>>,
    shared: Arc<Shared>,
    start: Instant,
    steps: u64,
    next_name: usize,
    next_ephemeral: usize,
    pub(super) trace: bool,
    /// Of all frames so far: equal for equal seeds.
    pub(super) digest: u64,
}

impl World {
    pub(super) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let limited = Quota {
            limit: 1,
            window_ms: 1000,
        };
        let frames = if rng.chance(50) { limited } else { Quota::OFF };
        let rates = Rates {
            frames,
            ..Rates::OFF
        };
        let settings = Settings {
            limits: Limits {
                max_subscriptions: 4,
                max_filters: 3,
                max_limit: 500,
                max_subid_length: 8,
                max_event_tags: 10,
                created_at_future_secs: 900,
                created_at_past_secs: None,
            },
            relay_url: RELAY_URL.into(),
            max_frame_bytes: 10_000,
            send_queue: SEND_QUEUE,
            auth_required: rng.chance(20),
            members_only: rng.chance(20),
            auth_timeout: Duration::from_secs(10),
            auth_recheck: Duration::from_secs(10),
            challenge_on_connect: rng.chance(70),
            ping: Duration::from_secs(30),
        };
        let shared = Arc::new(Shared {
            settings,
            quotas: Quotas {
                human: rates,
                agent: rates,
            },
            metrics: Metrics::register(),
            frames: Permits::new(PERMITS),
        });
        let start = Instant::now();
        let now = Now {
            at: start,
            unix_secs: UNIX,
        };
        let socket = |_| {
            let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
            Some(Socket {
                session: Session::new(Arc::clone(&shared), peer, CHALLENGE.into(), now),
                client: Client::default(),
                mailbox: VecDeque::new(),
                sent: VecDeque::new(),
                stalled: false,
                client_gone: false,
                vanished: None,
                judged: 0,
                open: Vec::new(),
            })
        };
        let trouble = [0, 0, 10, 25][rng.below(4)];
        Self {
            sockets: (0..3).map(socket).collect(),
            actors: Actors::new(trouble),
            rng,
            shared,
            start,
            steps: 0,
            next_name: 0,
            next_ephemeral: 0,
            trace,
            digest: 0,
        }
    }

    pub(super) fn session(&mut self, who: usize) -> &mut Session {
        &mut self.sockets[who].as_mut().expect("open").session
    }

    pub(super) fn now(&self) -> Now {
        Now {
            at: self.start + Duration::from_millis(50 * self.steps),
            unix_secs: UNIX + self.steps / 20,
        }
    }

    /// Something happens, by chance.
    pub(super) fn step(&mut self) {
        self.steps += 1;
        let who = self.rng.below(self.sockets.len());
        match self.rng.below(1000) {
            0..320 => self.client_sends(who),
            320..560 => self.poll(who),
            560..580 => self.stall(who),
            580..584 => self.vanish(who),
            584..586 => self.reset(who),
            586..588 => self.send(who, Input::ClientClosed),
            588..590 => self.send(who, Input::Broken(Broken::Protocol("no frame".into()))),
            590..592 => self.push(who, Input::Shutdown),
            592..594 if self.shared.settings.auth_required => self.push(who, Input::LoginDue),
            594..600 if self.shared.settings.members_only => {
                self.push(who, Input::RecheckMembers);
            }
            600..602 if self.actors.trouble > 0 => self.actors.die(&mut self.rng),
            _ => self.actors.step(&mut self.rng),
        }
        self.bring_answers();
    }

    /// Everything that is on its way arrives. Nothing new is sent.
    pub(super) fn settle(&mut self) {
        self.actors.trouble = 0;
        for socket in self.sockets.iter_mut().flatten() {
            socket.stalled = false;
        }
        for _ in 0..20_000 {
            self.steps += 1;
            (0..self.sockets.len()).for_each(|who| self.poll(who));
            (0..20).for_each(|_| self.actors.step(&mut self.rng));
            self.bring_answers();
            let idle = |socket: &Socket| {
                socket.mailbox.is_empty()
                    && (socket.sent.is_empty() || !socket.session.may_read())
                    && socket.session.outgoing.len() == 0
                    && socket.session.frames_in_flight() == 0
            };
            if self.actors.is_idle() && self.sockets.iter().flatten().all(idle) {
                // Once more: what was held back for room goes on now.
                (0..self.sockets.len()).for_each(|who| self.poll(who));
                if self.actors.is_idle() {
                    return self.check_settled();
                }
            }
        }
        panic!("it never comes to rest");
    }

    fn check_settled(&mut self) {
        for socket in self.sockets.iter().flatten() {
            assert!(socket.sent.is_empty(), "a socket that is never read again");
            socket.client.check_settled(&self.actors.store);
            assert_eq!(
                socket.session.outgoing.usage().frames(),
                0,
                "the usage is settled"
            );
            let usable = !self.actors.is_fanout_dead() || !socket.session.has_subscriptions();
            assert!(usable, "a subscription that gets nothing any more");
        }
        assert_eq!(
            self.shared.frames.available(),
            PERMITS,
            "all permits are back"
        );
    }

    fn bring_answers(&mut self) {
        for (who, input) in std::mem::take(&mut self.actors.answers) {
            self.push(who, input);
        }
    }

    fn push(&mut self, who: usize, input: Input) {
        if let Some(socket) = &mut self.sockets[who] {
            socket.mailbox.push_back(input);
            // Answers to what is in work, live events that are counted, and the rare signs.
            let bound = 4 * MAX_FRAMES_IN_FLIGHT + 2 * SEND_QUEUE + 200;
            assert!(socket.mailbox.len() <= bound, "the mailbox is bounded");
        }
    }

    fn send(&mut self, who: usize, message: Input) {
        if let Some(socket) = &mut self.sockets[who]
            && !socket.client_gone
        {
            socket.client_gone = !matches!(message, Input::Text(_));
            socket.sent.push_back(message);
        }
    }

    fn stall(&mut self, who: usize) {
        if let Some(socket) = &mut self.sockets[who] {
            socket.stalled = !socket.stalled;
        }
    }

    /// The client goes away. The session learns it some time before it has taken all messages.
    fn vanish(&mut self, who: usize) {
        if let Some(socket) = &mut self.sockets[who]
            && !socket.client_gone
        {
            socket.client_gone = true;
            socket.vanished = Some(false);
        }
    }

    /// The actor ends, whatever is in work.
    fn reset(&mut self, who: usize) {
        if let Some(socket) = self.sockets[who].take() {
            socket.client.check(&self.actors.store);
            self.actors.gone.push(who);
            self.actors.unsubscribe(who, None);
        }
    }

    fn client_sends(&mut self, who: usize) {
        let burst = if self.rng.chance(3) { 80 } else { 1 };
        for _ in 0..burst {
            let Some(text) = self.frame(who) else { return };
            self.send(who, Input::Text(Bytes::from(text)));
        }
    }

    /// A frame, noted with its client.
    fn frame(&mut self, who: usize) -> Option<String> {
        let sub = format!("s{}", self.rng.below(6));
        let pick = self.rng.below(100);
        let filters: Vec<Filter> = (0..=self.rng.below(2))
            .map(|_| kit::filter(&mut self.rng))
            .collect();
        let Self {
            rng,
            sockets,
            next_name,
            next_ephemeral,
            ..
        } = self;
        let socket = sockets[who].as_mut().filter(|socket| !socket.client_gone)?;
        let client = &mut socket.client;
        Some(match pick {
            0..50 => {
                let mut at = rng.below(samples().events.len());
                if at % 3 == 2 {
                    // Ephemeral ones once each: a second one would be delivered again.
                    at = *next_ephemeral * 3 + 2;
                    *next_ephemeral += 1;
                }
                let sample = samples().events.get(at)?;
                *client.oks_due.entry(sample.event.id).or_default() += 1;
                sample.frame.clone()
            }
            50..75 => {
                let filters = client.send_req(&sub, filters);
                let filters = filters
                    .iter()
                    .map(|f| serde_json::to_string(f).expect("JSON"));
                format!(
                    "[\"REQ\",\"{sub}\",{}]",
                    filters.collect::<Vec<_>>().join(",")
                )
            }
            75..82 => {
                *next_name += 1;
                client.counts_due.insert(format!("c{next_name}"), 1);
                format!("[\"COUNT\",\"c{next_name}\",{{}}]")
            }
            82..90 => {
                client.give_up(&sub);
                format!("[\"CLOSE\",\"{sub}\"]")
            }
            90..94 => {
                let login = &samples().logins[rng.below(samples().logins.len())];
                *client.oks_due.entry(login.id).or_default() += 1;
                login.frame.clone()
            }
            94..96 => {
                client.send_req(&sub, vec![Filter::default()]);
                format!("[\"REQ\",\"{sub}\",{{\"kinds\":7}}]")
            }
            96..98 => {
                let id = samples().events[rng.below(60)].event.id;
                *client.oks_due.entry(id).or_default() += 1;
                format!("[\"EVENT\",{{\"id\":\"{id}\",\"kind\":true}}]")
            }
            _ => {
                client.notices_due += 1;
                "[\"WHAT\"]".into()
            }
        })
    }

    /// The actor's turn, as the connection's: its mailbox, the socket, then its outputs.
    fn poll(&mut self, who: usize) {
        let Some(socket) = self.sockets[who].as_mut().filter(|socket| !socket.stalled) else {
            return;
        };
        let mailbox = std::mem::take(&mut socket.mailbox);
        for input in mailbox {
            self.input(who, input);
        }
        if let Some(socket) = self.sockets[who].as_mut()
            && socket.vanished == Some(false)
            && (socket.sent.is_empty() || self.rng.chance(50))
        {
            socket.vanished = Some(true);
            self.input(who, Input::ClientGone);
        }
        for _ in 0..10 {
            let Some(socket) = self.sockets[who].as_mut() else {
                return;
            };
            if !socket.session.may_read() {
                break;
            }
            let Some(message) = socket.sent.pop_front() else {
                if socket.vanished == Some(true) {
                    self.input(who, Input::AllTaken);
                }
                break;
            };
            self.input(who, message);
        }
        self.input(who, Input::Ready);
        self.carry_out(who);
        if let Some(socket) = self.sockets[who].as_mut() {
            socket.session.take_outgoing();
            socket.judged = 0;
            if socket.session.is_closed() {
                let session = &socket.session;
                let polite = ["client_closed", "client_gone", "protocol_error"];
                if polite.contains(&session.ending().1) {
                    let unanswered = session.events.len() + session.waiting.len();
                    assert_eq!(unanswered, 0, "events are answered before the close");
                }
                self.reset(who);
            }
        }
    }

    fn carry_out(&mut self, who: usize) {
        while let Some(socket) = self.sockets[who].as_mut()
            && let Some(output) = socket.session.next_output()
        {
            if self.trace {
                eprintln!("{who} < {output:?}");
            }
            if socket.session.client_is_gone {
                assert!(
                    !output.is_look_up(),
                    "a look-up for a client that is gone: {output:?}"
                );
            }
            let usage = socket.session.send_queue_usage();
            let subscribed = match &output {
                Output::Subscribe { token, .. } => Some(*token),
                _ => None,
            };
            self.actors.ask(who, output, usage);
            if let Some(token) = subscribed {
                // The order matters: docs/architecture.md, "The seam".
                let committed = self.actors.committed;
                self.input(who, Input::Subscribed { token, committed });
            }
        }
    }

    fn input(&mut self, who: usize, input: Input) {
        let now = self.now();
        let Some(socket) = self.sockets[who].as_mut() else {
            return;
        };
        if self.trace {
            eprintln!("{who} > {input:?}");
        }
        let serving = matches!(input, Input::Text(_) | Input::Admitted(_));
        if let Input::Subscribed { token, committed } = input
            && let Some((_, filters)) = socket.open.iter().find(|(open, _)| *open == token)
        {
            socket.client.begun(filters, committed);
        }
        let known = socket.session.outputs.len();
        socket.session.handle(input, now);
        let reads = socket.session.waiting.reads() + socket.session.reads_in_flight;
        assert!(socket.session.frames_in_flight() <= MAX_FRAMES_IN_FLIGHT);
        assert!(reads <= MAX_READS_IN_FLIGHT || socket.session.client_is_gone);
        for output in socket.session.outputs.iter().skip(known) {
            if let Output::Subscribe { token, filters } = output {
                socket.client.served(filters);
                socket.open.push((*token, filters.clone()));
            }
        }
        self.judge(who, serving);
    }

    /// Judges what the session has just made.
    fn judge(&mut self, who: usize, serving: bool) {
        let Some(socket) = self.sockets[who].as_mut() else {
            return;
        };
        let bytes = &socket.session.outgoing.bytes()[socket.judged..];
        for frame in text_frames(bytes) {
            if self.trace {
                eprintln!("{who} = {frame}");
            }
            for byte in frame.bytes() {
                self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            socket.client.take(frame, serving);
        }
        socket.judged += bytes.len();
        let answers = 2 * MAX_FRAMES_IN_FLIGHT + PERMITS;
        let bound = MAX_UNSENT_BYTES + (answers + SEND_QUEUE) * MAX_FRAME_BYTES;
        assert!(socket.judged <= bound, "what waits to be sent is bounded");
        let Socket {
            open,
            session,
            client,
            ..
        } = socket;
        open.retain(|(token, filters)| {
            let is_open = session.subscriptions.by_token(*token).is_some();
            if !is_open {
                client.over(filters);
            }
            is_open
        });
    }
}
