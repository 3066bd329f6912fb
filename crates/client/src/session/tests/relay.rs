//! A relay in virtual time: what it would answer to each frame of one client.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use buzz_protocol::{ClientFrame, Event, EventId, Filter, kind, relay_frame};

use super::kit::{UNIX, event_frame};

const AWAY: &str = "error: database unavailable";

#[derive(Debug, Default)]
pub(super) struct SimRelay {
    pub(super) events: Vec<Event>,
    pub(super) subs: BTreeMap<String, Vec<Filter>>,
    /// EVENT, REQ and COUNT frames in any 5 s.
    pub(super) quota: Option<usize>,
    spent: VecDeque<Duration>,
    /// Stored events sent for one filter.
    pub(super) page: usize,
    pub(super) auth_required: bool,
    pub(super) logged_in: bool,
    /// Answers given instead of taking the next EVENTs, REQs and COUNTs.
    pub(super) refuse: VecDeque<String>,
    /// Nothing can be stored, read or logged in.
    pub(super) database_away: bool,
    /// `h` values that are refused for good.
    pub(super) restricted: Vec<u64>,
    pub(super) refusals: usize,
    /// Events that came with an older date than any overlap covers.
    pub(super) late: BTreeSet<EventId>,
    /// REQs with a stored part that were answered.
    pub(super) history_requests: usize,
}

impl SimRelay {
    pub(super) fn new() -> Self {
        Self {
            page: 500,
            ..Self::default()
        }
    }

    /// A new socket.
    pub(super) fn connect(&mut self) -> Vec<String> {
        self.subs.clear();
        self.logged_in = false;
        vec![relay_frame::auth_challenge("c")]
    }

    /// As another relay with the same events.
    pub(super) fn forget_client(&mut self) {
        self.subs.clear();
        self.spent.clear();
        self.refuse.clear();
    }

    /// An event from elsewhere, or from the client: stored, and sent to who listens.
    pub(super) fn take(&mut self, event: Event, now: Duration) -> Vec<String> {
        if event.created_at + 4 < UNIX + now.as_secs() {
            self.late.insert(event.id);
        }
        let matches = |filters: &[Filter]| filters.iter().any(|filter| filter.matches(&event));
        let live = self.subs.iter().filter(|(_, filters)| matches(filters));
        let frames = live.map(|(wire, _)| event_frame(wire, &event)).collect();
        if kind::class(event.kind) != kind::Class::Ephemeral {
            self.events.push(event);
        }
        frames
    }

    fn refusal(&mut self, now: Duration) -> Option<String> {
        if self.auth_required && !self.logged_in {
            return Some("auth-required: log in".into());
        }
        if self.database_away {
            return Some(AWAY.into());
        }
        if let Some(text) = self.refuse.pop_front() {
            self.refusals += 1;
            return Some(text);
        }
        let (quota, window) = (self.quota?, Duration::from_secs(5));
        while self.spent.front().is_some_and(|at| now - *at >= window) {
            self.spent.pop_front();
        }
        if self.spent.len() < quota {
            self.spent.push_back(now);
            return None;
        }
        self.refusals += 1;
        let wait = (window - (now - self.spent[0])).as_secs() + 1;
        Some(format!("rate-limited: quota exceeded; retry in {wait}s"))
    }

    fn stored(&self, filter: &Filter) -> Vec<&Event> {
        let matching = self.events.iter().filter(|event| filter.matches(event));
        let mut events: Vec<&Event> = matching.collect();
        events.sort_by(|a, b| b.created_at.cmp(&a.created_at).then(a.id.cmp(&b.id)));
        let limit = filter
            .limit
            .map_or(self.page, |n| self.page.min(n as usize));
        events.truncate(limit);
        events
    }

    /// The answers to one frame.
    pub(super) fn frame(&mut self, text: &str, now: Duration) -> Vec<String> {
        match ClientFrame::parse(text).unwrap_or_else(|error| panic!("{error}: {text}")) {
            ClientFrame::Close { sub } => {
                self.subs.remove(&sub);
                vec![]
            }
            ClientFrame::Auth(event) if self.database_away => {
                vec![relay_frame::ok(&event.id, false, AWAY)]
            }
            ClientFrame::Auth(event) => {
                self.logged_in = true;
                vec![relay_frame::ok(&event.id, true, "")]
            }
            ClientFrame::Event(event) => match self.refusal(now) {
                Some(text) => vec![relay_frame::ok(&event.id, false, &text)],
                None if self.events.iter().any(|other| other.id == event.id) => {
                    vec![relay_frame::ok(&event.id, true, "duplicate: have it")]
                }
                None => {
                    let mut out = vec![relay_frame::ok(&event.id, true, "")];
                    out.extend(self.take(*event, now));
                    out
                }
            },
            ClientFrame::Count { query, filters } => match self.refusal(now) {
                Some(text) => vec![
                    relay_frame::closed(&query, &text),
                    relay_frame::notice(&text),
                ],
                None => {
                    let n = self
                        .events
                        .iter()
                        .filter(|e| filters.iter().any(|f| f.matches(e)));
                    vec![relay_frame::count(&query, n.count() as u64)]
                }
            },
            ClientFrame::Req { sub, filters } => {
                let names = |n: &u64| {
                    filters
                        .iter()
                        .any(|f| f.tags[&b'h'].contains(&n.to_string()))
                };
                let restricted = self.restricted.iter().any(names);
                let refusal = self.refusal(now);
                if let Some(text) = refusal.or(restricted.then(|| "restricted: no".into())) {
                    self.subs.remove(&sub);
                    return vec![relay_frame::closed(&sub, &text)];
                }
                self.history_requests += 1;
                let mut out = Vec::new();
                for filter in &filters {
                    let stored = self.stored(filter).into_iter();
                    out.extend(stored.map(|event| event_frame(&sub, event)));
                }
                out.push(relay_frame::eose(&sub));
                self.subs.insert(sub, filters);
                out
            }
        }
    }
}
