//! How far a standby fell behind, hop by hop, and what bound.
//!
//! Units are the published ones: WAL generated in bytes × 0.001 a second, delays in bytes ÷ 1024.

use super::{Metrics, Seen};
use backwater_model::{ArmTable, Moment, Severity, Track, Window, catalogue};

/// Bytes in the KB in which WAL generated is told, and in that of delays.
pub(crate) const GENERATED_KB: f64 = 1_000.0;
pub(crate) const DELAY_KB: f64 = 1_024.0;
/// How old a position of the primary may be to be held beside one of the standby, in seconds.
const TOGETHER_S: f64 = 2.0;

/// The hops, by the names of their metrics, and the position that ends each.
const HOPS: [(&str, &catalogue::Def); 4] = [
    ("sent_delay", &catalogue::PG_REPL_SENT),
    ("write_delay", &catalogue::PG_REPL_WRITE),
    ("flush_delay", &catalogue::PG_REPL_FLUSH),
    ("replay_delay", &catalogue::PG_REPL_REPLAY),
];

pub(super) fn measure(seen: &Seen<'_>, into: &mut Metrics) {
    let loaded = seen.window.slice(seen.phases.load_start, seen.phases.load_end);
    let insert = loaded.track(catalogue::PG_WAL_INSERT.name, &[("target", seen.primary)]);
    into.put("wal_generated_kb_per_s", insert.and_then(Track::rate).map(|bytes| bytes / GENERATED_KB));
    for (name, position) in HOPS {
        let noted = seen.table.map(|table| column(table, &format!("{name}_kb"))).filter(|values| !values.is_empty());
        let values = noted.unwrap_or_else(|| delays_kb(&loaded, seen.primary, position));
        into.put(&format!("{name}_kb"), values.iter().copied().reduce(f64::max));
        into.put(&format!("{name}_last_kb"), values.last().copied());
    }
    // Findings come surest and most upstream first.
    let first = seen.findings.iter().find(|finding| finding.severity >= Severity::Warning);
    into.label("rule", first.map_or("none", |finding| &finding.rule));
    into.label("cause", first.map_or("none", |finding| &finding.cause));
    into.label("binding_queue", first.map_or("none", |finding| &finding.queue));
}

/// What the load noted under this name, where it could read it.
fn column(table: &ArmTable, name: &str) -> Vec<f64> {
    let Some(place) = table.columns.iter().position(|column| column == name) else { return Vec::new() };
    table.rows.iter().filter_map(|row| row.get(place).copied().flatten()).collect()
}

/// Insert position minus the standby's, in KB, at each reading of the latter. Where a standby came back under another
/// name there are several tracks; the time of each reading puts them in order.
fn delays_kb(window: &Window, primary: &str, position: &catalogue::Def) -> Vec<f64> {
    let labels = [("target", primary)];
    let Some(insert) = window.track(catalogue::PG_WAL_INSERT.name, &labels) else { return Vec::new() };
    let mut readings: Vec<(Moment, f64)> = Vec::new();
    for track in window.tracks(position.name, &labels) {
        let behind = |point: &backwater_model::Point| Some(insert.at(point.at, TOGETHER_S)?.value - point.value);
        readings.extend(track.points.iter().filter_map(|point| Some((point.at, behind(point)?.max(0.0) / DELAY_KB))));
    }
    readings.sort_by_key(|(at, _)| *at);
    readings.into_iter().map(|(_, delay)| delay).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::testing::points;
    use backwater_model::{Meta, Point};
    use std::sync::Arc;

    fn window(series: Vec<(backwater_model::Series, Vec<Point>)>) -> Window {
        let series = series.into_iter().map(|(series, points)| (Arc::new(series), points)).collect();
        Window::new(Moment(0), Moment(60_000_000), Arc::new(Meta::default()), series, Vec::new(), Vec::new())
    }

    #[test]
    fn delays_are_behind_the_insert_position_at_the_same_time_and_never_negative() {
        let target = [("target", "p")];
        let standby = |name| [("target", "p"), ("standby", name)];
        let window = window(vec![
            (catalogue::PG_WAL_INSERT.series(&target), points([(1, 10_240.0), (2, 20_480.0), (9, 30_720.0)])),
            (catalogue::PG_REPL_SENT.series(&standby("s#1")), points([(1, 10_240.0), (2, 10_240.0)])),
            // A reading with no position of the primary near it says nothing; one ahead of it is no delay.
            (catalogue::PG_REPL_SENT.series(&standby("s#2")), points([(7, 0.0), (9, 40_000.0)])),
        ]);
        assert_eq!(delays_kb(&window, "p", &catalogue::PG_REPL_SENT), [0.0, 10.0, 0.0]);
        assert!(delays_kb(&window, "other", &catalogue::PG_REPL_SENT).is_empty());
    }

    #[test]
    fn what_could_not_be_read_is_left_out() {
        let table = ArmTable {
            columns: vec!["at_s".to_owned(), "sent_delay_kb".to_owned()],
            rows: vec![vec![Some(1.0), Some(5.0)], vec![Some(2.0), None]],
        };
        assert_eq!(column(&table, "sent_delay_kb"), [5.0]);
        assert!(column(&table, "replay_delay_kb").is_empty());
    }
}
