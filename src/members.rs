//! `buzz-relay member`: who belongs to the relay, and in which role. It may run beside a relay, which
//! looks up the role at each login.

use std::io::Write;

use anyhow::Context;
use buzz_actors::ports::{EventStore, Purpose, Role};
use buzz_protocol::{Pubkey, nip19};
use clap::builder::{PossibleValuesParser, TypedValueParser};

pub(crate) fn role_parser() -> impl TypedValueParser<Value = Role> {
    let names = PossibleValuesParser::new(Role::ALL.map(Role::name));
    names.try_map(|name| Role::from_name(&name).ok_or("no such role"))
}

/// Makes `key` a member of that role.
///
/// # Errors
/// When the database or the output fails.
pub(crate) fn add(
    store: &dyn EventStore,
    key: &Pubkey,
    role: Role,
    output: &mut dyn Write,
) -> anyhow::Result<()> {
    let before = store.writer()?.set_role(key, Some(role))?;
    let (npub, role) = (nip19::npub(key), role.name());
    match before.map(Role::name) {
        None => writeln!(output, "{npub} is now a member: {role}")?,
        Some(before) if before == role => writeln!(output, "{npub} was a member already: {role}")?,
        Some(before) => writeln!(output, "{npub} was {before}, is now {role}")?,
    }
    Ok(())
}

/// Ends the membership of `key`.
///
/// # Errors
/// When it is no member, or the database or the output fails.
pub(crate) fn remove(
    store: &dyn EventStore,
    key: &Pubkey,
    output: &mut dyn Write,
) -> anyhow::Result<()> {
    let npub = nip19::npub(key);
    let before = store.writer()?.set_role(key, None)?;
    let before = before.with_context(|| format!("{npub} is no member"))?;
    Ok(writeln!(
        output,
        "{npub} was {}, is no member any more",
        before.name()
    )?)
}

/// Prints members, a line each: npub, hex, role.
///
/// # Errors
/// When `key` is given and is no member, or the database or the output fails.
pub(crate) fn list(
    store: &dyn EventStore,
    key: Option<&Pubkey>,
    role: Option<Role>,
    output: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut reader = store.reader(Purpose::Authorization)?;
    let members = match key {
        Some(key) => {
            let role = reader.role(key)?;
            vec![(
                *key,
                role.with_context(|| format!("{} is no member", nip19::npub(key)))?,
            )]
        }
        None => reader.members()?,
    };
    let wanted = |is: Role| role.is_none_or(|role| role == is);
    for (key, is) in members.into_iter().filter(|(_, is)| wanted(*is)) {
        writeln!(output, "{}  {key}  {}", nip19::npub(&key), is.name())?;
    }
    Ok(())
}
