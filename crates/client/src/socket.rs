//! One WebSocket in a task of its own: dials, then reads and writes side by side, so that neither
//! waits for the other. Pings are answered by the library while it reads.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{Sink, SinkExt, Stream, StreamExt, future::BoxFuture};
use rustls::pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
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

/// How long a close may take before the socket is dropped as it is.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Dials `url` and runs the socket until either side ends it, or until `stop`'s sender is gone.
pub(crate) async fn run(
    id: SocketId,
    url: String,
    dialer: Dialer,
    mut writes: UnboundedReceiver<(Ticket, Message)>,
    stop: oneshot::Receiver<()>,
    driver: Sender<Input>,
) {
    let work = async {
        let bytes_written = Arc::new(AtomicU64::new(0));
        let socket = match dial(&url, &dialer, bytes_written.clone()).await {
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
            () = write(id, sink, &mut writes, &bytes_written, &driver) => {}
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
    bytes_written: Arc<AtomicU64>,
) -> Result<
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<Box<dyn Io>>>,
    tungstenite::Error,
> {
    let request = url.into_client_request()?;
    let secure = request.uri().scheme_str() == Some("wss");
    let (stream, _) = open(request.uri(), &dialer.transport).await?;
    let stream: Box<dyn Io> = Box::new(Counted {
        stream,
        bytes_written,
    });
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

/// How often a write that takes long is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Ends when the driver closes the socket, or when a write fails.
async fn write(
    id: SocketId,
    mut sink: impl Sink<Message, Error = tungstenite::Error> + Unpin,
    writes: &mut UnboundedReceiver<(Ticket, Message)>,
    bytes_written: &AtomicU64,
    driver: &Sender<Input>,
) {
    while let Some((ticket, message)) = writes.recv().await {
        let mut writing = sink.send(message);
        let mut before = bytes_written.load(Relaxed);
        let result = loop {
            tokio::select! {
                result = &mut writing => break result,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let so_far = bytes_written.load(Relaxed);
            if so_far != before {
                before = so_far;
                let _ = driver.send(Input::WriteProgress(id)).await;
            }
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

/// A byte stream that counts what it takes. It lies below TLS, so that it counts what leaves.
struct Counted {
    stream: Box<dyn Io>,
    /// Read by the socket's writer.
    bytes_written: Arc<AtomicU64>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(n)) = written {
            self.bytes_written.fetch_add(n as u64, Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
