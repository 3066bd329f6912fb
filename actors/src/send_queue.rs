//! The live events that wait for one socket, counted from both sides: the fan-out adds before it
//! sends, and the session subtracts when the bytes reach the socket's buffer. A connection whose
//! client does not read is not polled at all, so only its senders can bound what waits for it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Live frames on their way to one socket.
#[derive(Debug, Default)]
pub struct SendQueueUsage {
    frames: AtomicUsize,
    bytes: AtomicUsize,
}

/// Bytes that may wait for each frame of `server.send_queue`, on average.
const BYTES_PER_FRAME: usize = 8 * 1024;

impl SendQueueUsage {
    /// Counts one frame more, unless `max_frames` wait already or their bytes are too many.
    /// There is one sender, so the check and the count need no common lock.
    pub fn try_add(&self, bytes: usize, max_frames: usize) -> bool {
        let frames = self.frames.load(Ordering::Relaxed);
        let waiting = self.bytes.load(Ordering::Relaxed);
        if frames >= max_frames
            || (frames > 0 && waiting + bytes > max_frames.saturating_mul(BYTES_PER_FRAME))
        {
            return false;
        }
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// Counts frames that reached the socket, or never will.
    pub fn subtract(&self, frames: usize, bytes: usize) {
        self.frames.fetch_sub(frames, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Frames that wait.
    pub fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded_and_come_free_again() {
        let usage = SendQueueUsage::default();
        assert!(usage.try_add(10, 2) && usage.try_add(10, 2));
        assert!(!usage.try_add(10, 2));
        usage.subtract(1, 10);
        assert!(usage.try_add(10, 2));
    }

    #[test]
    fn bytes_are_bounded_but_one_frame_always_fits() {
        let usage = SendQueueUsage::default();
        assert!(usage.try_add(10 * BYTES_PER_FRAME, 4));
        assert!(!usage.try_add(1, 4));
        usage.subtract(1, 10 * BYTES_PER_FRAME);
        assert!(usage.try_add(3 * BYTES_PER_FRAME, 4) && usage.try_add(BYTES_PER_FRAME, 4));
        assert!(!usage.try_add(1, 4));
    }
}
