//! The page's shared time axis: pieces of equal length, and values gathered into them by their least and their most, so that
//! a peak of one reading is still a peak on a chart of a day.

use backwater_model::{Meta, Moment, Window};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// The most pieces an axis has: a day in halves of a minute.
const MOST_PIECES: usize = 2_880;
/// A piece of which this share is known counts as known whole.
const WHOLE: f64 = 0.999_5;
/// Lengths of a piece in seconds, as people like them; beyond the last, whole hours.
const STEPS_S: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 900.0];

/// Equal pieces of a window. Piece `n` spans from `n × step_s` to `(n + 1) × step_s` seconds after the window's begin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// Unix time of the begin, in milliseconds; none where the recording has no clock anchor.
    pub from_unix_ms: Option<f64>,
    /// Length of a piece in seconds.
    pub step_s: f64,
    /// How many pieces.
    pub count: usize,
    #[serde(skip)]
    from: Moment,
}

impl Axis {
    /// The axis of a window.
    #[cfg(test)]
    pub(super) fn of(window: &Window) -> Axis {
        Axis::between(window.from, window.to, &window.meta)
    }

    /// The axis of a stretch.
    pub(super) fn between(from: Moment, to: Moment, meta: &Meta) -> Axis {
        let seconds = to.seconds_since(from).max(1.0);
        let fits = |step: &&f64| seconds / **step <= MOST_PIECES as f64;
        let step_s = STEPS_S.iter().find(fits).copied();
        let step_s = step_s.unwrap_or_else(|| (seconds / MOST_PIECES as f64 / 3_600.0).ceil() * 3_600.0);
        let from_unix_ms = meta.unix_us(from).map(|us| us as f64 / 1e3);
        Axis { from_unix_ms, step_s, count: (seconds / step_s).ceil() as usize, from }
    }

    /// The moment at which the axis begins.
    pub(super) fn begin(&self) -> Moment {
        self.from
    }

    /// The pieces of which a window may hold something.
    pub(super) fn within(&self, window: &Window) -> std::ops::Range<usize> {
        let last = self.count.saturating_sub(1);
        let piece = |at: Moment| ((self.seconds(at) / self.step_s).max(0.0) as usize).min(last);
        if self.count == 0 { 0..0 } else { piece(window.from)..piece(window.to) + 1 }
    }

    /// Seconds from the axis' begin to a moment.
    pub(super) fn seconds(&self, at: Moment) -> f64 {
        at.seconds_since(self.from)
    }

    /// The moment at which a piece ends.
    pub(super) fn end(&self, piece: usize) -> Moment {
        Moment::from_seconds(self.from.seconds() + (piece + 1) as f64 * self.step_s)
    }

    /// The piece in which a moment lies; the axis' end belongs to the last one.
    pub(super) fn piece(&self, at: Moment) -> Option<usize> {
        let seconds = self.seconds(at);
        let last = self.count.checked_sub(1)?;
        (seconds >= 0.0 && seconds <= self.count as f64 * self.step_s)
            .then(|| ((seconds / self.step_s) as usize).min(last))
    }

    /// The pieces of which some lies between two moments, with how many seconds that is.
    pub(super) fn touched(&self, from: Moment, to: Moment) -> impl Iterator<Item = (usize, f64)> {
        let (from_s, to_s, step_s) = (self.seconds(from).max(0.0), self.seconds(to), self.step_s);
        let end = ((to_s / step_s).ceil().max(0.0) as usize).min(self.count);
        let within = move |piece: usize| to_s.min((piece + 1) as f64 * step_s) - from_s.max(piece as f64 * step_s);
        ((from_s / step_s) as usize..end).map(move |piece| (piece, within(piece)))
    }

    /// The pieces whose middle lies between two moments, else the one in which the middle of the two lies.
    pub(super) fn covered(&self, from: Moment, to: Moment) -> std::ops::Range<usize> {
        let edge = |at: Moment| ((self.seconds(at) / self.step_s - 0.5).max(-1.0).floor() + 1.0) as usize;
        let (first, end) = (edge(from).min(self.count), edge(to).min(self.count));
        if first < end {
            return first..end;
        }
        let middle = Moment::from_seconds(f64::midpoint(from.seconds(), to.seconds()));
        self.piece(middle).map_or(0..0, |piece| piece..piece + 1)
    }
}

/// A series on an axis: the least and the most of what was read in each piece, or nothing, and its mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    pieces: Vec<Option<(f64, f64)>>,
    sums: Vec<Sum>,
    step_s: f64,
}

/// What was read in one piece, each value times how long it held (readings of a level, all equally long), and those lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    values: f64,
    weights: f64,
    /// Share of the piece of which something is known: it counts to a mean over several pieces by as much.
    known: f64,
}

impl Sum {
    fn of(mean: f64, Sum { weights, known, .. }: Sum) -> Sum {
        Sum { values: mean * weights, weights, known }
    }

    fn mean(self) -> f64 {
        if self.weights > 0.0 { self.values / self.weights } else { 0.0 }
    }
}

impl Lane {
    /// A lane of which nothing is known yet.
    pub(super) fn unknown(axis: &Axis) -> Lane {
        Lane { pieces: vec![None; axis.count], sums: vec![Sum::default(); axis.count], step_s: axis.step_s }
    }

    /// A value that was read in one piece, and stands for all of it. What is no number is no reading.
    pub(super) fn add(&mut self, piece: usize, value: f64) {
        self.widen(piece, value);
        self.weigh(piece, value, 1.0, 1.0);
    }

    /// A value that held for so many seconds of a piece.
    pub(super) fn hold(&mut self, piece: usize, value: f64, seconds: f64) {
        self.weigh(piece, value, seconds, seconds / self.step_s);
    }

    /// What held in a piece without being its least or its most, because it held so briefly, is both where nothing else did.
    pub(super) fn settle(&mut self) {
        for (piece, sum) in self.pieces.iter_mut().zip(&self.sums).filter(|(_, sum)| sum.weights > 0.0) {
            piece.get_or_insert((sum.mean(), sum.mean()));
        }
    }

    /// A value between whose least and most a piece lies.
    pub(super) fn widen(&mut self, piece: usize, value: f64) {
        if let Some(slot) = self.pieces.get_mut(piece).filter(|_| value.is_finite()) {
            *slot = Some(slot.map_or((value, value), |(least, most)| (least.min(value), most.max(value))));
        }
    }

    /// A value that counts so much to a piece's mean, and makes so much of the piece known.
    fn weigh(&mut self, piece: usize, value: f64, weight: f64, known: f64) {
        if let Some(sum) = self.sums.get_mut(piece).filter(|_| value.is_finite()) {
            sum.values += value * weight;
            sum.weights += weight;
            sum.known = (sum.known + known).min(1.0);
        }
    }

    /// Takes in what another lane of the same axis knows, which may be of the same readings: a piece's mean is of whichever knows
    /// more of it.
    pub(super) fn absorb(&mut self, other: &Lane) {
        for (piece, (both, sum)) in other.pieces.iter().zip(&other.sums).enumerate() {
            if self.pieces.len() > piece
                && let Some((least, most)) = both
            {
                self.widen(piece, *least);
                self.widen(piece, *most);
                if sum.weights > self.sums[piece].weights {
                    self.sums[piece] = *sum;
                }
            }
        }
    }

    /// Lower values lifted to this one.
    pub(super) fn at_least(self, floor: f64) -> Lane {
        let lift = |(least, most): (f64, f64)| (least.max(floor), most.max(floor));
        let pieces = self.pieces.iter().map(|piece| piece.map(lift)).collect();
        let sums = self.sums.iter().map(|sum| Sum::of(sum.mean().max(floor), *sum)).collect();
        Lane { pieces, sums, ..self }
    }

    /// Whether anything is known.
    pub(super) fn known(&self) -> bool {
        self.pieces.iter().any(Option::is_some)
    }

    /// Whether nothing is known of a piece.
    pub(super) fn is_hole(&self, piece: usize) -> bool {
        self.pieces.get(piece).copied().flatten().is_none()
    }

    /// The least and the most of each piece, or nothing where nothing was read.
    pub fn pieces(&self) -> &[Option<(f64, f64)>] {
        &self.pieces
    }

    /// The largest value.
    pub(super) fn max(&self) -> Option<f64> {
        self.pieces.iter().flatten().map(|(_, most)| *most).reduce(f64::max)
    }

    /// The mean over all of which something is known: of a counter, what it grew by in that time.
    pub(super) fn mean(&self) -> Option<f64> {
        self.mean_of(0..self.pieces.len())
    }

    /// The same over some of the pieces.
    pub fn mean_of(&self, pieces: std::ops::Range<usize>) -> Option<f64> {
        let known = self.pieces.iter().zip(&self.sums).skip(pieces.start).take(pieces.len());
        let known = known.filter(|(piece, _)| piece.is_some());
        let (time, sum) =
            known.fold((0.0, 0.0), |(time, total), (_, sum)| (time + sum.known, total + sum.mean() * sum.known));
        (time > 0.0).then(|| sum / time)
    }

    /// The least and the most of one piece.
    #[cfg(test)]
    pub(super) fn get(&self, piece: usize) -> Option<(f64, f64)> {
        self.pieces.get(piece).copied().flatten()
    }
}

/// `constant` where every piece holds the same value; else `max`, and `min` and `mean` where they differ from it
/// anywhere, and `known` with each piece that is known in part and how much of it. A hole is null.
impl Serialize for Lane {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut out = to.serialize_struct("Lane", 4)?;
        let first = self.pieces.first().copied().flatten();
        match first {
            Some((least, most)) if least == most && self.pieces.iter().all(|piece| *piece == first) => {
                out.serialize_field("constant", &Short(most))?;
            }
            _ => {
                let side = |pick: fn((f64, f64)) -> f64| -> Vec<Option<Short>> {
                    self.pieces.iter().map(|piece| piece.map(|both| Short(pick(both)))).collect()
                };
                let (least, most) = (side(|both| both.0), side(|both| both.1));
                out.serialize_field("max", &most)?;
                if least != most {
                    out.serialize_field("min", &least)?;
                }
                let known = self.pieces.iter().zip(&self.sums);
                let mean: Vec<Option<Short>> = known.map(|(both, sum)| both.map(|_| Short(sum.mean()))).collect();
                if mean != most {
                    out.serialize_field("mean", &mean)?;
                }
                let pieces = self.pieces.iter().zip(&self.sums).enumerate();
                let in_part = pieces.filter(|(_, (both, sum))| both.is_some() && sum.known < WHOLE);
                let known: Vec<(usize, Short)> = in_part.map(|(piece, (_, sum))| (piece, Short(sum.known))).collect();
                if !known.is_empty() {
                    out.serialize_field("known", &known)?;
                }
            }
        }
        out.end()
    }
}

/// A number with four significant digits (a chart has fewer, a shown value three), whole ones without a point. Its place on
/// the page is what it costs.
#[derive(Clone, Copy, Debug)]
struct Short(f64);

impl Short {
    fn rounded(self) -> f64 {
        format!("{:.3e}", self.0).parse().unwrap_or(self.0)
    }
}

impl PartialEq for Short {
    fn eq(&self, other: &Short) -> bool {
        self.rounded() == other.rounded()
    }
}

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let value = self.rounded();
        // Up to here every whole number is exact.
        if value.fract() == 0.0 && value.abs() < 9e15 {
            to.serialize_i64(value as i64)
        } else {
            to.serialize_f64(value)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    pub(crate) fn axis(seconds: f64) -> Axis {
        let window =
            Window::new(Moment(0), Moment::from_seconds(seconds), Arc::new(Meta::default()), vec![], vec![], vec![]);
        Axis::of(&window)
    }

    #[test]
    fn a_minute_and_a_month_have_axes_of_few_pieces() {
        assert_eq!((axis(60.0).step_s, axis(60.0).count), (1.0, 60));
        assert_eq!((axis(86_400.0).step_s, axis(86_400.0).count), (30.0, 2_880));
        let month = axis(30.0 * 86_400.0);
        assert!(month.count <= MOST_PIECES && month.step_s % 900.0 == 0.0, "{month:?}");
        assert_eq!(axis(0.0).count, 1);
        let years = axis(3e8);
        assert!(years.count <= MOST_PIECES && years.step_s % 3_600.0 == 0.0, "{years:?}");
    }

    #[test]
    fn a_stretch_covers_the_pieces_whose_middle_it_holds() {
        let axis = axis(10.0);
        let at = Moment::from_seconds;
        assert_eq!(axis.covered(at(0.1), at(1.1)), 0..1);
        assert_eq!(axis.covered(at(0.9), at(4.2)), 1..4);
        assert_eq!(axis.covered(at(2.6), at(2.9)), 2..3);
        assert_eq!(axis.covered(at(-5.0), at(-4.0)), 0..0);
        assert_eq!(axis.covered(at(9.0), at(99.0)), 9..10);
        let touched = |from, to| axis.touched(at(from), at(to)).collect::<Vec<_>>();
        assert_eq!(touched(0.5, 2.25), [(0, 0.5), (1, 1.0), (2, 0.25)]);
        assert_eq!(
            (touched(-5.0, -4.0), touched(9.5, 99.0), touched(-1.0, 0.5)),
            (vec![], vec![(9, 0.5)], vec![(0, 0.5)])
        );
    }

    #[test]
    fn a_lane_is_written_briefly() {
        let axis = axis(3.0);
        let mut lane = Lane::unknown(&axis);
        [(0, 1.0), (0, 123_456_789.0), (2, 0.123_456)].into_iter().for_each(|(piece, value)| lane.add(piece, value));
        lane.add(1, f64::NAN);
        lane.add(99, 1.0);
        let text = serde_json::to_string(&lane).unwrap();
        assert_eq!(text, r#"{"max":[123500000,null,0.1235],"min":[1,null,0.1235],"mean":[61730000,null,0.1235]}"#);
        let mut same = Lane::unknown(&axis);
        (0..3).for_each(|piece| same.add(piece, 64.0));
        assert_eq!(serde_json::to_string(&same).unwrap(), r#"{"constant":64}"#);
    }

    #[test]
    fn a_mean_is_of_how_long_each_value_held() {
        let axis = axis(86_400.0);
        let mut lane = Lane::unknown(&axis);
        // One second of a hundred in half a minute of nothing.
        [0.0, 100.0].into_iter().for_each(|value| lane.widen(0, value));
        [(0.0, 29.0), (100.0, 1.0)].into_iter().for_each(|(value, seconds)| lane.hold(0, value, seconds));
        let mut other = Lane::unknown(&axis);
        other.add(0, 1.0);
        assert_eq!(lane.mean(), Some(100.0 / 30.0));
        other.absorb(&lane);
        assert_eq!((other.mean(), other.get(0)), (Some(100.0 / 30.0), Some((0.0, 100.0))));
        assert_eq!(lane.at_least(50.0).mean(), Some(50.0));
    }

    #[test]
    fn a_piece_that_is_known_in_part_counts_by_that_part() {
        let axis = axis(10.0);
        let mut lane = Lane::unknown(&axis);
        // 100 in half a second, then nothing: 50 in two and a quarter.
        [(0, 100.0, 0.5), (1, 0.0, 1.0), (2, 0.0, 0.75)]
            .into_iter()
            .for_each(|(piece, rate, s)| lane.hold(piece, rate, s));
        assert!(!lane.known());
        lane.settle();
        assert_eq!((lane.mean(), lane.mean_of(1..10)), (Some(50.0 / 2.25), Some(0.0)));
        let text = serde_json::to_string(&lane).unwrap();
        assert!(text.ends_with(r#""known":[[0,0.5],[2,0.75]]}"#), "{text}");
    }

    proptest! {
        #[test]
        fn no_peak_is_lost(values in prop::collection::vec((0.0..90_000.0_f64, -1e12..1e12_f64), 1..200)) {
            let axis = axis(86_400.0);
            let mut lane = Lane::unknown(&axis);
            for (at, value) in &values {
                if let Some(piece) = axis.piece(Moment::from_seconds(*at)) {
                    lane.add(piece, *value);
                }
            }
            let within = values.iter().filter(|(at, _)| *at <= 86_400.0).map(|(_, value)| *value);
            prop_assert_eq!(lane.max(), within.reduce(f64::max));
        }

        #[test]
        fn four_digits_stay(value in prop::num::f64::NORMAL) {
            let short = Short(value).rounded();
            prop_assert!((short - value).abs() <= value.abs() * 0.000_51, "{value} {short}");
        }
    }
}
