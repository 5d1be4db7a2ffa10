//! Findings with what the window could not show: absent readings and gaps.

use crate::findings::{findings, unseen};
use crate::page::Page;
use crate::style::Tone;
use crate::{Style, when};
use backwater_model::{EventKind, Finding, Gaps, Unit, Unseen, Window};
use std::collections::BTreeMap;

/// What a window says it could not read, each thing once, in the order in which it was said.
pub fn unseen_in(window: &Window) -> Vec<Unseen> {
    let mut list: Vec<Unseen> = Vec::new();
    for event in window.events_of(EventKind::Absent) {
        let field = |name: &str| event.fields.get(name).cloned();
        let unseen = Unseen {
            what: field("what").unwrap_or_else(|| event.source.clone()),
            why: field("why").unwrap_or_else(|| event.message.clone()),
            remedy: field("remedy"),
        };
        if !list.contains(&unseen) {
            list.push(unseen);
        }
    }
    list
}

/// What could not be seen, as text; empty where all was.
pub fn unseen_text(list: &[Unseen], style: &Style) -> String {
    let mut page = Page::new(style);
    unseen(&mut page, list, 0);
    page.finish()
}

/// As [`findings`], followed by the stretch of time that was examined, its gaps, and what could not be seen in it. `judged` says
/// whether any queue was read: [`has_queue`](crate::html::has_queue) of a window that still has its readings.
pub fn findings_in(list: &[Finding], window: &Window, judged: bool, style: &Style) -> String {
    let mut page = Page::new(style);
    page.ready(&findings(list, &window.meta, judged, style), 0);
    page.gap();
    let time = when::range(window.from, window.to, &window.meta);
    page.paragraph(Tone::Faint, &format!("Examined: {time}, {} samples of sessions", window.samples().len()), 0);
    for (probe, (count, reason)) in gaps(window) {
        let times = if count == 1 { "once".to_owned() } else { format!("{} times", Unit::Count.show(count as f64)) };
        page.paragraph(Tone::Warning, &format!("{probe} could not read {times}: {reason}"), 0);
    }
    unseen(&mut page, &unseen_in(window), 0);
    page.finish()
}

/// Probes that failed for a while: how often, and the last reason given.
fn gaps(window: &Window) -> BTreeMap<&str, (usize, &str)> {
    let (mut gaps, mut known) = (BTreeMap::new(), Gaps::default());
    for event in window.events_of(EventKind::Gap) {
        let first = known.is_first(event);
        // The end of a gap has no reason. Where nothing else is told of it, it says at least that there was one.
        if !first && event.fields.contains_key("ended") {
            continue;
        }
        let probe = event.fields.get("probe").map_or(event.source.as_str(), String::as_str);
        let reason = event.fields.get("reason").map_or(event.message.as_str(), String::as_str);
        let entry = gaps.entry(probe).or_insert((0, reason));
        *entry = (entry.0 + usize::from(first), reason);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::meta;
    use backwater_model::{Event, Meta, Moment};
    use std::sync::Arc;

    fn window(meta: Meta) -> Window {
        let at = Moment::from_seconds(3.0);
        let absent =
            [("what", "debugfs"), ("why", "not mounted"), ("remedy", "mount -t debugfs debugfs /sys/kernel/debug")];
        let gap = [("probe", "postgres.sessions"), ("reason", "connection refused")];
        let lasts = [gap[0], gap[1], ("failing_s", "30")];
        let ended = [("probe", "postgres.sessions"), ("ended", "true")];
        let events = vec![
            Event::new(at, "host", EventKind::Absent, "", &absent),
            Event::new(at, "host", EventKind::Absent, "", &absent),
            Event::new(at, "recorder", EventKind::Gap, "", &gap),
            Event::new(at, "recorder", EventKind::Gap, "", &lasts),
            Event::new(at, "recorder", EventKind::Gap, "", &ended),
        ];
        let (from, to) = (Moment::from_seconds(0.0), Moment::from_seconds(60.0));
        Window::new(from, to, Arc::new(meta), vec![], vec![], events)
    }

    #[test]
    fn a_window_without_queues_has_nothing_to_judge() {
        let window = window(meta());
        assert!(!crate::html::has_queue(&window), "a server and a device, and no reading of either");
    }

    #[test]
    fn health_comes_with_what_could_not_be_seen() {
        // Without a clock anchor, so that the text does not depend on where the test runs.
        let meta = Meta { anchors: vec![], ..meta() };
        insta::assert_snapshot!(findings_in(&[], &window(meta), true, &Style::plain(80)));
    }
}
