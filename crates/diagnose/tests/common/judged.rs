//! What the rules say of a planted window, and the faults that several tests plant.

use super::plant::{Limit, Plant};
use backwater_diagnose::{Options, all_queues, rule};
use backwater_model::{Finding, Window};

/// What the rules say; every queue that they name must be one of the path, and of a kind that the rule says it names.
pub fn diagnose(window: &Window, options: &Options) -> Vec<Finding> {
    let findings = backwater_diagnose::diagnose(window, options);
    let queues = all_queues(window);
    for finding in &findings {
        let what = format!("{} {} {}", finding.rule, finding.cause, finding.queue);
        let kind = finding.queue.split('@').next().unwrap();
        assert!(
            rule(&finding.rule).unwrap().queues.contains(&kind),
            "{what}: its rule does not say that it names this"
        );
        // Without a word on the servers nobody knows whose queues there are.
        let known = |name: &String| queues.iter().any(|queue| queue.name == *name) || window.meta.targets.is_empty();
        assert!(known(&finding.queue), "{what}: not on the path");
        let missing: Vec<&String> = finding.victims.iter().filter(|victim| !known(victim)).collect();
        assert!(missing.is_empty(), "{what}: {missing:?} are held up, and not on the path");
    }
    findings
}

pub fn found(window: &Window) -> Vec<Finding> {
    diagnose(window, &Options { drain_target_s: 10.0, price_per_iops: Some(0.1) })
}

pub fn names(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{} {} {}", finding.rule, finding.cause, finding.queue)).collect()
}

/// Without the queues.
pub fn causes(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{} {}", finding.rule, finding.cause)).collect()
}

pub fn silent(window: &Window, what: &str) {
    assert_eq!(names(&found(window)), Vec::<String>::new(), "{what}");
}

/// More is dirtied than the device writes, under a narrow limit.
pub fn stampede(limit: Limit) -> Plant {
    // Without a ceiling: the device itself writes too little, and is busy for it.
    Plant { limit, device_iops: 1_500.0, ..Plant::default() }
}

pub fn capped(limit: Limit) -> Plant {
    Plant { limit, cap_iops: Some(1_500.0), ..Plant::default() }
}
