//! OpenMetrics text, version 1.0 (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use std::fmt::Write;

/// What the text is called on the wire.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How a family's values behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A level.
    Gauge,
    /// A running total; its samples' names end in `_total`.
    Counter,
    /// Facts as labels; its samples' names end in `_info`.
    Info,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values, in the order in which they are written.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

/// Values of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Name, which ends in the unit.
    pub name: &'static str,
    /// How its values behave.
    pub kind: Type,
    /// The unit: the last part of the name; empty where there is none.
    pub unit: &'static str,
    /// What it is, in a line.
    pub help: &'static str,
    /// The values.
    pub samples: Vec<Sample>,
}

/// The text of these families. Those without samples are left out, and of samples with the same labels all but the first.
pub fn write(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        one(&mut out, family);
    }
    out.push_str("# EOF\n");
    out
}

fn one(out: &mut String, family: &Family) {
    let Family { name, kind, unit, help, samples } = family;
    let (word, suffix) = match kind {
        Type::Gauge => ("gauge", ""),
        Type::Counter => ("counter", "_total"),
        Type::Info => ("info", "_info"),
    };
    let _never_fails = writeln!(out, "# TYPE {name} {word}");
    if !unit.is_empty() {
        let _never_fails = writeln!(out, "# UNIT {name} {unit}");
    }
    let _never_fails = writeln!(out, "# HELP {name} {}", escaped(help));
    let mut told: Vec<&[(&'static str, String)]> = Vec::new();
    for sample in samples.iter().filter(|sample| sample.value.is_finite()) {
        if told.contains(&sample.labels.as_slice()) {
            continue;
        }
        told.push(&sample.labels);
        let labels: Vec<String> =
            sample.labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _never_fails = writeln!(out, "{name}{suffix}{labels} {}", sample.value);
    }
}

/// A text as it stands between quotes, or in a help line.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace(['\r', '\0'], " ")
}
