//! Refusals, by name, and their lines in the access log.

use buzz_protocol::{
    ClientFrame, EventId, Refusal,
    client_frame::{About, BadFrame},
    refusal, relay_frame,
};

use super::{LogLine, Now, Output, Session, admission::Received};

/// Lines of one socket in the access log, for each of its windows.
pub(super) const MAX_LINES: u32 = 20;

impl Session {
    /// Refuses a frame of any kind that was not admitted, by name.
    pub(super) fn refuse(&mut self, frame: Received, refusal: &Refusal, now: Now) {
        match frame {
            Ok(ClientFrame::Event(event)) => self.refuse_event(&event.id, refusal, now),
            Ok(ClientFrame::Req { sub, .. }) => self.refuse_sub("REQ", &sub, refusal, now),
            Ok(ClientFrame::Count { query, .. }) => self.refuse_sub("COUNT", &query, refusal, now),
            Ok(ClientFrame::Close { .. } | ClientFrame::Auth(_)) => {}
            Err(BadFrame { about, verb, .. }) => match (about, verb) {
                (About::Event(id), _) => self.refuse_event(&id, refusal, now),
                (About::Sub(sub), Some(verb)) => self.refuse_sub(verb, &sub, refusal, now),
                (_, verb) => {
                    let metrics = &self.shared.metrics;
                    metrics.rejected_frames.count(refusal);
                    if verb == Some("EVENT") {
                        metrics.events.rate_limited.increment(1);
                    }
                    self.log_refused(verb.unwrap_or("none"), refusal.reason(), now);
                    self.send(&relay_frame::notice(&refusal.to_string()));
                }
            },
        }
    }

    /// Answers a frame that can't be used.
    pub(super) fn refuse_bad(&mut self, bad: &BadFrame, now: Now) {
        let metrics = &self.shared.metrics;
        match (bad.verb, &bad.about) {
            (Some("EVENT"), _) => metrics.events.invalid.increment(1),
            (Some("AUTH"), _) => metrics.auth.invalid.increment(1),
            (Some("REQ"), About::Sub(sub)) => self.end_subscription_by_id(sub),
            _ => {}
        }
        let reason = match refusal::prefix(&bad.reason) {
            Some("unsupported") => "unsupported",
            _ => "invalid",
        };
        self.log_refused(bad.verb.unwrap_or("none"), reason, now);
        self.send(&bad.answer());
    }

    /// Refuses an EVENT by name.
    pub(super) fn refuse_event(&mut self, id: &EventId, refusal: &Refusal, now: Now) {
        let metrics = &self.shared.metrics;
        metrics.events.count_refused(refusal);
        metrics.rejected_frames.count(refusal);
        self.log_refused("EVENT", refusal.reason(), now);
        self.challenge_before(refusal);
        self.send(&relay_frame::ok(id, false, &refusal.to_string()));
    }

    /// Refuses a REQ or COUNT by name. To the client, CLOSED ends whatever has that name, and so
    /// does a refused REQ here.
    pub(super) fn refuse_sub(
        &mut self,
        verb: &'static str,
        sub: &str,
        refusal: &Refusal,
        now: Now,
    ) {
        if verb == "REQ" {
            self.end_subscription_by_id(sub);
        }
        self.shared.metrics.rejected_frames.count(refusal);
        self.log_refused(verb, refusal.reason(), now);
        self.challenge_before(refusal);
        let text = refusal.to_string();
        self.send(&relay_frame::closed(sub, &text));
        if verb == "COUNT" && refusal.prefix() == "rate-limited" {
            // For clients that do not know CLOSED for a COUNT.
            self.send(&relay_frame::notice(&text));
        }
    }

    pub(super) fn log_refused(&mut self, verb: &'static str, reason: &'static str, now: Now) {
        self.log(verb, "denied", reason, now);
    }

    pub(super) fn log(
        &mut self,
        verb: &'static str,
        outcome: &'static str,
        reason: &'static str,
        now: Now,
    ) {
        if let Some(left_out) = self.log_lines.next(now.at) {
            self.ask(Output::Log(LogLine {
                verb,
                outcome,
                reason,
                left_out,
            }));
        }
    }
}
