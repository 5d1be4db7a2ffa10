//! What is told of each source: its queues, its findings, and how it is with the program itself.

use super::pulse::Pulse;
use super::text::{Family, Sample, Type};
use crate::hook::severity;
use backwater_diagnose::all_queues;
use backwater_model::catalogue::{
    FLOW_POOL_HELD, FLOW_POOL_SENT, FLOW_POOL_WAITING, FLOW_RATE, SELF_CPU, SELF_DROPPED, SELF_MEMORY,
};
use backwater_model::{Finding, Queue, QueueSpec, Unit, Window};

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
    ("backwater_finding", Type::Gauge, "", "1 for each finding that holds now."),
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
    ("backwater_queue_fill_ratio", Type::Gauge, "ratio", "Level by hard limit."),
    ("backwater_queue_inflow_bytes_per_second", Type::Gauge, "bytes_per_second", "What arrives."),
    ("backwater_queue_inflow_per_second", Type::Gauge, "per_second", "What arrives."),
    ("backwater_queue_outflow_bytes_per_second", Type::Gauge, "bytes_per_second", "What leaves."),
    ("backwater_queue_outflow_per_second", Type::Gauge, "per_second", "What leaves."),
    ("backwater_queue_residence_seconds", Type::Gauge, "seconds", "How long what arrives now will stay."),
    ("backwater_queue_time_to_limit_seconds", Type::Gauge, "seconds", "Until the hard limit, at the present rates."),
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
    for finding in *findings {
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
    let last = |def: &backwater_model::catalogue::Def| Some(window.track(def.name, &[])?.points.last()?.value);
    flow(book, subject);
    book.add("backwater_self_cpu_seconds", &of, last(&SELF_CPU));
    book.add("backwater_self_memory_bytes", &of, last(&SELF_MEMORY));
    book.add("backwater_self_dropped_batches", &of, last(&SELF_DROPPED));
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
            book.add(name, &labels, track.points.last().map(|point| point.value));
        }
    }
}

/// The server whose queue this is; empty where the queue is the host's, or of several servers.
fn owner<'a>(specs: &'a [QueueSpec], queue: &str) -> &'a str {
    let mut owners = specs.iter().filter(|spec| spec.name == queue).filter_map(|spec| spec.label("target"));
    owners.next().filter(|_| owners.next().is_none()).unwrap_or_default()
}

fn queue(book: &mut Book, source: &str, spec: &QueueSpec, state: &Queue) {
    let target = spec.label("target").unwrap_or_default();
    let of = [("source", source), ("target", target), ("queue", state.name.as_str())];
    let rate = state.unit.per_second();
    book.add_in("backwater_queue_level", state.unit, &of, state.level);
    book.add_in("backwater_queue_soft_limit", state.unit, &of, state.soft_limit);
    book.add_in("backwater_queue_hard_limit", state.unit, &of, state.hard_limit);
    book.add_in("backwater_queue_inflow", rate, &of, state.inflow_per_s);
    book.add_in("backwater_queue_outflow", rate, &of, state.outflow_per_s);
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
    use std::collections::BTreeSet;

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
