//! What is told of each source: its queues, its findings, and how it is with the program itself.

use super::pulse::{FRESH_S, Pulse};
use super::text::{Family, Sample, Type};
use crate::hook::severity;
use backwater_diagnose::all_queues;
use backwater_model::catalogue::{
    Def, FLOW_POOL_HELD, FLOW_POOL_SENT, FLOW_POOL_WAITING, FLOW_RATE, SELF_CPU, SELF_DROPPED, SELF_MEMORY,
};
use backwater_model::{Finding, Queue, QueueSpec, Track, Unit, Window};

/// Rates are means over so many seconds, and levels no older than that.
const OVER_S: f64 = 10.0;

/// A source as metrics see it.
#[derive(Debug)]
pub struct Subject<'a> {
    /// Its name: the label `source`.
    pub source: &'a str,
    /// Its last minute.
    pub window: &'a Window,
    /// What is found in it.
    pub findings: &'a [Finding],
    /// How fresh it is.
    pub pulse: &'a Pulse,
}

/// Name, type, unit and help of one family.
type Head = (&'static str, Type, &'static str, &'static str);

/// Every family there can be, in the order in which they are told. Alert rules and dashboards name no others.
pub const FAMILIES: &[Head] = &[
    ("backwater_build", Type::Info, "", "Version of the program."),
    ("backwater_source_up", Type::Gauge, "", "Whether a source is read now: within the last 15 seconds."),
    ("backwater_source_age_seconds", Type::Gauge, "seconds", "Age of a source's newest reading, by the clock."),
    ("backwater_target_up", Type::Gauge, "", "Whether a watched server answers now: within the last 15 seconds."),
    ("backwater_finding", Type::Gauge, "", "1 for each finding that holds now: within the last 15 seconds."),
    ("backwater_finding_lost_ratio", Type::Gauge, "ratio", "Share of foreground time lost to a finding."),
    ("backwater_queue_level_bytes", Type::Gauge, "bytes", "What stands in a queue."),
    ("backwater_queue_level", Type::Gauge, "", "What stands in a queue: sessions, requests."),
    ("backwater_queue_level_seconds", Type::Gauge, "seconds", "What stands in a queue of time: a lag, a response."),
    ("backwater_queue_soft_limit_bytes", Type::Gauge, "bytes", "Where background draining begins."),
    ("backwater_queue_soft_limit", Type::Gauge, "", "Where background draining begins."),
    ("backwater_queue_soft_limit_seconds", Type::Gauge, "seconds", "Where background draining begins."),
    ("backwater_queue_hard_limit_bytes", Type::Gauge, "bytes", "Where it breaks."),
    ("backwater_queue_hard_limit", Type::Gauge, "", "Where it breaks."),
    ("backwater_queue_hard_limit_seconds", Type::Gauge, "seconds", "Where it breaks."),
    (
        "backwater_queue_held_from_bytes",
        Type::Gauge,
        "bytes",
        "Where writers begin to be paused, where that is before the hard limit.",
    ),
    (
        "backwater_queue_fill_ratio",
        Type::Gauge,
        "ratio",
        "Level by where writers begin to be paused, else by hard limit.",
    ),
    ("backwater_queue_inflow_bytes_per_second", Type::Gauge, "bytes_per_second", "What arrives."),
    ("backwater_queue_inflow_per_second", Type::Gauge, "per_second", "What arrives."),
    ("backwater_queue_outflow_bytes_per_second", Type::Gauge, "bytes_per_second", "What leaves."),
    ("backwater_queue_outflow_per_second", Type::Gauge, "per_second", "What leaves."),
    ("backwater_queue_residence_seconds", Type::Gauge, "seconds", "How long what arrives now will stay."),
    (
        "backwater_queue_time_to_limit_seconds",
        Type::Gauge,
        "seconds",
        "Until writers are paused, else until the hard limit, at the present rates.",
    ),
    ("backwater_queue_drain_seconds", Type::Gauge, "seconds", "Until it is empty, once nothing more arrives."),
    ("backwater_queue_waiters", Type::Gauge, "", "Sessions that wait on it."),
    (
        "backwater_flow_rate_bytes_per_second",
        Type::Gauge,
        "bytes_per_second",
        "What all low-priority sessions together may send.",
    ),
    ("backwater_flow_held_sessions", Type::Gauge, "sessions", "Sessions that are held to that rate."),
    ("backwater_flow_waiting_statements", Type::Gauge, "statements", "Statements that wait for their turn."),
    ("backwater_flow_sent_bytes", Type::Counter, "bytes", "Sent to a pool's clients."),
    ("backwater_self_cpu_seconds", Type::Counter, "seconds", "Processor time of the program that reads."),
    ("backwater_self_memory_bytes", Type::Gauge, "bytes", "Memory of the program that reads."),
    (
        "backwater_self_dropped_batches",
        Type::Counter,
        "",
        "Readings that were dropped because nobody took them in time.",
    ),
    ("backwater_viewers", Type::Gauge, "", "Pages that follow a source now."),
];

/// All figures of these sources; `viewers` are pages that follow each.
pub fn families(subjects: &[Subject<'_>], viewers: &[usize], down: &[&str]) -> Vec<Family> {
    let mut book = Book(FAMILIES.iter().map(|head| family(*head)).collect());
    book.add("backwater_build", &[("version", env!("CARGO_PKG_VERSION"))], Some(1.0));
    for name in down {
        book.add("backwater_source_up", &[("source", name)], Some(0.0));
    }
    for (subject, viewers) in subjects.iter().zip(viewers) {
        source(&mut book, subject, *viewers);
    }
    book.0
}

fn family((name, kind, unit, help): Head) -> Family {
    Family { name, kind, unit, help, samples: Vec::new() }
}

struct Book(Vec<Family>);

impl Book {
    /// A sample, if there is a value.
    fn add(&mut self, name: &str, labels: &[(&'static str, &str)], value: Option<f64>) {
        if let (Some(value), Some(family)) = (value, self.0.iter_mut().find(|family| family.name == name)) {
            let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            family.samples.push(Sample { labels, value });
        }
    }

    /// A sample in the family of this name and the unit's own ending, in base units.
    fn add_in(&mut self, name: &str, unit: Unit, labels: &[(&'static str, &str)], value: Option<f64>) {
        let (ending, factor) = match unit {
            Unit::Bytes => ("_bytes", 1.0),
            Unit::BytesPerSecond => ("_bytes_per_second", 1.0),
            Unit::PerSecond => ("_per_second", 1.0),
            Unit::Count | Unit::Flag => ("", 1.0),
            Unit::Ratio => ("_ratio", 1.0),
            Unit::Seconds => ("_seconds", 1.0),
            Unit::Milliseconds => ("_seconds", 1e-3),
            Unit::Microseconds => ("_seconds", 1e-6),
        };
        self.add(&format!("{name}{ending}"), labels, value.map(|value| value * factor));
    }
}

fn source(book: &mut Book, subject: &Subject<'_>, viewers: usize) {
    let Subject { source, window, findings, pulse } = subject;
    let of = [("source", *source)];
    let flag = |holds: bool| Some(f64::from(u8::from(holds)));
    book.add("backwater_source_up", &of, flag(pulse.up));
    book.add("backwater_source_age_seconds", &of, pulse.age_s);
    for (target, up) in &pulse.targets {
        book.add("backwater_target_up", &[("source", *source), ("target", target)], flag(*up));
    }
    book.add("backwater_viewers", &of, Some(viewers as f64));
    // Of what is not read any more nothing is known of now.
    if !pulse.up {
        return;
    }
    let specs: Vec<QueueSpec> = all_queues(window);
    for finding in findings.iter().filter(|finding| window.to.seconds_since(finding.to) <= FRESH_S) {
        let labels = [
            ("source", *source),
            ("target", finding.server.as_deref().unwrap_or_else(|| owner(&specs, &finding.queue))),
            ("rule", finding.rule.as_str()),
            ("cause", finding.cause.as_str()),
            ("severity", severity(finding.severity)),
            ("queue", finding.queue.as_str()),
        ];
        book.add("backwater_finding", &labels, Some(1.0));
        book.add("backwater_finding_lost_ratio", &labels, finding.foreground_lost);
    }
    // A lower bound would be taken for a total: a sample has no place to say so.
    for spec in specs.iter().filter(|spec| !spec.at_least) {
        queue(book, source, spec, &spec.read(window, window.to, OVER_S));
    }
    let last = |def: &Def| value_now(window, window.track(def.name, &[])?);
    flow(book, subject);
    book.add("backwater_self_cpu_seconds", &of, last(&SELF_CPU));
    book.add("backwater_self_memory_bytes", &of, last(&SELF_MEMORY));
    book.add("backwater_self_dropped_batches", &of, last(&SELF_DROPPED));
}

/// What a series is now: nothing where it is not read any more.
fn value_now(window: &Window, track: Track<'_>) -> Option<f64> {
    track.at(window.to, OVER_S).map(|point| point.value)
}

/// What a proxy holds back, where the source is its recording.
fn flow(book: &mut Book, subject: &Subject<'_>) {
    let Subject { source, window, .. } = subject;
    let families = [
        ("backwater_flow_rate_bytes_per_second", FLOW_RATE),
        ("backwater_flow_held_sessions", FLOW_POOL_HELD),
        ("backwater_flow_waiting_statements", FLOW_POOL_WAITING),
        ("backwater_flow_sent_bytes", FLOW_POOL_SENT),
    ];
    for (name, def) in families {
        for track in window.tracks(def.name, &[]) {
            let pool = track.series.labels.get("pool").map(|pool| ("pool", pool));
            let labels: Vec<(&'static str, &str)> = [("source", *source)].into_iter().chain(pool).collect();
            book.add(name, &labels, value_now(window, track));
        }
    }
}

/// The server whose queue this is; empty where the queue is the host's, or of several servers.
fn owner<'a>(specs: &'a [QueueSpec], queue: &str) -> &'a str {
    let mut owners = specs.iter().filter(|spec| spec.name == queue).filter_map(QueueSpec::server);
    owners.next().filter(|_| owners.next().is_none()).unwrap_or_default()
}

fn queue(book: &mut Book, source: &str, spec: &QueueSpec, state: &Queue) {
    let target = spec.server().unwrap_or_default();
    let of = [("source", source), ("target", target), ("queue", state.name.as_str())];
    let rate = state.unit.per_second();
    book.add_in("backwater_queue_level", state.unit, &of, state.level);
    book.add_in("backwater_queue_soft_limit", state.unit, &of, state.soft_limit);
    book.add_in("backwater_queue_hard_limit", state.unit, &of, state.hard_limit);
    book.add_in("backwater_queue_inflow", rate, &of, state.inflow_per_s);
    book.add_in("backwater_queue_outflow", rate, &of, state.outflow_per_s);
    let held_from = state.held_from().filter(|_| state.held_midway);
    book.add_in("backwater_queue_held_from", state.unit, &of, held_from);
    book.add("backwater_queue_fill_ratio", &of, state.fill());
    book.add("backwater_queue_residence_seconds", &of, state.residence_s());
    book.add("backwater_queue_time_to_limit_seconds", &of, state.time_to_limit_s());
    book.add("backwater_queue_drain_seconds", &of, state.drain_time_s(0.0));
    book.add("backwater_queue_waiters", &of, state.waiters);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::catalogue::{NET_BACKLOG, NET_SPEED};
    use backwater_model::{Epoch, Meta, Moment, Point, SeriesId};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// A minute of an interface and of the program's own figures, which end ten seconds and more before it does.
    fn minute() -> Window {
        let own = [("target", "host"), ("if", "eth0")];
        let points =
            |last: i64| (0..=last).map(|at| Point { at: Moment(at * 1_000_000), value: 7.0, ..POINT }).collect();
        let series = vec![
            (Arc::new(NET_SPEED.series(&own)), points(60)),
            (Arc::new(NET_BACKLOG.series(&own)), points(60)),
            (Arc::new(SELF_MEMORY.series::<&str>(&[])), points(49)),
            (Arc::new(FLOW_RATE.series::<&str>(&[])), points(49)),
        ];
        Window::new(Moment(0), Moment(60_000_000), Arc::new(Meta::default()), series, Vec::new(), Vec::new())
    }

    const POINT: Point = Point { at: Moment(0), series: SeriesId(0), epoch: Epoch(1), value: 0.0, as_of: None };

    fn samples(findings: &[Finding], name: &str) -> Vec<Sample> {
        let (window, pulse) = (minute(), Pulse { age_s: Some(0.0), up: true, targets: Vec::new() });
        let subject = Subject { source: "s", window: &window, findings, pulse: &pulse };
        families(&[subject], &[0], &[]).into_iter().find(|family| family.name == name).unwrap().samples
    }

    #[test]
    fn what_ended_half_a_minute_ago_holds_no_more() {
        let until = |cause: &str, to_s: i64| -> Finding {
            let value = serde_json::json!({
                "rule": "dirty-throttle", "cause": cause, "severity": "critical", "queue": "host.dirty@7:0",
                "from": 10_000_000, "to": to_s * 1_000_000, "foreground_lost": 0.9, "summary": "", "evidence": [],
                "ruled_out": [], "unseen": [], "confidence": "high", "victims": [], "remedies": [],
            });
            serde_json::from_value(value).unwrap()
        };
        let told = samples(&[until("over", 30), until("now", 50)], "backwater_finding");
        let causes: Vec<&str> = told.iter().map(|sample| sample.labels[3].1.as_str()).collect();
        assert_eq!(causes, ["now"]);
        assert_eq!(samples(&[until("over", 30)], "backwater_finding_lost_ratio"), []);
    }

    #[test]
    fn a_figure_that_is_not_read_any_more_is_not_told_as_of_now() {
        for name in ["backwater_self_memory_bytes", "backwater_flow_rate_bytes_per_second"] {
            assert_eq!(samples(&[], name), [], "{name}");
        }
    }

    #[test]
    fn an_interface_of_the_host_is_no_servers() {
        let levels = samples(&[], "backwater_queue_level_bytes");
        let of = |name: &str| levels[0].labels.iter().find(|(label, _)| *label == name).unwrap().1.clone();
        assert_eq!((levels.len(), of("queue").as_str(), of("target").as_str()), (1, "host.net@eth0", ""));
    }

    /// Names in a text that begin as ours do.
    fn named(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words.filter(|word| word.starts_with("backwater_")).map(str::to_owned).collect()
    }

    #[test]
    fn alert_rules_and_dashboard_name_what_there_is() {
        let texts = [
            include_str!("../../../../docs/monitoring/alerts.yml"),
            include_str!("../../../../docs/monitoring/grafana.json"),
        ];
        let samples: BTreeSet<String> = FAMILIES
            .iter()
            .map(|(name, kind, ..)| if *kind == Type::Counter { format!("{name}_total") } else { (*name).to_owned() })
            .collect();
        for text in texts {
            let names = named(text);
            assert!(names.len() > 4, "{names:?}");
            // A pattern over several names ends where its choice begins.
            let known = |name: &&String| !samples.contains(*name);
            assert_eq!(names.iter().find(known), None);
        }
    }

    /// Families of which a source with several servers has one for each.
    fn is_of_targets(text: &str) -> bool {
        ["backwater_queue_", "backwater_finding", "backwater_target_"].iter().any(|family| text.contains(family))
    }

    #[test]
    fn servers_are_told_apart_in_curves_and_alerts() {
        let dashboard: serde_json::Value =
            serde_json::from_str(include_str!("../../../../docs/monitoring/grafana.json")).unwrap();
        let panels = dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] == "timeseries");
        let curves: Vec<_> = panels.flat_map(|panel| panel["targets"].as_array().unwrap()).collect();
        let told = |curve: &&&serde_json::Value| is_of_targets(curve["expr"].as_str().unwrap());
        assert!(curves.iter().filter(told).count() > 8);
        for curve in curves.iter().filter(told) {
            assert!(curve["legendFormat"].as_str().unwrap().contains("{{target}}"), "{curve}");
        }
        let rules = include_str!("../../../../docs/monitoring/alerts.yml");
        let alerts: Vec<&str> = rules.split("- alert: ").skip(1).filter(|alert| is_of_targets(alert)).collect();
        assert!(alerts.len() >= 6);
        for alert in alerts {
            let annotations = alert.split_once("annotations:").unwrap().1;
            assert!(annotations.contains("$labels.target"), "{alert}");
            assert!(!alert.contains("backwater_finding") || annotations.contains("$labels.cause"), "{alert}");
        }
    }

    #[test]
    fn a_name_ends_in_its_unit() {
        for (name, _, unit, help) in FAMILIES {
            assert!(unit.is_empty() || name.ends_with(&format!("_{unit}")), "{name}");
            assert!(help.ends_with('.'), "{name}");
        }
    }
}
