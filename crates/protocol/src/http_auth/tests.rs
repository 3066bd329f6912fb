//! Forgeries, each of which one check alone keeps out.

use proptest::prelude::*;
use secp256k1::Keypair;

use super::*;

const NOW: u64 = 1_700_000_000;
const URL: &str = "https://relay.example/chat/query";
const REQUEST: Request<'_> = Request {
    method: "POST",
    url: URL,
};

fn signed(unsigned: UnsignedEvent) -> Event {
    let keys = Keypair::from_secret_bytes([1; 32]).expect("a key");
    unsigned.sign(&keys)
}

fn good(body: &[u8]) -> Event {
    signed(authorization(REQUEST, body, "n", NOW))
}

fn check(event: &Event, body: &[u8]) -> Result<(), Refusal> {
    check_request(event, REQUEST, NOW)?;
    check_payload(event, body)
}

fn naming(name: &str, value: &str) -> Event {
    let mut unsigned = authorization(REQUEST, b"{}", "n", NOW);
    for tag in &mut unsigned.tags {
        if tag.name() == name {
            *tag = Tag::new([name, value]);
        }
    }
    signed(unsigned)
}

/// Mutants: each check left out.
#[test]
fn what_names_another_request_is_refused() {
    assert_eq!(check(&good(b"{}"), b"{}"), Ok(()));
    let without = |name: &str| {
        let mut event = good(b"{}");
        event.tags.retain(|tag| tag.name() != name);
        event
    };
    let twice = |name: &str| {
        let mut event = good(b"{}");
        let tag = event.tags.iter().find(|tag| tag.name() == name).cloned();
        event.tags.extend(tag);
        event
    };
    let forgeries = [
        (
            "kind",
            Event {
                kind: 22242,
                ..good(b"{}")
            },
        ),
        (
            "early",
            Event {
                created_at: NOW - 61,
                ..good(b"{}")
            },
        ),
        (
            "late",
            Event {
                created_at: NOW + 61,
                ..good(b"{}")
            },
        ),
        ("method", naming("method", "GET")),
        ("method's case", naming("method", "post")),
        ("no method", without("method")),
        ("two methods", twice("method")),
        ("no u", without("u")),
        ("two u", twice("u")),
        ("no payload", without("payload")),
        ("two payloads", twice("payload")),
        ("payload", naming("payload", &payload_hash(b"[]"))),
        (
            "short payload",
            naming("payload", &payload_hash(b"{}")[1..]),
        ),
        ("empty payload", naming("payload", "")),
    ];
    for (what, event) in forgeries {
        let refused = check(&event, b"{}");
        assert!(matches!(refused, Err(Refusal::AuthRequired(_))), "{what}");
    }
}

#[test]
fn a_minute_to_either_side_is_accepted() {
    for created_at in [NOW - 60, NOW, NOW + 60] {
        let event = Event {
            created_at,
            ..good(b"")
        };
        assert_eq!(check(&event, b""), Ok(()), "{created_at}");
    }
}

#[test]
fn a_body_needs_a_payload_and_none_needs_none() {
    assert_eq!(check(&good(b""), b""), Ok(()));
    assert!(check(&good(b""), b" ").is_err());
    assert!(check(&good(b" "), b"").is_err());
    assert_eq!(check(&naming("payload", &payload_hash(b"")), b""), Ok(()));
    let upper = payload_hash(b"{}").to_uppercase();
    assert_eq!(check(&naming("payload", &upper), b"{}"), Ok(()));
}

/// Mutants: a comparison of the host alone, of the path's beginning, without the scheme.
#[test]
fn urls_are_the_same_up_to_case_of_host_and_default_port() {
    for url in [
        URL,
        "HTTPS://Relay.Example/chat/query",
        "https://relay.example:443/chat/query",
    ] {
        assert_eq!(check(&naming("u", url), b"{}"), Ok(()), "{url}");
    }
    for url in [
        "",
        "/chat/query",
        "relay.example/chat/query",
        "http://relay.example/chat/query",
        "wss://relay.example/chat/query",
        "https://relay.example:80/chat/query",
        "https://relay.example./chat/query",
        "https://relay.example.evil/chat/query",
        "https://evil@relay.example/chat/query",
        "https://relay.example/chat/query/",
        "https://relay.example/chat/query?",
        "https://relay.example/chat/query?a=1",
        "https://relay.example/chat/query#",
        "https://relay.example/chat/Query",
        "https://relay.example/chat/%71uery",
        "https://relay.example/query",
        "https://relay.example/chat/events",
        " https://relay.example/chat/query",
    ] {
        assert!(check(&naming("u", url), b"{}").is_err(), "{url}");
    }
}

#[test]
fn a_query_is_part_of_the_url() {
    let url = "https://relay.example/count?a=1";
    let request = Request { url, ..REQUEST };
    let event = signed(authorization(request, b"", "n", NOW));
    assert_eq!(check_request(&event, request, NOW), Ok(()));
    let bare = Request {
        url: "https://relay.example/count",
        ..REQUEST
    };
    assert!(check_request(&event, bare, NOW).is_err());
}

#[test]
fn the_base_is_the_relays_url_over_http() {
    for (relay, base) in [
        ("ws://localhost:3000", "http://localhost:3000"),
        ("wss://relay.example/", "https://relay.example"),
        ("WSS://relay.example/chat//", "https://relay.example/chat"),
        (
            "https://relay.example/chat?x#y",
            "https://relay.example/chat",
        ),
        ("http://[::1]:80", "http://[::1]:80"),
    ] {
        assert_eq!(http_base(relay).as_deref(), Some(base), "{relay}");
    }
    assert_eq!(http_base("relay.example"), None);
}

#[test]
fn a_header_is_read_back_with_and_without_padding() {
    for content in ["", "a", "ab"] {
        let mut unsigned = authorization(REQUEST, b"{}", "n", NOW);
        unsigned.content = content.into();
        let event = signed(unsigned);
        let header = to_header(&event);
        assert_eq!(from_header(&header), Ok(event.clone()));
        assert_eq!(from_header(header.trim_end_matches('=')), Ok(event.clone()));
        let lower = header.replacen("Nostr", "nostr", 1);
        assert_eq!(from_header(&lower), Ok(event));
    }
}

#[test]
fn a_header_that_holds_no_event_is_refused() {
    let good = to_header(&good(b""));
    let token = good.strip_prefix("Nostr ").expect("a scheme");
    for header in [
        "",
        "Nostr",
        "Nostr ",
        "Nostr !",
        "Nostr e30=",
        "Nostr bm8=",
        token,
        &format!("Bearer {token}"),
        &format!("Nostr{token}"),
        &format!("Nostr {token} {token}"),
        &format!("Nostr {token}, Nostr {token}"),
        &format!("Nostr {}", &token[1..]),
    ] {
        let refused = from_header(header);
        assert!(matches!(refused, Err(Refusal::AuthRequired(_))), "{header}");
    }
}

proptest! {
    /// What is signed for one request and body is good for that one only.
    #[test]
    fn an_authorization_is_good_for_its_own_request_only(
        path in "/[a-z]{0,3}", other_path in "/[a-z]{0,3}",
        body in proptest::collection::vec(any::<u8>(), 0..4),
        other_body in proptest::collection::vec(any::<u8>(), 0..4),
        skew in -90i64..90,
    ) {
        let (url, other_url) = (format!("http://h{path}"), format!("http://h{other_path}"));
        let request = Request { method: "POST", url: &url };
        let other = Request { method: "POST", url: &other_url };
        let event = signed(authorization(request, &body, "n", NOW));
        let now = NOW.saturating_add_signed(skew);
        let ok = check_request(&event, other, now).and_then(|()| check_payload(&event, &other_body));
        prop_assert_eq!(ok.is_ok(), path == other_path && body == other_body && skew.abs() <= 60);
    }

    #[test]
    fn no_header_makes_it_panic(header in "\\PC*", token in "[A-Za-z0-9+/=]*") {
        let _ = from_header(&header);
        let _ = from_header(&format!("Nostr {token}"));
    }
}
