//! The page's document as Markdown, for a ticket, a wiki or a mail: findings whole, then queues, sessions, lab results and events.
//!
//! What a recording holds stays words here too: every sign that Markdown or HTML would take for its own is escaped.

use super::document::{Document, FindingView, FlowView, HoldView, Lab, QueueView, Sessions};
use super::marks;
use crate::{none_found, shards};
use backwater_diagnose::ShardRow;
use backwater_model::{Figure, FlowHeld, FlowPool, Remedy, Severity, Unit, Unseen};
use std::fmt::Write;

/// Events that are listed; the page has them all.
const MOST_EVENTS: usize = 40;
/// Groups of sessions that are listed.
const MOST_GROUPS: usize = 8;

/// The document as Markdown.
pub fn markdown(document: &Document) -> String {
    let mut out = Text(String::new());
    out.line(&format!("# Backwater: {}", words(&document.about.title)));
    let length = Unit::Seconds.show(document.about.seconds);
    let begun = document.axis.from_unix_ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms as i64).ok());
    let begun = begun.map(|at| format!("{} UTC, ", at.strftime("%Y-%m-%d %H:%M:%S"))).unwrap_or_default();
    out.line(&format!("{begun}{length} recorded, {} findings", document.findings.len()));
    let warnings = document.about.warnings.iter().chain(&document.failing).chain(&document.blind);
    let bullets: Vec<String> = warnings.map(|warning| format!("▲ {}", words(warning))).collect();
    out.bullets(&bullets);
    out.line("## Findings");
    if document.findings.is_empty() {
        out.line(none_found(!document.path.queues.is_empty()));
    }
    document.findings.iter().for_each(|view| finding(&mut out, document, view));
    unseen(&mut out, "## Could not be seen", &document.unseen);
    shards_beside(&mut out, &document.shards);
    queues(&mut out, document);
    document.sessions.iter().for_each(|seen| sessions(&mut out, seen));
    document.flow.iter().for_each(|seen| flow(&mut out, document, seen));
    document.lab.iter().for_each(|run| lab(&mut out, run));
    events(&mut out, document);
    out.line("## About this recording");
    let facts = document.about.facts.iter().map(|(name, value)| vec![words(name), words(value)]).collect::<Vec<_>>();
    out.table(&["fact", "value"], &facts);
    let written_by = words(&document.about.written_by);
    out.line(&format!("Recorded by {written_by}, told by Backwater {}.", document.about.made_by));
    out.0
}

/// A text under construction; what is added stands apart by an empty line.
struct Text(String);

impl Text {
    fn line(&mut self, text: &str) {
        let _never_fails = writeln!(self.0, "{}{text}", if self.0.is_empty() { "" } else { "\n" });
    }

    fn bullets(&mut self, list: &[String]) {
        if !list.is_empty() {
            self.line(&list.iter().map(|text| format!("- {text}")).collect::<Vec<_>>().join("\n"));
        }
    }

    /// Commands to copy, whole; the fence is longer than any run of backticks in them.
    fn commands(&mut self, title: &str, list: &[String]) {
        if list.is_empty() {
            return;
        }
        let text = list.join("\n");
        let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
        let fence = "`".repeat(longest.max(2) + 1);
        self.line(&format!("{title}:"));
        self.line(&format!("{fence}sh\n{text}\n{fence}"));
    }

    fn table(&mut self, headers: &[&str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        let mut lines = vec![row(headers.iter().map(|text| (*text).to_owned()).collect())];
        lines.push(row(headers.iter().map(|_| "---".to_owned()).collect()));
        lines.extend(rows.iter().cloned().map(row));
        self.line(&lines.join("\n"));
    }
}

/// Foreign words as words: on one line, with every sign escaped that would mean something.
fn words(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            c if c.is_control() => out.push(' '),
            '\\' | '`' | '*' | '_' | '<' | '>' | '|' | '[' | ']' | '#' | '&' | '~' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

fn finding(out: &mut Text, document: &Document, view: &FindingView) {
    let FindingView { finding, from_s, to_s } = view;
    let severity = match finding.severity {
        Severity::Critical => "✗ Critical",
        Severity::Warning => "▲ Warning",
        Severity::Info => "• Worth knowing",
    };
    let (rule, cause, queue) = (words(&finding.rule), words(&finding.cause), words(&finding.queue));
    let server = finding.server.as_deref().map(|server| format!(" on {}", words(server))).unwrap_or_default();
    out.line(&format!("### {severity}: {rule} ({cause}), {queue}{server}"));
    out.line(&words(&finding.summary));
    let mut facts = vec![format!("{}; confidence {:?}", when(document, *from_s, *to_s), finding.confidence)];
    facts.extend(finding.foreground_lost.map(|lost| format!("Foreground time lost: {}", Unit::Ratio.show(lost))));
    if !finding.victims.is_empty() {
        facts.push(format!("It also holds up: {}", words(&finding.victims.join(", "))));
    }
    out.bullets(&facts);
    figures(out, "evidence", &finding.evidence);
    let ruled_out = |out: &backwater_model::RuledOut| format!("**{}**: {}", words(&out.cause), words(&out.because));
    if !finding.ruled_out.is_empty() {
        out.line("Ruled out:");
        out.bullets(&finding.ruled_out.iter().map(ruled_out).collect::<Vec<_>>());
    }
    unseen(out, "Could not be seen:", &finding.unseen);
    finding.remedies.iter().for_each(|one| remedy(out, one));
}

/// A stretch of the recording by the clock in UTC, or as seconds since its begin.
fn when(document: &Document, from_s: f64, to_s: f64) -> String {
    let clock = |seconds: f64| {
        let ms = document.axis.from_unix_ms? + seconds * 1e3;
        let at = jiff::Timestamp::from_millisecond(ms as i64).ok()?;
        Some(at.strftime("%H:%M:%S").to_string())
    };
    let length = Unit::Seconds.show(to_s - from_s);
    match (clock(from_s), clock(to_s)) {
        (Some(from), Some(to)) => format!("{from} to {to} UTC ({length})"),
        _ => format!("{from_s:.0} s to {to_s:.0} s after the begin ({length})"),
    }
}

fn figures(out: &mut Text, title: &str, list: &[Figure]) {
    let row = |figure: &Figure| vec![words(&figure.label), figure.show()];
    out.table(&[title, "value"], &list.iter().map(row).collect::<Vec<_>>());
}

fn unseen(out: &mut Text, title: &str, list: &[Unseen]) {
    if list.is_empty() {
        return;
    }
    out.line(title);
    let one = |unseen: &Unseen| {
        let remedy = unseen.remedy.as_ref().map(|text| format!(" To see it: {}", words(text))).unwrap_or_default();
        format!("**{}**: {}{remedy}", words(&unseen.what), words(&unseen.why))
    };
    out.bullets(&list.iter().map(one).collect::<Vec<_>>());
}

fn remedy(out: &mut Text, remedy: &Remedy) {
    out.line(&format!("**What to do: {}**", words(&remedy.title)));
    out.commands("Now", &remedy.runtime);
    out.commands("To keep it", &remedy.persistent);
    figures(out, "predicted", &remedy.predicted);
    if !remedy.risk.is_empty() {
        out.line(&format!("Risk: {}", words(&remedy.risk)));
    }
    out.commands("To take it back", &remedy.undo);
}

fn shards_beside(out: &mut Text, rows: &[ShardRow]) {
    let Some(first) = rows.first() else { return };
    out.line("## Shards side by side");
    let places = shards::known(rows);
    let labels = places.iter().map(|place| first.figures[*place].label);
    let row = |row: &ShardRow| {
        let values = places.iter().map(|place| shards::shown(&row.figures[*place]));
        [words(&row.shard), words(&row.server)].into_iter().chain(values).collect()
    };
    let headers: Vec<&str> = ["shard", "server"].into_iter().chain(labels).collect();
    out.table(&headers, &rows.iter().map(row).collect::<Vec<_>>());
}

fn queues(out: &mut Text, document: &Document) {
    let most = |place: Option<usize>| document.series.get(place?)?.lane.max();
    let mean = |place: Option<usize>| document.series.get(place?)?.lane.mean();
    let shown = |value: Option<f64>, unit: Unit| value.map_or_else(|| "–".to_owned(), |value| unit.show(value));
    let row = |queue: &QueueView| {
        let rate = queue.unit.per_second();
        let bound = if queue.at_least { "at least " } else { "" };
        let read = |value: Option<f64>, unit: Unit| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{bound}{}", unit.show(value)))
        };
        vec![
            words(&queue.name),
            words(queue.target.as_deref().unwrap_or_default()),
            read(most(queue.level), queue.unit),
            shown(most(queue.soft_limit), queue.unit),
            shown(most(queue.hard_limit), queue.unit),
            read(mean(queue.inflow), rate),
            read(mean(queue.outflow), rate),
        ]
    };
    let rows: Vec<Vec<String>> = document.path.queues.iter().map(row).collect();
    if !rows.is_empty() {
        out.line("## Queues");
        let headers = ["queue", "server", "level, at most", "soft limit", "hard limit", "in, mean", "out, mean"];
        out.table(&headers, &rows);
    }
}

fn sessions(out: &mut Text, sessions: &Sessions) {
    let looked = sessions.looked.iter().filter(|looked| **looked).count().max(1) as f64;
    out.line("## Active sessions");
    for top in &sessions.tops {
        let mean = |group: &super::document::Group| group.slots.iter().map(|(_, value)| value).sum::<f64>() / looked;
        let row = |group: &super::document::Group| vec![words(&group.name), Unit::Count.show(mean(group))];
        let rows: Vec<Vec<String>> = top.groups.iter().take(MOST_GROUPS).map(row).collect();
        out.table(&[&top.by, "sessions on average"], &rows);
    }
}

fn flow(out: &mut Text, document: &Document, flow: &FlowView) {
    out.line("## Flow");
    if let Some(state) = &flow.state {
        let rate = |bps: Option<f64>| bps.map_or_else(|| "–".to_owned(), |bps| Unit::BytesPerSecond.show(bps));
        let held = format!("{} sessions held", state.held_in_all);
        // Where each has a rate of its own there is none of all together.
        let class = state.rate_bps.map_or_else(String::new, |_| {
            let rate = rate(state.rate_bps);
            format!(", all low-priority sessions together may send {rate} by {}", state.rate_by)
        });
        out.line(&words(&format!("{}: {held}{class}", state.by)));
        let row = |one: &FlowHeld| {
            let why = one
                .rule
                .as_ref()
                .map_or_else(|| "its pool is low, or it was named".to_owned(), |rule| format!("rule {rule}"));
            let texts =
                [&one.user, &one.application, &one.client, &one.pool, &why, &one.bound_by].map(|text| words(text));
            let figures = [rate(one.rate_bps), rate(one.allowed_bps)];
            [one.session.to_string()].into_iter().chain(texts).chain(figures).collect()
        };
        let rows: Vec<Vec<String>> = state.held.iter().map(row).collect();
        let headers =
            ["session", "user", "application", "client", "pool", "held because", "by", "is sent", "may be sent"];
        out.table(&headers, &rows);
        let row = |pool: &FlowPool| {
            let counts = [pool.sessions, pool.held, pool.running, pool.waiting].map(|count| count.to_string());
            [words(&pool.name), words(&pool.priority), rate(pool.bandwidth_bps)].into_iter().chain(counts).collect()
        };
        let rows: Vec<Vec<String>> = state.pools.iter().map(row).collect();
        out.table(&["pool", "priority", "bandwidth", "sessions", "held", "running", "waiting"], &rows);
    }
    let row = |hold: &HoldView| {
        let until = hold.to_s.map_or_else(|| "goes on".to_owned(), |to_s| when(document, hold.from_s, to_s));
        let end = hold.end.as_deref().unwrap_or("–");
        let texts = [&*hold.rule, &hold.action, &hold.session, &hold.user, &hold.pool, &hold.message, end];
        [until].into_iter().chain(texts.map(words)).collect()
    };
    let rows: Vec<Vec<String>> = flow.holds.iter().rev().take(MOST_EVENTS).rev().map(row).collect();
    out.table(&["when", "rule", "action", "session", "user", "pool", "in words", "over because"], &rows);
}

fn lab(out: &mut Text, lab: &Lab) {
    out.line(&format!("## Experiment {}", words(&lab.scenario)));
    out.line(&words(&lab.machine));
    let labels = lab.metrics.iter().map(|metric| metric.label.as_str());
    let headers: Vec<&str> = ["arm", "set", "expected", "found"].into_iter().chain(labels).collect();
    let row = |arm: &super::document::ArmView| {
        let value = |name: &str| arm.values.get(name).map_or_else(|| "–".to_owned(), |value| words(&value.text));
        let fixed = [&arm.name, &arm.set, &arm.expected, &arm.found].map(|text| words(text));
        fixed.into_iter().chain(lab.metrics.iter().map(|metric| value(&metric.name))).collect::<Vec<_>>()
    };
    out.table(&headers, &lab.arms.iter().map(row).collect::<Vec<_>>());
    out.bullets(&lab.doubts.iter().map(|doubt| format!("Doubt: {}", words(doubt))).collect::<Vec<_>>());
}

fn events(out: &mut Text, document: &Document) {
    if document.events.is_empty() {
        return;
    }
    let (listed, left_out) = marks::fitting(document.events.clone(), MOST_EVENTS);
    let left_out = left_out + document.events_left_out;
    out.line("## Events");
    let row =
        |mark: &super::document::Mark| vec![format!("{:.1} s", mark.at_s), words(&mark.source), words(&mark.message)];
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    out.table(&["after the begin", "source", "event"], &rows);
    if left_out > 0 {
        out.line(&format!("{left_out} others are not listed here: of what is frequent the latest are."));
    }
}

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::*;
    use crate::samples_for_tests::{finding, meta, stampede_outcome};
    use backwater_model::{Event, EventKind, Finding, FlowState, Moment, Window};
    use std::sync::Arc;

    fn written(finding: Finding) -> String {
        let (from, to) = (Moment::from_seconds(1_000.0), Moment::from_seconds(1_060.0));
        let window = Window::new(from, to, Arc::new(meta()), vec![], vec![], vec![]);
        markdown(&document(&window, &[finding], Some(&stampede_outcome()), &[]))
    }

    #[test]
    fn a_hold_is_told_with_its_session_and_its_end_and_no_rate_where_there_is_none() {
        let fields = |step: &'static str| {
            let known =
                [("rule", "slow"), ("action", "penalty"), ("session", "77"), ("user", "etl"), ("pool", "batch")];
            known.into_iter().chain([("step", step), ("why", "the statement ended")]).collect::<Vec<_>>()
        };
        let told = |second: f64, step| {
            Event::new(Moment::from_seconds(second), "attach", EventKind::Decision, "told", &fields(step))
        };
        let (from, to) = (Moment::from_seconds(1_000.0), Moment::from_seconds(1_060.0));
        let events = vec![told(1_010.0, "began"), told(1_020.0, "lifted")];
        let window = Window::new(from, to, Arc::new(meta()), vec![], vec![], events);
        let state = FlowState { by: "attach mode".to_owned(), ..FlowState::default() };
        let text = markdown(&document(&window, &[], None, &[]).with_flow(Some(state)));
        assert!(text.contains("attach mode: 0 sessions held\n"), "{text}");
        assert!(text.contains("| slow | penalty | 77 | etl | batch | told | the statement ended |"), "{text}");
    }

    #[test]
    fn of_many_events_the_latest_are_listed() {
        let said = |second: i64| {
            let at = Moment::from_seconds(1_000.0 + second as f64 / 10.0);
            Event::new(at, "postgres", EventKind::Log, format!("said as number {second}."), &[])
        };
        let (from, to) = (Moment::from_seconds(1_000.0), Moment::from_seconds(1_060.0));
        let window = Window::new(from, to, Arc::new(meta()), vec![], vec![], (0..50).map(said).collect());
        let text = markdown(&document(&window, &[], None, &[]));
        assert!(!text.contains("number 9.") && text.contains("number 10.") && text.contains("number 49."), "{text}");
        assert!(text.contains("\n10 others are not listed here: of what is frequent the latest are.\n"), "{text}");
    }

    #[test]
    fn who_recorded_is_named_once() {
        let text = |written_by: &str| {
            let (from, to) = (Moment::from_seconds(1_000.0), Moment::from_seconds(1_060.0));
            let meta = backwater_model::Meta { written_by: written_by.to_owned(), ..meta() };
            markdown(&document(&Window::new(from, to, Arc::new(meta), vec![], vec![], vec![]), &[], None, &[]))
        };
        assert!(text("backwater 0.1.0").contains("Recorded by Backwater 0.1.0, told by Backwater "));
        assert!(text("MongoDB 7.0.12").contains("Recorded by MongoDB 7.0.12, told by Backwater "));
        assert!(text("").contains("Recorded by Backwater of an unknown version, told by Backwater "));
    }

    #[test]
    fn a_report_is_told_whole() {
        let text = written(finding());
        assert!(text.starts_with("# Backwater: Experiment stampede\n"), "{text}");
        assert!(text.contains("dirty-throttle") && text.contains("## Experiment stampede"));
        for remedy in finding().remedies {
            let whole = |command: &String| text.contains(command.as_str());
            assert!(remedy.runtime.iter().all(whole), "commands are never broken or escaped: {text}");
        }
        assert!(finding().evidence.iter().all(|figure| text.contains(&figure.show())));
    }

    #[test]
    fn hostile_words_stay_words() {
        let hostile = "</script><img src=x onerror=alert(1)> | [a](b) **x**\n# heading";
        let text = written(Finding { summary: hostile.to_owned(), ..finding() });
        assert!(text.contains(r"\<img src=x onerror=alert(1)\> \| \[a\](b) \*\*x\*\* \# heading"), "{text}");
        assert!(!text.contains("\n# heading"));
    }
}
