//! The public port: WebSocket upgrades, NIP-11, REST ([`super::rest`]), and a page for people.

use std::{
    any::Any,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use actix_web::{
    Error, HttpRequest, HttpResponse, HttpResponseBuilder,
    dev::Extensions,
    http::{
        Method,
        header::{
            ACCEPT, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, RETRY_AFTER, SEC_WEBSOCKET_KEY, TRANSFER_ENCODING,
            UPGRADE, VARY,
        },
    },
    rt::net::TcpStream,
    web::{self, Bytes, Data, Payload, ServiceConfig},
};
use buzz_actors::{connection, services::Services};
use buzz_protocol::{Refusal, url::Url};
use futures_util::{StreamExt, stream};
use ipnet::IpNet;
use secp256k1::rand::random;
use socket2::{SockRef, TcpKeepalive};

use super::{nip11::Document, rest::Rest};

/// A socket that takes nothing for this long is cut, and so is one whose peer is gone.
const STALLED: Duration = Duration::from_secs(30);
/// What a refused handshake is told to wait, in seconds.
const RETRY_SECS: u32 = 5;
/// What the kernel may hold for one client that does not read, so that thousands of them stay
/// affordable; large enough to fill a local link.
const SEND_BUFFER_BYTES: usize = 128 * 1024;

/// What the handlers share.
pub struct Public {
    services: Arc<Services>,
    information: String,
    rest: Rest,
    next_connection: AtomicU64,
    trusted_proxies: Vec<IpNet>,
    draining: Arc<AtomicBool>,
}

impl Public {
    /// For these actors.
    ///
    /// # Errors
    /// When the information document can't be written as JSON; it always can.
    pub fn new(
        services: Arc<Services>,
        trusted_proxies: Vec<IpNet>,
        draining: Arc<AtomicBool>,
    ) -> serde_json::Result<Self> {
        let information = serde_json::to_string(&Document::new(
            &services.shared.settings,
            services.admission.quotas(),
        ))?;
        Ok(Self {
            rest: Rest::new(Arc::clone(&services), Arc::clone(&draining))?,
            services,
            information,
            next_connection: AtomicU64::new(1),
            trusted_proxies,
            draining,
        })
    }
}

impl Public {
    /// The client's address; `None` where the socket is gone already.
    fn client(&self, request: &HttpRequest) -> Option<IpAddr> {
        let forwarded = request.headers().get_all("x-forwarded-for");
        let forwarded = forwarded.filter_map(|value| value.to_str().ok());
        let peer = request.peer_addr()?.ip();
        Some(client_address(peer, forwarded, &self.trusted_proxies))
    }
}

/// The routes.
pub fn routes(config: &mut ServiceConfig) {
    config.default_service(web::route().to(root));
}

async fn root(
    request: HttpRequest,
    payload: Payload,
    public: Data<Public>,
) -> Result<HttpResponse, Error> {
    let header = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    // A server may ignore an upgrade that it does not know (RFC 9110, section 7.8): Java's client and
    // `curl --http2` ask for h2c with every request.
    let to_websocket = header(UPGRADE).is_some_and(|to| lists(to, "websocket"));
    if !to_websocket && let Some(resource) = public.rest.resource(request.uri().path()) {
        let peer = public.client(&request);
        return Ok(public.rest.answer(&request, payload, resource, peer).await);
    }
    if header(TRANSFER_ENCODING).is_some() {
        return Ok(refuse_body(payload));
    }
    if request.method() == Method::OPTIONS {
        return Ok(cors(HttpResponse::NoContent()).finish());
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return Ok(HttpResponse::MethodNotAllowed()
            .insert_header((ALLOW, "GET, HEAD, OPTIONS"))
            .force_close()
            .body("this is a Nostr relay: use a WebSocket\n"));
    }
    if to_websocket {
        upgrade(&request, payload, &public).await
    } else if accepts_information(&request) {
        Ok(cors(HttpResponse::Ok())
            .content_type("application/nostr+json")
            .insert_header((VARY, "Accept"))
            .body(public.information.clone()))
    } else {
        let url = &public.services.shared.settings.relay_url;
        // A probe that asks the wrong port for /readyz must not hear that all is well.
        let here = Url::parse(url).map_or("", |url| url.rest);
        let path = request.uri().path();
        let mut answer = if path == "/" || path.trim_end_matches('/') == here.trim_end_matches('/')
        {
            HttpResponse::Ok()
        } else {
            HttpResponse::NotFound()
        };
        Ok(answer
            .content_type("text/plain; charset=utf-8")
            .insert_header((VARY, "Accept"))
            .body(format!(
                "This is a Nostr relay (buzz-relay). Point a Nostr client at {url}\n"
            )))
    }
}

/// Whether a comma-separated list has this element, in any case.
fn lists(list: &str, element: &str) -> bool {
    let mut elements = list.split(',').map(str::trim);
    elements.any(|one| one.eq_ignore_ascii_case(element))
}

/// Whether the relay's information (NIP-11) is asked for: by one of the media types in any of the
/// Accept lines (RFC 9110, section 12.5.1). `q=0` is a refusal.
fn accepts_information(request: &HttpRequest) -> bool {
    let lines = request.headers().get_all(ACCEPT);
    let lines = lines.filter_map(|line| line.to_str().ok());
    let mut ranges = lines.flat_map(|line| line.split(','));
    ranges.any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_ours = parts
            .next()
            .is_some_and(|media| media.eq_ignore_ascii_case("application/nostr+json"));
        let refused = parts.any(|parameter| {
            let value = parameter
                .strip_prefix("q=")
                .or(parameter.strip_prefix("Q="));
            value.is_some_and(|q| q.trim().parse() == Ok(0.0_f32))
        });
        is_ours && !refused
    })
}

/// Refuses a chunked body. It is held until the answer is out: the server would read on for the
/// end of one that was dropped, without a limit, and closes behind one that was not.
fn refuse_body(payload: Payload) -> HttpResponse {
    let text = Bytes::from_static(b"requests have no body here\n");
    let answer = stream::iter([Ok::<_, Error>(text)]).map(move |text| {
        let _held = &payload;
        text
    });
    HttpResponse::BadRequest().force_close().streaming(answer)
}

/// What NIP-11 asks for, so that pages from anywhere may read the document.
fn cors(mut response: HttpResponseBuilder) -> HttpResponseBuilder {
    response
        .insert_header((ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .insert_header((ACCESS_CONTROL_ALLOW_HEADERS, "*"))
        .insert_header((ACCESS_CONTROL_ALLOW_METHODS, "GET, OPTIONS"));
    response
}

async fn upgrade(
    request: &HttpRequest,
    payload: Payload,
    public: &Public,
) -> Result<HttpResponse, Error> {
    let key = request.headers().get(SEC_WEBSOCKET_KEY);
    if key.is_none_or(|key| key.len() != 24) {
        return Ok(HttpResponse::BadRequest()
            .force_close()
            .body("no WebSocket handshake\n"));
    }
    let refuse = |mut response: HttpResponseBuilder, secs: u32, why| {
        Ok(response
            .insert_header((RETRY_AFTER, secs))
            .force_close()
            .body(why))
    };
    let unavailable = |why| refuse(HttpResponse::ServiceUnavailable(), RETRY_SECS, why);
    if public.draining.load(Ordering::Acquire) {
        return unavailable("the relay restarts\n");
    }
    let Some(peer) = public.client(request) else {
        return Ok(HttpResponse::BadRequest().body("no peer address\n"));
    };
    let slot = match public.services.admission.open_socket(peer).await {
        Ok(slot) => slot,
        Err(retry_in_secs) => {
            let metrics = &public.services.shared.metrics;
            metrics
                .rejected_calls
                .count(&Refusal::Quota { retry_in_secs });
            let why = "too many connections or handshakes from this address\n";
            return refuse(HttpResponse::TooManyRequests(), retry_in_secs.get(), why);
        }
    };
    let Some(permit) = public.services.sockets.try_acquire() else {
        return unavailable("too many connections\n");
    };
    let opening = connection::Opening {
        number: public.next_connection.fetch_add(1, Ordering::Relaxed),
        peer,
        challenge: format!("{:032x}", random::<u128>()),
        permit,
        slot,
        services: Arc::clone(&public.services),
    };
    connection::start(request, payload, opening)
}

/// An address as proxies write it, some with the client's port.
fn forwarded_address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    text.parse().ok().or_else(with_port)
}

/// The client's address: the peer's, or where that is a trusted proxy, the last address of
/// `X-Forwarded-For` that is none. What stands before it may be made up by the client.
fn client_address<'a>(
    peer: IpAddr,
    forwarded: impl Iterator<Item = &'a str>,
    trusted: &[IpNet],
) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|range| range.contains(address));
    let lists: Vec<&str> = forwarded.collect();
    // An IPv6 listener sees IPv4 clients as `::ffff:…`, which no IPv4 range has in it.
    let mut client = peer.to_canonical();
    for address in lists.iter().rev().flat_map(|list| list.rsplit(',')) {
        if !is_trusted(&client) {
            break;
        }
        let Some(address) = forwarded_address(address.trim()) else {
            break;
        };
        client = address.to_canonical();
    }
    client
}

/// Sets a new socket's options: called for each before its first byte.
pub fn on_connect(socket: &dyn Any, _: &mut Extensions) {
    let Some(stream) = socket.downcast_ref::<TcpStream>() else {
        return;
    };
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(STALLED)
        .with_interval(STALLED / 3)
        .with_retries(3);
    // Nagle's algorithm would hold small answers back for 40 ms.
    let set = socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&keepalive))
        .and_then(|()| socket.set_tcp_user_timeout(Some(STALLED)))
        .and_then(|()| socket.set_send_buffer_size(SEND_BUFFER_BYTES));
    if let Err(error) = set {
        tracing::debug!(%error, "a socket option was not set");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_addresses_count_from_the_right_and_only_behind_trusted_proxies() {
        let nets = |texts: &[&str]| {
            texts
                .iter()
                .map(|net| net.parse().unwrap())
                .collect::<Vec<_>>()
        };
        let proxy = nets(&["127.0.0.1/32", "10.0.0.0/8"]);
        for (trusted, headers, expected) in [
            (&proxy[..0], &["1.2.3.4"][..], "127.0.0.1"),
            (&proxy, &["1.2.3.4, 5.6.7.8"], "5.6.7.8"),
            (&proxy, &["1.2.3.4, 5.6.7.8, 10.0.0.9"], "5.6.7.8"),
            (&proxy, &["1.2.3.4", "5.6.7.8, 10.0.0.9"], "5.6.7.8"),
            (&proxy, &["1.2.3.4, nonsense, 10.0.0.9"], "10.0.0.9"),
            (&proxy, &["5.6.7.8:1234, ::ffff:10.0.0.9"], "5.6.7.8"),
            (&proxy, &["[2001:db8::1]:1234"], "2001:db8::1"),
            (&proxy, &[], "127.0.0.1"),
        ] {
            // As an IPv6 listener sees an IPv4 peer, too.
            for peer in ["127.0.0.1", "::ffff:127.0.0.1"] {
                let peer = peer.parse().unwrap();
                let client = client_address(peer, headers.iter().copied(), trusted);
                assert_eq!(client.to_string(), expected, "{headers:?}");
            }
        }
    }
}
