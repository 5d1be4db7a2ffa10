//! A writer killed at any moment, or between any two steps, loses at most the second it had not ticked and doubles
//! nothing; a reader beside it never sees less than was ticked.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_model::{Moment, Registry};
use backwater_record::{Options, Recording, Writer};
use common::{SECOND, all, batch, create, files, meta, nothing_lost_or_doubled, options, seconds, write_seconds};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

const CHILD_DIR: &str = "BACKWATER_TEST_RECORD_DIR";
const CHILD_FROM: &str = "BACKWATER_TEST_RECORD_FROM";

/// Segments of three made-up seconds, so that kills meet closing and joining often.
fn hasty() -> Options {
    Options { segment_seconds: 3, ..options() }
}

/// Not a test of its own: what the killed process does.
#[test]
fn child_writer() {
    let (Ok(dir), Ok(from)) = (std::env::var(CHILD_DIR), std::env::var(CHILD_FROM)) else { return };
    let registry = Arc::new(Registry::new());
    let from: i64 = from.parse().unwrap();
    let mut now = meta();
    now.anchors[0].boot = Moment(from * SECOND);
    let mut writer = Writer::create(Path::new(&dir), now, Arc::clone(&registry), hasty()).unwrap();
    for second in from.. {
        writer.write(&batch(second, &registry)).unwrap();
        writer.tick(Moment(second * SECOND)).unwrap();
        writeln!(std::io::stdout(), "ticked {second}").unwrap();
    }
}

/// Runs a child from a second on, kills it after some ticks and a little more, and returns the ticked seconds.
fn run_and_kill(dir: &Path, from: i64, ticks: usize, more: Duration) -> Vec<i64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_writer", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .env(CHILD_FROM, from.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let number = |line: String| line.split_once("ticked ")?.1.parse::<i64>().ok();
    let mut ticked: Vec<i64> = lines.by_ref().filter_map(number).take(ticks).collect();
    // Not waiting for anything: the moment of death is what this varies.
    std::thread::sleep(more);
    child.kill().unwrap();
    child.wait().unwrap();
    ticked.extend(lines.filter_map(number));
    ticked
}

#[test]
fn killed_at_many_moments_it_loses_at_most_a_second_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut ticked: BTreeSet<i64> = BTreeSet::new();
    let mut next = 0;
    for round in 0..40_u64 {
        let more = Duration::from_micros(round * 977 % 5_000);
        let seen = run_and_kill(dir.path(), next, 1 + round as usize * 7 % 23, more);
        ticked.extend(&seen);
        next = seen.last().unwrap() + 2;
        nothing_lost_or_doubled(&all(dir.path()), |second| ticked.contains(&second), 0..next);
    }
    let registry = Arc::new(Registry::new());
    let mut now = meta();
    now.anchors[0].boot = Moment(next * SECOND);
    Writer::create(dir.path(), now, registry, hasty()).unwrap().close().unwrap();
    nothing_lost_or_doubled(&all(dir.path()), |second| ticked.contains(&second), 0..next);
    assert!(files(dir.path()).iter().all(|name| !name.contains("tail") && !name.contains("tmp")));
    assert_eq!(std::fs::read_to_string(dir.path().join("series.jsonl")).unwrap().lines().count(), 8);
}

/// Copies of all files of a recording below a directory, by their path.
fn keep(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let tables = ["points", "samples", "events"].map(|table| dir.join(table));
    let entries = tables.iter().flat_map(|table| std::fs::read_dir(table).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn put_back(kept: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in kept {
        std::fs::write(path, bytes).unwrap();
    }
}

#[test]
fn dying_between_a_rename_and_the_removal_of_the_tail_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 0..9, &registry);
    let tails = keep(dir.path());
    assert_eq!(tails.len(), 3);
    writer.close().unwrap();
    put_back(&tails);
    assert_eq!(seconds(&all(dir.path())), (0..9).collect::<Vec<_>>());
    create(dir.path(), &registry, options());
    assert!(tails.iter().all(|(path, _)| !path.exists()));
    assert_eq!(seconds(&all(dir.path())), (0..9).collect::<Vec<_>>());
}

#[test]
fn dying_between_joining_segments_and_removing_them_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, hasty());
    let mut small = Vec::new();
    for second in 0..60 {
        write_seconds(&mut writer, second..second + 1, &registry);
        small.extend(
            keep(dir.path()).into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "parquet")),
        );
    }
    writer.close().unwrap();
    put_back(&small);
    assert_eq!(seconds(&all(dir.path())), (0..60).collect::<Vec<_>>());
    create(dir.path(), &registry, hasty());
    assert!(files(dir.path()).len() < 30, "{:?}", files(dir.path()));
    assert_eq!(seconds(&all(dir.path())), (0..60).collect::<Vec<_>>());
}

#[test]
fn temporary_files_of_a_killed_writer_are_cleared() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("meta.json.tmp"), "{").unwrap();
    let registry = Arc::new(Registry::new());
    create(dir.path(), &registry, options()).close().unwrap();
    std::fs::write(dir.path().join("points/00000000-00000004.parquet.tmp"), "PAR1").unwrap();
    create(dir.path(), &registry, options()).close().unwrap();
    assert_eq!(files(dir.path()), ["meta.json", "series.jsonl"]);
}

#[test]
fn a_cut_tail_is_told_and_continued() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 0..9, &registry);
    drop(writer);
    for (path, bytes) in keep(dir.path()) {
        std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    }
    let recording = Recording::open(dir.path()).unwrap();
    assert_eq!(recording.warnings().len(), 3);
    assert!(recording.warnings()[0].contains("tail-00000000.arrow"), "{:?}", recording.warnings());
    assert_eq!(seconds(&all(dir.path())), (0..8).collect::<Vec<_>>());
    let mut writer = create(dir.path(), &registry, options());
    write_seconds(&mut writer, 9..12, &registry);
    writer.close().unwrap();
    assert_eq!(seconds(&all(dir.path())), [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11]);
}

#[test]
fn a_reader_beside_the_writer_sees_all_that_was_ticked() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut writer = create(dir.path(), &registry, hasty());
    let done = AtomicI64::new(-1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for second in 0..400 {
                write_seconds(&mut writer, second..second + 1, &registry);
                done.store(second, Ordering::Release);
            }
        });
        while done.load(Ordering::Acquire) < 0 {
            std::thread::yield_now();
        }
        loop {
            let before = done.load(Ordering::Acquire);
            let window = all(dir.path());
            let after = done.load(Ordering::Acquire);
            nothing_lost_or_doubled(&window, |second| second <= before, 0..after + 2);
            if before == 399 {
                break;
            }
        }
    });
}
