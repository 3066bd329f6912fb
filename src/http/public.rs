//! The public port: WebSocket upgrades, NIP-11, and a page for people.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actix_web::{
    Error, HttpRequest, HttpResponse,
    dev::Extensions,
    http::header::{ACCEPT, ACCESS_CONTROL_ALLOW_ORIGIN, RETRY_AFTER, UPGRADE},
    rt::net::TcpStream,
    web::{self, Data, Payload, ServiceConfig},
};
use buzz_actors::{connection, rooms::Rooms};
use secp256k1::rand::random;
use socket2::{SockRef, TcpKeepalive};

use super::nip11::Document;

/// A socket that takes nothing for this long is cut, and so is one whose peer is gone.
const STALLED: Duration = Duration::from_secs(30);
/// What the kernel may hold for one client that does not read, so that thousands of them stay
/// affordable; large enough to fill a local link.
const SEND_BUFFER_BYTES: usize = 128 * 1024;

/// What the handlers share.
pub struct Public {
    rooms: Arc<Rooms>,
    information: String,
    next_connection: AtomicU64,
}

impl Public {
    /// For these rooms.
    ///
    /// # Errors
    /// When the information document can't be written as JSON; it always can.
    pub fn new(rooms: Arc<Rooms>) -> serde_json::Result<Self> {
        let information = serde_json::to_string(&Document::new(&rooms.settings))?;
        Ok(Self {
            rooms,
            information,
            next_connection: AtomicU64::new(1),
        })
    }
}

/// The routes.
pub fn routes(config: &mut ServiceConfig) {
    config.default_service(web::get().to(root));
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
    if header(UPGRADE).is_some() {
        upgrade(&request, payload, &public)
    } else if header(ACCEPT).is_some_and(|accept| accept.contains("application/nostr+json")) {
        Ok(HttpResponse::Ok()
            .content_type("application/nostr+json")
            .insert_header((ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
            .insert_header(("Access-Control-Allow-Headers", "*"))
            .insert_header(("Access-Control-Allow-Methods", "GET, OPTIONS"))
            .body(public.information.clone()))
    } else {
        let url = &public.rooms.settings.relay_url;
        Ok(HttpResponse::Ok()
            .content_type("text/plain; charset=utf-8")
            .body(format!(
                "This is a Nostr relay (buzz-relay). Point a Nostr client at {url}\n"
            )))
    }
}

fn upgrade(
    request: &HttpRequest,
    payload: Payload,
    public: &Public,
) -> Result<HttpResponse, Error> {
    let Some(slot) = public.rooms.sockets.try_enter() else {
        return Ok(HttpResponse::ServiceUnavailable()
            .insert_header((RETRY_AFTER, "5"))
            .body("too many connections\n"));
    };
    let Some(peer) = request.peer_addr() else {
        return Ok(HttpResponse::BadRequest().body("no peer address\n"));
    };
    let opening = connection::Opening {
        number: public.next_connection.fetch_add(1, Ordering::Relaxed),
        peer: peer.ip(),
        challenge: format!("{:032x}", random::<u128>()),
        slot,
        rooms: Arc::clone(&public.rooms),
    };
    connection::start(request, payload, opening)
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
