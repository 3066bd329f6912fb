//! What may be published and asked, apart from quotas: the same for a socket's frames and for
//! REST calls. A policy is a list of small functions without state.

use buzz_protocol::{Event, Filter, Limits, Refusal, kind};

use crate::ports::Role;

/// Who sends an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Its author, who has proved it.
    Author,
    /// Somebody else who has logged in.
    Other,
    /// A client without a login.
    Anonymous,
}

/// What an event's rules look at.
struct Publication<'a> {
    limits: &'a Limits,
    event: &'a Event,
    sender: Sender,
    now: u64,
}

type EventRule = fn(&Publication) -> Result<(), Refusal>;

/// In the order in which they are asked. None needs a signature that was checked.
const EVENT_RULES: [EventRule; 4] = [
    sizes_and_times,
    no_credentials,
    protected_only_by_author,
    no_repost_of_protected,
];

/// Checks whether `sender` may publish `event` at `now`, in seconds since the Unix epoch.
///
/// # Errors
/// Says what is wrong with it, or that this sender may not publish it.
pub fn check_event(
    limits: &Limits,
    event: &Event,
    sender: Sender,
    now: u64,
) -> Result<(), Refusal> {
    let publication = Publication {
        limits,
        event,
        sender,
        now,
    };
    EVENT_RULES.iter().try_for_each(|rule| rule(&publication))
}

fn sizes_and_times(publication: &Publication) -> Result<(), Refusal> {
    let Publication {
        limits, event, now, ..
    } = publication;
    limits.check_event(event, *now)
}

/// Logins and authorizations are ephemeral by their kinds, but what proves who somebody is must not
/// travel to others.
fn no_credentials(publication: &Publication) -> Result<(), Refusal> {
    let why = match publication.event.kind {
        kind::CLIENT_AUTH => "a login belongs into an AUTH frame",
        kind::HTTP_AUTH => "an authorization belongs into a header",
        _ => return Ok(()),
    };
    Err(Refusal::Invalid(why.into()))
}

/// NIP-70.
fn protected_only_by_author(publication: &Publication) -> Result<(), Refusal> {
    if !publication.event.is_protected() {
        return Ok(());
    }
    let why = || "this event may only be published by its author".into();
    match publication.sender {
        Sender::Author => Ok(()),
        Sender::Anonymous => Err(Refusal::AuthRequired(why())),
        Sender::Other => Err(Refusal::Restricted(why())),
    }
}

/// A repost carries the event in its content (NIP-18), which NIP-70 forbids for protected ones.
fn no_repost_of_protected(publication: &Publication) -> Result<(), Refusal> {
    let event = publication.event;
    let embeds_protected = matches!(event.kind, kind::REPOST | kind::GENERIC_REPOST)
        && serde_json::from_str::<Event>(&event.content).is_ok_and(|inner| inner.is_protected());
    if embeds_protected {
        return Err(Refusal::Restricted(
            "the reposted event is protected".into(),
        ));
    }
    Ok(())
}

/// Checks whether a key of that role may come in.
///
/// # Errors
/// `restricted: …` for a key that is no member, where only members may.
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
