//! The table of a run of commits in batches: elapsed time and who waited on what, a row for each batch size; what a row and a
//! commit cost; and what else could be turned, with what each gained here and what it risks.

use crate::Style;
use crate::metric;
use crate::page::Page;
use crate::style::Tone;
use crate::table::{Cell, cells};
use backwater_model::{ArmOutcome, BETWEEN_WORDS, Outcome, ParamValue, SESSION_SHARES, Unit};
use std::collections::BTreeMap;

/// Columns of waits, and the share that a wait must have in some arm to get one.
const MOST_WAITS: usize = 5;
const LEAST_SHARE: f64 = 0.01;
/// How many samples of the load's sessions there were, those in no statement included.
pub(crate) const SESSION_SAMPLES: &str = "session_samples";
/// Lines for the sessions of an arm.
const MOST_OF_SESSIONS: usize = 4;
/// Characters that the other columns take, and one of waits.
const ROOM_OF_OTHERS: usize = 66;
const ROOM_OF_ONE: usize = 14;
/// How the ratio of a setting's arm to the plain one is called.
const GAIN: &str = "_rows_per_s_ratio";

/// Settings that an operator can turn, and what each risks.
const RISKS: &[(&str, &str, &str)] = &[
    (
        "synchronous_commit",
        "off",
        "a crash loses up to 3 × wal_writer_delay (0.6 s) of acknowledged commits, in order and without corruption",
    ),
    ("synchronous_commit", "local", "a failover loses commits that the standby does not have yet"),
    (
        "synchronous_commit",
        "remote_write",
        "a crash of the standby's host with a failover loses what it had not flushed",
    ),
    ("synchronous_commit", "on", "none is lost; every commit waits for the standby's flush as well"),
    ("synchronous_commit", "remote_apply", "none is lost; every commit waits for the standby's replay as well"),
    ("commit_delay", "", "every commit waits so much longer; it pays only where several sessions commit at once"),
    ("wal_compression", "", "none for the data; it costs processor time, and saves WAL only in full-page images"),
    (
        "write_iops",
        "",
        "none for the data; every commit waits its turn under the cap; without it whoever shares the device gets less",
    ),
];

/// Whether a run is of commits in batches.
pub(crate) fn is_of_commits(outcome: &Outcome) -> bool {
    outcome.arms.iter().any(|arm| size(arm).is_some())
}

/// Whether a figure of the whole run stands in the sentences below the table.
pub(crate) fn tells(name: &str) -> bool {
    ["cost_", "client_cost_", "knee_", "left_out_", "round_trip_"].iter().any(|start| name.starts_with(start))
        || name.ends_with(GAIN)
}

/// The table and what follows from it.
pub(crate) fn commits(outcome: &Outcome, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading("Rows a commit: elapsed time, and what sessions were seen in (samples, share)", 0);
    let mut arms: Vec<&ArmOutcome> = outcome.arms.iter().filter(|arm| size(arm).is_some()).collect();
    arms.sort_by(|a, b| {
        is_special(a).cmp(&is_special(b)).then(size(b).unwrap_or(0.0).total_cmp(&size(a).unwrap_or(0.0)))
    });
    let waits = waits(&arms, style);
    let fixed = ["arm", "rows a commit", "elapsed", "rows/s", "commits", "on CPU"];
    let headers: Vec<&str> = fixed.into_iter().chain(waits.iter().map(String::as_str)).collect();
    let rows: Vec<Vec<Cell>> = arms.iter().map(|arm| row(arm, &waits)).collect();
    page.ready(&cells(&headers, &rows, style), 0);
    if let Some(most) = rounds(&arms) {
        let text = format!(
            "Elapsed time and commits are those of one round: rows that were in too soon to be diagnosed went in again, up to \
             {most:.0} times. Samples are of all rounds."
        );
        page.paragraph(Tone::Faint, &text, 0);
    }
    sessions(&mut page, &arms, style);
    costs(&mut page, outcome);
    gains(&mut page, outcome, style);
    page.finish()
}

/// How often the rows of an arm went in at most; none where once.
fn rounds(arms: &[&ArmOutcome]) -> Option<f64> {
    arms.iter().filter_map(|arm| arm.metrics.get("rounds").copied()).reduce(f64::max).filter(|rounds| *rounds >= 1.5)
}

fn size(arm: &ArmOutcome) -> Option<f64> {
    match arm.params.get("rows_per_commit") {
        Some(ParamValue::Number(rows)) => Some(*rows),
        _ => None,
    }
}

/// Whether something other than the batch was varied.
fn is_special(arm: &ArmOutcome) -> bool {
    arm.params.keys().any(|name| name != "rows_per_commit")
}

/// The waits that matter in some arm, the largest first, being on CPU apart.
fn waits(arms: &[&ArmOutcome], style: &Style) -> Vec<String> {
    let room = style.columns().saturating_sub(ROOM_OF_OTHERS) / ROOM_OF_ONE;
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    for (wait, share) in arms.iter().filter_map(|arm| arm.shares.get("wait_shares")).flatten() {
        let known = most.entry(wait).or_default();
        *known = known.max(*share);
    }
    let mut list: Vec<(&str, f64)> =
        most.into_iter().filter(|(wait, share)| *wait != "on CPU" && *share >= LEAST_SHARE).collect();
    list.sort_by(|a, b| b.1.total_cmp(&a.1));
    list.into_iter().take(room.clamp(1, MOST_WAITS)).map(|(wait, _)| wait.to_owned()).collect()
}

fn row(arm: &ArmOutcome, waits: &[String]) -> Vec<Cell> {
    let value = |name: &str| metric::shown(arm, name).unwrap_or_else(|| "–".to_owned());
    let share = |wait: &str| {
        let share = arm.shares.get("wait_shares").and_then(|shares| shares.get(wait));
        Cell::from(share.map_or("–".to_owned(), |share| counted(arm, *share)))
    };
    let first = [
        Cell::new(arm.name.as_str(), Tone::Strong),
        Cell::from(size(arm).map_or("–".to_owned(), |rows| Unit::Count.show(rows))),
        Cell::from(value("elapsed_s")),
        Cell::from(arm.metrics.get("rows_per_s").map_or("–".to_owned(), |rows| Unit::Count.show(*rows))),
        Cell::from(arm.metrics.get("commits").map_or("–".to_owned(), |count| Unit::Count.show(*count))),
        share("on CPU"),
    ];
    first.into_iter().chain(waits.iter().map(|wait| share(wait))).collect()
}

/// What sessions were seen in, by state, wait and statement, as the published tables have it: a line for each that matters.
fn sessions(page: &mut Page<'_>, arms: &[&ArmOutcome], style: &Style) {
    let rows: Vec<Vec<Cell>> = arms.iter().flat_map(|arm| session_rows(arm)).collect();
    if rows.is_empty() {
        return;
    }
    page.gap();
    page.heading("Sessions of the load by state, wait and statement (samples, share)", 0);
    page.ready(&cells(&["arm", "seen", "state", "wait", "statement"], &rows, style), 0);
}

fn session_rows(arm: &ArmOutcome) -> Vec<Vec<Cell>> {
    let mut list: Vec<(&String, &f64)> = arm.shares.get(SESSION_SHARES).into_iter().flatten().collect();
    list.retain(|(_, share)| **share >= LEAST_SHARE);
    list.sort_by(|a, b| b.1.total_cmp(a.1));
    let row = |(place, (words, share)): (usize, (&String, &f64))| {
        // Told once: what follows is of the same arm.
        let arm_name = if place == 0 { arm.name.as_str() } else { "" };
        let first = [Cell::new(arm_name, Tone::Strong), Cell::from(of_samples(arm, SESSION_SAMPLES, *share))];
        first.into_iter().chain(words.splitn(3, BETWEEN_WORDS).map(Cell::from)).collect()
    };
    list.into_iter().take(MOST_OF_SESSIONS).enumerate().map(row).collect()
}

fn counted(arm: &ArmOutcome, share: f64) -> String {
    of_samples(arm, "samples", share)
}

/// `346 (88.7 %)`.
fn of_samples(arm: &ArmOutcome, samples: &str, share: f64) -> String {
    let shown = Unit::Ratio.show(share);
    match arm.metrics.get(samples) {
        Some(samples) => format!("{:.0} ({shown})", samples * share),
        None => shown,
    }
}

/// An arm of such a run in the words of the published table.
pub(crate) fn seen(arm: &ArmOutcome) -> Option<String> {
    let shares = arm.shares.get("wait_shares")?;
    let mut list: Vec<(&String, &f64)> = shares.iter().collect();
    list.sort_by(|a, b| (b.0 == "on CPU").cmp(&(a.0 == "on CPU")).then(b.1.total_cmp(a.1)));
    let waits: Vec<String> = list
        .iter()
        .filter(|(_, share)| **share >= LEAST_SHARE)
        .map(|(wait, share)| format!("{wait} {}", counted(arm, **share)))
        .collect();
    Some(format!("{}; {}", Unit::Seconds.show(*arm.metrics.get("elapsed_s")?), waits.join(", ")))
}

fn costs(page: &mut Page<'_>, outcome: &Outcome) {
    let figure = |name: &str| outcome.outcome.get(name).copied();
    let Some((row, commit)) = figure("cost_per_row_us").zip(figure("cost_per_commit_ms")) else { return };
    let error = |name: &str, unit: Unit| figure(name).map_or(String::new(), |error| format!(" ± {}", unit.show(error)));
    page.gap();
    page.bullet(
        &format!(
            "A row costs {}{}, a commit {}{}; that explains the runs to {}.",
            Unit::Microseconds.show(row),
            error("cost_per_row_error_us", Unit::Microseconds),
            Unit::Milliseconds.show(commit),
            error("cost_per_commit_error_ms", Unit::Milliseconds),
            figure("cost_error_ratio").map_or("an unknown part".to_owned(), |ratio| Unit::Ratio.show(ratio)),
        ),
        0,
    );
    if let Some(knee) = figure("knee_rows") {
        page.bullet(&knee_text(knee, &figure), 0);
    }
    if let Some(off) = figure("left_out_error_ratio") {
        let text = "Each size predicted from the others was off by at most";
        page.bullet(
            &format!("{text} {} (the smallest and largest, which no others enclose, apart).", Unit::Ratio.show(off)),
            0,
        );
    }
    if let Some(trip) = figure("round_trip_us").filter(|trip| *trip > 0.0) {
        let text = "From the client a row costs as much more as a round trip:";
        page.bullet(&format!("{text} {}.", Unit::Microseconds.show(trip)), 0);
    }
}

fn knee_text(knee: f64, figure: &impl Fn(&str) -> Option<f64>) -> String {
    let count = |rows: f64| Unit::Count.show(rows);
    let mut text = format!(
        "The knee: of the sizes run, {} rows a commit is the smallest within 5 % of the best time",
        count(knee)
    );
    if let Some(sure) = figure("knee_confidence_ratio") {
        text.push_str(&format!(", in {} of the runs drawn anew", Unit::Ratio.show(sure)));
    }
    if let Some((least, most)) =
        figure("knee_least_rows").zip(figure("knee_most_rows")).filter(|(least, most)| least < most)
    {
        text.push_str(&format!(" (nine in ten between {} and {})", count(least), count(most)));
    }
    if let Some(cost) = figure("cost_knee_rows") {
        text.push_str(&format!("; by the costs it is {}", count(cost)));
    }
    text + "."
}

/// What else was turned: what it gained here, and its risk.
fn gains(page: &mut Page<'_>, outcome: &Outcome, style: &Style) {
    let mut rows = Vec::new();
    for arm in &outcome.arms {
        let Some(ratio) = outcome.outcome.get(&format!("{}{GAIN}", arm.name)) else { continue };
        let set = |(name, value): (&String, &ParamValue)| match name.as_str() {
            "standby_delay_ms" => format!("the standby {} away", metric::param(name, value)),
            _ => format!("{name} = {}", metric::param(name, value)),
        };
        let special =
            arm.params.iter().filter(|(name, _)| !matches!(name.as_str(), "rows_per_commit" | "clients" | "side"));
        rows.push(vec![
            Cell::new(arm.name.as_str(), Tone::Strong),
            Cell::from(special.clone().map(set).collect::<Vec<_>>().join(", ")),
            Cell::from(metric::change(1.0, *ratio).unwrap_or_default()),
            Cell::from(special.filter_map(|(name, value)| risk(name, value)).collect::<Vec<_>>().join("; ")),
        ]);
    }
    if rows.is_empty() {
        return;
    }
    page.gap();
    page.heading("What else can be turned: rows a second beside the arm with as many rows a commit", 0);
    page.ready(&cells(&["arm", "set", "gain", "risk"], &rows, style), 0);
}

fn risk(name: &str, value: &ParamValue) -> Option<&'static str> {
    let text = match value {
        ParamValue::Text(text) => text.as_str(),
        _ => "",
    };
    let fits = |(setting, of, _): &&(&str, &str, &str)| *setting == name && (of.is_empty() || *of == text);
    RISKS.iter().find(fits).map(|(_, _, risk)| *risk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::STYLES;
    use crate::text::width;

    fn arm(name: &str, size: f64, elapsed_s: f64, waits: &[(&str, f64)], set: &[(&str, &str)]) -> ArmOutcome {
        let metrics = [
            ("elapsed_s", elapsed_s),
            ("rows_per_s", 200_000.0 / elapsed_s),
            ("commits", 200_000.0 / size),
            ("samples", elapsed_s * 10.0),
            (SESSION_SAMPLES, elapsed_s * 10.0),
        ];
        let shares = waits.iter().map(|(wait, share)| ((*wait).to_owned(), *share)).collect();
        let words = |wait: &str| ["active", wait, "call backwater.insert_rows($1, $2)"].join(BETWEEN_WORDS);
        let sessions = waits.iter().map(|(wait, share)| (words(wait), *share)).collect();
        let settings = set.iter().map(|(name, value)| ((*name).to_owned(), ParamValue::Text((*value).to_owned())));
        ArmOutcome {
            name: name.to_owned(),
            params: settings.chain([("rows_per_commit".to_owned(), ParamValue::Number(size))]).collect(),
            metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
            shares: [("wait_shares".to_owned(), shares), (SESSION_SHARES.to_owned(), sessions)].into(),
            repeats: 1,
            ..ArmOutcome::default()
        }
    }

    fn run() -> Outcome {
        let figures = [
            ("cost_per_row_us", 13.2),
            ("cost_per_row_error_us", 0.4),
            ("cost_per_commit_ms", 0.61),
            ("cost_per_commit_error_ms", 0.02),
            ("cost_error_ratio", 0.03),
            ("knee_rows", 2_000.0),
            ("knee_confidence_ratio", 0.94),
            ("knee_least_rows", 200.0),
            ("knee_most_rows", 2_000.0),
            ("cost_knee_rows", 924.0),
            ("left_out_error_ratio", 0.05),
            ("round_trip_us", 41.0),
            ("rows-20-async_rows_per_s_ratio", 3.2),
        ];
        Outcome {
            scenario: "commit-wait".to_owned(),
            arms: vec![
                arm("rows-20", 20.0, 8.7, &[("on CPU", 0.3), ("IO:WALSync", 0.62), ("IO:WALWrite", 0.08)], &[]),
                arm("rows-200000", 200_000.0, 2.7, &[("on CPU", 0.97), ("IO:WALWrite", 0.03)], &[]),
                arm("rows-20-async", 20.0, 2.8, &[("on CPU", 1.0)], &[("synchronous_commit", "off")]),
            ],
            outcome: figures.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Outcome::default()
        }
    }

    #[test]
    fn a_run_is_told_as_the_published_one_with_costs_gains_and_risks() {
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("commits_{name}"), commits(&run(), &style));
        }
        assert!(is_of_commits(&run()));
        assert!(!is_of_commits(&Outcome::default()));
    }

    #[test]
    fn a_device_that_is_held_back_has_a_risk_too() {
        let told = risk("write_iops", &ParamValue::Number(500.0));
        assert!(told.is_some_and(|risk| risk.contains("every commit waits")), "{told:?}");
        assert_eq!(risk("rows_per_commit", &ParamValue::Number(20.0)), None);
    }

    #[test]
    fn no_line_is_wider_than_the_style() {
        for columns in [20, 40, 61, 80, 120, 200] {
            let text = commits(&run(), &Style::plain(columns));
            assert!(text.lines().all(|line| width(line) <= columns), "{columns}: {text}");
        }
    }
}
