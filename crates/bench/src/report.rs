//! How a run ends: one JSON line on stdout for machines, a table on stderr for people.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

/// A finished run.
pub(crate) struct Outcome {
    /// Every figure.
    report: Value,
    /// Why the run does not count, where it does not.
    pub(crate) failure: Option<String>,
}

impl Outcome {
    /// Takes the mode's figures.
    ///
    /// # Errors
    /// Never: the figures are plain numbers and texts.
    pub(crate) fn new(report: &impl Serialize, failure: Option<String>) -> Result<Self> {
        let report = serde_json::to_value(report)?;
        Ok(Self { report, failure })
    }

    /// Writes both.
    pub(crate) fn print(&self) {
        eprint!("{}", table(&self.report));
        println!("{}", self.report);
    }
}

/// A line a figure; an object is one line, an object of objects one line each. What was not measured
/// (`null`) has no place in it.
fn table(report: &Value) -> String {
    let Value::Object(fields) = report else {
        return String::new();
    };
    let mut lines = String::new();
    for (name, value) in fields {
        match value {
            Value::Null => {}
            Value::Object(inner) if inner.values().any(Value::is_object) => {
                for (key, value) in inner.iter().filter(|(_, value)| !value.is_null()) {
                    push_line(&mut lines, &format!("{name}.{key}"), value);
                }
            }
            value => push_line(&mut lines, name, value),
        }
    }
    lines
}

fn push_line(lines: &mut String, name: &str, value: &Value) {
    lines.push_str(&format!("{name:<28}{}\n", cell(value)));
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(" | "),
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| match value {
                Value::Object(_) => format!("{name}({})", cell(value)),
                value => format!("{name} {}", cell(value)),
            })
            .collect::<Vec<_>>()
            .join("  "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Kills: a line or a cell for a figure that was not measured.
    #[test]
    fn the_table_has_a_line_a_figure() {
        let report = json!({
            "mode": "x",
            "rss": null,
            "latency_ms": {"p50": 1.5, "p90": null},
            "shapes": {"e": {"n": 1, "cpu": null, "latency_ms": {"p50": 2}}, "none": null},
        });
        let lines: Vec<_> = table(&report).lines().map(str::to_owned).collect();
        assert_eq!(
            lines,
            [
                "latency_ms                  p50 1.5",
                "mode                        x",
                "shapes.e                    latency_ms(p50 2)  n 1",
            ]
        );
    }
}
