//! Puts findings about the same trouble in order: what is to blame first, then the mechanism, then who suffers.

use backwater_model::{Finding, Severity};

/// Joins findings that belong together. A full queue comes before the reason why it drains slowly; what a device's ceiling does to
/// WAL or to a standby comes before the bare ceiling; whoever suffers comes after what it suffers from.
///
/// `devices` names the devices (`MAJ:MIN`) that a finding about WAL speaks of.
pub(super) fn relate(findings: &mut [Finding], devices: &dyn Fn(&Finding) -> Vec<String>) {
    queues_and_devices(findings);
    wal_and_devices(findings, devices);
    symptoms(findings);
    removed_and_gone(findings);
}

fn overlap(a: &Finding, b: &Finding) -> bool {
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

/// Whether a finding names what holds WAL up, so that others may be its consequence.
fn is_reason(finding: &Finding) -> bool {
    let streams = ["wal-device-capped", "wal-device-saturated", "network-narrow", "standby-disk", "walsender-starved"];
    let replays = ["replay-conflict", "replay-paused", "replay-cpu"];
    let devices = ["dirty-throttle", "io-capped", "device-saturated"];
    streams.iter().chain(&replays).chain(&devices).any(|rule| *rule == finding.rule)
}

/// Commits that wait for a standby, and heartbeats that come late, are told below what they suffer from.
fn symptoms(findings: &mut [Finding]) {
    for at in 0..findings.len() {
        let symptom = matches!(findings[at].rule.as_str(), "sync-standby-slow" | "heartbeat-at-risk");
        if !symptom {
            continue;
        }
        let reasons =
            findings.iter().enumerate().filter(|(_, other)| is_reason(other) && overlap(other, &findings[at]));
        let Some((reason, _)) = reasons.max_by_key(|(_, other)| other.severity) else { continue };
        let (rule, cause, queue) =
            (findings[reason].rule.clone(), findings[reason].cause.clone(), findings[reason].queue.clone());
        let severity = findings[at].severity;
        findings[reason].severity = findings[reason].severity.max(severity);
        let victim = findings[at].queue.clone();
        if !findings[reason].victims.contains(&victim) {
            findings[reason].victims.push(victim);
        }
        findings[at].severity = severity.min(Severity::Warning);
        findings[at].summary.push_str(&format!(" The reason is likely {rule} ({cause}, {queue}), found beside this."));
    }
}

/// A standby whose WAL is gone is away for that reason, and its slot is idle for it.
fn removed_and_gone(findings: &mut [Finding]) {
    for at in 0..findings.len() {
        let gone = matches!(findings[at].rule.as_str(), "standby-gone" | "slot-inactive");
        if !gone {
            continue;
        }
        let queue = findings[at].queue.clone();
        let removed =
            |other: &Finding| other.rule == "wal-removed" && other.cause != "approaching" && other.queue == queue;
        let away = |other: &Finding| other.rule == "standby-gone" && other.queue == queue;
        if findings.iter().any(removed) {
            findings[at].severity = Severity::Info;
            findings[at].summary.push_str(" WAL that it needs is gone: see wal-removed.");
        } else if findings[at].rule == "slot-inactive" && findings.iter().any(away) {
            findings[at].severity = findings[at].severity.min(Severity::Warning);
            findings[at].summary.push_str(" Its standby is away: see standby-gone.");
        }
    }
}
