//! Properties of counters, gauges and clocks: what real sources do to them must never become a wrong number.
#![allow(clippy::unwrap_used)]

use backwater_model::{
    ClockAnchor, Epoch, Kind, Labels, Lsn, Meta, Moment, Point, Provenance, RateError, Series, SeriesId, Span, Track,
    Unit, rate_between,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn series(kind: Kind) -> Series {
    Series { name: "s".into(), unit: Unit::Bytes, kind, labels: Labels::none(), provenance: Provenance::Read }
}

fn point(at_s: f64, value: f64, epoch: u64) -> Point {
    let at = Moment::from_seconds(at_s);
    Point { at, series: SeriesId(0), epoch: Epoch(epoch), value, as_of: None }
}

/// Steps of a counter: seconds to the next reading, by how much it rose, whether it was reset, whether a new life began.
fn steps() -> impl Strategy<Value = Vec<(f64, u32, bool, bool)>> {
    vec((0.01..20.0, 0_u32..1_000_000, prop::bool::weighted(0.1), prop::bool::weighted(0.1)), 0..60)
}

/// The readings of such a counter, and its true rise within stretches that allow a rate.
fn counter(steps: &[(f64, u32, bool, bool)]) -> (Vec<Point>, f64) {
    let (mut at, mut value, mut epoch, mut known) = (100.0, 1e6, 1, 0.0);
    let mut points = vec![point(at, value, epoch)];
    for (seconds, rise, reset, reborn) in steps {
        at += seconds;
        let before = value;
        value = if *reset || *reborn { f64::from(*rise) } else { value + f64::from(*rise) };
        epoch += u64::from(*reborn);
        // A reset that ends higher than it began cannot be told from a rise.
        if !reborn && value >= before {
            known += value - before;
        }
        points.push(point(at, value, epoch));
    }
    (points, known)
}

proptest! {
    #[test]
    fn counters_that_reset_or_start_anew_never_give_a_negative_or_invented_rate(steps in steps()) {
        let (points, known) = counter(&steps);
        let series = series(Kind::Counter);
        let track = Track { series: &series, points: &points };
        prop_assert!((track.increase().unwrap_or(0.0) - known).abs() <= known * 1e-9);
        let pairs = points.windows(2).filter_map(|pair| rate_between(&pair[0], &pair[1], 0.0).ok());
        let fastest = pairs.map(|rate| rate.per_second).fold(0.0, f64::max);
        if let Some(rate) = track.rate() {
            prop_assert!((0.0..=fastest * (1.0 + 1e-9)).contains(&rate), "{rate} {fastest}");
        }
        for rate in track.rates(1.0) {
            prop_assert!((0.0..=fastest * (1.0 + 1e-9)).contains(&rate.per_second));
            prop_assert!(rate.to.seconds_since(rate.from) >= 0.999);
        }
    }

    #[test]
    fn no_stretch_of_rates_reaches_across_a_reset_or_a_new_life(steps in steps(), step_s in 0.0..10.0) {
        let (points, _) = counter(&steps);
        let series = series(Kind::Counter);
        for rate in (Track { series: &series, points: &points }).rates(step_s) {
            let inside: Vec<_> = points.iter().filter(|point| rate.from <= point.at && point.at <= rate.to).collect();
            prop_assert!(inside.windows(2).all(|pair| pair[0].epoch == pair[1].epoch && pair[0].value <= pair[1].value));
        }
    }

    #[test]
    fn a_wrapped_counter_is_refused(from in 1_u64..u64::MAX, rise in 1_u64..1_000_000) {
        let (first, last) = (point(1.0, from as f64, 1), point(2.0, from.wrapping_add(rise) as f64, 1));
        match rate_between(&first, &last, 0.0) {
            Ok(rate) => prop_assert!(rate.per_second >= 0.0),
            Err(error) => prop_assert_eq!(error, RateError::WentBackwards),
        }
    }

    #[test]
    fn different_lives_give_no_rate(a in any::<u64>(), b in any::<u64>(), value in 0.0..1e9) {
        prop_assume!(a != b);
        prop_assert_eq!(rate_between(&point(1.0, 0.0, a), &point(2.0, value, b), 0.0), Err(RateError::EpochChanged));
    }

    #[test]
    fn epochs_are_told_apart_by_where_their_parts_end(parts in vec("[a-z]{1,6}", 2..5)) {
        let list: Vec<&str> = parts.iter().map(String::as_str).collect();
        prop_assert_eq!(Epoch::of(&list), Epoch::of(&list));
        prop_assert_ne!(Epoch::of(&list), Epoch::of(&[list.concat().as_str()]));
    }

    #[test]
    fn readings_closer_than_two_resolutions_give_no_rate(apart in 0.001..10.0_f64, resolution in 0.001..10.0) {
        let result = rate_between(&point(5.0, 1.0, 1), &point(5.0 + apart, 2.0, 1), resolution);
        if apart < 2.0 * resolution - 1e-5 {
            prop_assert_eq!(result, Err(RateError::TooClose));
        } else if apart > 2.0 * resolution + 1e-5 {
            prop_assert!((result.unwrap().per_second * apart - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn a_gauge_has_values_and_no_rates(values in vec(0.0..1e9, 0..40)) {
        let points: Vec<Point> = values.iter().enumerate().map(|(at, value)| point(at as f64, *value, 1)).collect();
        let series = series(Kind::Gauge);
        let track = Track { series: &series, points: &points };
        prop_assert_eq!(track.rate(), None);
        prop_assert_eq!(track.increase(), None);
        prop_assert!(track.rates(1.0).is_empty());
        if let (Some(low), Some(mean), Some(high)) = (track.min(), track.mean(), track.max()) {
            prop_assert!(low <= mean * (1.0 + 1e-12) + 1e-9 && mean <= high * (1.0 + 1e-12) + 1e-9);
        }
    }

    /// A source that renews its value only now and then, read more often: positions of a standby.
    #[test]
    fn a_source_older_than_the_read_keeps_its_rate(period in 2_usize..10, per_second in 1.0..1e6_f64, reads in 20_usize..100) {
        let truth = |read: usize| (read / period * period) as f64 * 0.1;
        let point = |read: usize| Point {
            as_of: Some(Moment::from_seconds(truth(read))),
            ..point(read as f64 * 0.1, truth(read) * per_second, 1)
        };
        let points: Vec<Point> = (0..reads).map(point).collect();
        let series = series(Kind::Counter);
        let track = Track { series: &series, points: &points };
        let rate = track.rate().unwrap();
        prop_assert!((rate / per_second - 1.0).abs() < 1e-6, "{rate} {per_second}");
        for rate in track.rates(0.0) {
            prop_assert!((rate.per_second / per_second - 1.0).abs() < 1e-3);
        }
    }

    /// Answers that overtake one another: an older truth read later adds nothing.
    #[test]
    fn truths_out_of_order_are_not_counted_twice(order in Just((0..12).collect::<Vec<i32>>()).prop_shuffle()) {
        let point = |(read, truth): (usize, &i32)| Point {
            as_of: Some(Moment::from_seconds(f64::from(*truth))),
            ..point(100.0 + read as f64, f64::from(*truth) * 10.0, 1)
        };
        let points: Vec<Point> = order.iter().enumerate().map(point).collect();
        let series = series(Kind::Counter);
        let track = Track { series: &series, points: &points };
        prop_assert!(track.increase().unwrap_or(0.0) <= 110.0);
        if let Some(rate) = track.rate() {
            prop_assert!((rate - 10.0).abs() < 1e-6);
        }
        for rate in track.rates(2.0) {
            prop_assert!((rate.per_second - 10.0).abs() < 1e-6);
        }
    }

    #[test]
    fn the_wall_clock_may_step(
        steps in vec((1_i64..1_000_000_000, -500_000_000_i64..500_000_000), 0..6),
        at in 0_i64..6_000_000_000,
    ) {
        let mut anchors = vec![ClockAnchor { boot: Moment(0), unix_us: 1_700_000_000_000_000 }];
        for (later, step) in steps {
            let last = *anchors.last().unwrap();
            anchors.push(ClockAnchor { boot: Moment(last.boot.0 + later), unix_us: last.unix_us + later + step });
        }
        let meta = Meta { anchors, ..Meta::default() };
        let shown = meta.unix_us(Moment(at)).unwrap();
        // What the clock showed leads to a moment at which it showed just that; the latest one, if it showed it twice.
        let moment = meta.moment_of_unix_us(shown).unwrap();
        prop_assert_eq!(meta.unix_us(moment), Some(shown));
    }

    #[test]
    fn a_time_the_clock_never_showed_is_the_moment_it_was_skipped(skipped in 0_i64..1_000_000_000) {
        let (start, step) = (1_700_000_000_000_000, 1_000_000_000);
        let anchors = vec![
            ClockAnchor { boot: Moment(0), unix_us: start },
            ClockAnchor { boot: Moment(5_000_000), unix_us: start + 5_000_000 + step },
        ];
        let meta = Meta { anchors, ..Meta::default() };
        prop_assert_eq!(meta.moment_of_unix_us(start + 5_000_000 + skipped), Some(Moment(5_000_000)));
    }

    #[test]
    fn no_moment_overflows(a in any::<i64>(), b in any::<i64>(), unix in any::<i64>()) {
        let (a, b) = (Moment(a), Moment(b));
        let span: Span = b - a;
        let _ = (a + span, a - span, b.seconds_since(a));
        let meta = Meta { anchors: vec![ClockAnchor { boot: a, unix_us: unix }], ..Meta::default() };
        let _ = (meta.unix_us(b), meta.moment_of_unix_us(b.0));
    }

    #[test]
    fn positions_read_at_different_times_never_go_under_zero(a in any::<u64>(), b in any::<u64>()) {
        prop_assert_eq!(Lsn(a).bytes_since(Lsn(b)).0, a.saturating_sub(b));
        let text = Lsn(a).to_string();
        prop_assert_eq!(text.parse::<Lsn>().unwrap(), Lsn(a));
    }

    #[test]
    fn quantities_survive_any_text(text in ".*") {
        let _ = (text.parse::<backwater_model::Bytes>(), text.parse::<Lsn>());
    }

    #[test]
    fn every_value_can_be_shown(value in any::<f64>()) {
        for unit in [Unit::Bytes, Unit::Count, Unit::PerSecond, Unit::Seconds, Unit::Microseconds, Unit::Ratio, Unit::Flag] {
            prop_assert!(!unit.show(value).is_empty());
        }
    }
}

#[test]
fn a_clock_that_jumps_without_end_keeps_its_largest_steps() {
    let mut meta = Meta::default();
    let anchor = |second: i64, offset_s: i64| ClockAnchor {
        boot: Moment(second * 1_000_000),
        unix_us: (second + offset_s) * 1_000_000,
    };
    for second in 0..3_000 {
        // To and fro by a second; once by an hour for good.
        let offset_s = second % 2 + if second >= 1_500 { 3_600 } else { 0 };
        meta.add_anchor(anchor(second, offset_s));
    }
    assert_eq!(meta.anchors.len(), 1_000);
    assert!(meta.anchors.windows(2).all(|pair| pair[0].boot < pair[1].boot));
    assert_eq!((meta.anchors[0], meta.anchors[999]), (anchor(0, 0), anchor(2_999, 3_601)));
    // What went cost no more than those small steps.
    for second in [1, 700, 1_499, 1_500, 2_400] {
        let told = meta.unix_us(Moment(second * 1_000_000)).unwrap() / 1_000_000;
        let meant = second + if second >= 1_500 { 3_600 } else { 0 };
        assert!((told - meant).abs() <= 1, "{second}: {told} for {meant}");
    }
    // Out of order and twice is as well.
    meta.add_anchor(anchor(0, 0));
    assert_eq!(meta.anchors.len(), 1_000);
}
