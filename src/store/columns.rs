//! Reads the columns of a row of either database. All statements select them in the same order.

use std::ops::ControlFlow;

use buzz_actors::ports::Role;
use buzz_protocol::Pubkey;

use super::{batch::StoredRow, lookup, read::Row};

/// What a database's row gives.
pub(super) trait Columns {
    /// An integer; `None` where the column is null.
    fn int(&self, column: usize) -> Option<i64>;

    /// Passes a text column on; an empty text where it is null.
    fn text<T>(&self, column: usize, take: impl FnOnce(&str) -> T) -> T;
}

/// Passes an event's row on in place.
pub(super) fn offer(
    row: &impl Columns,
    take: &mut impl FnMut(&Row<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (Some(position), Some(batch)) = (row.int(0), row.int(1)) else {
        return ControlFlow::Continue(());
    };
    let expires_at = row.int(2);
    row.text(3, |json| {
        take(&Row {
            position,
            batch,
            expires_at,
            json,
        })
    })
}

/// An event's row, whole.
pub(super) fn stored_row(row: &impl Columns) -> StoredRow {
    with_json(row, row.text(3, str::to_owned))
}

/// An event's row as far as a batch of these authors can depend on it: see [`lookup::without_content`].
pub(super) fn row_without_content(row: &impl Columns, authors: &[Pubkey]) -> Option<StoredRow> {
    let json = row.text(3, |json| lookup::without_content(json, authors))?;
    Some(with_json(row, json))
}

fn with_json(row: &impl Columns, json: String) -> StoredRow {
    StoredRow {
        position: row.int(0).unwrap_or_default(),
        batch: row.int(1).unwrap_or_default(),
        expires_at: row.int(2),
        json,
    }
}

/// Keys and roles of members; `None` where one of them is neither.
pub(super) fn members(rows: Vec<(String, String)>) -> Option<Vec<(Pubkey, Role)>> {
    let members = rows.into_iter().map(|(key, role)| {
        let key = Pubkey::from_hex(&key).ok()?;
        Some((key, Role::from_name(&role)?))
    });
    members.collect()
}
