//! The checks of a NIP-98 authorization that need neither the signature nor a memory: what the
//! header holds, and whether its event names this request. The relay's side and the client's.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use sha2::{Digest, Sha256};

use crate::{Event, Refusal, Tag, UnsignedEvent, auth::check_clock, hex::push_hex, kind, url::Url};

/// How far an authorization's `created_at` may be off, in seconds (NIP-98: "60 seconds").
pub const MAX_CLOCK_SKEW_SECS: u64 = 60;

/// The header's scheme, also what a refusal asks for (`WWW-Authenticate`).
pub const SCHEME: &str = "Nostr";

/// Padding may be left out; everything else is one text for one event.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What an authorization must name.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method, in upper case.
    pub method: &'a str,
    /// The absolute URL, query included.
    pub url: &'a str,
}

/// The event of an `Authorization` header.
///
/// # Errors
/// `auth-required: …` where it holds none.
pub fn from_header(value: &str) -> Result<Event, Refusal> {
    let (scheme, token) = value.trim().split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return refuse(format!("the authorization must have the scheme {SCHEME}"));
    }
    let json = BASE64.decode(token.trim());
    let json = json.map_err(|error| refusal(format!("the authorization is no base64: {error}")))?;
    serde_json::from_slice(&json)
        .map_err(|error| refusal(format!("the authorization holds no event: {error}")))
}

/// Checks kind, time, URL and method.
///
/// The URL must be the same up to the case of scheme and host and a written default port; a slash
/// at the end counts, and so does a query. Each of the tags must stand once: an event that names
/// two URLs would be good for two requests.
///
/// # Errors
/// `auth-required: …` with the part that is wrong.
pub fn check_request(event: &Event, request: Request<'_>, now: u64) -> Result<(), Refusal> {
    if event.kind != kind::HTTP_AUTH {
        let wanted = kind::HTTP_AUTH;
        return refuse(format!(
            "an authorization has kind {wanted}, not {}",
            event.kind
        ));
    }
    check_clock(event, now, MAX_CLOCK_SKEW_SECS).map_err(refusal)?;
    let named = only_value(event, "u")?.and_then(Url::parse);
    if named.is_none() || named != Url::parse(request.url) {
        return refuse(format!("the u tag must name {}", request.url));
    }
    if only_value(event, "method")? != Some(request.method) {
        return refuse(format!("the method tag must name {}", request.method));
    }
    Ok(())
}

/// Checks that the event names this body: required where there is one.
///
/// # Errors
/// `auth-required: …` where it names another or none.
pub fn check_payload(event: &Event, body: &[u8]) -> Result<(), Refusal> {
    match only_value(event, "payload")? {
        None if body.is_empty() => Ok(()),
        Some(named) if named.eq_ignore_ascii_case(&payload_hash(body)) => Ok(()),
        _ => refuse("the payload tag must hold the SHA-256 of the body, as hex".into()),
    }
}

/// What a client signs for a request. `nonce` tells apart requests that are otherwise the same in
/// one second: the relay takes each event once.
pub fn authorization(
    request: Request<'_>,
    body: &[u8],
    nonce: &str,
    created_at: u64,
) -> UnsignedEvent {
    let mut tags = vec![
        Tag::new(["u", request.url]),
        Tag::new(["method", request.method]),
    ];
    if !body.is_empty() {
        tags.push(Tag::new(["payload", &payload_hash(body)]));
    }
    tags.push(Tag::new(["nonce", nonce]));
    UnsignedEvent {
        created_at,
        kind: kind::HTTP_AUTH,
        tags,
        content: String::new(),
    }
}

/// The `Authorization` header that holds `event`.
pub fn to_header(event: &Event) -> String {
    format!("{SCHEME} {}", BASE64.encode(event.to_json()))
}

/// Where a relay's HTTP requests go: its URL with `http` for `ws` and `https` for `wss`, without
/// slashes at the end, query or fragment. A relay behind a TLS proxy is known by the proxy's URL.
/// `None` where `relay_url` is no URL of a relay.
pub fn http_base(relay_url: &str) -> Option<String> {
    let relay_url = relay_url.trim();
    let scheme = match Url::parse(relay_url)?.scheme {
        "ws" | "http" => "http",
        _ => "https",
    };
    let (_, rest) = relay_url.split_once("://")?;
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    Some(format!("{scheme}://{}", rest.trim_end_matches('/')))
}

fn payload_hash(body: &[u8]) -> String {
    let mut hex = String::with_capacity(64);
    push_hex(&mut hex, &Sha256::digest(body));
    hex
}

fn only_value<'a>(event: &'a Event, name: &str) -> Result<Option<&'a str>, Refusal> {
    let mut tags = event.tags.iter().filter(|tag| tag.name() == name);
    let first = tags.next();
    if tags.next().is_some() {
        return refuse(format!("the {name} tag stands more than once"));
    }
    Ok(first.and_then(|tag| tag.0.get(1)).map(String::as_str))
}

fn refusal(why: String) -> Refusal {
    Refusal::AuthRequired(why)
}

fn refuse<T>(why: String) -> Result<T, Refusal> {
    Err(refusal(why))
}

#[cfg(test)]
mod tests;
