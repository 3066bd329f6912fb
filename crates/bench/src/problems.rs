//! What a relay refused or did wrong during a run, counted, with the first texts as they came.

use std::collections::BTreeMap;

use buzz_protocol::refusal;
use serde::Serialize;

/// So many different texts are kept.
const MAX_TEXTS: usize = 5;

/// Counts by where it was said (`OK`, `CLOSED`, `NOTICE`, `cut`, `wrong`) and the text's prefix.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Problems {
    counts: BTreeMap<String, u64>,
    first_texts: Vec<String>,
}

impl Problems {
    /// Adds one.
    pub(crate) fn add(&mut self, source: &str, text: &str) {
        let key = match refusal::prefix(text) {
            Some(prefix) => format!("{source} {prefix}"),
            None => source.to_owned(),
        };
        *self.counts.entry(key).or_default() += 1;
        if self.first_texts.len() < MAX_TEXTS {
            let text = format!("{source}: {text}");
            if !self.first_texts.contains(&text) {
                self.first_texts.push(text);
            }
        }
    }

    /// How many came from `source`.
    #[cfg(test)]
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.counts.get(key).copied().unwrap_or_default()
    }

    /// The first text; what went wrong first is most often why the rest did.
    pub(crate) fn first(&self) -> &str {
        self.first_texts.first().map_or("nothing", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_prefix_and_their_first_texts_kept() {
        let mut problems = Problems::default();
        assert_eq!(problems.first(), "nothing");
        for n in 0..20 {
            problems.add("OK", &format!("rate-limited: retry in {n}s"));
            problems.add("OK", "no reason");
        }
        assert_eq!(problems.count("OK rate-limited"), 20);
        assert_eq!(problems.count("OK"), 20);
        assert_eq!(problems.first_texts.len(), MAX_TEXTS);
        assert_eq!(problems.first(), "OK: rate-limited: retry in 0s");
    }
}
