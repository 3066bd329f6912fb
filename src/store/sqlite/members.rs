//! Members and their roles: few rows, read at each login.

use std::ops::ControlFlow;

use buzz_actors::ports::Role;
use buzz_protocol::Pubkey;
use diesel::{QueryResult, SqliteConnection};

use super::{
    Error,
    statement::{AddMember, AllMembers, RemoveMember, RoleOf, Statement, Value::Text},
};
use crate::store::columns::{Columns, member};

pub(super) fn set_role(
    connection: &mut SqliteConnection,
    key: &Pubkey,
    role: Option<Role>,
) -> Result<Option<Role>, Error> {
    let before = self::role(connection, key)?;
    let key = key.to_hex();
    match role {
        Some(role) => {
            let values = vec![Text(&key), Text(role.name())];
            Statement::<AddMember, 0>::new(values).execute(connection)?
        }
        None => Statement::<RemoveMember, 0>::new(vec![Text(&key)]).execute(connection)?,
    };
    Ok(before)
}

pub(super) fn role(connection: &mut SqliteConnection, key: &Pubkey) -> QueryResult<Option<Role>> {
    let mut role = None;
    Statement::<RoleOf, 0>::new(vec![Text(&key.to_hex())]).for_each(connection, |row| {
        role = row.text(0, Role::from_name);
        ControlFlow::Continue(())
    })?;
    Ok(role)
}

pub(super) fn members(connection: &mut SqliteConnection) -> Result<Vec<(Pubkey, Role)>, Error> {
    let mut members = Vec::new();
    Statement::<AllMembers, 0>::new(vec![]).for_each(connection, |row| {
        members.push(member(row));
        ControlFlow::Continue(())
    })?;
    let members = members.into_iter().collect::<Option<Vec<_>>>();
    members.ok_or(Error::NoMember)
}
