//! When a frame that spends quota may be sent: not while a refusal's wait runs, not past the
//! window of the relay's quota, and one by one in the window after a refusal.

use std::{collections::VecDeque, time::Duration};

use buzz_protocol::refusal;

use super::{Config, rng::Rng};

/// The rate-limit gate and the pace, one for all that is sent to a relay.
#[derive(Debug)]
pub(crate) struct SendGate {
    /// The refusal in force: until when, and the relay's words.
    armed: Option<(Duration, String)>,
    /// Frames are staggered until then.
    careful_until: Duration,
    /// When each of the last `quota_frames` frames was sent, oldest first.
    sent: VecDeque<Duration>,
    /// Nothing is sent before: a write failed, and the next one would too.
    write_hold: Duration,
}

impl SendGate {
    pub(crate) fn new() -> Self {
        Self {
            armed: None,
            careful_until: Duration::ZERO,
            sent: VecDeque::new(),
            write_hold: Duration::ZERO,
        }
    }

    /// Takes a `rate-limited:` text. A wait that is already running is never shortened. A random
    /// addition keeps clients that were refused together from coming back together.
    pub(crate) fn arm(&mut self, text: &str, now: Duration, config: &Config, rng: &mut Rng) {
        let wait = refusal::retry_in(text).unwrap_or(config.default_retry);
        let until = now + wait.min(config.max_retry) + rng.up_to(config.stagger);
        if self.armed.as_ref().is_none_or(|(at, _)| *at < until) {
            self.armed = Some((until, text.to_owned()));
            self.careful_until = until + config.quota_window;
        }
    }

    /// The refusal in force at `now`: its end, and the relay's words.
    pub(crate) fn armed(&self, now: Duration) -> Option<(Duration, &str)> {
        let (until, text) = self.armed.as_ref()?;
        (*until > now).then_some((*until, text.as_str()))
    }

    /// Holds everything for a second, after a write that failed.
    pub(crate) fn write_failed(&mut self, now: Duration) {
        self.write_hold = now + Duration::from_secs(1);
    }

    /// The earliest time for a frame that may use `share` of the frames of a window.
    pub(crate) fn open_at(&self, now: Duration, share: usize, config: &Config) -> Duration {
        let mut at = now.max(self.write_hold);
        if let Some((until, _)) = self.armed {
            at = at.max(until);
        }
        if let Some(&last) = self.sent.back()
            && at < self.careful_until
        {
            at = at.max(last + config.stagger);
        }
        // The frame `share` places back must have left the window.
        if let Some(&earlier) = self
            .sent
            .len()
            .checked_sub(share.max(1))
            .map(|i| &self.sent[i])
        {
            at = at.max(earlier + config.quota_window + config.quota_window / 10);
        }
        at
    }

    /// Counts a frame sent at `now`.
    pub(crate) fn spend(&mut self, now: Duration, config: &Config) {
        self.sent.push_back(now);
        while self.sent.len() > config.quota_frames {
            self.sent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn gate_and_rng() -> (SendGate, Config, Rng) {
        (SendGate::new(), Config::default(), Rng::new(1))
    }

    #[test]
    fn a_hint_sets_the_wait_and_ten_seconds_stand_in_for_none() {
        for (text, secs) in [
            ("rate-limited: quota exceeded; retry in 3s", 3),
            ("rate-limited: slow down", 10),
            ("rate-limited: retry in 99999s", 300),
        ] {
            let (mut gate, config, mut rng) = gate_and_rng();
            gate.arm(text, ms(0), &config, &mut rng);
            let (until, words) = gate.armed(ms(0)).expect("armed");
            assert!(
                until >= ms(secs * 1000) && until <= ms(secs * 1000 + 100),
                "{text}"
            );
            assert_eq!(words, text);
            assert_eq!(gate.open_at(ms(0), 50, &config), until);
        }
    }

    #[test]
    fn a_missing_or_shorter_later_hint_never_shortens_the_wait() {
        let (mut gate, config, mut rng) = gate_and_rng();
        gate.arm("rate-limited: retry in 60s", ms(0), &config, &mut rng);
        let until = gate.open_at(ms(0), 50, &config);
        gate.arm("rate-limited: retry in 1s", ms(500), &config, &mut rng);
        gate.arm("rate-limited: slow down", ms(600), &config, &mut rng);
        assert_eq!(gate.open_at(ms(700), 50, &config), until);
    }

    #[test]
    fn never_more_than_the_quota_in_any_window() {
        let (mut gate, config, _) = gate_and_rng();
        let mut now = ms(0);
        let mut sent = Vec::new();
        while sent.len() < 300 {
            now = gate.open_at(now, config.quota_frames, &config);
            gate.spend(now, &config);
            sent.push(now);
        }
        for window in sent.windows(config.quota_frames + 1) {
            assert!(window[config.quota_frames] - window[0] > config.quota_window);
        }
        assert_eq!(sent[49], ms(0), "a full window is sent at once");
    }

    #[test]
    fn twenty_frames_waiting_on_one_refusal_leave_one_by_one() {
        let (mut gate, config, mut rng) = gate_and_rng();
        gate.arm("rate-limited: retry in 2s", ms(0), &config, &mut rng);
        let mut now = ms(0);
        let mut last = None;
        for _ in 0..20 {
            now = gate.open_at(now, config.quota_frames, &config);
            assert!(now >= ms(2000));
            assert!(last.is_none_or(|last| now - last >= config.stagger));
            gate.spend(now, &config);
            last = Some(now);
        }
    }

    #[test]
    fn a_smaller_share_leaves_room_for_messages() {
        let (mut gate, config, _) = gate_and_rng();
        for _ in 0..40 {
            gate.spend(ms(0), &config);
        }
        assert!(gate.open_at(ms(1), 40, &config) > ms(5000));
        assert_eq!(gate.open_at(ms(1), 50, &config), ms(1));
    }
}
