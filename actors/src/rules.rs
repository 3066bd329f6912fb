//! What may be published and asked, apart from quotas: the same for a socket's frames and for
//! REST requests. No state.

use buzz_protocol::{Event, Filter, Limits, Refusal, kind};

use crate::ports::Role;

/// Whom an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Its author, who has proved it.
    Author,
    /// Somebody else who has proved who they are.
    Other,
    /// Nobody knows.
    Anonymous,
}

/// Checks what needs no signature: sizes, times, kind, and protection (NIP-70).
///
/// # Errors
/// Says what is wrong with it, or that this sender may not publish it.
pub fn check_event(
    limits: &Limits,
    event: &Event,
    sender: Sender,
    now: u64,
) -> Result<(), Refusal> {
    limits.check_event(event, now)?;
    // Ephemeral by their numbers; but what proves who somebody is must not travel to others.
    let secret = match event.kind {
        kind::CLIENT_AUTH => Some("a login belongs into an AUTH frame"),
        kind::HTTP_AUTH => Some("an authorization belongs into a header"),
        _ => None,
    };
    if let Some(why) = secret {
        return Err(Refusal::Invalid(why.into()));
    }
    if event.is_protected() && sender != Sender::Author {
        let why = "this event may only be published by its author".to_owned();
        return Err(match sender {
            Sender::Anonymous => Refusal::AuthRequired(why),
            _ => Refusal::Restricted(why),
        });
    }
    if embeds_protected(event) {
        return Err(Refusal::Restricted(
            "the reposted event is protected".into(),
        ));
    }
    Ok(())
}

/// Checks whether somebody of that role may come in.
///
/// # Errors
/// `restricted: …` for who is no member, where only members may.
pub fn check_role(members_only: bool, role: Option<Role>) -> Result<(), Refusal> {
    if members_only && role.is_none() {
        return Err(Refusal::Restricted("not a member of this relay".into()));
    }
    Ok(())
}

/// Checks the number of filters of one request.
///
/// # Errors
/// `invalid: …` where there are none or too many.
pub fn check_filters(limits: &Limits, filters: &[Filter]) -> Result<(), Refusal> {
    if filters.is_empty() {
        return Err(Refusal::Invalid("at least one filter is needed".into()));
    }
    limits.check_filters(filters)
}

/// Whether a repost carries a protected event in its content (NIP-18, NIP-70).
fn embeds_protected(event: &Event) -> bool {
    matches!(event.kind, kind::REPOST | kind::GENERIC_REPOST)
        && serde_json::from_str::<Event>(&event.content).is_ok_and(|inner| inner.is_protected())
}
