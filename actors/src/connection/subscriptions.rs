//! The subscriptions of one connection. Plain data.
//!
//! A subscription has a token that is never used twice on its connection: answers carry it, so
//! that a page or a live event for a subscription that was closed or asked anew finds nothing.

use std::sync::Arc;

use buzz_protocol::{VerifiedEvent, relay_frame};

use crate::ports::Query;

/// One subscription.
pub struct Subscription {
    /// Its number.
    pub token: u32,
    /// The client's name for it.
    pub id: Box<str>,
    /// What stands before each event in its frames.
    pub prefix: Box<str>,
    /// The last batch that belongs to its history; later ones are live.
    pub committed: u64,
    /// How far it got.
    pub phase: Phase,
}

/// How far a subscription got.
pub enum Phase {
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

/// All subscriptions of one connection, in the order of their tokens.
#[derive(Default)]
pub struct Subscriptions {
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

    /// One whose history has more to read and no page on its way.
    pub fn with_rest(&mut self) -> Option<&mut Subscription> {
        let has_rest = |subscription: &&mut Subscription| {
            matches!(subscription.phase, Phase::History { rest: Some(_), .. })
        };
        self.open.iter_mut().find(has_rest)
    }

    /// The number for [`Subscriptions::open`]; each call gives another.
    pub fn next_token(&mut self) -> u32 {
        let token = self.next_token;
        self.next_token += 1;
        token
    }

    /// Opens one, at the beginning of its history.
    pub fn open(&mut self, token: u32, id: &str, committed: u64) -> &Subscription {
        self.open.push(Subscription {
            token,
            id: id.into(),
            prefix: relay_frame::event_prefix(id).into(),
            committed,
            phase: Phase::History {
                rest: None,
                held: Vec::new(),
            },
        });
        &self.open[self.open.len() - 1]
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
