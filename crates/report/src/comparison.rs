//! A comparison of two windows for people: each figure before and after, and whether the change is clear of the noise.

use crate::Style;
use crate::metric;
use crate::page::Page;
use crate::style::Tone;
use crate::table::{Cell, cells};
use backwater_diagnose::{Change, Comparison, Measure};
use backwater_model::{Finding, Unit};
use std::collections::BTreeMap;

/// Figures, findings that went and came, and doubts.
pub fn comparison(comparison: &Comparison, style: &Style) -> String {
    let mut page = Page::new(style);
    let [before, after] = comparison.seconds.map(|seconds| Unit::Seconds.show(seconds));
    page.heading(&format!("Before ({before}) and after ({after})"), 0);
    page.gap();
    let known = comparison.changes.iter().filter(|change| change.before.is_some() || change.after.is_some());
    let rows: Vec<Vec<Cell>> = known.map(row).collect();
    if rows.is_empty() {
        page.paragraph(Tone::Plain, "Neither window has a figure to compare.", 0);
    } else {
        page.ready(&cells(&["", "before", "after", "change", "clear of the noise"], &rows, style), 0);
        let text = "Brackets: where the true mean lies, about 19 times in 20. A change is clear where they are apart.";
        page.paragraph(Tone::Faint, text, 0);
    }
    findings(&mut page, comparison, style);
    if !comparison.doubts.is_empty() {
        page.gap();
        page.heading("Doubts about this comparison", 0);
        for doubt in &comparison.doubts {
            page.bullet(doubt, 2);
        }
    }
    page.finish()
}

fn row(change: &Change) -> Vec<Cell> {
    let clear = match change.clear {
        Some(true) => Cell::new("yes", Tone::Strong),
        Some(false) => Cell::new("no", Tone::Faint),
        None => Cell::from("not known"),
    };
    let share = match (change.before, change.after, change.change_ratio) {
        (Some(before), Some(after), Some(_)) => metric::change(before.value, after.value),
        _ => None,
    };
    vec![
        Cell::from(change.label.as_str()),
        shown(change.before, change.unit),
        shown(change.after, change.unit),
        Cell::new(share.unwrap_or_else(|| "–".to_owned()), Tone::Strong),
        clear,
    ]
}

fn shown(measure: Option<Measure>, unit: Unit) -> Cell {
    let Some(measure) = measure else { return Cell::from("–") };
    let value = unit.show(measure.value);
    match measure.interval {
        Some([low, high]) => {
            let span = metric::span(&value, &unit.show(low), &unit.show(high));
            Cell::from(format!("{value} [{span}]"))
        }
        None => Cell::from(value),
    }
}

/// Which findings are gone, which are new, which stay; of servers that were not seen it is not known.
fn findings(page: &mut Page<'_>, comparison: &Comparison, style: &Style) {
    let names = |list: &[Finding]| -> BTreeMap<String, Option<String>> {
        let name = |finding: &Finding| {
            let server = finding.server.as_ref().map(|server| format!(" of {server}")).unwrap_or_default();
            (format!("{} ({}) {}{server}", finding.rule, finding.cause, finding.queue), finding.server.clone())
        };
        list.iter().map(name).collect()
    };
    let (before, after) = (names(&comparison.findings_before), names(&comparison.findings_after));
    page.gap();
    page.heading("Findings", 0);
    if before.is_empty() && after.is_empty() {
        page.paragraph(Tone::Plain, "none before, none after", 2);
    }
    let is_seen = |window: usize, server: &Option<String>| {
        server.as_ref().is_none_or(|server| !comparison.unseen[window].contains(server))
    };
    for (gone, server) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
        match is_seen(1, server) {
            true => page.hanging(Tone::Good, style.sign("✓ gone   ", "gone     "), gone, 2),
            false => page.hanging(Tone::Plain, "? unseen ", &format!("{gone}: that server was not seen after"), 2),
        }
    }
    for (new, server) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
        match is_seen(0, server) {
            true => page.hanging(Tone::Bad, style.sign("✗ new    ", "NEW      "), new, 2),
            false => {
                let new = format!("{new}: that server was not seen before");
                page.hanging(Tone::Bad, style.sign("✗ found  ", "FOUND    "), &new, 2);
            }
        }
    }
    for stays in before.keys().filter(|name| after.contains_key(*name)) {
        page.hanging(Tone::Warning, style.sign("▲ stays  ", "stays    "), stays, 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::{MIB, STYLES, finding};

    fn measure(value: f64, error: Option<f64>) -> Option<Measure> {
        Some(Measure { value, interval: error.map(|error| [value - error, value + error]) })
    }

    fn change(label: &str, unit: Unit, before: Option<Measure>, after: Option<Measure>, clear: Option<bool>) -> Change {
        let both = before.zip(after);
        Change {
            name: label.replace(' ', "_"),
            label: label.to_owned(),
            unit,
            before,
            after,
            change_ratio: both.map(|(before, after)| (after.value - before.value) / before.value),
            clear,
        }
    }

    fn example() -> Comparison {
        let apart = (measure(3_050.0, Some(120.0)), measure(1_780.0, Some(30.0)));
        Comparison {
            seconds: [120.0, 118.0],
            changes: vec![
                change("transactions a second", Unit::PerSecond, apart.0, apart.1, Some(true)),
                change("dirty, at most", Unit::Bytes, measure(290.0 * MIB, None), measure(49.0 * MIB, None), None),
                change("first lasting fall of throughput", Unit::Seconds, measure(12.0, None), None, None),
                change("mean latency", Unit::Milliseconds, None, None, None),
            ],
            findings_before: vec![finding()],
            findings_after: vec![],
            unseen: [vec![], vec![]],
            doubts: vec!["The windows differ.".to_owned()],
        }
    }

    #[test]
    fn changes_say_whether_they_are_clear() {
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("comparison_{name}"), comparison(&example(), &style));
        }
    }

    #[test]
    fn findings_that_came_are_told_from_those_that_went() {
        let mut other = example();
        other.findings_after = vec![Finding { queue: "host.dirty@8:0".to_owned(), ..finding() }];
        let text = comparison(&other, &Style::plain(80));
        assert!(text.contains("gone     dirty-throttle (device-limit) host.dirty@7:0"), "{text}");
        assert!(text.contains("NEW      dirty-throttle (device-limit) host.dirty@8:0"), "{text}");
        // The server of the one was not seen after, that of the other is the same and was seen before.
        other.unseen = [vec![], vec!["db".to_owned()]];
        let of = |queue: &str| Finding { server: Some("db".to_owned()), queue: queue.to_owned(), ..finding() };
        other.findings_before = vec![of("pg.commit"), finding()];
        other.findings_after = vec![of("pg.checkpoint")];
        let text = comparison(&other, &Style::plain(200));
        assert!(
            text.contains("? unseen dirty-throttle (device-limit) pg.commit of db: that server was not seen"),
            "{text}"
        );
        assert!(text.contains("gone     dirty-throttle (device-limit) host.dirty@7:0"), "{text}");
        assert!(text.contains("NEW      dirty-throttle (device-limit) pg.checkpoint of db"), "{text}");
        other.unseen = [vec!["db".to_owned()], vec![]];
        assert!(
            comparison(&other, &Style::plain(200))
                .contains("FOUND    dirty-throttle (device-limit) pg.checkpoint of db")
        );
    }

    #[test]
    fn nothing_to_compare_is_said() {
        let nothing = Comparison {
            seconds: [0.0, f64::NAN],
            changes: vec![],
            findings_before: vec![],
            findings_after: vec![],
            unseen: [vec![], vec![]],
            doubts: vec![],
        };
        assert!(comparison(&nothing, &Style::plain(80)).contains("Neither window has a figure"));
    }
}
