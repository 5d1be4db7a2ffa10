//! The fixed metrics of one repeat of one arm, read from the recording: one file for each thing that an experiment may
//! have (a load, a volume, a standby), so that a scenario's metrics follow from its parts.

pub(crate) mod commits;
mod dirty;
mod engine;
pub(crate) mod foretold;
mod heartbeat;
mod lag;
mod load;
pub(crate) mod overload;
mod retention;
#[cfg(test)]
mod testing;

use crate::workloads::LoadResult;
use backwater_model::{ArmTable, Finding, Moment, Window, catalogue};
use std::collections::BTreeMap;

pub use dirty::dirty_levels;
pub use load::throughput;

/// How much of a run's beginning a prediction may look at, in seconds.
pub const SEEN_S: f64 = 3.0;

/// When one repeat of an arm loaded the server and when it was over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phases {
    /// The load began, with all limits in force and nothing dirty.
    pub load_start: Moment,
    /// The last transaction was asked for.
    pub load_end: Moment,
    /// Nothing more was waited for.
    pub end: Moment,
}

/// What metrics are read from.
pub(crate) struct Seen<'a> {
    /// The recording from a little before the load until nothing more was waited for.
    pub(crate) window: &'a Window,
    pub(crate) phases: Phases,
    pub(crate) load: &'a LoadResult,
    /// What the load itself noted over time.
    pub(crate) table: Option<&'a ArmTable>,
    /// Name of the loaded server in the recording.
    pub(crate) primary: &'a str,
    /// Name of its standby, where it has one.
    pub(crate) standby: Option<&'a str>,
    /// `MAJ:MIN` of its volume, where it has one of its own.
    pub(crate) device: Option<&'a str>,
    pub(crate) findings: &'a [Finding],
}

/// All metrics that a repeat could measure, by their fixed names.
pub(crate) fn of_arm(seen: &Seen<'_>) -> Metrics {
    let mut metrics = Metrics::default();
    // Only a load of commits in batches counts its rows.
    let batches = seen.window.track(catalogue::LOAD_ROWS.name, &[]).is_some();
    if batches {
        commits::measure(seen, &mut metrics);
    } else {
        load::measure(seen, &mut metrics);
    }
    load::processors(seen, &mut metrics);
    if let Some(device) = seen.device.filter(|_| !batches) {
        dirty::measure(seen, device, &mut metrics);
    }
    engine::measure(seen, &mut metrics);
    if seen.standby.is_some() {
        lag::measure(seen, &mut metrics);
        heartbeat::measure(seen, &mut metrics);
        retention::measure(seen, &mut metrics);
    }
    metrics
}

/// Metrics of one repeat: numbers with their unit at the end of the name, words, and shares of a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) numbers: BTreeMap<String, f64>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) shares: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Metrics {
    fn put(&mut self, name: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.numbers.insert(name.to_owned(), value);
        }
    }

    pub(crate) fn label(&mut self, name: &str, text: impl Into<String>) {
        self.labels.insert(name.to_owned(), text.into());
    }

    /// How far a prediction was off, as a share of what was measured.
    fn error_of(&mut self, name: &str, predicted: &str, measured: &str) {
        if let (Some(predicted), Some(measured)) = (self.numbers.get(predicted), self.numbers.get(measured))
            && *measured > 0.0
        {
            let error = (predicted - measured).abs() / measured;
            self.put(name, Some(error));
        }
    }
}

/// The median of the values; none where there is none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
