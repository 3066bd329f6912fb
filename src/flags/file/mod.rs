//! The provider `file`: a TOML file with lines such as `"flag.key" = 4`, read anew at each refresh.
//! A file that is missing, broken or still being written changes nothing: the last good values stay
//! in force. What is wrong is said once for each change of its state, not at each refresh.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use buzz_actors::flags::{DECLARED, FlagError, FlagSource, IntegerFlag};

use crate::text;

/// A file that has changed must be the same after this time: an editor that empties a file and
/// then fills it, or fills it piece by piece, must not lift a cap in between.
const SETTLED: Duration = Duration::from_millis(100);
/// After so many changes in a row the next refresh tries again.
const READS: usize = 5;
/// A larger file is none of ours.
const MAX_BYTES: u64 = 64 * 1024;

/// By key; `None` where the value is no whole number.
type Values = BTreeMap<String, Option<i64>>;

/// See the module.
pub(super) struct FileFlags {
    path: PathBuf,
    /// The text that `values` come from, and what it says: the last good one.
    good: Option<(String, Values)>,
    /// What was wrong at the last refresh.
    trouble: Option<String>,
    /// What was complained about in values, so that it is said once while it stays wrong.
    reported: BTreeSet<String>,
}

impl FileFlags {
    /// Reads nothing yet.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            good: None,
            trouble: None,
            reported: BTreeSet::new(),
        }
    }

    /// The file's text, once it is the same twice in a row or the same as the last good one.
    fn read(&self) -> Result<String, String> {
        let mut text = read(&self.path)?;
        for _ in 0..READS {
            if self.good.as_ref().is_some_and(|(good, _)| *good == text) {
                return Ok(text);
            }
            thread::sleep(SETTLED);
            let again = read(&self.path)?;
            if again == text {
                return Ok(text);
            }
            text = again;
        }
        Err("it is being written all the time".into())
    }

    fn load(&mut self) -> Result<(), String> {
        let text = self.read()?;
        if self.good.as_ref().is_none_or(|(good, _)| *good != text) {
            let values = parse(&text)?;
            self.report(&values);
            self.good = Some((text, values));
        }
        Ok(())
    }

    /// Names what an operator has probably mistyped.
    fn report(&mut self, values: &Values) {
        let mut wrong = BTreeSet::new();
        for (key, value) in values {
            let why = if !DECLARED.iter().any(|flag| flag.key == key) {
                "no such feature flag; the line is ignored"
            } else if value.is_none() {
                "not a whole number; the flag has no value"
            } else {
                continue;
            };
            if !self.reported.contains(key) {
                tracing::warn!(file = %self.path.display(), ?key, "{why}");
            }
            wrong.insert(key.clone());
        }
        self.reported = wrong;
    }
}

impl FlagSource for FileFlags {
    fn provider(&self) -> &'static str {
        "file"
    }

    fn refresh(&mut self) {
        let trouble = self.load().err();
        if trouble != self.trouble {
            let file = self.path.display();
            match (&trouble, &self.good) {
                (Some(why), Some(_)) => tracing::warn!(
                    %file, why, "feature flags can't be read: the last good values stay in force"
                ),
                (Some(why), None) => tracing::warn!(
                    %file, why, "feature flags can't be read: no flag has a value yet"
                ),
                (None, _) => tracing::info!(%file, "feature flags can be read again"),
            }
            self.trouble = trouble;
        }
    }

    fn integer(&mut self, flag: &IntegerFlag) -> Result<Option<i64>, FlagError> {
        let values = self.good.as_ref().map(|(_, values)| values);
        Ok(values.and_then(|values| values.get(flag.key).copied().flatten()))
    }

    fn ready(&self) -> bool {
        self.good.is_some()
    }
}

fn read(path: &Path) -> Result<String, String> {
    // A pipe would be waited for without an end.
    let meta = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !meta.is_file() {
        return Err("not a file".into());
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("larger than {MAX_BYTES} bytes"));
    }
    text::decode(bytes).map_err(|error| error.to_string())
}

/// The values of a file, keys quoted or not: `"a.b" = 1` and `a.b = 1` are the same flag.
fn parse(text: &str) -> Result<Values, String> {
    // An editor has emptied it and not filled it yet. Who wants no flags leaves a comment.
    if text.trim().is_empty() {
        return Err("it is empty; a comment makes an empty file one that is meant so".into());
    }
    let table: toml::Table = toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        // Not the whole error: it would quote the line.
        format!("line {line}: {}", error.message())
    })?;
    let mut values = Values::new();
    flatten("", table, &mut values)?;
    Ok(values)
}

fn flatten(prefix: &str, table: toml::Table, values: &mut Values) -> Result<(), String> {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        if let toml::Value::Table(table) = value {
            flatten(&format!("{key}."), table, values)?;
        } else if values.insert(key.clone(), value.as_integer()).is_some() {
            return Err(format!("{key:?} stands there twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
