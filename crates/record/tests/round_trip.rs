//! What is written is read again: any values, any window, finished or not, export included.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_model::catalogue::PG_WAL_INSERT;
use backwater_model::{
    Batch, Epoch, Event, EventKind, Kind, Labels, Moment, Point, Provenance, Registry, Sample, Series, SeriesId, Text,
    Unit,
};
use backwater_record::{Recording, Writer};
use common::{SECOND, all, batch, create, files, meta, options, seconds, write_seconds};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use std::sync::Arc;

#[test]
fn a_finished_recording_is_all_parquet_and_reads_back() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 100..150, &registry);
    let summary = writer.close().unwrap();
    assert_eq!((summary.points, summary.samples, summary.events), (100, 100, 50));
    assert!(files(dir.path()).iter().all(|name| !name.contains("tail") && !name.contains("tmp")));
    assert_eq!(seconds(&all(dir.path())), (100..150).collect::<Vec<_>>());
    let recording = Recording::open(dir.path()).unwrap();
    assert_eq!(recording.span(), Some((Moment(100 * SECOND), Moment(149 * SECOND))));
    assert_eq!(recording.meta(), &meta());
    assert!(recording.warnings().is_empty());
}

#[test]
fn a_recording_reads_while_it_is_written_and_after_its_writer_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 0..5, &registry);
    assert_eq!(seconds(&all(dir.path())), [0, 1, 2, 3, 4]);
    writer.write(&batch(5, &registry)).unwrap();
    drop(writer);
    assert_eq!(seconds(&all(dir.path())), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn what_is_noted_right_after_the_last_reading_belongs_to_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 0..5, &registry);
    let end = Event::new(Moment(4 * SECOND + 40_000), "lab", EventKind::Recorder, "end", &[]);
    // A line of a log whose clock is a day ahead.
    let stray = Event::new(Moment(86_400 * SECOND), "log", EventKind::Log, "stray", &[]);
    for event in [&end, &stray] {
        writer.write(&Batch { events: vec![event.clone()], ..Batch::default() }).unwrap();
        writer.tick(Moment(5 * SECOND)).unwrap();
        let recording = Recording::open(dir.path()).unwrap();
        let last = if event == &end { end.at } else { Moment(4 * SECOND) };
        assert_eq!(recording.span(), Some((Moment(0), last)));
    }
}

#[test]
fn a_durable_recording_reads_back_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let options = backwater_record::Options { durable: true, segment_seconds: 3, ..options() };
    let mut writer = create(dir.path(), &registry, options);
    write_seconds(&mut writer, 0..20, &registry);
    drop(writer);
    assert_eq!(seconds(&all(dir.path())), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_window_has_its_time_and_earlier_absences_only() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, backwater_record::Options { segment_seconds: 10, ..options() });
    let absent = Event::new(Moment(0), "host", EventKind::Absent, "no PSI", &[("what", "PSI")]);
    writer.write(&Batch { events: vec![absent.clone()], ..Batch::default() }).unwrap();
    write_seconds(&mut writer, 0..100, &registry);
    let recording = Recording::open(dir.path()).unwrap();
    let window = recording.window(Some(Moment(37 * SECOND)), Some(Moment(42 * SECOND))).unwrap();
    assert_eq!(seconds(&window), [37, 38, 39, 40, 41, 42]);
    assert_eq!(window.events_of(EventKind::Absent).collect::<Vec<_>>(), [&absent]);
    let none = recording.window(Some(Moment(500 * SECOND)), None).unwrap();
    assert!(seconds(&none).is_empty());
    let error = recording.window(Some(Moment(2)), Some(Moment(1))).unwrap_err();
    assert!(error.to_string().contains("--from"), "{error}");
}

#[test]
fn small_segments_are_joined_and_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, backwater_record::Options { segment_seconds: 2, ..options() });
    write_seconds(&mut writer, 0..200, &registry);
    writer.close().unwrap();
    let segments = files(dir.path()).iter().filter(|name| name.ends_with(".parquet")).count();
    assert!(segments <= 3 * 9, "{segments} segments of 300 are left");
    assert_eq!(seconds(&all(dir.path())), (0..200).collect::<Vec<_>>());
}

#[test]
fn a_continued_recording_keeps_its_numbers_and_both_anchors() {
    let dir = tempfile::tempdir().unwrap();
    for part in 0..3 {
        // Another run meets its series in another order.
        let registry = Arc::new(Registry::new());
        batch(part + 3, &registry);
        let mut now = meta();
        now.anchors[0].boot = Moment(part * 10 * SECOND);
        let mut writer = Writer::create(dir.path(), now, Arc::clone(&registry), options()).unwrap();
        write_seconds(&mut writer, part * 10..part * 10 + 10, &registry);
        // The second run is not closed.
        if part != 1 {
            writer.close().unwrap();
        }
    }
    assert_eq!(seconds(&all(dir.path())), (0..30).collect::<Vec<_>>());
    let recording = Recording::open(dir.path()).unwrap();
    assert_eq!(recording.meta().anchors.len(), 3);
    let lines = std::fs::read_to_string(dir.path().join("series.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 8);
}

#[test]
fn a_series_with_two_numbers_reads_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 0..10, &registry);
    writer.close().unwrap();
    // What a writer does that had let all of them go: later readings have later numbers.
    let path = dir.path().join("series.jsonl");
    let lines = std::fs::read_to_string(&path).unwrap();
    let count = lines.lines().count();
    let again = (0..count).rev().fold(lines.clone(), |text, id| {
        text.replacen(&format!("{{\"id\":{id},"), &format!("{{\"id\":{},", id + count), 1)
    });
    std::fs::write(&path, lines + &again).unwrap();
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 10..20, &registry);
    writer.close().unwrap();
    let window = all(dir.path());
    assert_eq!(seconds(&window), (0..20).collect::<Vec<_>>());
    assert_eq!(window.tracks(PG_WAL_INSERT.name, &[]).count(), 7);
}

#[test]
fn the_export_has_every_row_with_its_wall_clock_time() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 0..400, &registry);
    drop(writer);
    let mut text = Vec::new();
    Recording::open(dir.path()).unwrap().export_jsonl(None, None, &mut text).unwrap();
    let lines: Vec<serde_json::Value> =
        String::from_utf8(text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 400 * 5);
    assert_eq!(lines[0]["table"], "points");
    assert_eq!(lines[0]["time"], "2023-11-14T22:13:20Z");
    let labels: Vec<_> = lines.iter().filter(|line| line["labels"]["target"] == "t3").collect();
    assert_eq!(labels.len(), 57);
}

fn text() -> impl Strategy<Value = Option<Text>> {
    option::of("\\PC{0,6}".prop_map(Text::from))
}

prop_compose! {
    fn any_sample()(
        at in 0..100 * SECOND, target in "[a-z]{1,3}", pid: i32, port: Option<i32>, query_id: Option<i64>, ages: (Option<i64>, Option<i64>),
        kernel_state: Option<char>, texts in prop::array::uniform11(text()),
    ) -> Sample {
        let [backend_type, user, database, application, client_addr, state, wait_event_type, wait_event, kernel_wait, query, queue] = texts;
        Sample {
            at: Moment(at), target: target.into(), pid, backend_type, user, database, application, client_addr, client_port: port, state,
            wait_event_type, wait_event, kernel_wait, kernel_state, query_id, query, query_age_ms: ages.0, xact_age_ms: ages.1, queue,
        }
    }
}

prop_compose! {
    fn any_point()(at in 0..100 * SECOND, name in "[a-c]", label in "\\PC{0,3}", epoch: u64, value: f64, as_of: Option<i64>)
    -> (Series, Point) {
        let series = Series {
            name: name.into(), unit: Unit::Bytes, kind: Kind::Counter, labels: Labels::of(&[("l", label)]), provenance: Provenance::Bound,
        };
        (series, Point { at: Moment(at), series: SeriesId(0), epoch: Epoch(epoch), value, as_of: as_of.map(Moment) })
    }
}

prop_compose! {
    fn any_event()(at in 0..100 * SECOND, source in "\\PC{0,4}", message in "\\PC{0,9}", fields in btree_map("\\PC{0,3}", "\\PC{0,3}", 0..3))
    -> Event {
        Event { at: Moment(at), source, kind: EventKind::Log, message, fields }
    }
}

/// Points as text, since NaN is not equal to itself and numbers of series differ.
fn told(points: impl Iterator<Item = (Series, Point)>) -> Vec<String> {
    let tell = |(series, point): (Series, Point)| {
        format!("{series:?} {:?} {:?} {} {:?}", point.at, point.epoch, point.value.to_bits(), point.as_of)
    };
    let mut list: Vec<String> = points.map(tell).collect();
    list.sort();
    list
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_readings_read_back(
        points in vec(any_point(), 0..40), samples in vec(any_sample(), 0..40), events in vec(any_event(), 0..10),
        split in 0..40_usize, close: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let registry = Arc::new(Registry::new());
        let mut writer = create(dir.path(), &registry, options());
        let numbered: Vec<Point> = points.iter().map(|(series, point)| Point { series: registry.intern(series.clone()).unwrap(), ..*point }).collect();
        let (early, late) = numbered.split_at(split.min(numbered.len()));
        let (first, second) = samples.split_at(split.min(samples.len()));
        writer.write(&Batch { points: early.to_vec(), samples: first.to_vec(), events: events.clone() }).unwrap();
        writer.tick(Moment(1)).unwrap();
        writer.write(&Batch { points: late.to_vec(), samples: second.to_vec(), events: vec![] }).unwrap();
        if close { writer.close().unwrap(); } else { drop(writer); }
        let recording = Recording::open(dir.path()).unwrap();
        let window = recording.window(Some(Moment(0)), Some(Moment(100 * SECOND))).unwrap();
        let read = window.all_tracks().flat_map(|track| track.points.iter().map(|point| (track.series.clone(), *point)));
        prop_assert_eq!(told(read), told(points.into_iter()));
        let order = |list: &[Sample]| { let mut list: Vec<String> = list.iter().map(|sample| format!("{sample:?}")).collect(); list.sort(); list };
        prop_assert_eq!(order(window.samples()), order(&samples));
        let order = |list: &[Event]| { let mut list: Vec<String> = list.iter().map(|event| format!("{event:?}")).collect(); list.sort(); list };
        prop_assert_eq!(order(window.events()), order(&events));
        prop_assert!(recording.warnings().is_empty());
    }
}
