//! Statements of a fixed shape that both databases share, in Diesel's DSL. Statements whose shape
//! follows from a query or a batch are text: see each database's `statement`.

use diesel::{dsl::auto_type, prelude::*};

use super::schema::{event, member};

/// Up to `max` rows that expired at or before `now`. Deletions have values below zero and stay.
#[auto_type]
pub(super) fn expired(now: i64, max: i64) -> _ {
    event::table
        .filter(event::expires_at.between(0_i64, now))
        .select((
            event::position,
            event::batch,
            event::expires_at,
            event::json,
        ))
        .limit(max)
}

/// The role of the member with this key, in hex.
#[auto_type]
pub(super) fn role_of<'a>(key: &'a str) -> _ {
    member::table.find(key).select(member::role)
}

/// Keys and roles of all members, by key.
#[auto_type]
pub(super) fn all_members() -> _ {
    member::table
        .order_by(member::pubkey)
        .select((member::pubkey, member::role))
}
