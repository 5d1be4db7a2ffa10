//! flow-control-engaged: the primary holds its own writers because a majority of the members falls behind.
//!
//! MongoDB 4.2 and later; `flow_control.cpp`: engaged while the majority's commit point lags by half of the target lag
//! or more, 5 s by default.

use super::draft::draft;
use super::oplog_window::members;
use super::wt_evidence::{Engine, engines, gauge, own_member, rate};
use crate::figures::Figures;
use crate::grid::{Lane, episodes, longest};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, Severity, Unit, catalogue as cat};

/// Writers that must be held, on average.
const HELD: f64 = 0.1;
const CRITICAL_HELD: f64 = 5.0;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 5;
const BRIDGE_S: usize = 3;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    engines(scene).iter().filter_map(|engine| of_engine(scene, engine)).collect()
}

fn of_engine(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let lagged = gauge(scene, &cat::MONGO_FLOW_LAGGED, &engine.name, None);
    let held = rate(scene, &cat::MONGO_FLOW_WAIT_US, &engine.name, None).map(|us| us / 1e6);
    let flags = crate::grid::both(&lagged.flags(|lagged| lagged > 0.0), &held.flags(|held| held >= HELD));
    let (range, seconds) = longest(&episodes(&flags, LEAST_S, BRIDGE_S))?;
    let queue = format!("mongo.majority@{}", engine.name);
    let mut finding = draft("flow-control-engaged", "majority-behind", queue, scene.grid.span(&range));
    let writers = held.mean(&range).unwrap_or_default();
    finding.severity = if writers >= CRITICAL_HELD { Severity::Critical } else { Severity::Warning };
    finding.confidence = Confidence::High;
    let limit = gauge(scene, &cat::MONGO_FLOW_LIMIT, &engine.name, None);
    let lag = majority_lag(scene, engine);
    finding.summary = format!(
        "Flow control held {} writers on average: a majority of the members is {} behind the primary, and the primary \
         waits for them.",
        Unit::Count.show(writers),
        lag.max(&range).map_or("too far".to_owned(), |lag| Unit::Seconds.show(lag)),
    );
    let mut figures = Figures::default();
    figures.add("held_writers_count", Some(writers), Unit::Count, "writers held, on average");
    figures.add("majority_lag_peak_s", lag.max(&range), Unit::Seconds, "majority behind the primary, at most");
    figures.add("limit_per_s", limit.median(&range), Unit::PerSecond, "write tickets handed out");
    figures.add("engaged_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    finding.victims = vec![format!("mongo.writes@{}", engine.name)];
    Some(finding)
}

/// How far the majority's commit point is behind this member's own optime, in seconds.
pub(super) fn majority_lag(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    // 0 is the commit point of a member that knows of none, as after its start.
    let majority = gauge(scene, &cat::MONGO_COMMITTED, &engine.name, None).at_least(1.0);
    own_optime(scene, engine).with(&majority, |own, majority| (own - majority).max(0.0))
}

/// How far the member that copies its oplog and is farthest behind is, in seconds.
pub(super) fn slowest_lag(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    let lags = members(scene, engine, &own_optime(scene, engine)).into_iter().map(|(_, lag)| lag);
    lags.reduce(|a, b| a.with(&b, f64::max).or(&a).or(&b)).unwrap_or_else(|| scene.grid.unknown())
}

fn own_optime(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    let Some(member) = own_member(scene, engine) else { return scene.grid.unknown() };
    let labels = [("target", engine.name.as_str()), ("member", &*member)];
    scene.grid.gauge(scene.window.track(cat::MONGO_MEMBER_OPTIME.name, &labels))
}
