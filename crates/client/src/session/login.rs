//! Logging in (NIP-42): one challenge is kept, the newest, and one signature is made at a time,
//! however many challenges come. An answer belongs to the socket its challenge came on.

use std::time::Duration;

use buzz_protocol::{EventId, refusal};

use super::Config;
use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Idle,
    /// The signer works on this challenge.
    Signing(String),
    /// The relay was sent this login, and should have answered by then.
    Sent(EventId, Duration),
    Done,
    Failed(Error),
}

/// The login of the current socket.
#[derive(Debug)]
pub(crate) struct Login {
    has_signer: bool,
    state: State,
    /// The newest challenge that no login was made for.
    challenge: Option<String>,
    /// Frames wait for the login until then.
    hold_until: Duration,
    /// This relay has sent a challenge on an earlier socket.
    expected: bool,
}

/// What a signature that came back is good for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Signed {
    Send,
    /// A newer challenge came meanwhile: sign that.
    SignAgain(String),
    /// It belongs to nothing that is still asked.
    Stale,
}

impl Login {
    pub(crate) fn new(has_signer: bool) -> Self {
        Self {
            has_signer,
            state: State::Idle,
            challenge: None,
            hold_until: Duration::ZERO,
            expected: false,
        }
    }

    pub(crate) fn has_signer(&self) -> bool {
        self.has_signer
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// A new socket: nothing of the old one counts. Where this relay has asked for a login before,
    /// frames wait a second for its challenge instead of being refused first.
    pub(crate) fn opened(&mut self, now: Duration) {
        self.lost();
        if self.expected && self.has_signer {
            self.hold_until = now + Duration::from_secs(1);
        }
    }

    pub(crate) fn lost(&mut self) {
        self.state = State::Idle;
        self.challenge = None;
        self.hold_until = Duration::ZERO;
    }

    /// Another relay.
    pub(crate) fn forget(&mut self) {
        self.lost();
        self.expected = false;
    }

    /// Takes a challenge; gives it back where it is to be signed now.
    pub(crate) fn challenged(
        &mut self,
        challenge: String,
        now: Duration,
        config: &Config,
    ) -> Option<String> {
        self.expected = true;
        if !self.has_signer {
            return None;
        }
        if matches!(self.state, State::Signing(_) | State::Sent(..)) {
            self.challenge = Some(challenge);
            return None;
        }
        if self.state != State::Done {
            self.hold_until = now + config.login_hold;
        }
        self.state = State::Signing(challenge.clone());
        Some(challenge)
    }

    /// A login for `challenge` was signed.
    pub(crate) fn signed(
        &mut self,
        challenge: &str,
        id: EventId,
        now: Duration,
        config: &Config,
    ) -> Signed {
        if self.state != State::Signing(challenge.to_owned()) {
            return Signed::Stale;
        }
        match self.challenge.take() {
            Some(newer) if newer != challenge => {
                self.state = State::Signing(newer.clone());
                Signed::SignAgain(newer)
            }
            _ => {
                self.state = State::Sent(id, now + config.request_timeout);
                Signed::Send
            }
        }
    }

    /// The signer refused `challenge`. True where that ends the login.
    pub(crate) fn sign_failed(&mut self, challenge: &str, why: String) -> bool {
        let ours = self.state == State::Signing(challenge.to_owned());
        if ours {
            self.fail(Error::Signer(why));
        }
        ours
    }

    fn fail(&mut self, error: Error) {
        self.state = State::Failed(error);
        self.hold_until = Duration::ZERO;
    }

    /// The relay's words where it could not take the login now (`error:`, such as a database that
    /// is away, or `rate-limited:`). Another socket's challenge is another chance.
    pub(crate) fn passing_failure(&self) -> Option<&str> {
        let State::Failed(Error::Refused { reason }) = &self.state else {
            return None;
        };
        let passing = matches!(refusal::prefix(reason), Some("error" | "rate-limited"));
        passing.then_some(reason)
    }

    /// Why no login on any socket would succeed.
    pub(crate) fn verdict(&self) -> Option<&Error> {
        match &self.state {
            State::Failed(error) if self.passing_failure().is_none() => Some(error),
            _ => None,
        }
    }

    /// An OK came; true where it answers the login. A challenge that came meanwhile is left in
    /// [`Login::next_challenge`].
    pub(crate) fn answered(&mut self, id: &EventId, accepted: bool, message: &str) -> bool {
        if !matches!(&self.state, State::Sent(sent, _) if sent == id) {
            return false;
        }
        if accepted {
            self.state = State::Done;
            self.hold_until = Duration::ZERO;
        } else {
            self.fail(Error::Refused {
                reason: message.to_owned(),
            });
        }
        true
    }

    /// The challenge that came while an earlier one was being answered.
    pub(crate) fn next_challenge(&mut self) -> Option<String> {
        self.challenge.take()
    }

    /// When an answer of the relay is overdue.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        match self.state {
            State::Sent(_, due) => Some(due),
            _ => None,
        }
    }

    /// The relay has not answered the login in time.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        self.wake_at().is_some_and(|due| due <= now)
    }

    /// Until when frames wait for the login, where they do.
    pub(crate) fn holds_until(&self, now: Duration) -> Option<Duration> {
        (self.hold_until > now).then_some(self.hold_until)
    }
}
