//! Calls that wait for one answer: publish, count and login. Each has one deadline, counted from
//! the call, at most one more try after `rate-limited:` and one after `auth-required:`, and after
//! `error:` as many as its time allows.

use std::{collections::VecDeque, time::Duration};

use buzz_protocol::{Event, EventId, kind, refusal};

use super::{Answer, Config, Published, RequestId, backoff::Backoff, login::Login};
use crate::Error;

/// An `error:` answer makes a request wait for half of this to all of it, after the third one in a
/// row and later: what passes within its deadline is to be noticed before it.
const MAX_ERROR_WAIT: Duration = Duration::from_secs(4);

/// What a request asks, and by what name its answer comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ask {
    Publish { id: EventId, ephemeral: bool },
    Count { query: String },
    Login,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waits for its own time, the socket, the gate and the pace.
    Ready { at: Duration },
    /// Waits for the relay; whether the socket was logged in when it was sent.
    Sent { logged_in: bool },
    /// Waits for a login to finish.
    Login,
}

const READY: Stage = Stage::Ready { at: Duration::ZERO };

#[derive(Debug)]
struct Request {
    id: RequestId,
    ask: Ask,
    frame: String,
    deadline: Duration,
    stage: Stage,
    /// It was refused by `rate-limited:` before: the next refusal is final.
    refused: bool,
    /// How often it was refused by `error:`.
    errors: u32,
    /// The relay's last words on it.
    reason: Option<String>,
}

impl Request {
    /// The relay's last words on it, where they are `rate-limited:`.
    fn rate_limit(&self) -> Option<&str> {
        let reason = self.reason.as_deref();
        reason.filter(|text| refusal::is_rate_limited(text))
    }
}

/// What an answer means for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does not belong to a request.
    NotOurs,
    Taken,
    /// `rate-limited:`: the gate is to be armed, whatever became of the request.
    RateLimited,
}

/// Results that are ready to be handed out.
pub(crate) type Results = Vec<(RequestId, Result<Answer, Error>)>;

/// All requests without a result, in the order of their calls.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    list: VecDeque<Request>,
    pub(crate) results: Results,
}

impl Requests {
    pub(crate) fn publish(&mut self, id: RequestId, event: &Event, now: Duration, config: &Config) {
        let ask = Ask::Publish {
            id: event.id,
            ephemeral: kind::class(event.kind) == kind::Class::Ephemeral,
        };
        let frame = format!("[\"EVENT\",{}]", event.to_json());
        self.add(id, ask, frame, READY, now, config);
    }

    /// `frame` is the whole COUNT frame, which names `query` (NIP-45).
    pub(crate) fn count(
        &mut self,
        id: RequestId,
        query: String,
        frame: String,
        now: Duration,
        config: &Config,
    ) {
        self.add(id, Ask::Count { query }, frame, READY, now, config);
    }

    pub(crate) fn login(&mut self, id: RequestId, login: &Login, now: Duration, config: &Config) {
        if login.is_done() {
            self.results.push((id, Ok(Answer::LoggedIn)));
        } else if !login.has_signer() {
            self.results.push((id, Err(Error::NoSigner)));
        } else if let Some(error) = login.verdict() {
            self.results.push((id, Err(error.clone())));
        } else {
            self.add(id, Ask::Login, String::new(), Stage::Login, now, config);
        }
    }

    fn add(
        &mut self,
        id: RequestId,
        ask: Ask,
        frame: String,
        stage: Stage,
        now: Duration,
        config: &Config,
    ) {
        if self.list.len() >= config.max_requests {
            self.results.push((id, Err(Error::TooMany)));
            return;
        }
        self.list.push_back(Request {
            id,
            ask,
            frame,
            deadline: now + config.request_timeout,
            stage,
            refused: false,
            errors: 0,
            reason: None,
        });
    }

    /// When the first request may be sent that waits for nothing but time.
    pub(crate) fn ready_at(&self) -> Option<Duration> {
        let times = self.list.iter().filter_map(|request| match request.stage {
            Stage::Ready { at } => Some(at),
            _ => None,
        });
        times.min()
    }

    /// A request waits for a login that was asked for.
    pub(crate) fn wait_for_login(&self) -> bool {
        let mut stages = self.list.iter().map(|request| request.stage);
        stages.any(|stage| stage == Stage::Login)
    }

    /// The frame of the request that has waited longest, which counts as sent from now on.
    pub(crate) fn send_next(
        &mut self,
        logged_in: bool,
        now: Duration,
    ) -> Option<(RequestId, String)> {
        let is_due = |stage| matches!(stage, Stage::Ready { at } if at <= now);
        let mut list = self.list.iter_mut();
        let request = list.find(|request| is_due(request.stage))?;
        request.stage = Stage::Sent { logged_in };
        Some((request.id, request.frame.clone()))
    }

    /// The frame did not reach the socket: it is as if it had not been sent.
    pub(crate) fn write_failed(&mut self, id: RequestId) {
        if let Some(request) = self.list.iter_mut().find(|request| request.id == id)
            && matches!(request.stage, Stage::Sent { .. })
        {
            request.stage = READY;
        }
    }

    /// `OK` for an event.
    pub(crate) fn ok(
        &mut self,
        id: &EventId,
        accepted: bool,
        message: &str,
        login: &Login,
        backoff: &mut Backoff<'_>,
    ) -> Verdict {
        let Some(at) =
            self.position(|ask| matches!(ask, Ask::Publish { id: ours, .. } if ours == id))
        else {
            return Verdict::NotOurs;
        };
        // NIP-01 has `duplicate:` with true; some relays say false, and have the event as well.
        let duplicate = refusal::prefix(message) == Some("duplicate");
        if accepted || duplicate {
            self.finish(at, Ok(Answer::Published(Published { duplicate })));
            return Verdict::Taken;
        }
        self.refused(at, message, login, backoff)
    }

    /// `COUNT` for a query.
    pub(crate) fn counted(&mut self, query: &str, count: u64) {
        if let Some(at) = self.position_of_query(query) {
            self.finish(at, Ok(Answer::Count(count)));
        }
    }

    /// `CLOSED` for a query.
    pub(crate) fn closed(
        &mut self,
        query: &str,
        message: &str,
        login: &Login,
        backoff: &mut Backoff<'_>,
    ) -> Verdict {
        match self.position_of_query(query) {
            Some(at) => self.refused(at, message, login, backoff),
            None => Verdict::NotOurs,
        }
    }

    fn position_of_query(&self, query: &str) -> Option<usize> {
        self.position(|ask| matches!(ask, Ask::Count { query: ours } if ours == query))
    }

    /// The first request that was sent and that `wanted` names: answers come in order.
    fn position(&self, wanted: impl Fn(&Ask) -> bool) -> Option<usize> {
        self.list
            .iter()
            .position(|r| matches!(r.stage, Stage::Sent { .. }) && wanted(&r.ask))
    }

    fn refused(
        &mut self,
        at: usize,
        message: &str,
        login: &Login,
        backoff: &mut Backoff<'_>,
    ) -> Verdict {
        let request = &mut self.list[at];
        let reason = message.to_owned();
        let logged_in_before = matches!(request.stage, Stage::Sent { logged_in: true });
        match refusal::prefix(message) {
            Some("rate-limited") => {
                if request.refused {
                    self.finish(at, Err(Error::Refused { reason }));
                } else {
                    request.refused = true;
                    request.reason = Some(reason);
                    request.stage = READY;
                }
                Verdict::RateLimited
            }
            Some("error") => {
                let wait_until = backoff.retry_at(request.errors);
                let at_most = backoff.now + MAX_ERROR_WAIT;
                let again = wait_until.min(at_most);
                if again < request.deadline {
                    request.errors += 1;
                    request.reason = Some(reason);
                    request.stage = Stage::Ready { at: again };
                } else {
                    self.finish(at, Err(Error::Refused { reason }));
                }
                Verdict::Taken
            }
            Some("auth-required") if login.has_signer() && !logged_in_before => {
                request.reason = Some(reason);
                request.stage = Stage::Login;
                if login.is_done() {
                    request.stage = READY;
                } else if let Some(error) = login.verdict() {
                    self.finish(at, Err(error.clone()));
                }
                Verdict::Taken
            }
            _ => {
                self.finish(at, Err(Error::Refused { reason }));
                Verdict::Taken
            }
        }
    }

    fn finish(&mut self, at: usize, result: Result<Answer, Error>) {
        if let Some(request) = self.list.remove(at) {
            self.results.push((request.id, result));
        }
    }

    /// Ends the requests that `error_of` has an error for.
    fn fail(&mut self, error_of: impl Fn(&Request) -> Option<Error>) {
        let results = &mut self.results;
        self.list.retain(|request| match error_of(request) {
            Some(error) => {
                results.push((request.id, Err(error)));
                false
            }
            None => true,
        });
    }

    /// The login ended, well or not. One that failed for now is made again on another socket.
    pub(crate) fn login_ended(&mut self, login: &Login) {
        if let Some(error) = login.verdict() {
            self.fail(|request| (request.stage == Stage::Login).then(|| error.clone()));
            return;
        }
        if let Some(reason) = login.passing_failure() {
            let waiting = self.list.iter_mut().filter(|r| r.stage == Stage::Login);
            waiting.for_each(|request| request.reason = Some(reason.to_owned()));
            return;
        }
        let results = &mut self.results;
        self.list.retain_mut(|request| {
            if request.stage == Stage::Login {
                if request.ask == Ask::Login {
                    results.push((request.id, Ok(Answer::LoggedIn)));
                    return false;
                }
                request.stage = READY;
            }
            true
        });
    }

    /// The gate is closed until `until`: what can't be sent before its deadline fails at once, with
    /// the relay's words.
    pub(crate) fn gate_armed(&mut self, until: Duration, reason: &str) {
        self.fail(|request| {
            let waits = matches!(request.stage, Stage::Ready { .. }) && request.deadline <= until;
            waits.then(|| Error::Refused {
                reason: request.rate_limit().unwrap_or(reason).to_owned(),
            })
        });
    }

    /// The socket is gone. What was never sent waits on; a stored event or a count without an
    /// answer is asked again (a relay tells duplicates by the id), an ephemeral one is not. The one
    /// retry after `rate-limited:` is off. What waited for a login is asked again, so that the next
    /// socket's relay says whether it wants one.
    pub(crate) fn socket_lost(&mut self) {
        self.fail(|request| match (request.rate_limit(), request.stage) {
            (Some(reason), _) => Some(Error::Refused {
                reason: reason.to_owned(),
            }),
            (_, Stage::Sent { .. }) => {
                let ephemeral = matches!(request.ask, Ask::Publish { ephemeral, .. } if ephemeral);
                ephemeral.then_some(Error::Disconnected)
            }
            _ => None,
        });
        for request in &mut self.list {
            let sent = matches!(request.stage, Stage::Sent { .. });
            if sent || (request.stage == Stage::Login && request.ask != Ask::Login) {
                request.stage = READY;
            }
        }
    }

    /// Ends everything.
    pub(crate) fn fail_all(&mut self, error: &Error) {
        self.fail(|_| Some(error.clone()));
    }

    /// Ends what is past its deadline.
    pub(crate) fn expire(&mut self, now: Duration) {
        self.fail(|request| {
            (request.deadline <= now).then(|| match &request.reason {
                Some(reason) => Error::Refused {
                    reason: reason.clone(),
                },
                None => Error::Timeout,
            })
        });
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.list.iter().map(|request| request.deadline).min()
    }
}
