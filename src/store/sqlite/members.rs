//! Members and their roles: few rows, read at each login.

use buzz_actors::ports::Role;
use buzz_protocol::Pubkey;
use diesel::{prelude::*, upsert::excluded};

use super::error::Error;
use crate::store::{
    columns,
    schema::member,
    statements::{all_members, role_of},
};

/// Within a transaction that writes.
pub(super) fn set_role(
    connection: &mut SqliteConnection,
    key: &Pubkey,
    role: Option<Role>,
) -> Result<Option<Role>, Error> {
    let before = self::role(connection, key)?;
    let key = key.to_hex();
    match role {
        Some(role) => diesel::insert_into(member::table)
            .values((member::pubkey.eq(&key), member::role.eq(role.name())))
            .on_conflict(member::pubkey)
            .do_update()
            .set(member::role.eq(excluded(member::role)))
            .execute(connection)?,
        None => diesel::delete(member::table.find(&key)).execute(connection)?,
    };
    Ok(before)
}

pub(super) fn role(connection: &mut SqliteConnection, key: &Pubkey) -> QueryResult<Option<Role>> {
    let role: Option<String> = role_of(&key.to_hex()).first(connection).optional()?;
    Ok(role.and_then(|role| Role::from_name(&role)))
}

pub(super) fn members(connection: &mut SqliteConnection) -> Result<Vec<(Pubkey, Role)>, Error> {
    columns::members(all_members().load(connection)?).ok_or(Error::NoMember)
}
