//! One client's socket, for modes in which clients wait, give up and come again: they need timers
//! more than speed, so that these sockets are tokio's.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, error::ProtocolError},
};

use super::Target;

/// How long the relay may take to accept and to answer the upgrade.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One open WebSocket.
pub(crate) struct Socket(WebSocketStream<TcpStream>);

/// What came, or how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Text(String),
    /// It ended without a word: no code, no reason.
    BareClose,
    /// It ended otherwise, and how.
    Cut(String),
}

impl Socket {
    /// Opens one.
    ///
    /// # Errors
    /// Says at which step the relay refused or stayed silent.
    pub(crate) async fn open(target: &Target) -> Result<Self> {
        let opening = async {
            let stream = TcpStream::connect(target.address)
                .await
                .context("can't connect")?;
            stream.set_nodelay(true)?;
            match client_async(target.url.as_str(), stream).await {
                Ok((socket, _)) => Ok(Self(socket)),
                Err(Error::Http(response)) => bail!("the relay answered: {}", response.status()),
                Err(error) => bail!("no WebSocket: {error}"),
            }
        };
        match timeout(TIMEOUT, opening).await {
            Ok(result) => result,
            Err(_) => bail!("no answer within {} s", TIMEOUT.as_secs()),
        }
    }

    /// Sends one text message. What is wrong with the socket is found by the next
    /// [`Socket::receive`].
    pub(crate) async fn send(&mut self, text: String) {
        let _ = self.0.send(Message::text(text)).await;
    }

    /// Hands several messages to the socket before any answer is read.
    pub(crate) async fn send_all(&mut self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            if self.0.feed(Message::text(text)).await.is_err() {
                break;
            }
        }
        let _ = self.0.flush().await;
    }

    /// The next text message, or the end. Pings are answered meanwhile.
    pub(crate) async fn receive(&mut self) -> Received {
        loop {
            return match self.0.next().await {
                Some(Ok(Message::Text(text))) => Received::Text(text.as_str().to_owned()),
                Some(Ok(Message::Close(Some(frame)))) => {
                    let reason = format!("closed: {} {}", u16::from(frame.code), frame.reason);
                    Received::Cut(reason.trim_end().to_owned())
                }
                Some(Ok(Message::Close(None)))
                | Some(Err(
                    Error::ConnectionClosed
                    | Error::AlreadyClosed
                    | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake),
                ))
                | None => Received::BareClose,
                Some(Ok(_)) => continue,
                Some(Err(error)) => Received::Cut(format!("the connection broke: {error}")),
            };
        }
    }
}
