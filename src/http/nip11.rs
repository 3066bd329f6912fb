//! The relay information document (NIP-11), from the values that are enforced.

use buzz_actors::{
    admission::{Quota, Quotas, Rates},
    shared::Settings,
};
use serde::Serialize;

/// The NIPs this relay implements.
pub const SUPPORTED_NIPS: [u16; 8] = [1, 9, 11, 40, 42, 45, 70, 98];

/// The document.
#[derive(Debug, Serialize)]
pub struct Document {
    name: &'static str,
    description: &'static str,
    supported_nips: [u16; 8],
    software: &'static str,
    version: &'static str,
    limitation: Limitation,
}

#[derive(Debug, Serialize)]
struct Limitation {
    max_message_length: usize,
    max_subscriptions: usize,
    max_filters: usize,
    max_limit: u64,
    default_limit: u64,
    max_subid_length: usize,
    max_event_tags: usize,
    created_at_upper_limit: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at_lower_limit: Option<u64>,
    auth_required: bool,
    payment_required: bool,
    restricted_writes: bool,
    rate_limits: RateLimits,
}

/// What admission enforces; not in NIP-11. What is left out has no limit.
#[derive(Debug, Serialize)]
struct RateLimits {
    human: ClassLimits,
    agent: ClassLimits,
}

#[derive(Debug, Serialize)]
struct ClassLimits {
    /// EVENT, REQ and COUNT frames in any `window_secs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_secs: Option<u32>,
    /// Stored events.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_per_min: Option<u32>,
    /// REST calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    api_calls_per_min: Option<u32>,
}

impl ClassLimits {
    fn new(rates: &Rates) -> Self {
        let limit = |quota: Quota| (!quota.is_off()).then_some(quota.limit);
        let frames = limit(rates.frames);
        Self {
            frames,
            window_secs: frames.map(|_| rates.frames.window_ms / 1000),
            messages_per_min: limit(rates.messages),
            api_calls_per_min: limit(rates.api_calls),
        }
    }
}

impl Document {
    /// The document for these settings.
    pub fn new(settings: &Settings, quotas: &Quotas) -> Self {
        let limits = &settings.limits;
        Self {
            name: "buzz-relay",
            description: "A Nostr relay for a team's chat",
            supported_nips: SUPPORTED_NIPS,
            software: env!("CARGO_PKG_REPOSITORY"),
            version: env!("CARGO_PKG_VERSION"),
            limitation: Limitation {
                max_message_length: settings.max_frame_bytes,
                max_subscriptions: limits.max_subscriptions,
                max_filters: limits.max_filters,
                max_limit: limits.max_limit,
                default_limit: limits.max_limit,
                max_subid_length: limits.max_subid_length,
                max_event_tags: limits.max_event_tags,
                created_at_upper_limit: limits.created_at_future_secs,
                created_at_lower_limit: limits.created_at_past_secs,
                auth_required: settings.auth_required,
                payment_required: false,
                restricted_writes: settings.auth_required,
                rate_limits: RateLimits {
                    human: ClassLimits::new(&quotas.human),
                    agent: ClassLimits::new(&quotas.agent),
                },
            },
        }
    }
}
