//! WebSocket framing (RFC 6455) for one socket: bytes to messages and messages to bytes.
//!
//! Bound: a message larger than the limit is refused by its header, before its bytes are
//! buffered; the parts of a fragmented message are summed.

use actix_http::ws::{OpCode, Parser, ProtocolError};
use bytes::{BufMut, Bytes, BytesMut};

/// Why a socket closes (RFC 6455, section 7.4.1), as far as the relay says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum CloseCode {
    /// All is done.
    Normal = 1000,
    /// The client broke the protocol.
    Protocol = 1002,
    /// The client did what the relay does not allow.
    Policy = 1008,
    /// A message is larger than the limit.
    TooLarge = 1009,
    /// The relay restarts.
    Restart = 1012,
}

/// A message from the client.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A whole text message, not yet known to be UTF-8.
    Text(Bytes),
    /// A whole binary message, which Nostr has no use for.
    Binary,
    /// To be answered with the same bytes.
    Ping(Bytes),
    /// The answer to a ping.
    Pong,
    /// The client closes.
    Close,
}

/// Why a socket can't go on.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// A message is larger than the limit.
    #[error("the message is too large: {bytes} of at most {limit} bytes")]
    TooLarge {
        /// As far as it announced itself.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes are no frames, or frames out of order.
    #[error("{0}")]
    Protocol(String),
}

/// The receiving side.
pub struct Decoder {
    buffer: BytesMut,
    /// A fragmented message: its first frame's opcode and what came so far.
    partial: Option<(OpCode, BytesMut)>,
    max_bytes: usize,
}

impl Decoder {
    /// Accepts messages of up to `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            partial: None,
            max_bytes,
        }
    }

    /// Takes bytes from the socket.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that are here and not yet taken as messages.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Whether fragments of a message are here and its last one is not.
    pub fn has_fragments(&self) -> bool {
        self.partial.is_some()
    }

    /// Whether part of a message is here and the rest is not.
    pub fn is_unfinished(&self) -> bool {
        self.partial.is_some() || !self.buffer.is_empty()
    }

    /// The next whole message.
    ///
    /// # Errors
    /// When the socket can't go on.
    pub fn next_message(&mut self) -> Result<Option<Incoming>, Broken> {
        while let Some((finished, opcode, payload)) = self.next_frame()? {
            let payload = payload.unwrap_or_default();
            let (opcode, payload) = match (opcode, self.partial.take()) {
                (OpCode::Text | OpCode::Binary, None) => (opcode, payload),
                (OpCode::Continue, Some((first, mut message))) => {
                    message.extend_from_slice(&payload);
                    (first, message)
                }
                (OpCode::Text | OpCode::Binary, Some(_)) => {
                    return Err(Broken::Protocol("a message starts inside another".into()));
                }
                (OpCode::Continue, None) => {
                    return Err(Broken::Protocol("a continuation continues nothing".into()));
                }
                (control, partial) => {
                    self.partial = partial;
                    return Ok(Some(match control {
                        OpCode::Ping => Incoming::Ping(payload.freeze()),
                        OpCode::Close => Incoming::Close,
                        _ => Incoming::Pong,
                    }));
                }
            };
            if !finished {
                self.partial = Some((opcode, payload));
            } else if matches!(opcode, OpCode::Text) {
                return Ok(Some(Incoming::Text(payload.freeze())));
            } else {
                return Ok(Some(Incoming::Binary));
            }
        }
        if self.buffer.is_empty() {
            // An idle socket keeps no buffer.
            self.buffer = BytesMut::new();
        }
        Ok(None)
    }

    #[allow(clippy::type_complexity)] // the library's own return type
    fn next_frame(&mut self) -> Result<Option<(bool, OpCode, Option<BytesMut>)>, Broken> {
        if let Some(announced) = announced_bytes(&self.buffer) {
            let before = self
                .partial
                .as_ref()
                .map_or(0, |(_, message)| message.len());
            let bytes = before.saturating_add(announced);
            if bytes > self.max_bytes {
                return Err(Broken::TooLarge {
                    bytes,
                    limit: self.max_bytes,
                });
            }
        }
        let frame = Parser::parse(&mut self.buffer, true, self.max_bytes).map_err(broken)?;
        match frame {
            Some((false, OpCode::Ping | OpCode::Pong | OpCode::Close, _)) => {
                Err(Broken::Protocol("a control frame is fragmented".into()))
            }
            frame => Ok(frame),
        }
    }
}

fn broken(error: ProtocolError) -> Broken {
    Broken::Protocol(error.to_string())
}

/// The payload length that a frame's header announces, once it is here.
fn announced_bytes(buffer: &[u8]) -> Option<usize> {
    match (buffer.get(1)? & 0x7f, buffer) {
        (126, [_, _, a, b, ..]) => Some(u16::from_be_bytes([*a, *b]).into()),
        (127, [_, _, length @ ..]) => {
            let length = u64::from_be_bytes(length.get(..8)?.try_into().ok()?);
            Some(usize::try_from(length).unwrap_or(usize::MAX))
        }
        (126, _) => None,
        (length, _) => Some(length.into()),
    }
}

/// Appends a text message made of `parts`.
pub fn push_text(out: &mut BytesMut, parts: &[&[u8]]) {
    let length = parts.iter().map(|part| part.len()).sum();
    out.reserve(length + 10);
    push_header(out, 0x1, length);
    parts.iter().for_each(|part| out.put_slice(part));
}

/// Appends a ping without a payload.
pub fn push_ping(out: &mut BytesMut) {
    push_header(out, 0x9, 0);
}

/// Appends the answer to a ping.
pub fn push_pong(out: &mut BytesMut, payload: &[u8]) {
    push_header(out, 0xA, payload.len());
    out.put_slice(payload);
}

/// Appends a close frame.
pub fn push_close(out: &mut BytesMut, code: CloseCode, reason: &str) {
    push_header(out, 0x8, 2 + reason.len());
    out.put_u16(code as u16);
    out.put_slice(reason.as_bytes());
}

/// A server's frames are whole and not masked (RFC 6455, sections 5.1 and 5.2).
fn push_header(out: &mut BytesMut, opcode: u8, length: usize) {
    out.put_u8(0x80 | opcode);
    match length {
        0..=125 => out.put_u8(length as u8),
        126..=0xFFFF => {
            out.put_u8(126);
            out.put_u16(length as u16);
        }
        _ => {
            out.put_u8(127);
            out.put_u64(length as u64);
        }
    }
}

#[cfg(test)]
mod tests;
