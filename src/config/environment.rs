//! Settings from the environment: `BUZZ_<SECTION>__<KEY>`, and names that operators know from
//! elsewhere. Names that are nearly right are mistakes, and no other program's.

use std::env;

use serde::Deserialize;
use toml::{Value, de::ValueDeserializer};

use super::{
    aliases::ALIASES,
    known::Known,
    setting::{Problem, Setting, unknown},
};

/// All names that begin like this are documented ones, or mistakes.
const QUOTAS: &str = "BUZZ_RATE_LIMIT_";

/// Adds what is set. Names with a section take precedence over the file.
pub(super) fn read(known: &Known, settings: &mut Vec<Setting>, problems: &mut Vec<Problem>) {
    for key in known.keys() {
        // For want of one of two underscores it would be ignored in silence.
        let (meant, written) = (variable(key), variable(key).replace("__", "_"));
        if !is_alias(&written) && env::var_os(&written).is_some() {
            problems.push(problem(&written, "", unknown(Some(&meant))));
        }
    }
    let mut names: Vec<_> = env::vars_os().collect();
    names.sort();
    for (name, value) in names {
        let name = name.to_string_lossy();
        if let Some((_, key)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
            let checked = match value.to_str().map(str::trim) {
                None => Err("is not UTF-8".to_owned()),
                Some("") => Err("is empty; leave it out to have the default".to_owned()),
                Some(_) if env::var_os(variable(key)).is_some() => {
                    Err(format!("sets the same as {}", variable(key)))
                }
                Some(value) => Ok(parse(value)),
            };
            match checked {
                Ok(value) => settings.push(setting(&name, key, value)),
                Err(why) => problems.push(problem(&name, key, why)),
            }
        } else if name.starts_with(QUOTAS) {
            problems.push(problem(&name, "", "unknown".into()));
        } else if let Some(rest) = name
            .strip_prefix("BUZZ_")
            .filter(|rest| rest.contains("__"))
        {
            let key = rest.replace("__", ".").to_lowercase();
            match value.to_str() {
                _ if !known.is_key(&key) => {
                    let meant = known.nearest(&key).map(variable);
                    problems.push(problem(&name, &key, unknown(meant.as_deref())));
                }
                None => problems.push(problem(&name, &key, "is not UTF-8".into())),
                Some(value) => settings.push(setting(&name, &key, parse(value))),
            }
        }
    }
}

/// The variable of a key.
fn variable(key: &str) -> String {
    format!("BUZZ_{}", key.replace('.', "__").to_uppercase())
}

fn is_alias(name: &str) -> bool {
    ALIASES.iter().any(|(alias, _)| *alias == name)
}

fn place(name: &str) -> String {
    format!("environment variable {name}")
}

fn setting(name: &str, key: &str, value: Value) -> Setting {
    let (place, key) = (place(name), key.to_owned());
    Setting { place, key, value }
}

fn problem(name: &str, key: &str, why: String) -> Problem {
    let (place, key) = (place(name), key.to_owned());
    Problem { place, key, why }
}

/// Numbers, truth values and lists are told from text as TOML tells them.
fn parse(text: &str) -> Value {
    let text = text.trim();
    let parsed = ValueDeserializer::parse(text).and_then(Value::deserialize);
    match parsed {
        Ok(Value::Datetime(_) | Value::Table(_)) | Err(_) => Value::String(text.to_owned()),
        Ok(value) => value,
    }
}
