//! Findings of many stretches of one long recording, each claim told once.

use backwater_model::{Figure, Finding, Unit};

/// The findings of stretches that follow one another, told as of the whole: of the same rule, cause, queue and server the worst
/// stands for all, and says how many there were. In the order in which [`diagnose`](crate::diagnose) tells findings.
pub fn gather(parts: impl IntoIterator<Item = Vec<Finding>>) -> Vec<Finding> {
    let mut told: Vec<(Finding, usize)> = Vec::new();
    for finding in parts.into_iter().flatten() {
        let same = |known: &&mut (Finding, usize)| known.0.claim() == finding.claim();
        match told.iter_mut().find(same) {
            None => told.push((finding, 1)),
            Some((worst, count)) => {
                *count += 1;
                if rank(&finding) > rank(worst) {
                    *worst = finding;
                }
            }
        }
    }
    let mut findings: Vec<Finding> = told.into_iter().map(|(finding, count)| with_count(finding, count)).collect();
    crate::rules::sort(&mut findings);
    findings
}

/// How bad a finding is beside another of its kind: severity, then share lost, then whether it holds others up, then length.
fn rank(finding: &Finding) -> (backwater_model::Severity, i64, bool, i64) {
    let lost = finding.foreground_lost.map_or(0, |share| (share * 1e6) as i64);
    (finding.severity, lost, !finding.victims.is_empty(), (finding.to - finding.from).0)
}

fn with_count(mut finding: Finding, count: usize) -> Finding {
    if count > 1 {
        finding.summary.push_str(&format!(" This is the worst of {count} stretches in which it was found."));
        let label = "stretches of the recording in which it was found";
        finding.evidence.push(Figure::new("stretches_count", count as f64, Unit::Count, label));
    }
    finding
}
