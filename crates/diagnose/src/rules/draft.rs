//! What every finding begins as, before a rule fills in its figures and words.

use backwater_model::{Confidence, Finding, Moment, Severity};

/// A warning of medium confidence, without figures, about a queue between two moments.
pub(crate) fn draft(rule: &str, cause: &str, queue: impl Into<String>, (from, to): (Moment, Moment)) -> Finding {
    Finding {
        rule: rule.to_owned(),
        cause: cause.to_owned(),
        severity: Severity::Warning,
        queue: queue.into(),
        server: None,
        from,
        to,
        foreground_lost: None,
        summary: String::new(),
        evidence: Vec::new(),
        ruled_out: Vec::new(),
        unseen: Vec::new(),
        confidence: Confidence::Medium,
        victims: Vec::new(),
        remedies: Vec::new(),
    }
}
