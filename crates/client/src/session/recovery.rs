//! Getting back what full queues dropped: one subscription at a time, the one tried longest ago
//! first, when its consumer has room, and with a pause after each attempt, so that catching up
//! never adds to the overload that caused the loss.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Config, SubId,
    subscription::{Gap, Sub},
    wire::WireId,
};

#[derive(Debug)]
struct Attempt {
    wire: WireId,
    sub: SubId,
    /// What this request covers; pending again if it comes to nothing.
    gap: Gap,
    /// When its EOSE is no longer awaited; `None` until it is written.
    deadline: Option<Duration>,
}

/// The one attempt under way, if any, and when the last one ended.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    attempt: Option<Attempt>,
    ended_at: Option<Duration>,
    /// The last attempt left a page of this one, whose consumer keeps up: no pause before it.
    follow_up: Option<SubId>,
}

type Subs = BTreeMap<SubId, Sub>;

impl Recovery {
    /// True where `wire` is the attempt's request.
    pub(crate) fn carries(&self, wire: WireId) -> bool {
        self.attempt
            .as_ref()
            .is_some_and(|attempt| attempt.wire == wire)
    }

    /// When the next attempt may start, where one is pending and none under way.
    pub(crate) fn ready_at(&self, subs: &Subs, config: &Config) -> Option<Duration> {
        if self.attempt.is_some() {
            return None;
        }
        let next = Self::pending(subs, config)?;
        if self.follow_up == Some(next) {
            return Some(Duration::ZERO);
        }
        Some(
            self.ended_at
                .map_or(Duration::ZERO, |at| at + config.recovery_pause),
        )
    }

    /// The subscription to recover next: least recently attempted, and its consumer has room.
    fn pending(subs: &Subs, config: &Config) -> Option<SubId> {
        let waiting = subs
            .iter()
            .filter(|(_, sub)| sub.gap().is_some() && sub.has_room(config));
        waiting
            .min_by_key(|(id, sub)| (sub.last_attempt, **id))
            .map(|(id, _)| *id)
    }

    pub(crate) fn choose(
        &self,
        subs: &mut Subs,
        now: Duration,
        c: &Config,
    ) -> Option<(SubId, Gap)> {
        let id = Self::pending(subs, c)?;
        let sub = subs.get_mut(&id)?;
        sub.last_attempt = Some(now);
        Some((id, sub.take_gap()?))
    }

    pub(crate) fn started(&mut self, wire: WireId, sub: SubId, gap: Gap) {
        self.attempt = Some(Attempt {
            wire,
            sub,
            gap,
            deadline: None,
        });
    }

    /// A REQ is on the socket: the attempt's EOSE is awaited from now on.
    pub(crate) fn written(&mut self, wire: WireId, now: Duration, config: &Config) {
        if let Some(attempt) = self.attempt.as_mut().filter(|a| a.wire == wire) {
            attempt.deadline = Some(now + config.recovery_timeout);
        }
    }

    /// The attempt's page is complete. What is left stays pending and is chosen like any other; it
    /// waits for no pause where the consumer keeps up.
    pub(crate) fn page_ended(
        &mut self,
        rest: Option<u64>,
        now: Duration,
        subs: &mut Subs,
        config: &Config,
    ) {
        if let Some(attempt) = self.end(now)
            && let Some(newest) = rest
            && let Some(sub) = subs.get_mut(&attempt.sub)
        {
            sub.page_cut(attempt.gap, newest);
            self.follow_up = sub.keeps_up(config).then_some(attempt.sub);
        }
    }

    fn end(&mut self, now: Duration) -> Option<Attempt> {
        let attempt = self.attempt.take()?;
        self.ended_at = Some(now);
        self.follow_up = None;
        Some(attempt)
    }

    fn give_back(&mut self, now: Duration, subs: &mut Subs) {
        if let Some(attempt) = self.end(now)
            && let Some(sub) = subs.get_mut(&attempt.sub)
        {
            sub.lose(attempt.gap);
        }
    }

    /// The request was refused: `pending` where it is to be asked again.
    pub(crate) fn refused(&mut self, pending: bool, now: Duration, subs: &mut Subs) {
        if pending {
            self.give_back(now, subs);
        } else {
            self.end(now);
        }
    }

    /// A write failed; true where it was the attempt's.
    pub(crate) fn failed(&mut self, wire: WireId, now: Duration, subs: &mut Subs) -> bool {
        let ours = self.carries(wire);
        if ours {
            self.give_back(now, subs);
        }
        ours
    }

    /// The socket is gone: what the attempt covers is resumed with the rest of the subscription.
    pub(crate) fn socket_lost(&mut self, now: Duration, subs: &mut Subs) {
        self.give_back(now, subs);
    }

    /// The subscription is gone; the request to end, if it had one.
    pub(crate) fn abandon(&mut self, sub: SubId, now: Duration) -> Option<WireId> {
        if self.attempt.as_ref()?.sub != sub {
            return None;
        }
        self.end(now).map(|attempt| attempt.wire)
    }

    /// When the attempt's EOSE is no longer awaited.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.attempt.as_ref()?.deadline
    }

    /// Ends an attempt that got no EOSE: its request was written, which is all that is promised.
    pub(crate) fn expire(&mut self, now: Duration) -> Option<WireId> {
        if self.deadline()? > now {
            return None;
        }
        self.end(now).map(|attempt| attempt.wire)
    }
}
