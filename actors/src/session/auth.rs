//! One AUTH (NIP-42): form and challenge here, the signature at the verifier, the key's role from
//! the database behind the auth gate, then its OK. Later frames of the socket wait for it.
//!
//! Bound: one login in work; [`MAX_LOGINS`] attempts and [`MAX_KEYS`] keys a socket, since logins
//! spend no quota.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use buzz_protocol::{Event, EventId, Pubkey, Refusal, auth, relay_frame};

use super::{Now, Output, Session};
use crate::{
    admission::{QuotaClass, SignatureChecksPaused},
    db_reader::RoleFound,
    ports::Role,
    rules,
    ws::CloseCode,
};

/// Keys that may log in on one socket.
const MAX_KEYS: usize = 64;
/// Logins of one socket that are checked: each costs a signature check and a database look-up.
const MAX_LOGINS: u32 = 256;

/// Who the client has proved to be.
pub(super) struct Login {
    challenge: String,
    /// The client has it.
    challenged: bool,
    /// In the order of their logins, with the role each had then.
    keys: Vec<(Pubkey, Option<Role>)>,
    /// A login is on its way or being checked; later frames wait for it.
    pending: bool,
    /// It is being checked.
    in_work: bool,
    attempts: u32,
    /// Keys whose recheck had no result.
    overdue: Vec<Pubkey>,
    /// Until then, no signature from here is checked: too many were wrong.
    checks_paused_until: Option<Instant>,
}

impl Login {
    pub(super) fn new(challenge: String) -> Self {
        Self {
            challenge,
            challenged: false,
            keys: Vec::new(),
            pending: false,
            in_work: false,
            attempts: 0,
            overdue: Vec::new(),
            checks_paused_until: None,
        }
    }

    pub(super) fn has(&self, key: &Pubkey) -> bool {
        self.keys.iter().any(|(known, _)| known == key)
    }

    pub(super) fn is_anonymous(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whose budget the frames of this socket spend.
    pub(super) fn first_key(&self) -> Option<&Pubkey> {
        self.keys.first().map(|(key, _)| key)
    }

    pub(super) fn class(&self) -> QuotaClass {
        let role = self.keys.first().and_then(|(_, role)| *role);
        QuotaClass::from(role)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending
    }

    /// A login is on its way: nothing behind it is read.
    pub(super) fn expect(&mut self) {
        self.pending = true;
    }

    fn done(&mut self) {
        self.pending = false;
        self.in_work = false;
    }

    /// Refuses what must be verified while signatures from here are not checked.
    pub(super) fn check_signatures_checked(&self, now: Now) -> Result<(), Refusal> {
        let Some(until) = self.checks_paused_until.filter(|until| *until > now.at) else {
            return Ok(());
        };
        let secs = until.duration_since(now.at).as_secs_f64().ceil() as u64;
        let secs = u32::try_from(secs).unwrap_or(u32::MAX);
        let retry_in_secs = NonZeroU32::new(secs).unwrap_or(NonZeroU32::MIN);
        Err(Refusal::Quota { retry_in_secs })
    }
}

impl Session {
    pub(super) fn send_challenge(&mut self) {
        self.login.challenged = true;
        let challenge = relay_frame::auth_challenge(&self.login.challenge);
        self.send(&challenge);
    }

    /// Sends the challenge before an answer that asks for a login, where the client has none yet.
    pub(super) fn challenge_before(&mut self, refusal: &Refusal) {
        if matches!(refusal, Refusal::AuthRequired(_)) && !self.login.challenged {
            self.send_challenge();
        }
    }

    pub(super) fn receive_login(&mut self, event: Box<Event>, now: Now) {
        if let Err(refusal) = self.login.check_signatures_checked(now) {
            self.shared.metrics.rejected_frames.count(&refusal);
            return self.cut_login("invalid_signatures", now);
        }
        self.login.attempts += 1;
        if self.login.attempts > MAX_LOGINS {
            let why = format!("at most {MAX_LOGINS} logins on one connection");
            return self.refuse_login(&event.id, &Refusal::Restricted(why), now);
        }
        let relay_url = &self.shared.settings.relay_url;
        match auth::check_login(&event, &self.login.challenge, relay_url, now.unix_secs) {
            Ok(()) => {
                self.login.expect();
                self.login.in_work = true;
                self.ask(Output::VerifyLogin { event });
            }
            Err(refusal) => self.refuse_login(&event.id, &refusal, now),
        }
    }

    pub(super) fn login_verified(
        &mut self,
        id: EventId,
        verdict: Result<Pubkey, Refusal>,
        now: Now,
    ) {
        if self.client_is_gone {
            return;
        }
        match verdict {
            Ok(key) => self.ask(Output::LookUpRole {
                key,
                login: Some(id),
            }),
            Err(refusal) => {
                if matches!(refusal, Refusal::Invalid(_)) {
                    self.note_invalid_signatures(1);
                }
                self.refuse_login(&id, &refusal, now);
            }
        }
    }

    pub(super) fn role_found(
        &mut self,
        key: Pubkey,
        login: Option<EventId>,
        found: RoleFound,
        now: Now,
    ) {
        let Some(id) = login else {
            return self.member_rechecked(&key, &found);
        };
        if self.client_is_gone {
            return;
        }
        match found {
            RoleFound::Role(role) => match self.check_key(&key, role) {
                Ok(()) => self.logged_in(&id, key, role, now),
                Err(refusal) => self.refuse_login(&id, &refusal, now),
            },
            RoleFound::Shed => {
                self.login.done();
                self.shared.metrics.auth.concurrency_limit.increment(1);
                self.cut_login("concurrency_limit", now);
            }
            RoleFound::Failed(refusal) => self.refuse_login(&id, &refusal, now),
        }
    }

    /// The client is gone, and a login of it may be in work.
    pub(super) fn abandon_login(&mut self) {
        if std::mem::take(&mut self.login.in_work) {
            self.shared.metrics.auth.abandoned.increment(1);
        }
        self.login.pending = false;
    }

    /// Whether `key` may log in with that role.
    fn check_key(&self, key: &Pubkey, role: Option<Role>) -> Result<(), Refusal> {
        rules::check_role(self.shared.settings.members_only, role)?;
        if self.login.keys.len() >= MAX_KEYS && !self.login.has(key) {
            let why = format!("at most {MAX_KEYS} keys may log in on one connection");
            return Err(Refusal::Restricted(why));
        }
        Ok(())
    }

    fn logged_in(&mut self, id: &EventId, key: Pubkey, role: Option<Role>, now: Now) {
        self.login.done();
        match self.login.keys.iter_mut().find(|(known, _)| *known == key) {
            Some(known) => known.1 = role,
            None => self.login.keys.push((key, role)),
        }
        self.shared.metrics.auth.ok.increment(1);
        self.log("AUTH", "ok", "signed", now);
        self.send(&relay_frame::ok(id, true, ""));
    }

    fn refuse_login(&mut self, id: &EventId, refusal: &Refusal, now: Now) {
        self.login.done();
        let auth = &self.shared.metrics.auth;
        match refusal.prefix() {
            "restricted" => auth.restricted.increment(1),
            "error" => auth.error.increment(1),
            _ => auth.invalid.increment(1),
        }
        self.log("AUTH", "denied", refusal.prefix(), now);
        self.send(&relay_frame::ok(id, false, &refusal.to_string()));
    }

    /// A bare close: no OK, no code, no reason. The client's ordinary reconnect is the retry.
    fn cut_login(&mut self, reason: &'static str, now: Now) {
        self.log("AUTH", "denied", reason, now);
        self.end(reason);
    }

    /// Cuts a socket without a login, where one is required.
    pub(super) fn login_due(&mut self, now: Now) {
        if self.login.is_anonymous() {
            self.login.done();
            self.shared.metrics.auth.timeout.increment(1);
            self.cut_login("timeout", now);
        }
    }

    /// Has the roles of all that are logged in here looked up again: a key that is no longer a
    /// member must not read on.
    pub(super) fn recheck_members(&mut self) {
        let keys = self.login.keys.iter().map(|(key, _)| *key).collect();
        self.look_up_again(keys);
    }

    /// Has those looked up once more whose last look-up had no result: a member that was removed
    /// must not stay because the database was busy.
    pub(super) fn recheck_overdue(&mut self) {
        let keys = std::mem::take(&mut self.login.overdue);
        self.look_up_again(keys);
    }

    fn look_up_again(&mut self, keys: Vec<Pubkey>) {
        if self.client_is_gone {
            return;
        }
        let look_up = |key| Output::LookUpRole { key, login: None };
        self.outputs.extend(keys.into_iter().map(look_up));
    }

    fn member_rechecked(&mut self, key: &Pubkey, found: &RoleFound) {
        let Some(at) = self.login.keys.iter().position(|(known, _)| known == key) else {
            return;
        };
        match found {
            RoleFound::Role(role @ Some(_)) => self.login.keys[at].1 = *role,
            RoleFound::Role(None) => {
                self.login.keys.remove(at);
                if self.login.is_anonymous() {
                    self.close(CloseCode::Policy, "membership_ended");
                }
            }
            RoleFound::Shed | RoleFound::Failed(_) => {
                if self.login.overdue.is_empty() {
                    self.ask(Output::RecheckLater);
                }
                if !self.login.overdue.contains(key) {
                    self.login.overdue.push(*key);
                }
            }
        }
    }

    pub(super) fn pause_signature_checks(&mut self, paused: SignatureChecksPaused, now: Now) {
        if let Some(secs) = paused.retry_in_secs {
            let wait = Duration::from_secs(secs.get().into());
            self.login.checks_paused_until = Some(now.at + wait);
        }
    }

    /// Refuses a client that has not logged in, where it must.
    pub(super) fn check_logged_in(&self) -> Result<(), Refusal> {
        if self.shared.settings.auth_required && self.login.is_anonymous() {
            return Err(Refusal::AuthRequired("log in first".into()));
        }
        Ok(())
    }
}
