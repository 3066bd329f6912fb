//! Frames between their arrival and their admission, in the order they came: a batch is asked for
//! at a time, what comes meanwhile waits for the next. CLOSE and AUTH spend nothing, and wait
//! only so as not to overtake what came before them.
//!
//! Bound: [`super::IN_WORK`] frames; then the socket is not read. A frame is counted when it is
//! read, before it is checked: a flood of wrong frames is bounded like one of good frames.

use std::{
    collections::VecDeque,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use actix::{AsyncContext, Handler, Message};
use buzz_protocol::{
    ClientFrame, Refusal,
    client_frame::{About, BadFrame},
    relay_frame,
};
use tracing::Span;

use super::{Connection, Context};
use crate::admission::{Party, Principal, Spend, Verdict};

/// A frame, or why it can't be read.
pub(super) type Received = Result<ClientFrame, BadFrame>;

/// See the module.
#[derive(Default)]
pub(super) struct Waiting {
    frames: VecDeque<(Received, Span)>,
    /// The first so many are on their way to be decided.
    asked: usize,
    reads: usize,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// REQs and COUNTs among them.
    pub(super) fn reads(&self) -> usize {
        self.reads
    }

    fn push(&mut self, frame: Received, span: Span) {
        self.reads += usize::from(is_read(&frame));
        self.frames.push_back((frame, span));
    }

    fn pop(&mut self) -> Option<(Received, Span)> {
        let (frame, span) = self.frames.pop_front()?;
        self.reads -= usize::from(is_read(&frame));
        Some((frame, span))
    }
}

fn is_read(frame: &Received) -> bool {
    matches!(
        frame,
        Ok(ClientFrame::Req { .. } | ClientFrame::Count { .. })
    )
}

/// What a frame costs; `None`: nothing, ever.
fn cost(frame: &Received) -> Option<Spend> {
    match frame {
        Ok(ClientFrame::Event(event)) => Some(Spend::event(event.kind)),
        Ok(ClientFrame::Req { .. } | ClientFrame::Count { .. }) => Some(Spend::Frame),
        Ok(ClientFrame::Close { .. } | ClientFrame::Auth(_)) => None,
        Err(bad) if bad.verb == Some("AUTH") => None,
        Err(_) => Some(Spend::Frame),
    }
}

/// A batch of frames was decided.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Admitted {
    /// One for each frame that costs something, in order.
    pub verdicts: Vec<Verdict>,
}

/// Too many signatures from this socket's address were wrong, the last of them from this socket.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Suspect {
    /// For so long, no signature from here is checked.
    pub retry_in_secs: NonZeroU32,
}

impl Connection {
    /// Serves a frame at once where nothing is counted; else it waits for its admission.
    pub(super) fn admit(&mut self, frame: Received, span: Span, ctx: &mut Context) {
        let counts = cost(&frame).is_some() && self.rooms.admission.counts_frames(self.party());
        if self.waiting.is_empty() && !counts {
            return self.serve(frame, span, ctx);
        }
        if matches!(frame, Ok(ClientFrame::Auth(_))) {
            // What comes behind it may belong to another key: it is read after the login.
            self.login.pending = true;
        }
        self.waiting.push(frame, span);
    }

    /// Has the frames that wait decided, unless a batch is on its way.
    pub(super) fn ask_admission(&mut self, ctx: &mut Context) {
        if self.waiting.asked > 0 || self.waiting.is_empty() {
            return;
        }
        let frames = &self.waiting.frames;
        let spends = frames.iter().filter_map(|(frame, _)| cost(frame)).collect();
        self.waiting.asked = frames.len();
        let principal = match self.login.keys.first() {
            Some((key, _)) => Principal::Key(*key),
            None => Principal::address(self.peer),
        };
        let (party, from) = (self.party(), ctx.address());
        self.rooms
            .admission
            .admit_frames(principal, party, spends, from);
    }

    fn party(&self) -> Party {
        let role = self.login.keys.first().and_then(|(_, role)| *role);
        Party::from(role)
    }

    /// Refuses a frame of any kind by name.
    fn refuse(&mut self, frame: Received, refusal: &Refusal) {
        match frame {
            Ok(ClientFrame::Event(event)) => self.refuse_event(&event.id, refusal),
            Ok(ClientFrame::Req { sub, .. }) => self.refuse_sub("REQ", &sub, refusal),
            Ok(ClientFrame::Count { query, .. }) => self.refuse_sub("COUNT", &query, refusal),
            Ok(ClientFrame::Close { .. } | ClientFrame::Auth(_)) => {}
            Err(BadFrame { about, verb, .. }) => match (about, verb) {
                (About::Event(id), _) => self.refuse_event(&id, refusal),
                (About::Sub(sub), Some(verb)) => self.refuse_sub(verb, &sub, refusal),
                (_, verb) => {
                    self.rooms.metrics.rejected_frames.count(refusal);
                    if verb == Some("EVENT") {
                        self.rooms.metrics.events.rate_limited.increment(1);
                    }
                    self.log_refused(verb.unwrap_or("none"), refusal.reason());
                    self.send(&relay_frame::notice(&refusal.to_string()));
                }
            },
        }
    }

    /// Counts invalid signatures against this socket's address, whoever they claim to be from.
    pub(super) fn note_invalid_signatures(&self, count: usize, ctx: &Context) {
        let from = ctx.address();
        self.rooms
            .admission
            .note_invalid_signatures(self.peer, count, from);
    }

    /// The refusal of what must be verified, while this socket's signatures are not checked.
    pub(super) fn check_suspicion(&self) -> Result<(), Refusal> {
        let left = self
            .suspect_until
            .map(|until| until.saturating_duration_since(Instant::now()));
        match left {
            Some(left) if left > Duration::ZERO => {
                let secs = u32::try_from(left.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX);
                let retry_in_secs = NonZeroU32::new(secs).unwrap_or(NonZeroU32::MIN);
                Err(Refusal::Quota { retry_in_secs })
            }
            _ => Ok(()),
        }
    }
}

impl Handler<Admitted> for Connection {
    type Result = ();
    fn handle(&mut self, admitted: Admitted, ctx: &mut Context) {
        let mut verdicts = admitted.verdicts.into_iter();
        for _ in 0..std::mem::take(&mut self.waiting.asked) {
            let Some((frame, span)) = self.waiting.pop() else {
                break;
            };
            let verdict = match cost(&frame) {
                Some(_) => verdicts.next().unwrap_or(Verdict::Unavailable),
                None => Verdict::Admitted,
            };
            match verdict.check() {
                Ok(()) => self.serve(frame, span, ctx),
                Err(refusal) => self.refuse(frame, &refusal),
            }
        }
        // What spends nothing needs no further answer.
        while let Some((frame, _)) = self.waiting.frames.front()
            && cost(frame).is_none()
            && let Some((frame, span)) = self.waiting.pop()
        {
            self.serve(frame, span, ctx);
        }
    }
}

impl Handler<Suspect> for Connection {
    type Result = ();
    fn handle(&mut self, suspect: Suspect, _: &mut Context) {
        let wait = Duration::from_secs(suspect.retry_in_secs.get().into());
        self.suspect_until = Some(Instant::now() + wait);
    }
}
