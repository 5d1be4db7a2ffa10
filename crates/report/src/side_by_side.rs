//! Two runs of a scenario, metric by metric.

use crate::Style;
use crate::metric;
use crate::page::Page;
use crate::style::Tone;
use crate::table::{Cell, cells};
use backwater_model::{ArmOutcome, Outcome};

/// Each arm that both runs have: medians before and after with their spread, and whether the spreads overlap, in which
/// case the difference may be chance. Arms of one run only are named.
pub fn outcomes_side_by_side(before: &Outcome, after: &Outcome, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading(&title(before, after), 0);
    if before.machine != after.machine {
        page.paragraph(Tone::Warning, "The machines differ, and so may the figures for that reason alone.", 0);
    }
    for arm in &before.arms {
        if let Some(other) = after.arms.iter().find(|other| other.name == arm.name) {
            page.gap();
            page.heading(&format!("Arm {}", arm.name), 0);
            page.ready(&compared(arm, other, style), 0);
        }
    }
    page.gap();
    only_in(&mut page, "before", before, after);
    only_in(&mut page, "after", after, before);
    page.finish()
}

fn title(before: &Outcome, after: &Outcome) -> String {
    if before.scenario == after.scenario {
        format!("Scenario {}: before and after", before.scenario)
    } else {
        format!("Scenario {} before, {} after", before.scenario, after.scenario)
    }
}

fn compared(before: &ArmOutcome, after: &ArmOutcome, style: &Style) -> String {
    let names = metric::sorted(before.metrics.keys().chain(after.metrics.keys()).map(String::as_str));
    let shown = |arm: &ArmOutcome, name: &str| Cell::from(metric::shown(arm, name).unwrap_or_else(|| "–".to_owned()));
    let row = |name: &&str| {
        let change = before
            .metrics
            .get(*name)
            .zip(after.metrics.get(*name))
            .and_then(|(before, after)| metric::change(*before, *after));
        vec![
            Cell::from(metric::label(name)),
            shown(before, name),
            shown(after, name),
            Cell::new(change.unwrap_or_else(|| "–".to_owned()), Tone::Strong),
            Cell::new(verdict(before, after, name), Tone::Faint),
        ]
    };
    let rows: Vec<Vec<Cell>> = names.iter().map(row).collect();
    cells(&["metric", "before", "after", "change", "spreads"], &rows, style)
}

/// What the spreads say about a difference. One repeat has no spread and says nothing.
fn verdict(before: &ArmOutcome, after: &ArmOutcome, name: &str) -> &'static str {
    match (before.spread.get(name), after.spread.get(name)) {
        _ if before.repeats < 2 || after.repeats < 2 => "",
        (Some([low, high]), Some([other_low, other_high])) if low <= other_high && other_low <= high => "overlap",
        (Some(_), Some(_)) => "apart",
        _ => "",
    }
}

fn only_in(page: &mut Page<'_>, when: &str, one: &Outcome, other: &Outcome) {
    let missing = |arm: &&ArmOutcome| !other.arms.iter().any(|other| other.name == arm.name);
    let names: Vec<&str> = one.arms.iter().filter(missing).map(|arm| arm.name.as_str()).collect();
    if !names.is_empty() {
        page.paragraph(Tone::Faint, &format!("Only {when}: {}", names.join(", ")), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::stampede_outcome;

    #[test]
    fn two_runs_are_compared_arm_by_arm() {
        let before = stampede_outcome();
        let mut after = stampede_outcome();
        after.arms[0].metrics.insert("drain_s".to_owned(), 3.1);
        after.arms[0].spread.insert("drain_s".to_owned(), [3.0, 3.3]);
        after.arms.remove(1);
        insta::assert_snapshot!(outcomes_side_by_side(&before, &after, &Style::plain(80)));
    }
}
