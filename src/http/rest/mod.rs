//! Requests over plain HTTP, each with its own proof of who sends it (NIP-98): `POST /events`,
//! `/query` and `/count`, and the document that describes them, `/openapi.json`.
//!
//! Bound: a body is as large as a socket's message may be and whole within `BODY_WITHIN`; a
//! request in work holds a handler permit; an answer is read page by page as the client takes it.
//! Arrives: requests from `public`. Leaves: calls ([`buzz_actors::call`]), answers.
//! When full: 503 with `Retry-After`.
//!
//! Follow a request: header → body → [`Call::begin`] (signature, replay) → one of the three.

mod answer;
mod openapi;

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        Method,
        header::{AUTHORIZATION, CONTENT_LENGTH},
    },
    web::{Bytes, BytesMut, Payload},
};
use buzz_actors::{
    call::{Call, Pages},
    permits::Permits,
    services::Services,
};
use buzz_protocol::{Event, Filter, Refusal, client_frame, http_auth};
use futures_util::{Stream, StreamExt, stream};
use serde::de::DeserializeOwned;
use serde_json::json;

use self::answer::{Failure, LimitType};

/// A body must be whole this long after its request's head.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// Bodies on their way at once, over all clients; further requests are told to come again. What is
/// signed is known behind the body only, so this and not the sender bounds what slow bodies hold.
const BODIES: usize = 256;

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Publish an event.
    Events,
    /// Read stored events.
    Query,
    /// Count stored events.
    Count,
    /// How all this is used.
    Document,
}

impl Resource {
    const ALL: [Self; 4] = [Self::Events, Self::Query, Self::Count, Self::Document];

    fn path(self) -> &'static str {
        match self {
            Self::Events => "/events",
            Self::Query => "/query",
            Self::Count => "/count",
            Self::Document => "/openapi.json",
        }
    }

    fn methods(self) -> &'static str {
        match self {
            Self::Document => "GET, HEAD, OPTIONS",
            _ => "POST, OPTIONS",
        }
    }
}

/// See the module.
pub struct Rest {
    services: Arc<Services>,
    /// Where clients find the relay, without a slash at the end.
    base: String,
    /// The path in it, where there is one: a proxy may take it away or leave it.
    prefix: String,
    document: Bytes,
    draining: Arc<AtomicBool>,
    bodies: Permits,
}

impl Rest {
    /// For these actors.
    ///
    /// # Errors
    /// When the document can't be written as JSON; it always can.
    pub fn new(services: Arc<Services>, draining: Arc<AtomicBool>) -> serde_json::Result<Self> {
        // The settings are checked: the URL is one.
        let base = http_auth::http_base(&services.shared.settings.relay_url).unwrap_or_default();
        let (_, after_scheme) = base.split_once("://").unwrap_or_default();
        let prefix = &after_scheme[after_scheme.find('/').unwrap_or(after_scheme.len())..];
        Ok(Self {
            document: openapi::document(&services.shared.settings, &base)?.into(),
            prefix: prefix.to_owned(),
            base,
            services,
            draining,
            bodies: Permits::new(BODIES),
        })
    }

    /// What stands at a path.
    pub fn resource(&self, path: &str) -> Option<Resource> {
        let at = |path: &str| {
            let mut all = Resource::ALL.into_iter();
            all.find(|resource| resource.path() == path)
        };
        at(path).or_else(|| at(path.strip_prefix(&self.prefix)?))
    }

    /// Answers a request to one of them.
    pub async fn answer(
        &self,
        request: &HttpRequest,
        payload: Payload,
        resource: Resource,
        peer: Option<IpAddr>,
    ) -> HttpResponse {
        let mut body = Body::new(request, payload);
        let answer = match request.method() {
            &Method::OPTIONS => Ok(answer::preflight(resource.methods())),
            &Method::GET | &Method::HEAD if resource == Resource::Document => {
                Ok(answer::json(self.document.clone()))
            }
            &Method::POST if resource != Resource::Document => {
                self.call(request, &mut body, resource, peer).await
            }
            _ => Err(Failure::Method(resource.methods())),
        };
        let response = answer.unwrap_or_else(|failure| {
            if let Failure::Refused(refusal, _) = &failure {
                self.services.shared.metrics.rejected_calls.count(refusal);
            }
            answer::log_refused(request.method(), resource.path(), peer, failure.reason());
            failure.response()
        });
        body.finish(response)
    }

    async fn call(
        &self,
        request: &HttpRequest,
        body: &mut Body,
        resource: Resource,
        peer: Option<IpAddr>,
    ) -> Result<HttpResponse, Failure> {
        if self.draining.load(Ordering::Acquire) {
            return Err(Failure::Restarting);
        }
        // Whoever asks, and however it is signed: an address has the same bound as for sockets.
        let _slot = match peer {
            Some(peer) => self.services.admission.open_socket(peer).await,
            None => return Err(Failure::Unreadable("invalid: no peer address".into())),
        }
        .map_err(|retry_in_secs| {
            Failure::Refused(Refusal::Quota { retry_in_secs }, LimitType::Address)
        })?;
        let authorization = self.authorization(request, resource)?;
        let bytes = {
            let _one = self.bodies.try_acquire().ok_or(Refusal::TooManyRequests)?;
            body.read(self.services.shared.settings.max_frame_bytes)
                .await?
        };
        http_auth::check_payload(&authorization, &bytes)?;
        let permit = self.services.shared.try_acquire()?;
        let call = Call::begin(&self.services, permit, authorization).await?;
        match resource {
            Resource::Events => {
                let event: Event = parse(&bytes)?;
                let id = event.id;
                let verdict = call.publish(event).await;
                // The call itself is paid for by now.
                let verdict =
                    verdict.map_err(|refusal| Failure::Refused(refusal, LimitType::Messages))?;
                if let Err(refusal) = &verdict {
                    let (method, reason) = (request.method(), refusal.reason());
                    answer::log_refused(method, resource.path(), peer, reason);
                }
                let accepted = verdict.is_ok();
                let message = verdict.map_or_else(|refusal| refusal.to_string(), str::to_owned);
                let json = json!({"id": id, "accepted": accepted, "message": message});
                Ok(answer::json(json.to_string()))
            }
            Resource::Query => {
                let (page, pages) = call.query(filters(&bytes)?).await?;
                Ok(events(page, pages))
            }
            Resource::Count | Resource::Document => {
                let count = call.count(filters(&bytes)?).await?;
                Ok(answer::json(json!({"count": count}).to_string()))
            }
        }
    }

    /// The authorization of a request: all that is to be checked before its body is read.
    fn authorization(&self, request: &HttpRequest, resource: Resource) -> Result<Event, Refusal> {
        let refuse = |why: &str| Err(Refusal::AuthRequired(why.into()));
        let mut headers = request.headers().get_all(AUTHORIZATION);
        let Some(header) = headers.next() else {
            return refuse("an Authorization header with a signed event is needed (NIP-98)");
        };
        if headers.next().is_some() {
            return refuse("there is more than one Authorization header");
        }
        let Ok(header) = header.to_str() else {
            return refuse("the Authorization header is not ASCII");
        };
        let event = http_auth::from_header(header)?;
        let query = request.uri().query();
        let query = query.map_or(String::new(), |query| format!("?{query}"));
        let named = http_auth::Request {
            method: request.method().as_str(),
            url: &format!("{}{}{query}", self.base, resource.path()),
        };
        http_auth::check_request(&event, named, (self.services.clock)())?;
        Ok(event)
    }
}

/// A request's body, which must be read to its end or held until the answer is out: the server
/// would read on for the end of one that was dropped, without a limit.
struct Body {
    payload: Payload,
    unread: bool,
    announced: Option<usize>,
}

impl Body {
    fn new(request: &HttpRequest, payload: Payload) -> Self {
        let length = request.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let chunked = request.headers().contains_key("transfer-encoding");
        Self {
            payload,
            unread: chunked || length.is_some_and(|length| length > 0),
            announced: length,
        }
    }

    async fn read(&mut self, max: usize) -> Result<Bytes, Failure> {
        if self.announced.is_some_and(|length| length > max) {
            return Err(Failure::TooLarge(max));
        }
        let invalid = |why: &str| Failure::from(Refusal::Invalid(why.into()));
        let read = async {
            let mut bytes = BytesMut::new();
            while let Some(part) = self.payload.next().await {
                let part = part.map_err(|_| invalid("the body broke off"))?;
                if bytes.len() + part.len() > max {
                    return Err(Failure::TooLarge(max));
                }
                bytes.extend_from_slice(&part);
            }
            Ok(bytes.freeze())
        };
        let bytes = tokio::time::timeout(BODY_WITHIN, read).await;
        let bytes = bytes.map_err(|_| invalid("the body took too long"))??;
        self.unread = false;
        Ok(bytes)
    }

    fn finish(self, response: HttpResponse) -> HttpResponse {
        if self.unread {
            answer::holding(response, self.payload)
        } else {
            response
        }
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::Unreadable(client_frame::reason(&error.to_string())))
}

/// One filter or a list.
fn filters(bytes: &[u8]) -> Result<Vec<Filter>, Failure> {
    match bytes.trim_ascii_start().first() {
        Some(b'[') => parse(bytes),
        _ => Ok(vec![parse(bytes)?]),
    }
}

/// An array of events: whole where it is one page, else page after page as the client takes them.
/// A later page that can't be read breaks the answer off, so that no part passes for the whole.
fn events(mut page: BytesMut, pages: Pages) -> HttpResponse {
    // Every element stands behind a comma, the first one too.
    match page.first_mut() {
        Some(comma) => *comma = b'[',
        None => page.extend_from_slice(b"["),
    }
    if pages.is_done() {
        page.extend_from_slice(b"]");
        return answer::json(page.freeze());
    }
    answer::stream(stream::iter([Ok(page.freeze())]).chain(later(pages)))
}

fn later(pages: Pages) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::unfold(Some(pages), |pages| async {
        let mut pages = pages?;
        match pages.next().await {
            Some(Ok(page)) => Some((Ok(page.freeze()), Some(pages))),
            Some(Err(refusal)) => {
                tracing::warn!(%refusal, "an answer breaks off");
                Some((Err(std::io::Error::other(refusal.to_string())), None))
            }
            None => Some((Ok(Bytes::from_static(b"]")), None)),
        }
    })
}
