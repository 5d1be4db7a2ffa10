//! Heartbeats of a server: how long they took, those included that had no answer.

use crate::replication::known;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Moment, Track, Window};

/// Heartbeats of some stretches of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Heartbeats {
    /// When each beat was answered, late or in time, and after how many seconds.
    pub answered: Vec<(Moment, f64)>,
    /// Beats that were not answered in time, or not at all.
    pub missed: f64,
    /// Beats in all.
    pub sent: f64,
    /// The time-out of these beats in seconds, where it is known.
    pub timeout_s: Option<f64>,
}

impl Heartbeats {
    /// Of one server, from one moment to another in each stretch.
    pub fn of(window: &Window, target: &str, stretches: &[(Moment, Moment)]) -> Self {
        let parts = |def: &Def| -> Vec<Track<'_>> {
            let track = window.track(def.name, &[("target", target)]);
            track.iter().flat_map(|track| stretches.iter().map(move |(from, to)| track.between(*from, *to))).collect()
        };
        let count = |def: &Def| {
            let rises = parts(def).into_iter().filter_map(Track::increase);
            rises.reduce(|sum, rise| sum + rise).unwrap_or(0.0)
        };
        let points = parts(&cat::PG_HEARTBEAT).into_iter().flat_map(|track| track.points);
        let answered: Vec<(Moment, f64)> = points.map(|point| (point.at, point.value / 1e6)).collect();
        let missed = count(&cat::PG_HEARTBEATS_MISSED);
        let sent = (missed + count(&cat::PG_HEARTBEATS)).max(answered.len() as f64);
        let timeout_s = known(window, target).and_then(|target| target.heartbeat_timeout_s);
        Heartbeats { answered, missed, sent, timeout_s }
    }

    /// Beats without any answer: refused, still open, or not sent because too many were.
    pub fn unanswered(&self) -> f64 {
        (self.sent - self.answered.len() as f64).min(self.missed)
    }

    /// The seconds within which 99 of 100 beats were answered, by the nearest rank, which is the slowest of fewer than a hundred. A beat
    /// without an answer counts with the time-out, and took at least that: where there is one, the result is a lower bound. None
    /// where it would be an unknown time-out.
    pub fn p99_s(&self) -> Option<f64> {
        // Not one by one: what counts them may be damaged.
        let unanswered = self.unanswered().round() as u64;
        let least_s = self.timeout_s.unwrap_or(f64::INFINITY);
        let mut answered_s: Vec<f64> = self.answered.iter().map(|(_, seconds)| *seconds).collect();
        answered_s.sort_by(f64::total_cmp);
        let all = (answered_s.len() as u64).saturating_add(unanswered);
        let place = (all - all / 100).checked_sub(1)?;
        let sooner = answered_s.partition_point(|seconds| *seconds <= least_s) as u64;
        let at = |place: u64| answered_s.get(usize::try_from(place).ok()?).copied();
        let p99_s = match place {
            place if place < sooner => at(place),
            place if place - sooner < unanswered => Some(least_s),
            place => at(place - unanswered),
        };
        p99_s.filter(|seconds| seconds.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p99(answered_s: &[f64], missed: f64, sent: f64, timeout_s: Option<f64>) -> Option<f64> {
        let answered = answered_s.iter().map(|seconds| (Moment(0), *seconds)).collect();
        Heartbeats { answered, missed, sent, timeout_s }.p99_s()
    }

    #[test]
    fn a_beat_without_an_answer_took_the_time_out_at_least() {
        let quick = vec![0.01; 90];
        assert_eq!(p99(&quick, 0.0, 90.0, Some(1.0)), Some(0.01));
        assert_eq!(p99(&quick, 10.0, 100.0, Some(1.0)), Some(1.0));
        assert_eq!(p99(&quick, 10.0, 100.0, None), None, "at least an unknown time-out");
        assert_eq!(p99(&[0.01; 999], 1.0, 1_000.0, None), Some(0.01), "the slowest of a thousand");
        // Two of the missed were answered late: they count once, and by what they took.
        let late = [quick, vec![3.4, 3.4]].concat();
        assert_eq!(p99(&late, 10.0, 100.0, Some(1.0)), Some(3.4));
        assert_eq!(p99(&[], 0.0, 0.0, Some(1.0)), None);
        assert_eq!(p99(&[0.01], 1e300, 1e300, Some(1.0)), Some(1.0), "a damaged counter");
    }
}
