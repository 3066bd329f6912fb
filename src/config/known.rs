//! The keys that there are, and which of them somebody meant.

use toml::{Table, Value};

/// Less alike than this is no slip of the pen.
const ALIKE: f64 = 0.85;
/// The right key in the wrong section.
const ELSEWHERE: f64 = 0.95;

/// The keys of all settings, from a table that holds each.
pub(super) struct Known {
    keys: Vec<String>,
    sections: Vec<String>,
}

impl Known {
    pub(super) fn of(defaults: &Table) -> Self {
        let mut known = Self {
            keys: Vec::new(),
            sections: Vec::new(),
        };
        known.add("", defaults);
        known
    }

    fn add(&mut self, prefix: &str, table: &Table) {
        for (name, value) in table {
            let key = format!("{prefix}{name}");
            match value {
                Value::Table(table) => {
                    self.add(&format!("{key}."), table);
                    self.sections.push(key);
                }
                _ => self.keys.push(key),
            }
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    pub(super) fn is_key(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    pub(super) fn is_section(&self, key: &str) -> bool {
        self.sections.iter().any(|known| known == key)
    }

    /// What was probably meant by a key that there is not.
    pub(super) fn nearest(&self, key: &str) -> Option<&str> {
        let name = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        let score = |known: &str| {
            let alike = strsim::jaro_winkler(key, known);
            let is_elsewhere = name(key) == name(known);
            if is_elsewhere {
                alike.max(ELSEWHERE)
            } else {
                alike
            }
        };
        let all = self.keys.iter().chain(&self.sections);
        let scored = all.map(|known| (score(known), known.as_str()));
        let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
        best.filter(|(score, _)| *score >= ALIKE)
            .map(|(_, known)| known)
    }
}
