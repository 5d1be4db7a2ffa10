//! Where readings are missing. How far apart readings may lie is told by how far apart they usually lie; where that changes within a
//! window, as in a flight recorder that was told to write more often for a while, by how far apart their neighbours lie.

use crate::{Moment, Track};

/// Readings further apart than this many usual periods are a hole in the data.
const PERIODS: f64 = 2.5;
/// So many steps to both sides are a reading's neighbours.
const NEIGHBOURS: usize = 5;
/// Share of the shortest steps that says nothing of the others.
const FEW: f64 = 0.05;

/// Where one track has holes.
#[derive(Clone, Copy, Debug)]
pub struct Holes<'a> {
    track: Track<'a>,
    /// The usual distance of neighbouring readings, in seconds; 0 for fewer than two.
    period_s: f64,
    /// Whether all of them are about so far apart.
    regular: bool,
    /// Up to here a step is a hole nowhere, in seconds.
    surely_s: f64,
    /// The longest step that is no hole is no shorter and no longer than these, in seconds.
    bounds_s: (f64, f64),
}

impl<'a> Holes<'a> {
    /// Of a track, with the least and the most that may be bridged, in seconds.
    pub fn of(track: Track<'a>, bounds_s: (f64, f64)) -> Self {
        let mut steps: Vec<f64> = (1..track.points.len()).map(|place| step_s(track, place)).collect();
        steps.sort_by(f64::total_cmp);
        let at = |share: f64| steps.get((share * steps.len() as f64) as usize).copied().unwrap_or(0.0);
        let (short_s, period_s, longest_s) = (at(FEW), at(0.5), steps.last().copied().unwrap_or(0.0));
        let regular = short_s * PERIODS >= period_s && longest_s <= PERIODS * period_s;
        Holes { track, period_s, regular, surely_s: (short_s * PERIODS).clamp(bounds_s.0, bounds_s.1), bounds_s }
    }

    /// The usual distance of neighbouring readings in the whole track, in seconds; 0 for fewer than two.
    pub fn period_s(&self) -> f64 {
        self.period_s
    }

    /// The longest step that is no hole, in seconds, where most of the track lies.
    pub fn usual_s(&self) -> f64 {
        self.longest_s(self.period_s)
    }

    /// The longest step that is no hole behind the reading at this place, in seconds.
    pub fn behind_s(&self, place: usize) -> f64 {
        if self.regular {
            return self.usual_s();
        }
        let last = self.track.points.len().saturating_sub(1);
        let near = place.saturating_sub(NEIGHBOURS)..place.saturating_add(NEIGHBOURS).min(last);
        let mut steps: Vec<f64> = near.map(|before| step_s(self.track, before + 1)).collect();
        steps.sort_by(f64::total_cmp);
        self.longest_s(steps.get(steps.len() / 2).copied().unwrap_or(self.period_s))
    }

    /// Whether so many seconds behind the reading at this place are no hole.
    pub fn bridges(&self, place: usize, seconds: f64) -> bool {
        seconds <= self.surely_s || (seconds <= self.bounds_s.1 && seconds <= self.behind_s(place))
    }

    /// How old the newest reading at a moment may be to stand for it, in seconds.
    pub fn at_s(&self, at: Moment) -> f64 {
        let known = self.track.points.partition_point(|point| point.at <= at);
        self.behind_s(known.saturating_sub(1))
    }

    /// Whether nothing is known of the time between the reading at this place and the next.
    pub fn is_behind(&self, place: usize) -> bool {
        place + 1 < self.track.points.len() && !self.bridges(place, step_s(self.track, place + 1))
    }

    /// Of how much time there are readings, in seconds: the steps that are no holes.
    pub fn bridged_s(&self) -> f64 {
        let steps = (1..self.track.points.len()).filter(|place| !self.is_behind(place - 1));
        steps.map(|place| step_s(self.track, place)).sum()
    }

    fn longest_s(&self, period_s: f64) -> f64 {
        (period_s * PERIODS).clamp(self.bounds_s.0, self.bounds_s.1)
    }
}

/// Seconds from the reading before this place to the one at it.
fn step_s(track: Track<'_>, place: usize) -> f64 {
    let at = |place: usize| track.points.get(place).map(|point| point.at);
    at(place).zip(at(place.wrapping_sub(1))).map_or(0.0, |(now, before)| now.seconds_since(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, Point, Series, SeriesId, catalogue};

    /// Readings after these steps, in seconds.
    fn holes(steps: &[f64]) -> Vec<usize> {
        let series: Series = catalogue::LOAD_COMPLETED.series::<&str>(&[]);
        let mut at = 0.0;
        let moments = std::iter::once(0.0).chain(steps.iter().map(|step| {
            at += step;
            at
        }));
        let point =
            |at| Point { at: Moment::from_seconds(at), series: SeriesId(0), epoch: Epoch(1), value: 0.0, as_of: None };
        let points: Vec<Point> = moments.map(point).collect();
        let holes = Holes::of(Track { series: &series, points: &points }, (1.0, 15.0));
        (0..points.len()).filter(|place| holes.is_behind(*place)).collect()
    }

    #[test]
    fn a_longer_step_among_shorter_ones_is_a_hole() {
        let steps = [vec![1.0; 20], vec![3.0], vec![1.0; 20]].concat();
        assert_eq!(holes(&steps), [20]);
        assert_eq!(holes(&[vec![1.0; 20], vec![3.0; 3], vec![1.0; 20]].concat()), [20, 21, 22]);
        assert_eq!(holes(&[10.0; 20]), [0; 0]);
        assert_eq!(holes(&[20.0; 3]), [0, 1, 2], "longer than may be bridged");
        assert_eq!((holes(&[]), holes(&[0.5])), (vec![], vec![]));
    }

    #[test]
    fn where_they_are_read_less_often_for_a_while_there_is_no_hole() {
        for (often, seldom) in [(0.1, 1.0), (1.0, 10.0), (0.1, 10.0)] {
            let steps = [vec![often; 300], vec![seldom; 30], vec![often; 300]].concat();
            assert_eq!(holes(&steps), [0; 0], "{often} and {seldom}");
            let mut broken = steps;
            broken[315] = 14.9 * seldom;
            broken[100] = 14.9;
            assert_eq!(holes(&broken), [100, 315], "{often} and {seldom}");
        }
    }
}
