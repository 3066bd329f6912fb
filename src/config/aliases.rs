//! The names of variables that operators know from elsewhere, and the keys they stand for.

/// Variable and key. Setting `BUZZ_<SECTION>__<KEY>` beside it is an error.
pub(super) const ALIASES: &[(&str, &str)] = &[
    ("BUZZ_FEATURE_FLAGS_PROVIDER", "feature_flags.provider"),
    (
        "BUZZ_LAUNCHDARKLY_SDK_KEY",
        "feature_flags.launchdarkly.sdk_key",
    ),
    (
        "BUZZ_LAUNCHDARKLY_RELAY_PROXY_URL",
        "feature_flags.launchdarkly.relay_proxy_url",
    ),
    (
        "BUZZ_RATE_LIMIT_HUMAN_WS_EVENTS_PER_SEC",
        "admission.human_ws_events_per_sec",
    ),
    (
        "BUZZ_RATE_LIMIT_HUMAN_MESSAGES_PER_MIN",
        "admission.human_messages_per_min",
    ),
    (
        "BUZZ_RATE_LIMIT_HUMAN_API_CALLS_PER_MIN",
        "admission.human_api_calls_per_min",
    ),
    (
        "BUZZ_RATE_LIMIT_AGENT_STANDARD_WS_EVENTS_PER_SEC",
        "admission.agent_ws_events_per_sec",
    ),
    (
        "BUZZ_RATE_LIMIT_AGENT_STANDARD_MESSAGES_PER_MIN",
        "admission.agent_messages_per_min",
    ),
    (
        "BUZZ_RATE_LIMIT_AGENT_STANDARD_API_CALLS_PER_MIN",
        "admission.agent_api_calls_per_min",
    ),
];
