//! Findings with what the window could not show: absent readings and gaps.

use crate::findings::{Judged, findings, unseen, watched};
use crate::page::Page;
use crate::style::Tone;
use crate::{Style, when};
use backwater_diagnose::{Blind, lock_waits};
use backwater_model::{Event, EventKind, Finding, Gaps, Meta, OpenGaps, Unit, Unseen, Window};
use std::collections::BTreeMap;

/// Seconds of a window that most rules find too short.
const SHORT_S: f64 = 10.0;
/// So many restarts are told.
const MOST_RESTARTS: usize = 5;

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

/// As [`findings`], followed by the stretch of time that was examined, its gaps, and what could not be seen in it. `has_queue` says
/// whether any queue was read, [`has_queue`](crate::html::has_queue) of a window that still has its readings, and `blind` which servers
/// were not.
pub fn findings_in(list: &[Finding], window: &Window, has_queue: bool, blind: &[Blind], style: &Style) -> String {
    let mut page = Page::new(style);
    page.ready(&findings(list, &window.meta, Judged::of(has_queue, !blind.is_empty()), style), 0);
    for spot in blind {
        page.paragraph(Tone::Warning, &format!("{}: what is not found may be there all the same.", spot.why), 0);
    }
    page.gap();
    let time = when::range(window.from, window.to, &window.meta);
    page.paragraph(Tone::Faint, &format!("Examined: {time}, {} samples of sessions", window.samples().len()), 0);
    if window.seconds() < SHORT_S {
        page.paragraph(Tone::Warning, "That is short: most rules want ten seconds or more.", 0);
    }
    let restarts: Vec<&Event> = window.events_of(EventKind::Restart).collect();
    for event in restarts.iter().take(MOST_RESTARTS) {
        page.paragraph(Tone::Warning, &format!("{} ({})", event.message, when::moment(event.at, &window.meta)), 0);
    }
    if restarts.len() > MOST_RESTARTS {
        page.paragraph(Tone::Warning, &format!("… and {} more", restarts.len() - MOST_RESTARTS), 0);
    }
    lock_waits(window).iter().for_each(|told| page.paragraph(Tone::Warning, told, 0));
    tell_gaps(&mut page, window);
    unseen(&mut page, &unseen_in(window), 0);
    page.finish()
}

/// That nobody looked at sessions: what was watched and when, why there were no looks, and what to do about it.
pub fn no_sessions(window: &Window, style: &Style) -> String {
    let mut page = Page::new(style);
    page.paragraph(Tone::Plain, "Sessions were not looked at in this time.", 0);
    page.paragraph(Tone::Plain, &format!("Watched: {}.", watched(&window.meta)), 2);
    page.gap();
    let time = when::range(window.from, window.to, &window.meta);
    page.paragraph(Tone::Faint, &format!("Examined: {time}"), 0);
    tell_gaps(&mut page, window);
    unseen(&mut page, &[unseen_sessions(&window.meta)], 0);
    page.finish()
}

fn unseen_sessions(meta: &Meta) -> Unseen {
    let has = |kind: &str| meta.targets.iter().any(|target| target.kind == kind);
    let (why, remedy) = if has("postgres") {
        ("no server was asked for them then, or none answered", "backwater check postgres://…")
    } else if has("mongodb") {
        ("a MongoDB server's threads are looked at live, from its own host", "backwater ash mongodb://…")
    } else if meta.targets.is_empty() {
        ("no server was watched", "backwater ash postgres://…")
    } else {
        ("no server that has some was watched", "backwater ash postgres://…")
    };
    Unseen { what: "active sessions".to_owned(), why: why.to_owned(), remedy: Some(remedy.to_owned()) }
}

/// Probes that did not read for a while, or still do not as the window ends.
fn tell_gaps(page: &mut Page<'_>, window: &Window) {
    let open = OpenGaps::of(window);
    for (probe, Told { count, lasted, reason, is_end }) in gaps(window) {
        let last = if count == 1 { "" } else { "the last time " };
        let lasted = lasted.map(|time| format!(", {last}for {}", Unit::Seconds.show(time))).unwrap_or_default();
        let text = match open.since(probe) {
            // What is not read at the end may be as bad as can be.
            Some(since) => {
                let lasted = Unit::Seconds.show(window.to.seconds_since(since));
                format!("{probe} could not read for the last {lasted}: {reason}. What it would tell is unknown")
            }
            // Only the end of it is told in the window.
            None if is_end && count == 1 => format!("{reason}: what it would have told before is unknown"),
            None if count == 1 => format!("{probe} could not read once{lasted}: {reason}"),
            None => format!("{probe} could not read {} times{lasted}: {reason}", Unit::Count.show(count as f64)),
        };
        page.paragraph(Tone::Warning, &text, 0);
    }
}

/// What is told of a probe that failed for a while.
struct Told<'a> {
    count: usize,
    /// For how long, the last time, in seconds; none where it was not told.
    lasted: Option<f64>,
    /// The last that was given.
    reason: &'a str,
    /// Which is none, but that it reads again.
    is_end: bool,
}

/// Probes that failed for a while: how often, and why.
fn gaps(window: &Window) -> BTreeMap<&str, Told<'_>> {
    let (mut gaps, mut known) = (BTreeMap::<&str, Told<'_>>::new(), Gaps::default());
    for event in window.events_of(EventKind::Gap) {
        let first = known.is_first(event);
        // The end of a gap has no reason. Where nothing else is told of it, it says at least that there was one.
        if !first && event.ends_gap() {
            if let Some(told) = gaps.get_mut(probe_of(event)) {
                told.lasted = event.fields.get("lasted_s").and_then(|text| text.parse().ok());
            }
            continue;
        }
        let reason = event.fields.get("reason").map_or(event.message.as_str(), String::as_str);
        let nothing = Told { count: 0, lasted: None, reason, is_end: false };
        let told = gaps.entry(probe_of(event)).or_insert(nothing);
        (told.reason, told.is_end) = (reason, event.ends_gap());
        told.count += usize::from(first);
    }
    gaps
}

fn probe_of(event: &Event) -> &str {
    event.fields.get("probe").map_or(event.source.as_str(), String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::meta;
    use backwater_model::{Moment, Target};
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
    fn that_nobody_looked_comes_with_why_and_what_next() {
        let told = |targets: Vec<Target>| {
            no_sessions(&window(Meta { targets, anchors: vec![], ..meta() }), &Style::plain(120))
        };
        let of = |kind: &str| vec![Target { name: "a".to_owned(), kind: kind.to_owned(), ..Target::default() }];
        assert_eq!(
            told(of("postgres")),
            "Sessions were not looked at in this time.\n  Watched: host db1, postgres a, loop0 (7:0, /srv/data).\n\n\
             Examined: 0.0 to 60.0 s after boot (60.0 s)\npostgres.sessions could not read once: connection refused\n\n\
             Could not be seen\n  - active sessions: no server was asked for them then, or none answered\n    to see it:\n      \
             backwater check postgres://…\n"
        );
        for (targets, why) in [
            (vec![], "no server was watched"),
            (of("mongodb"), "threads are looked at live"),
            (of("wiredtiger"), "no server that has some was watched"),
        ] {
            let text = told(targets);
            assert!(text.contains(why) && text.contains("backwater ash "), "{text}");
        }
    }

    #[test]
    fn a_window_without_queues_has_nothing_to_judge() {
        let window = window(meta());
        assert!(!crate::html::has_queue(&window), "a server and a device, and no reading of either");
    }

    #[test]
    fn what_is_never_read_again_is_no_gap_that_is_over() {
        let healthy = window(meta());
        let (view, reason) = (("probe", "postgres.a pg_stat_replication"), ("reason", "no answer within 2 s"));
        let told = |second: f64, fields: &[(&str, &str)]| {
            Event::new(Moment::from_seconds(second), "a", EventKind::Gap, "", fields)
        };
        let skipped = ("skipped_bytes", "7");
        let events = [
            told(20.0, &[view, reason]),
            told(50.0, &[view, reason, ("failing_s", "30")]),
            told(51.0, &[("probe", "postgres.log"), ("reason", "too fast"), skipped]),
        ];
        let text = |window: &Window| findings_in(&[], window, true, &[], &Style::plain(200));
        let window = |from_s: f64| {
            let from = Moment::from_seconds(from_s);
            let events = events.iter().filter(|event| event.at >= from).cloned().collect();
            Window::new(from, healthy.to, Arc::new(meta()), vec![], vec![], events)
        };
        for (from_s, lasted_s) in [(0.0, 40.0), (30.0, 30.0)] {
            let (text, lasted) = (text(&window(from_s)), Unit::Seconds.show(lasted_s));
            let wanted =
                format!("pg_stat_replication could not read for the last {lasted}: no answer within 2 s. What");
            assert!(text.contains(&wanted), "{text}");
            assert!(text.contains("postgres.log could not read once: too fast"), "{text}");
        }
    }

    #[test]
    fn a_gap_that_is_over_is_told_with_how_long_it_was() {
        let to = window(meta()).to;
        let told = |second: f64, more: &[(&str, &str)], message: &str| {
            let fields: Vec<_> = [("probe", "postgres.b")].into_iter().chain(more.iter().copied()).collect();
            Event::new(Moment::from_seconds(second), "recorder", EventKind::Gap, message, &fields)
        };
        let begins = told(20.0, &[("reason", "connection refused")], "");
        let ends = told(33.0, &[("ended", "true"), ("lasted_s", "13.3")], "postgres.b reads again after 13.3 s");
        let text = |from_s: f64| {
            let events = [begins.clone(), ends.clone()].into_iter().filter(|event| event.at.seconds() >= from_s);
            let window =
                Window::new(Moment::from_seconds(from_s), to, Arc::new(meta()), vec![], vec![], events.collect());
            findings_in(&[], &window, true, &[], &Style::plain(200))
        };
        let (whole, end) = (text(0.0), text(30.0));
        assert!(whole.contains("postgres.b could not read once, for 13.3 s: connection refused"), "{whole}");
        assert!(
            end.contains("postgres.b reads again after 13.3 s: what it would have told before is unknown"),
            "{end}"
        );
    }

    #[test]
    fn health_comes_with_what_could_not_be_seen() {
        // Without a clock anchor, so that the text does not depend on where the test runs.
        let meta = Meta { anchors: vec![], ..meta() };
        insta::assert_snapshot!(findings_in(&[], &window(meta.clone()), true, &[], &Style::plain(80)));
        let blind = [Blind { server: "a".to_owned(), why: "a could be read for 1.00 s of 60.0 s only".to_owned() }];
        let text = findings_in(&[], &window(meta), true, &blind, &Style::plain(80));
        assert!(
            text.starts_with("No finding: no rule saw")
                && text.contains("\na could be read for 1.00 s of 60.0 s only: what")
        );
    }
}
