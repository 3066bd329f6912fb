//! Statements as text, where the shape follows from a query or a batch. The type of a statement
//! decides its text, so each is prepared once a connection. Lists are bound as arrays: one text
//! serves any number of values, whatever PostgreSQL's limit of 65,535 binds.

use std::marker::PhantomData;

use diesel::{
    QueryResult,
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    sql_types::{Array, BigInt, Nullable, Text},
};

/// A statement's text. `?` stands for a value.
pub(super) trait Shape: 'static {
    const TEXT: &'static str;
}

/// A value to bind.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Int(i64),
    Ints(Vec<i64>),
    MaybeInts(Vec<Option<i64>>),
    Texts(Vec<&'a str>),
}

/// A statement with its values.
pub(super) struct Statement<'a, S> {
    values: Vec<Value<'a>>,
    shape: PhantomData<S>,
}

impl<'a, S: Shape> Statement<'a, S> {
    pub(super) fn new(values: Vec<Value<'a>>) -> Self {
        Self {
            values,
            shape: PhantomData,
        }
    }
}

impl<S: Shape> QueryFragment<Pg> for Statement<'_, S> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let mut values = self.values.iter();
        for (index, piece) in S::TEXT.split('?').enumerate() {
            if index > 0 {
                match values.next() {
                    Some(Value::Int(value)) => out.push_bind_param::<BigInt, i64>(value)?,
                    Some(Value::Ints(values)) => {
                        out.push_bind_param::<Array<BigInt>, Vec<i64>>(values)?;
                    }
                    Some(Value::MaybeInts(values)) => {
                        out.push_bind_param::<Array<Nullable<BigInt>>, Vec<Option<i64>>>(values)?;
                    }
                    Some(Value::Texts(values)) => {
                        out.push_bind_param::<Array<Text>, Vec<&str>>(values)?;
                    }
                    None => out.push_bind_param::<Nullable<BigInt>, Option<i64>>(&None)?,
                }
            }
            out.push_sql(piece);
        }
        Ok(())
    }
}

impl<S: Shape> QueryId for Statement<'_, S> {
    type QueryId = Statement<'static, S>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<S: Shape> Query for Statement<'_, S> {
    // Diesel wants some type; the columns are read as what they are.
    type SqlType = BigInt;
}

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name;
            impl Shape for $name {
                const TEXT: &'static str = $text;
            }
        )*

        /// Every statement's text, to look at their query plans.
        #[cfg(test)]
        pub(super) const TEXTS: &[(&str, &str)] = &[$((stringify!($name), $text)),*];
    };
}

shapes! {
    BeginRead = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    BeginWrite = "BEGIN";
    Commit = "COMMIT";
    Rollback = "ROLLBACK";
    /// One batch at a time over all relays: what it looks up stays true until it is committed. The
    /// number is this lock's name.
    LockWrites = "SELECT pg_advisory_xact_lock(7238211001)";
    /// Rows of one key, newest first: key, upper bound, lower bound, how many.
    WalkKey = "SELECT event.position, event.batch, event.expires_at, event.json FROM \
        (SELECT position FROM entry WHERE key = ? AND position < ? AND position >= ? \
        ORDER BY position DESC LIMIT ?) AS wanted \
        JOIN event ON event.position = wanted.position ORDER BY wanted.position DESC";
    /// All rows, newest first: upper bound, lower bound, how many.
    WalkTime = "SELECT position, batch, expires_at, json FROM event \
        WHERE position < ? AND position >= ? ORDER BY position DESC LIMIT ?";
    /// Rows by position, newest first.
    AtPositions = "SELECT position, batch, expires_at, json FROM event \
        WHERE position = ANY(?) ORDER BY position DESC";
    /// Rows of blocks of positions.
    InBlocks = "SELECT event.position, event.batch, event.expires_at, event.json \
        FROM unnest(?) AS block(first) \
        JOIN event ON event.position >= block.first AND event.position <= block.first + 31";
    /// Keys and positions of keys.
    OfKeys = "SELECT key, position FROM entry WHERE key = ANY(?)";
    /// One key's positions, newest first: key, upper bound, lower bound, how many.
    KeyPositions = "SELECT position FROM entry WHERE key = ? AND position < ? AND position >= ? \
        ORDER BY position DESC LIMIT ?";
    /// All positions, newest first: upper bound, lower bound, how many.
    AllPositions = "SELECT position FROM event WHERE position < ? AND position >= ? \
        ORDER BY position DESC LIMIT ?";
    /// The first positions of each key, with its number from 1 on: keys, upper bound, lower bound,
    /// how many of each.
    Heads = "SELECT wanted.number, head.position \
        FROM unnest(?) WITH ORDINALITY AS wanted(key, number) CROSS JOIN LATERAL \
        (SELECT position FROM entry WHERE entry.key = wanted.key AND position < ? \
        AND position >= ? ORDER BY position DESC LIMIT ?) AS head";
    InsertEvents = "INSERT INTO event (position, batch, expires_at, json) \
        SELECT * FROM unnest(?, ?, ?, ?) ON CONFLICT DO NOTHING";
    InsertEntries = "INSERT INTO entry (key, position) SELECT * FROM unnest(?, ?) \
        ON CONFLICT DO NOTHING";
    RemoveEvents = "DELETE FROM event WHERE position = ANY(?)";
    RemoveEntries = "DELETE FROM entry USING unnest(?, ?) AS gone(key, position) \
        WHERE entry.key = gone.key AND entry.position = gone.position";
}
