//! One AUTH (NIP-42): form and challenge here, the signature at the verifier, the key's role from
//! the database behind the auth gate, then the answer. Later frames of the socket wait for it.

use std::sync::Arc;

use actix::{AsyncContext, Handler, Message};
use actix_http::ws::CloseCode;
use buzz_protocol::{Event, EventId, Pubkey, Refusal, auth};

use super::{Connection, Context};
use crate::{db_reader::request::RoleRequest, ports::Role, rules, verifier::VerifyLogin};

/// A login's signature was checked.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LoginVerified {
    /// The login's event.
    pub id: EventId,
    /// Whose it is.
    pub verdict: Result<Pubkey, Refusal>,
}

/// The role of the key that logs in was looked up.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RoleFound {
    /// The login's event; `None`: a login of before was looked at again.
    pub id: Option<EventId>,
    /// Whose role.
    pub key: Pubkey,
    /// `None`: no member.
    pub role: Result<Option<Role>, Refusal>,
}

/// The login waited too long at the auth gate.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LoginShed;

/// Keys that may log in on one socket.
const MAX_KEYS: usize = 64;
/// Logins of one socket that are checked: they are billed to nobody, and each costs a signature and
/// a look into the database.
const MAX_LOGINS: u32 = 256;

impl Connection {
    pub(super) fn receive_login(&mut self, event: Box<Event>, ctx: &mut Context) {
        if let Err(refusal) = self.check_suspicion() {
            self.rooms.metrics.rejected_frames.count(&refusal);
            return self.cut_login("invalid_signatures");
        }
        self.login.attempts += 1;
        if self.login.attempts > MAX_LOGINS {
            let why = format!("at most {MAX_LOGINS} logins on one connection");
            return self.refuse_login(&event.id, &Refusal::Restricted(why));
        }
        let relay_url = &self.rooms.settings.relay_url;
        let now = (self.rooms.clock)();
        match auth::check_login(&event, &self.login.challenge, relay_url, now) {
            Ok(()) => {
                self.login.pending = true;
                self.rooms.verifier.do_send(VerifyLogin {
                    event,
                    from: ctx.address().into(),
                });
            }
            Err(refusal) => self.refuse_login(&event.id, &refusal),
        }
    }

    fn refuse_login(&mut self, id: &EventId, refusal: &Refusal) {
        self.login.pending = false;
        let auth = &self.rooms.metrics.auth;
        match refusal.prefix() {
            "restricted" => auth.restricted.increment(1),
            "error" => auth.error.increment(1),
            _ => auth.invalid.increment(1),
        }
        self.log_login("denied", refusal.prefix());
        self.send_ok(id, false, &refusal.to_string());
    }

    /// A bare close: no OK, no code, no reason. The client's ordinary reconnect is the retry.
    pub(super) fn cut_login(&mut self, reason: &'static str) {
        self.log_login("denied", reason);
        self.end(reason);
        self.outgoing.wake();
    }

    /// Has the roles of all that are logged in here looked up again: who is no member any more
    /// must not read on.
    pub(super) fn look_up_again(&self, ctx: &Context) {
        for (key, _) in &self.login.keys {
            let request = RoleRequest {
                key: *key,
                id: None,
                from: ctx.address().into(),
                rooms: Arc::clone(&self.rooms),
            };
            request.enter();
        }
    }

    fn role_again(&mut self, key: &Pubkey, role: Result<Option<Role>, Refusal>) {
        let known = self.login.keys.iter().position(|(known, _)| known == key);
        match (known, role) {
            (Some(at), Ok(role @ Some(_))) => self.login.keys[at].1 = role,
            (Some(at), Ok(None)) => {
                self.login.keys.remove(at);
                if self.login.is_anonymous() {
                    self.close(CloseCode::Policy, "membership_ended");
                    self.outgoing.wake();
                }
            }
            // What can't be asked now is asked next time.
            (_, Err(_)) | (None, _) => {}
        }
    }

    /// Whether `key` may log in with that role.
    fn check_key(&self, key: &Pubkey, role: Option<Role>) -> Result<(), Refusal> {
        rules::check_role(self.rooms.settings.members_only, role)?;
        if self.login.keys.len() >= MAX_KEYS && !self.login.has(key) {
            let why = format!("at most {MAX_KEYS} keys may log in on one connection");
            return Err(Refusal::Restricted(why));
        }
        Ok(())
    }
}

impl Handler<LoginVerified> for Connection {
    type Result = ();
    fn handle(&mut self, login: LoginVerified, ctx: &mut Context) {
        match login.verdict {
            Ok(key) => RoleRequest {
                key,
                id: Some(login.id),
                from: ctx.address().into(),
                rooms: Arc::clone(&self.rooms),
            }
            .enter(),
            Err(refusal) => {
                self.note_invalid_signatures(1, ctx);
                self.refuse_login(&login.id, &refusal);
            }
        }
    }
}

impl Handler<RoleFound> for Connection {
    type Result = ();
    fn handle(&mut self, found: RoleFound, _: &mut Context) {
        let RoleFound { id, key, role } = found;
        let Some(id) = id else {
            return self.role_again(&key, role);
        };
        let checked = role.and_then(|role| self.check_key(&key, role).map(|()| role));
        match checked {
            Ok(role) => {
                self.login.pending = false;
                match self.login.keys.iter_mut().find(|(known, _)| *known == key) {
                    Some(known) => known.1 = role,
                    None => self.login.keys.push((key, role)),
                }
                self.rooms.metrics.auth.ok.increment(1);
                self.log_login("ok", "signed");
                self.send_ok(&id, true, "");
            }
            Err(refusal) => self.refuse_login(&id, &refusal),
        }
    }
}

impl Handler<LoginShed> for Connection {
    type Result = ();
    fn handle(&mut self, _: LoginShed, _: &mut Context) {
        self.rooms.metrics.auth.concurrency_limit.increment(1);
        self.cut_login("concurrency_limit");
    }
}
