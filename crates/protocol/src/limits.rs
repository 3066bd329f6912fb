//! The sizes that NIP-11 advertises and the relay enforces, from the same values.

use crate::{Event, Filter, Refusal};

/// Bounds on what one client may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open subscriptions of one socket.
    pub max_subscriptions: usize,
    /// Filters of one REQ or COUNT.
    pub max_filters: usize,
    /// Stored events sent for one filter; larger limits are lowered to it.
    pub max_limit: u64,
    /// Characters of a subscription id.
    pub max_subid_length: usize,
    /// Tags of one event.
    pub max_event_tags: usize,
    /// How far ahead of the relay's clock `created_at` may be, in seconds.
    pub created_at_future_secs: u64,
    /// How far behind it may be, in seconds; `None`: any time.
    pub created_at_past_secs: Option<u64>,
}

/// The latest `created_at` the store can order, in the year 2514.
pub const MAX_CREATED_AT: u64 = (1 << 34) - 1;

impl Limits {
    /// Checks what can be checked of an event without its signature.
    ///
    /// # Errors
    /// `invalid: …` with the bound that is crossed.
    pub fn check_event(&self, event: &Event, now: u64) -> Result<(), Refusal> {
        let invalid = |why: String| Err(Refusal::Invalid(why));
        if event.tags.len() > self.max_event_tags {
            return invalid(format!(
                "too many tags: {} of at most {}",
                event.tags.len(),
                self.max_event_tags
            ));
        }
        let latest = now
            .saturating_add(self.created_at_future_secs)
            .min(MAX_CREATED_AT);
        if event.created_at > latest {
            return invalid(format!(
                "created_at is too far in the future: at most {latest} now"
            ));
        }
        if let Some(past) = self.created_at_past_secs {
            let earliest = now.saturating_sub(past);
            if event.created_at < earliest {
                return invalid(format!("created_at is too old: at least {earliest} now"));
            }
        }
        if event.is_expired(now) {
            return invalid("the event has expired".into());
        }
        Ok(())
    }

    /// Checks a subscription or query id.
    ///
    /// # Errors
    /// `invalid: …` where it is empty or too long.
    pub fn check_subid(&self, sub: &str) -> Result<(), Refusal> {
        let length = sub.chars().count();
        if length == 0 {
            Err(Refusal::Invalid("the subscription id is empty".into()))
        } else if length > self.max_subid_length {
            Err(Refusal::Invalid(format!(
                "the subscription id is too long: {length} of at most {} characters",
                self.max_subid_length
            )))
        } else {
            Ok(())
        }
    }

    /// Checks the number of filters.
    ///
    /// # Errors
    /// `invalid: …` where there are too many.
    pub fn check_filters(&self, filters: &[Filter]) -> Result<(), Refusal> {
        if filters.len() > self.max_filters {
            return Err(Refusal::Invalid(format!(
                "too many filters: {} of at most {}",
                filters.len(),
                self.max_filters
            )));
        }
        Ok(())
    }

    /// How many stored events a filter is sent.
    pub fn effective_limit(&self, filter: &Filter) -> u64 {
        filter.limit.unwrap_or(self.max_limit).min(self.max_limit)
    }
}
