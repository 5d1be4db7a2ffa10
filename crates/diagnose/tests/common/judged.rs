//! What the rules say of a planted window, and the faults that several tests plant.

use super::plant::{Limit, Plant};
use backwater_diagnose::{Options, diagnose};
use backwater_model::{Finding, Window};

pub fn found(window: &Window) -> Vec<Finding> {
    diagnose(window, &Options { drain_target_s: 10.0, price_per_iops: Some(0.1) })
}

pub fn names(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{} {} {}", finding.rule, finding.cause, finding.queue)).collect()
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
