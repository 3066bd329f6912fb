//! Members and their roles: few rows, read at each login.

use buzz_actors::ports::Role;
use buzz_protocol::Pubkey;
use diesel::{OptionalExtension, prelude::*, upsert::excluded};
use diesel_async::RunQueryDsl;

use super::{error::Error, link::Link};
use crate::store::{
    columns,
    schema::member,
    statements::{all_members, role_of},
};

/// Within a transaction that writes.
pub(super) fn set_role(
    link: &mut Link,
    key: &Pubkey,
    role: Option<Role>,
) -> Result<Option<Role>, Error> {
    let before = self::role(link, key)?;
    let key = key.to_hex();
    match role {
        Some(role) => {
            let add = diesel::insert_into(member::table)
                .values((member::pubkey.eq(&key), member::role.eq(role.name())))
                .on_conflict(member::pubkey)
                .do_update()
                .set(member::role.eq(excluded(member::role)));
            link.run(async |session| add.execute(session).await)?;
        }
        None => {
            let remove = diesel::delete(member::table.find(&key));
            link.run(async |session| remove.execute(session).await)?;
        }
    }
    Ok(before)
}

pub(super) fn role(link: &mut Link, key: &Pubkey) -> Result<Option<Role>, Error> {
    let key = key.to_hex();
    let role = link.run(async |session| role_of(&key).first(session).await.optional())?;
    Ok(role.and_then(|role: String| Role::from_name(&role)))
}

pub(super) fn members(link: &mut Link) -> Result<Vec<(Pubkey, Role)>, Error> {
    let rows = link.run(async |session| all_members().load(session).await)?;
    columns::members(rows).ok_or(Error::NoMember)
}
