//! Properties of queues, windows and the binding-stage rule: what is unknown stays unknown, and nothing is guessed.
#![allow(clippy::unwrap_used)]

use backwater_model::{
    Binding, Epoch, Event, EventKind, Kind, Labels, Meta, Moment, Path, Point, Provenance, Queue, QueueSpec, Series,
    SeriesId, Shares, Source, Stage, Target, Unit, Window,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::sync::Arc;

fn series(name: &'static str, kind: Kind) -> Arc<Series> {
    Arc::new(Series {
        name: name.into(),
        unit: Unit::Bytes,
        kind,
        labels: Labels::none(),
        provenance: Provenance::Read,
    })
}

fn point(at_s: f64, value: f64) -> Point {
    Point { at: Moment::from_seconds(at_s), series: SeriesId(0), epoch: Epoch(1), value, as_of: None }
}

/// A queue of which any part may be unknown, zero or negative (levels made of two readings can be).
fn queue() -> impl Strategy<Value = Queue> {
    let part = || option::of(prop_oneof![Just(0.0), -10.0..1e9]);
    (part(), part(), part(), part()).prop_map(|(inflow_per_s, outflow_per_s, level, hard_limit)| Queue {
        inflow_per_s,
        outflow_per_s,
        level,
        hard_limit,
        ..Queue::unknown("q", Unit::Bytes)
    })
}

proptest! {
    #[test]
    fn nothing_derived_of_a_queue_is_negative_or_infinite(queue in queue(), floor in -10.0..1e9) {
        for seconds in [queue.residence_s(), queue.time_to_limit_s(), queue.drain_time_s(floor)].into_iter().flatten() {
            prop_assert!(seconds >= 0.0 && seconds.is_finite(), "{queue:?} {seconds}");
        }
        prop_assert!(queue.fill().is_none_or(f64::is_finite));
    }

    #[test]
    fn what_is_unknown_of_a_queue_stays_unknown(queue in queue()) {
        if queue.level.is_none() {
            let derived = [queue.fill(), queue.residence_s(), queue.time_to_limit_s(), queue.drain_time_s(0.0)];
            prop_assert_eq!(derived, [None; 4]);
        }
        if queue.hard_limit.is_none() {
            prop_assert_eq!([queue.fill(), queue.time_to_limit_s()], [None; 2]);
        }
        if queue.outflow_per_s.is_none() {
            prop_assert_eq!(queue.residence_s(), None);
        }
    }

    #[test]
    fn where_writers_are_paused_midway_the_limit_lies_between_both(soft in 1.0..1e9_f64, room in 1.0..1e9_f64, level in 0.0..3e9_f64) {
        let plain = Queue {
            level: Some(level),
            soft_limit: Some(soft),
            hard_limit: Some(soft + room),
            ..Queue::unknown("q", Unit::Bytes)
        };
        let paused = Queue { held_midway: true, ..plain.clone() };
        prop_assert_eq!(plain.held_from(), Some(soft + room));
        prop_assert!((paused.held_from().unwrap() / (soft + room / 2.0) - 1.0).abs() < 1e-9);
        prop_assert_eq!(paused.time_to_limit_s() == Some(0.0), level >= paused.held_from().unwrap());
        prop_assert_eq!(Queue { soft_limit: None, ..paused }.fill(), None);
    }

    #[test]
    fn zero_rates_mean_never_and_not_at_once(level in 1.0..1e9, limit in 1.0..1e9) {
        let queue = Queue {
            inflow_per_s: Some(0.0),
            outflow_per_s: Some(0.0),
            level: Some(level),
            hard_limit: Some(limit),
            ..Queue::unknown("q", Unit::Bytes)
        };
        prop_assert_eq!((queue.residence_s(), queue.drain_time_s(0.0)), (None, None));
        prop_assert_eq!(queue.time_to_limit_s(), (level >= limit).then_some(0.0));
    }

    #[test]
    fn a_level_of_two_readings_at_slightly_different_times_is_near_the_truth(
        late in 0.0..0.1_f64, per_second in 1.0..1e6_f64, standing in 0.0..1e9_f64,
    ) {
        let reads = |offset: f64, more: f64| {
            let one = |n| f64::from(n) * 0.1 + offset;
            (0..50).map(|n| point(one(n), one(n) * per_second + more)).collect::<Vec<_>>()
        };
        let tracks = vec![(series("in", Kind::Counter), reads(0.0, standing)), (series("out", Kind::Counter), reads(late, 0.0))];
        let (from, to) = (Moment(0), Moment::from_seconds(5.0));
        let window = Window::new(from, to, Arc::new(Meta::default()), tracks, vec![], vec![]);
        let spec = QueueSpec {
            level: Source::difference("in", "out", &[]),
            inflow: Source::series("in", &[]),
            outflow: Source::series("out", &[]),
            ..QueueSpec::new("q", Unit::Bytes)
        };
        let read = spec.read(&window, Moment::from_seconds(4.0), 1.0);
        prop_assert!((read.level.unwrap() - standing).abs() <= 0.1001 * per_second);
        prop_assert!((read.inflow_per_s.unwrap() / read.outflow_per_s.unwrap() - 1.0).abs() < 1e-3);
        // A reading that is too old, and a series that is not there, are unknown.
        prop_assert_eq!(spec.read(&window, Moment::from_seconds(60.0), 1.0).level, None);
        let missing = QueueSpec { level: Source::sum(&["in", "none"], &[]), ..QueueSpec::new("q", Unit::Bytes) };
        prop_assert_eq!(missing.read(&window, Moment::from_seconds(4.0), 1.0).level, None);
        // A gauge has a level and no rate.
        let gauge = vec![(series("g", Kind::Gauge), reads(0.0, 0.0))];
        let window = Window::new(from, to, Arc::new(Meta::default()), gauge, vec![], vec![]);
        let source = Source::series("g", &[]);
        prop_assert!(source.value(&window, Moment::from_seconds(4.0), 1.0).is_some());
        prop_assert_eq!(source.rate(&window, Moment::from_seconds(4.0), 1.0), None);
    }

    #[test]
    fn a_slice_holds_what_lies_within_and_nothing_else(at in vec(0.0..100.0, 0..50), from in 0.0..100.0, long in 0.0..50.0) {
        let points: Vec<Point> = at.iter().map(|at| point(*at, 1.0)).collect();
        let tracks = vec![(series("g", Kind::Gauge), points)];
        let whole = (Moment(0), Moment::from_seconds(100.0));
        let window = Window::new(whole.0, whole.1, Arc::new(Meta::default()), tracks, vec![], vec![]);
        let (from, to) = (Moment::from_seconds(from), Moment::from_seconds(from + long));
        let within = at.iter().filter(|at| (from..=to).contains(&Moment::from_seconds(**at))).count();
        prop_assert_eq!(window.slice(from, to).track("g", &[]).map_or(0, |track| track.points.len()), within);
    }
}

/// Connections that come and go, looked at each second of a minute: the level and the mean rate over ten seconds at its end.
fn connections(lives: &[(i64, i64)]) -> (Option<f64>, Option<f64>) {
    let names = ["a", "b", "c"];
    let label = |n: usize| [("peer", names[n])];
    let tracks = lives.iter().enumerate().flat_map(|(n, (from, to))| {
        let read = |name: &'static str, kind, value: f64| {
            let points =
                (*from..=*to).map(|at| point(at as f64, value * if kind == Kind::Counter { at as f64 } else { 1.0 }));
            let series = Series { labels: Labels::of(&label(n)), ..(*series(name, kind)).clone() };
            (Arc::new(series), points.collect::<Vec<_>>())
        };
        [read("acked", Kind::Counter, 1e7), read("sendq", Kind::Gauge, 5.0)]
    });
    let window =
        Window::new(Moment(0), Moment::from_seconds(60.4), Arc::new(Meta::default()), tracks.collect(), vec![], vec![]);
    let total = |name| Source::Total((0..lives.len()).map(|n| Source::series(name, &label(n))).collect());
    (total("sendq").value(&window, window.to, 10.0), total("acked").rate(&window, window.to, 10.0))
}

#[test]
fn connections_count_while_they_are_there() {
    let near =
        |rate: Option<f64>, wanted: f64| assert!((rate.unwrap() / wanted - 1.0).abs() < 1e-6, "{rate:?} {wanted}");
    let (level, rate) = connections(&[(0, 60)]);
    assert_eq!(level, Some(5.0));
    near(rate, 1e7);
    let (level, rate) = connections(&[(0, 60), (52, 54), (55, 57)]);
    assert_eq!(level, Some(5.0), "the others have ended");
    near(rate, 1.4e7);
    let (level, rate) = connections(&[(53, 55)]);
    assert_eq!(level, None, "nobody is there any more");
    near(rate, 2e7 / 10.0);
}

fn stage(name: &str, from: &str, to: Option<&str>, blocked: Option<f64>, starved: Option<f64>) -> Stage {
    Stage {
        name: name.to_owned(),
        from: Some(from.to_owned()),
        to: to.map(str::to_owned),
        shares: Shares { busy: None, blocked, starved },
        rate_per_s: None,
        ceiling: None,
        resource: None,
    }
}

/// Level of a queue with a limit of 100, shares blocked and starved of the stage that empties it.
type Part = (Option<f64>, Option<f64>, Option<f64>);

/// A chain of queues, each with a stage into the next.
fn chain(parts: &[Part]) -> Path {
    let name = |at: usize| format!("q{at}");
    let queue = |(at, part): (usize, &Part)| Queue {
        level: part.0,
        hard_limit: Some(100.0),
        outflow_per_s: Some(10.0),
        ..Queue::unknown(name(at), Unit::Bytes)
    };
    let link = |(at, part): (usize, &Part)| {
        let to = (at + 1 < parts.len()).then(|| name(at + 1));
        stage(&format!("s{at}"), &name(at), to.as_deref(), part.1, part.2)
    };
    Path { queues: parts.iter().enumerate().map(queue).collect(), stages: parts.iter().enumerate().map(link).collect() }
}

fn known_mostly(most: f64) -> impl Strategy<Value = Option<f64>> {
    prop_oneof![1 => Just(None), 9 => (0.0..=most).prop_map(Some)]
}

proptest! {
    #[test]
    fn the_binding_stage_is_backlogged_and_leads_clearly_or_is_not_told(
        parts in vec((known_mostly(100.0), known_mostly(1.0), known_mostly(1.0)), 0..6),
    ) {
        // A queue stands for itself, or is full because whoever puts into it is blocked.
        let full = |at: usize| at > 0 && parts[at - 1].1.is_some_and(|blocked| blocked >= 0.5);
        let backlogged = |at: usize| if full(at) { Some(true) } else { parts[at].0.map(|level| level >= 5.0) };
        let unhindered = |part: &Part| Some((1.0 - part.1? - part.2?).clamp(0.0, 1.0));
        let vague = |at: usize| backlogged(at).is_none() || (backlogged(at) == Some(true) && unhindered(&parts[at]).is_none());
        let Some(Binding { stage, queue, unhindered: share, victims }) = chain(&parts).binding() else { return Ok(()) };
        prop_assert!(!(0..parts.len()).any(vague), "an unknown candidate might be the one");
        let at: usize = stage[1..].parse().unwrap();
        prop_assert_eq!(queue, format!("q{at}"));
        prop_assert_eq!(backlogged(at), Some(true));
        prop_assert_eq!(unhindered(&parts[at]), Some(share));
        prop_assert!(share >= 0.5);
        for (other, part) in parts.iter().enumerate().filter(|(other, _)| *other != at && backlogged(*other) == Some(true)) {
            prop_assert!(unhindered(part).unwrap() <= share - 0.15 + 1e-9, "s{other} is too close");
        }
        let upstream: Vec<String> = (0..at).rev().map(|before| format!("q{before}")).collect();
        prop_assert_eq!(victims, upstream);
    }
}

#[test]
fn victims_are_told_nearest_first_and_loops_end() {
    let into = |from: &str, to: &str| stage("s", from, Some(to), None, None);
    let tree = vec![into("a", "b"), into("b", "end"), into("d", "end"), into("e", "d"), into("f", "e")];
    assert_eq!(Path { queues: vec![], stages: tree }.upstream_of("end"), ["b", "d", "a", "e", "f"]);
    let ring = vec![into("a", "b"), into("b", "c"), into("c", "a")];
    assert_eq!(Path { queues: vec![], stages: ring }.upstream_of("a"), ["c", "b"]);
}

#[test]
fn where_nothing_is_known_nothing_binds() {
    let free = (Some(90.0), Some(0.0), Some(0.0));
    assert_eq!(Path::default().binding(), None);
    assert_eq!(chain(&[(Some(0.0), Some(0.0), Some(0.0))]).binding(), None, "nothing stands");
    assert_eq!(chain(&[(Some(90.0), None, Some(0.0))]).binding(), None, "shares unknown");
    assert_eq!(chain(&[free, (None, Some(0.0), Some(0.0))]).binding(), None, "another level unknown");
    assert_eq!(chain(&[free, (Some(90.0), Some(0.1), Some(0.0))]).binding(), None, "too close");
    let clear = chain(&[(Some(90.0), Some(0.9), Some(0.0)), (Some(90.0), Some(0.0), Some(0.1))]).binding().unwrap();
    assert_eq!((clear.stage.as_str(), clear.victims), ("s1", vec!["q0".to_owned()]));
    // A buffer that is full, however small: whoever fills it is blocked.
    let full = chain(&[(Some(90.0), Some(0.9), Some(0.0)), (Some(1.0), Some(0.0), Some(0.1))]).binding().unwrap();
    assert_eq!((full.stage.as_str(), full.victims), ("s1", vec!["q0".to_owned()]));
    // A stage whose queue was not read might be the one that binds.
    let mut path = chain(&[free]);
    path.stages.push(stage("elsewhere", "unread", None, Some(0.0), Some(0.0)));
    assert_eq!(path.binding(), None);
}

#[test]
fn a_slice_has_the_settings_in_force_when_it_begins() {
    let change = |second: f64, after: &str| {
        let fields = [("name", "wal_keep_size"), ("before", ""), ("after", after)];
        Event::new(Moment::from_seconds(second), "main", EventKind::Setting, "changed", &fields)
    };
    let mut meta = Meta { targets: vec![Target { name: "main".into(), ..Target::default() }], ..Meta::default() };
    meta.targets[0].settings.insert("wal_keep_size".into(), "1GB".into());
    let events = vec![change(5.0, "0"), change(15.0, ""), change(25.0, "64MB")];
    let end = Moment::from_seconds(30.0);
    let window = Window::new(Moment(0), end, Arc::new(meta), vec![], vec![], events);
    let kept = |from: f64| {
        let slice = window.slice(Moment::from_seconds(from), end);
        slice.meta.targets[0].settings.get("wal_keep_size").cloned()
    };
    assert_eq!(kept(1.0).as_deref(), Some("1GB"));
    assert_eq!(kept(6.0).as_deref(), Some("0"));
    assert_eq!(kept(20.0), None, "no longer visible");
    assert_eq!(kept(26.0).as_deref(), Some("64MB"));
    assert_eq!(window.slice(Moment::from_seconds(6.0), end).slice(Moment::from_seconds(26.0), end).events().len(), 0);
}
