//! The order of frames while a verdict is out. Frames wait here between their arrival and their
//! admission, in the order they came; one batch is asked for at a time, and what comes meanwhile
//! is the next batch. CLOSE and AUTH cost nothing; they wait only so as not to overtake what came
//! before them.
//!
//! Bound: [`super::MAX_FRAMES_IN_FLIGHT`] frames; then the socket is not read. A frame is counted
//! when it is read, before it is checked: a flood of wrong frames is bounded like one of good
//! frames.

use std::collections::VecDeque;

use buzz_protocol::{ClientFrame, client_frame::BadFrame};
use tracing::Span;

use super::{Now, Output, Session};
use crate::admission::{Admitted, Cost, Principal, Verdict};

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
fn cost(frame: &Received) -> Option<Cost> {
    match frame {
        Ok(ClientFrame::Event(event)) => Some(Cost::event(event.kind)),
        Ok(ClientFrame::Req { .. } | ClientFrame::Count { .. }) => Some(Cost::Frame),
        Ok(ClientFrame::Close { .. } | ClientFrame::Auth(_)) => None,
        Err(bad) if bad.verb == Some("AUTH") => None,
        Err(_) => Some(Cost::Frame),
    }
}

impl Session {
    /// Serves a frame at once where nothing is counted; else it waits for its admission.
    pub(super) fn admit(&mut self, frame: Received, span: Span, now: Now) {
        let counted = cost(&frame).is_some() && self.shared.quotas.count_frames(self.login.class());
        if self.waiting.is_empty() && !counted {
            return self.serve(frame, span, now);
        }
        if matches!(frame, Ok(ClientFrame::Auth(_))) {
            // What comes behind it may belong to another key: it is read after the login.
            self.login.expect();
        }
        self.waiting.push(frame, span);
    }

    /// Has the frames that wait decided, unless a batch is on its way.
    pub(super) fn ask_admission(&mut self) {
        if self.waiting.asked > 0 || self.waiting.is_empty() {
            return;
        }
        let frames = &self.waiting.frames;
        let costs = frames.iter().filter_map(|(frame, _)| cost(frame)).collect();
        self.waiting.asked = frames.len();
        let principal = match self.login.first_key() {
            Some(key) => Principal::Key(*key),
            None => Principal::address(self.peer),
        };
        let class = self.login.class();
        self.ask(Output::Admit {
            principal,
            class,
            costs,
        });
    }

    pub(super) fn serve_admitted(&mut self, admitted: Admitted, now: Now) {
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
                Ok(()) => self.serve(frame, span, now),
                Err(refusal) => self.refuse(frame, &refusal, now),
            }
        }
        // What costs nothing needs no further answer.
        while let Some((frame, _)) = self.waiting.frames.front()
            && cost(frame).is_none()
            && let Some((frame, span)) = self.waiting.pop()
        {
            self.serve(frame, span, now);
        }
    }
}
