//! What the SDK does not say: whether its stream is open, lost, or over for good. The SDK's HTTP
//! transport is wrapped, so that each request for the stream and each answer is seen.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use launchdarkly_sdk_transport::{
    ByteStream, HttpTransport, HyperTransport, Request, ResponseFuture, StatusCode,
};
use tokio::{sync::watch, time::Instant};

/// The state of one client's stream.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stream {
    /// A request is under way.
    Connecting,
    /// The service has answered and may send.
    Open,
    /// It ended, or there was no answer to use. The SDK tries again by itself.
    Lost {
        /// Since when nothing is under way.
        since: Instant,
        /// The service's or the system's words.
        why: String,
    },
    /// The SDK gives up on this answer, for good.
    Refused(StatusCode),
}

/// Whether the SDK ends its stream for good on this answer.
fn is_final(status: StatusCode) -> bool {
    // Its own list: every 4xx but "bad request", "timeout" and "too many requests".
    status.is_client_error() && !matches!(status.as_u16(), 400 | 408 | 429)
}

/// A transport that reports what becomes of its requests.
#[derive(Clone)]
pub(super) struct Watched<T> {
    inner: T,
    state: Arc<watch::Sender<Stream>>,
}

impl<T> Watched<T> {
    /// Reports to the receiver that comes with it.
    pub(super) fn new(inner: T) -> (Self, watch::Receiver<Stream>) {
        let (state, seen) = watch::channel(Stream::Connecting);
        let state = Arc::new(state);
        (Self { inner, state }, seen)
    }
}

impl<T: HttpTransport> HttpTransport for Watched<T> {
    fn request(&self, request: Request<Option<Bytes>>) -> ResponseFuture {
        let answer = self.inner.request(request);
        let mut attempt = Attempt::begin(Arc::clone(&self.state));
        Box::pin(async move {
            let response = answer.await.inspect_err(|error| {
                attempt.why = innermost(error);
            })?;
            attempt.answered(response.status());
            // The attempt lasts as long as the body is read.
            Ok(response.map(|body| -> ByteStream {
                Box::pin(
                    body.map(move |chunk| {
                        chunk.inspect_err(|error| attempt.why = innermost(error))
                    }),
                )
            }))
        })
    }
}

/// One request for the stream, from its beginning until its body is dropped.
struct Attempt {
    state: Arc<watch::Sender<Stream>>,
    why: String,
}

impl Attempt {
    fn begin(state: Arc<watch::Sender<Stream>>) -> Self {
        state.send_replace(Stream::Connecting);
        let why = "the service ended the stream".into();
        Self { state, why }
    }

    fn answered(&mut self, status: StatusCode) {
        if status.is_success() {
            self.state.send_replace(Stream::Open);
        } else if is_final(status) {
            self.state.send_replace(Stream::Refused(status));
        } else {
            self.why = format!("the service answered {status}");
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let lost = Stream::Lost {
            since: Instant::now(),
            why: std::mem::take(&mut self.why),
        };
        self.state.send_if_modified(|state| {
            let is_over = matches!(state, Stream::Refused(_));
            if !is_over {
                *state = lost;
            }
            !is_over
        });
    }
}

/// What is at the bottom of an error: its upper layers say "client error" and the like.
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// A transport over TLS (rustls, Mozilla's roots) that waits no longer than this for a connection
/// and for each piece of an answer. Takes the proxy that `HTTPS_PROXY` or `HTTP_PROXY` names.
pub(super) fn transport(read_timeout: Duration) -> std::io::Result<impl HttpTransport> {
    HyperTransport::builder()
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(read_timeout)
        .build_https()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::stream;
    use launchdarkly_sdk_transport::{Response, TransportError};

    use super::*;

    /// Answers with these statuses in turn, each with a body of one chunk; then not at all.
    #[derive(Clone)]
    struct Scripted(Arc<Mutex<Vec<u16>>>);

    impl HttpTransport for Scripted {
        fn request(&self, _: Request<Option<Bytes>>) -> ResponseFuture {
            let next = self.0.lock().expect("no panic").pop();
            Box::pin(async move {
                let gone = || TransportError::new(std::io::Error::other("unplugged"));
                let status = next.ok_or_else(gone)?;
                let body: ByteStream = Box::pin(stream::iter([Ok(Bytes::from_static(b"x"))]));
                let mut response = Response::new(body);
                *response.status_mut() = StatusCode::from_u16(status).expect("a status");
                Ok(response)
            })
        }
    }

    fn scripted(statuses: &[u16]) -> (Watched<Scripted>, watch::Receiver<Stream>) {
        let statuses = statuses.iter().rev().copied().collect();
        Watched::new(Scripted(Arc::new(Mutex::new(statuses))))
    }

    fn lost(seen: &watch::Receiver<Stream>) -> String {
        match &*seen.borrow() {
            Stream::Lost { why, .. } => why.clone(),
            other => panic!("{other:?} and not lost"),
        }
    }

    /// Kills: open for good once it was; lost while the body is still read.
    #[tokio::test]
    async fn a_stream_is_open_while_its_body_is_held() {
        let (transport, seen) = scripted(&[200]);
        let mut response = transport.request(Request::new(None)).await.expect("answer");
        assert_eq!(*seen.borrow(), Stream::Open);
        assert!(response.body_mut().next().await.is_some());
        assert_eq!(*seen.borrow(), Stream::Open);
        drop(response);
        assert_eq!(lost(&seen), "the service ended the stream");
        assert!(transport.request(Request::new(None)).await.is_err());
        assert_eq!(lost(&seen), "unplugged");
    }

    /// Kills: 403 taken for temporary, 500 or 429 for final; a refusal forgotten with its body.
    #[tokio::test]
    async fn an_answer_that_ends_the_sdk_is_seen() {
        for (status, is_over) in [
            (401, true),
            (403, true),
            (404, true),
            (400, false),
            (408, false),
            (429, false),
            (500, false),
            (503, false),
        ] {
            let (transport, seen) = scripted(&[status]);
            drop(transport.request(Request::new(None)).await.expect("answer"));
            if is_over {
                assert!(matches!(&*seen.borrow(), Stream::Refused(was) if *was == status));
            } else {
                assert!(lost(&seen).contains(&status.to_string()));
            }
        }
    }
}
