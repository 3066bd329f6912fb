//! The provider `environment`: variables of the process, read once at the start. What is wrong in
//! them is reported once by the variable's name; contents never reach the log.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
};

use buzz_actors::flags::{DECLARED, FlagError, FlagSource, IntegerFlag};

const PREFIX: &str = "BUZZ_FEATURE_FLAG_";

/// See the module.
pub(super) struct EnvironmentFlags {
    /// By key: the flags whose variable holds a whole number.
    values: HashMap<&'static str, i64>,
}

impl EnvironmentFlags {
    /// Reads the declared flags from `variables`.
    pub(super) fn read(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut values = HashMap::new();
        for (name, value) in variables {
            let name = name.to_string_lossy();
            if !name.starts_with(PREFIX) {
                continue;
            }
            let Some(flag) = DECLARED.iter().find(|flag| variable(flag.key) == name) else {
                tracing::warn!(variable = ?name, "no such feature flag; the variable is ignored");
                continue;
            };
            match whole_number(&value) {
                Some(number) => drop(values.insert(flag.key, number)),
                None => tracing::warn!(
                    variable = %name,
                    "not a whole number; the flag has no value"
                ),
            }
        }
        Self { values }
    }
}

/// Says which flags of the environment another provider leaves unread.
pub(super) fn warn_of_unread(variables: impl Iterator<Item = (OsString, OsString)>) {
    for (name, _) in variables {
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) {
            tracing::warn!(
                variable = ?name,
                "not read: feature_flags.provider is not \"environment\""
            );
        }
    }
}

impl FlagSource for EnvironmentFlags {
    fn provider(&self) -> &'static str {
        "environment"
    }

    fn integer(&mut self, flag: &IntegerFlag) -> Result<Option<i64>, FlagError> {
        Ok(self.values.get(flag.key).copied())
    }

    fn ready(&self) -> bool {
        true
    }
}

/// The variable of a flag: its key in upper case, each run of other characters one `_`.
fn variable(key: &str) -> String {
    let words = key.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    format!("{PREFIX}{}", words.join("_").to_ascii_uppercase())
}

fn whole_number(value: &OsStr) -> Option<i64> {
    value.to_str()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, os::unix::ffi::OsStringExt};

    use buzz_actors::flags::{AUTH, HISTORY_READS};

    use super::*;

    const HISTORY_VARIABLE: &str = "BUZZ_FEATURE_FLAG_BUZZ_RELAY_CONCURRENCY_HISTORY_READS";

    fn history(value: impl Into<OsString>) -> Option<i64> {
        let variables = [(HISTORY_VARIABLE.into(), value.into())];
        let mut flags = EnvironmentFlags::read(variables.into_iter());
        flags.integer(&HISTORY_READS).expect("always")
    }

    /// Kills: a `_` for each other character; lower case; a lost prefix.
    #[test]
    fn a_key_becomes_a_name_with_one_underscore_for_each_run_of_other_characters() {
        assert_eq!(variable(HISTORY_READS.key), HISTORY_VARIABLE);
        assert_eq!(variable("a.-_b..c1"), "BUZZ_FEATURE_FLAG_A_B_C1");
    }

    /// Kills: a flag added whose variable is another's.
    #[test]
    fn no_two_flags_share_a_variable() {
        let names: HashSet<_> = DECLARED.iter().map(|flag| variable(flag.key)).collect();
        assert_eq!(names.len(), DECLARED.len());
    }

    /// Kills: parsing as a float; 0 for what is malformed; a panic on what is no UTF-8.
    #[test]
    fn only_whole_numbers_are_values() {
        for (text, value) in [
            ("3", Some(3)),
            (" 4 ", Some(4)),
            ("0", Some(0)),
            ("-2", Some(-2)),
            ("3.7", None),
            ("3.0", None),
            ("three", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(history(text), value, "{text:?}");
        }
        assert_eq!(history(OsString::from_vec(vec![b'3', 0xff])), None);
    }

    /// Kills: one flag's value for another.
    #[test]
    fn a_flag_without_a_variable_has_no_value() {
        let variables = [(HISTORY_VARIABLE.into(), "5".into())];
        let mut flags = EnvironmentFlags::read(variables.into_iter());
        assert_eq!(flags.integer(&AUTH).expect("always"), None);
    }
}
