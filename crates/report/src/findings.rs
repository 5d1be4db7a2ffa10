//! Findings for people: what is wrong, since when, what it rests on, what it is not, what to do.

use crate::page::Page;
use crate::remedies;
use crate::style::Tone;
use crate::table::{Cell, cells};
use crate::{Style, when};
use backwater_model::{Confidence, Figure, Finding, Meta, Severity, Unit, Unseen};

/// What was looked at where nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// No queue.
    Nothing,
    /// Queues, but not all of the servers ([`backwater_diagnose::blind`]).
    Partly,
    /// Queues and servers.
    All,
}

impl Judged {
    /// By whether any queue was read, and whether servers were not.
    pub fn of(has_queue: bool, is_blind: bool) -> Judged {
        match (has_queue, is_blind) {
            (false, _) => Judged::Nothing,
            (true, true) => Judged::Partly,
            (true, false) => Judged::All,
        }
    }
}

/// All findings, the worst first. Without any, a line that says so, by what was `judged`, and what was watched.
/// (What a window could not show is known only with the window: [`findings_in`](crate::findings_in).)
pub fn findings(findings: &[Finding], meta: &Meta, judged: Judged, style: &Style) -> String {
    let mut page = Page::new(style);
    if findings.is_empty() {
        healthy(&mut page, meta, judged, style);
        return page.finish();
    }
    page.heading(&count(findings), 0);
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by(|a, b| {
        b.severity.cmp(&a.severity).then(b.foreground_lost.unwrap_or(0.0).total_cmp(&a.foreground_lost.unwrap_or(0.0)))
    });
    for finding in sorted {
        page.gap();
        one(&mut page, finding, meta, style);
    }
    page.finish()
}

/// That nothing was found, and whether there was anything to judge.
pub fn none_found(judged: bool) -> &'static str {
    if judged {
        "No finding: no rule saw a queue at its limit."
    } else {
        "No finding: no queue was recorded, so there was nothing to judge."
    }
}

fn healthy(page: &mut Page<'_>, meta: &Meta, judged: Judged, style: &Style) {
    let (tone, mark) = match judged {
        Judged::All => (Tone::Good, style.sign("✓ ", "OK ")),
        Judged::Partly | Judged::Nothing => (Tone::Plain, ""),
    };
    page.hanging(tone, mark, none_found(judged != Judged::Nothing), 0);
    page.paragraph(Tone::Plain, &format!("Watched: {}.", watched(meta)), 2);
}

/// The servers and devices of a recording, in words.
pub(crate) fn watched(meta: &Meta) -> String {
    let server = |target: &backwater_model::Target| match target.version_num {
        Some(version) => format!("{} {} {}", target.kind, version / 10_000, target.name),
        None => format!("{} {}", target.kind, target.name),
    };
    let device = |device: &backwater_model::Device| match device.mount_points.first() {
        Some(mount) => format!("{} ({}, {mount})", device.name, device.dev),
        None => format!("{} ({})", device.name, device.dev),
    };
    let host = meta.host.hostname.as_ref().map(|name| format!("host {name}")).unwrap_or_else(|| "the host".to_owned());
    let parts = [host].into_iter().chain(meta.targets.iter().map(server)).chain(meta.devices.iter().map(device));
    parts.collect::<Vec<_>>().join(", ")
}

/// `3 findings: 1 critical, 2 warnings`.
fn count(findings: &[Finding]) -> String {
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let parts = [
        (of(Severity::Critical), "critical".to_owned()),
        (of(Severity::Warning), format!("warning{}", plural(of(Severity::Warning)))),
        (of(Severity::Info), "worth knowing".to_owned()),
    ];
    let parts: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    format!("{} finding{}: {}", findings.len(), plural(findings.len()), parts.join(", "))
}

/// One finding with all that it rests on; `when` it held, in words, and on which server, where there are several.
pub fn finding_text(finding: &Finding, when: &str, server: Option<&str>, style: &Style) -> String {
    let mut page = Page::new(style);
    told(&mut page, finding, when, server, style);
    page.finish()
}

fn one(page: &mut Page<'_>, finding: &Finding, meta: &Meta, style: &Style) {
    // With one server alone there is nothing to tell apart.
    let server = finding.server.as_deref().filter(|_| meta.targets.len() > 1);
    told(page, finding, &when::range(finding.from, finding.to, meta), server, style);
}

fn told(page: &mut Page<'_>, finding: &Finding, time: &str, server: Option<&str>, style: &Style) {
    let (mark, tone) = severity(finding.severity, style);
    let whose = server.map(|server| format!(" on {server}")).unwrap_or_default();
    page.hanging(tone, mark, &format!("{} ({})  {}{whose}", finding.rule, finding.cause, finding.queue), 0);
    page.paragraph(Tone::Faint, &format!("{time}, confidence {}", confidence(finding.confidence)), 2);
    page.gap();
    page.paragraph(Tone::Plain, &finding.summary, 2);
    if let Some(lost) = finding.foreground_lost {
        page.paragraph(Tone::Strong, &format!("Foreground time lost: {}", Unit::Ratio.show(lost)), 2);
    }
    if !finding.victims.is_empty() {
        page.paragraph(Tone::Plain, &format!("It also holds up: {}", finding.victims.join(", ")), 2);
    }
    if !finding.evidence.is_empty() {
        page.gap();
        page.heading("Evidence", 2);
        page.ready(&figures(&finding.evidence, &style.indented(4)), 4);
    }
    if !finding.ruled_out.is_empty() {
        page.gap();
        page.heading("Ruled out", 2);
        for out in &finding.ruled_out {
            page.bullet(&format!("{}: {}", out.cause, out.because), 4);
        }
    }
    unseen(page, &finding.unseen, 2);
    remedies::list(page, "What to do", &finding.remedies, style, 2);
}

/// Named values, the name at the left.
pub(crate) fn figures(figures: &[Figure], style: &Style) -> String {
    let rows: Vec<Vec<Cell>> = figures
        .iter()
        .map(|figure| vec![Cell::from(figure.label.as_str()), Cell::new(figure.show(), Tone::Strong)])
        .collect();
    cells(&[], &rows, style)
}

/// What could not be seen, and what would change that.
pub(crate) fn unseen(page: &mut Page<'_>, list: &[Unseen], indent: usize) {
    if list.is_empty() {
        return;
    }
    page.gap();
    page.heading("Could not be seen", indent);
    for unseen in list {
        page.bullet(&format!("{}: {}", unseen.what, unseen.why), indent + 2);
        if let Some(remedy) = &unseen.remedy {
            page.paragraph(Tone::Faint, "to see it:", indent + 4);
            page.commands(std::slice::from_ref(remedy), indent + 6);
        }
    }
}

fn severity(severity: Severity, style: &Style) -> (&'static str, Tone) {
    match severity {
        Severity::Critical => (style.sign("✗ CRITICAL ", "!! CRITICAL "), Tone::Bad),
        Severity::Warning => (style.sign("▲ WARNING ", "! WARNING "), Tone::Warning),
        Severity::Info => (style.sign("• INFO ", "- INFO "), Tone::Strong),
    }
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::High => "high (independent readings agree)",
        Confidence::Medium => "medium (one usual piece of evidence is missing)",
        Confidence::Low => "low (the evidence would also fit something that could not be seen)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::{STYLES, finding, meta};

    /// Local time depends on where the test runs.
    fn settings() -> insta::Settings {
        let mut settings = insta::Settings::clone_current();
        settings.add_filter(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( . |\s+-?\s*)\d\d:\d\d:\d\d\s+UTC[+-]\d\d:\d\d", "[TIME]");
        settings
    }

    #[test]
    fn a_finding_says_everything_it_rests_on() {
        settings().bind(|| {
            for (name, style) in STYLES {
                let text = findings(&[finding()], &meta(), Judged::All, &style);
                insta::assert_snapshot!(format!("finding_{name}"), text);
            }
        });
    }

    #[test]
    fn a_healthy_system_is_said_to_be_so() {
        insta::assert_snapshot!(findings(&[], &meta(), Judged::All, &Style::plain(80)));
    }

    #[test]
    fn where_no_queue_was_recorded_nothing_is_called_healthy() {
        let text = findings(&[], &meta(), Judged::Nothing, &Style::plain(80));
        assert!(text.starts_with("No finding: no queue was recorded, so there was nothing to judge.\n"), "{text}");
    }

    #[test]
    fn the_worst_comes_first() {
        let mild = Finding { severity: Severity::Warning, rule: "mild".to_owned(), ..finding() };
        let text = findings(&[mild, finding()], &meta(), Judged::All, &Style::plain(80));
        assert!(text.starts_with("2 findings: 1 critical, 1 warning\n"), "{text}");
        assert!(text.find("dirty-throttle") < text.find("mild"));
    }

    #[test]
    fn foreign_escape_sequences_are_spelled_out() {
        let text = findings(&[finding()], &meta(), Judged::All, &Style { color: false, width: 120, unicode: true });
        assert!(!text.contains('\u{1b}'));
        assert!(text.contains("\\x1b[2J"));
    }
}
