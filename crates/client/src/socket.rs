//! One WebSocket in a task of its own: dials, then reads and writes side by side, so that neither
//! waits for the other. Pings are answered by the library while it reads.

use std::{io, pin::Pin, sync::Arc, time::Duration};

use futures_util::{Sink, SinkExt, Stream, StreamExt, future::BoxFuture};
use rustls::pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{
        mpsc::{Sender, UnboundedReceiver},
        oneshot,
    },
};
use tokio_tungstenite::{
    Connector, client_async_tls_with_config,
    tungstenite::{self, Message, client::IntoClientRequest, http::Uri},
};

use crate::session::{Input, SocketId, Ticket};

/// A byte stream to a host.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Opens byte streams; tests have their own.
pub(crate) type Transport =
    Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Box<dyn Io>>> + Send + Sync>;

/// How sockets are opened.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) transport: Transport,
    pub(crate) tls: Arc<rustls::ClientConfig>,
}

pub(crate) fn tcp() -> Transport {
    Arc::new(|host, port| {
        Box::pin(async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    })
}

/// What the driver has a socket do.
#[derive(Debug)]
pub(crate) enum Write {
    Text(Ticket, String),
    Ping,
}

/// How long a close may take before the socket is dropped as it is.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Dials `url` and runs the socket until either side ends it, or until `stop`'s sender is gone.
pub(crate) async fn run(
    id: SocketId,
    url: String,
    dialer: Dialer,
    mut writes: UnboundedReceiver<Write>,
    stop: oneshot::Receiver<()>,
    driver: Sender<Input>,
) {
    let work = async {
        let socket = match dial(&url, &dialer).await {
            Ok(socket) => socket,
            Err(error) => {
                tracing::info!(%url, %error, "dial failed");
                return;
            }
        };
        // The receiver is gone only when the driver has ended, and then no result is needed.
        let _ = driver.send(Input::Opened(id)).await;
        let (sink, stream) = socket.split();
        tokio::select! {
            error = read(id, stream, &driver) => tracing::info!(%url, %error, "socket lost"),
            () = write(sink, &mut writes, &driver) => {}
        }
    };
    let stopped = async {
        let _ = stop.await;
        tokio::time::sleep(CLOSE_WAIT).await;
    };
    tokio::select! {
        () = work => {}
        () = stopped => {}
    }
    let _ = driver.send(Input::Lost(id)).await;
}

async fn dial(
    url: &str,
    dialer: &Dialer,
) -> Result<
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<Box<dyn Io>>>,
    tungstenite::Error,
> {
    let request = url.into_client_request()?;
    let secure = request.uri().scheme_str() == Some("wss");
    let (stream, _) = open(request.uri(), &dialer.transport).await?;
    let connector = secure.then(|| Connector::Rustls(dialer.tls.clone()));
    let (socket, _) = client_async_tls_with_config(request, stream, None, connector).await?;
    Ok(socket)
}

/// A byte stream to the host that `uri` names, and the host's name.
pub(crate) async fn open(uri: &Uri, transport: &Transport) -> io::Result<(Box<dyn Io>, String)> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let secure = uri.scheme_str() == Some("wss");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = transport(host.to_owned(), port).await?;
    Ok((stream, host.to_owned()))
}

/// TLS by rustls and ring, whatever other providers the program links, trusting Mozilla's roots and
/// `own` ones.
///
/// # Errors
/// Where one of `own` is no certificate.
pub(crate) fn tls_config(
    own: Vec<CertificateDer<'static>>,
) -> Result<Arc<rustls::ClientConfig>, rustls::Error> {
    let mut roots = rustls::RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    for certificate in own {
        roots.add(certificate)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

async fn read(
    id: SocketId,
    mut stream: impl Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
    driver: &Sender<Input>,
) -> tungstenite::Error {
    loop {
        let input = match stream.next().await {
            Some(Ok(Message::Text(text))) => Input::Frame(id, text.as_str().to_owned()),
            Some(Ok(Message::Close(_))) | None => return tungstenite::Error::ConnectionClosed,
            // Nostr has no binary frames; like pings and pongs they show that the relay lives.
            Some(Ok(_)) => Input::Alive(id),
            Some(Err(error)) => return error,
        };
        if driver.send(input).await.is_err() {
            return tungstenite::Error::ConnectionClosed;
        }
    }
}

/// Ends when the driver closes the socket, or when a write fails.
async fn write(
    mut sink: impl Sink<Message, Error = tungstenite::Error> + Unpin,
    writes: &mut UnboundedReceiver<Write>,
    driver: &Sender<Input>,
) {
    while let Some(write) = writes.recv().await {
        let (message, ticket) = match write {
            Write::Text(ticket, text) => (Message::text(text), Some(ticket)),
            Write::Ping => (Message::Ping(Vec::new().into()), None),
        };
        let result = sink.send(message).await;
        let Some(ticket) = ticket else {
            if result.is_err() {
                return;
            }
            continue;
        };
        let ok = result.is_ok();
        let report = if ok {
            Input::Written(ticket)
        } else {
            Input::WriteFailed(ticket)
        };
        let _ = driver.send(report).await;
        if !ok {
            return;
        }
    }
    let _ = Pin::new(&mut sink).close().await;
}
