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
    finding: Finding,
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

    /// What became of findings, by those that are there now.
    pub fn update(&mut self, now: Moment, findings: &[Finding]) -> Vec<Turn> {
        let mut turns = Vec::new();
        for finding in findings.iter().filter(|finding| finding.severity >= self.least) {
            let same = |known: &&mut Known| known.finding.claim() == finding.claim();
            match self.known.iter_mut().find(same) {
                None => {
                    turns.push(Turn::Begun(finding.clone()));
                    self.known.push(Known { finding: finding.clone(), last: now });
                }
                Some(known) => {
                    if finding.severity > known.finding.severity {
                        turns.push(Turn::Worse(finding.clone()));
                        known.finding = finding.clone();
                    }
                    known.last = now;
                }
            }
        }
        let over = |known: &Known| now.seconds_since(known.last) >= self.quiet_s;
        turns.extend(self.known.iter().filter(|known| over(known)).map(|known| Turn::Ended(known.finding.clone())));
        self.known.retain(|known| !over(known));
        turns
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

    fn words(alerts: &mut Alerts, at_s: f64, findings: &[Finding]) -> Vec<(&'static str, String)> {
        let turns = alerts.update(Moment::from_seconds(at_s), findings);
        turns.iter().map(|turn| (turn.word(), turn.finding().queue.clone())).collect()
    }

    #[test]
    fn servers_whose_queues_have_one_name_are_told_of_each_by_itself() {
        let of = |server: &str| Finding { server: Some(server.to_owned()), ..finding("pg.checkpoint", "warning") };
        let mut alerts = Alerts::new(Severity::Warning, 60.0);
        let both = [of("a:5432"), of("b:5432")];
        assert_eq!(words(&mut alerts, 0.0, &both).len(), 2);
        assert_eq!(words(&mut alerts, 30.0, &both[..1]), []);
        let ended = alerts.update(Moment::from_seconds(70.0), &both[..1]);
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
}
