//! When a standby falls behind: stretches in which WAL stands before a hop, keeps coming, and takes long to leave.
//!
//! What is left of a burst and drains is no lag; nor is what stands for a moment because a standby's word is a moment old.

use super::{Hops, Standby, path, standby_row};
use crate::grid::{Lane, both, episodes, longest};
use crate::scene::Scene;
use backwater_model::{Binding, CommitWait, Sample, catalogue as cat};
use std::ops::Range;

/// Bytes that must stand: less is under way on any busy connection.
const STREAM_LEAST: f64 = 4.0 * 1_048_576.0;
/// The same before replay, which has no buffers to fill.
pub(crate) const REPLAY_LEAST: f64 = 4.0 * 1_048_576.0;
/// Seconds that what stands would take to leave.
const LONG_S: f64 = 1.5;
/// A backlog counts as fed while at least this share of what leaves still arrives.
const FED: f64 = 0.5;
/// Seconds it must last, longer than a burst of two or three that smoothing draws out, and seconds of another mind that do not end it.
const LEAST_S: usize = 8;
const BRIDGE_S: usize = 3;

/// One stretch of falling behind.
#[derive(Clone, Debug)]
pub(crate) struct Lag {
    pub(crate) range: Range<usize>,
    /// Seconds of it in the window, all stretches together.
    pub(crate) seconds: usize,
    /// The stage that holds the stream up, where the shares tell.
    pub(crate) binding: Option<Binding>,
}

/// Where a standby falls behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lags {
    /// Between the primary's flush and the standby's.
    pub(crate) stream: Option<Lag>,
    /// Between the standby's flush and its replay.
    pub(crate) replay: Option<Lag>,
    /// When commits waited for it. They wait instead of making more WAL, so little of that stands.
    pub(crate) sync: Option<Lag>,
}

/// Where a standby falls behind, if anywhere.
pub(crate) fn lags(scene: &Scene<'_>, standby: &Standby) -> Lags {
    let hops: &Hops = &standby.hops;
    let stream = behind(&hops.stream, &hops.flushed_rate, &out(standby), STREAM_LEAST).map(|(range, seconds)| {
        let binding = path::stream(scene, standby, &range).binding();
        Lag { range, seconds, binding }
    });
    let replay = behind(&hops.replay, &hops.received_rate, &hops.replayed_rate, REPLAY_LEAST)
        .map(|(range, seconds)| Lag { range, seconds, binding: None });
    Lags { stream, replay, sync: held(scene, standby) }
}

/// When at least so large a share of the active sessions waited for a synchronous standby.
const HELD: f64 = 0.3;

fn held(scene: &Scene<'_>, standby: &Standby) -> Option<Lag> {
    let primary = standby.primary.clone()?;
    let flag = scene.grid.gauge(standby_row(scene.window, &cat::PG_REPL_SYNC, &primary, &standby.name));
    let targets = [primary];
    let waits = |sample: &Sample| CommitWait::of(sample) == Some(CommitWait::SynchronousStandby);
    let share = scene.grid.lane(|second| {
        flag.get(second).filter(|flag| *flag >= 0.5)?;
        scene.share(&targets, &(second..second + 1), waits)
    });
    let flags = share.smooth(1).flags(|share| share >= HELD);
    longest(&episodes(&flags, LEAST_S, BRIDGE_S)).map(|(range, seconds)| Lag { range, seconds, binding: None })
}

/// What leaves the stream: flushed by the standby; where its word is too rare, what it acknowledged.
fn out(standby: &Standby) -> Lane {
    let hops = &standby.hops;
    hops.received_rate.or(&standby.tcp.acked_lane).or(&hops.sent_rate)
}

fn behind(level: &Lane, inflow: &Lane, outflow: &Lane, least: f64) -> Option<(Range<usize>, usize)> {
    let (inflow, outflow) = (inflow.smooth(2), outflow.smooth(2));
    let much = level.flags(|bytes| bytes >= least);
    let long = level.with(&outflow, |bytes, rate| bytes - LONG_S * rate).flags(|excess| excess > 0.0);
    let fed = inflow.with(&outflow, |arrives, leaves| arrives - FED * leaves).flags(|excess| excess >= 0.0);
    longest(&episodes(&both(&both(&much, &long), &fed), LEAST_S, BRIDGE_S))
}
