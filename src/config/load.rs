//! Reads the settings: the file, then the environment. Every value is tried alone first, so that
//! all mistakes are told at once, each with its place.

use std::{
    collections::HashMap,
    io::ErrorKind,
    ops::Range,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::{
    Spanned, Table, Value,
    de::{DeTable, DeValue, ValueDeserializer},
};

use super::{
    Config, ConfigError, DEFAULT_FILE, environment,
    known::Known,
    setting::{Problem, Setting, unknown},
};
use crate::{flags::Provider, text};

/// Settings that can be used.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// What is set and not used, a text each.
    pub warnings: Vec<String>,
}

pub(super) fn load(file: Option<&Path>) -> Result<Loaded, ConfigError> {
    let defaults = Table::try_from(Config::default());
    let defaults = defaults.map_err(|error| ConfigError(vec![error.to_string()]))?;
    let known = Known::of(&defaults);
    let mut problems = Vec::new();
    let mut settings = Vec::new();
    read_file(file, &known, &mut settings, &mut problems);
    environment::read(&known, &mut settings, &mut problems);

    let mut table = defaults.clone();
    let mut places = HashMap::new();
    for setting in settings {
        let Setting { place, key, value } = setting;
        let mut alone = defaults.clone();
        set(&mut alone, &key, value.clone());
        match alone.try_into::<Config>() {
            Ok(_) => {
                set(&mut table, &key, value);
                places.insert(key, place);
            }
            Err(error) => problems.push(Problem {
                place,
                key,
                why: error.message().to_owned(),
            }),
        }
    }
    let config: Config = table
        .clone()
        .try_into()
        .map_err(|error: toml::de::Error| ConfigError(vec![error.message().to_owned()]))?;
    problems.extend(config.check().into_iter().map(|(key, why)| {
        Problem {
            place: places
                .get(key)
                .cloned()
                .unwrap_or_else(|| "defaults".into()),
            key: key.to_owned(),
            why,
        }
    }));

    // What only a provider reads that is not chosen stops nobody.
    let provider = config.feature_flags.provider;
    let (unused, problems): (Vec<_>, Vec<_>) = problems
        .into_iter()
        .partition(|problem| is_unused(provider, &problem.key));
    if !problems.is_empty() {
        let texts = problems.iter().map(ToString::to_string);
        return Err(ConfigError(texts.collect()));
    }
    let mut warnings: Vec<_> = unused
        .iter()
        .map(|problem| format!("{problem}; not used: it is of another feature_flags.provider"))
        .collect();
    for (key, place) in &places {
        let is_told = unused.iter().any(|problem| problem.key == *key);
        let is_default = get(&table, key) == get(&defaults, key);
        if is_unused(provider, key) && !is_told && !is_default {
            warnings.push(format!(
                "{place}: {key}: not used: it is of another feature_flags.provider"
            ));
        }
    }
    warnings.sort();
    Ok(Loaded { config, warnings })
}

fn is_unused(provider: Provider, key: &str) -> bool {
    (provider != Provider::LaunchDarkly && key.starts_with("feature_flags.launchdarkly."))
        || (provider != Provider::File && key == "feature_flags.file")
}

fn read_file(
    file: Option<&Path>,
    known: &Known,
    settings: &mut Vec<Setting>,
    problems: &mut Vec<Problem>,
) {
    let path = file.map_or_else(|| PathBuf::from(DEFAULT_FILE), Path::to_owned);
    let path_shown = path.display().to_string();
    let text = match text::read(&path) {
        Ok(text) => text,
        Err(error) if file.is_none() && error.kind() == ErrorKind::NotFound => return,
        Err(error) => {
            return problems.push(Problem {
                place: path_shown,
                key: String::new(),
                why: error.to_string(),
            });
        }
    };
    let place = |at: usize| {
        let before = text.as_bytes().get(..at).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{path_shown}:{line}")
    };
    let (table, errors) = DeTable::parse_recoverable(&text);
    // Only the message: the whole error quotes the line, which may hold a password.
    problems.extend(errors.iter().map(|error| Problem {
        place: place(error.span().map_or(0, |span| span.start)),
        key: String::new(),
        why: error.message().to_owned(),
    }));
    // What stands behind a mistake of the syntax may be read wrongly.
    if errors.is_empty() {
        let mut walk = Walk {
            text: &text,
            place: &place,
            known,
            settings,
            problems,
        };
        walk.table("", table.get_ref());
    }
}

/// Takes a file apart into single values.
struct Walk<'a> {
    text: &'a str,
    place: &'a dyn Fn(usize) -> String,
    known: &'a Known,
    settings: &'a mut Vec<Setting>,
    problems: &'a mut Vec<Problem>,
}

impl Walk<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let key = format!("{prefix}{}", name.get_ref());
            let problem = match value.get_ref() {
                DeValue::Table(table) if self.known.is_section(&key) => {
                    self.table(&format!("{key}."), table);
                    continue;
                }
                _ if self.known.is_section(&key) => {
                    "is a section: it has keys, and no value".into()
                }
                DeValue::Table(_) if self.known.is_key(&key) => "is a key: it has a value".into(),
                _ if self.known.is_key(&key) => {
                    self.value(key, value);
                    continue;
                }
                _ => unknown(self.known.nearest(&key)),
            };
            self.problem(name.span(), key, problem);
        }
    }

    fn value(&mut self, key: String, value: &Spanned<DeValue<'_>>) {
        let text = self.text.get(value.span()).unwrap_or_default();
        let parsed = ValueDeserializer::parse(text).and_then(Value::deserialize);
        match parsed {
            Ok(parsed) => self.settings.push(Setting {
                place: (self.place)(value.span().start),
                key,
                value: parsed,
            }),
            Err(error) => self.problem(value.span(), key, error.message().to_owned()),
        }
    }

    fn problem(&mut self, at: Range<usize>, key: String, why: String) {
        let place = (self.place)(at.start);
        self.problems.push(Problem { place, key, why });
    }
}

/// Puts a value at a dotted key that the table has.
fn set(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        Some((section, rest)) => {
            if let Some(Value::Table(table)) = table.get_mut(section) {
                set(table, rest, value);
            }
        }
        None => drop(table.insert(key.to_owned(), value)),
    }
}

fn get<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((section, rest)) => get(table.get(section)?.as_table()?, rest),
        None => table.get(key),
    }
}
