//! Sources of a queue's figures, read onto the page's axis: levels at every reading, rates over every stretch. A break in the
//! readings longer than two and a half of their usual periods stays a hole.

use super::axis::{Axis, Lane};
use backwater_model::{Holes, Kind, Moment, Rate, Source, Span, Track, Window};
use std::collections::BTreeMap;

/// Shortest stretch over which a rate is formed, and shortest hole, in seconds; and the shortest of a rate.
const LEAST_S: f64 = 1.0;
const LEAST_OF_RATE_S: f64 = 2.5;

/// Whether a source is a value that never changes.
fn fixed(source: &Source) -> Option<f64> {
    match source {
        Source::Fixed(value) => Some(*value),
        Source::FirstOf(list) | Source::Least(list) | Source::Most(list) if list.len() == 1 => fixed(&list[0]),
        _ => None,
    }
}

fn holes(track: Track<'_>) -> Holes<'_> {
    Holes::of(track, (LEAST_S, f64::INFINITY))
}

/// A level or a limit: every reading counts, and a piece without one has the newest before it that is not too old. What is made
/// of several series is read when the slowest of them is, or it would seem to grow between that one's readings.
pub(super) fn gauge(source: &Source, window: &Window, axis: &Axis) -> Lane {
    if let Some(value) = fixed(source) {
        // Not beyond what this window tells: another part of a recording may have another.
        let mut lane = Lane::unknown(axis);
        axis.within(window).for_each(|piece| lane.add(piece, value));
        return lane;
    }
    match source {
        Source::Total(list) => return total(list, window, axis),
        Source::Steps(steps) => return stepped(steps, window, axis),
        _ => {}
    }
    let mut lane = Lane::unknown(axis);
    let found = source.tracks(window).into_iter().map(|(track, _)| track).filter(|track| !track.points.is_empty());
    let Some(lead) = found.min_by_key(|track| track.points.len()) else { return lane };
    let holes = holes(lead);
    for point in lead.points {
        let value = source.value(window, point.at, holes.at_s(point.at));
        if let (Some(piece), Some(value)) = (axis.piece(point.at), value) {
            lane.add(piece, value);
        }
    }
    for piece in axis.within(window) {
        let end = axis.end(piece).min(window.to);
        if lane.is_hole(piece)
            && let Some(value) = source.value(window, end, holes.at_s(end))
        {
            lane.add(piece, value);
        }
    }
    lane
}

/// Each piece has what holds when it ends, or when the window does.
fn stepped(steps: &[(Moment, Source)], window: &Window, axis: &Axis) -> Lane {
    let begins = steps.iter().map(|(from, _)| *from);
    let ends = begins.clone().skip(1).chain([Moment(i64::MAX)]);
    let mut lane = Lane::unknown(axis);
    for ((from, end), (_, source)) in begins.zip(ends).zip(steps) {
        let own = gauge(source, window, axis);
        for piece in axis.within(window) {
            let at = axis.end(piece).min(window.to);
            if let Some((least, most)) = own.pieces().get(piece).copied().flatten().filter(|_| from <= at && at < end) {
                lane.add(piece, least);
                lane.add(piece, most);
            }
        }
    }
    lane
}

/// The sum of levels that come and go, such as those of connections: at every moment at which any was read, of those read then.
fn total(list: &[Source], window: &Window, axis: &Axis) -> Lane {
    let mut sums: BTreeMap<Moment, f64> = BTreeMap::new();
    for (track, factor) in list.iter().flat_map(|source| source.tracks(window)) {
        track.points.iter().for_each(|point| *sums.entry(point.at).or_default() += point.value * factor);
    }
    let mut lane = Lane::unknown(axis);
    for (at, sum) in sums {
        if let Some(piece) = axis.piece(at) {
            lane.add(piece, sum);
        }
    }
    lane
}

/// A level: what two positions read at different times seem to have below nothing is nothing.
pub(super) fn level(source: &Source, window: &Window, axis: &Axis) -> Lane {
    gauge(source, window, axis).at_least(0.0)
}

/// Units a second of a counter, or of a sum of counters.
pub(super) fn rate(source: &Source, window: &Window, axis: &Axis) -> Lane {
    let mut lane = Lane::unknown(axis);
    if let Source::Total(list) = source {
        together(list, window).iter().for_each(|rate| fill(&mut lane, axis, rate));
        lane.settle();
        return lane;
    }
    let found = source.tracks(window);
    match found.as_slice() {
        [] => {}
        [(one, factor)] => {
            let scaled = |rate: Rate| Rate { per_second: rate.per_second * factor, ..rate };
            rates(*one).into_iter().for_each(|rate| fill(&mut lane, axis, &scaled(rate)));
        }
        [(lead, _), ..] => {
            let step = holes(*lead).period_s().max(LEAST_S);
            let mut from = window.from;
            while from < window.to {
                let to = from + Span::from_seconds(step);
                // A reading more on each side, so that its edges lie within readings.
                let over = Span::from_seconds(step / 2.0);
                if let Some(per_second) = source.rate(window, to + over, 2.0 * step) {
                    fill(&mut lane, axis, &Rate { per_second, from, to });
                }
                from = to;
            }
        }
    }
    lane.settle();
    lane
}

/// What things that come and go move together: a stretch for every time in which the same of them were read, with the sum of
/// their rates.
fn together(list: &[Source], window: &Window) -> Vec<Rate> {
    let mut edges: BTreeMap<Moment, (f64, i64)> = BTreeMap::new();
    for (track, factor) in list.iter().flat_map(|source| source.tracks(window)) {
        for rate in rates(track) {
            let moved = rate.per_second * factor;
            let (begun, ended) = ((moved, 1), (-moved, -1));
            for (at, (more, count)) in [(rate.from, begun), (rate.to, ended)] {
                let edge = edges.entry(at).or_default();
                *edge = (edge.0 + more, edge.1 + count);
            }
        }
    }
    let (mut sum, mut read) = (0.0, 0);
    let mut stretches = Vec::new();
    for ((from, (more, count)), to) in edges.iter().zip(edges.keys().skip(1)) {
        (sum, read) = if read + count == 0 { (0.0, 0) } else { (sum + more, read + count) };
        if read > 0 {
            // What was added and taken away again leaves a rounding error.
            stretches.push(Rate { per_second: f64::max(sum, 0.0), from: *from, to: *to });
        }
    }
    stretches
}

/// A counter's rates over stretches of a second or its own period, without those that bridge a hole.
pub(super) fn rates(track: Track<'_>) -> Vec<Rate> {
    if track.series.kind == Kind::Gauge {
        return Vec::new();
    }
    let holes = holes(track);
    let longest_s = |rate: &Rate| holes.at_s(rate.from).max(LEAST_OF_RATE_S);
    let list = track.rates(LEAST_S).into_iter();
    list.filter(|rate| rate.to.seconds_since(rate.from) <= longest_s(rate)).collect()
}

/// A rate in every piece that its stretch covers. To the mean of a piece it counts for as long as it held there.
pub(super) fn fill(lane: &mut Lane, axis: &Axis, rate: &Rate) {
    axis.covered(rate.from, rate.to).for_each(|piece| lane.widen(piece, rate.per_second));
    for (piece, seconds) in axis.touched(rate.from, rate.to) {
        lane.hold(piece, rate.per_second, seconds);
    }
}

/// The mean of what one counter sums up over what another counts: milliseconds a request. Both must be read together.
pub(super) fn quotient(sum: Option<Track<'_>>, count: Option<Track<'_>>, axis: &Axis, factor: f64) -> Lane {
    let mut lane = Lane::unknown(axis);
    let Some((sum, count)) = sum.zip(count) else { return lane };
    let counts: BTreeMap<Moment, f64> = rates(count).into_iter().map(|rate| (rate.to, rate.per_second)).collect();
    for rate in rates(sum) {
        if let Some(count) = counts.get(&rate.to).filter(|count| **count > 0.0) {
            fill(&mut lane, axis, &Rate { per_second: rate.per_second / count * factor, ..rate });
        }
    }
    lane
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::catalogue::{self as cat, Def};
    use backwater_model::{Epoch, Meta, Point, SeriesId};
    use std::sync::Arc;

    const OF: [(&str, &str); 1] = [("target", "p")];

    /// A series read every `every_s` seconds over a minute, but for those that are left out.
    fn read(every_s: f64, value: impl Fn(f64) -> f64, out: impl Fn(f64) -> bool) -> Vec<Point> {
        let moments = (0..=(60.0 / every_s) as usize).map(|n| n as f64 * every_s).filter(|at| !out(*at));
        let point = |at: f64| Point {
            at: Moment::from_seconds(at),
            series: SeriesId(0),
            epoch: Epoch(1),
            value: value(at),
            as_of: None,
        };
        moments.map(point).collect()
    }

    fn window(series: Vec<(Def, Vec<Point>)>) -> Window {
        let named = |(def, points): (Def, Vec<Point>)| (Arc::new(def.series(&OF)), points);
        let to = Moment::from_seconds(60.0);
        let list = series.into_iter().map(named).collect();
        Window::new(Moment(0), to, Arc::new(Meta::default()), list, vec![], vec![])
    }

    #[test]
    fn a_level_between_a_fast_and_a_slow_reading_does_not_saw() {
        let (insert, redo) = (cat::PG_WAL_INSERT, cat::PG_CHECKPOINT_REDO);
        let window = window(vec![
            (insert, read(0.1, |at| at * 1e6 + 5e6, |_| false)),
            (redo, read(5.0, |at| at * 1e6, |_| false)),
        ]);
        let source = Source::difference(insert.name, redo.name, &OF);
        let lane = level(&source, &window, &Axis::of(&window));
        assert_eq!(lane.get(10), Some((5e6, 5e6)), "as it was when the slower one was read");
    }

    #[test]
    fn a_rate_is_known_in_every_second_but_in_a_hole() {
        let flush = cat::PG_WAL_FLUSH;
        let window = window(vec![(flush, read(1.0, |at| at * 7e6, |at| (20.0..30.0).contains(&at)))]);
        let lane = rate(&Source::series(flush.name, &OF), &window, &Axis::of(&window));
        assert_eq!((lane.get(5), lane.get(58)), (Some((7e6, 7e6)), Some((7e6, 7e6))));
        assert!((20..29).all(|piece| lane.is_hole(piece)));
    }

    #[test]
    fn connections_that_follow_one_another_never_add_up() {
        let acked = cat::TCP_ACKED;
        let of = |n: i64| {
            [("target", "p".to_owned()), ("pid", n.to_string()), ("local", "l".to_owned()), ("peer", "r".to_owned())]
        };
        let point = |at: i64, value: f64| Point {
            at: Moment(at * 1_000_000),
            series: SeriesId(0),
            epoch: Epoch(1),
            value,
            as_of: None,
        };
        // Ten, one after the other, each of a second and of 10 MB.
        let series = (0..10).map(|n| (Arc::new(acked.series(&of(n))), vec![point(3 * n, 0.0), point(3 * n + 1, 1e7)]));
        let meta = Arc::new(Meta::default());
        let window = Window::new(Moment(0), Moment::from_seconds(86_400.0), meta, series.collect(), vec![], vec![]);
        let one = |n: i64| {
            let labels = of(n);
            let labels: Vec<(&'static str, &str)> =
                labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
            Source::series(acked.name, &labels)
        };
        let axis = Axis::of(&window);
        let lane = rate(&Source::Total((0..10).map(one).collect()), &window, &axis);
        assert_eq!((axis.step_s, lane.get(0)), (30.0, Some((1e7, 1e7))), "the peak is that of one");
        assert!((lane.mean().unwrap() / 1e7 - 1.0).abs() < 1e-9, "{:?}", lane.mean());
    }

    #[test]
    fn a_peak_between_two_seconds_is_kept() {
        let active = cat::PG_SESSIONS_ACTIVE;
        let value = |at: f64| if (at - 30.2).abs() < 0.01 { 90.0 } else { 3.0 };
        let window = window(vec![(active, read(0.1, value, |_| false))]);
        let lane = gauge(&Source::series(active.name, &OF), &window, &Axis::of(&window));
        assert_eq!(lane.get(30), Some((3.0, 90.0)));
    }
}
