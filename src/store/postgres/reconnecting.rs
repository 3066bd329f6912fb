//! A session that is dropped when it fails and opened again on its next use. A statement that was
//! stopped at its time limit keeps its session.

use std::time::Duration;

use buzz_actors::ports::StoreError;

use super::{error::Error, link::Link, server::Server};
use crate::store::fault::Fault;

pub(super) struct Reconnecting {
    server: Server,
    timeout: Duration,
    /// Statements for the session's start.
    settings: &'static str,
    link: Option<Link>,
}

impl Reconnecting {
    /// The session opens with the first call.
    pub(super) fn new(server: Server, timeout: Duration, settings: &'static str) -> Self {
        Self {
            server,
            timeout,
            settings,
            link: None,
        }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// The session, and whether it has been in use before: it may have ended since.
    pub(super) fn take(&mut self) -> Result<(Link, bool), StoreError> {
        match self.link.take() {
            Some(link) => Ok((link, true)),
            None => Link::open(&self.server, self.timeout, self.settings).map(|link| (link, false)),
        }
    }

    pub(super) fn put_back(&mut self, link: Link) {
        self.link = Some(link);
    }

    /// Runs `work`, which may be run again on a new session where an old one has ended before.
    pub(super) fn with<T>(
        &mut self,
        mut work: impl FnMut(&mut Link) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        loop {
            let (mut link, used_before) = self.take()?;
            match work(&mut link) {
                Ok(done) => {
                    self.put_back(link);
                    return Ok(done);
                }
                Err(error) => {
                    let in_doubt = link.in_doubt;
                    // A statement that was stopped leaves a good session behind. Any other
                    // error's session is given up; its end also rolls back what it left open.
                    if error.fault() == Fault::TimedOut && link.roll_back().is_ok() {
                        self.put_back(link);
                    } else if used_before && error.fault().is_retried() && !in_doubt {
                        continue;
                    }
                    return Err(error.into_store_error(self.server.shown()));
                }
            }
        }
    }
}
