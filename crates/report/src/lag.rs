//! The tables and plots of a run with a standby: how far it fell behind hop by hop, arm by arm and over time, in the
//! published columns and units (WAL generated in bytes × 0.001 a second, delays in bytes ÷ 1024).

use crate::Style;
use crate::metric;
use crate::page::Page;
use crate::plot::{Curve, Panel, panels};
use crate::style::Tone;
use crate::table::{Cell, cells};
use backwater_model::{ArmOutcome, ArmTable, Outcome, Unit};

/// The most rows of readings over time that are shown of one arm; those in between are left out evenly.
const MOST_ROWS: usize = 12;
const GENERATED: &str = "wal_generated_kb_per_s";
/// The hops in the order in which WAL goes, and what people call them.
const HOPS: [(&str, &str); 4] =
    [("sent_delay", "sent"), ("write_delay", "written"), ("flush_delay", "flushed"), ("replay_delay", "replayed")];

/// Whether a run has a standby whose lag was measured.
pub(crate) fn is_of_lag(outcome: &Outcome) -> bool {
    outcome.arms.iter().any(|arm| arm.metrics.contains_key(GENERATED))
}

/// Whether a metric stands in the table of lags.
pub(crate) fn tells(name: &str) -> bool {
    let of_hop = |(hop, _): &(&str, &str)| name.starts_with(hop) && name.ends_with("_kb");
    name == GENERATED || name.starts_with("heartbeat_") || HOPS.iter().any(of_hop)
}

/// What one arm came to, in the words of the published table; none for an arm without a standby.
pub(crate) fn seen(arm: &ArmOutcome) -> Option<String> {
    let generated = metric::show(GENERATED, *arm.metrics.get(GENERATED)?);
    let peak = |hop: &str| arm.metrics.get(&format!("{hop}_kb")).map(|value| metric::show("_kb", *value));
    let said = HOPS.iter().filter_map(|(hop, name)| Some(format!("{name} {}", peak(hop)?)));
    let said: Vec<String> = said.collect();
    let delays = if said.is_empty() { "no position of the standby".to_owned() } else { said.join(", ") };
    Some(format!("WAL {generated}; peak delays: {delays}"))
}

/// The table of all arms, then each arm over time.
pub(crate) fn lag(outcome: &Outcome, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading("How far the standby fell behind: peak, then last, in KB", 0);
    let arms: Vec<&ArmOutcome> = outcome.arms.iter().filter(|arm| arm.metrics.contains_key(GENERATED)).collect();
    let headers = ["arm", "generated", "sent", "written", "flushed", "replayed"];
    page.ready(&cells(&headers, &arms.iter().map(|arm| delays(arm)).collect::<Vec<_>>(), style), 0);
    page.gap();
    page.heading("What bound, and what a failover manager would have seen", 0);
    let headers = ["arm", "found", "binding queue", "heartbeat p99", "missed"];
    page.ready(&cells(&headers, &arms.iter().map(|arm| bound(arm)).collect::<Vec<_>>(), style), 0);
    ahead(&mut page, &arms, style);
    for arm in arms {
        if let Some(table) = arm.table.as_ref().filter(|table| !table.rows.is_empty()) {
            page.gap();
            over_time(&mut page, arm, table, style);
        }
    }
    page.finish()
}

fn delays(arm: &ArmOutcome) -> Vec<Cell> {
    let value = |name: &str| arm.metrics.get(name).map(|value| metric::show(name, *value));
    let hop = |(hop, _): &(&str, &str)| {
        let (peak, last) = (value(&format!("{hop}_kb")), value(&format!("{hop}_last_kb")));
        let bare = |text: String| text.trim_end_matches(" KB").to_owned();
        peak.zip(last).map_or("–".to_owned(), |(peak, last)| format!("{}, {}", bare(peak), bare(last)))
    };
    let first = Cell::new(arm.name.as_str(), Tone::Strong);
    let generated = Cell::from(value(GENERATED).unwrap_or_else(|| "–".to_owned()));
    [first, generated].into_iter().chain(HOPS.iter().map(|one| Cell::from(hop(one)))).collect()
}

fn bound(arm: &ArmOutcome) -> Vec<Cell> {
    let label = |name: &str| arm.labels.get(name).map_or("none", String::as_str);
    let found = match (label("rule"), label("cause")) {
        ("none", _) => "nothing".to_owned(),
        (rule, cause) => format!("{rule} ({cause})"),
    };
    let value = |name: &str| arm.metrics.get(name).map(|value| metric::show(name, *value));
    let known = |value: Option<String>| Cell::from(value.unwrap_or_else(|| "–".to_owned()));
    // A beat without an answer took the time-out, or longer.
    let bounded = arm.metrics.contains_key("heartbeat_unanswered");
    let p99 = value("heartbeat_p99_ms").map(|p99| if bounded { format!("at least {p99}") } else { p99 });
    vec![
        Cell::new(arm.name.as_str(), Tone::Strong),
        Cell::from(found),
        Cell::from(label("binding_queue").to_owned()),
        known(p99),
        known(value("heartbeat_missed")),
    ]
}

/// When it was told that the heartbeat is at risk, beside what a failover manager saw; nothing where no arm had it at risk.
fn ahead(page: &mut Page<'_>, arms: &[&ArmOutcome], style: &Style) {
    let names = ["heartbeat_told_after_s", "heartbeat_missed_after_s", "heartbeat_lost_after_s"];
    let row = |arm: &&ArmOutcome| {
        let values = names.map(|name| metric::shown(arm, name));
        values.iter().any(Option::is_some).then(|| {
            let never = |value: Option<String>| Cell::from(value.unwrap_or_else(|| "never".to_owned()));
            std::iter::once(Cell::new(arm.name.as_str(), Tone::Strong)).chain(values.map(never)).collect()
        })
    };
    let rows: Vec<Vec<Cell>> = arms.iter().filter_map(row).collect();
    if rows.is_empty() {
        return;
    }
    page.gap();
    page.heading("Heartbeat at risk: after so much of the load; told by what was known then", 0);
    page.ready(&cells(&["arm", "told", "first missed", "third in a row missed"], &rows, style), 0);
}

/// The published columns as they went, as a table and as a plot.
fn over_time(page: &mut Page<'_>, arm: &ArmOutcome, table: &ArmTable, style: &Style) {
    page.heading(&format!("Arm {} over time", arm.name), 0);
    let shown = evenly(table.rows.len(), MOST_ROWS);
    let rows: Vec<Vec<Cell>> = shown.iter().map(|place| row(&table.rows[*place])).collect();
    let headers = ["at", "generated KB/s", "sent delay KB", "write delay KB", "flush delay KB", "replay delay KB"];
    page.ready(&cells(&headers, &rows, style), 0);
    if shown.len() < table.rows.len() {
        let text = format!("{} of {} calls are shown; outcome.json has them all.", shown.len(), table.rows.len());
        page.paragraph(Tone::Faint, &text, 0);
    }
    page.gap();
    page.ready(&panels(&[generated(table), behind(table)], &[], style), 0);
}

fn row(values: &[Option<f64>]) -> Vec<Cell> {
    let number = |value: &Option<f64>| value.map_or("–".to_owned(), |value| Unit::Count.show(value.round()));
    let at = values.first().copied().flatten().map_or("–".to_owned(), |at| Unit::Seconds.show(at));
    [Cell::from(at)].into_iter().chain(values.iter().skip(1).map(|value| Cell::from(number(value)))).collect()
}

/// Places of at most `most` of so many rows, the first and the last among them.
fn evenly(rows: usize, most: usize) -> Vec<usize> {
    if rows <= most {
        return (0..rows).collect();
    }
    (0..most).map(|place| place * (rows - 1) / (most - 1)).collect()
}

fn generated(table: &ArmTable) -> Panel {
    let curve = curve(table, GENERATED, "generated", Unit::BytesPerSecond, 1_000.0);
    Panel { title: "WAL generated".to_owned(), curves: vec![curve], limits: Vec::new() }
}

fn behind(table: &ArmTable) -> Panel {
    let curves = HOPS.iter().map(|(hop, name)| curve(table, &format!("{hop}_kb"), name, Unit::Bytes, 1_024.0));
    Panel { title: "Not yet".to_owned(), curves: curves.collect(), limits: Vec::new() }
}

fn curve(table: &ArmTable, column: &str, label: &str, unit: Unit, factor: f64) -> Curve {
    let place = table.columns.iter().position(|name| name == column);
    let point = |row: &Vec<Option<f64>>| {
        let at = row.first().copied().flatten()?;
        // A reading that is missing breaks the line.
        Some((at, place.and_then(|place| row.get(place).copied().flatten()).map_or(f64::NAN, |value| value * factor)))
    };
    Curve { label: label.to_owned(), unit, points: table.rows.iter().filter_map(point).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome;
    use crate::samples_for_tests::{STYLES, wal_lag_outcome};
    use crate::text::width;

    #[test]
    fn a_run_with_a_standby_is_shown_hop_by_hop_and_over_time() {
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("lag_{name}"), outcome(&wal_lag_outcome(), &style));
        }
    }

    #[test]
    fn beats_without_an_answer_make_their_p99_a_lower_bound() {
        let mut outcome = wal_lag_outcome();
        let shown = |outcome: &Outcome| lag(outcome, &Style::plain(160)).matches("at least 41.0 ms").count();
        assert_eq!(shown(&outcome), 0);
        outcome.arms[0].metrics.insert("heartbeat_unanswered".to_owned(), 3.0);
        assert_eq!(shown(&outcome), 1);
    }

    #[test]
    fn when_a_heartbeat_was_at_risk_is_told_of_arms_that_had_it() {
        let mut outcome = wal_lag_outcome();
        let style = Style::plain(100);
        assert!(!lag(&outcome, &style).contains("at risk"));
        let (told, missed) = ("heartbeat_told_after_s".to_owned(), "heartbeat_missed_after_s".to_owned());
        let arm = &mut outcome.arms[0];
        arm.repeats = 3;
        arm.metrics.extend([(told.clone(), 3.0), (missed.clone(), 7.0)]);
        arm.spread.extend([(told, [2.0, 5.0]), (missed.clone(), [7.0, 7.0])]);
        arm.measured_in.insert(missed, 1);
        let text = lag(&outcome, &style);
        let row = text.lines().skip_while(|line| !line.contains("at risk")).nth(3).unwrap_or_default();
        let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells[1..], ["3.00 s (2.00 - 5.00)", "7.00 s (1 of 3 runs)", "never"], "{text}");
    }

    #[test]
    fn a_long_run_shows_its_first_its_last_and_some_between() {
        assert_eq!(evenly(3, 12), [0, 1, 2]);
        let places = evenly(100, 12);
        assert_eq!((places.len(), places[0], places[11]), (12, 0, 99));
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(evenly(0, 12).is_empty());
    }

    #[test]
    fn no_line_is_wider_than_the_style() {
        for columns in [20, 40, 80, 120] {
            let text = lag(&wal_lag_outcome(), &Style::plain(columns));
            let widest = text.lines().max_by_key(|line| width(line)).unwrap_or_default();
            assert!(width(widest) <= columns, "{columns}: {widest}");
        }
    }
}
