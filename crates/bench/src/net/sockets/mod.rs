//! All sockets of a run and the one loop that moves them.

use std::{
    io,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use mio::{Events, Interest, Poll, Token};

use super::{
    Target,
    connection::{Connection, Incoming},
};

/// A set of open WebSockets, numbered from zero.
pub(crate) struct Sockets {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    scratch: Vec<u8>,
}

impl Sockets {
    /// An empty set.
    ///
    /// # Errors
    /// When the system gives no epoll instance.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(1024),
            connections: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// `count` open sockets.
    ///
    /// # Errors
    /// The first that can't be opened.
    pub(crate) fn connect(target: &Target, count: usize) -> Result<Self> {
        let mut sockets = Self::new()?;
        for at in 0..count {
            sockets
                .add(target)
                .with_context(|| format!("socket {} of {count}", at + 1))?;
        }
        Ok(sockets)
    }

    /// Opens one more; gives its number.
    ///
    /// # Errors
    /// When the relay does not take it.
    pub(crate) fn add(&mut self, target: &Target) -> Result<usize> {
        let (mut stream, head) = target.connect()?;
        let at = self.connections.len();
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut stream, Token(at), interest)?;
        self.connections.push(Connection::new(stream, head));
        Ok(at)
    }

    /// How many were opened.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// How many have ended.
    pub(crate) fn closed(&self) -> usize {
        self.connections.iter().filter(|c| c.closed).count()
    }

    /// Lets `write` append frames for socket `at`, then sends them.
    pub(crate) fn send(&mut self, at: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let connection = &mut self.connections[at];
        write(connection.out());
        connection.flush();
    }

    /// Waits until something happens, at most `timeout`, and hands each message to `handler` with
    /// the socket's number, the time it was read and the buffer of what that socket sends next.
    ///
    /// # Errors
    /// Those of `handler` and of the system; an ended socket is none.
    pub(crate) fn turn(
        &mut self,
        timeout: Duration,
        mut handler: impl FnMut(usize, Incoming<'_>, Instant, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        for event in &self.events {
            let at = event.token().0;
            let connection = &mut self.connections[at];
            let ended = event.is_read_closed() || event.is_error();
            if event.is_readable() || ended {
                connection.receive(ended, &mut self.scratch, &mut |incoming, now, out| {
                    handler(at, incoming, now, out)
                })?;
            }
            connection.flush();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
