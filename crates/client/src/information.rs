//! What a relay says of its limits (NIP-11), fetched beside the first dial: the client works
//! without it, and better with it.

use std::{io, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_tungstenite::tungstenite::http::Uri;

use crate::{
    session::RelayLimits,
    socket::{self, Dialer, Io},
};

/// From the dial to the end of the document.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// A longer document is cut, and then is none.
const MAX_BYTES: u64 = 64 * 1024;

/// The limits of the relay at `url`, none of them where it says nothing that can be read; `None`
/// where it was not there to say anything, and is to be asked again.
pub(crate) async fn fetch(url: String, dialer: Dialer) -> Option<RelayLimits> {
    let document = timeout(FETCH_TIMEOUT, get(&url, &dialer)).await;
    match document {
        Ok(Ok(response)) => is_final(&response).then(|| limits(&response).unwrap_or_default()),
        Ok(Err(error)) => {
            tracing::debug!(%url, %error, "no relay information");
            None
        }
        Err(_) => None,
    }
}

/// HTTP 1.0 has neither chunks nor a next request: the document ends with the stream.
async fn get(url: &str, dialer: &Dialer) -> io::Result<Vec<u8>> {
    let uri: Uri = url.parse().map_err(io::Error::other)?;
    let (mut stream, host) = socket::open(&uri, &dialer.transport).await?;
    if uri.scheme_str() == Some("wss") {
        let name = host.try_into().map_err(io::Error::other)?;
        let tls = tokio_rustls::TlsConnector::from(dialer.tls.clone());
        stream = Box::new(tls.connect(name, stream).await?) as Box<dyn Io>;
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {authority}\r\nAccept: application/nostr+json\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut response).await?;
    Ok(response)
}

/// False for what a relay's proxy says for it while it is away.
fn is_final(response: &[u8]) -> bool {
    let text = String::from_utf8_lossy(response);
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    status.is_some_and(|code: u16| code < 500)
}

fn limits(response: &[u8]) -> Option<RelayLimits> {
    let text = std::str::from_utf8(response).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    if head.split(' ').nth(1) != Some("200") {
        return None;
    }
    let document: Value = serde_json::from_str(body).ok()?;
    let limitation = document.get("limitation")?;
    let number = |of: &Value, name: &str| of.get(name)?.as_u64().filter(|n| *n > 0);
    let size = |name: &str| number(limitation, name)?.try_into().ok();
    // Not in NIP-11: frames that spend quota, in any window of so many seconds. A relay knows who
    // is an agent, its client need not: the tighter of both quotas suits either.
    let rates = limitation.get("rate_limits");
    let quota = ["human", "agent"].into_iter().filter_map(|class| {
        let rate = rates?.get(class)?;
        let frames: usize = number(rate, "frames")?.try_into().ok()?;
        Some((frames, Duration::from_secs(number(rate, "window_secs")?)))
    });
    let quota = quota.min_by(|a, b| {
        let per_second =
            |(frames, window): &(usize, Duration)| *frames as f64 / window.as_secs_f64();
        per_second(a).total_cmp(&per_second(b))
    });
    Some(RelayLimits {
        max_filters: size("max_filters"),
        max_limit: size("max_limit"),
        quota,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(limitation: &str) -> Option<RelayLimits> {
        let response = format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{{\"limitation\":{limitation}}}");
        limits(response.as_bytes())
    }

    #[test]
    fn what_is_advertised_is_read_and_the_rest_left_open() {
        let quota = r#"{"max_filters":7,"max_limit":100,"rate_limits":{"human":{"frames":20,"window_secs":4}}}"#;
        let expected = RelayLimits {
            max_filters: Some(7),
            max_limit: Some(100),
            quota: Some((20, Duration::from_secs(4))),
        };
        assert_eq!(of(quota), Some(expected));
        assert_eq!(
            of(r#"{"max_filters":0,"max_limit":"x"}"#),
            Some(RelayLimits::default())
        );
        assert_eq!(
            of(r#"{"rate_limits":{"human":{"frames":20},"agent":{}}}"#),
            Some(RelayLimits::default())
        );
        let both = r#"{"rate_limits":{"human":{"frames":50,"window_secs":5},"agent":{"frames":40,"window_secs":5}}}"#;
        let tighter = of(both).and_then(|limits| limits.quota);
        assert_eq!(tighter, Some((40, Duration::from_secs(5))));
    }

    #[test]
    fn what_is_no_document_says_nothing() {
        for response in [
            "",
            "HTTP/1.1 404 Not Found\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\n\r\n<html>",
        ] {
            assert_eq!(limits(response.as_bytes()), None, "{response}");
        }
    }

    /// Kills: a relay without a document asked with every dial; a proxy's 502 taken for an answer.
    #[test]
    fn only_who_was_away_is_asked_again() {
        for (response, expected) in [
            ("", false),
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n", false),
            ("HTTP/1.1 404 Not Found\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\n\r\n{}", true),
        ] {
            assert_eq!(is_final(response.as_bytes()), expected, "{response}");
        }
    }
}
