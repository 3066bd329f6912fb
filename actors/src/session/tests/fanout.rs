//! The fan-out around the sessions: a mailbox, its subscriptions, and a death.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use buzz_protocol::Filter;

use super::{super::Input, kit::samples};
use crate::{fanout::Live, send_queue::SendQueueUsage};

/// Live frames that may wait for one session.
pub(super) const SEND_QUEUE: usize = 12;

/// On their way to the sessions.
type Answers = Vec<(usize, Input)>;

pub(super) enum ToFanout {
    Subscribe {
        who: usize,
        token: u32,
        filters: Vec<Filter>,
        usage: Arc<SendQueueUsage>,
    },
    Unsubscribe {
        who: usize,
        token: Option<u32>,
    },
    Publish {
        batch: u64,
        samples: Vec<usize>,
    },
}

struct Listener {
    who: usize,
    token: u32,
    filters: Vec<Filter>,
    usage: Arc<SendQueueUsage>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Fanout {
    mailbox: VecDeque<ToFanout>,
    listeners: Vec<Listener>,
    is_dead: bool,
}

impl Fanout {
    pub(super) fn tell(&mut self, message: ToFanout, answers: &mut Answers) {
        if !self.is_dead {
            self.mailbox.push_back(message);
        } else if let ToFanout::Subscribe { who, .. } = message {
            answers.push((who, Input::Live(Live::Lost)));
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.mailbox.is_empty()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// What waits in its mailbox is lost with it.
    pub(super) fn die(&mut self, answers: &mut Answers) {
        self.is_dead = true;
        let subscribing = std::mem::take(&mut self.mailbox).into_iter();
        let subscribing = subscribing.filter_map(|message| match message {
            ToFanout::Subscribe { who, .. } => Some(who),
            _ => None,
        });
        let listening = std::mem::take(&mut self.listeners).into_iter();
        let lost = subscribing.chain(listening.map(|listener| listener.who));
        answers.extend(lost.map(|who| (who, Input::Live(Live::Lost))));
    }

    /// Handles one message.
    pub(super) fn step(&mut self, answers: &mut Answers) {
        match self.mailbox.pop_front() {
            Some(ToFanout::Subscribe {
                who,
                token,
                filters,
                usage,
            }) => {
                self.listeners.push(Listener {
                    who,
                    token,
                    filters,
                    usage,
                });
            }
            Some(ToFanout::Unsubscribe { who, token }) => self.listeners.retain(|listener| {
                listener.who != who || token.is_some_and(|token| token != listener.token)
            }),
            Some(ToFanout::Publish { batch, samples }) => self.publish(batch, &samples, answers),
            None => {}
        }
    }

    fn publish(&mut self, batch: u64, published: &[usize], answers: &mut Answers) {
        let events: Arc<[_]> = published
            .iter()
            .map(|sample| Arc::clone(&samples().events[*sample].event))
            .collect();
        let mut hits: BTreeMap<usize, Vec<(u32, u32)>> = BTreeMap::new();
        let mut lost: Vec<(usize, u32)> = Vec::new();
        for (at, event) in (0u32..).zip(events.iter()) {
            for listener in &self.listeners {
                let id = (listener.who, listener.token);
                let matches = listener.filters.iter().any(|filter| filter.matches(event));
                if !matches || lost.contains(&id) {
                    continue;
                }
                if listener.usage.try_add(event.json().len(), SEND_QUEUE) {
                    hits.entry(listener.who)
                        .or_default()
                        .push((listener.token, at));
                } else {
                    lost.push(id);
                }
            }
        }
        for (who, hits) in hits {
            let events = Arc::clone(&events);
            answers.push((
                who,
                Input::Live(Live::Events {
                    batch,
                    events,
                    hits,
                }),
            ));
        }
        for &(who, token) in &lost {
            answers.push((who, Input::Live(Live::FellBehind { token })));
        }
        self.listeners
            .retain(|listener| !lost.contains(&(listener.who, listener.token)));
    }
}
