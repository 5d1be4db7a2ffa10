//! Samples of a session's waits, held against the processor time of its process.
//!
//! Samples may show more waiting than there is: a job that computed for 74 % of the time, between syncs of a tenth of a millisecond,
//! was on CPU in 49 % of its samples. Probably because a look needs a processor itself: where it is to come on the one that the session
//! computes on, the kernel lets that one go on until it sleeps (Linux 6.6 and newer, EEVDF's RUN_TO_PARITY; not traced). What the kernel accounts for no look can change.

use super::queue::{expected_looks, look_times};
use super::{OnWhat, on_what};
use crate::waits::foreground;
use backwater_model::{Moment, Sample, Window, catalogue as cat};
use serde::Serialize;
use std::collections::BTreeMap;

/// Share of the time over which the processor time must have been read.
const ACCOUNTED: f64 = 0.4;

/// One session from its first sample to its last: what samples of it show beside what its process did.
#[derive(Clone, Copy, Debug)]
struct Session {
    seconds: f64,
    /// Looks at it, those included at which it was idle.
    looks: f64,
    /// Looks that found it on CPU.
    on_cpu: f64,
    /// Share of the time that its process computed.
    computed: f64,
}

impl Session {
    /// None where its processor time was not read for most of the time.
    fn of(window: &Window, samples: &[&Sample]) -> Option<Session> {
        let (first, last) = (samples.first()?, samples.last()?);
        let computed = computed(window, first, (first.at, last.at))?;
        let looks = match look_times(window, &first.target, (first.at, last.at)) {
            Some(looks) => looks.len(),
            None => expected_looks(&samples.iter().map(|sample| sample.at).collect::<Vec<_>>())?,
        } as f64;
        let on_cpu = samples.iter().filter(|sample| on_what(sample) == OnWhat::Cpu).count() as f64;
        let seconds = last.at.seconds_since(first.at);
        (looks > 0.0).then_some(Session { seconds, looks, on_cpu, computed })
    }
}

/// Share of a window that the process of this sample computed, as the kernel accounts for it; none where that was not seen for most
/// of it.
pub fn computed_share(window: &Window, of: &Sample) -> Option<f64> {
    computed(window, of, (window.from, window.to))
}

fn computed(window: &Window, of: &Sample, (from, to): (Moment, Moment)) -> Option<f64> {
    let track = window.track(cat::PROC_CPU.name, &[("target", &of.target), ("pid", &of.pid.to_string())])?;
    let track = track.between(from, to);
    let seen_s = track.points.last()?.at.seconds_since(track.points.first()?.at);
    let is_most = seen_s > 0.0 && seen_s >= ACCOUNTED * to.seconds_since(from);
    track.rate().filter(|_| is_most).map(|share| share.clamp(0.0, 1.0))
}

/// Processors that sampled sessions computed on, on average.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OnProcessors {
    /// As samples show it.
    pub sampled: f64,
    /// As the kernel accounts for the same sessions.
    pub accounted: f64,
}

/// What samples and the kernel's accounts say of those sessions of a server whose processor time is known; none where no session's is.
pub fn on_processors(window: &Window, target: &str) -> Option<OnProcessors> {
    let mut sessions: BTreeMap<i32, Vec<&Sample>> = BTreeMap::new();
    for sample in window.samples().iter().filter(|sample| *sample.target == *target && foreground(sample)) {
        sessions.entry(sample.pid).or_default().push(sample);
    }
    let of = |own: &Vec<&Sample>| {
        let session = Session::of(window, own)?;
        let part = session.seconds / window.seconds();
        Some(OnProcessors { sampled: part * session.on_cpu / session.looks, accounted: part * session.computed })
    };
    let add = |a: OnProcessors, b: OnProcessors| OnProcessors {
        sampled: a.sampled + b.sampled,
        accounted: a.accounted + b.accounted,
    };
    sessions.values().filter_map(of).reduce(add)
}

/// How much of the sleep that samples of one session show there can have been, at most 1; none where its processor time is not known.
///
/// All sleep is reduced alike, that between statements (its client's time) included, since nothing tells in which of the two looks missed
/// the work: taken from the client's time first, commits would wait for all that samples say, which may be twice too much; taken from
/// commits first, for nothing. Where a session sleeps mostly between its statements the result may therefore be too little.
pub(crate) fn sleep_ratio(window: &Window, samples: &[&Sample]) -> Option<f64> {
    let session = Session::of(window, samples)?;
    Some(ratio(session.computed, session.on_cpu / session.looks))
}

fn ratio(computed: f64, seen_on_cpu: f64) -> f64 {
    let asleep = 1.0 - seen_on_cpu;
    if asleep > 0.0 { ((1.0 - computed) / asleep).clamp(0.0, 1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_show_too_much_sleep_are_reduced_and_others_stay() {
        assert!((ratio(0.75, 0.28) - 0.25 / 0.72).abs() < 1e-9);
        assert_eq!(ratio(0.28, 0.28), 1.0);
        // It was ready to run and had no processor: that is no sleep, and samples know it.
        assert_eq!((ratio(0.1, 0.9), ratio(0.0, 1.0), ratio(1.0, 0.0)), (1.0, 1.0, 0.0));
    }
}
