//! What a frame of the relay leads to, and a login that was signed.

use buzz_protocol::{Event, EventId, refusal, relay_frame::RelayFrame};

use super::{
    Now, Output, Session, backoff::Backoff, login::Signed, requests::Verdict,
    subscriptions::Effects, writes::Written,
};

impl Session {
    pub(super) fn frame(&mut self, text: &str, now: Now) {
        // What is no relay frame says nothing this client could act on.
        let Ok(frame) = RelayFrame::parse(text) else {
            return;
        };
        let is_event = matches!(frame, RelayFrame::Event { .. });
        let refused_count = self.refused_count.take_if(|_| !is_event);
        match frame {
            RelayFrame::Event { sub, event } => {
                let effects = self.subscriptions.event(&sub, *event, now, &self.config);
                self.apply(effects);
            }
            RelayFrame::Eose { sub } => {
                let effects = self.subscriptions.eose(&sub, now, &self.config);
                self.apply(effects);
            }
            RelayFrame::Ok {
                id,
                accepted,
                message,
            } => self.ok(id, accepted, &message, now),
            RelayFrame::Closed { sub, message } => {
                if refusal::is_rate_limited(&message) {
                    self.arm(&message, now);
                }
                let (login, now) = (&self.login, now.at);
                let (config, rng) = (&self.config, &mut self.rng);
                let mut backoff = Backoff { now, config, rng };
                match self.requests.closed(&sub, &message, login, &mut backoff) {
                    Verdict::NotOurs => {
                        let subscriptions = &mut self.subscriptions;
                        let effects = subscriptions.closed(&sub, &message, login, &mut backoff);
                        self.apply(effects);
                    }
                    Verdict::RateLimited => self.refused_count = Some(message),
                    Verdict::Taken => {}
                }
            }
            RelayFrame::Notice { message } => {
                if refusal::is_rate_limited(&message) {
                    self.arm(&message, now);
                    // Which frame it belongs to is not said, unless it repeats a COUNT's CLOSED.
                    // Publishes wait for their own answer.
                    if refused_count.as_ref() != Some(&message) {
                        self.observer.put_back_all();
                    }
                }
            }
            RelayFrame::Auth { challenge } => {
                if let Some(challenge) = self.login.challenged(challenge, now.at, &self.config) {
                    self.sign(challenge);
                }
            }
            RelayFrame::Count { query, count } => self.requests.counted(&query, count),
        }
    }

    fn arm(&mut self, text: &str, now: Now) {
        self.refusals += 1;
        self.gate.arm(text, now.at, &self.config, &mut self.rng);
    }

    fn ok(&mut self, id: EventId, accepted: bool, message: &str, now: Now) {
        if self.login.answered(&id, accepted, message) {
            self.login_ended(now);
            if let Some(newer) = self.login.next_challenge()
                && let Some(challenge) = self.login.challenged(newer, now.at, &self.config)
            {
                self.sign(challenge);
            }
            return;
        }
        let again = !accepted && refusal::is_rate_limited(message);
        if again {
            self.arm(message, now);
        }
        if !self.observer.answered(&id, again) {
            let (config, rng, now) = (&self.config, &mut self.rng, now.at);
            let mut backoff = Backoff { now, config, rng };
            let login = &self.login;
            self.requests
                .ok(&id, accepted, message, login, &mut backoff);
        }
    }

    fn login_ended(&mut self, now: Now) {
        self.requests.login_ended(&self.login);
        let mut effects = Effects::default();
        self.subscriptions
            .login_ended(&self.login, now.at, &mut effects);
        self.apply(effects);
    }

    fn sign(&mut self, challenge: String) {
        let output = Output::Sign(self.link.socket(), challenge, self.url.clone());
        self.outputs.push_back(output);
    }

    pub(super) fn signed(&mut self, challenge: &str, event: Result<Box<Event>, String>, now: Now) {
        match event {
            Ok(event) => match self.login.signed(challenge, event.id, now.at, &self.config) {
                Signed::Send => {
                    let frame = format!("[\"AUTH\",{}]", event.to_json());
                    self.send(Written::Login, frame);
                }
                Signed::SignAgain(newer) => self.sign(newer),
                Signed::Stale => {}
            },
            Err(why) => {
                if self.login.sign_failed(challenge, why) {
                    self.login_ended(now);
                }
            }
        }
    }
}
