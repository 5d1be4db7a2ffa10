//! The tables of an urgent query beside large results: what was published and what came of it here, by how many results
//! there were, and each arm with what it left to the background.

use crate::Style;
use crate::metric;
use crate::page::Page;
use crate::style::Tone;
use crate::table::{Cell, cells};
use backwater_model::{ArmOutcome, Outcome, ParamValue};

const MEAN: &str = "urgent_mean_ms";

/// How many results there were, and the urgent query in milliseconds without control and with the background demoted.
const PUBLISHED: [(u32, f64, f64); 5] =
    [(0, 5.048, 5.048), (1, 86.197, 11.031), (3, 165.397, 10.952), (5, 206.677, 10.64), (10, 278.875, 12.045)];

/// Modes by their name in the outcome, and what they are called in the table.
const MODES: [(&str, &str); 7] = [
    ("none", "no control"),
    ("demoted-only", "demoted only"),
    ("proxy-fixed", "proxy, fixed"),
    ("proxy-auto", "proxy, auto"),
    ("attach-fixed", "attach, fixed"),
    ("attach-auto", "attach, auto"),
    ("abort", "aborted"),
];

/// What is set for a plain arm.
const USUAL: [&str; 3] = ["mode", "background_streams", "network_bytes_per_s"];

/// Metrics of each arm that stand in the second table, with its headers.
const COLUMNS: [(&str, &str); 9] = [
    (MEAN, "mean"),
    ("urgent_p50_ms", "p50"),
    ("urgent_p99_ms", "p99"),
    ("ratio_to_alone", "× alone"),
    ("added_ms", "added"),
    ("times_better", "× better"),
    ("background_mb_per_s", "background"),
    ("link_used_ratio", "link used"),
    ("left_used_ratio", "of the rest"),
];

/// What holding the flow is to reach, beside any number of large results: the urgent query at most so many times as slow as alone, and the
/// background at least this share of what it leaves of the link.
const MOST_TIMES: f64 = 1.5;
const LEAST_LEFT: f64 = 0.85;

/// Whether a run is of an urgent query beside large results.
pub(crate) fn is_of_overload(outcome: &Outcome) -> bool {
    outcome.arms.iter().any(|arm| arm.metrics.contains_key(MEAN))
}

/// Whether a metric stands in these tables.
pub(crate) fn tells(name: &str) -> bool {
    COLUMNS.iter().any(|(known, _)| *known == name)
}

/// What one arm came to, in the words of the published table; none for an arm of another case.
pub(crate) fn seen(arm: &ArmOutcome) -> Option<String> {
    let shown = |name: &str| arm.metrics.get(name).map(|value| metric::show(name, *value));
    let mean = shown(MEAN)?;
    let times = arm.metrics.get("ratio_to_alone").map(|ratio| format!(", {ratio:.1} × alone")).unwrap_or_default();
    let background = shown("background_mb_per_s").map(|rate| format!("; background {rate}")).unwrap_or_default();
    Some(format!("{mean}{times}{background}"))
}

/// The tables.
pub(crate) fn overload(outcome: &Outcome, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading("The urgent query in milliseconds, by how many large results share its link", 0);
    page.paragraph(
        Tone::Faint,
        "In brackets how much slower it is than alone. Published: three nodes on 10 Gbit/s, sixty seconds until a rule acts.",
        0,
    );
    page.ready(&by_streams(outcome, style), 0);
    page.gap();
    page.heading("Each arm, and what it left to the background", 0);
    let headers: Vec<&str> =
        ["arm"].into_iter().chain(COLUMNS.iter().map(|(_, header)| *header)).chain(["goal"]).collect();
    let rows: Vec<Vec<Cell>> = outcome.arms.iter().filter(|arm| arm.metrics.contains_key(MEAN)).map(row).collect();
    page.ready(&cells(&headers, &rows, style), 0);
    page.paragraph(
        Tone::Faint,
        "MB are 1,000,000 bytes: of rows for the background, of packets on the wire for the link. Better: than as many \
         results without control. Of the rest: of what the urgent query alone leaves of the link.",
        0,
    );
    page.paragraph(
        Tone::Faint,
        &format!(
            "Goal, with a control that holds the results beside the query: at most {MOST_TIMES} × alone, and at least {:.0} % of \
             the rest for the background.",
            LEAST_LEFT * 100.0
        ),
        0,
    );
    page.finish()
}

fn row(arm: &ArmOutcome) -> Vec<Cell> {
    let first = Cell::new(arm.name.as_str(), Tone::Strong);
    let value = |(name, _): &(&str, &str)| Cell::from(metric::shown(arm, name).unwrap_or_else(|| "–".to_owned()));
    let goal = match reaches(arm) {
        Some(true) => Cell::new("met", Tone::Good),
        Some(false) => Cell::new("MISSED", Tone::Bad),
        None => Cell::from("–"),
    };
    [first].into_iter().chain(COLUMNS.iter().map(value)).chain([goal]).collect()
}

/// Whether an arm reaches what holding the flow is to reach; none where nothing was held, or it was not measured. What is
/// aborted leaves nothing that could fill the link.
fn reaches(arm: &ArmOutcome) -> Option<bool> {
    let Some(ParamValue::Text(mode)) = arm.params.get("mode") else { return None };
    let Some(ParamValue::Number(streams)) = arm.params.get("background_streams") else { return None };
    if matches!(mode.as_str(), "none" | "demoted-only") || *streams < 1.0 {
        return None;
    }
    let quick = *arm.metrics.get("ratio_to_alone")? <= MOST_TIMES;
    let fills = mode == "abort" || *arm.metrics.get("left_used_ratio")? >= LEAST_LEFT;
    Some(quick && fills)
}

/// A row a mode, published ones first, a column for each number of results.
fn by_streams(outcome: &Outcome, style: &Style) -> String {
    let titles: Vec<String> = PUBLISHED.iter().map(|(streams, ..)| streams.to_string()).collect();
    let headers: Vec<&str> = ["results beside it"].into_iter().chain(titles.iter().map(String::as_str)).collect();
    let faint = |name: &str, pick: fn(&(u32, f64, f64)) -> f64| -> Vec<Cell> {
        let values = PUBLISHED.iter().map(|row| Cell::new(with_times(pick(row), PUBLISHED[0].1), Tone::Faint));
        [Cell::new(name, Tone::Faint)].into_iter().chain(values).collect()
    };
    let improved = PUBLISHED.iter().map(|(_, free, demoted)| Cell::new(format!("{:.1}×", free / demoted), Tone::Faint));
    let improved = [Cell::new("published: demoted is better by", Tone::Faint)].into_iter().chain(improved).collect();
    let mut rows =
        vec![faint("published: no control", |row| row.1), faint("published: demoted", |row| row.2), improved];
    let alone = mean_of(outcome, "none", 0);
    for (mode, title) in MODES {
        let own = |(streams, ..): &(u32, f64, f64)| {
            // Where there is nothing to hold, nothing differs but the way through the proxy.
            let mean = mean_of(outcome, mode, *streams);
            let text = mean.map(|mean| alone.map_or_else(|| figure(mean), |alone| with_times(mean, alone)));
            Cell::from(text.unwrap_or_else(|| "–".to_owned()))
        };
        if PUBLISHED.iter().any(|(streams, ..)| mean_of(outcome, mode, *streams).is_some()) {
            rows.push([Cell::new(title, Tone::Strong)].into_iter().chain(PUBLISHED.iter().map(own)).collect());
        }
    }
    cells(&headers, &rows, style)
}

fn with_times(mean: f64, alone: f64) -> String {
    format!("{} ({:.1}×)", figure(mean), mean / alone)
}

fn figure(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

/// The mean of the plain arm with this mode and so many results: buffers as the host has them, the first of its kind, on a link as
/// fast as the first arm alone has it.
fn mean_of(outcome: &Outcome, mode: &str, streams: u32) -> Option<f64> {
    let is = |arm: &ArmOutcome, mode: &str, streams: u32| {
        arm.params.get("mode") == Some(&ParamValue::Text(mode.to_owned()))
            && arm.params.get("background_streams") == Some(&ParamValue::Number(f64::from(streams)))
            && arm.params.keys().all(|name| USUAL.contains(&name.as_str()))
    };
    let speed = |arm: &ArmOutcome| arm.params.get("network_bytes_per_s").cloned();
    let alone = outcome.arms.iter().find(|arm| is(arm, "none", 0)).or(outcome.arms.first())?;
    let found = outcome.arms.iter().find(|arm| is(arm, mode, streams) && speed(arm) == speed(alone));
    found?.metrics.get(MEAN).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(name: &str, mode: &str, streams: f64, mean: f64) -> ArmOutcome {
        let mut arm = ArmOutcome { name: name.to_owned(), repeats: 1, ..ArmOutcome::default() };
        arm.params.insert("mode".to_owned(), ParamValue::Text(mode.to_owned()));
        arm.params.insert("background_streams".to_owned(), ParamValue::Number(streams));
        let metrics = [
            (MEAN, mean),
            ("ratio_to_alone", mean / 5.0),
            ("background_mb_per_s", 21.5),
            ("link_used_ratio", 0.9),
            ("left_used_ratio", 0.9),
        ];
        arm.metrics.extend(metrics.map(|(name, value)| (name.to_owned(), value)));
        arm
    }

    #[test]
    fn figures_of_a_faster_link_do_not_stand_among_others() {
        let faster = |mut arm: ArmOutcome| {
            arm.params.insert("network_bytes_per_s".to_owned(), ParamValue::Number(125e6));
            arm
        };
        let arms = vec![arm("alone", "none", 0.0, 5.0), faster(arm("none-10-1g", "none", 10.0, 22.8))];
        let outcome = Outcome { scenario: "net-overload".to_owned(), arms, ..Outcome::default() };
        assert_eq!((mean_of(&outcome, "none", 0), mean_of(&outcome, "none", 10)), (Some(5.0), None));
    }

    #[test]
    fn published_rows_stand_over_ours() {
        let arms = vec![
            arm("alone", "none", 0.0, 5.0),
            arm("none-10", "none", 10.0, 250.0),
            arm("proxy-10", "proxy-fixed", 10.0, 6.0),
        ];
        let outcome = Outcome { scenario: "net-overload".to_owned(), arms, ..Outcome::default() };
        let text = overload(&outcome, &Style::plain(120));
        assert!(text.contains("279 (55.2x)") && text.contains("12.0 (2.4x)"), "{text}");
        assert!(text.contains("250 (50.0x)") && text.contains("6.0 (1.2x)"), "{text}");
        assert!(!text.contains("attach, fixed"), "{text}");
        assert!(text.contains("21.5 MB/s"), "{text}");
        assert!(text.contains("met") && !text.contains("MISSED"), "{text}");
        assert_eq!(reaches(&outcome.arms[1]), None, "nothing was held");
        assert_eq!(reaches(&arm("proxy-0", "proxy-fixed", 0.0, 5.0)), None, "nothing was there to hold");
        for streams in [1.0, 3.0, 5.0, 10.0] {
            assert_eq!(reaches(&arm("met", "proxy-auto", streams, 7.0)), Some(true), "{streams}");
            assert_eq!(reaches(&arm("missed", "proxy-auto", streams, 8.0)), Some(false), "{streams}");
        }
        let mut slow = arm("proxy-10", "proxy-fixed", 10.0, 8.0);
        assert_eq!(reaches(&slow), Some(false), "1.6 times");
        slow.params.insert("mode".to_owned(), ParamValue::Text("abort".to_owned()));
        slow.metrics.extend([("ratio_to_alone".to_owned(), 1.1), ("left_used_ratio".to_owned(), 0.0)]);
        assert_eq!(reaches(&slow), Some(true));
        slow.params.insert("mode".to_owned(), ParamValue::Text("attach-auto".to_owned()));
        assert_eq!(reaches(&slow), Some(false), "an empty link is no success");
        slow.metrics.remove("left_used_ratio");
        assert_eq!(reaches(&slow), None, "not measured");
        assert_eq!(seen(&outcome.arms[2]).as_deref(), Some("6.00 ms, 1.2 × alone; background 21.5 MB/s"));
    }
}
