//! What is measured: a name, a unit, a kind and labels.

use crate::Unit;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// How the values of a series behave in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A running total: only its differences mean something, and only inside one epoch.
    Counter,
    /// A level, read at one instant.
    Gauge,
    /// A running total of one bucket of a histogram, named by the label `le` (its upper edge), as in OpenMetrics.
    Histogram,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Read as it stands from the kernel or the server.
    #[default]
    Read,
    /// Computed from other readings.
    Derived,
    /// Not the value itself but a bound on it.
    Bound,
    /// Said by a person, as the rating of a cloud volume.
    Declared,
}

/// Label names and values, sorted by name. Displayed and stored as `name=value,name=value`, with `\`, `,` and
/// `=` in a value escaped by `\`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(Vec<(Cow<'static, str>, String)>);

impl Labels {
    /// No labels.
    pub fn none() -> Self {
        Labels::default()
    }

    /// Labels from pairs in any order.
    pub fn of<V: fmt::Display>(pairs: &[(&'static str, V)]) -> Self {
        let mut list: Vec<_> = pairs.iter().map(|(name, value)| (Cow::Borrowed(*name), value.to_string())).collect();
        list.sort();
        Labels(list)
    }

    /// The value of one label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// Names and values in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, value)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

/// One thing measured over time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Series {
    /// Dotted name, from [`catalogue`](crate::catalogue) for everything Backwater itself knows.
    pub name: Cow<'static, str>,
    /// Unit of every value.
    pub unit: Unit,
    /// Counter, gauge or histogram bucket.
    pub kind: Kind,
    /// What it is of: device, process, slot…
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Read, derived, a bound, or declared.
    #[serde(default)]
    pub provenance: Provenance,
}

/// A series' number in the [`Registry`](crate::Registry) of one run or recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SeriesId(
    /// Position in the registry, from 0.
    pub u32,
);
