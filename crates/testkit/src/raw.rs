//! A websocket written by hand, for frames that no library would send.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{Relay, http::UPGRADE, soon};

/// The opcode of a further fragment.
pub const CONTINUATION: u8 = 0;
/// The opcode of a text frame.
pub const TEXT: u8 = 1;
/// The opcode of a close frame.
pub const CLOSE: u8 = 8;
/// The opcode of a ping.
pub const PING: u8 = 9;
/// The opcode of a pong.
pub const PONG: u8 = 10;

/// A connection that has become a websocket.
pub struct RawSocket(pub TcpStream);

impl RawSocket {
    /// Opens a socket to `relay`.
    pub async fn connect(relay: &Relay) -> Self {
        Self::connect_with(relay, "").await
    }

    /// Sends further header lines with the handshake.
    pub async fn connect_with(relay: &Relay, headers: &str) -> Self {
        let mut stream = TcpStream::connect(relay.addr).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket option");
        let request = format!(
            "GET / HTTP/1.1\r\nHost: relay.test\r\nConnection: Upgrade\r\n{UPGRADE}{headers}\r\n"
        );
        stream
            .write_all(request.as_bytes())
            .await
            .expect("a request");
        let mut head = Vec::new();
        soon("a websocket", async {
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("an answer"));
            }
        })
        .await;
        assert!(head.starts_with(b"HTTP/1.1 101"));
        Self(stream)
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) {
        soon("bytes to be taken", self.0.write_all(bytes))
            .await
            .expect("an open socket");
    }

    /// The next frame's opcode and payload; `None` where the connection ended.
    pub async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        soon("a frame", async {
            let first = self.0.read_u8().await.ok()?;
            let length = match self.0.read_u8().await.ok()? {
                126 => u64::from(self.0.read_u16().await.ok()?),
                127 => self.0.read_u64().await.ok()?,
                short => u64::from(short),
            };
            let mut payload = vec![0; usize::try_from(length).expect("a length")];
            self.0.read_exact(&mut payload).await.ok()?;
            Some((first & 0x0f, payload))
        })
        .await
    }

    /// The next text frame that is no login challenge.
    pub async fn text(&mut self) -> String {
        loop {
            match self.frame().await {
                Some((TEXT, text)) if !text.starts_with(b"[\"AUTH\"") => {
                    return String::from_utf8(text).expect("UTF-8");
                }
                Some((TEXT | PING | PONG, _)) => {}
                other => panic!("{other:?} instead of text"),
            }
        }
    }

    /// The code of the close frame that comes after what is left to read; `None` for a bare end.
    pub async fn close_code(&mut self) -> Option<u16> {
        loop {
            match self.frame().await {
                Some((CLOSE, payload)) => {
                    return payload
                        .get(..2)
                        .map(|code| u16::from_be_bytes([code[0], code[1]]));
                }
                Some(_) => {}
                None => return None,
            }
        }
    }

    /// Waits until the relay has ended the connection.
    pub async fn ended(&mut self) {
        while self.frame().await.is_some() {}
    }
}

/// One frame as a client sends it: masked, with a mask of zeros that leaves the payload as it is.
pub fn frame(is_final: bool, opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![opcode | if is_final { 0x80 } else { 0 }];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short), _) if short < 126 => bytes.push(0x80 | short),
        (_, Ok(medium)) => {
            bytes.push(0x80 | 126);
            bytes.extend(medium.to_be_bytes());
        }
        _ => {
            bytes.push(0x80 | 127);
            bytes.extend((payload.len() as u64).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}
