//! Puts findings about the same trouble in order: what is to blame first, then the mechanism, then who suffers.

use super::{RULES, relate_engine};
use backwater_model::{Finding, Severity};
use std::cmp::Reverse;

/// A finding about what suffers: commits that wait for a standby, heartbeats that come late.
pub(super) struct Symptom {
    /// The server that suffers.
    pub(super) server: String,
    pub(super) finding: Finding,
}

/// What findings have to do with devices, servers and commits.
pub(super) struct Ties<'a> {
    /// Devices (`MAJ:MIN`) that a finding about WAL speaks of.
    pub(super) devices: &'a dyn Fn(&Finding) -> Vec<String>,
    /// Servers that a finding speaks of; empty where that is not known.
    pub(super) servers: &'a dyn Fn(&Finding) -> Vec<String>,
    /// Whether a finding speaks of a standby without which commits could not end while a symptom was seen.
    pub(super) needed: &'a dyn Fn(&Finding, &Finding) -> bool,
}

/// Joins findings that belong together. A full queue comes before the reason why it drains slowly; what a device's ceiling does to
/// WAL or to a standby comes before the bare ceiling; whoever suffers comes after what it suffers from.
pub(super) fn relate(findings: &mut Vec<Finding>, suffering: Vec<Symptom>, ties: &Ties<'_>) {
    queues_and_devices(findings);
    wal_and_devices(findings, ties.devices);
    removed_and_gone(findings);
    relate_engine::relate(findings, ties.servers);
    symptoms(findings, suffering, ties);
}

pub(super) fn overlap(a: &Finding, b: &Finding) -> bool {
    a.from < b.to && b.from < a.to
}

fn of_device(finding: &Finding) -> Option<&str> {
    let bare = finding.rule == "io-capped" || finding.rule == "device-saturated";
    finding.queue.strip_prefix("host.disk@").filter(|_| bare)
}

/// Joins a full queue with the reason why it drains so slowly: the queue is what stops writers, so it comes first.
fn queues_and_devices(findings: &mut [Finding]) {
    for at in 0..findings.len() {
        if findings[at].rule != "dirty-throttle" {
            continue;
        }
        let Some(dev) = findings[at].queue.strip_prefix("host.dirty@").map(str::to_owned) else { continue };
        let by_group = findings[at].cause == "cgroup-limit";
        let throttle = findings[at].clone();
        let is_reason =
            |other: &Finding| of_device(other).is_some_and(|disk| by_group || disk == dev) && overlap(other, &throttle);
        let Some(reason) = findings.iter().position(is_reason) else { continue };
        let (severity, queue) = (findings[at].severity, findings[at].queue.clone());
        let (rule, cause) = (findings[reason].rule.clone(), findings[reason].cause.clone());
        findings[at].summary.push_str(&format!(" It drains no faster because of {rule} ({cause}), found beside this."));
        let below = &mut findings[reason];
        below.severity = below.severity.min(severity).min(Severity::Warning);
        below
            .summary
            .push_str(&format!(" This is why {queue} drains too slowly; what stops writers is dirty-throttle."));
        if !below.victims.contains(&queue) {
            below.victims.push(queue);
        }
    }
}

/// The bare ceiling of a device is told below what it does to WAL, on the primary or on a standby. It keeps its place where
/// data alone are held: then no rule about WAL speaks of that device.
fn wal_and_devices(findings: &mut [Finding], devices: &dyn Fn(&Finding) -> Vec<String>) {
    for at in 0..findings.len() {
        let Some(dev) = of_device(&findings[at]).map(str::to_owned) else { continue };
        let speaks = |other: &Finding| devices(other).contains(&dev) && overlap(other, &findings[at]);
        let Some(above) = findings.iter().position(speaks) else { continue };
        let rule = findings[above].rule.clone();
        let severity = findings[above].severity.max(findings[at].severity.min(Severity::Warning));
        findings[above].severity = severity;
        let below = &mut findings[at];
        below.severity = Severity::Info;
        below.summary.push_str(&format!(" What that does to WAL is told in {rule}."));
    }
}

/// Whether a finding may be why another, a symptom, came about.
fn is_reason(finding: &Finding, symptom: &Finding, ties: &Ties<'_>) -> bool {
    match finding.rule.as_str() {
        "wal-device-capped" | "wal-device-saturated" | "dirty-throttle" | "io-capped" | "device-saturated" => true,
        // What befalls a standby holds commits only where they wait for it.
        "network-narrow" | "standby-disk" | "walsender-starved" | "replay-conflict" | "replay-paused"
        | "replay-cpu" => finding.victims.iter().any(|victim| victim == "pg.commit"),
        "standby-gone" => {
            // Commits that wait for a standby that answers do not wait for another that is away.
            let missed = symptom.rule != "sync-standby-slow" || symptom.cause == "standby-missing";
            (missed || finding.cause == "silent") && (ties.needed)(finding, symptom)
        }
        "sync-standby-slow" => symptom.rule != "sync-standby-slow",
        _ => false,
    }
}

/// Adds commits that wait for a standby, and heartbeats that come late, below what they suffer from.
fn symptoms(findings: &mut Vec<Finding>, suffering: Vec<Symptom>, ties: &Ties<'_>) {
    let mut servers: Vec<Vec<String>> = findings.iter().map(ties.servers).collect();
    for Symptom { server, mut finding } in suffering {
        let here = |at: usize| servers.get(at).is_none_or(|names| names.is_empty() || names.contains(&server));
        let fits =
            |(at, other): &(usize, &Finding)| here(*at) && overlap(other, &finding) && is_reason(other, &finding, ties);
        // Of equals, what is itself no symptom, then what is told first.
        let place = |other: &Finding| RULES.iter().position(|rule| rule.name == other.rule);
        let weight = |other: &Finding| (other.severity, other.rule != "sync-standby-slow", Reverse(place(other)));
        let reason = findings.iter().enumerate().filter(fits).max_by_key(|(_, other)| weight(other)).map(|(at, _)| at);
        if let Some(reason) = reason.and_then(|at| findings.get_mut(at)) {
            below(reason, &mut finding);
        }
        findings.push(finding);
        servers.push(vec![server]);
    }
}

/// Puts a symptom below its reason, which takes over its severity.
pub(super) fn below(reason: &mut Finding, symptom: &mut Finding) {
    reason.severity = reason.severity.max(symptom.severity);
    symptom.severity = symptom.severity.min(Severity::Warning);
    if !reason.victims.contains(&symptom.queue) {
        reason.victims.push(symptom.queue.clone());
    }
    let (rule, cause, queue) = (&reason.rule, &reason.cause, &reason.queue);
    symptom.summary.push_str(&format!(" The reason is likely {rule} ({cause}, {queue}), found beside this."));
}

/// A standby whose WAL is gone is away for that reason, and its slot is idle for it.
fn removed_and_gone(findings: &mut [Finding]) {
    for at in 0..findings.len() {
        let gone = matches!(findings[at].rule.as_str(), "standby-gone" | "slot-inactive");
        if !gone {
            continue;
        }
        let (queue, server) = (findings[at].queue.clone(), findings[at].server.clone());
        // Slots of one name are on two servers where both feed standbys.
        let same = |other: &Finding| other.queue == queue && other.concerns(server.as_deref());
        let removed = |other: &Finding| other.rule == "wal-removed" && other.cause != "approaching" && same(other);
        let away = |other: &Finding| other.rule == "standby-gone" && same(other);
        if findings.iter().any(removed) {
            findings[at].severity = Severity::Info;
            findings[at].summary.push_str(" WAL that it needs is gone: see wal-removed.");
        } else if findings[at].rule == "slot-inactive" && findings.iter().any(away) {
            findings[at].severity = findings[at].severity.min(Severity::Warning);
            findings[at].summary.push_str(" Who reads from it is away: see standby-gone.");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::rules::draft::draft;
    use backwater_model::Moment;

    fn of(rule: &str, cause: &str, server: &str) -> Finding {
        let span = (Moment::from_seconds(0.0), Moment::from_seconds(60.0));
        let severity = Severity::Critical;
        Finding { server: Some(server.to_owned()), severity, ..draft(rule, cause, "pg.wal.retained@s1", span) }
    }

    fn severities<const N: usize>(mut findings: [Finding; N]) -> [Severity; N] {
        removed_and_gone(&mut findings);
        findings.map(|finding| finding.severity)
    }

    #[test]
    fn a_slot_of_the_same_name_on_another_server_is_another_slot() {
        let idle = |server| of("slot-inactive", "retaining", server);
        let away = |server| of("standby-gone", "away", server);
        let found = severities([idle("east"), away("east"), idle("west")]);
        assert_eq!(found, [Severity::Warning, Severity::Critical, Severity::Critical]);
        let found = severities([away("west"), of("wal-removed", "slot-lost", "east"), away("east")]);
        assert_eq!(found, [Severity::Critical, Severity::Critical, Severity::Info]);
    }
}
