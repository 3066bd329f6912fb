//! The driver's row, as Diesel and the store read it: in place, without copies.

use std::{error::Error as StdError, num::NonZeroU32, ops::Range};

use diesel::{
    pg::{Pg, PgValue},
    row::{self, PartialRow, RowIndex, RowSealed},
};
use tokio_postgres::types::{FromSql, Type};

use crate::store::columns::Columns;

/// A row, whose columns are read in place.
pub(super) struct Row(pub(super) tokio_postgres::Row);

impl Row {
    fn bytes(&self, column: usize) -> Option<&[u8]> {
        self.0.try_get::<_, Raw<'_>>(column).ok()?.0
    }
}

impl Columns for Row {
    fn int(&self, column: usize) -> Option<i64> {
        Some(i64::from_be_bytes(self.bytes(column)?.try_into().ok()?))
    }

    fn text<T>(&self, column: usize, take: impl FnOnce(&str) -> T) -> T {
        let text = self.bytes(column).map(std::str::from_utf8);
        take(text.and_then(Result::ok).unwrap_or_default())
    }
}

/// A column's bytes, of whatever type.
struct Raw<'a>(Option<&'a [u8]>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl RowSealed for Row {}

impl RowIndex<usize> for Row {
    fn idx(&self, column: usize) -> Option<usize> {
        Some(column).filter(|column| *column < self.0.len())
    }
}

impl RowIndex<&str> for Row {
    fn idx(&self, name: &str) -> Option<usize> {
        let mut columns = self.0.columns().iter();
        columns.position(|column| column.name() == name)
    }
}

impl<'a> row::Row<'a, Pg> for Row {
    type Field<'b>
        = Field<'b>
    where
        'a: 'b,
        Self: 'b;
    type InnerPartialRow = Self;

    fn field_count(&self) -> usize {
        self.0.len()
    }

    fn get<'b, I>(&'b self, index: I) -> Option<Field<'b>>
    where
        'a: 'b,
        Self: RowIndex<I>,
    {
        let index = self.idx(index)?;
        let column = self.0.columns().get(index)?;
        Some(Field {
            name: column.name(),
            oid: NonZeroU32::new(column.type_().oid())?,
            bytes: self.bytes(index),
        })
    }

    fn partial_row(&self, range: Range<usize>) -> PartialRow<'_, Self> {
        PartialRow::new(self, range)
    }
}

/// One column of a row.
pub(super) struct Field<'a> {
    name: &'a str,
    oid: NonZeroU32,
    bytes: Option<&'a [u8]>,
}

impl<'a> row::Field<'a, Pg> for Field<'a> {
    fn field_name(&self) -> Option<&str> {
        Some(self.name)
    }

    fn value(&self) -> Option<PgValue<'_>> {
        Some(PgValue::new(self.bytes?, &self.oid))
    }
}
