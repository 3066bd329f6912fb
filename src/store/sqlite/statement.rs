//! Statements as text, where the shape follows from a query or a batch. The type of a statement
//! decides its text, so Diesel prepares each once a connection; that halves the cost of short ones.

use std::{marker::PhantomData, ops::ControlFlow};

use diesel::{
    QueryResult, SqliteConnection,
    connection::LoadConnection,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    row::{Field, Row as _},
    sql_types::{BigInt, Nullable, Text},
    sqlite::Sqlite,
};

use crate::store::columns::Columns;

/// The parts of a statement's text. `?` stands for a value.
pub(super) trait Shape: 'static {
    const HEAD: &'static str;
    /// Repeated as often as the statement's `ROWS` says.
    const ROW: &'static str = "?";
    const TAIL: &'static str = "";
}

/// A value to bind.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Int(i64),
    Null,
    Text(&'a str),
}

/// A statement with its values. `ROWS` is part of the type, because it is part of the text.
pub(super) struct Statement<'a, S, const ROWS: usize> {
    values: Vec<Value<'a>>,
    shape: PhantomData<S>,
}

impl<'a, S: Shape, const ROWS: usize> Statement<'a, S, ROWS> {
    pub(super) fn new(values: Vec<Value<'a>>) -> Self {
        Self {
            values,
            shape: PhantomData,
        }
    }

    /// Runs a statement that yields nothing.
    pub(super) fn execute(self, connection: &mut SqliteConnection) -> QueryResult<usize> {
        diesel::RunQueryDsl::execute(self, connection)
    }

    /// Passes rows to `take` until it breaks. Rows are made one by one, as they are taken.
    pub(super) fn for_each(
        self,
        connection: &mut SqliteConnection,
        mut take: impl FnMut(&Row<'_, '_>) -> ControlFlow<()>,
    ) -> QueryResult<()> {
        for row in connection.load(self)? {
            #[cfg(test)]
            ROWS_READ.with(|read| read.set(read.get() + 1));
            if take(&Row(row?)).is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
thread_local! {
    static ROWS_READ: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How many rows this thread's statements have yielded.
#[cfg(test)]
pub(super) fn rows_read() -> u64 {
    ROWS_READ.get()
}

/// A row, whose columns are read in place.
pub(super) struct Row<'a, 'b>(<SqliteConnection as LoadConnection>::Row<'a, 'b>);

impl Columns for Row<'_, '_> {
    fn int(&self, column: usize) -> Option<i64> {
        let field = self.0.get(column)?;
        let mut value = field.value()?;
        Some(value.read_long())
    }

    fn text<T>(&self, column: usize, take: impl FnOnce(&str) -> T) -> T {
        let field = self.0.get(column);
        match field.as_ref().and_then(Field::value) {
            Some(mut value) => take(value.read_text()),
            None => take(""),
        }
    }
}

impl<S: Shape, const ROWS: usize> QueryFragment<Sqlite> for Statement<'_, S, ROWS> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        let mut values = self.values.iter();
        push(&mut out, S::HEAD, &mut values)?;
        for row in 0..ROWS {
            if row > 0 {
                out.push_sql(",");
            }
            push(&mut out, S::ROW, &mut values)?;
        }
        push(&mut out, S::TAIL, &mut values)
    }
}

fn push<'b>(
    out: &mut AstPass<'_, 'b, Sqlite>,
    text: &str,
    values: &mut impl Iterator<Item = &'b Value<'b>>,
) -> QueryResult<()> {
    for (index, piece) in text.split('?').enumerate() {
        if index > 0 {
            match values.next() {
                Some(Value::Int(value)) => out.push_bind_param::<BigInt, i64>(value)?,
                Some(Value::Text(value)) => out.push_bind_param::<Text, str>(value)?,
                Some(Value::Null) | None => {
                    out.push_bind_param::<Nullable<BigInt>, Option<i64>>(&None)?;
                }
            }
        }
        out.push_sql(piece);
    }
    Ok(())
}

impl<S: Shape, const ROWS: usize> QueryId for Statement<'_, S, ROWS> {
    type QueryId = Statement<'static, S, ROWS>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<S: Shape, const ROWS: usize> Query for Statement<'_, S, ROWS> {
    // Diesel wants some type; the columns are read as what they are.
    type SqlType = BigInt;
}

impl<S: Shape, const ROWS: usize> diesel::RunQueryDsl<SqliteConnection> for Statement<'_, S, ROWS> {}

/// Stands where a list is shorter than its statement: neither a key nor a position.
pub(super) const NOTHING: i64 = -1_000;

/// Runs a statement over a list of integers, in as few pieces as its fixed sizes allow.
pub(super) fn list<S: Shape>(
    connection: &mut SqliteConnection,
    values: &[i64],
    mut take: impl FnMut(&Row<'_, '_>) -> ControlFlow<()>,
) -> QueryResult<()> {
    for values in values.chunks(512) {
        let padded = |size| {
            let padding = std::iter::repeat_n(Value::Int(NOTHING), size - values.len());
            let values = values.iter().map(|value| Value::Int(*value));
            values.chain(padding).collect()
        };
        match values.len() {
            ..=4 => Statement::<S, 4>::new(padded(4)).for_each(connection, &mut take)?,
            5..=32 => Statement::<S, 32>::new(padded(32)).for_each(connection, &mut take)?,
            33..=128 => Statement::<S, 128>::new(padded(128)).for_each(connection, &mut take)?,
            _ => Statement::<S, 512>::new(padded(512)).for_each(connection, &mut take)?,
        }
    }
    Ok(())
}

/// Passes each key's index and its highest position below `bound`, for up to 64 keys.
pub(super) fn heads(
    connection: &mut SqliteConnection,
    keys: &[i64],
    bound: i64,
    mut take: impl FnMut(usize, Option<i64>),
) -> QueryResult<()> {
    let padded = |size| {
        let padding = std::iter::repeat_n(&NOTHING, size - keys.len());
        let keys = (0..).zip(keys.iter().chain(padding));
        let keys = keys.flat_map(|(index, key)| [Value::Int(index), Value::Int(*key)]);
        std::iter::once(Value::Int(bound)).chain(keys).collect()
    };
    let take = |row: &Row<'_, '_>| {
        let index = row.int(0).and_then(|index| usize::try_from(index).ok());
        if let Some(index) = index.filter(|index| *index < keys.len()) {
            take(index, row.int(1));
        }
        ControlFlow::Continue(())
    };
    match keys.len() {
        ..=4 => Statement::<Heads, 4>::new(padded(4)).for_each(connection, take),
        5..=16 => Statement::<Heads, 16>::new(padded(16)).for_each(connection, take),
        _ => Statement::<Heads, 64>::new(padded(64)).for_each(connection, take),
    }
}

/// Selects a row's columns in the order in which reader and writer take them.
macro_rules! rows_of {
    ($alias:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            $alias,
            "position, ",
            $alias,
            "batch, ",
            $alias,
            "expires_at, ",
            $alias,
            "json FROM ",
            $rest
        )
    };
}

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident { $($part:ident: $text:expr),* $(,)? })*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name;
            impl Shape for $name {
                $(const $part: &'static str = $text;)*
            }
        )*

        /// Every statement's text with two rows, to look at their query plans.
        #[cfg(test)]
        pub(super) fn texts() -> Vec<(&'static str, String)> {
            vec![$((
                stringify!($name),
                match $name::ROW {
                    "" => $name::HEAD.to_owned(),
                    row => format!("{}{row},{row}{}", $name::HEAD, $name::TAIL),
                },
            )),*]
        }
    };
}

shapes! {
    BeginRead { HEAD: "BEGIN", ROW: "" }
    BeginWrite { HEAD: "BEGIN IMMEDIATE", ROW: "" }
    Commit { HEAD: "COMMIT", ROW: "" }
    /// Rows of one key, newest first: key, upper bound, lower bound.
    WalkKey {
        HEAD: rows_of!("event.", "entry CROSS JOIN event ON event.position = entry.position \
            WHERE entry.key = ? AND entry.position < ? AND entry.position >= ? \
            ORDER BY entry.position DESC"),
        ROW: "",
    }
    /// All rows, newest first: upper bound, lower bound.
    WalkTime {
        HEAD: rows_of!("", "event WHERE position < ? AND position >= ? ORDER BY position DESC"),
        ROW: "",
    }
    /// Rows by position, newest first.
    AtPositions {
        HEAD: rows_of!("", "event WHERE position IN ("),
        TAIL: ") ORDER BY position DESC",
    }
    /// Rows of blocks of positions.
    InBlocks {
        HEAD: rows_of!("event.", "(VALUES "),
        ROW: "(?)",
        TAIL: ") AS block CROSS JOIN event ON event.position BETWEEN block.column1 AND block.column1 + 31",
    }
    /// Keys and positions of keys.
    OfKeys {
        HEAD: "SELECT key, position FROM entry WHERE key IN (",
        TAIL: ")",
    }
    /// One key's positions, newest first: key, upper bound, lower bound.
    KeyPositions {
        HEAD: "SELECT position FROM entry WHERE key = ? AND position < ? AND position >= ? \
            ORDER BY position DESC",
        ROW: "",
    }
    /// All positions, newest first: upper bound, lower bound.
    AllPositions {
        HEAD: "SELECT position FROM event WHERE position < ? AND position >= ? \
            ORDER BY position DESC",
        ROW: "",
    }
    /// The highest position of each key, below an upper bound: first the bound, then the number and
    /// the key of each.
    Heads {
        HEAD: "SELECT wanted.column1, (SELECT max(entry.position) FROM entry \
            WHERE entry.key = wanted.column2 AND entry.position < ?) FROM (VALUES ",
        ROW: "(?,?)",
        TAIL: ") AS wanted",
    }
    InsertEvents {
        HEAD: "INSERT OR FAIL INTO event (position, batch, expires_at, json) VALUES ",
        ROW: "(?,?,?,?)",
    }
    InsertEntries {
        HEAD: "INSERT OR FAIL INTO entry (key, position) VALUES ",
        ROW: "(?,?)",
    }
    RemoveEvents {
        HEAD: "DELETE FROM event WHERE position IN (",
        TAIL: ")",
    }
    /// Key, position.
    RemoveEntry {
        HEAD: "DELETE FROM entry WHERE key = ? AND position = ?",
        ROW: "",
    }
}
