//! The work done for clients, second by second: the load's own count where there is one, else commits.

use crate::grid::{Grid, Lane};
use backwater_model::{Window, catalogue};
use serde::Serialize;

/// What throughput is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// Transactions that the lab's own clients saw completed.
    Transactions,
    /// Commits of all databases of all watched servers, read-only ones included.
    Commits,
}

impl Counted {
    /// The word for it, with what to keep in mind.
    pub fn label(self) -> &'static str {
        match self {
            Counted::Transactions => "transactions a second",
            Counted::Commits => "commits a second (read-only ones included)",
        }
    }
}

/// Throughput on a grid, and what is counted.
pub(crate) fn lane(window: &Window, grid: &Grid) -> (Lane, Counted) {
    lane_of(window, grid, None)
}

/// The same of one server alone, where its commits can be told apart: the lab's own count is of all.
pub(crate) fn lane_of(window: &Window, grid: &Grid, only: Option<&str>) -> (Lane, Counted) {
    if let Some(load) = window.track(catalogue::LOAD_COMPLETED.name, &[]) {
        return (grid.rate(Some(load)), Counted::Transactions);
    }
    let own: Vec<(&'static str, &str)> = only.map(|name| ("target", name)).into_iter().collect();
    let commits = window.tracks(catalogue::PG_XACT_COMMIT.name, &own).filter(|track| track.points.len() > 1);
    // A database that appears half-way must not blank the seconds before it: unknown counts as nothing here,
    // and a second in which no database is known stays a hole.
    let lanes: Vec<Lane> = commits.map(|track| grid.rate(Some(track))).collect();
    let sum = grid.lane(|second| lanes.iter().filter_map(|lane| lane.get(second)).reduce(|a, b| a + b));
    (sum, Counted::Commits)
}

/// Throughput of a window: the start of each whole second, in seconds since the window's begin, and units a
/// second. Seconds without readings are left out.
pub fn throughput(window: &Window) -> Vec<(f64, f64)> {
    let grid = Grid::of(window);
    let (lane, _) = lane(window, &grid);
    lane.0.iter().enumerate().filter_map(|(second, value)| Some((second as f64, (*value)?))).collect()
}

/// Mean latency in milliseconds on a grid, from the intended start; known only under the lab's own load.
pub(crate) fn latency_ms(window: &Window, grid: &Grid) -> Lane {
    let total = grid.rate(window.track(catalogue::LOAD_LATENCY_US.name, &[]));
    let count = grid.rate(window.track(catalogue::LOAD_COMPLETED.name, &[]));
    let mean = total.with(&count, |total, count| if count > 0.0 { total / count / 1e3 } else { f64::NAN });
    Lane(mean.0.into_iter().map(|value| value.filter(|ms| ms.is_finite())).collect())
}
