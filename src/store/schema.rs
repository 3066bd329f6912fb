//! The tables for Diesel: the compiler checks every DSL statement against them. `migrations` creates
//! them; a test on each database reads every column.

diesel::table! {
    /// Events: see `position`.
    event (position) {
        position -> BigInt,
        batch -> BigInt,
        expires_at -> Nullable<BigInt>,
        json -> Text,
    }
}

diesel::table! {
    /// What events are found by: see `keys`.
    entry (key, position) {
        key -> BigInt,
        position -> BigInt,
    }
}

diesel::table! {
    /// Who belongs to the relay.
    member (pubkey) {
        pubkey -> Text,
        role -> Text,
    }
}

/// What only SQLite has.
pub(super) mod sqlite {
    diesel::table! {
        /// The last batch, in a single row.
        last_batch (only_row) {
            only_row -> BigInt,
            batch -> BigInt,
        }
    }
}

/// What only PostgreSQL has.
pub(super) mod postgres {
    diesel::table! {
        /// The last batch of each origin.
        last_batch (origin) {
            origin -> BigInt,
            batch -> BigInt,
            token -> BigInt,
        }
    }
}
