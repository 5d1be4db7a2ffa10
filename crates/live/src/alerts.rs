//! Which findings begin, become worse and end, so that each is told once and not at every look.

use backwater_model::{Finding, Moment, Severity};

/// What became of a finding.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// It was not there before.
    Begun(Finding),
    /// It is of a higher severity than when it was last told.
    Worse(Finding),
    /// It has not been found for a while.
    Ended(Finding),
}

impl Turn {
    /// `begun`, `worse`, `ended`.
    pub fn word(&self) -> &'static str {
        match self {
            Turn::Begun(_) => "begun",
            Turn::Worse(_) => "worse",
            Turn::Ended(_) => "ended",
        }
    }

    /// The finding, as it was last seen.
    pub fn finding(&self) -> &Finding {
        match self {
            Turn::Begun(finding) | Turn::Worse(finding) | Turn::Ended(finding) => finding,
        }
    }
}

/// A finding that was told of.
#[derive(Debug)]
struct Known {
    /// As it was last seen.
    finding: Finding,
    /// The highest that was told.
    told: Severity,
    last: Moment,
}

/// Remembers what was told. One of the same rule, cause and queue is the same.
#[derive(Debug)]
pub struct Alerts {
    least: Severity,
    quiet_s: f64,
    known: Vec<Known>,
}

impl Alerts {
    /// Tells of findings of at least this severity, and that one has ended when it was not seen for `quiet_s` seconds: what comes
    /// and goes meanwhile is one and the same.
    pub fn new(least: Severity, quiet_s: f64) -> Alerts {
        Alerts { least, quiet_s, known: Vec::new() }
    }

    /// Tells what became of findings, by those that are there now. `tell` says whether it took a turn; one that it did not
    /// take is told again at the next update, if it is still so.
    pub fn update(&mut self, now: Moment, findings: &[Finding], mut tell: impl FnMut(Turn) -> bool) {
        for finding in findings.iter().filter(|finding| finding.severity >= self.least) {
            let same = |known: &&mut Known| known.finding.claim() == finding.claim();
            match self.known.iter_mut().find(same) {
                None => {
                    if tell(Turn::Begun(finding.clone())) {
                        self.known.push(Known { finding: finding.clone(), told: finding.severity, last: now });
                    }
                }
                Some(known) => {
                    if finding.severity > known.told && tell(Turn::Worse(finding.clone())) {
                        known.told = finding.severity;
                    }
                    known.finding = finding.clone();
                    known.last = now;
                }
            }
        }
        let quiet_s = self.quiet_s;
        let is_over = |known: &Known| now.seconds_since(known.last) >= quiet_s;
        self.known.retain(|known| !(is_over(known) && tell(Turn::Ended(known.finding.clone()))));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn finding(queue: &str, severity: &str) -> Finding {
        let value = json!({
            "rule": "dirty-throttle", "cause": "device-limit", "severity": severity, "queue": queue, "from": 0, "to": 1,
            "foreground_lost": null, "summary": "", "evidence": [], "ruled_out": [], "unseen": [], "confidence": "high",
            "victims": [], "remedies": [],
        });
        serde_json::from_value(value).unwrap()
    }

    fn turns(alerts: &mut Alerts, at_s: f64, findings: &[Finding]) -> Vec<Turn> {
        let mut turns = Vec::new();
        alerts.update(Moment::from_seconds(at_s), findings, |turn| {
            turns.push(turn);
            true
        });
        turns
    }

    fn words(alerts: &mut Alerts, at_s: f64, findings: &[Finding]) -> Vec<(&'static str, String)> {
        let turns = turns(alerts, at_s, findings);
        turns.iter().map(|turn| (turn.word(), turn.finding().queue.clone())).collect()
    }

    #[test]
    fn servers_whose_queues_have_one_name_are_told_of_each_by_itself() {
        let of = |server: &str| Finding { server: Some(server.to_owned()), ..finding("pg.checkpoint", "warning") };
        let mut alerts = Alerts::new(Severity::Warning, 60.0);
        let both = [of("a:5432"), of("b:5432")];
        assert_eq!(words(&mut alerts, 0.0, &both).len(), 2);
        assert_eq!(words(&mut alerts, 30.0, &both[..1]), []);
        let ended = turns(&mut alerts, 70.0, &both[..1]);
        assert_eq!(ended.iter().map(|turn| turn.finding().server.as_deref()).collect::<Vec<_>>(), [Some("b:5432")]);
        assert!(both[0].concerns(Some("a:5432")) && both[0].concerns(None) && !both[0].concerns(Some("b:5432")));
    }

    #[test]
    fn each_finding_is_told_once_when_it_begins_gets_worse_and_ends() {
        let mut alerts = Alerts::new(Severity::Warning, 60.0);
        let told = |word, queue: &str| vec![(word, queue.to_owned())];
        assert_eq!(words(&mut alerts, 0.0, &[finding("a", "info")]), []);
        assert_eq!(words(&mut alerts, 10.0, &[finding("a", "warning")]), told("begun", "a"));
        assert_eq!(words(&mut alerts, 20.0, &[finding("a", "warning")]), []);
        assert_eq!(words(&mut alerts, 30.0, &[finding("a", "critical")]), told("worse", "a"));
        assert_eq!(words(&mut alerts, 40.0, &[finding("a", "warning"), finding("b", "warning")]), told("begun", "b"));
        assert_eq!(words(&mut alerts, 70.0, &[]), [], "it may come back");
        assert_eq!(words(&mut alerts, 99.0, &[finding("b", "critical")]), told("worse", "b"));
        assert_eq!(words(&mut alerts, 101.0, &[]), told("ended", "a"));
        assert_eq!(words(&mut alerts, 110.0, &[finding("a", "warning")]), told("begun", "a"));
    }
    #[test]
    fn a_turn_that_was_not_taken_is_told_again() {
        let mut alerts = Alerts::new(Severity::Warning, 60.0);
        let refused = |alerts: &mut Alerts, at_s: f64, findings: &[Finding]| {
            let mut words = Vec::new();
            alerts.update(Moment::from_seconds(at_s), findings, |turn| {
                words.push(turn.word());
                false
            });
            words
        };
        let told = |word| vec![(word, "a".to_owned())];
        assert_eq!(refused(&mut alerts, 0.0, &[finding("a", "warning")]), ["begun"]);
        assert_eq!(words(&mut alerts, 2.0, &[finding("a", "warning")]), told("begun"));
        assert_eq!(refused(&mut alerts, 4.0, &[finding("a", "critical")]), ["worse"]);
        assert_eq!(words(&mut alerts, 6.0, &[finding("a", "critical")]), told("worse"));
        assert_eq!(refused(&mut alerts, 70.0, &[]), ["ended"]);
        assert_eq!(words(&mut alerts, 72.0, &[]), told("ended"));
        assert_eq!(words(&mut alerts, 200.0, &[]), []);
        // Of what nobody heard that it began nobody hears that it ended.
        assert_eq!(refused(&mut alerts, 210.0, &[finding("a", "warning")]), ["begun"]);
        assert_eq!(words(&mut alerts, 300.0, &[]), []);
    }

    #[test]
    fn in_the_end_a_finding_is_told_as_it_was_last_seen() {
        let at = |severity, summary: &str| Finding { summary: summary.to_owned(), ..finding("a", severity) };
        let mut alerts = Alerts::new(Severity::Warning, 60.0);
        turns(&mut alerts, 0.0, &[at("critical", "first")]);
        assert_eq!(words(&mut alerts, 10.0, &[at("warning", "last")]), []);
        assert_eq!(words(&mut alerts, 20.0, &[at("critical", "last")]), [], "no worse than it was told to be");
        assert_eq!(turns(&mut alerts, 90.0, &[]), [Turn::Ended(at("critical", "last"))]);
    }
}
