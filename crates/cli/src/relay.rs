//! One signed request, and its way past a relay that is busy.

use std::{
    io::Read,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use buzz_protocol::http_auth::{self, Request};
use secp256k1::{
    Keypair,
    rand::{self, Rng},
};
use serde::Deserialize;
use ureq::{Agent, Body, http::Response};

use crate::failure::Failure;

/// How long a connection may take to open.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long the relay may take to begin its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How often a request is sent.
const MAX_TRIES: u32 = 20;
/// Where a relay names no wait.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);
/// Bytes of an error that are read.
const MAX_ERROR: u64 = 64 * 1024;

/// A relay, and who asks it.
pub(crate) struct Relay {
    agent: Agent,
    base: String,
    keys: Keypair,
    /// What is left of the time to wait in.
    left: Duration,
}

/// An error's body; the two forms of the contract, each in part.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Error {
    message: String,
    retry_after_secs: Option<u64>,
}

impl Relay {
    /// The relay at `url`, which may be asked to wait for `max_wait` in all.
    pub(crate) fn new(url: &str, keys: Keypair, max_wait: Duration) -> Result<Self, Failure> {
        let base = http_auth::http_base(url).ok_or_else(|| {
            Failure::usage(format_args!(
                "the relay `{url}` is no URL with ws://, wss://, http:// or https://"
            ))
        })?;
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // What is signed names one URL.
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_recv_response(Some(ANSWER_WITHIN))
            .user_agent(concat!("buzz/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Ok(Self {
            agent,
            base,
            keys,
            left: max_wait,
        })
    }

    /// Posts `body`, waits as the relay asks, and gives the answer's body.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Result<impl Read + use<>, Failure> {
        let url = format!("{}{path}", self.base);
        for tried in 1.. {
            let response = self.send(&url, body)?;
            let status = response.status().as_u16();
            if status == 200 {
                return Ok(response
                    .into_body()
                    .into_with_config()
                    .limit(u64::MAX)
                    .reader());
            }
            let header = response.headers().get("retry-after");
            let header = header.and_then(|value| value.to_str().ok()?.parse().ok());
            let error = read_error(response);
            let retry = match (status, header.or(error.retry_after_secs)) {
                (429, secs) => secs.map_or(DEFAULT_RETRY, Duration::from_secs),
                (503, Some(secs)) => Duration::from_secs(secs),
                _ => return Err(describe(status, &error.message)),
            };
            let retry = retry.max(DEFAULT_RETRY);
            let wait = with_jitter(retry, self.left, &mut rand::rng());
            let Some(wait) = wait.filter(|_| tried < MAX_TRIES) else {
                return Err(gave_up(status, &error.message, retry));
            };
            let (secs, why) = (wait.as_secs(), reason(status, &error.message));
            eprintln!("{why}; trying again in {secs}s");
            self.left -= wait;
            std::thread::sleep(wait);
        }
        Err(Failure::Unreachable("the relay was not asked".into()))
    }

    /// Each try is signed anew: a relay takes an authorization once.
    fn send(&self, url: &str, body: &str) -> Result<Response<Body>, Failure> {
        let request = Request {
            method: "POST",
            url,
        };
        let nonce = format!("{:032x}", rand::rng().random::<u128>());
        let event = http_auth::authorization(request, body.as_bytes(), &nonce, unix_now());
        let sent = self
            .agent
            .post(url)
            .header(
                "authorization",
                http_auth::to_header(&event.sign(&self.keys)),
            )
            .content_type("application/json")
            .send(body);
        sent.map_err(|error| Failure::Unreachable(format!("{url}: {error}")))
    }
}

/// The wait that the relay asked for and a random addition of up to a quarter, so that programs
/// that were refused together do not return together. `None` where less than `retry` is left.
fn with_jitter(retry: Duration, left: Duration, rng: &mut impl Rng) -> Option<Duration> {
    let jitter = retry.mul_f64(rng.random_range(0.0..=0.25));
    (retry <= left).then(|| (retry + jitter).min(left))
}

pub(crate) fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// What a relay says, or something else that stands at its address.
fn read_error(response: Response<Body>) -> Error {
    let mut text = String::new();
    let mut body = response.into_body().into_reader().take(MAX_ERROR);
    let _ = body.read_to_string(&mut text);
    serde_json::from_str(&text).unwrap_or_default()
}

fn reason(status: u16, message: &str) -> String {
    match (status, message) {
        (429, "") => "rate limited".into(),
        (_, "") => format!("the relay answers with status {status}"),
        _ => message.to_owned(),
    }
}

fn describe(status: u16, message: &str) -> Failure {
    let why = reason(status, message);
    match status {
        500.. => Failure::Unreachable(why),
        _ => Failure::Refused(why),
    }
}

fn gave_up(status: u16, message: &str, retry: Duration) -> Failure {
    let (why, secs) = (reason(status, message), retry.as_secs());
    let text = format!("{why}; gave up, the next try would be in {secs}s (see --max-wait)");
    match status {
        429 => Failure::RateLimited(text),
        _ => Failure::Unreachable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: a wait shorter than the relay asked for; one without jitter; one beyond what is left;
    /// a request that is not sent again although its wait just fits.
    #[test]
    fn the_wait_is_the_relays_and_up_to_a_quarter_more_within_what_is_left() {
        let (secs, ms) = (Duration::from_secs, Duration::from_millis);
        let rng = &mut rand::rng();
        let mut waits = |retry, left| -> Vec<Duration> {
            (0..500)
                .filter_map(|_| with_jitter(retry, left, rng))
                .collect()
        };
        let free = waits(secs(8), secs(120));
        assert!(free.iter().all(|wait| (secs(8)..=secs(10)).contains(wait)));
        assert!(free.iter().any(|wait| *wait < ms(8500)));
        assert!(free.iter().any(|wait| *wait > ms(9500)));
        assert_eq!(waits(secs(8), secs(8)), vec![secs(8); 500]);
        assert_eq!(waits(secs(8), ms(7999)), []);
    }
}
