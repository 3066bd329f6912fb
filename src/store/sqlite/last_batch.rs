//! The table `last_batch`, a single row: the highest batch number ever stored.

use diesel::{prelude::*, sql_types::BigInt};

use crate::store::schema::sqlite::last_batch;

#[diesel::declare_sql_function]
extern "SQL" {
    /// The larger one.
    #[sql_name = "max"]
    fn larger(one: BigInt, other: BigInt) -> BigInt;
}

pub(super) fn get(connection: &mut SqliteConnection) -> QueryResult<i64> {
    last_batch::table
        .select(last_batch::batch)
        .first(connection)
}

pub(super) fn set(connection: &mut SqliteConnection, batch: i64) -> QueryResult<usize> {
    diesel::update(last_batch::table)
        .set(last_batch::batch.eq(larger(last_batch::batch, batch)))
        .execute(connection)
}
