//! connection-storm: connections are opened and thrown away by the hundred, and each costs the server a thread.

use super::draft::draft;
use super::wt_evidence::{Engine, flags_of, gauge, rate, servers};
use crate::figures::Figures;
use crate::grid::{both, episodes, longest};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, Severity, Unit, catalogue as cat};

/// Connections opened a second from which it can be a storm.
const STORM_PER_S: f64 = 50.0;
/// A connection that lives no longer than this, in seconds, is not pooled: standing ÷ opened a second (Little's law).
const SHORT_LIFE_S: f64 = 60.0;
/// Free share of the limit below which new clients are nearly turned away.
const NEARLY_FULL: f64 = 0.05;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 10;
const BRIDGE_S: usize = 3;
/// Latency inside ÷ outside, from which the storm is felt.
const SUFFERS: f64 = 1.5;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    servers(scene).iter().filter_map(|engine| full(scene, engine).or_else(|| churn(scene, engine))).collect()
}

/// Connections near the limit.
fn full(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let (current, free) = (
        gauge(scene, &cat::MONGO_CONNECTIONS, &engine.name, None),
        gauge(scene, &cat::MONGO_CONNECTIONS_FREE, &engine.name, None),
    );
    let shares = free.with(&current, |free, current| if free + current > 0.0 { free / (free + current) } else { 1.0 });
    let (range, seconds) = longest(&episodes(&shares.flags(|share| share <= NEARLY_FULL), LEAST_S, BRIDGE_S))?;
    let queue = format!("mongo.connections@{}", engine.name);
    let mut finding = draft("connection-storm", "limit", queue, scene.grid.span(&range));
    let rejected = rate(scene, &cat::MONGO_CONNECTIONS_REJECTED, &engine.name, None).mean(&range);
    let turned_away = rejected.is_some_and(|rejected| rejected > 0.0);
    finding.severity = if turned_away { Severity::Critical } else { Severity::Warning };
    finding.confidence = Confidence::High;
    let most = current.max(&range).unwrap_or_default();
    let left = free.mean(&range).unwrap_or_default();
    finding.summary = format!(
        "{} connections are open and {} more may be; {}.",
        Unit::Count.show(most),
        Unit::Count.show(left),
        if turned_away { "clients were turned away" } else { "beyond that clients are turned away" }
    );
    let mut figures = Figures::default();
    figures.add("connections_count", Some(most), Unit::Count, "connections, at most");
    figures.add("connections_left_count", Some(left), Unit::Count, "connections that may still be opened");
    figures.add("rejected_per_s", rejected, Unit::PerSecond, "connections turned away");
    figures.add("full_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    Some(finding)
}

/// Connections that live too short.
fn churn(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let opened = rate(scene, &cat::MONGO_CONNECTIONS_CREATED, &engine.name, None).smooth(1);
    let current = gauge(scene, &cat::MONGO_CONNECTIONS, &engine.name, None);
    let life_s = current.with(&opened, |standing, opened| standing / opened.max(1e-9));
    let flags = both(&opened.flags(|per_s| per_s >= STORM_PER_S), &life_s.flags(|life| life <= SHORT_LIFE_S));
    let found = episodes(&flags, LEAST_S, BRIDGE_S);
    let (range, seconds) = longest(&found)?;
    let inside = flags_of(&found, scene.grid.count);
    let latency = engine.latency(&inside);
    let always = inside.iter().all(|flag| *flag);
    let slower = latency.filter(|latency| latency.times() >= SUFFERS);
    // A storm that passes and that nobody feels is somebody's batch job.
    if slower.is_none() && !always {
        return None;
    }
    let queue = format!("mongo.connections@{}", engine.name);
    let mut finding = draft("connection-storm", "churn", queue, scene.grid.span(&range));
    finding.severity = if slower.is_some() { Severity::Warning } else { Severity::Info };
    finding.confidence = if slower.is_some() { Confidence::Medium } else { Confidence::Low };
    let life = life_s.mean(&range).unwrap_or_default();
    finding.summary = format!(
        "{} connections were opened, each for about {}: every one costs a thread, a handshake and a login.",
        Unit::PerSecond.show(opened.mean(&range).unwrap_or_default()),
        Unit::Seconds.show(life),
    );
    if let Some(slower) = slower {
        let (inside, outside) = (Unit::Milliseconds.show(slower.inside), Unit::Milliseconds.show(slower.outside));
        finding.summary.push_str(&format!(" A write took {inside} instead of {outside}."));
    }
    let mut figures = Figures::default();
    figures.add("opened_per_s", opened.mean(&range), Unit::PerSecond, "connections opened");
    figures.add("connections_count", current.mean(&range), Unit::Count, "connections, on average");
    figures.add("life_s", Some(life), Unit::Seconds, "life of a connection (standing ÷ opened a second)");
    let threads = gauge(scene, &cat::MONGO_THREADS, &engine.name, None);
    figures.add("threads_count", threads.mean(&range), Unit::Count, "threads, on average");
    figures.add("write_inside_ms", latency.map(|l| l.inside), Unit::Milliseconds, "latency of a write meanwhile");
    figures.add("write_outside_ms", latency.map(|l| l.outside), Unit::Milliseconds, "latency of a write otherwise");
    figures.add("storm_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    finding.victims = vec![format!("mongo.writes@{}", engine.name)];
    Some(finding)
}
