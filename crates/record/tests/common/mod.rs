//! Made-up batches in which every reading tells which second it is of.
#![allow(dead_code, reason = "each test file uses its own part")]

use backwater_model::catalogue::{PG_WAL_INSERT, VM_DIRTY};
use backwater_model::{Batch, ClockAnchor, Epoch, Event, EventKind, Meta, Moment, Point, Registry, Sample, Window};
use backwater_record::{Options, Recording, Writer};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(crate) const SECOND: i64 = 1_000_000;

pub(crate) fn meta() -> Meta {
    let mut meta = Meta {
        anchors: vec![ClockAnchor { boot: Moment(0), unix_us: 1_700_000_000 * SECOND }],
        written_by: "backwater test".to_owned(),
        ..Meta::default()
    };
    meta.host.boot_id = Some("boot".to_owned());
    meta
}

pub(crate) fn options() -> Options {
    Options { free_floor_bytes: 0, ..Options::default() }
}

/// Two points, two sessions and an event of one second.
pub(crate) fn batch(second: i64, registry: &Registry) -> Batch {
    let at = Moment(second * SECOND);
    let dirty = registry.intern(VM_DIRTY.series::<&str>(&[])).unwrap();
    let insert = registry.intern(PG_WAL_INSERT.series(&[("target", format!("t{}", second % 7))])).unwrap();
    let point = |series| Point { at, series, epoch: Epoch(u64::MAX), value: second as f64, as_of: None };
    let sample = |pid| Sample {
        at,
        target: "primary".into(),
        pid,
        query: Some(format!("select {}", second % 5).into()),
        query_id: (pid == 1).then_some(second % 5),
        ..Sample::default()
    };
    let message = format!("second {second}");
    Batch {
        points: vec![point(dirty), point(insert)],
        samples: vec![sample(1), sample(2)],
        events: vec![Event::new(at, "lab", EventKind::Mark, message, &[("second", &second.to_string())])],
    }
}

/// Writes these seconds with a tick after each.
pub(crate) fn write_seconds(writer: &mut Writer, seconds: std::ops::Range<i64>, registry: &Registry) {
    for second in seconds {
        writer.write(&batch(second, registry)).unwrap();
        writer.tick(Moment(second * SECOND)).unwrap();
    }
}

pub(crate) fn create(dir: &Path, registry: &Arc<Registry>, options: Options) -> Writer {
    Writer::create(dir, meta(), Arc::clone(registry), options).unwrap()
}

pub(crate) fn all(dir: &Path) -> Window {
    Recording::open(dir).unwrap().window(None, None).unwrap()
}

/// The seconds of which a window has everything, each exactly once.
pub(crate) fn seconds(window: &Window) -> Vec<i64> {
    let dirty = window.track(VM_DIRTY.name, &[]).map(|track| track.points.to_vec()).unwrap_or_default();
    let seconds: Vec<i64> = dirty.iter().map(|point| point.at.0 / SECOND).collect();
    let mut inserts = Vec::new();
    for track in window.tracks(PG_WAL_INSERT.name, &[]) {
        let label = track.series.labels.get("target").unwrap();
        assert!(track.points.iter().all(|point| format!("t{}", point.at.0 / SECOND % 7) == label));
        inserts.extend(track.points.iter().map(|point| point.at.0 / SECOND));
    }
    inserts.sort_unstable();
    assert_eq!(inserts, seconds, "both points of each second");
    let sampled: Vec<i64> = window.samples().iter().map(|sample| sample.at.0 / SECOND).collect();
    assert_eq!(sampled, seconds.iter().flat_map(|second| [*second; 2]).collect::<Vec<_>>(), "two sessions a second");
    let marks: Vec<i64> = window.events_of(EventKind::Mark).map(|event| event.at.0 / SECOND).collect();
    assert_eq!(marks, seconds, "one mark a second");
    seconds
}

/// Names of all files, without their directory.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            names.extend(files(&entry.path()));
        } else {
            names.push(entry.file_name().into_string().unwrap());
        }
    }
    names.sort();
    names
}

/// How often each second is there: points, sessions, marks.
pub(crate) fn counts(window: &Window) -> BTreeMap<i64, [usize; 3]> {
    let mut counts: BTreeMap<i64, [usize; 3]> = BTreeMap::new();
    let mut count = |at: Moment, table: usize| counts.entry(at.0 / SECOND).or_default()[table] += 1;
    window.all_tracks().flat_map(|track| track.points).for_each(|point| count(point.at, 0));
    window.samples().iter().for_each(|sample| count(sample.at, 1));
    window.events_of(EventKind::Mark).for_each(|event| count(event.at, 2));
    counts
}

/// Every second that was ticked is there once; of the others there is at most as much.
pub(crate) fn nothing_lost_or_doubled(window: &Window, ticked: impl Fn(i64) -> bool, all: std::ops::Range<i64>) {
    let counts = counts(window);
    for second in all.clone() {
        let found = counts.get(&second).copied().unwrap_or_default();
        if ticked(second) {
            assert_eq!(found, [2, 2, 1], "second {second}");
        } else {
            assert!(found[0] <= 2 && found[1] <= 2 && found[2] <= 1, "second {second}: {found:?}");
        }
    }
    assert!(counts.keys().all(|second| all.contains(second)), "{counts:?}");
}
