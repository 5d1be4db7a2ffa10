//! tickets-exhausted: every ticket into the engine is taken, and operations wait for one.

use super::draft::draft;
use super::wt_evidence::{Engine, engines, gauge, rate, share};
use crate::figures::Figures;
use crate::grid::{both, episodes, longest};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, Severity, Unit, catalogue as cat};

/// Share of the tickets that is as good as all: readings are instants.
const ALL: f64 = 0.95;
/// Operations in line, at least: since 7.0 the server gives out few tickets on purpose, and all of them in use is well.
const IN_LINE: f64 = 1.0;
/// How long an operation stands there, at least, in milliseconds: those in line ÷ those answered a second (Little's law).
const STANDS_MS: f64 = 5.0;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 5;
const BRIDGE_S: usize = 2;

/// The findings of a window: at most one a server and kind of ticket.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let all = engines(scene);
    all.iter().flat_map(|engine| ["read", "write"].into_iter().filter_map(|op| of(scene, engine, op))).collect()
}

fn of(scene: &Scene<'_>, engine: &Engine<'_>, op: &'static str) -> Option<Finding> {
    let read = |def| gauge(scene, def, &engine.name, Some(op));
    let (out, free) = (read(&cat::MONGO_TICKETS_OUT), read(&cat::MONGO_TICKETS_FREE));
    let total = out.with(&free, |out, free| out + free).or(&read(&cat::MONGO_TICKETS_TOTAL));
    let used = share(&out, &total);
    let line = read(&cat::MONGO_TICKETS_QUEUED).or(&read(&cat::MONGO_LOCK_QUEUE));
    let answered = rate(scene, &cat::MONGO_OPS, &engine.name, Some(if op == "read" { "reads" } else { "writes" }));
    let stands_ms = line.with(&answered, |line, per_s| if per_s > 0.0 { 1e3 * line / per_s } else { f64::INFINITY });
    let passes: Vec<bool> = stands_ms.flags(|ms| ms < STANDS_MS);
    let waits: Vec<bool> =
        line.flags(|line| line >= IN_LINE).iter().zip(passes).map(|(in_line, passes)| *in_line && !passes).collect();
    let flags = both(&used.flags(|used| used >= ALL), &waits);
    let (range, seconds) = longest(&episodes(&flags, LEAST_S, BRIDGE_S))?;
    let queue = format!("mongo.tickets.{op}@{}", engine.name);
    let cause = if op == "read" { "read-tickets" } else { "write-tickets" };
    let mut finding = draft("tickets-exhausted", cause, queue, scene.grid.span(&range));
    finding.severity = if seconds >= 30 { Severity::Critical } else { Severity::Warning };
    finding.confidence = Confidence::High;
    let value = |lane: &crate::grid::Lane| lane.mean(&range).unwrap_or_default();
    finding.summary = format!(
        "{} of {} {op} tickets were in use while {} operations stood in line for one. Tickets run out when operations \
         inside the engine are slow: more tickets would only put more of them there.",
        Unit::Count.show(value(&out)),
        Unit::Count.show(value(&total)),
        Unit::Count.show(value(&line)),
    );
    let mut figures = Figures::default();
    figures.add("tickets_out_count", out.mean(&range), Unit::Count, "tickets in use");
    figures.add("tickets_total_count", total.mean(&range), Unit::Count, "tickets there are");
    figures.add("in_line_count", line.mean(&range), Unit::Count, "operations in line");
    figures.add("in_line_peak_count", line.max(&range), Unit::Count, "operations in line, at most");
    let stands = answered.mean(&range).filter(|per_s| *per_s > 0.0).map(|per_s| 1e3 * value(&line) / per_s);
    figures.add("in_line_ms", stands, Unit::Milliseconds, "in line (operations in line ÷ answered a second)");
    figures.add("waiting_threads_count", engine.waiting.mean(&range), Unit::Count, "threads held up by the cache");
    figures.add("exhausted_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    finding.victims = vec![format!("mongo.{op}s@{}", engine.name)];
    Some(finding)
}
