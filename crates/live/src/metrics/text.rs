//! OpenMetrics text, version 1.0 (<https://prometheus.io/docs/specs/om/open_metrics_spec/>), and Prometheus' own text format
//! before it, version 0.0.4 (<https://prometheus.io/docs/instrumenting/exposition_formats/>), for whoever does not ask for that.

use std::fmt::Write;

/// How figures are spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4: it has no units and no facts, and a counter's own name ends in `_total`.
    Plain,
}

impl Format {
    /// The best of what a client's `Accept` header asks for.
    pub fn accepted(accept: &str) -> Format {
        if accept.contains("application/openmetrics-text") { Format::OpenMetrics } else { Format::Plain }
    }

    /// What the text is called on the wire.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

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
pub fn write(families: &[Family], format: Format) -> String {
    let mut out = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        one(&mut out, family, format);
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn one(out: &mut String, family: &Family, format: Format) {
    let Family { name, kind, unit, help, samples } = family;
    let (word, suffix) = match kind {
        Type::Gauge => ("gauge", ""),
        Type::Counter => ("counter", "_total"),
        Type::Info => ("info", "_info"),
    };
    let (word, named) = match (format, kind) {
        (Format::OpenMetrics, _) => (word, ""),
        (Format::Plain, Type::Info) => ("gauge", suffix),
        (Format::Plain, _) => (word, suffix),
    };
    let _never_fails = writeln!(out, "# TYPE {name}{named} {word}");
    if !unit.is_empty() && format == Format::OpenMetrics {
        let _never_fails = writeln!(out, "# UNIT {name} {unit}");
    }
    let _never_fails = writeln!(out, "# HELP {name}{named} {}", escaped(help));
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
