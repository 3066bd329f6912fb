//! Answers to REST requests: JSON, readable for pages from anywhere (CORS), with the status that
//! says what to do next.

use std::{cell::RefCell, net::IpAddr, time::Instant};

use actix_web::{
    HttpResponse, HttpResponseBuilder,
    body::{BodySize, BoxBody, MessageBody, SizedStream},
    http::{
        Method, StatusCode,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
            ALLOW, CONNECTION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
        },
    },
    web::{Bytes, Payload},
};
use buzz_actors::access_log::LogLines;
use buzz_protocol::{Refusal, http_auth};
use futures_util::{Stream, StreamExt, stream};
use serde_json::json;

/// What a refused request is told to wait, in seconds, where nobody knows better.
const RETRY_SECS: u32 = 1;
/// The same while the relay restarts.
const RESTART_SECS: u32 = 5;
/// Browsers need not ask again for a day.
const PREFLIGHT_SECS: &str = "86400";

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The resource has these methods only.
    Method(&'static str),
    /// The body has more bytes than this.
    TooLarge(usize),
    /// The body is not the JSON it should be; with the prefix of its message.
    Unreadable(String),
    /// The relay shuts down.
    Restarting,
    /// It was refused; by which limit, where it is a quota.
    Refused(Refusal, LimitType),
}

/// What a quota counts, as 429 names it.
#[derive(Debug, Clone, Copy)]
pub(super) enum LimitType {
    /// REST requests of a key.
    ApiCalls,
    /// Stored events of a key.
    Messages,
    /// Requests and connections of an address.
    Address,
}

impl LimitType {
    fn name(self) -> &'static str {
        match self {
            Self::ApiCalls => "api_calls",
            Self::Messages => "messages",
            Self::Address => "address",
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal, LimitType::ApiCalls)
    }
}

impl Failure {
    /// For the log.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Refused(refusal, _) => refusal.reason(),
            Self::Restarting => "restarting",
            _ => "invalid",
        }
    }

    pub(super) fn response(&self) -> HttpResponse {
        let (status, error, retry_secs) = self.kind();
        let mut response = with_cors(status);
        if let Some(secs) = retry_secs {
            response.insert_header((RETRY_AFTER, secs));
        }
        let message = match self {
            Self::Method(methods) => {
                response.insert_header((ALLOW, *methods));
                format!("this resource has the methods {methods}")
            }
            Self::TooLarge(max) => format!("invalid: the body is larger than {max} bytes"),
            Self::Unreadable(why) => why.clone(),
            Self::Restarting => format!("error: the relay restarts; retry in {RESTART_SECS}s"),
            Self::Refused(refusal, _) => refusal.to_string(),
        };
        if status == StatusCode::UNAUTHORIZED {
            response.insert_header((WWW_AUTHENTICATE, http_auth::SCHEME));
        }
        let json = match (self, retry_secs) {
            (Self::Refused(Refusal::Quota { .. }, limit), Some(secs)) => json!({
                "error": error, "limit_type": limit.name(), "retry_after_secs": secs,
            }),
            _ => json!({"error": error, "message": message}),
        };
        response
            .content_type("application/json")
            .body(json.to_string())
    }

    /// Status, the name of the error, and the seconds to wait where it may be tried again.
    fn kind(&self) -> (StatusCode, &'static str, Option<u32>) {
        let refusal = match self {
            Self::Method(_) => {
                return (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", None);
            }
            Self::TooLarge(_) => return (StatusCode::PAYLOAD_TOO_LARGE, "too_large", None),
            Self::Unreadable(_) => return (StatusCode::BAD_REQUEST, "invalid", None),
            Self::Restarting => {
                return (
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    Some(RESTART_SECS),
                );
            }
            Self::Refused(refusal, _) => refusal,
        };
        match refusal {
            Refusal::Quota { retry_in_secs } => {
                let secs = Some(retry_in_secs.get());
                (StatusCode::TOO_MANY_REQUESTS, "rate_limited", secs)
            }
            Refusal::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid", None),
            Refusal::AuthRequired(_) => (StatusCode::UNAUTHORIZED, "unauthorized", None),
            Refusal::Restricted(_) | Refusal::Blocked(_) | Refusal::Superseded => {
                (StatusCode::FORBIDDEN, "forbidden", None)
            }
            Refusal::SharedAdmissionUnavailable
            | Refusal::TooManyRequests
            | Refusal::HistoryBusy
            | Refusal::LoginsBusy
            | Refusal::FellBehind
            | Refusal::DatabaseUnavailable
            | Refusal::Error(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                Some(RETRY_SECS),
            ),
        }
    }
}

/// A whole answer.
pub(super) fn json(body: impl MessageBody + 'static) -> HttpResponse {
    with_cors(StatusCode::OK)
        .content_type("application/json")
        .body(body)
}

/// An answer that comes in parts.
pub(super) fn stream(parts: impl Stream<Item = std::io::Result<Bytes>> + 'static) -> HttpResponse {
    with_cors(StatusCode::OK)
        .content_type("application/json")
        .streaming(parts)
}

/// What a browser asks before a page may send a request of its own making.
pub(super) fn preflight(methods: &'static str) -> HttpResponse {
    with_cors(StatusCode::NO_CONTENT)
        .insert_header((ACCESS_CONTROL_ALLOW_METHODS, methods))
        // `*` would not stand for Authorization.
        .insert_header((ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type"))
        .insert_header((ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECS))
        .insert_header((ALLOW, methods))
        .finish()
}

fn with_cors(status: StatusCode) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response
        .insert_header((ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .insert_header((
            ACCESS_CONTROL_EXPOSE_HEADERS,
            "Retry-After, WWW-Authenticate",
        ));
    response
}

/// Closes the connection behind the answer, and holds the payload until that is out.
pub(super) fn holding(response: HttpResponse, payload: Payload) -> HttpResponse {
    let mut response = response.map_body(|_, body| match body.size() {
        BodySize::None => BoxBody::new(stream_of(body, payload, 0)),
        BodySize::Sized(length) => BoxBody::new(stream_of(body, payload, length)),
        BodySize::Stream => body,
    });
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
        .head_mut()
        .set_connection_type(actix_web::http::ConnectionType::Close);
    response
}

fn stream_of(body: BoxBody, payload: Payload, length: u64) -> impl MessageBody + 'static {
    let bytes = body.try_into_bytes().unwrap_or_default();
    SizedStream::new(
        length,
        stream::iter([Ok::<_, std::io::Error>(bytes)]).map(move |bytes| {
            let _held = &payload;
            bytes
        }),
    )
}

/// Log lines of refused requests that one worker writes in ten seconds: a flood of requests is no
/// flood of lines. What is left out is counted in the next line.
const LINES: u32 = 200;

thread_local! {
    static LOG_LINES: RefCell<LogLines> = RefCell::new(LogLines::new(LINES, Instant::now()));
}

pub(super) fn log_refused(
    method: &Method,
    path: &'static str,
    peer: Option<IpAddr>,
    reason: &'static str,
) {
    let next = LOG_LINES.with_borrow_mut(|lines| lines.next(Instant::now()));
    let Some(left_out) = next else { return };
    let left_out = (left_out > 0).then_some(left_out);
    tracing::info!(
        target: "access", outcome = "denied", reason, verb = %format_args!("{} {path}", known(method)),
        peer = peer.map(tracing::field::display), left_out, "request refused: denied/{reason}"
    );
}

/// A client may make a method up.
fn known(method: &Method) -> &str {
    match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => known,
        _ => "other",
    }
}
