//! The table `last_batch`: each origin's last number, and the token of the transaction that wrote it.

use diesel::{
    OptionalExtension,
    dsl::insert_into,
    prelude::*,
    sql_types::{BigInt, Text},
};
use diesel_async::RunQueryDsl;

use super::{error::Error, link::Link};
use crate::store::schema::postgres::last_batch;

#[diesel::declare_sql_function]
extern "SQL" {
    /// The next value of a sequence.
    fn nextval(sequence: Text) -> BigInt;
    /// The larger one.
    fn greatest(one: BigInt, other: BigInt) -> BigInt;
}

/// A new origin, for this process.
pub(super) fn new_origin(link: &mut Link) -> Result<i64, Error> {
    let claim = insert_into(last_batch::table)
        .values((
            last_batch::origin.eq(nextval("origin")),
            last_batch::batch.eq(0),
            last_batch::token.eq(0),
        ))
        .returning(last_batch::origin);
    link.run(async |session| claim.get_result(session).await)
}

/// Number and token of an origin's last batch.
pub(super) fn of(link: &mut Link, origin: i64) -> Result<Option<(i64, i64)>, Error> {
    let last = last_batch::table
        .find(origin)
        .select((last_batch::batch, last_batch::token));
    link.run(async |session| last.first(session).await.optional())
}

/// Sets them; false where the origin is gone.
pub(super) fn set(link: &mut Link, origin: i64, number: i64, token: i64) -> Result<bool, Error> {
    let last = diesel::update(last_batch::table.find(origin)).set((
        last_batch::batch.eq(greatest(last_batch::batch, number)),
        last_batch::token.eq(token),
    ));
    Ok(link.run(async |session| last.execute(session).await)? == 1)
}
