//! How an error is shown: on one line, with what caused it.

use std::error::Error;

/// The texts of an error and of its sources, without those that repeat what was said.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        #[source]
        below: Option<Box<Layer>>,
    }

    fn layers(texts: &[&'static str]) -> Option<Box<Layer>> {
        let (text, rest) = texts.split_first()?;
        Some(Box::new(Layer {
            text,
            below: layers(rest),
        }))
    }

    /// Kills: a cause left out, one said twice.
    #[test]
    fn each_cause_is_shown_once() {
        for (texts, shown) in [
            (&["a"][..], "a"),
            (
                &["store", "db error", "disk full"],
                "store: db error: disk full",
            ),
            (&["store: disk full", "disk full"], "store: disk full"),
            (&["store: x", "x", "y"], "store: x: y"),
        ] {
            assert_eq!(chain(&*layers(texts).expect("one")), shown);
        }
    }
}
