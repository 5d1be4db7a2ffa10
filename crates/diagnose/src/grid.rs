//! One window as rows of whole seconds. Rules compare readings that were taken at slightly different times and
//! at different periods; on a grid they stand side by side, and a second without a reading is a hole, never a zero.

use backwater_model::{Holes, Kind, Moment, Point, Source, Span, Track, Window};
use std::ops::Range;

/// Bounds of the longest stretch between two readings that is still bridged, in seconds.
const HOLE_S: (f64, f64) = (1.0, 15.0);

/// More than a 64-bit counter can hold.
const MOST: f64 = 1e20;

/// Whole seconds of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Start of second 0.
    pub(crate) from: Moment,
    /// How many whole seconds there are.
    pub(crate) count: usize,
}

impl Grid {
    /// The grid of a whole window.
    pub(crate) fn of(window: &Window) -> Self {
        Grid { from: window.from, count: (window.seconds() + 1e-3).max(0.0) as usize }
    }

    /// Start of a second.
    pub(crate) fn start(&self, second: usize) -> Moment {
        self.from + Span::from_millis(second as i64 * 1_000)
    }

    /// The second in which a moment lies.
    pub(crate) fn second(&self, at: Moment) -> Option<usize> {
        let seconds = at.seconds_since(self.from);
        (seconds >= 0.0 && (seconds as usize) < self.count).then_some(seconds as usize)
    }

    /// First and last moment of a range of seconds.
    pub(crate) fn span(&self, range: &Range<usize>) -> (Moment, Moment) {
        (self.start(range.start), self.start(range.end))
    }

    /// A gauge: the mean of the readings within each second, else the newest one that is not too old.
    pub(crate) fn gauge(&self, track: Option<Track<'_>>) -> Lane {
        let Some(track) = track else { return self.unknown() };
        let holes = holes(track);
        self.lane(|second| {
            let (from, to) = (self.start(second), self.start(second + 1));
            track.between(from, to).mean().or_else(|| newest(track, to, &holes))
        })
    }

    /// A level that is made of several gauges: its value as each second ends, of readings that are not too old.
    pub(crate) fn level(&self, window: &Window, source: &Source) -> Lane {
        let all: Vec<Holes<'_>> = source.tracks(window).into_iter().map(|(track, _)| holes(track)).collect();
        self.lane(|second| {
            let at = self.start(second + 1);
            let oldest = all.iter().map(|holes| holes.at_s(at)).fold(HOLE_S.0, f64::max);
            source.value(window, at, oldest)
        })
    }

    /// A counter: its mean rate over each second, by straight lines between neighbouring readings.
    pub(crate) fn rate(&self, track: Option<Track<'_>>) -> Lane {
        let Some(track) = track.filter(|track| track.series.kind != Kind::Gauge) else { return self.unknown() };
        let holes = holes(track);
        let bridges = |place: usize, seconds: f64| holes.bridges(place, seconds);
        self.lane(|second| {
            let (from, to) = (self.start(second), self.start(second + 1));
            // A reset between the two would show as a fall, or as a start in another life of the source.
            let (before, after) = (reading(track, from, bridges)?, reading(track, to, bridges)?);
            unbroken(track, from, to, bridges).then(|| (after - before).max(0.0))
        })
    }

    /// A lane of which nothing is known.
    pub(crate) fn unknown(&self) -> Lane {
        Lane(vec![None; self.count])
    }

    /// A lane from a function of the second. What no kernel counter can hold is no reading.
    pub(crate) fn lane(&self, value: impl Fn(usize) -> Option<f64>) -> Lane {
        Lane((0..self.count).map(|second| value(second).filter(|value| value.abs() <= MOST)).collect())
    }
}

/// Where a track has holes that are not bridged.
pub(crate) fn holes(track: Track<'_>) -> Holes<'_> {
    Holes::of(track, HOLE_S)
}

/// The value of a counter at one moment, from readings no further apart than so many seconds.
pub(crate) fn value_at(track: Track<'_>, at: Moment, hole_s: f64) -> Option<f64> {
    reading(track, at, |_, seconds| seconds <= hole_s)
}

/// The newest value of a gauge, where it is not too old.
fn newest(track: Track<'_>, at: Moment, holes: &Holes<'_>) -> Option<f64> {
    let place = track.points.partition_point(|point| point.at <= at).checked_sub(1)?;
    let point = track.points.get(place)?;
    holes.bridges(place, at.seconds_since(point.at)).then_some(point.value)
}

/// The value of a counter at one moment, on the straight line between the readings around it. `bridges` tells whether so
/// many seconds behind the reading at a place are no hole.
fn reading(track: Track<'_>, at: Moment, bridges: impl Fn(usize, f64) -> bool) -> Option<f64> {
    let next = track.points.partition_point(|point| point.at < at);
    let place = next.saturating_sub(1);
    let edge = |point: &Point| bridges(place, 2.0 * point.at.seconds_since(at).abs()).then_some(point.value);
    match (next.checked_sub(1).and_then(|before| track.points.get(before)), track.points.get(next)) {
        (_, Some(b)) if b.at == at => Some(b.value),
        (Some(a), Some(b)) => {
            let long = b.at.seconds_since(a.at);
            let apart = a.epoch != b.epoch || b.value < a.value || !bridges(place, long) || long <= 0.0;
            (!apart).then(|| a.value + (b.value - a.value) * at.seconds_since(a.at) / long)
        }
        // The window's edges: the nearest reading stands for the moment, if it is near.
        (Some(only), None) | (None, Some(only)) => edge(only),
        (None, None) => None,
    }
}

/// Whether a counter runs through a stretch without a hole, a reset or a new life.
fn unbroken(track: Track<'_>, from: Moment, to: Moment, bridges: impl Fn(usize, f64) -> bool) -> bool {
    let first = track.points.partition_point(|point| point.at <= from).saturating_sub(1);
    let last = track.points.partition_point(|point| point.at < to).min(track.points.len().saturating_sub(1));
    let part = track.points.get(first..=last).unwrap_or_default();
    part.len() >= 2
        && part.windows(2).zip(first..).all(|(pair, place)| {
            pair[0].epoch == pair[1].epoch
                && pair[1].value >= pair[0].value
                && bridges(place, pair[1].at.seconds_since(pair[0].at))
        })
}

/// One value a second, or none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lane(pub(crate) Vec<Option<f64>>);

impl Lane {
    /// The value in one second.
    pub(crate) fn get(&self, second: usize) -> Option<f64> {
        self.0.get(second).copied().flatten()
    }

    /// Whether anything is known.
    pub(crate) fn known(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// Known values in a range of seconds.
    pub(crate) fn values(&self, range: &Range<usize>) -> Vec<f64> {
        self.0[range.start.min(self.0.len())..range.end.min(self.0.len())].iter().flatten().copied().collect()
    }

    /// Mean of the known values in a range.
    pub(crate) fn mean(&self, range: &Range<usize>) -> Option<f64> {
        let values = self.values(range);
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The sum of the known values in a range.
    pub(crate) fn sum(&self, range: &Range<usize>) -> f64 {
        self.values(range).iter().sum()
    }

    /// Whether both know the same.
    pub(crate) fn is_same(&self, other: &Lane) -> bool {
        self.0 == other.0
    }

    /// Largest known value in a range.
    pub(crate) fn max(&self, range: &Range<usize>) -> Option<f64> {
        self.values(range).into_iter().reduce(f64::max)
    }

    /// Median of the known values in a range.
    pub(crate) fn median(&self, range: &Range<usize>) -> Option<f64> {
        median(self.values(range))
    }

    /// Both lanes combined, second by second, where both are known.
    pub(crate) fn with(&self, other: &Lane, combine: impl Fn(f64, f64) -> f64) -> Lane {
        Lane(self.0.iter().zip(&other.0).map(|(a, b)| Some(combine((*a)?, (*b)?))).collect())
    }

    /// Each value changed.
    pub(crate) fn map(&self, change: impl Fn(f64) -> f64) -> Lane {
        Lane(self.0.iter().map(|value| value.map(&change)).collect())
    }

    /// This lane, and another where this one knows nothing.
    pub(crate) fn or(&self, other: &Lane) -> Lane {
        Lane(self.0.iter().zip(&other.0).map(|(a, b)| a.or(*b)).collect())
    }

    /// The values that reach this one; lower ones are no reading.
    pub(crate) fn at_least(&self, least: f64) -> Lane {
        Lane(self.0.iter().map(|value| value.filter(|value| *value >= least)).collect())
    }

    /// The values in some seconds; all others are no reading.
    pub(crate) fn during(&self, seconds: &[bool]) -> Lane {
        Lane(self.0.iter().zip(seconds).map(|(value, wanted)| value.filter(|_| *wanted)).collect())
    }

    /// The mean over each second and `reach` seconds to both sides; none where the second itself is a hole.
    pub(crate) fn smooth(&self, reach: usize) -> Lane {
        self.around(reach, |values| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The median over each second and `reach` seconds to both sides; none where the second itself is a hole.
    pub(crate) fn steady(&self, reach: usize) -> Lane {
        self.around(reach, |values| median(values.to_vec()).unwrap_or_default())
    }

    fn around(&self, reach: usize, value: impl Fn(&[f64]) -> f64) -> Lane {
        let at = |second: usize| {
            self.get(second)?;
            Some(value(&self.values(&(second.saturating_sub(reach)..second + reach + 1))))
        };
        Lane((0..self.0.len()).map(at).collect())
    }

    /// Which seconds hold a value that satisfies the test. A hole satisfies nothing.
    pub(crate) fn flags(&self, test: impl Fn(f64) -> bool) -> Vec<bool> {
        self.0.iter().map(|value| value.is_some_and(&test)).collect()
    }
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Both flags.
pub(crate) fn both(a: &[bool], b: &[bool]) -> Vec<bool> {
    a.iter().zip(b).map(|(a, b)| *a && *b).collect()
}

/// Either flag.
pub(crate) fn either(a: &[bool], b: &[bool]) -> Vec<bool> {
    a.iter().zip(b).map(|(a, b)| *a || *b).collect()
}

/// Stretches in which a flag holds in at least `least` seconds, bridging up to `bridge` seconds in which it does not.
pub(crate) fn episodes(flags: &[bool], least: usize, bridge: usize) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (second, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
        match found.last_mut() {
            Some(last) if second - last.end <= bridge => last.end = second + 1,
            _ => found.push(second..second + 1),
        }
    }
    found.retain(|range| flags[range.clone()].iter().filter(|flag| **flag).count() >= least);
    found
}

/// Stretches in which a lane is above nothing, in at least `least` seconds. A hole does not end one, since nobody saw it end; what lies
/// for the most part in holes is none.
pub(crate) fn runs(lane: &Lane, least: usize) -> Vec<Range<usize>> {
    let on = lane.flags(|value| value > 0.0);
    let mut found: Vec<Range<usize>> = Vec::new();
    for run in episodes(&on, 1, 0) {
        match found.last_mut() {
            Some(last) if lane.values(&(last.end..run.start)).is_empty() => last.end = run.end,
            _ => found.push(run),
        }
    }
    let seen = |run: &Range<usize>| on[run.clone()].iter().filter(|on| **on).count();
    found.retain(|run| seen(run) >= least && 2 * seen(run) >= run.len());
    found
}

/// The longest of some stretches, and all their seconds together.
pub(crate) fn longest(episodes: &[Range<usize>]) -> Option<(Range<usize>, usize)> {
    let total = episodes.iter().map(ExactSizeIterator::len).sum();
    let best = episodes.iter().rev().max_by_key(|range| range.len())?;
    Some((best.clone(), total))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Epoch, Meta, SeriesId, catalogue};
    use std::sync::Arc;

    fn window(points: &[(f64, f64, u64)]) -> Window {
        let series = Arc::new(catalogue::LOAD_COMPLETED.series::<&str>(&[]));
        let point = |(at, value, epoch): &(f64, f64, u64)| Point {
            at: Moment::from_seconds(*at),
            series: SeriesId(0),
            epoch: Epoch(*epoch),
            value: *value,
            as_of: None,
        };
        let points = points.iter().map(point).collect();
        let to = Moment::from_seconds(10.0);
        Window::new(Moment(0), to, Arc::new(Meta::default()), vec![(series, points)], vec![], vec![])
    }

    fn rates(points: &[(f64, f64, u64)]) -> Vec<Option<f64>> {
        let window = window(points);
        let lane = Grid::of(&window).rate(window.track("load.transactions", &[]));
        lane.0.iter().map(|value| value.map(f64::round)).collect()
    }

    #[test]
    fn a_steady_counter_is_steady_whatever_the_phase_of_its_readings() {
        let points: Vec<_> =
            (0..12).map(|n| (f64::from(n) - 0.3 + 0.01 * f64::from(n % 2), f64::from(n) * 100.0, 0)).collect();
        let seen = rates(&points);
        assert_eq!(seen.len(), 10);
        assert!(seen.iter().all(|rate| (rate.unwrap() - 100.0).abs() <= 2.0), "{seen:?}");
    }

    #[test]
    fn holes_resets_and_new_lives_are_holes_not_zeros() {
        let mut points: Vec<_> = (0..=10).map(|n| (f64::from(n), f64::from(n) * 100.0, 0)).collect();
        points.retain(|(at, ..)| !(3.5..6.5).contains(at));
        let seen = rates(&points);
        assert_eq!(seen[2], Some(100.0));
        assert_eq!((seen[3], seen[4], seen[5], seen[6]), (None, None, None, None));
        assert_eq!(seen[7], Some(100.0));
        let reset: Vec<_> = (0..=10).map(|n| (f64::from(n), f64::from(n % 5) * 100.0, 0)).collect();
        assert_eq!(rates(&reset)[4], None);
        let lives: Vec<_> = (0..=10).map(|n| (f64::from(n), f64::from(n) * 100.0, u64::from(n > 4))).collect();
        assert_eq!(rates(&lives)[4], None);
        assert_eq!(rates(&[(0.0, 1.0, 0)]), vec![None; 10]);
    }

    #[test]
    fn episodes_bridge_short_breaks_and_drop_short_ones() {
        let flags: Vec<bool> = "..111.11....1...".chars().map(|c| c == '1').collect();
        assert_eq!(episodes(&flags, 3, 1), vec![2..8]);
        assert_eq!(episodes(&flags, 1, 0), vec![2..5, 6..8, 12..13]);
        assert_eq!(longest(&[2..5, 6..8]), Some((2..5, 5)));
    }

    #[test]
    fn a_hole_ends_no_run_and_makes_none() {
        let of = |text: &str| Lane(text.chars().map(|c| c.to_digit(10).map(f64::from)).collect());
        assert_eq!(runs(&of("0011?110"), 2), vec![2..7]);
        assert_eq!(runs(&of("0011?0110"), 2), vec![2..4, 6..8], "it ended in the hole");
        assert_eq!(runs(&of("011?????110"), 2), vec![0..0; 0], "hardly seen");
        assert_eq!(runs(&of("010110"), 2), vec![3..5]);
    }
}
