//! What is sent next: messages first, then REQs, recoveries and telemetry, each as gate and pace
//! allow.

use std::time::Duration;

use super::{Config, Now, Output, Session, writes::Written};

/// What may want to be sent, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Request,
    Wire,
    Recovery,
    Observer,
    /// Subscriptions that still wait for company.
    Placement,
}

impl Lane {
    /// How many of the window's frames it may use: messages find room when all else waits.
    fn share(self, config: &Config) -> usize {
        match self {
            Self::Request => config.quota_frames,
            Self::Wire | Self::Recovery | Self::Placement => config.quota_frames * 4 / 5,
            Self::Observer => config.quota_frames / 2,
        }
    }
}

impl Session {
    /// Writes a frame at once.
    pub(super) fn send(&mut self, written: Written, text: String) {
        let ticket = self.writes.start(written);
        let output = Output::Send(self.link.socket(), ticket, text);
        self.outputs.push_back(output);
    }

    /// Sends what spends quota, messages first, as far as gate and pace allow. Gives the time at
    /// which more may go, where only time is missing.
    pub(super) fn send_what_may_go(&mut self, now: Now) -> Option<Duration> {
        if !self.link.is_open() {
            return None;
        }
        if let Some(until) = self.login.holds_until(now.at) {
            return Some(until);
        }
        loop {
            self.subscriptions.place(now.at, &self.config);
            let (what, at) = self.next_to_send(now)?;
            if at > now.at {
                return Some(at);
            }
            self.gate.spend(now.at, &self.config);
            self.send_one(what, now);
        }
    }

    fn next_to_send(&self, now: Now) -> Option<(Lane, Duration)> {
        let config = &self.config;
        let ready = [
            (Lane::Request, self.requests.ready_at()),
            (Lane::Wire, self.subscriptions.ready_at()),
            (Lane::Recovery, self.subscriptions.recovery_at(config)),
            (Lane::Observer, self.observer.ready_at(config)),
            (Lane::Placement, self.subscriptions.place_at()),
        ];
        let timed = ready.into_iter().filter_map(|(lane, at)| {
            let open = self.gate.open_at(now.at, lane.share(config), config);
            Some((lane, at?.max(open)))
        });
        // Of those that may go now the first, else the one that may go soonest.
        timed.min_by_key(|(_, at)| *at)
    }

    fn send_one(&mut self, lane: Lane, now: Now) {
        let (config, logged_in) = (&self.config, self.login.is_done());
        let sent = match lane {
            Lane::Request => self
                .requests
                .send_next(logged_in, now.at)
                .map(|(id, text)| (Written::Request(id), text)),
            Lane::Recovery | Lane::Wire | Lane::Placement => {
                if lane == Lane::Recovery {
                    self.subscriptions.start_recovery(now.at, config);
                }
                self.subscriptions
                    .send_next(logged_in, now.at, config)
                    .map(|(id, text)| (Written::Wire(id), text))
            }
            Lane::Observer => self
                .observer
                .send_next(now.at, config)
                .map(|(id, text)| (Written::Observer(id), text)),
        };
        if let Some((written, text)) = sent {
            self.frames_sent += 1;
            self.send(written, text);
        }
    }
}
