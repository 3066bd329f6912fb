//! What a relay says about subscriptions: events go to those that want them, EOSE and CLOSED to
//! those that a REQ carries.

use buzz_protocol::{Event, VerifiedEvent, refusal};

use super::{
    Config, Message, Now, SubId,
    login::Login,
    page::Page,
    subscription::Received,
    subscriptions::{Effects, Subscriptions},
    wire::{Member, Stage, Wire, WireId},
};

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
            let rest = page.and_then(Page::remainder);
            let next = self
                .recovery
                .page_ended(rest, now.at, &mut self.subs, config);
            if let Some((sub, gap)) = next {
                let wire = self.add_page(sub, gap, config);
                self.recovery.started(wire, sub, gap);
            }
            return effects;
        }
        wire.live = true;
        for member in &mut wire.members {
            let page = member.page.take();
            let base = page.as_ref().map(Page::base);
            let rest = page.and_then(Page::remainder);
            if let Some(sub) = self.subs.get_mut(&member.sub)
                && sub.caught_up(base, rest, now.unix)
            {
                effects.messages.push((member.sub, Message::CaughtUp));
            }
        }
        effects
    }

    /// `CLOSED`. The gate is armed by the caller.
    pub(crate) fn closed(&mut self, wire: &str, text: &str, login: &Login, now: Now) -> Effects {
        let mut effects = Effects::default();
        let Some(id) = WireId::parse(wire) else {
            return effects;
        };
        let prefix = refusal::prefix(text);
        if self.recovery.carries(id) {
            self.wires.remove(&id);
            // The live REQ stands; a refusal for now leaves the recovery pending, another ends it.
            let pending = matches!(prefix, Some("rate-limited" | "auth-required" | "error"));
            self.recovery.refused(pending, now.at, &mut self.subs);
            return effects;
        }
        let Some(wire) = self.wires.get_mut(&id) else {
            return effects;
        };
        let logged_in_before = wire.stage == Stage::Sent { logged_in: true };
        match prefix {
            Some("rate-limited") => wire.stage = Stage::Waiting,
            Some("auth-required") if login.has_signer() && !logged_in_before => {
                wire.stage = if login.is_done() {
                    Stage::Waiting
                } else {
                    Stage::Login
                };
                self.login_ended(login, &mut effects);
            }
            _ => self.refused(id, text, &mut effects),
        }
        effects
    }

    /// A REQ was refused for good: alone it ends its subscription; several are asked one by one,
    /// so that only the one that was meant ends.
    fn refused(&mut self, id: WireId, text: &str, effects: &mut Effects) {
        let Some(mut wire) = self.wires.remove(&id) else {
            return;
        };
        if wire.members.len() > 1 {
            for member in wire.members {
                self.add_wire(vec![Member {
                    page: None,
                    ..member
                }]);
            }
        } else if let Some(member) = wire.members.pop() {
            self.subs.remove(&member.sub);
            effects
                .messages
                .push((member.sub, Message::Closed(text.to_owned())));
        }
    }

    /// The login ended, well or not: what waited for it is asked again, or refused.
    pub(crate) fn login_ended(&mut self, login: &Login, effects: &mut Effects) {
        let waits = |wire: &Wire| wire.stage == Stage::Login;
        let waiting: Vec<WireId> = self
            .wires
            .iter()
            .filter(|(_, w)| waits(w))
            .map(|(id, _)| *id)
            .collect();
        for id in waiting {
            if login.failed_for_now() {
                // It waits for the next socket's login.
            } else if let Some(error) = login.failure() {
                self.refused(id, &error.to_string(), effects);
            } else if login.is_done()
                && let Some(wire) = self.wires.get_mut(&id)
            {
                wire.stage = Stage::Waiting;
            }
        }
    }
}
