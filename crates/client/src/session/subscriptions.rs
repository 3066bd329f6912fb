//! All subscriptions, and the REQs that carry them: several share one REQ, up to the relay's
//! number of filters, and are told apart by their own filters when events arrive.

use std::{collections::BTreeMap, time::Duration};

use buzz_protocol::{Filter, KeyCache};

use super::{
    Config, Message, SubId,
    page::Page,
    recovery::Recovery,
    subscription::{Gap, Sub},
    wire::{Member, READY, Stage, Wire, WireId},
};

/// What a frame about a subscription led to.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) messages: Vec<(SubId, Message)>,
    /// REQs to end on the wire.
    pub(crate) close: Vec<WireId>,
}

/// The subscriptions of a session.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    pub(super) subs: BTreeMap<SubId, Sub>,
    pub(super) wires: BTreeMap<WireId, Wire>,
    next_wire: u64,
    /// New ones that no REQ carries yet, and until when they wait for company.
    unplaced: Vec<SubId>,
    place_at: Duration,
    pub(super) recovery: Recovery,
    pub(super) keys: KeyCache,
}

impl Subscriptions {
    pub(crate) fn new() -> Self {
        Self {
            subs: BTreeMap::new(),
            wires: BTreeMap::new(),
            next_wire: 0,
            unplaced: Vec::new(),
            place_at: Duration::ZERO,
            recovery: Recovery::default(),
            keys: KeyCache::default(),
        }
    }

    pub(crate) fn subscribe(&mut self, id: SubId, filters: Vec<Filter>, now: Duration, c: &Config) {
        if self.unplaced.is_empty() {
            self.place_at = now + c.linger;
        }
        self.subs.insert(id, Sub::new(filters, c));
        self.unplaced.push(id);
    }

    pub(crate) fn unsubscribe(&mut self, id: SubId, now: Duration) -> Effects {
        let mut effects = Effects::default();
        self.subs.remove(&id);
        self.unplaced.retain(|other| *other != id);
        if let Some(wire) = self.recovery.abandon(id, now) {
            self.end_wire(wire, &mut effects);
        }
        let holds = |wire: &Wire| wire.members.iter().any(|member| member.sub == id);
        let Some(wire_id) = self.wires.iter().find(|(_, w)| holds(w)).map(|(id, _)| *id) else {
            return effects;
        };
        let subs = &self.subs;
        if let Some(wire) = self.wires.get_mut(&wire_id) {
            wire.members.retain(|member| member.sub != id);
            let left: usize = wire
                .members
                .iter()
                .map(|m| subs[&m.sub].filters.len())
                .sum();
            if left == 0 {
                self.end_wire(wire_id, &mut effects);
            } else if wire.live && left * 2 <= wire.filters_sent {
                // Half of what the relay sends here is no longer wanted: ask anew. Not before
                // EOSE: a second REQ of one name could take the first one's for its own.
                wire.stage = READY;
            }
        }
        effects
    }

    /// Forgets a REQ, and ends it where the relay has it.
    pub(super) fn end_wire(&mut self, id: WireId, effects: &mut Effects) {
        if let Some(wire) = self.wires.remove(&id)
            && matches!(wire.stage, Stage::Sent { .. })
        {
            effects.close.push(id);
        }
    }

    pub(crate) fn took(&mut self, id: SubId, n: usize) {
        if let Some(sub) = self.subs.get_mut(&id) {
            sub.took(n);
        }
    }

    /// Puts the unplaced into new REQs, as many filters in each as the relay takes. The last of
    /// them may wait for company.
    pub(crate) fn place(&mut self, now: Duration, config: &Config) {
        let mut groups: Vec<(usize, Vec<SubId>)> = Vec::new();
        for id in std::mem::take(&mut self.unplaced) {
            let n = self.subs.get(&id).map_or(0, |sub| sub.filters.len());
            match groups.last_mut() {
                Some((used, group)) if *used + n <= config.max_filters => {
                    *used += n;
                    group.push(id);
                }
                _ => groups.push((n, vec![id])),
            }
        }
        let room = |(used, _): &mut (usize, Vec<SubId>)| *used < config.max_filters;
        if now < self.place_at
            && let Some((_, waiting)) = groups.pop_if(room)
        {
            self.unplaced = waiting;
        }
        for (_, group) in groups {
            let members = group.into_iter().map(|sub| Member { sub, page: None });
            self.add_wire(members.collect());
        }
    }

    pub(super) fn add_wire(&mut self, members: Vec<Member>) -> WireId {
        let id = WireId(self.next_wire);
        self.next_wire += 1;
        let wire = Wire {
            members,
            stage: READY,
            filters_sent: 0,
            errors: 0,
            live: false,
        };
        self.wires.insert(id, wire);
        id
    }

    /// When new subscriptions stop waiting for company.
    pub(crate) fn place_at(&self) -> Option<Duration> {
        (!self.unplaced.is_empty()).then_some(self.place_at)
    }

    /// When the first REQ may be sent that waits for nothing but time.
    pub(crate) fn ready_at(&self) -> Option<Duration> {
        let times = self.wires.values().filter_map(|wire| match wire.stage {
            Stage::Waiting { at } => Some(at),
            _ => None,
        });
        times.min()
    }

    /// A REQ waits for a login.
    pub(crate) fn wait_for_login(&self) -> bool {
        self.wires.values().any(|wire| wire.stage == Stage::Login)
    }

    /// When the next recovery may start, where one is pending whose consumer has room.
    pub(crate) fn recovery_at(&self, config: &Config) -> Option<Duration> {
        self.recovery.ready_at(&self.subs, config)
    }

    /// Makes the next recovery's REQ ready.
    pub(crate) fn start_recovery(&mut self, now: Duration, config: &Config) {
        let Some((sub, gap)) = self.recovery.choose(&mut self.subs, now, config) else {
            return;
        };
        let wire = self.add_page(sub, gap, config);
        self.recovery.started(wire, sub, gap);
    }

    fn add_page(&mut self, sub: SubId, gap: Gap, config: &Config) -> WireId {
        let (filters, size) = self.subs.get(&sub).map_or((0, 1), |sub| {
            (sub.filters.len(), sub.page_size(gap, config))
        });
        let until = Some(gap.newest);
        let page = Page::new(gap.oldest, until, filters, size, config.overlap_secs);
        self.add_wire(vec![Member {
            sub,
            page: Some(page),
        }])
    }

    /// The REQ that has waited longest, which counts as sent from now on.
    pub(crate) fn send_next(
        &mut self,
        logged_in: bool,
        now: Duration,
        config: &Config,
    ) -> Option<(WireId, String)> {
        let mut wires = self.wires.iter_mut();
        let is_due = |stage| matches!(stage, Stage::Waiting { at } if at <= now);
        let (id, wire) = wires.find(|(_, wire)| is_due(wire.stage))?;
        let recovery = self.recovery.carries(*id);
        let mut filters = Vec::new();
        for member in &mut wire.members {
            let Some(sub) = self.subs.get_mut(&member.sub) else {
                continue;
            };
            if recovery {
                filters.extend(
                    member
                        .page
                        .iter()
                        .flat_map(|page| page.filters(&sub.filters)),
                );
                continue;
            }
            match sub.resume_from() {
                Some(base) => {
                    let (n, overlap) = (sub.filters.len(), config.overlap_secs);
                    let page = Page::new(base, None, n, config.page, overlap);
                    filters.extend(page.filters(&sub.filters));
                    member.page = Some(page);
                    sub.resumed(base);
                }
                None => filters.extend(sub.filters.iter().cloned()),
            }
        }
        wire.stage = Stage::Sent { logged_in };
        wire.filters_sent = filters.len();
        wire.live = false;
        Some((*id, id.req_frame(&filters)))
    }

    /// A REQ is on the socket.
    pub(crate) fn written(&mut self, id: WireId, now: Duration, config: &Config) {
        self.recovery.written(id, now, config);
    }

    /// A REQ did not reach the socket: it is asked again, a recovery after its pause.
    pub(crate) fn write_failed(&mut self, id: WireId, now: Duration) {
        if self.recovery.failed(id, now, &mut self.subs) {
            self.wires.remove(&id);
        } else if let Some(wire) = self.wires.get_mut(&id) {
            wire.stage = READY;
        }
    }

    /// The socket is gone, and all REQs with it.
    pub(crate) fn socket_lost(&mut self, now: Duration) {
        self.recovery.socket_lost(now, &mut self.subs);
        self.wires.clear();
        self.unplaced = self.subs.keys().copied().collect();
        self.place_at = now;
    }

    /// When a recovery's EOSE is no longer awaited.
    pub(crate) fn recovery_deadline(&self) -> Option<Duration> {
        self.recovery.deadline()
    }

    /// Ends a recovery that got no EOSE in time.
    pub(crate) fn expire(&mut self, now: Duration) -> Effects {
        let mut effects = Effects::default();
        if let Some(wire) = self.recovery.expire(now) {
            self.end_wire(wire, &mut effects);
        }
        effects
    }

    /// Another relay: all start anew there.
    pub(crate) fn switch(&mut self, now: Duration) {
        self.socket_lost(now);
        self.subs.values_mut().for_each(Sub::forget_relay);
        self.recovery = Recovery::default();
    }
}
