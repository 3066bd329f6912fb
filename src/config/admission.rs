//! `[admission]`: what a principal may spend, and what an address may do.

use std::time::Duration;

use buzz_actors::admission::{GuardSettings, Quota, Quotas, Rates};
use serde::{Deserialize, Serialize};

use super::check::Wrong;
use crate::values;

/// Admissions of one window that one principal's log may hold.
const MAX_LIMIT: u64 = 1_000_000;
const MAX_WINDOW: Duration = Duration::from_secs(60 * 60);
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// `[admission]`. In every rate and bound, 0 means no limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admission {
    /// Frames a second of people, over `burst_window`.
    pub human_ws_events_per_sec: u32,
    /// Frames a second of agents, over `burst_window`.
    pub agent_ws_events_per_sec: u32,
    /// The window of the frames.
    #[serde(with = "values::duration")]
    pub burst_window: Duration,
    /// Stored events a minute of people.
    pub human_messages_per_min: u32,
    /// Stored events a minute of agents.
    pub agent_messages_per_min: u32,
    /// REST calls a minute of people.
    pub human_api_calls_per_min: u32,
    /// REST calls a minute of agents.
    pub agent_api_calls_per_min: u32,
    /// `local`, or the URL of a Redis that several relays share.
    #[serde(with = "values::text")]
    pub backend: String,
    /// The longest wait for the shared budget.
    #[serde(with = "values::duration")]
    pub timeout: Duration,
    /// Open sockets of one address.
    pub connections_per_ip: u32,
    /// Handshakes of one address.
    pub handshakes_per_ip_per_min: u32,
    /// Wrong signatures of one address.
    pub invalid_signatures_per_ip_per_min: u32,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            human_ws_events_per_sec: 10,
            agent_ws_events_per_sec: 10,
            burst_window: Duration::from_secs(5),
            human_messages_per_min: 60,
            agent_messages_per_min: 120,
            human_api_calls_per_min: 300,
            agent_api_calls_per_min: 600,
            backend: LOCAL.into(),
            timeout: Duration::from_millis(250),
            connections_per_ip: 0,
            handshakes_per_ip_per_min: 12_000,
            invalid_signatures_per_ip_per_min: 60,
        }
    }
}

const LOCAL: &str = "local";

impl Admission {
    pub(super) fn check(&self, wrong: &mut Vec<Wrong>) {
        let window = self.burst_window;
        if window.subsec_nanos() != 0 || window < Duration::from_secs(1) || window > MAX_WINDOW {
            wrong.push((
                "admission.burst_window",
                "must be whole seconds, from 1s to 1h".into(),
            ));
        }
        let secs = window.as_secs();
        let rates = [
            (
                "admission.human_ws_events_per_sec",
                self.human_ws_events_per_sec,
                secs,
            ),
            (
                "admission.agent_ws_events_per_sec",
                self.agent_ws_events_per_sec,
                secs,
            ),
            (
                "admission.human_messages_per_min",
                self.human_messages_per_min,
                1,
            ),
            (
                "admission.agent_messages_per_min",
                self.agent_messages_per_min,
                1,
            ),
            (
                "admission.human_api_calls_per_min",
                self.human_api_calls_per_min,
                1,
            ),
            (
                "admission.agent_api_calls_per_min",
                self.agent_api_calls_per_min,
                1,
            ),
            (
                "admission.handshakes_per_ip_per_min",
                self.handshakes_per_ip_per_min,
                1,
            ),
            (
                "admission.invalid_signatures_per_ip_per_min",
                self.invalid_signatures_per_ip_per_min,
                1,
            ),
        ];
        for (key, rate, window) in rates {
            if u64::from(rate).saturating_mul(window) > MAX_LIMIT {
                let why = format!("more than {MAX_LIMIT} in one window; 0 means no limit");
                wrong.push((key, why));
            }
        }
        if self.timeout.is_zero() || self.timeout > MAX_TIMEOUT {
            wrong.push((
                "admission.timeout",
                "must be more than 0s, at most 1m".into(),
            ));
        }
        if let Some(url) = self.shared_url() {
            let known = ["redis://", "redis+unix://", "unix://"];
            let shown = values::mask_password(url);
            if !known.iter().any(|scheme| url.starts_with(scheme)) {
                let why = format!("`{shown}` is neither `local` nor redis://host:port");
                wrong.push(("admission.backend", why));
            } else if let Err(error) = redis::Client::open(url) {
                // The error's own text may repeat the password.
                let why = format!("`{shown}` is no URL of a Redis: {}", error.category());
                wrong.push(("admission.backend", why));
            }
        }
    }

    /// Where the shared budget is, if it is not here.
    pub fn shared_url(&self) -> Option<&str> {
        (self.backend != LOCAL).then_some(&*self.backend)
    }

    /// What is enforced, and advertised (NIP-11).
    pub fn quotas(&self) -> Quotas {
        // Checked: fits.
        let window_secs = self.burst_window.as_secs() as u32;
        let rates = |per_sec: u32, messages, api_calls| Rates {
            frames: Quota {
                limit: per_sec.saturating_mul(window_secs),
                window_ms: window_secs.saturating_mul(1000),
            },
            messages: Quota::per_minute(messages),
            api_calls: Quota::per_minute(api_calls),
        };
        Quotas {
            human: rates(
                self.human_ws_events_per_sec,
                self.human_messages_per_min,
                self.human_api_calls_per_min,
            ),
            agent: rates(
                self.agent_ws_events_per_sec,
                self.agent_messages_per_min,
                self.agent_api_calls_per_min,
            ),
        }
    }

    /// What one address may do.
    pub fn guards(&self) -> GuardSettings {
        GuardSettings {
            connections: self.connections_per_ip,
            handshakes: Quota::per_minute(self.handshakes_per_ip_per_min),
            invalid_signatures: Quota::per_minute(self.invalid_signatures_per_ip_per_min),
        }
    }
}
