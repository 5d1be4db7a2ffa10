//! Bounds that are kept, and disks, directories and files that are not as they should be.
#![allow(clippy::unwrap_used)]

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use backwater_model::{Batch, Epoch, Event, EventKind, Moment, Registry};
use backwater_record::{Options, RecordError, Recording, UNREAD, Writer};
use common::{
    SECOND, all, batch, counts, create, files, meta, nothing_lost_or_doubled, options, seconds, write_seconds,
};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn refusal(dir: &Path, options: Options) -> String {
    Writer::create(dir, meta(), Arc::new(Registry::new()), options).unwrap_err().to_string()
}

#[test]
fn what_is_older_than_keep_goes_but_absences_stay_said() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let keep = Some(Duration::from_secs(40));
    let mut writer = create(dir.path(), &registry, Options { keep, segment_seconds: 5, ..options() });
    let absent = Event::new(Moment(0), "host", EventKind::Absent, "no PSI", &[]);
    writer.write(&Batch { events: vec![absent.clone()], ..Batch::default() }).unwrap();
    write_seconds(&mut writer, 0..300, &registry);
    let window = all(dir.path());
    let found: Vec<i64> = counts(&window).into_keys().collect();
    assert!(found[0] > 150 && found[0] <= 260, "{found:?}");
    assert!(found.ends_with(&(260..300).collect::<Vec<_>>()), "{found:?}");
    assert_eq!(window.events_of(EventKind::Absent).collect::<Vec<_>>(), [&absent]);
}

#[test]
fn a_recording_stays_within_its_size_and_keeps_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let budget = 256 * 1024;
    let mut writer = create(dir.path(), &registry, Options { max_size_bytes: Some(budget), ..options() });
    for second in 0..1_500 {
        write_seconds(&mut writer, second..second + 1, &registry);
        assert!(writer.summary().bytes <= budget);
    }
    let sizes = || files_below(dir.path()).iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
    assert_eq!(writer.summary().bytes, sizes());
    drop(writer);
    let found: Vec<i64> = counts(&all(dir.path())).into_keys().collect();
    assert!(found[0] > 0 && found.ends_with(&(1_450..1_500).collect::<Vec<_>>()), "{found:?}");
    let error = refusal(dir.path(), Options { max_size_bytes: Some(1), ..options() });
    assert!(error.contains("max size"), "{error}");
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// A small file system in memory, gone with this value.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// None, and said so, without root.
    fn new(test: &str, kib: u32) -> Option<Tmpfs> {
        if !rustix::process::geteuid().is_root() {
            let _ = writeln!(std::io::stderr(), "skipped: {test}: needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let size = std::ffi::CString::new(format!("size={kib}k")).unwrap();
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), Some(&*size)).unwrap();
        Some(Tmpfs(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// Writes until there is an error. Returns the second it came with.
fn fill(writer: &mut Writer, registry: &Registry) -> (i64, RecordError) {
    for second in 0.. {
        // Lines of a log that do not pack well.
        let noise = (0..100).map(|part| format!("{:016x}", Epoch::of(&[&format!("{second} {part}")]).0));
        let message = noise.collect::<String>();
        let mut batch = batch(second, registry);
        batch.events.push(Event::new(Moment(second * SECOND), "pg", EventKind::Log, message, &[]));
        if let Err(error) = writer.write(&batch).and_then(|()| writer.tick(Moment(second * SECOND))) {
            return (second, error);
        }
    }
    unreachable!("a small disk is full some time")
}

#[test]
fn a_full_disk_stops_the_recorder_and_loses_nothing_it_had() {
    for (kib, segment_seconds) in [(700, 600), (704, 7), (712, 3), (720, 40)] {
        let Some(disk) = Tmpfs::new("a_full_disk_stops_the_recorder_and_loses_nothing_it_had", kib) else { return };
        std::fs::write(disk.path().join("filler"), vec![7; 300 * 1024]).unwrap();
        let dir = disk.path().join("recording");
        let registry = Arc::new(Registry::new());
        let options = Options { segment_seconds, ..options() };
        let mut writer = create(&dir, &registry, options.clone());
        let (second, error) = fill(&mut writer, &registry);
        assert!(matches!(error, RecordError::DiskFull { .. }), "{error}");
        assert!(error.to_string().contains("another -o DIR"), "{error}");
        assert!(matches!(writer.tick(Moment(0)), Err(RecordError::Stopped { .. })));
        nothing_lost_or_doubled(&all(&dir), |at| at < second, 0..second + 1);
        writer.close().unwrap();
        assert!(files(&dir).iter().all(|name| !name.contains("tmp")), "{:?}", files(&dir));
        nothing_lost_or_doubled(&all(&dir), |at| at < second, 0..second + 1);

        std::fs::remove_file(disk.path().join("filler")).unwrap();
        let mut writer = create(&dir, &registry, options);
        write_seconds(&mut writer, second + 1..second + 4, &registry);
        writer.close().unwrap();
        nothing_lost_or_doubled(&all(&dir), |at| at != second, 0..second + 4);
    }
}

#[test]
fn the_free_space_floor_stops_the_recorder_with_an_event() {
    let Some(disk) = Tmpfs::new("the_free_space_floor_stops_the_recorder_with_an_event", 1024) else { return };
    let dir = disk.path().join("recording");
    let registry = Arc::new(Registry::new());
    let mut writer = create(&dir, &registry, Options { free_floor_bytes: 512 * 1024, ..options() });
    write_seconds(&mut writer, 0..3, &registry);
    std::fs::write(disk.path().join("filler"), vec![7; 600 * 1024]).unwrap();
    writer.write(&batch(3, &registry)).unwrap();
    let error = writer.tick(Moment(3 * SECOND)).unwrap_err();
    assert!(matches!(error, RecordError::FreeFloor { .. }), "{error}");
    writer.close().unwrap();
    let window = all(&dir);
    assert_eq!(seconds(&window), [0, 1, 2, 3]);
    let stop = window.events_of(EventKind::Recorder).next().unwrap();
    assert!(stop.message.contains("recording stopped") && stop.message.contains("floor"), "{}", stop.message);
    let other = disk.path().join("other");
    assert!(refusal(&other, Options { free_floor_bytes: 512 * 1024, ..options() }).contains("floor"));
    assert!(!other.exists(), "nothing is left behind");
}

#[test]
fn a_read_only_disk_is_refused() {
    let Some(disk) = Tmpfs::new("a_read_only_disk_is_refused", 1024) else { return };
    let dir = disk.path().join("recording");
    let registry = Arc::new(Registry::new());
    let mut writer = create(&dir, &registry, options());
    write_seconds(&mut writer, 0..3, &registry);
    drop(writer);
    mount_remount(disk.path(), MountFlags::RDONLY, "").unwrap();
    for dir in [dir.clone(), disk.path().join("new")] {
        let error = refusal(&dir, options());
        assert!(error.contains(&dir.display().to_string()) && error.contains("mounted writable"), "{error}");
    }
    assert_eq!(seconds(&all(&dir)), [0, 1, 2]);
}

#[test]
fn a_directory_that_holds_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Recording::open(dir.path()).unwrap_err().to_string().contains("no recording"));
    std::fs::write(dir.path().join("thesis.tex"), "").unwrap();
    let error = refusal(dir.path(), options());
    assert!(error.contains("thesis.tex") && error.contains("-o DIR"), "{error}");
    assert_eq!(files(dir.path()), ["thesis.tex"]);
    assert!(refusal(&dir.path().join("thesis.tex"), options()).contains("thesis.tex"));
}

#[test]
fn one_recording_has_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(dir.path(), &Arc::new(Registry::new()), options());
    assert!(refusal(dir.path(), options()).contains("another process"));
    drop(writer);
    create(dir.path(), &Arc::new(Registry::new()), options());
}

#[test]
fn a_recording_is_not_continued_after_a_restart_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 0..1, &registry);
    writer.close().unwrap();
    let mut rebooted = meta();
    rebooted.host.boot_id = Some("another boot".to_owned());
    let error = Writer::create(dir.path(), rebooted, Arc::clone(&registry), options()).unwrap_err().to_string();
    assert!(error.contains("another boot") && error.contains("another -o DIR"), "{error}");
    // Without boot ids the clock tells.
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 50..51, &registry);
    writer.close().unwrap();
    let mut nameless = meta();
    nameless.host.boot_id = None;
    let error = Writer::create(dir.path(), nameless, registry, options()).unwrap_err().to_string();
    assert!(error.contains("50 s after boot"), "{error}");
    assert_eq!(seconds(&all(dir.path())), [0, 50]);
}

/// Writes the only segment of a table again, changed.
fn rewrite(path: &Path, version: &str, change: impl Fn(RecordBatch) -> RecordBatch) {
    let file = std::fs::File::open(path).unwrap();
    let batches = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let batch = change(batches.map(Result::unwrap).next().unwrap());
    let pair = KeyValue::new("backwater.format_version".to_owned(), version.to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![pair])).build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn with_column(batch: &RecordBatch, name: &str) -> RecordBatch {
    let more: ArrayRef = Arc::new(Int64Array::from(vec![7; batch.num_rows()]));
    let schema = batch.schema();
    let named = schema.fields().iter().map(|field| field.name().clone()).zip(batch.columns().iter().cloned());
    RecordBatch::try_from_iter(named.chain([(name.to_owned(), more)])).unwrap()
}

fn finished(dir: &Path) -> PathBuf {
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir, &registry, options());
    write_seconds(&mut writer, 0..5, &registry);
    writer.close().unwrap();
    dir.join("samples/00000000-00000000.parquet")
}

#[test]
fn columns_of_a_newer_version_are_passed_over_and_missing_ones_are_null() {
    let dir = tempfile::tempdir().unwrap();
    let segment = finished(dir.path());
    rewrite(&segment, "1", |batch| with_column(&batch, "temperature"));
    let recording = Recording::open(dir.path()).unwrap();
    assert!(recording.warnings()[0].contains("temperature"), "{:?}", recording.warnings());
    assert_eq!(seconds(&all(dir.path())), [0, 1, 2, 3, 4]);
    rewrite(&segment, "1", |batch| {
        let wanted = ["at_us", "pid", "target"].map(|name| batch.schema().index_of(name).unwrap());
        batch.project(&wanted).unwrap()
    });
    let window = all(dir.path());
    assert_eq!(seconds(&window), [0, 1, 2, 3, 4]);
    assert!(window.samples().iter().all(|sample| sample.query.is_none() && &*sample.target == "primary"));
}

#[test]
fn a_segment_of_an_unknown_version_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let segment = finished(dir.path());
    rewrite(&segment, "9", |batch| batch);
    let read = Recording::open(dir.path()).unwrap_err().to_string();
    for error in [read, refusal(dir.path(), options())] {
        assert!(error.contains("00000000-00000000.parquet") && error.contains("format 9"), "{error}");
    }
}

#[test]
fn a_broken_segment_costs_only_its_own_rows() {
    let dir = tempfile::tempdir().unwrap();
    let segment = finished(dir.path());
    let bytes = std::fs::read(&segment).unwrap();
    for cut in [0, 3, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&segment, &bytes[..cut]).unwrap();
        let recording = Recording::open(dir.path()).unwrap();
        assert!(recording.warnings()[0].contains("samples/00000000-00000000.parquet"), "{:?}", recording.warnings());
        let window = recording.window(None, None).unwrap();
        assert_eq!(counts(&window)[&3], [2, 0, 1]);
        let unread: Vec<_> = window.events_of(EventKind::Absent).filter(|event| event.source == UNREAD).collect();
        assert_eq!(unread.len(), 1);
        assert_eq!(unread[0].fields["what"], "what was recorded in samples/00000000-00000000.parquet");
    }
}

#[test]
fn points_of_series_that_were_lost_are_left_out_and_their_numbers_are_not_given_again() {
    let dir = tempfile::tempdir().unwrap();
    finished(dir.path());
    let path = dir.path().join("series.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let (first, _) = text.split_once('\n').unwrap();
    std::fs::write(&path, format!("{first}\n")).unwrap();
    let recording = Recording::open(dir.path()).unwrap();
    assert!(recording.warnings()[0].contains("does not name"), "{:?}", recording.warnings());
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 5..9, &registry);
    writer.close().unwrap();
    let counts = counts(&all(dir.path()));
    assert_eq!((counts[&3][0], counts[&7][0]), (1, 2));
}
