//! What waits to be sent, as WebSocket frames.
//!
//! Bound: answers are bounded by the frames in work, and live events by the fan-out, which counts
//! what waits (`SendQueueUsage`); what reaches the socket's buffer is subtracted here.

use std::{borrow::Borrow, sync::Arc};

use buzz_protocol::VerifiedEvent;
use bytes::{Bytes, BytesMut};

use crate::{
    send_queue::SendQueueUsage,
    ws::{self, CloseCode},
};

/// See the module.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: BytesMut,
    /// Of the live events in `bytes`.
    live: Size,
    /// Of the live events in the bytes that were taken last.
    taken: Size,
    usage: Arc<SendQueueUsage>,
}

/// Live frames and the bytes of their JSON.
#[derive(Default)]
struct Size {
    frames: usize,
    bytes: usize,
}

impl Outgoing {
    pub(super) fn usage(&self) -> Arc<SendQueueUsage> {
        Arc::clone(&self.usage)
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What waits, for tests that judge it.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes what waits, to be sent.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        if self.bytes.is_empty() {
            return None;
        }
        self.taken = std::mem::take(&mut self.live);
        Some(std::mem::take(&mut self.bytes).freeze())
    }

    /// What was taken last is on its way.
    pub(super) fn sent(&mut self) {
        let Size { frames, bytes } = std::mem::take(&mut self.taken);
        self.usage.subtract(frames, bytes);
    }

    pub(super) fn push_text(&mut self, text: &str) {
        ws::push_text(&mut self.bytes, &[text.as_bytes()]);
    }

    pub(super) fn push_ping(&mut self) {
        ws::push_ping(&mut self.bytes);
    }

    pub(super) fn push_pong(&mut self, payload: &[u8]) {
        ws::push_pong(&mut self.bytes, payload);
    }

    pub(super) fn push_close(&mut self, code: CloseCode, reason: &str) {
        ws::push_close(&mut self.bytes, code, reason);
    }

    /// Adds a page, which is frames already.
    pub(super) fn push_page(&mut self, frames: BytesMut) {
        if self.bytes.is_empty() {
            self.bytes = frames;
        } else {
            self.bytes.extend_from_slice(&frames);
        }
    }

    /// Adds a live event, which the fan-out has counted.
    pub(super) fn push_live(&mut self, prefix: &str, event: &VerifiedEvent) {
        let json = event.json();
        ws::push_text(&mut self.bytes, &[prefix.as_bytes(), json.as_bytes(), b"]"]);
        self.live.frames += 1;
        self.live.bytes += json.len();
    }

    /// Live events, which the fan-out has counted, will not be sent.
    pub(super) fn forget_live(&self, events: &[impl Borrow<Arc<VerifiedEvent>>]) {
        let bytes = events.iter().map(|event| event.borrow().json().len());
        self.usage.subtract(events.len(), bytes.sum());
    }
}
