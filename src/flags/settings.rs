//! `[feature_flags]`: which provider, and what it needs.

use std::{fmt, time::Duration};

use actix_web::http::Uri;
use serde::{Deserialize, Serialize};

use crate::values;

/// More often than this no operator looks.
const MIN_REFRESH: Duration = Duration::from_millis(100);
const MAX_REFRESH: Duration = Duration::from_secs(60 * 60);
/// The relay serves no client while it waits.
const MAX_START_WAIT: Duration = Duration::from_secs(60);

/// `[feature_flags]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureFlags {
    /// Where values come from, for the life of the process.
    pub provider: Provider,
    /// How often they are asked for.
    #[serde(with = "values::duration")]
    pub refresh: Duration,
    /// For `file`: a TOML file with lines such as `"flag.key" = 4`.
    #[serde(with = "values::text")]
    pub file: String,
    /// For `launchdarkly`.
    pub launchdarkly: LaunchDarklySettings,
}

/// A source of feature flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// The declared defaults.
    Static,
    /// Variables, read once at the start.
    Environment,
    /// A file, read anew at each refresh.
    File,
    /// A service that streams changes.
    LaunchDarkly,
}

/// `[feature_flags.launchdarkly]`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchDarklySettings {
    /// The key of the environment; a secret.
    #[serde(with = "values::text")]
    pub sdk_key: String,
    /// The URL of a relay proxy; empty: the service itself.
    #[serde(with = "values::text")]
    pub relay_proxy_url: String,
    /// How long the start waits for the first values.
    #[serde(with = "values::duration")]
    pub start_wait: Duration,
}

impl Default for FeatureFlags {
    fn default() -> Self {
        Self {
            provider: Provider::Static,
            refresh: Duration::from_secs(5),
            file: "config/flags.toml".into(),
            launchdarkly: LaunchDarklySettings {
                sdk_key: String::new(),
                relay_proxy_url: String::new(),
                start_wait: Duration::from_secs(3),
            },
        }
    }
}

impl fmt::Debug for LaunchDarklySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key, for it is a secret.
        f.debug_struct("LaunchDarklySettings")
            .field("relay_proxy_url", &self.relay_proxy_url)
            .field("start_wait", &self.start_wait)
            .finish_non_exhaustive()
    }
}

impl FeatureFlags {
    /// Hides what is secret.
    pub(crate) fn mask(&mut self) {
        if !self.launchdarkly.sdk_key.is_empty() {
            self.launchdarkly.sdk_key = "***".into();
        }
    }

    /// The bounds that types don't hold.
    pub(crate) fn check(&self, wrong: &mut Vec<(&'static str, String)>) {
        if self.refresh < MIN_REFRESH || self.refresh > MAX_REFRESH {
            wrong.push(("feature_flags.refresh", "must be from 100ms to 1h".into()));
        }
        if self.provider == Provider::File && self.file.is_empty() {
            let why = "is needed with provider \"file\"".into();
            wrong.push(("feature_flags.file", why));
        }
        let service = &self.launchdarkly;
        if service.start_wait > MAX_START_WAIT {
            let why = "must be at most 1m".into();
            wrong.push(("feature_flags.launchdarkly.start_wait", why));
        }
        if self.provider == Provider::LaunchDarkly && service.sdk_key.is_empty() {
            let why = "is needed with provider \"launchdarkly\"; BUZZ_LAUNCHDARKLY_SDK_KEY sets it";
            wrong.push(("feature_flags.launchdarkly.sdk_key", why.into()));
        }
        // It becomes a header of requests.
        if !service.sdk_key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let why = "must be printable ASCII without spaces".into();
            wrong.push(("feature_flags.launchdarkly.sdk_key", why));
        }
        if !service.relay_proxy_url.is_empty() && !is_base_url(&service.relay_proxy_url) {
            // Not shown: it may hold a password where none belongs.
            let why = "is no URL such as \"http://proxy:8030\", without user, query or fragment";
            wrong.push(("feature_flags.launchdarkly.relay_proxy_url", why.into()));
        }
    }
}

/// Whether paths can be put behind it.
fn is_base_url(text: &str) -> bool {
    let Ok(url) = text.parse::<Uri>() else {
        return false;
    };
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let has_plain_authority = url.authority().is_some_and(|authority| {
        let host = authority.host();
        let port = authority.port_u16();
        let plain = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        !host.is_empty() && plain == authority.as_str()
    });
    is_http && has_plain_authority && url.query().is_none() && !text.contains('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: any text taken for a URL; a port out of range; a user or password let through.
    #[test]
    fn a_relay_proxy_has_a_plain_http_url() {
        for (url, is_good) in [
            ("http://proxy:8030", true),
            ("https://flags.example/ld/", true),
            ("http://127.0.0.1:1", true),
            ("http://[::1]:8030", true),
            ("proxy:8030", false),
            ("ftp://proxy", false),
            ("http://", false),
            ("http://:80", false),
            ("http://proxy:99999", false),
            ("http://user:secret@proxy", false),
            ("http://proxy/?a=b", false),
            ("http://proxy/#a", false),
            ("http://pro xy", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_base_url(url), is_good, "{url}");
        }
    }

    /// Kills: the key printed by the derived form.
    #[test]
    fn a_key_is_in_no_debug_output() {
        let mut flags = FeatureFlags::default();
        flags.launchdarkly.sdk_key = "sdk-secret".into();
        assert!(!format!("{flags:?}").contains("secret"));
    }
}
