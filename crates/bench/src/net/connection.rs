//! One socket: what came and is not a whole frame yet, what waits to be sent.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    time::Instant,
};

use anyhow::{Result, ensure};
use mio::net::TcpStream;

use super::frame::{self, MAX_MESSAGE_BYTES, Opcode};

/// Room for one read; a relay that floods 500 sockets is read in few calls.
const READ_BYTES: usize = 256 << 10;

/// What happened on a socket.
pub(crate) enum Incoming<'a> {
    /// One whole text message.
    Text(&'a [u8]),
    /// It ended, and why; nothing more comes from it.
    Closed(&'a str),
}

/// One WebSocket to the relay.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// The start of a frame whose rest has not come.
    partial: Vec<u8>,
    /// The frames of a message whose last has not come.
    fragments: Vec<u8>,
    /// Frames to send; those before `sent` are gone.
    out: Vec<u8>,
    sent: usize,
    /// Set once it ended; no more is read or sent.
    pub(super) closed: bool,
}

/// How reading ended.
enum End {
    Drained,
    Closed(String),
}

impl Connection {
    /// `head` is what came behind the handshake.
    pub(super) fn new(stream: TcpStream, head: Vec<u8>) -> Self {
        Self {
            stream,
            partial: head,
            fragments: Vec::new(),
            out: Vec::new(),
            sent: 0,
            closed: false,
        }
    }

    /// Reads all that is there. `scratch` is shared by all connections, so that an idle one costs
    /// little memory. `ended`: the relay has ended its side, which the readiness event says once
    /// only, so that reading must go on to the very end.
    pub(super) fn receive(
        &mut self,
        ended: bool,
        scratch: &mut Vec<u8>,
        handler: &mut impl FnMut(Incoming<'_>, Instant, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        while !self.closed {
            let held = self.partial.len();
            scratch.resize(scratch.len().max(held + READ_BYTES), 0);
            scratch[..held].copy_from_slice(&self.partial);
            let end = match self.stream.read(&mut scratch[held..]) {
                // What came with the handshake may be a whole frame that no read has looked at.
                Ok(0) => match self.frames(&scratch[..held], handler)? {
                    End::Drained => {
                        End::Closed("the relay ended the connection without a close frame".into())
                    }
                    closed => closed,
                },
                Ok(read) => {
                    let full = read == scratch.len() - held;
                    let end = self.frames(&scratch[..held + read], handler)?;
                    // A read that did not fill its buffer emptied the socket (epoll(7)).
                    if (full || ended) && matches!(end, End::Drained) {
                        continue;
                    }
                    end
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => End::Drained,
                    io::ErrorKind::Interrupted => continue,
                    _ => End::Closed(format!("the connection broke: {error}")),
                },
            };
            match end {
                End::Drained => break,
                End::Closed(why) => {
                    // A pong may wait.
                    self.flush();
                    self.closed = true;
                    // So that the relay need not wait for this side; it may be gone already.
                    let _ = self.stream.shutdown(Shutdown::Both);
                    handler(Incoming::Closed(&why), Instant::now(), &mut self.out)?;
                }
            }
        }
        Ok(())
    }

    fn frames(
        &mut self,
        buf: &[u8],
        handler: &mut impl FnMut(Incoming<'_>, Instant, &mut Vec<u8>) -> Result<()>,
    ) -> Result<End> {
        // Once a read: what came together was received together.
        let now = Instant::now();
        let mut at = 0;
        loop {
            let rest = &buf[at..];
            let header = match frame::read_header(rest) {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(error) => return Ok(End::Closed(error.to_string())),
            };
            let payload = &rest[header.start..header.end];
            match header.opcode {
                Opcode::Text if header.fin => {
                    handler(Incoming::Text(payload), now, &mut self.out)?;
                }
                Opcode::Text | Opcode::Continuation => {
                    if let Err(error) = self.add_fragment(payload) {
                        return Ok(End::Closed(error.to_string()));
                    }
                    if header.fin {
                        let message = std::mem::take(&mut self.fragments);
                        handler(Incoming::Text(&message), now, &mut self.out)?;
                    }
                }
                Opcode::Ping => frame::push_frame(&mut self.out, Opcode::Pong, &[payload]),
                Opcode::Close => return Ok(End::Closed(close_reason(payload))),
                Opcode::Binary | Opcode::Pong => {}
            }
            at += header.end;
        }
        self.partial.clear();
        self.partial.extend_from_slice(&buf[at..]);
        Ok(End::Drained)
    }

    fn add_fragment(&mut self, payload: &[u8]) -> Result<()> {
        ensure!(
            self.fragments.len() + payload.len() <= MAX_MESSAGE_BYTES,
            "the relay sent a message above {MAX_MESSAGE_BYTES} bytes"
        );
        self.fragments.extend_from_slice(payload);
        Ok(())
    }

    /// What waits to be sent, to be added to; [`Connection::flush`] sends it.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Sends as much as the socket takes. What is wrong with it is found by the next read.
    pub(super) fn flush(&mut self) {
        while self.sent < self.out.len() && !self.closed {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
        self.out.clear();
        self.sent = 0;
    }
}

fn close_reason(payload: &[u8]) -> String {
    match payload {
        [a, b, reason @ ..] => format!(
            "the relay closed the socket: {} {}",
            u16::from_be_bytes([*a, *b]),
            String::from_utf8_lossy(reason)
        )
        .trim_end()
        .to_owned(),
        _ => "the relay closed the socket".to_owned(),
    }
}
