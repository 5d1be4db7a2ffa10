//! What the runs come to: right, wrong, not reproduced; proportions with their intervals, and who was taken for whom.

use super::deed::{Deed, not_tried};
use crate::scenario::ServerKind;
use backwater_model::{Finding, Severity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Its place in the order of runs, from 1.
    pub number: usize,
    /// What was done.
    pub deed: Deed,
    /// What was set, in words.
    pub set: Vec<String>,
    /// Whether it really happened, by the kernel's counters and the servers' positions.
    pub reproduced: bool,
    /// The figures that follows from; or why the run could not be done.
    pub because: String,
    /// Rule and cause of every finding of warning or worse, in the order in which they are told.
    pub found: Vec<(String, String)>,
    /// The same of what is only worth knowing.
    pub noted: Vec<(String, String)>,
    /// Directory of its recording, beside the state; none where it was thrown away.
    pub recording: Option<String>,
    /// The stretch of the recording that was diagnosed, in Unix microseconds.
    pub stretch_unix_us: Option<[i64; 2]>,
    /// How long the whole run took, in seconds.
    pub took_s: f64,
}

/// Whether a run speaks for or against the diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first finding names the cause; or nothing was wrong, and nothing was found.
    Right,
    /// It does not.
    Wrong,
    /// What was to happen did not, so the run says nothing.
    NotReproduced,
}

impl Judged {
    /// The verdict: only the first finding counts.
    pub fn verdict(&self) -> Verdict {
        let first = self.found.first().map(|(rule, cause)| (rule.as_str(), cause.as_str()));
        match first {
            _ if !self.reproduced => Verdict::NotReproduced,
            Some(first) if self.deed.answers().contains(&first) => Verdict::Right,
            None if self.deed.is_harmless() => Verdict::Right,
            _ => Verdict::Wrong,
        }
    }

    /// What was found first, as `rule/cause`; `nothing` where nothing was.
    pub fn answer(&self) -> String {
        self.found.first().map_or_else(|| "nothing".to_owned(), pair)
    }
}

pub(super) fn pair((rule, cause): &(String, String)) -> String {
    format!("{rule}/{cause}")
}

/// Rule and cause of findings: those of warning or worse, and the others.
pub(super) fn named(findings: &[Finding]) -> [Vec<(String, String)>; 2] {
    let named = |serious: bool| {
        let own = findings.iter().filter(|finding| (finding.severity >= Severity::Warning) == serious);
        own.map(|finding| (finding.rule.clone(), finding.cause.clone())).collect()
    };
    [named(true), named(false)]
}

/// A proportion with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proportion {
    /// Right ones.
    pub right: usize,
    /// Of so many.
    pub of: usize,
    /// Lower end of the interval, 0 to 1.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Proportion {
    /// With Wilson's score interval (E. B. Wilson, JASA 22, 1927), which keeps its promise for few runs and near 0 and 1.
    pub fn of(right: usize, of: usize) -> Proportion {
        if of == 0 {
            return Proportion { right, of, low: 0.0, high: 1.0 };
        }
        let (n, share) = (of as f64, right as f64 / of as f64);
        // Standard normal quantile of 97.5 %.
        let z2 = 1.959_963_985_f64.powi(2);
        let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = (z2 * (share * (1.0 - share) / n + z2 / (4.0 * n * n))).sqrt() / (1.0 + z2 / n);
        Proportion { right, of, low: (middle - half).max(0.0), high: (middle + half).min(1.0) }
    }

    /// The share itself; 0 of nothing.
    pub fn share(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.right as f64 / self.of as f64 }
    }
}

/// Where both must come out for the test to be passed.
pub const REQUIRED_SHARE: f64 = 0.95;

/// The test as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Where the dice began.
    pub seed: u64,
    /// Whose causes were injected.
    pub server: ServerKind,
    /// Seconds of load of each run.
    pub seconds: f64,
    /// Runs that were drawn.
    pub planned: usize,
    /// Runs that were done.
    pub done: usize,
    /// Of the injected causes that happened: how many the first finding names.
    pub injected: Proportion,
    /// Of the healthy runs that were healthy: in how many nothing was found.
    pub healthy: Proportion,
    /// For each deed, what was found first and how often; runs that did not reproduce apart.
    pub confusion: BTreeMap<String, BTreeMap<String, usize>>,
    /// Runs that were diagnosed wrongly.
    pub wrong: Vec<Judged>,
    /// Runs in which what was to happen did not.
    pub not_reproduced: Vec<Judged>,
    /// What no run tried.
    pub not_tried: Vec<String>,
    /// All runs are done, the causes were named in 95 % of them (where any was to be injected), and no healthy run had a finding.
    pub passed: bool,
}

impl Summary {
    /// Of the runs that are done.
    pub fn of((seed, server, seconds): (u64, ServerKind, f64), planned: usize, runs: &[Judged]) -> Summary {
        let with = |verdict: Verdict, harmless: Option<bool>| {
            let own = runs.iter().filter(|run| harmless.is_none_or(|harmless| run.deed.is_harmless() == harmless));
            own.filter(|run| run.verdict() == verdict).cloned().collect::<Vec<_>>()
        };
        let proportion = |harmless: bool| {
            let right = with(Verdict::Right, Some(harmless)).len();
            Proportion::of(right, right + with(Verdict::Wrong, Some(harmless)).len())
        };
        let mut confusion: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.verdict() != Verdict::NotReproduced) {
            *confusion.entry(run.deed.name().to_owned()).or_default().entry(run.answer()).or_default() += 1;
        }
        let (injected, healthy) = (proportion(false), proportion(true));
        // A half of the test for which no run was drawn says nothing against it.
        let drawn = |harmless: bool| runs.iter().any(|run| run.deed.is_harmless() == harmless);
        let named = !drawn(false) || injected.share() >= REQUIRED_SHARE;
        let silent = !drawn(true) || healthy.share() >= 1.0;
        Summary {
            seed,
            server,
            seconds,
            planned,
            done: runs.len(),
            injected,
            healthy,
            confusion,
            wrong: with(Verdict::Wrong, None),
            not_reproduced: with(Verdict::NotReproduced, None),
            not_tried: not_tried(server).iter().map(|what| (*what).to_owned()).collect(),
            passed: !runs.is_empty() && runs.len() == planned && named && silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(deed: Deed, reproduced: bool, found: &[(&str, &str)]) -> Judged {
        Judged {
            number: 1,
            deed,
            set: Vec::new(),
            reproduced,
            because: String::new(),
            found: found.iter().map(|(rule, cause)| ((*rule).to_owned(), (*cause).to_owned())).collect(),
            noted: Vec::new(),
            recording: None,
            stretch_unix_us: None,
            took_s: 1.0,
        }
    }

    #[test]
    fn only_the_first_finding_counts_and_its_cause_too() {
        let right = ("network-narrow", "shaper");
        let verdict = |found: &[(&str, &str)]| run(Deed::NetworkNarrow, true, found).verdict();
        assert_eq!(verdict(&[right, ("io-capped", "cgroup-cap")]), Verdict::Right);
        assert_eq!(verdict(&[("io-capped", "cgroup-cap"), right]), Verdict::Wrong);
        assert_eq!(verdict(&[("network-narrow", "path")]), Verdict::Wrong);
        assert_eq!(verdict(&[]), Verdict::Wrong);
        assert_eq!(run(Deed::NetworkNarrow, false, &[right]).verdict(), Verdict::NotReproduced);
        assert_eq!(run(Deed::Steady, true, &[]).verdict(), Verdict::Right);
        assert_eq!(run(Deed::Steady, true, &[right]).verdict(), Verdict::Wrong);
    }

    #[test]
    fn wilsons_interval_is_the_published_one() {
        // Agresti & Coull 1998 and Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 29 of 29.
        for ((right, of), (low, high)) in [
            ((81, 263), (0.2553, 0.3662)),
            ((15, 148), (0.0624, 0.1605)),
            ((0, 20), (0.0, 0.1611)),
            ((29, 29), (0.8830, 1.0)),
        ] {
            let found = Proportion::of(right, of);
            assert!((found.low - low).abs() < 1e-4 && (found.high - high).abs() < 1e-4, "{found:?}");
        }
    }

    #[test]
    fn a_run_that_did_not_reproduce_is_listed_and_counts_for_nothing() {
        let runs = [
            run(Deed::ReplayPaused, true, &[("replay-paused", "paused")]),
            run(Deed::ReplayPaused, true, &[]),
            run(Deed::ReplayPaused, false, &[]),
            run(Deed::Idle, true, &[]),
        ];
        let summary = Summary::of((1, ServerKind::Postgres, 24.0), 4, &runs);
        assert_eq!((summary.injected.right, summary.injected.of), (1, 2));
        assert_eq!((summary.healthy.right, summary.healthy.of), (1, 1));
        assert_eq!((summary.wrong.len(), summary.not_reproduced.len()), (1, 1));
        assert_eq!(summary.confusion["replay-paused"]["nothing"], 1);
        assert!(!summary.passed);
    }

    #[test]
    fn it_is_passed_only_when_every_run_is_done_and_no_healthy_one_has_a_finding() {
        let right = run(Deed::ReplayPaused, true, &[("replay-paused", "paused")]);
        let runs = [right.clone(), run(Deed::Idle, true, &[])];
        assert!(Summary::of((1, ServerKind::Postgres, 24.0), 2, &runs).passed);
        assert!(!Summary::of((1, ServerKind::Postgres, 24.0), 3, &runs).passed);
        let noisy = [right, run(Deed::Idle, true, &[("io-capped", "cgroup-cap")])];
        assert!(!Summary::of((1, ServerKind::Postgres, 24.0), 2, &noisy).passed);
    }

    #[test]
    fn one_half_of_the_test_can_be_passed_alone_but_not_by_runs_that_did_not_reproduce() {
        let passed = |only: Judged| Summary::of((1, ServerKind::Postgres, 24.0), 1, &[only]).passed;
        assert!(passed(run(Deed::Idle, true, &[])));
        assert!(passed(run(Deed::ReplayPaused, true, &[("replay-paused", "paused")])));
        assert!(!passed(run(Deed::Idle, false, &[])) && !passed(run(Deed::ReplayPaused, false, &[])));
    }

    proptest! {
        #[test]
        fn an_interval_holds_its_share(of in 1_usize..500, part in 0.0..1.0_f64) {
            let found = Proportion::of((of as f64 * part) as usize, of);
            prop_assert!(0.0 <= found.low && found.low <= found.share() + 1e-12);
            prop_assert!(found.share() - 1e-12 <= found.high && found.high <= 1.0);
        }
    }
}
