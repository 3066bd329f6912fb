//! Single settings, and what is wrong with them.

use toml::Value;

/// A value that is set, and where.
pub(super) struct Setting {
    /// File and line, or variable.
    pub(super) place: String,
    pub(super) key: String,
    pub(super) value: Value,
}

/// What is wrong with one.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) place: String,
    /// Empty where there is none.
    pub(super) key: String,
    pub(super) why: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, key, why } = self;
        match key.as_str() {
            "" => write!(f, "{place}: {why}"),
            key => write!(f, "{place}: {key}: {why}"),
        }
    }
}

/// What a key is told that there is not; `meant`: what is probably meant.
pub(super) fn unknown(meant: Option<&str>) -> String {
    meant.map_or_else(
        || "unknown key".into(),
        |meant| format!("unknown key; did you mean {meant}?"),
    )
}
