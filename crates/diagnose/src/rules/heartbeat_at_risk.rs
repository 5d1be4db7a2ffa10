//! heartbeat-at-risk: what a failover manager's check would see comes close to its time-out, or passes it.
//!
//! A manager that waits in vain for an overloaded primary fails over to a standby that is behind. The finding comes before that.

use super::draft::draft;
use super::relate::Symptom;
use crate::figures::Figures;
use crate::heartbeats::Heartbeats;
use crate::scene::Scene;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Activation, Confidence, Finding, Moment, Remedy, Severity, Span, Target, Track, Unit, Window};

/// Share of the time-out that the slowest beats must take.
const CLOSE: f64 = 0.5;
/// Beats that must be that slow: one is an accident.
const SLOW_BEATS: usize = 3;
/// They must also be so many times slower than the usual beat of the calm part of the window, where there is one …
const SLOWER: f64 = 3.0;
/// … or take this share of the time-out, whatever is usual: where all beats are that slow no part of the window is calm.
const NEAR: f64 = 0.8;
/// Missed beats from which it is told.
const MISSED: f64 = 1.0;

/// When a beat was answered, and after how many seconds.
type Beat = (Moment, f64);

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Symptom> {
    let tracks = scene.window.tracks(cat::PG_HEARTBEATS.name, &[]).filter(|track| !track.points.is_empty());
    let targets = tracks.filter_map(|track| track.series.labels.get("target"));
    let finding = |target: &str| of_server(scene, target, &as_primary(scene.window, target));
    targets.filter_map(|target| Some(Symptom { server: target.to_owned(), finding: finding(target)? })).collect()
}

/// The stretches in which a server took writes, as far as the window tells; none of a standby: nobody fails over from it. Each goes from
/// one reading as a standby to the next: what was missed before a server came back as one is what it was failed over for. Of a
/// server that was never met nobody knows.
fn as_primary(window: &Window, target: &str) -> Vec<(Moment, Moment)> {
    let read = |def: &Def| -> Vec<Moment> {
        let track = window.track(def.name, &[("target", target)]);
        track.map(|track| track.points.iter().map(|point| point.at).collect()).unwrap_or_default()
    };
    let of_standby = [cat::PG_WAL_REPLAY, cat::PG_RECEIVER_STREAMING, cat::PG_REPLAY_PAUSED];
    let mut edges: Vec<Moment> = of_standby.iter().flat_map(read).collect();
    let made = read(&cat::PG_WAL_INSERT);
    if edges.is_empty() {
        let is_unmet = |known: &Target| known.name == target && known.is_unmet();
        let is_unknown = made.is_empty() && window.meta.targets.iter().any(is_unmet);
        return if is_unknown { Vec::new() } else { vec![(window.from, window.to)] };
    }
    edges.extend([window.from, window.to]);
    edges.sort_unstable();
    let made_within =
        |from: Moment, to: Moment| made.get(made.partition_point(|at| *at <= from)).is_some_and(|at| *at < to);
    let pairs = edges.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|(from, to)| made_within(*from, *to)).collect()
}

fn of_server(scene: &Scene<'_>, target: &str, stretches: &[(Moment, Moment)]) -> Option<Finding> {
    let beats = Heartbeats::of(scene.window, target, stretches);
    let missed = beats.missed;
    let mut sorted: Vec<f64> = beats.answered.iter().map(|(_, seconds)| *seconds).collect();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted.get(sorted.len() / 4).copied();
    // What is slow is known by the time-out of these very beats alone.
    let timeout = beats.timeout_s;
    let slower = SLOWER * usual.unwrap_or_default();
    let limit = timeout.map(|timeout| (CLOSE * timeout).max(slower.min(NEAR * timeout)));
    let is_slow = |(_, seconds): &Beat| limit.is_some_and(|limit| *seconds >= limit);
    let slow: Vec<Beat> = beats.answered.iter().copied().filter(is_slow).collect();
    let cause = if missed >= MISSED {
        "missed"
    } else if slow.len() >= SLOW_BEATS {
        "climbing"
    } else {
        return None;
    };
    let counted = scene.window.track(cat::PG_HEARTBEATS_MISSED.name, &[("target", target)]);
    let span = span(scene, &slow, counted, stretches);
    let mut finding = draft("heartbeat-at-risk", cause, "pg.heartbeat", span);
    finding.server = Some(target.to_owned());
    finding.severity = if missed >= 2.0 { Severity::Critical } else { Severity::Warning };
    finding.confidence = if missed >= 2.0 || slow.len() >= SLOW_BEATS { Confidence::High } else { Confidence::Medium };
    let p99 = beats.p99_s();
    let mut figures = Figures::default();
    let all = beats.unanswered() == 0.0;
    let within = if all { "99 of 100 beats were answered within" } else { "99 of 100 beats took, at least" };
    figures.add("heartbeat_p99_ms", p99.map(|s| s * 1e3), Unit::Milliseconds, within);
    figures.add("heartbeat_usual_ms", usual.map(|s| s * 1e3), Unit::Milliseconds, "the fastest quarter, within");
    figures.add("heartbeat_timeout_ms", timeout.map(|s| s * 1e3), Unit::Milliseconds, "the time-out of a beat");
    figures.add("heartbeat_missed", Some(missed), Unit::Count, "beats not answered in time");
    figures.add("heartbeats_count", Some(sorted.len() as f64), Unit::Count, "beats that were answered");
    finding.evidence = figures.list();
    finding.summary = match cause {
        "missed" => format!(
            "{missed:.0} of {:.0} heartbeats of {target} were not answered in time: a failover manager would begin to count.",
            beats.sent
        ),
        _ => format!(
            "Heartbeats of {target} take up to {}, and are given up after {}: close to the time-out of a failover manager's check.",
            Unit::Seconds.show(p99.unwrap_or_default()),
            Unit::Seconds.show(timeout.unwrap_or_default())
        ),
    };
    finding.victims = Vec::new();
    finding.remedies = vec![longer_timeout()];
    Some(finding)
}

/// From when until when beats were slow or missed. A beat that was missed shows in the counter's next reading.
fn span(
    scene: &Scene<'_>,
    slow: &[Beat],
    missed: Option<Track<'_>>,
    stretches: &[(Moment, Moment)],
) -> (Moment, Moment) {
    let parts =
        missed.iter().flat_map(|track| stretches.iter().map(move |(from, to)| track.between(*from, *to).points));
    let pairs = parts.flat_map(|points| points.windows(2)).filter(|pair| pair[1].value > pair[0].value);
    let steps = pairs.map(|pair| (pair[0].at, pair[1].at));
    let answered = slow.iter().map(|(at, seconds)| ((*at - Span::from_seconds(*seconds)).max(scene.window.from), *at));
    let all = answered.chain(steps).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    all.unwrap_or((scene.window.from, scene.window.to))
}

fn longer_timeout() -> Remedy {
    Remedy {
        title: "Let the failover manager wait longer, or for more failed checks, until the load is held".to_owned(),
        runtime: Vec::new(),
        persistent: vec![
            "Patroni: raise ttl and retry_timeout (patronictl edit-config); repmgr: reconnect_attempts × reconnect_interval".to_owned(),
        ],
        activation: Activation::Reload,
        undo: vec!["set the former values".to_owned()],
        predicted: Vec::new(),
        risk: "A primary that is truly dead is found out later, by as much.".to_owned(),
    }
}
