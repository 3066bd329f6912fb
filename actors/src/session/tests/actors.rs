//! The actors around the sessions: each has a mailbox, answers late, refuses, loses a question, or
//! dies. Questions of a session that is gone are skipped, as the real actors do.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU32,
    sync::Arc,
};

use buzz_protocol::{
    Event, EventId, Filter, Pubkey, Refusal,
    kind::{Class, class},
};
use bytes::BytesMut;
use tracing::Span;

use super::{
    super::{Input, Output},
    fanout::{Fanout, ToFanout},
    kit::{FORGED, Rng, samples},
    naive::Store,
};
use crate::{
    admission::{Admitted, SignatureChecksPaused, Verdict},
    db_reader::{HistoryPage, RoleFound},
    permits::Permit,
    ports::{Outcome, Query, Role},
    reply::{Answer, no_answer},
    send_queue::SendQueueUsage,
    verifier::Verified,
    writer::Stored,
    ws,
};

/// Events of one page.
const PAGE: usize = 3;

/// A question on its way, and the session that asked it.
enum Verify {
    Events {
        batch: u32,
        events: Vec<(Event, Span)>,
        permit: Permit,
    },
    Login {
        event: Box<Event>,
    },
}

struct StoreBatch {
    who: usize,
    batch: u32,
    events: Vec<(Event, Span)>,
    permit: Permit,
}

enum Read {
    Page {
        token: u32,
        prefix: Box<str>,
        query: Box<Query>,
        permit: Permit,
    },
    Count {
        name: String,
        permit: Permit,
    },
}

/// See the module. Answers wait in `answers` until the world brings them to their session.
#[derive(Default)]
pub(super) struct Actors {
    admission: VecDeque<(usize, usize)>,
    verifier: VecDeque<(usize, Verify)>,
    /// Two of them work at a time.
    verifying: [Option<(usize, Verify)>; 2],
    writer: VecDeque<StoreBatch>,
    /// Committed, but neither published nor answered.
    committing: Option<(ToFanout, Vec<(usize, Input)>)>,
    fanout: Fanout,
    reads: Vec<(usize, Read)>,
    roles: Vec<(usize, Pubkey, Option<EventId>)>,
    pub(super) store: Store,
    pub(super) committed: u64,
    /// The last batch of each session that came to the writer.
    in_order: BTreeMap<usize, u32>,
    writer_is_dead: bool,
    pub(super) answers: Vec<(usize, Input)>,
    /// Sessions that are gone.
    pub(super) gone: Vec<usize>,
    /// In a hundred answers, so many are refusals or lost.
    pub(super) trouble: usize,
}

impl Actors {
    pub(super) fn new(trouble: usize) -> Self {
        Self {
            trouble,
            ..Self::default()
        }
    }

    /// Takes a question.
    pub(super) fn ask(&mut self, who: usize, output: Output, usage: Arc<SendQueueUsage>) {
        match output {
            Output::Admit { costs, .. } => self.admission.push_back((who, costs.len())),
            Output::NoteInvalidSignatures { .. } => {
                let retry_in_secs = NonZeroU32::new(2).filter(|_| self.trouble > 0);
                let paused = SignatureChecksPaused { retry_in_secs };
                self.answers
                    .push((who, Input::SignatureChecksPaused(paused)));
            }
            Output::VerifyEvents {
                batch,
                events,
                permit,
            } => {
                let verify = Verify::Events {
                    batch,
                    events,
                    permit,
                };
                self.verifier.push_back((who, verify));
            }
            Output::VerifyLogin { event } => {
                self.verifier.push_back((who, Verify::Login { event }));
            }
            Output::LookUpRole { key, login } => self.roles.push((who, key, login)),
            Output::Subscribe { token, filters } => {
                self.tell_fanout(ToFanout::Subscribe {
                    who,
                    token,
                    filters,
                    usage,
                });
            }
            Output::Unsubscribe { token } => self.unsubscribe(who, Some(token)),
            Output::ReadPage {
                token,
                prefix,
                query,
                permit,
                ..
            } => {
                self.reads.push((
                    who,
                    Read::Page {
                        token,
                        prefix,
                        query,
                        permit,
                    },
                ));
            }
            Output::Count { name, permit, .. } => {
                self.reads.push((who, Read::Count { name, permit }))
            }
            Output::RecheckLater => self.answers.push((who, Input::RecheckOverdue)),
            Output::Log(_) => {}
        }
    }

    pub(super) fn unsubscribe(&mut self, who: usize, token: Option<u32>) {
        self.tell_fanout(ToFanout::Unsubscribe { who, token });
    }

    fn tell_fanout(&mut self, message: ToFanout) {
        self.fanout.tell(message, &mut self.answers);
    }

    /// Whether nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.admission.is_empty()
            && self.verifier.is_empty()
            && self.verifying.iter().all(Option::is_none)
            && self.writer.is_empty()
            && self.committing.is_none()
            && self.fanout.is_idle()
            && self.reads.is_empty()
            && self.roles.is_empty()
            && self.answers.is_empty()
    }

    /// One of the actors does something.
    pub(super) fn step(&mut self, rng: &mut Rng) {
        match rng.below(7) {
            0 => self.decide(rng),
            1 => self.begin_verifying(),
            2 => self.finish_verifying(rng),
            3 => self.write(rng),
            4 => self.fanout.step(&mut self.answers),
            5 => self.read(rng),
            _ => self.look_up(rng),
        }
    }

    /// The writer or the fan-out panics: what waits in its mailbox is lost with it.
    pub(super) fn die(&mut self, rng: &mut Rng) {
        if rng.chance(50) {
            self.writer_is_dead = true;
            if let Some((published, answers)) = self.committing.take() {
                self.tell_fanout(published);
                self.answers.extend(answers);
            }
            for lost in std::mem::take(&mut self.writer) {
                self.store_unanswered(lost);
            }
        } else {
            self.fanout.die(&mut self.answers);
        }
    }

    pub(super) fn is_fanout_dead(&self) -> bool {
        self.fanout.is_dead()
    }

    fn store_unanswered(&mut self, lost: StoreBatch) {
        let StoreBatch {
            who, batch, permit, ..
        } = lost;
        drop(permit);
        let stored = Stored::unanswered();
        self.answers.push((who, Input::Stored { batch, stored }));
    }

    fn is_wanted(&self, who: usize) -> bool {
        !self.gone.contains(&who)
    }

    fn decide(&mut self, rng: &mut Rng) {
        let Some((who, count)) = self.admission.pop_front() else {
            return;
        };
        let mut admitted = Admitted {
            verdicts: Vec::new(),
        };
        // Now and then the shard loses the question, or knows less than all.
        let known = if rng.chance(self.trouble) {
            rng.below(count + 1)
        } else {
            count
        };
        for _ in 0..known {
            admitted.verdicts.push(match rng.chance(self.trouble) {
                true => Verdict::Exceeded {
                    retry_in_secs: NonZeroU32::MIN,
                },
                false => Verdict::Admitted,
            });
        }
        self.answers.push((who, Input::Admitted(admitted)));
    }

    fn begin_verifying(&mut self) {
        if let Some(free) = self.verifying.iter_mut().find(|worker| worker.is_none()) {
            *free = self.verifier.pop_front();
        }
    }

    fn finish_verifying(&mut self, rng: &mut Rng) {
        let worker = rng.below(2);
        let Some((who, verify)) = self.verifying[worker].take() else {
            return;
        };
        let panics = rng.chance(self.trouble / 2);
        match verify {
            Verify::Events { batch, permit, .. } if panics => {
                drop(permit);
                let (verified, stored) = (Verified::unanswered(), Stored::unanswered());
                // In either order: the replies are dropped one after the other.
                self.answers.push((who, Input::Stored { batch, stored }));
                self.answers
                    .push((who, Input::Verified { batch, verified }));
            }
            Verify::Events {
                batch,
                events,
                permit,
            } => self.verified(who, batch, events, permit),
            Verify::Login { event } => {
                let verdict = match panics {
                    true => Err(no_answer()),
                    false => Ok(event.pubkey),
                };
                self.answers.push((
                    who,
                    Input::LoginVerified {
                        id: event.id,
                        verdict,
                    },
                ));
            }
        }
    }

    fn verified(&mut self, who: usize, batch: u32, events: Vec<(Event, Span)>, mut permit: Permit) {
        let (wrong, good): (Vec<_>, Vec<_>) = events
            .into_iter()
            .partition(|(event, _)| event.sig == FORGED);
        permit.give_back(wrong.len());
        let store = StoreBatch {
            who,
            batch,
            events: good,
            permit,
        };
        if store.events.is_empty() || self.writer_is_dead {
            self.store_unanswered(store);
        } else {
            let before = self.in_order.insert(who, batch);
            assert!(
                before < Some(batch),
                "events are stored in the order they were sent"
            );
            self.writer.push_back(store);
        }
        let refuse = |(event, _): (Event, Span)| (event.id, Refusal::Invalid("signature".into()));
        let verified = Verified {
            rejected: wrong.into_iter().map(refuse).collect(),
        };
        self.answers
            .push((who, Input::Verified { batch, verified }));
    }

    /// Everything that waits is one batch. Between its commit and its `Publish` a connection may
    /// read the committed number.
    fn write(&mut self, rng: &mut Rng) {
        if let Some((published, answers)) = self.committing.take() {
            self.tell_fanout(published);
            self.answers.extend(answers);
        }
        if self.writer.is_empty() {
            return;
        }
        let fails = rng.chance(self.trouble);
        self.store.batch += 1;
        let mut fresh = Vec::new();
        let mut answers = Vec::new();
        for StoreBatch {
            who,
            batch,
            events,
            permit,
        } in std::mem::take(&mut self.writer)
        {
            let results = events.into_iter().map(|(event, span)| {
                let sample = samples().by_hex[&event.id.to_hex()];
                let outcome = if fails && class(event.kind) != Class::Ephemeral {
                    Err(Refusal::DatabaseUnavailable)
                } else if self.store.is_new(sample) {
                    self.store.commit(sample);
                    fresh.push(sample);
                    Ok(Outcome::Stored)
                } else {
                    Ok(Outcome::Duplicate)
                };
                (event.id, outcome, span)
            });
            let stored = Stored {
                results: results.collect(),
            };
            drop(permit);
            answers.push((who, Input::Stored { batch, stored }));
        }
        // In this order: docs/architecture.md, "The seam".
        self.committed = self.store.batch;
        let publish = ToFanout::Publish {
            batch: self.store.batch,
            samples: fresh,
        };
        self.committing = Some((publish, answers));
    }

    /// One of several readers ends its work: in any order.
    fn read(&mut self, rng: &mut Rng) {
        if self.reads.is_empty() {
            return;
        }
        let (who, read) = self.reads.swap_remove(rng.below(self.reads.len()));
        if !self.is_wanted(who) {
            return;
        }
        let refusal = match rng.chance(self.trouble) {
            true => Some(
                [
                    Refusal::HistoryBusy,
                    Refusal::DatabaseUnavailable,
                    no_answer(),
                ][rng.below(3)]
                .clone(),
            ),
            false => None,
        };
        let input = match read {
            Read::Page {
                token,
                prefix,
                query,
                permit,
            } => {
                drop(permit);
                let page = match refusal {
                    Some(refusal) => HistoryPage {
                        frames: BytesMut::new(),
                        rest: Err(refusal),
                    },
                    None => self.page(&prefix, query),
                };
                Input::Page { token, page }
            }
            Read::Count { name, permit } => {
                drop(permit);
                let count = refusal.map_or(Ok(7), Err);
                Input::Counted { name, count }
            }
        };
        self.answers.push((who, input));
    }

    fn page(&self, prefix: &str, mut query: Box<Query>) -> HistoryPage {
        let filters: Vec<Filter> = query
            .filters
            .iter()
            .map(|(filter, _)| filter.clone())
            .collect();
        let all = self.store.history(&filters, query.committed);
        let from = query.before.unwrap_or(0) as usize;
        let until = (from + PAGE).min(all.len());
        let mut frames = BytesMut::new();
        for sample in &all[from..until] {
            let json = samples().events[*sample].event.json();
            ws::push_text(&mut frames, &[prefix.as_bytes(), json.as_bytes(), b"]"]);
        }
        query.before = Some(until as u64);
        let rest = Ok((until < all.len()).then_some(query));
        HistoryPage { frames, rest }
    }

    fn look_up(&mut self, rng: &mut Rng) {
        if self.roles.is_empty() {
            return;
        }
        let (who, key, login) = self.roles.swap_remove(rng.below(self.roles.len()));
        if !self.is_wanted(who) {
            return;
        }
        let found = match rng.below(100) {
            n if n < self.trouble / 4 => RoleFound::Shed,
            n if n < self.trouble / 2 => RoleFound::Failed(Refusal::DatabaseUnavailable),
            n if n < 60 => RoleFound::Role(None),
            _ => RoleFound::Role(Some(Role::Member)),
        };
        self.answers
            .push((who, Input::RoleFound { key, login, found }));
    }
}
