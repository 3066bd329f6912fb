//! What a relay says about subscriptions: events go to those that want them, EOSE and CLOSED to
//! those that a REQ carries.

use std::time::Duration;

use buzz_protocol::{Event, VerifiedEvent, refusal};

use super::{
    Config, Message, Now, SubId,
    backoff::Backoff,
    login::Login,
    page::Page,
    subscription::Received,
    subscriptions::{Effects, Subscriptions},
    wire::{Member, READY, Stage, Wire, WireId},
};

/// A REQ of several subscriptions is asked as a whole so often after `error:`, then one by one.
const SHARED_ERRORS: u32 = 3;

impl Subscriptions {
    /// `EVENT`: matched, told from duplicates, verified, and only then given to consumers.
    pub(crate) fn event(&mut self, wire: &str, event: Event, now: Now, c: &Config) -> Effects {
        let mut effects = Effects::default();
        let wire = WireId::parse(wire).and_then(|id| self.wires.get_mut(&id));
        let Some(wire) = wire else {
            return effects;
        };
        let subs = &self.subs;
        let wants = |id: &SubId| subs.get(id).is_some_and(|sub| sub.matches(&event));
        let is_new = |id: &SubId| subs.get(id).is_some_and(|sub| !sub.has_seen(&event));
        let wanted: Vec<bool> = wire.members.iter().map(|m| wants(&m.sub)).collect();
        let members = || wire.members.iter().zip(&wanted);
        let needed = members().any(|(m, wanted)| *wanted && is_new(&m.sub));
        // An id that was seen was verified then, and costs no second check.
        let verified = if needed {
            match VerifiedEvent::verify_with(event.clone(), &mut self.keys) {
                Ok(verified) => Some(verified),
                Err(_) => return effects,
            }
        } else {
            None
        };
        for (member, _) in wire
            .members
            .iter_mut()
            .zip(wanted)
            .filter(|(_, wanted)| *wanted)
        {
            let Some(sub) = self.subs.get_mut(&member.sub) else {
                continue;
            };
            if let Some(page) = &mut member.page {
                page.record(&sub.filters, &event);
            }
            if let Some(verified) = &verified
                && !sub.has_seen(&event)
                && sub.receive(&event, now.unix, c) == Received::Deliver
            {
                let message = Message::Event(Box::new(verified.clone()));
                effects.messages.push((member.sub, message));
            }
        }
        effects
    }

    /// `EOSE`.
    pub(crate) fn eose(&mut self, wire: &str, now: Now, config: &Config) -> Effects {
        let mut effects = Effects::default();
        let Some(id) = WireId::parse(wire) else {
            return effects;
        };
        let Some(wire) = self.wires.get_mut(&id) else {
            return effects;
        };
        if self.recovery.carries(id) {
            let page = wire
                .members
                .first_mut()
                .and_then(|member| member.page.take());
            self.end_wire(id, &mut effects);
            let rest = page.and_then(|page| page.remainder(config.page));
            self.recovery
                .page_ended(rest, now.at, &mut self.subs, config);
            return effects;
        }
        wire.live = true;
        wire.errors = 0;
        for member in &mut wire.members {
            let page = member.page.take();
            let base = page.as_ref().map(Page::base);
            let rest = page.and_then(|page| page.remainder(config.page));
            if let Some(sub) = self.subs.get_mut(&member.sub)
                && sub.caught_up(base, rest, now.unix)
            {
                effects.messages.push((member.sub, Message::CaughtUp));
            }
        }
        effects
    }

    /// `CLOSED`. The gate is armed by the caller.
    pub(crate) fn closed(
        &mut self,
        wire: &str,
        text: &str,
        login: &Login,
        backoff: &mut Backoff<'_>,
    ) -> Effects {
        let mut effects = Effects::default();
        let Some(id) = WireId::parse(wire) else {
            return effects;
        };
        let prefix = refusal::prefix(text);
        let now = backoff.now;
        let Some(wire) = self.wires.get_mut(&id) else {
            return effects;
        };
        let logged_in_before = wire.stage == Stage::Sent { logged_in: true };
        let login_helps = login.has_signer() && login.verdict().is_none() && !logged_in_before;
        if self.recovery.carries(id) {
            self.wires.remove(&id);
            // The live REQ stands; a refusal for now leaves the recovery pending, another ends it.
            let pending = matches!(prefix, Some("rate-limited" | "error"))
                || (prefix == Some("auth-required") && login_helps);
            self.recovery.refused(pending, now, &mut self.subs);
            return effects;
        }
        wire.live = false;
        match prefix {
            Some("rate-limited") => wire.stage = READY,
            Some("error") => {
                let at = backoff.retry_at(wire.errors);
                wire.errors += 1;
                wire.stage = Stage::Waiting { at };
                // It may be one subscription's fault: the others are not to wait for it.
                if wire.errors > SHARED_ERRORS && wire.members.len() > 1 {
                    self.split(id);
                }
            }
            Some("auth-required") if login.has_signer() && !logged_in_before => {
                wire.stage = if login.is_done() { READY } else { Stage::Login };
                self.login_ended(login, now, &mut effects);
            }
            _ => self.refused(id, text, now, &mut effects),
        }
        effects
    }

    /// A REQ was refused for good: alone it ends its subscription; several are asked one by one,
    /// so that only the one that was meant ends.
    fn refused(&mut self, id: WireId, text: &str, now: Duration, effects: &mut Effects) {
        let members = self.wires.get(&id).map_or(0, |wire| wire.members.len());
        if members > 1 {
            if let Some(wire) = self.wires.get_mut(&id) {
                wire.stage = READY;
            }
            self.split(id);
        } else if let Some(member) = self
            .wires
            .remove(&id)
            .and_then(|mut wire| wire.members.pop())
        {
            self.subs.remove(&member.sub);
            // A recovery of what is gone would keep the others waiting.
            if let Some(recovery) = self.recovery.abandon(member.sub, now) {
                self.end_wire(recovery, effects);
            }
            effects
                .messages
                .push((member.sub, Message::Closed(text.to_owned())));
        }
    }

    /// Asks the subscriptions of a REQ that is not sent one by one, each at the time of the whole.
    fn split(&mut self, id: WireId) {
        let Some(wire) = self.wires.remove(&id) else {
            return;
        };
        for Member { sub, .. } in wire.members {
            let one = self.add_wire(vec![Member { sub, page: None }]);
            if let Some(one) = self.wires.get_mut(&one) {
                (one.stage, one.errors) = (wire.stage, wire.errors);
            }
        }
    }

    /// The login ended, well or not: what waited for it is asked again, or refused.
    pub(crate) fn login_ended(&mut self, login: &Login, now: Duration, effects: &mut Effects) {
        let waits = |wire: &Wire| wire.stage == Stage::Login;
        let waiting: Vec<WireId> = self
            .wires
            .iter()
            .filter(|(_, w)| waits(w))
            .map(|(id, _)| *id)
            .collect();
        for id in waiting {
            // What failed for now waits for the next socket's login.
            if let Some(error) = login.verdict() {
                self.refused(id, &error.to_string(), now, effects);
            } else if login.is_done()
                && let Some(wire) = self.wires.get_mut(&id)
            {
                wire.stage = READY;
            }
        }
    }
}
