//! The subscriptions of one session. Plain data.
//!
//! A subscription has a token that is never used twice in its session: answers carry it, so that a
//! page or a live event for a subscription that was closed or replaced finds nothing.

use std::sync::Arc;

use buzz_protocol::{Filter, VerifiedEvent, relay_frame};
use tracing::Span;

use crate::{permits::Permit, ports::Query};

/// One subscription.
pub(super) struct Subscription {
    /// Its number.
    pub token: u32,
    /// The client's name for it.
    pub id: Box<str>,
    /// What stands before each event in its frames.
    pub prefix: Box<str>,
    /// The last batch that belongs to its history; later ones are live. 0 until it is known.
    pub committed: u64,
    /// How far it got.
    pub phase: Phase,
}

/// How far a subscription got.
pub(super) enum Phase {
    /// It is on its way to the fan-out.
    Subscribing {
        /// What it asks for.
        filters: Vec<Filter>,
        /// For its first page.
        permit: Permit,
        /// The trace of the REQ.
        span: Span,
    },
    /// Stored events are being read and sent; live ones wait their turn.
    History {
        /// What is left to read, while no page is on its way.
        rest: Option<Box<Query>>,
        /// Live events, in order.
        held: Vec<Arc<VerifiedEvent>>,
    },
    /// EOSE was sent.
    Live,
}

/// All subscriptions of one session, in the order of their tokens.
#[derive(Default)]
pub(super) struct Subscriptions {
    open: Vec<Subscription>,
    next_token: u32,
}

impl Subscriptions {
    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// The one that the client calls `id`.
    pub fn by_id(&self, id: &str) -> Option<&Subscription> {
        self.open
            .iter()
            .find(|subscription| &*subscription.id == id)
    }

    /// The one with this token, if it is still open.
    pub fn by_token(&mut self, token: u32) -> Option<&mut Subscription> {
        let at = self.position(token)?;
        Some(&mut self.open[at])
    }

    /// Takes what is left to read of the oldest one that has no page on its way, with its token
    /// and prefix.
    pub fn take_rest(&mut self) -> Option<(u32, Box<str>, Box<Query>)> {
        self.open.iter_mut().find_map(|subscription| {
            let Phase::History { rest, .. } = &mut subscription.phase else {
                return None;
            };
            let query = rest.take()?;
            Some((subscription.token, subscription.prefix.clone(), query))
        })
    }

    /// Opens one, and gives its token.
    pub fn open(&mut self, id: &str, phase: Phase) -> u32 {
        let token = self.next_token;
        self.next_token += 1;
        self.open.push(Subscription {
            token,
            id: id.into(),
            prefix: relay_frame::event_prefix(id).into(),
            committed: 0,
            phase,
        });
        token
    }

    /// The tokens of all.
    pub fn tokens(&self) -> Vec<u32> {
        self.open.iter().map(|open| open.token).collect()
    }

    /// Takes one out.
    pub fn remove(&mut self, token: u32) -> Option<Subscription> {
        let at = self.position(token)?;
        Some(self.open.remove(at))
    }

    fn position(&self, token: u32) -> Option<usize> {
        // Tokens grow and removal keeps the order.
        self.open
            .binary_search_by_key(&token, |subscription| subscription.token)
            .ok()
    }
}
