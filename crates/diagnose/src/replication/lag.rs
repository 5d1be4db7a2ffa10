//! When a standby falls behind: stretches in which WAL stands before a hop, keeps coming, and takes long to leave.
//!
//! What is left of a burst and drains is no lag; nor is what stands for a moment because a standby's word is a moment old.

use super::{Hops, Standby, SyncWaits, path, synchronous};
use crate::grid::{Lane, both, episodes, longest};
use crate::scene::Scene;
use backwater_model::Binding;
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
    /// Whether they waited long, and not merely often: that they wait is what a synchronous standby is for.
    pub(crate) sync_is_long: bool,
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
    let (sync, sync_is_long) = held(scene, standby).map_or((None, false), |(lag, long)| (Some(lag), long));
    Lags { stream, replay, sync, sync_is_long }
}

/// Share of the active sessions that must wait for a synchronous standby, those in line behind them included.
const HELD: f64 = 0.3;

/// The longest stretch in which a standby whose answer commits need held sessions up, and whether commits waited long in any.
/// Sessions in line for rows of commits that wait count with them: with a hot row one such commit holds all others.
fn held(scene: &Scene<'_>, standby: &Standby) -> Option<(Lag, bool)> {
    let primary = standby.primary.as_deref()?;
    let needed = synchronous::needed_during(scene, primary, &standby.name);
    let waited_for = needed.flags(|flag| flag > 0.0);
    if !waited_for.contains(&true) {
        return None;
    }
    let waits = SyncWaits::of(scene, primary);
    let many = both(&waits.all().smooth(1).flags(|share| share >= HELD), &waited_for);
    let many = longest(&episodes(&many, LEAST_S, BRIDGE_S));
    let long = waits.held().filter(|(range, _)| needed.mean(range).is_some_and(|share| share >= 0.5));
    let is_long = long.is_some();
    let (range, seconds) = many.into_iter().chain(long).max_by_key(|(_, seconds)| *seconds)?;
    Some((Lag { range, seconds, binding: None }, is_long))
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
