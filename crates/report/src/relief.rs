//! Which of the engine's queues a setting relieved, and which it filled: an arm's own figures beside those of the arm that has
//! not got the setting. Told is only what lies outside the spread of both.

use crate::Style;
use crate::metric;
use crate::page::Page;
use backwater_model::{ArmOutcome, Outcome};

/// A queue by a figure that rises with it; below `least` in both arms nothing stood there.
struct Queue {
    words: &'static str,
    metric: &'static str,
    least: f64,
}

const QUEUES: [Queue; 5] = [
    Queue { words: "dirty pages of the cache", metric: "cache_dirty_peak_ratio", least: 0.02 },
    Queue { words: "application threads that evict", metric: "app_evict_share", least: 0.01 },
    Queue { words: "threads that wait for a page another has", metric: "page_wait_share", least: 0.01 },
    Queue { words: "what a checkpoint begins with", metric: "burst_bytes", least: 16.0 * MIB },
    Queue { words: "the page cache", metric: "dirty_peak_bytes", least: 16.0 * MIB },
];
/// What clients see of it all.
const FELT: Queue = Queue { words: "latency p99", metric: "latency_p99_ms", least: 1.0 };
const MIB: f64 = 1_048_576.0;

/// How far apart two medians must be beside spreads that do not touch: a smaller change changes nothing for anybody.
const APART: f64 = 4.0 / 3.0;
/// Spreads of two repeats lie apart by chance one time in three.
const LEAST_REPEATS: usize = 3;

/// A paragraph an arm that is compared with another; nothing where none is.
pub(crate) fn told(page: &mut Page<'_>, outcome: &Outcome, style: &Style) {
    let of = |name: &String| outcome.arms.iter().find(|arm| arm.name == *name);
    let pairs: Vec<_> = outcome
        .arms
        .iter()
        .filter_map(|arm| Some((arm, of(arm.beside.as_ref()?)?)))
        .filter(|(arm, other)| arm.repeats.min(other.repeats) >= LEAST_REPEATS)
        .collect();
    if pairs.is_empty() {
        return;
    }
    page.gap();
    page.heading("Queues that each setting relieves or fills (outside both spreads, and 4/3 times apart)", 0);
    for (arm, other) in pairs {
        page.bullet(&sentence(arm, other, style), 2);
    }
}

fn sentence(arm: &ArmOutcome, other: &ArmOutcome, style: &Style) -> String {
    let moved = |fuller: bool| {
        let told = QUEUES.iter().filter(|queue| queue.moved(arm, other) == Some(fuller));
        told.map(|queue| queue.change(arm, other, style)).collect::<Vec<_>>().join(", ")
    };
    let parts = [("relieves", moved(false)), ("fills", moved(true))];
    let mut told: Vec<String> =
        parts.into_iter().filter(|(_, list)| !list.is_empty()).map(|(word, list)| format!("{word} {list}")).collect();
    if told.is_empty() {
        told.push("no queue is clearly fuller or emptier".to_owned());
    }
    told.push(match FELT.moved(arm, other) {
        Some(_) => FELT.change(arm, other, style),
        None => "latency p99 not clearly another".to_owned(),
    });
    format!("{}, beside {}: {}.", arm.name, other.name, told.join("; "))
}

impl Queue {
    /// Whether there is clearly more of it (or clearly less) than in the other arm; none where neither is clear.
    fn moved(&self, arm: &ArmOutcome, other: &ArmOutcome) -> Option<bool> {
        let of = |arm: &ArmOutcome| Some((*arm.metrics.get(self.metric)?, *arm.spread.get(self.metric)?));
        let ((now, [least, most]), (before, [least_before, most_before])) = (of(arm)?, of(other)?);
        if now.max(before) < self.least {
            return None;
        }
        let fuller = least > most_before && now > APART * before;
        let emptier = most < least_before && before > APART * now;
        (fuller || emptier).then_some(fuller)
    }

    fn change(&self, arm: &ArmOutcome, other: &ArmOutcome, style: &Style) -> String {
        let shown = |arm: &ArmOutcome| {
            arm.metrics.get(self.metric).map_or_else(String::new, |it| metric::show(self.metric, *it))
        };
        format!("{} {} {} {}", self.words, shown(other), style.sign("→", "->"), shown(arm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(name: &str, figures: &[(&str, [f64; 3])]) -> ArmOutcome {
        let own = |(metric, [_, median, _]): &(&str, [f64; 3])| ((*metric).to_owned(), *median);
        let span = |(metric, [least, _, most]): &(&str, [f64; 3])| ((*metric).to_owned(), [*least, *most]);
        ArmOutcome {
            name: name.to_owned(),
            metrics: figures.iter().map(own).collect(),
            spread: figures.iter().map(span).collect(),
            repeats: 3,
            ..ArmOutcome::default()
        }
    }

    fn text(arms: Vec<ArmOutcome>) -> String {
        let style = Style::plain(200);
        let mut page = Page::new(&style);
        told(&mut page, &Outcome { arms, ..Outcome::default() }, &style);
        page.finish()
    }

    #[test]
    fn only_what_lies_outside_both_spreads_is_told() {
        let base = arm(
            "defaults",
            &[
                ("app_evict_share", [0.0, 0.0, 0.001]),
                ("burst_bytes", [280.0 * MIB, 300.0 * MIB, 310.0 * MIB]),
                ("dirty_peak_bytes", [200.0 * MIB, 210.0 * MIB, 220.0 * MIB]),
                ("cache_dirty_peak_ratio", [0.001, 0.002, 0.003]),
                ("latency_p99_ms", [300.0, 312.0, 390.0]),
            ],
        );
        let small = arm(
            "small",
            &[
                ("app_evict_share", [0.5, 0.6, 0.7]),
                ("burst_bytes", [30.0 * MIB, 40.0 * MIB, 50.0 * MIB]),
                // Touches the other's spread; and what is next to nothing in both.
                ("dirty_peak_bytes", [100.0 * MIB, 110.0 * MIB, 205.0 * MIB]),
                ("cache_dirty_peak_ratio", [0.010, 0.011, 0.012]),
                ("latency_p99_ms", [3_250.0, 6_670.0, 6_990.0]),
            ],
        );
        let shown = text(vec![base.clone(), ArmOutcome { beside: Some("defaults".to_owned()), ..small.clone() }]);
        for part in [
            "small, beside defaults: relieves what a checkpoint begins with 300 MiB",
            "fills application threads that evict 0 %",
            "latency p99 312 ms",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("page cache") && !shown.contains("dirty pages"), "{shown}");
        let again = ArmOutcome { name: "again".to_owned(), beside: Some("defaults".to_owned()), ..base.clone() };
        assert!(
            text(vec![base.clone(), again])
                .contains("no queue is clearly fuller or emptier; latency p99 not clearly another")
        );
        // What is relieved may be the wait for a page alone.
        let waiting = |name: &str, share: [f64; 3]| arm(name, &[("page_wait_share", share)]);
        let few = ArmOutcome { beside: Some("many".to_owned()), ..waiting("few", [0.10, 0.12, 0.14]) };
        let shown = text(vec![waiting("many", [0.6, 0.7, 0.8]), few]);
        assert!(shown.contains("few, beside many: relieves threads that wait for a page another has 70"), "{shown}");
        // Without a spread nothing is claimed, nor of an arm that did not run.
        let once = ArmOutcome { beside: Some("defaults".to_owned()), repeats: 1, ..small.clone() };
        assert_eq!(text(vec![base.clone(), once]).trim(), "");
        assert_eq!(text(vec![base, ArmOutcome { beside: Some("gone".to_owned()), ..small }]).trim(), "");
    }
}
