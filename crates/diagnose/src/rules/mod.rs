//! The rules: one file each, each a function of a prepared window, each with a page in `docs/rules`.

mod checkpoint_burst;
mod checkpoint_log;
mod checkpoint_others;
mod commit_too_small;
mod device_saturated;
mod dirty_evidence;
mod dirty_throttle;
mod io_capped;

use crate::Options;
use crate::scene::Scene;
use backwater_model::{Finding, Severity, Window};
use serde::Serialize;

pub(crate) use dirty_evidence::draft as dirty_draft;

/// A rule as people look it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RuleInfo {
    /// Its name, as in findings.
    pub name: &'static str,
    /// The causes it tells apart.
    pub causes: &'static [&'static str],
    /// One line.
    pub summary: &'static str,
    /// Its page, in Markdown.
    pub page: &'static str,
}

/// Every rule, in the order in which findings of equal severity are told: mechanism before reason.
pub const RULES: &[RuleInfo] = &[
    RuleInfo {
        name: "dirty-throttle",
        causes: &["host-limit", "device-limit", "cgroup-limit", "approaching"],
        summary: "Dirty pages filled to a limit, and the kernel holds whoever writes.",
        page: include_str!("../../../../docs/rules/dirty-throttle.md"),
    },
    RuleInfo {
        name: "io-capped",
        causes: &["cgroup-cap", "declared-cap", "volume-cap", "burst-spent"],
        summary: "A ceiling on I/O is reached while the device itself could do more.",
        page: include_str!("../../../../docs/rules/io-capped.md"),
    },
    RuleInfo {
        name: "device-saturated",
        causes: &["slow-requests", "deep-queue"],
        summary: "The device is busy all the time and requests wait in it.",
        page: include_str!("../../../../docs/rules/device-saturated.md"),
    },
    RuleInfo {
        name: "checkpoint-burst",
        causes: &["sync-stall", "too-frequent"],
        summary: "Throughput dips while checkpoints sync, or checkpoints are forced too often.",
        page: include_str!("../../../../docs/rules/checkpoint-burst.md"),
    },
    RuleInfo {
        name: "commit-too-small",
        causes: &["local-sync", "standby-answer", "storage-answer"],
        summary: "A job spends its time waiting for commits of a few rows each.",
        page: include_str!("../../../../docs/rules/commit-too-small.md"),
    },
];

/// The rule of this name.
pub fn rule(name: &str) -> Option<&'static RuleInfo> {
    RULES.iter().find(|rule| rule.name == name)
}

/// Everything the rules have to say about a window, the worst first; of equals, the mechanism before its reason. Empty
/// for a healthy window, and for one whose readings do not tell.
pub fn diagnose(window: &Window, options: &Options) -> Vec<Finding> {
    let scene = Scene::of(window);
    let mut findings = dirty_throttle::find(&scene, options);
    findings.extend(io_capped::find(&scene, options));
    findings.extend(device_saturated::find(&scene));
    findings.extend(checkpoint_burst::find(&scene));
    findings.extend(commit_too_small::find(&scene));
    relate(&mut findings);
    let rank = |finding: &Finding| RULES.iter().position(|rule| rule.name == finding.rule);
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| rank(a).cmp(&rank(b))).then(a.from.cmp(&b.from)));
    findings
}

/// Joins a full queue with the reason why it drains so slowly: the queue is what stops writers, so it comes first.
fn relate(findings: &mut [Finding]) {
    for at in 0..findings.len() {
        if findings[at].rule != "dirty-throttle" {
            continue;
        }
        let Some(dev) = findings[at].queue.strip_prefix("host.dirty@").map(str::to_owned) else { continue };
        let by_group = findings[at].cause == "cgroup-limit";
        let (from, to) = (findings[at].from, findings[at].to);
        let is_reason = |other: &Finding| {
            let disk = other.queue.strip_prefix("host.disk@");
            let slow = other.rule == "io-capped" || other.rule == "device-saturated";
            slow && other.from < to && from < other.to && (disk == Some(&dev) || (by_group && disk.is_some()))
        };
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
