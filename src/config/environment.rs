//! Names of variables: those that operators know from elsewhere, and those that are nearly right.

use std::env;

use figment::{
    Error, Metadata, Profile,
    providers::Serialized,
    value::{Dict, Map, Value},
};

use super::{Config, ConfigError, aliases::ALIASES};

/// How the source of an alias's value begins, before the variable's name.
pub(super) const VARIABLE: &str = "environment variable ";

/// All names that begin like this are documented ones, or mistakes.
const QUOTAS: &str = "BUZZ_RATE_LIMIT_";

/// The value of a variable with a documented name.
pub(super) struct Alias {
    name: &'static str,
    key: &'static str,
    value: Value,
}

impl figment::Provider for Alias {
    fn metadata(&self) -> Metadata {
        Metadata::named(format!("{VARIABLE}{}", self.name))
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Serialized::default(self.key, &self.value).data()
    }
}

fn wrong(name: &str, why: &str) -> ConfigError {
    ConfigError::Value(format!("{VARIABLE}{name}: {why}"))
}

/// The aliases that are set.
pub(super) fn aliases() -> Result<Vec<Alias>, ConfigError> {
    let mut set = Vec::new();
    for &(name, key) in ALIASES {
        let Some(value) = env::var_os(name) else {
            continue;
        };
        let wrong = |why: &str| wrong(name, &format!("{key}: {why}"));
        let value = value.to_str().ok_or_else(|| wrong("is not UTF-8"))?;
        let value = value.trim();
        if value.is_empty() {
            return Err(wrong("is empty; leave it out to have the default"));
        }
        let other = format!("BUZZ_{}", key.replace('.', "__").to_uppercase());
        if env::var_os(&other).is_some() {
            return Err(wrong(&format!("sets the same as {other}")));
        }
        // Numbers and truth values are told from text as they are for the other names.
        let value = value.parse().unwrap_or_else(|error| match error {});
        set.push(Alias { name, key, value });
    }
    Ok(set)
}

/// Refuses variables that would be ignored silently because one of two underscores is missing, and
/// those that would be changed silently because they are not UTF-8.
pub(super) fn check_names() -> Result<(), ConfigError> {
    let defaults = toml::Table::try_from(Config::default());
    let defaults = defaults.map_err(|error| ConfigError::Value(error.to_string()))?;
    let mut keys = Vec::new();
    flatten("BUZZ", &defaults, &mut keys);
    for meant in keys {
        let written = meant.replace("__", "_");
        let is_documented = ALIASES.iter().any(|(name, _)| *name == written);
        if !is_documented && env::var_os(&written).is_some() {
            return Err(wrong(&written, &format!("unknown; did you mean {meant}?")));
        }
    }
    for (name, value) in env::vars_os() {
        let name = name.to_string_lossy();
        let is_documented = ALIASES.iter().any(|(known, _)| *known == name);
        if name.starts_with(QUOTAS) && !is_documented {
            return Err(wrong(&name, "unknown"));
        }
        if name.starts_with("BUZZ_") && name.contains("__") && value.to_str().is_none() {
            return Err(wrong(&name, "is not UTF-8"));
        }
    }
    Ok(())
}

/// The variables of all keys below `prefix`.
fn flatten(prefix: &str, table: &toml::Table, into: &mut Vec<String>) {
    // The section is set off by one underscore, what is below it by two.
    let separator = if prefix == "BUZZ" { "_" } else { "__" };
    for (key, value) in table {
        let name = format!("{prefix}{separator}{}", key.to_uppercase());
        match value {
            toml::Value::Table(table) => flatten(&name, table, into),
            _ => into.push(name),
        }
    }
}
