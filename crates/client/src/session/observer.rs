//! Observer frames (ephemeral telemetry, kind 24200): a slow, bounded drain with a few frames in
//! flight. What a refusal may have hit goes back to the head, in order; what is too much is
//! dropped, oldest first, and counted. Messages never wait behind it.

use std::{collections::VecDeque, time::Duration};

use buzz_protocol::{Event, EventId};

use super::Config;

#[derive(Debug)]
struct Frame {
    /// Place in the order of arrival.
    seq: u64,
    id: EventId,
    text: String,
    /// When an answer is no longer awaited; set when it is sent.
    forget_at: Duration,
}

/// The drain.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    waiting: VecDeque<Frame>,
    in_flight: VecDeque<Frame>,
    next_seq: u64,
    next_at: Duration,
    dropped: u64,
}

impl Observer {
    pub(crate) fn push(&mut self, event: &Event, config: &Config) {
        self.waiting.push_back(Frame {
            seq: self.next_seq,
            id: event.id,
            text: format!("[\"EVENT\",{}]", event.to_json()),
            forget_at: Duration::ZERO,
        });
        self.next_seq += 1;
        while self.waiting.len() + self.in_flight.len() > config.observer_queue
            && self.waiting.pop_front().is_some()
        {
            self.dropped += 1;
        }
    }

    /// Frames dropped since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// When the next frame may go, where one waits and the window has room.
    pub(crate) fn ready_at(&self, config: &Config) -> Option<Duration> {
        let room = self.in_flight.len() < config.observer_window;
        (room && !self.waiting.is_empty()).then_some(self.next_at)
    }

    /// The frame at the head, which is in flight from now on.
    pub(crate) fn send_next(
        &mut self,
        now: Duration,
        config: &Config,
    ) -> Option<(EventId, String)> {
        let mut frame = self.waiting.pop_front()?;
        frame.forget_at = now + config.observer_timeout;
        self.next_at = now + config.observer_every;
        let sent = (frame.id, frame.text.clone());
        self.in_flight.push_back(frame);
        Some(sent)
    }

    /// An answer came for `id`; `again` where the frame is to be sent once more. False where `id`
    /// is none of ours.
    pub(crate) fn answered(&mut self, id: &EventId, again: bool) -> bool {
        let Some(at) = self.in_flight.iter().position(|frame| frame.id == *id) else {
            return false;
        };
        if let Some(frame) = self.in_flight.remove(at)
            && again
        {
            self.put_back(frame);
        }
        true
    }

    /// A NOTICE or the loss of the socket may have hit any frame in flight: all go back.
    pub(crate) fn put_back_all(&mut self) {
        while let Some(frame) = self.in_flight.pop_back() {
            self.put_back(frame);
        }
    }

    fn put_back(&mut self, frame: Frame) {
        let at = self.waiting.partition_point(|other| other.seq < frame.seq);
        self.waiting.insert(at, frame);
    }

    /// Frames without an answer for long are taken as delivered: most relays do not answer them.
    pub(crate) fn expire(&mut self, now: Duration) {
        self.in_flight.retain(|frame| frame.forget_at > now);
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.in_flight.iter().map(|frame| frame.forget_at).min()
    }
}
