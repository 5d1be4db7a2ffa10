//! oplog-window: the time that the oplog covers is nearly used up by a member that is behind, or is short for everybody.
//!
//! A member whose last entry is older than the oldest in its sync source's oplog is stale and must be copied anew; the window
//! is the newest entry's time less the oldest's, and shrinks as more is written.

use super::draft::draft;
use super::wt_evidence::{Engine, engines, gauge};
use crate::figures::Figures;
use crate::grid::{Lane, both, episodes, longest};
use crate::scene::Scene;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Confidence, Finding, Severity, Unit, Unseen};
use std::ops::Range;

/// Part of the window that a member's lag must have used up, and from which it is urgent.
const USED: f64 = 0.5;
const URGENT: f64 = 0.8;
/// A window as short as this leaves no time to repair a member; MongoDB's own service warns at the same hour.
const SHORT_S: f64 = 3_600.0;
/// An oplog that is not yet full has a short window because it is young.
const FULL: f64 = 0.9;
/// A lag of less than this is none, however short the window.
const LEAST_LAG_S: f64 = 10.0;
/// A lag that moves by no more than this share of the time that passes is steady: of a member that copies nothing it grows by all of it.
const STEADY: f64 = 0.2;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 10;
const BRIDGE_S: usize = 5;
/// States in which a member copies the oplog: secondary, recovering.
const COPYING: [f64; 2] = [2.0, 3.0];

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    engines(scene).iter().filter_map(|engine| of_engine(scene, engine)).collect()
}

fn of_engine(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let gauge = |def| gauge(scene, def, &engine.name, None);
    let (first, last) = (gauge(&cat::MONGO_OPLOG_FIRST), gauge(&cat::MONGO_OPLOG_LAST));
    let window_s = last.with(&first, |last, first| last - first).at_least(1.0);
    // Only the primary's oplog is the one that the others copy.
    let primary = gauge(&cat::MONGO_STATE).flags(|state| state == 1.0);
    if !window_s.known() || !primary.iter().any(|flag| *flag) {
        return None;
    }
    behind(scene, engine, &window_s, &last, &primary).or_else(|| short(scene, engine, &window_s, &primary))
}

/// Time that a primary's full oplog covers, in seconds, and its size in bytes: as it was last seen.
pub(crate) fn covered(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<(f64, f64)> {
    let gauge = |def| gauge(scene, def, &engine.name, None);
    let last = |lane: Lane| lane.0.into_iter().flatten().next_back();
    let window_s = gauge(&cat::MONGO_OPLOG_LAST).with(&gauge(&cat::MONGO_OPLOG_FIRST), |last, first| last - first);
    last(gauge(&cat::MONGO_STATE)).filter(|state| *state == 1.0)?;
    last(full(scene, engine)).filter(|full| *full >= FULL)?;
    last(window_s).filter(|seconds| *seconds >= 1.0).zip(last(gauge(&cat::MONGO_OPLOG_MAX)))
}

/// Members other than this one that copy its oplog, with how far each is behind, in seconds.
pub(super) fn members(scene: &Scene<'_>, engine: &Engine<'_>, last: &Lane) -> Vec<(String, Lane)> {
    let window = scene.window;
    let label = [("target", engine.name.as_str())];
    let tracks = window.tracks(cat::MONGO_MEMBER_OPTIME.name, &label);
    let names = tracks.filter_map(|track| track.series.labels.get("member").map(str::to_owned));
    let lag = |member: String| {
        let of = |def: &Def| {
            let labels = [("target", engine.name.as_str()), ("member", member.as_str())];
            scene.grid.gauge(window.track(def.name, &labels))
        };
        let copying = of(&cat::MONGO_MEMBER_STATE).map(|state| f64::from(u8::from(COPYING.contains(&state))));
        // An optime of nothing is that of a member that has none, or does not answer.
        let optime = of(&cat::MONGO_MEMBER_OPTIME).at_least(1.0).with(&copying.at_least(1.0), |optime, _| optime);
        let lag = last.with(&optime, |last, own| (last - own).max(0.0));
        (member, lag)
    };
    names.map(lag).collect()
}

fn behind(scene: &Scene<'_>, engine: &Engine<'_>, window_s: &Lane, last: &Lane, primary: &[bool]) -> Option<Finding> {
    // Of one that is not full nothing is dropped yet.
    let room = full(scene, engine).flags(|full| full < FULL);
    let dropping: Vec<bool> = primary.iter().zip(&room).map(|(primary, room)| *primary && !room).collect();
    let worst = members(scene, engine, last).into_iter().filter_map(|(member, lag)| {
        let used = lag.at_least(LEAST_LAG_S).with(window_s, |lag, window| lag / window);
        let found = episodes(&both(&used.flags(|used| used >= USED), &dropping), LEAST_S, BRIDGE_S);
        let (range, _) = longest(&found)?;
        Some((used.max(&range)?, member, lag, range))
    });
    let (used, member, lag, range) = worst.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let mut finding = draft("oplog-window", "member-behind", queue(engine), scene.grid.span(&range));
    // One that the window itself comes to meet is in danger however steady it is.
    let steady = is_steady(&lag, &range) && left_s(&lag, window_s, &range).is_none();
    let urgent = used >= 1.0 || (used >= URGENT && !steady);
    finding.severity = if urgent { Severity::Critical } else { Severity::Warning };
    finding.confidence = if steady { Confidence::Medium } else { Confidence::High };
    finding.unseen.extend(steady.then(on_purpose));
    let (lag_s, covered_s) = (lag.max(&range)?, window_s.median(&range)?);
    let fate = if used >= 1.0 {
        "what it needs next is gone: it has to be copied anew".to_owned()
    } else {
        let left_s = left_s(&lag, window_s, &range);
        left_s.map_or("beyond it, it must be copied anew".to_owned(), |left| {
            format!("at this rate it must be copied anew in {}", Unit::Seconds.show(left))
        })
    };
    finding.summary = format!(
        "Member {member} is {} behind, {} of the {} that the primary's oplog covers; {fate}.",
        Unit::Seconds.show(lag_s),
        Unit::Ratio.show(used),
        Unit::Seconds.show(covered_s),
    );
    let mut figures = Figures::default();
    figures.add("lag_peak_s", Some(lag_s), Unit::Seconds, "member behind, at most");
    figures.add("window_s", Some(covered_s), Unit::Seconds, "time that the oplog covers");
    figures.add("used_ratio", Some(used), Unit::Ratio, "part of it that the lag used up");
    figures.add("left_s", left_s(&lag, window_s, &range), Unit::Seconds, "until the member is stale, at this rate");
    size(&mut figures, scene, engine, &range);
    finding.evidence = figures.list();
    finding.victims = vec![format!("mongo.member@{member}")];
    Some(finding)
}

/// Whether a member stays as far behind as it is, as one that is behind on purpose does.
fn is_steady(lag: &Lane, range: &Range<usize>) -> bool {
    let values = lag.values(range);
    let (least, most) = values.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), lag| (a.min(*lag), b.max(*lag)));
    most - least <= STEADY * range.len() as f64
}

fn on_purpose() -> Unseen {
    Unseen {
        what: "whether this member is behind on purpose, as it stays just as far behind".to_owned(),
        why: "the set's configuration was not read".to_owned(),
        remedy: Some("rs.conf().members: secondaryDelaySecs (slaveDelay before 5.0)".to_owned()),
    }
}

/// Seconds until the lag meets the window, as both went in this stretch; none where they do not meet.
fn left_s(lag: &Lane, window_s: &Lane, range: &Range<usize>) -> Option<f64> {
    let left = window_s.with(lag, |window, lag| window - lag);
    let known: Vec<(usize, f64)> = range.clone().filter_map(|second| Some((second, left.get(second)?))).collect();
    let ((first, before), (end, after)) = (known.first()?, known.last()?);
    let per_s = (before - after) / (end - first).max(1) as f64;
    (per_s > 0.0 && *after > 0.0).then(|| after / per_s)
}

fn short(scene: &Scene<'_>, engine: &Engine<'_>, window_s: &Lane, primary: &[bool]) -> Option<Finding> {
    let gauge = |def| gauge(scene, def, &engine.name, None);
    let flags = both(&window_s.flags(|window| window < SHORT_S), &full(scene, engine).flags(|full| full >= FULL));
    let (range, _) = longest(&episodes(&both(&flags, primary), LEAST_S, BRIDGE_S))?;
    let covered_s = window_s.median(&range)?;
    let mut finding = draft("oplog-window", "short", queue(engine), scene.grid.span(&range));
    finding.severity = Severity::Warning;
    finding.confidence = Confidence::High;
    finding.summary = format!(
        "The oplog is full and covers only {}: a member that is away for longer must be copied anew.",
        Unit::Seconds.show(covered_s)
    );
    let mut figures = Figures::default();
    figures.add("window_s", Some(covered_s), Unit::Seconds, "time that the oplog covers");
    size(&mut figures, scene, engine, &range);
    let written = gauge(&cat::MONGO_OPLOG_MAX).median(&range).map(|bytes| bytes / covered_s);
    figures.add("oplog_bytes_per_s", written, Unit::BytesPerSecond, "written into the oplog");
    finding.evidence = figures.list();
    let copying = members(scene, engine, &gauge(&cat::MONGO_OPLOG_LAST)).into_iter();
    finding.victims =
        copying.filter(|(_, lag)| lag.known()).map(|(member, _)| format!("mongo.member@{member}")).collect();
    Some(finding)
}

/// How much of its size the oplog has come to.
fn full(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    let gauge = |def| gauge(scene, def, &engine.name, None);
    gauge(&cat::MONGO_OPLOG).with(&gauge(&cat::MONGO_OPLOG_MAX), |used, max| used / max)
}

fn size(figures: &mut Figures, scene: &Scene<'_>, engine: &Engine<'_>, range: &Range<usize>) {
    let max = gauge(scene, &cat::MONGO_OPLOG_MAX, &engine.name, None).median(range);
    figures.add("oplog_max_bytes", max, Unit::Bytes, "size that the oplog may come to");
}

fn queue(engine: &Engine<'_>) -> String {
    format!("mongo.oplog@{}", engine.name)
}
