//! The client without its socket: takes frames, ticks and commands, gives frames, wake-ups and
//! results. No I/O, no clock, no thread, no chance of its own: time and a seed are arguments, so
//! that every race can be replayed.
//!
//! | part | decides |
//! |---|---|
//! | `link` | when to dial, ping and give a socket up |
//! | `login` | which challenge to answer, and what waits for it |
//! | `backoff` | how long to wait before the next try |
//! | `send_gate` | when a frame that spends quota may go |
//! | `requests` | what becomes of each publish, count and login |
//! | `subscriptions`, `wire` | which REQs carry which subscriptions |
//! | `answers` | to whom an event goes, and what ends a subscription |
//! | `subscription`, `seen`, `page` | one subscription's queue, cursor, duplicates and pages |
//! | `recovery` | when what a full queue dropped is asked for again |
//! | `observer` | the drain of telemetry |
//! | `frames` | what each frame of the relay leads to |
//! | `sending` | what of all this goes next |
//! | `writes` | what is being written, and when a write is stalled |

use std::{collections::VecDeque, time::Duration};

use crate::Error;

mod answers;
mod backoff;
mod config;
mod frames;
mod link;
mod login;
mod messages;
mod observer;
mod page;
mod recovery;
mod requests;
mod rng;
mod seen;
mod send_gate;
mod sending;
mod subscription;
mod subscriptions;
#[cfg(test)]
mod tests;
mod wire;
mod writes;

pub use config::Config;
use link::{Link, LinkStep};
use login::Login;
pub use messages::{
    Answer, Command, Input, Message, Now, Output, Published, RelayLimits, RequestId, SocketId,
    Status, SubId, Ticket,
};
use observer::Observer;
use requests::Requests;
use rng::Rng;
use send_gate::SendGate;
use subscriptions::{Effects, Subscriptions};
use writes::{Writes, Written};

/// However many filters a relay takes: one that it refuses costs all of its REQ another round.
const MAX_FILTERS: usize = 20;

/// A client of one relay.
#[derive(Debug)]
pub struct Session {
    /// As told by the relay in use, where it has told; else as in `own_config`.
    config: Config,
    own_config: Config,
    url: String,
    link: Link,
    login: Login,
    gate: SendGate,
    requests: Requests,
    subscriptions: Subscriptions,
    observer: Observer,
    rng: Rng,
    frames_sent: u64,
    refusals: u64,
    writes: Writes,
    /// A refused COUNT's words, which its NOTICE repeats in the next frame.
    refused_count: Option<String>,
    outputs: VecDeque<Output>,
    /// When a frame that waits for time alone may go.
    send_at: Option<Duration>,
}

impl Session {
    /// A client that dials `url` at its first [`Input::Tick`]. `seed` decides its jitter.
    pub fn new(url: String, has_signer: bool, config: Config, now: Now, seed: u64) -> Self {
        Self {
            own_config: config.clone(),
            config,
            url,
            link: Link::new(now.at),
            login: Login::new(has_signer),
            gate: SendGate::new(),
            requests: Requests::default(),
            subscriptions: Subscriptions::new(),
            observer: Observer::default(),
            rng: Rng::new(seed),
            frames_sent: 0,
            refusals: 0,
            writes: Writes::default(),
            refused_count: None,
            outputs: VecDeque::new(),
            send_at: None,
        }
    }

    /// Takes one input; what it leads to is then read with [`Session::next_output`].
    pub fn handle(&mut self, input: Input, now: Now) {
        match input {
            Input::Tick => {}
            Input::Opened(socket) => self.opened(socket, now),
            Input::Lost(socket) => {
                if self.link.is_current(socket) {
                    self.lost(now);
                }
            }
            Input::Frame(socket, text) => {
                if self.link.is_current(socket) {
                    self.link.alive(now.at, &self.config);
                    self.frame(&text, now);
                }
            }
            Input::Limits(url, limits) => self.limits(&url, limits),
            Input::Alive(socket) => {
                if self.link.is_current(socket) {
                    self.link.alive(now.at, &self.config);
                }
            }
            Input::Written(ticket) => {
                if let Some(Written::Wire(id)) = self.writes.end(ticket) {
                    self.subscriptions.written(id, now.at, &self.config);
                }
            }
            Input::WriteProgress(socket) => {
                if self.link.is_current(socket) {
                    self.writes.progressed();
                }
            }
            Input::WriteFailed(ticket) => self.write_failed(ticket, now),
            Input::Signed(socket, challenge, event) => {
                if self.link.is_current(socket) {
                    self.signed(&challenge, event, now);
                }
            }
            Input::Took(sub, n) => self.subscriptions.took(sub, n),
            Input::Command(command) => self.command(command, now),
        }
        self.advance(now);
    }

    /// The next thing to do, if any.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When the next [`Input::Tick`] is due, if nothing else comes before.
    pub fn wake_at(&self) -> Option<Duration> {
        let times = [
            self.link.wake_at(),
            self.requests.wake_at(),
            self.observer.wake_at(),
            self.subscriptions.recovery_deadline(),
            self.login.wake_at().filter(|_| self.login_is_needed()),
            self.writes.wake_at(),
            self.send_at,
        ];
        times.into_iter().flatten().min()
    }

    /// Observer frames dropped because the drain was full, since the start.
    pub fn observer_dropped(&self) -> u64 {
        self.observer.dropped()
    }

    /// EVENT, REQ and COUNT frames sent since the start.
    pub fn frames_sent(&self) -> u64 {
        self.frames_sent
    }

    /// `rate-limited:` answers since the start.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    fn command(&mut self, command: Command, now: Now) {
        let config = &self.config;
        match command {
            Command::Publish(id, event) => self.requests.publish(id, &event, now.at, config),
            Command::Count(id, filters) => {
                let query = format!("q{}", id.0);
                let frame = wire::frame("COUNT", &query, &filters);
                self.requests.count(id, query, frame, now.at, config);
            }
            Command::Authenticate(id) => self.requests.login(id, &self.login, now.at, config),
            Command::Subscribe(id, filters) => {
                self.subscriptions.subscribe(id, filters, now.at, config);
            }
            Command::Unsubscribe(id) => {
                let effects = self.subscriptions.unsubscribe(id, now.at);
                self.apply(effects);
            }
            Command::Observe(event) => self.observer.push(&event, config),
            Command::Switch(url) => self.switch(url, now),
            Command::Close => {
                self.drop_socket();
                self.link.close();
                self.requests.fail_all(&Error::Closed);
                self.subscriptions = Subscriptions::new();
                self.outputs.push_back(Output::Status(Status::Closed));
            }
        }
    }

    fn switch(&mut self, url: String, now: Now) {
        if self.link.is_closed() {
            return;
        }
        self.drop_socket();
        self.url = url;
        self.config = self.own_config.clone();
        self.link.restart(now.at);
        self.login.forget();
        self.gate = SendGate::new();
        self.requests.fail_all(&Error::Switched);
        self.subscriptions.switch(now.at);
        self.observer.put_back_all();
        self.writes.clear();
        self.refused_count = None;
    }

    fn limits(&mut self, url: &str, limits: RelayLimits) {
        if url != self.url {
            return;
        }
        let own = self.own_config.clone();
        let (quota_frames, quota_window) =
            limits.quota.unwrap_or((own.quota_frames, own.quota_window));
        self.config = Config {
            max_filters: limits
                .max_filters
                .map_or(own.max_filters, |n| n.min(MAX_FILTERS)),
            page: limits.max_limit.map_or(own.page, |n| n.min(own.page)),
            quota_frames,
            quota_window,
            ..own
        };
    }

    fn drop_socket(&mut self) {
        if self.link.is_current(self.link.socket()) {
            self.outputs.push_back(Output::Drop(self.link.socket()));
        }
    }

    /// The socket is of no use any more.
    fn give_up(&mut self, now: Now) {
        self.drop_socket();
        self.lost(now);
    }

    fn opened(&mut self, socket: SocketId, now: Now) {
        if !self.link.is_current(socket) {
            return;
        }
        self.link.opened(now.at, &self.config);
        self.login.opened(now.at);
        self.outputs.push_back(Output::Status(Status::Online));
    }

    fn lost(&mut self, now: Now) {
        self.link.lost(now.at, &self.config, &mut self.rng);
        self.login.lost();
        self.requests.socket_lost();
        self.subscriptions.socket_lost(now.at);
        self.observer.put_back_all();
        self.writes.clear();
        self.refused_count = None;
        let until = self.link.waiting_until().unwrap_or(now.at);
        let retry_in = until.saturating_sub(now.at);
        self.outputs
            .push_back(Output::Status(Status::Offline { retry_in }));
    }

    fn write_failed(&mut self, ticket: Ticket, now: Now) {
        let Some(written) = self.writes.end(ticket) else {
            return;
        };
        self.gate.write_failed(now.at);
        match written {
            Written::Request(id) => self.requests.write_failed(id),
            Written::Wire(id) => self.subscriptions.write_failed(id, now.at),
            Written::Observer(id) => {
                self.observer.answered(&id, true);
            }
            // No answer would ever come: begin anew, as after a login shed by a bare close.
            Written::Login => self.give_up(now),
            // The relay still sends events for a subscription that is closed here; a ping without
            // an answer is noticed as such.
            Written::Close | Written::Ping => {}
        }
    }

    fn apply(&mut self, effects: Effects) {
        for wire in effects.close {
            self.send(Written::Close, wire.close_frame());
        }
        for (sub, message) in effects.messages {
            self.outputs.push_back(Output::Deliver(sub, message));
        }
    }

    /// Something waits for a login.
    fn login_is_needed(&self) -> bool {
        self.subscriptions.wait_for_login() || self.requests.wait_for_login()
    }

    /// Does what time and the new state allow.
    fn advance(&mut self, now: Now) {
        match self.link.step(now.at, &self.config) {
            Some(LinkStep::Dial) => {
                let dial = Output::Dial(self.link.socket(), self.url.clone());
                self.outputs.push_back(Output::Status(Status::Connecting));
                self.outputs.push_back(dial);
            }
            Some(LinkStep::Ping) => {
                let ticket = self.writes.start(Written::Ping);
                let ping = Output::Ping(self.link.socket(), ticket);
                self.outputs.push_back(ping);
            }
            Some(LinkStep::GiveUp) => self.give_up(now),
            None => {}
        }
        let stuck = self.login.is_overdue(now.at) || self.login.passing_failure().is_some();
        if stuck && self.login_is_needed() {
            self.give_up(now);
        }
        self.observer.expire(now.at);
        let effects = self.subscriptions.expire(now.at);
        self.apply(effects);
        self.requests.expire(now.at);
        if self.link.is_closed() {
            self.requests.fail_all(&Error::Closed);
        }
        if let Some((until, text)) = self.gate.armed(now.at) {
            self.requests.gate_armed(until, text);
        }
        self.send_at = self.send_what_may_go(now);
        if self.writes.are_stalled(now.at, &self.config) {
            self.give_up(now);
            self.send_at = None;
        }
        for (id, result) in self.requests.results.drain(..) {
            self.outputs.push_back(Output::Resolved(id, result));
        }
    }
}
