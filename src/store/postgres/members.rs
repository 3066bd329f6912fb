//! Members and their roles: few rows, read at each login.

use std::ops::ControlFlow;

use buzz_actors::ports::Role;
use buzz_protocol::Pubkey;

use super::{
    Error,
    link::Link,
    statement::{AddMember, AllMembers, RemoveMember, RoleOf, Statement, Value::Text},
};

/// Within a transaction that writes.
use crate::store::columns::{Columns, member};

pub(super) fn set_role(
    link: &mut Link,
    key: &Pubkey,
    role: Option<Role>,
) -> Result<Option<Role>, Error> {
    let before = self::role(link, key)?;
    let key = key.to_hex();
    match role {
        Some(role) => {
            let values = vec![Text(&key), Text(role.name())];
            link.execute(Statement::<AddMember>::new(values))?
        }
        None => link.execute(Statement::<RemoveMember>::new(vec![Text(&key)]))?,
    };
    Ok(before)
}

pub(super) fn role(link: &mut Link, key: &Pubkey) -> Result<Option<Role>, Error> {
    let mut role = None;
    let key = key.to_hex();
    link.for_each(Statement::<RoleOf>::new(vec![Text(&key)]), |row| {
        role = row.text(0, Role::from_name);
        ControlFlow::Continue(())
    })?;
    Ok(role)
}

pub(super) fn members(link: &mut Link) -> Result<Vec<(Pubkey, Role)>, Error> {
    let mut members = Vec::new();
    link.for_each(Statement::<AllMembers>::new(vec![]), |row| {
        members.push(member(row));
        ControlFlow::Continue(())
    })?;
    let members = members.into_iter().collect::<Option<Vec<_>>>();
    members.ok_or(Error::NoMember)
}
