//! Owns the index of live subscriptions and passes each new event to those it matches.
//!
//! Bound: subscriptions times connections, both limited; what waits for a connection is counted
//! by its [`SendQueueUsage`]. Arrives: `Subscribe`, `Unsubscribe`, `Publish`. Leaves: [`Live`], one
//! message a batch and connection. When a connection's queue is full, its subscriptions that lose
//! an event end with [`Live::FellBehind`]; nothing is dropped silently.

mod index;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use actix::{Actor, Context, Handler, Message, Recipient};
use buzz_protocol::{Filter, VerifiedEvent};
use slab::Slab;

pub use self::index::Index;
use crate::{metrics::Metrics, send_queue::SendQueueUsage};

/// A subscription begins. Sent before its history is read, so that nothing falls between.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Subscribe {
    /// The connection's number.
    pub connection: u64,
    /// The subscription's number on that connection, never used twice.
    pub token: u32,
    /// What it asks for.
    pub filters: Vec<Filter>,
    /// Where its events go.
    pub subscriber: Subscriber,
    /// Counts what waits for the connection.
    pub usage: Arc<SendQueueUsage>,
}

/// What a connection gets from the fan-out.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum Live {
    /// New events. Each is counted by the connection's [`SendQueueUsage`].
    Events {
        /// The batch they were committed in.
        batch: u64,
        /// All events of the batch.
        events: Arc<[Arc<VerifiedEvent>]>,
        /// Subscription and position in `events`, in order.
        hits: Vec<(u32, u32)>,
    },
    /// A subscription lost an event, since too much waits for this client. It gets no further ones.
    FellBehind {
        /// The subscription.
        token: u32,
    },
    /// The fan-out is gone: no subscription gets events any more.
    Lost,
}

/// Where a connection's live events go. Dropped with the fan-out, or with a message that the
/// fan-out never took, it says [`Live::Lost`].
pub struct Subscriber(Option<Recipient<Live>>);

impl Subscriber {
    /// Sends to this recipient.
    pub fn new(recipient: Recipient<Live>) -> Self {
        Self(Some(recipient))
    }

    fn send(&self, live: Live) {
        if let Some(recipient) = &self.0 {
            recipient.do_send(live);
        }
    }

    /// Ends it without a word: nothing is expected any more, or another of the same connection
    /// stays.
    fn dismiss(mut self) {
        self.0 = None;
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        if let Some(recipient) = self.0.take() {
            recipient.do_send(Live::Lost);
        }
    }
}

/// A subscription ends, or with no token all of a connection's.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Unsubscribe {
    /// The connection's number.
    pub connection: u64,
    /// The subscription's number.
    pub token: Option<u32>,
}

/// New events of one committed batch.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Publish {
    /// The batch's number.
    pub batch: u64,
    /// In the order they were stored.
    pub events: Arc<[Arc<VerifiedEvent>]>,
}

struct Listener {
    connection: u64,
    subscriber: Subscriber,
    usage: Arc<SendQueueUsage>,
    subscriptions: HashMap<u32, usize>,
    /// What the batch at hand has for it: subscription and position in the batch.
    hits: Vec<(u32, u32)>,
}

/// See the module.
pub struct Fanout {
    index: Index<(usize, u32)>,
    listeners: Slab<Listener>,
    slots: HashMap<u64, usize>,
    send_queue: usize,
    metrics: Metrics,
}

impl Fanout {
    /// An empty index; `send_queue` frames may wait for one connection.
    pub fn new(send_queue: usize, metrics: Metrics) -> Self {
        let (listeners, slots) = (Slab::new(), HashMap::new());
        Self {
            index: Index::default(),
            listeners,
            slots,
            send_queue,
            metrics,
        }
    }

    fn remove(&mut self, connection: u64, token: Option<u32>) {
        let Some(&slot) = self.slots.get(&connection) else {
            return;
        };
        let listener = &mut self.listeners[slot];
        let ended: Vec<usize> = match token {
            Some(token) => listener.subscriptions.remove(&token).into_iter().collect(),
            None => listener
                .subscriptions
                .drain()
                .map(|(_, entry)| entry)
                .collect(),
        };
        self.metrics.subscriptions.decrement(ended.len() as f64);
        ended.into_iter().for_each(|entry| self.index.remove(entry));
        if self.listeners[slot].subscriptions.is_empty() {
            self.listeners.remove(slot).subscriber.dismiss();
            self.slots.remove(&connection);
        }
    }

    /// Sends a listener its hits; gives the subscriptions that lost one.
    fn deliver(&mut self, slot: usize, publish: &Publish) -> Vec<u32> {
        let listener = &mut self.listeners[slot];
        let mut hits = std::mem::take(&mut listener.hits);
        let mut lost = Vec::new();
        hits.retain(|(token, at)| {
            let bytes = publish.events[*at as usize].json().len();
            // A subscription that lost one event gets no later one: the gap must not be hidden.
            let fits = !lost.contains(token) && listener.usage.try_add(bytes, self.send_queue);
            if !fits {
                self.metrics.live_fell_behind.increment(1);
                if !lost.contains(token) {
                    lost.push(*token);
                }
            }
            fits
        });
        self.metrics.live_delivered.increment(hits.len() as u64);
        if !hits.is_empty() {
            let (batch, events) = (publish.batch, Arc::clone(&publish.events));
            listener.subscriber.send(Live::Events {
                batch,
                events,
                hits,
            });
        }
        for &token in &lost {
            listener.subscriber.send(Live::FellBehind { token });
        }
        lost
    }
}

impl Actor for Fanout {
    type Context = Context<Self>;
}

impl Handler<Subscribe> for Fanout {
    type Result = ();
    fn handle(&mut self, subscribe: Subscribe, _: &mut Self::Context) {
        let Subscribe {
            connection,
            token,
            filters,
            subscriber,
            usage,
        } = subscribe;
        let slot = match self.slots.entry(connection) {
            Entry::Occupied(slot) => {
                subscriber.dismiss();
                *slot.get()
            }
            Entry::Vacant(slot) => *slot.insert(self.listeners.insert(Listener {
                connection,
                subscriber,
                usage,
                subscriptions: HashMap::new(),
                hits: Vec::new(),
            })),
        };
        let entry = self.index.insert((slot, token), filters);
        self.listeners[slot].subscriptions.insert(token, entry);
        self.metrics.subscriptions.increment(1.0);
    }
}

impl Handler<Unsubscribe> for Fanout {
    type Result = ();
    fn handle(&mut self, unsubscribe: Unsubscribe, _: &mut Self::Context) {
        self.remove(unsubscribe.connection, unsubscribe.token);
    }
}

impl Handler<Publish> for Fanout {
    type Result = ();
    fn handle(&mut self, publish: Publish, _: &mut Self::Context) {
        let mut touched = Vec::new();
        for (at, event) in (0u32..).zip(publish.events.iter()) {
            let listeners = &mut self.listeners;
            self.index.for_each_match(event, |&(slot, token)| {
                let hits = &mut listeners[slot].hits;
                if hits.is_empty() {
                    touched.push(slot);
                }
                hits.push((token, at));
            });
        }
        for slot in touched {
            let lost = self.deliver(slot, &publish);
            let connection = self.listeners[slot].connection;
            for token in lost {
                self.remove(connection, Some(token));
            }
        }
    }
}
