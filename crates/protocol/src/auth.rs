//! The checks of a NIP-42 login that need neither the signature nor the database.

use crate::{Event, Refusal, kind, url::Url};

/// How far a login's `created_at` may be off, in seconds (NIP-42: "about 10 minutes").
pub const MAX_CLOCK_SKEW_SECS: u64 = 600;

/// Checks kind, time, challenge and relay URL of a login.
///
/// # Errors
/// `invalid: …` with the part that is wrong.
pub fn check_login(
    event: &Event,
    challenge: &str,
    relay_url: &str,
    now: u64,
) -> Result<(), Refusal> {
    let invalid = |why: String| Err(Refusal::Invalid(why));
    if event.kind != kind::CLIENT_AUTH {
        return invalid(format!(
            "a login has kind {}, not {}",
            kind::CLIENT_AUTH,
            event.kind
        ));
    }
    check_clock(event, now, MAX_CLOCK_SKEW_SECS).map_err(Refusal::Invalid)?;
    if event.tag_values("challenge").next() != Some(challenge) {
        return invalid("the challenge tag does not hold this connection's challenge".into());
    }
    let named = event.tag_values("relay").next().and_then(RelayUrl::parse);
    if named.is_none() || named != RelayUrl::parse(relay_url) {
        return invalid(format!("the relay tag must name {relay_url}"));
    }
    Ok(())
}

/// Checks that `created_at` is within `max_secs` of now, either side: for what proves who somebody
/// is, here and over HTTP.
pub(crate) fn check_clock(event: &Event, now: u64, max_secs: u64) -> Result<(), String> {
    let skew = event.created_at.abs_diff(now);
    if skew <= max_secs {
        return Ok(());
    }
    let side = if event.created_at < now {
        "behind"
    } else {
        "ahead of"
    };
    Err(format!(
        "created_at is {skew} s {side} the relay's clock; at most {max_secs} s are accepted"
    ))
}

/// Host, port and path of a relay's URL; the scheme does not count, nor does its default port.
#[derive(Debug, PartialEq, Eq)]
struct RelayUrl {
    host: String,
    port: Option<u16>,
    path: String,
}

impl RelayUrl {
    fn parse(url: &str) -> Option<Self> {
        let url = Url::parse(url.trim())?;
        let path = url.rest.split(['?', '#']).next().unwrap_or_default();
        Some(Self {
            host: url.host.trim_end_matches('.').to_owned(),
            port: url.port,
            path: path.trim_end_matches('/').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventId, Pubkey, Sig, Tag};

    fn login(relay: &str, created_at: u64) -> Event {
        Event {
            id: EventId([0; 32]),
            pubkey: Pubkey([0; 32]),
            created_at,
            kind: kind::CLIENT_AUTH,
            tags: vec![Tag::new(["relay", relay]), Tag::new(["challenge", "c"])],
            content: String::new(),
            sig: Sig([0; 64]),
        }
    }

    #[test]
    fn scheme_case_slash_and_default_port_do_not_count() {
        for url in [
            "ws://relay.example/chat",
            "wss://relay.example/chat",
            "wss://RELAY.example/chat/",
            "ws://relay.example:80/chat",
            "wss://relay.example:443/chat",
            "WSS://relay.example./chat?x=1",
        ] {
            assert_eq!(
                check_login(&login(url, 9), "c", "wss://relay.example/chat", 9),
                Ok(()),
                "{url}"
            );
        }
    }

    #[test]
    fn another_host_port_or_path_is_refused() {
        for url in [
            "",
            "relay.example/chat",
            "wss://relay.example",
            "wss://relay.example/Chat",
            "wss://relay.example:444/chat",
            "wss://relay.example.evil/chat",
            "wss://evil@other/chat",
            "ftp://relay.example/chat",
            "wss://relay.example:x/chat",
        ] {
            assert!(
                check_login(&login(url, 9), "c", "wss://relay.example/chat", 9).is_err(),
                "{url}"
            );
        }
    }

    #[test]
    fn an_unreadable_relay_tag_never_equals_an_unreadable_setting() {
        assert!(check_login(&login("x", 9), "c", "y", 9).is_err());
    }

    #[test]
    fn a_clock_ten_minutes_off_is_accepted_and_more_is_named() {
        let now = 1_700_000_000;
        for (at, ok) in [
            (now - 600, true),
            (now + 600, true),
            (now - 601, false),
            (now + 720, false),
        ] {
            let checked = check_login(&login("ws://h", at), "c", "ws://h", now);
            assert_eq!(checked.is_ok(), ok, "{at}");
            if let Err(refusal) = checked {
                assert!(refusal.to_string().contains("clock"), "{refusal}");
            }
        }
    }

    #[test]
    fn the_challenge_and_the_kind_must_be_right() {
        assert!(check_login(&login("ws://h", 9), "other", "ws://h", 9).is_err());
        let other_kind = Event {
            kind: 1,
            ..login("ws://h", 9)
        };
        assert!(check_login(&other_kind, "c", "ws://h", 9).is_err());
    }
}
