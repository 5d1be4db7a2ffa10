//! Puts findings about one engine in order: what fills its cache, or stops the disk below it, then the cache that is full, then
//! the operations in line. And says of findings that come of one slow member that they do.

use super::relate::{below, overlap};
use backwater_model::{Finding, Moment};

/// What may be why a finding came about: the nearest to blame first. Symptoms of symptoms come first, so that what they bring
/// with them is handed on.
const REASONS: [(&str, &[&str]); 3] = [
    (
        "tickets-exhausted",
        &["wt-dirty-stall", "checkpoint-burst", "device-below-rating", "ttl-burst", "connection-storm"],
    ),
    ("checkpoint-burst", &["device-below-rating", "wt-cache-oversized", "ttl-burst"]),
    ("wt-dirty-stall", &["device-below-rating", "history-pinned", "ttl-burst"]),
];
/// What is there all the time is the reason of nothing that comes and goes.
const ALL_ALONG: &str = "expiry-all-along";
/// A reason begins before what it brings about. Their moments are of different readings, some of them smoothed.
const LATE_S: f64 = 10.0;
/// And goes on for this share of it, at least: a habit that was there all day is not of one bad minute.
const COVERED: f64 = 0.5;

/// What a slow member does: rule and cause.
const OF_SLOW_MEMBER: [(&str, &str); 3] =
    [("history-pinned", "slow-member"), ("flow-control-engaged", "majority-behind"), ("oplog-window", "member-behind")];

/// Joins them. `servers` tells whose device a finding speaks of.
pub(super) fn relate(findings: &mut [Finding], servers: &dyn Fn(&Finding) -> Vec<String>) {
    for (symptom, reasons) in REASONS {
        for at in 0..findings.len() {
            if findings[at].rule == symptom && engine(&findings[at]).is_some() {
                join(findings, at, reasons, servers);
            }
        }
    }
    one_slow_member(findings);
}

/// The engine that a finding names.
fn engine(finding: &Finding) -> Option<&str> {
    let (queue, name) = finding.queue.split_once('@')?;
    (queue.starts_with("wt.") || queue.starts_with("mongo.")).then_some(name)
}

fn join(findings: &mut [Finding], at: usize, reasons: &[&str], servers: &dyn Fn(&Finding) -> Vec<String>) {
    let mut symptom = findings[at].clone();
    let name = engine(&symptom).unwrap_or_default();
    let here = |other: &Finding| match engine(other) {
        Some(other) => other == name,
        None => servers(other).iter().any(|server| server == name),
    };
    let fits = |rule: &&str| {
        let likely = |other: &Finding| other.cause != ALL_ALONG && here(other) && brought_about(other, &symptom);
        findings.iter().position(|other| other.rule == **rule && likely(other))
    };
    let Some(reason) = reasons.iter().find_map(fits) else { return };
    below(&mut findings[reason], &mut symptom);
    findings[at] = symptom;
}

/// Whether one was there when the other began, and for much of it.
fn brought_about(reason: &Finding, symptom: &Finding) -> bool {
    let seconds = |from: Moment, to: Moment| to.seconds_since(from);
    let both = seconds(reason.from.max(symptom.from), reason.to.min(symptom.to));
    seconds(symptom.from, reason.from) <= LATE_S && both > 0.0 && both >= COVERED * seconds(symptom.from, symptom.to)
}

/// One member that is slow does several things to a primary; whoever mends it mends them all.
fn one_slow_member(findings: &mut [Finding]) {
    let of_it = |finding: &Finding| OF_SLOW_MEMBER.contains(&(finding.rule.as_str(), finding.cause.as_str()));
    let place = |finding: &Finding| OF_SLOW_MEMBER.iter().position(|(rule, _)| *rule == finding.rule);
    for at in 0..findings.len() {
        let own = &findings[at];
        if !of_it(own) {
            continue;
        }
        let same = |other: &&Finding| of_it(other) && engine(other) == engine(own) && overlap(other, own);
        let first = findings.iter().filter(same).min_by_key(|other| place(other)).map(|other| other.rule.clone());
        if let Some(first) = first.filter(|first| *first != own.rule) {
            findings[at].summary.push_str(&format!(" It comes of a slow member, as {first} does, found beside this."));
        }
    }
}
