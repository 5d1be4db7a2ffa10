//! Directories, time, and exports: what a user of the crate does with a recording.
#![allow(clippy::unwrap_used)]

mod common;

use ftdc::encode::{Encoder, metadata};
use ftdc::export::Export;
use ftdc::parallel::{Decoded, decode};
use ftdc::{Builder, Damage, Decoder, DocumentKind, FtdcError, Limits, Selection, Source, Timeline, Times};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const START: i64 = 1_700_000_000_000;

/// A directory as a running server has it: two files, an interim one that goes on where they end, and what is left of
/// an interim file that was being written.
fn directory(at: &Path) {
    std::fs::write(at.join("metrics.2023-11-14T22-14-20Z-00000"), common::file(60, 60, 9)).unwrap();
    std::fs::write(at.join("metrics.2023-11-14T22-13-20Z-00000"), common::file(0, 60, 9)).unwrap();
    let mut encoder = Encoder::default();
    for second in 120..130 {
        encoder.add(START + second * 1_000, &common::sample(second, true)).unwrap();
    }
    std::fs::write(at.join("metrics.interim"), encoder.interim().unwrap()).unwrap();
    std::fs::write(at.join("metrics.interim.temp"), [1, 2, 3]).unwrap();
    std::fs::write(at.join("notes.txt"), "not a recording").unwrap();
}

fn times(source: &Source, stretch: std::ops::Range<i64>) -> Vec<i64> {
    source.select(&Selection::all(), stretch).flat_map(|batch| batch.unwrap().times_ms().to_vec()).collect()
}

fn seconds(range: std::ops::Range<i64>) -> Vec<i64> {
    range.map(|second| START + second * 1_000).collect()
}

#[test]
fn a_directory_is_read_in_the_order_of_time_with_its_interim_file() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path());
    let source = Source::open(dir.path()).unwrap();
    assert_eq!(source.files().len(), 3);
    assert_eq!(times(&source, i64::MIN..i64::MAX), seconds(0..130));
    // The server's own directory will do as well.
    let server = tempfile::tempdir().unwrap();
    std::fs::create_dir(server.path().join("diagnostic.data")).unwrap();
    directory(&server.path().join("diagnostic.data"));
    assert_eq!(times(&Source::open(server.path()).unwrap(), i64::MIN..i64::MAX), seconds(0..130));
    assert!(matches!(Source::open(dir.path().join("none")), Err(FtdcError::Read { .. })));
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(Source::open(empty.path()), Err(FtdcError::NothingHere { .. })));
}

#[test]
fn an_interim_chunk_that_was_written_since_is_not_read_twice() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path());
    let source = Source::open(dir.path()).unwrap();
    // The server goes on between the listing and the reading: it writes the whole chunk and a new interim file.
    let late = dir.path().join("metrics.2023-11-14T22-14-20Z-00000");
    let mut bytes = std::fs::read(&late).unwrap();
    let mut encoder = Encoder::default();
    for second in 120..140 {
        encoder.add(START + second * 1_000, &common::sample(second, true)).unwrap();
    }
    bytes.extend(encoder.finish().unwrap());
    std::fs::write(&late, &bytes).unwrap();
    assert_eq!(times(&source, i64::MIN..i64::MAX), seconds(0..140));
    // mongod's own sentinel for 'nothing here' is no damage, and a missing interim file is none either.
    std::fs::write(dir.path().join("metrics.interim"), [0; 8]).unwrap();
    assert_eq!(times(&source, i64::MIN..i64::MAX), seconds(0..140));
    std::fs::remove_file(dir.path().join("metrics.interim")).unwrap();
    assert_eq!(times(&source, i64::MIN..i64::MAX), seconds(0..140));
}

/// What a server does: a sample a second (here as fast as it can), a chunk of ten in two halves, the interim file anew by renaming,
/// a file for every minute. `whole` is how many samples are in files by now.
fn serve(dir: &Path, samples: i64, whole: &AtomicI64) {
    let mut encoder = Encoder::new(9);
    let mut file = dir.join("metrics.2023-11-14T22-13-20Z-00000");
    std::fs::write(&file, common::file(0, 0, 9)).unwrap();
    let interim = |bytes: &[u8]| {
        std::fs::write(dir.join("metrics.interim.temp"), bytes).unwrap();
        std::fs::rename(dir.join("metrics.interim.temp"), dir.join("metrics.interim")).unwrap();
    };
    for second in 0..samples {
        if second > 0 && second % 60 == 0 {
            file = dir.join(format!("metrics.2023-11-14T22-{}-20Z-00000", 13 + second / 60));
            std::fs::write(&file, common::file(second, 0, 9)).unwrap();
        }
        let chunk = encoder.add(START + second * 1_000, &common::sample(second, true)).unwrap();
        let Some(chunk) = chunk else {
            interim(&encoder.interim().unwrap());
            whole.store(second + 1, Ordering::Release);
            continue;
        };
        let mut open = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
        let (first, second_half) = chunk.split_at(chunk.len() / 2);
        for half in [first, second_half] {
            std::io::Write::write_all(&mut open, half).unwrap();
            std::thread::yield_now();
        }
        interim(&[0; 8]);
        whole.store(second + 1, Ordering::Release);
    }
}

#[test]
fn a_directory_that_is_being_written_to_has_no_gap_and_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let whole = AtomicI64::new(0);
    let samples = 47 * 60;
    let mut readings = 0;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(dir.path(), samples, &whole));
        loop {
            let (over, least) = (server.is_finished(), whole.load(Ordering::Acquire));
            if least == 0 && !over {
                std::thread::yield_now();
                continue;
            }
            let source = Source::open(dir.path()).unwrap();
            let mut read = Vec::new();
            for batch in source.select(&Selection::all(), i64::MIN..i64::MAX) {
                match batch {
                    Ok(batch) => read.extend_from_slice(batch.times_ms()),
                    // What is half written, or a file that was begun and holds nothing yet.
                    Err(FtdcError::Damaged(fault)) => {
                        assert!(matches!(fault.damage, Damage::CutShort { .. } | Damage::Empty), "{fault}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            let many = read.len() as i64;
            assert!(many >= least, "{many} of {least} samples");
            assert_eq!(read, seconds(0..many));
            readings += 1;
            if over {
                break;
            }
        }
    });
    assert!(readings > 2, "{readings} readings");
}

#[test]
fn files_that_people_named_are_read_in_the_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("metrics.tuesday"), common::file(60, 60, 9)).unwrap();
    std::fs::write(dir.path().join("metrics.zz-monday"), common::file(0, 60, 9)).unwrap();
    assert_eq!(times(&Source::open(dir.path()).unwrap(), i64::MIN..i64::MAX), seconds(0..120));
}

#[test]
fn a_file_that_was_removed_meanwhile_is_a_fault_and_the_rest_is_read() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path());
    let source = Source::open(dir.path()).unwrap();
    std::fs::remove_file(dir.path().join("metrics.2023-11-14T22-13-20Z-00000")).unwrap();
    let all: Vec<_> = source.documents().collect();
    let faults: Vec<&ftdc::Fault> = all
        .iter()
        .filter_map(|one| if let Err(FtdcError::Damaged(fault)) = one { Some(fault) } else { None })
        .collect();
    assert!(faults.len() == 1 && faults[0].damage == ftdc::Damage::Removed && faults[0].lost_bytes > 0, "{faults:?}");
    assert_eq!(all.iter().filter(|one| one.is_err()).count(), 1);
    let read = source.select(&Selection::all(), i64::MIN..i64::MAX).filter_map(Result::ok);
    assert_eq!(read.flat_map(|batch| batch.times_ms().to_vec()).collect::<Vec<_>>(), seconds(60..130));
}

#[test]
fn a_file_among_others_that_the_system_refuses_is_a_fault_and_the_rest_is_read() {
    let name = "metrics.2023-11-14T22-14-20Z-00000";
    // A link to itself cannot be opened; the memory of a process can, but nothing lies at its beginning that could be read.
    for refused in [name, "/proc/self/mem"] {
        let dir = tempfile::tempdir().unwrap();
        let middle = dir.path().join(name);
        std::os::unix::fs::symlink(refused, &middle).unwrap();
        let alone = [Source::open(&middle), Source::open(dir.path())];
        assert!(alone.iter().all(|one| matches!(one, Err(FtdcError::Read { .. }))), "{refused}: {alone:?}");
        std::fs::write(dir.path().join("metrics.2023-11-14T22-13-20Z-00000"), common::file(0, 60, 9)).unwrap();
        std::fs::write(dir.path().join("metrics.2023-11-14T22-15-20Z-00000"), common::file(120, 60, 9)).unwrap();
        let source = Source::open(dir.path()).unwrap();
        let all: Vec<_> = source.documents().collect();
        let errors: Vec<&FtdcError> = all.iter().filter_map(|one| one.as_ref().err()).collect();
        let [FtdcError::Damaged(fault)] = errors.as_slice() else { panic!("{refused}: {errors:?}") };
        assert_eq!((&*fault.file, fault.offset), (middle.as_path(), 0));
        assert!(matches!(fault.damage, Damage::Unreadable(_)), "{fault}");
        let read = source.select(&Selection::all(), i64::MIN..i64::MAX).filter_map(Result::ok);
        let read: Vec<i64> = read.flat_map(|batch| batch.times_ms().to_vec()).collect();
        assert_eq!(read, [seconds(0..60), seconds(120..180)].concat());
    }
}

/// What follows what, as whoever opens a recording finds it.
fn timeline(source: &mut Source) -> Arc<Timeline> {
    let mut times = Times::default();
    source.documents().filter_map(Result::ok).for_each(|document| times.take(&document));
    Arc::new(times.settle(source))
}

#[test]
fn a_file_that_was_begun_while_the_clock_was_wrong_lies_where_its_samples_do() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("metrics.2023-11-14T22-13-20Z-00000"), common::file(0, 60, 9)).unwrap();
    // Ten samples of 2031, then the clock is set.
    let mut bytes = common::file(240_000_000, 9, 9);
    bytes.extend(common::file(60, 60, 9));
    std::fs::write(dir.path().join("metrics.2031-06-25T16-53-20Z-00000"), bytes).unwrap();
    std::fs::write(dir.path().join("metrics.2023-11-14T22-15-20Z-00000"), common::file(120, 60, 9)).unwrap();
    let mut source = Source::open(dir.path()).unwrap();
    let timeline = timeline(&mut source);
    let read = |stretch: std::ops::Range<i64>| -> Vec<i64> {
        let batches = source.select_onwards(&Selection::all(), stretch, &timeline);
        batches.flat_map(|batch| batch.unwrap().times_ms().to_vec()).collect()
    };
    assert_eq!(read(i64::MIN..i64::MAX), seconds(0..180));
    assert_eq!(read(START + 70_000..START + 130_000), seconds(70..130));
    assert_eq!(timeline.misplaced().len(), 1, "{:?}", timeline.misplaced());
}

#[test]
fn samples_whose_times_go_back_are_told_and_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.copy");
    // The clock is set back by five seconds, and then what another server wrote at the beginning is put behind.
    let whole = [common::file(0, 60, 9), common::file(55, 60, 9), common::file(0, 30, 9)].concat();
    std::fs::write(&path, whole).unwrap();
    let mut source = Source::open(&path).unwrap();
    let timeline = timeline(&mut source);
    let (mut read, mut told) = (Vec::new(), Vec::new());
    for batch in source.select_onwards(&Selection::all(), i64::MIN..i64::MAX, &timeline) {
        match batch {
            Ok(batch) => {
                assert!(batch.columns().all(|(_, values)| values.len() == batch.times_ms().len()));
                read.extend_from_slice(batch.times_ms());
            }
            Err(FtdcError::Damaged(fault)) => told.push(fault.to_string()),
            Err(error) => panic!("{error}"),
        }
    }
    // Where both tell of the same seconds, those of the chunk that begins then are taken.
    assert_eq!(read, seconds(0..115));
    assert!(told.len() == 1 && told[0].contains("samples that do not fit"), "{told:?}");
    let misplaced: Vec<String> = timeline.misplaced().iter().map(ToString::to_string).collect();
    assert!(misplaced.len() == 1 && misplaced[0].contains("4 chunks of 2023-11-14"), "{misplaced:?}");
    assert!(told.iter().all(|fault| !fault.contains("skipped")), "{told:?}");
    // Whoever wants what was recorded gets it.
    assert_eq!(times(&source, i64::MIN..i64::MAX).len(), 60 + 60 + 30);
    // A chunk that begins before the stretch is found, though older ones lie behind it.
    assert_eq!(times(&source, START + 110_000..START + 115_000), seconds(110..115));
    // Copies are read by what is in them, among files that the server named.
    let both = tempfile::tempdir().unwrap();
    std::fs::write(both.path().join("metrics.2023-11-14T22-14-20Z-00000"), common::file(60, 60, 9)).unwrap();
    std::fs::write(both.path().join("metrics.monday"), common::file(0, 60, 9)).unwrap();
    std::fs::write(both.path().join("metrics.wednesday"), common::file(120, 60, 9)).unwrap();
    assert_eq!(times(&Source::open(both.path()).unwrap(), i64::MIN..i64::MAX), seconds(0..180));
}

#[test]
fn what_is_rescued_of_a_crash_lies_in_the_next_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("metrics.2023-11-14T22-13-20Z-00000"), common::file(0, 60, 9)).unwrap();
    // Killed at 70 s, started anew at 400 s: first the metadata of that moment, then what the interim file had.
    let build = Builder::new().document("buildInfo", |b| b.string("version", "7.0.0")).finish();
    let mut bytes = metadata(START + 400_000, &build);
    let mut encoder = Encoder::new(9);
    for second in (60..70).chain(400..410) {
        let full = encoder.add(START + second * 1_000, &common::sample(second, true)).unwrap();
        bytes.extend(full.unwrap_or_default());
    }
    bytes.extend(encoder.finish().unwrap_or_default());
    std::fs::write(dir.path().join("metrics.2023-11-14T22-20-00Z-00000"), bytes).unwrap();
    std::fs::write(dir.path().join("metrics.2023-11-14T22-30-00Z-00000"), common::file(1_000, 60, 9)).unwrap();
    let source = Source::open(dir.path()).unwrap();
    assert_eq!(times(&source, START..START + 100_000), seconds(0..70));
    assert_eq!(times(&source, START + 65_000..START + 405_000), [seconds(65..70), seconds(400..405)].concat());
    assert_eq!(times(&source, i64::MIN..i64::MAX).len(), 60 + 10 + 10 + 60);
}

#[test]
fn any_stretch_of_time_is_found_and_little_else_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path());
    let source = Source::open(dir.path()).unwrap();
    for (from, to) in [(0, 1), (5, 6), (9, 11), (29, 31), (58, 62), (60, 61), (119, 121), (125, 130), (0, 130)] {
        let stretch = START + from * 1_000..START + to * 1_000;
        assert_eq!(times(&source, stretch.clone()), seconds(from..to), "{from} to {to}");
        let chunks = source.documents_between(stretch).filter(|d| d.as_ref().unwrap().kind() == DocumentKind::Chunk);
        assert!(chunks.count() as i64 <= (to - from) / 10 + 4, "{from} to {to}");
    }
    assert_eq!(times(&source, 0..START), Vec::<i64>::new());
    assert_eq!(times(&source, START + 200_000..i64::MAX), Vec::<i64>::new());
}

#[test]
fn chunks_that_have_the_time_of_their_end_are_found_too() {
    // Before MongoDB 4.2 a chunk's _id was the time at which it was written.
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    for chunk in 0..6i64 {
        let mut encoder = Encoder::new(9);
        for second in chunk * 10..chunk * 10 + 10 {
            if let Some(mut document) = encoder.add(0, &common::sample(second, false)).unwrap() {
                document[9..17].copy_from_slice(&(START + second * 1_000).to_le_bytes());
                bytes.extend(document);
            }
        }
    }
    let path = dir.path().join("metrics.old");
    std::fs::write(&path, bytes).unwrap();
    let source = Source::open(&path).unwrap();
    for (from, to) in [(0, 1), (9, 10), (10, 11), (15, 25), (59, 60), (0, 60)] {
        assert_eq!(times(&source, START + from * 1_000..START + to * 1_000), seconds(from..to), "{from} to {to}");
    }
}

#[test]
fn several_threads_give_what_one_gives_in_the_same_order() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path());
    let file = dir.path().join("metrics.2023-11-14T22-13-20Z-00000");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&file, bytes).unwrap();
    let source = Source::open(dir.path()).unwrap();
    let of = |threads, most: usize| {
        let mut all = Vec::new();
        // So few values at once that the workers wait for one another.
        let limits = Limits { values: 200, ..Limits::default() };
        decode(
            source.documents(),
            limits,
            threads,
            |document, _, matrix| {
                (document.offset(), (0..matrix.columns()).map(|c| matrix.column(c).to_vec()).collect::<Vec<_>>())
            },
            |decoded| {
                all.push(match decoded {
                    Ok(Decoded::Chunk(chunk)) => format!("{chunk:?}"),
                    Ok(Decoded::Other(document)) => format!("{:?}", document.kind()),
                    Err(error) => error.to_string(),
                });
                all.len() < most
            },
        );
        all
    };
    let one = of(1, usize::MAX);
    assert!(one.len() > 10 && one.iter().any(|line| line.contains("byte")), "{one:?}");
    for threads in [2, 3, 8] {
        assert_eq!(of(threads, usize::MAX), one);
        assert_eq!(of(threads, 4), one[..4]);
    }
}

#[test]
fn named_metrics_come_alone_and_follow_the_schema() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path());
    let source = Source::open(dir.path()).unwrap();
    let selection = Selection::of(["extra.n", "*mounts./.free", "serverStatus.uptime"]);
    let mut second = 0;
    for batch in source.select(&selection, i64::MIN..i64::MAX) {
        let batch = batch.unwrap();
        let extra = batch.column("extra.n").is_some();
        assert_eq!(batch.columns().count(), if extra { 4 } else { 3 });
        let free = batch.column("systemMetrics.mounts./.free#2").unwrap();
        for (row, uptime) in batch.column("serverStatus.uptime").unwrap().iter().enumerate() {
            assert_eq!((*uptime, free[row], extra), (second, second + 1, second % 60 >= 30 || second >= 120));
            second += 1;
        }
        assert!(batch.column("end").is_none());
    }
    assert_eq!(second, 130);
}

#[test]
fn json_lines_and_csv_have_every_sample_and_no_value_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path());
    let source = Source::open(dir.path()).unwrap();
    let selection = Selection::of(["serverStatus.ok", "serverStatus.uptime", "extra.n"]);
    let export = Export::new(&source, selection, START + 28_000..START + 32_000);
    let (mut lines, mut csv) = (Vec::new(), Vec::new());
    let mut none = |error: FtdcError| panic!("{error}");
    assert_eq!(export.json_lines(&mut lines, &mut none).unwrap(), 4);
    assert_eq!(export.csv(&mut csv, &mut none).unwrap(), 4);
    assert_eq!(
        String::from_utf8(lines).unwrap(),
        r#"{"time":"2023-11-14T22:13:48.000Z","metrics":{"serverStatus.uptime":28,"serverStatus.ok":false}}
{"time":"2023-11-14T22:13:49.000Z","metrics":{"serverStatus.uptime":29,"serverStatus.ok":true}}
{"time":"2023-11-14T22:13:50.000Z","metrics":{"serverStatus.uptime":30,"serverStatus.ok":true,"extra.n":1}}
{"time":"2023-11-14T22:13:51.000Z","metrics":{"serverStatus.uptime":31,"serverStatus.ok":true,"extra.n":1}}
"#
    );
    assert_eq!(
        String::from_utf8(csv).unwrap(),
        "time,serverStatus.uptime,serverStatus.ok,extra.n\n2023-11-14T22:13:48.000Z,28,0,\n\
         2023-11-14T22:13:49.000Z,29,1,\n2023-11-14T22:13:50.000Z,30,1,1\n2023-11-14T22:13:51.000Z,31,1,1\n"
    );
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_has_typed_columns_with_nulls_where_a_metric_is_not_there() {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, TimestampMillisecondType};
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path());
    let source = Source::open(dir.path()).unwrap();
    let path = dir.path().join("out.parquet");
    let export = Export::new(&source, Selection::all(), i64::MIN..i64::MAX);
    let rows = export.parquet(std::fs::File::create(&path).unwrap(), &mut |error| panic!("{error}")).unwrap();
    assert_eq!(rows, 130);
    let file = std::fs::File::open(&path).unwrap();
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let batches: Vec<_> = reader.with_batch_size(1_000).build().unwrap().map(Result::unwrap).collect();
    let [batch] = batches.as_slice() else { panic!("{} batches", batches.len()) };
    let uptime = batch.column_by_name("serverStatus.uptime").unwrap().as_primitive::<Int64Type>();
    assert_eq!(uptime.values().to_vec(), (0..130).collect::<Vec<i64>>());
    let time = batch.column_by_name("time").unwrap().as_primitive::<TimestampMillisecondType>();
    assert_eq!(time.values().to_vec(), seconds(0..130));
    assert_eq!(batch.column_by_name("extra.n").unwrap().null_count(), 60);
    assert!(!batch.column_by_name("serverStatus.ok").unwrap().as_boolean().value(0));
}

#[test]
fn a_summary_says_what_is_there_and_what_is_not() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path());
    let late = dir.path().join("metrics.2023-11-14T22-30-00Z-00000");
    let mut bytes = common::file(1_000, 10, 9);
    let metadata = bytes.len() / 4;
    bytes.extend([0; 50]);
    std::fs::write(&late, &bytes).unwrap();
    assert!(metadata > 0);
    let source = Source::open(dir.path()).unwrap();
    let summary = source.summarise(&Selection::of(["*.uptime"]), i64::MIN..i64::MAX).unwrap();
    // The interim chunk is older than the last file, and nobody wrote it elsewhere: so it is when somebody sets the clock back.
    assert_eq!((summary.files, summary.samples, summary.fault_count), (4, 140, 1));
    assert_eq!(summary.metadata.version().unwrap(), "7.0.0");
    assert_eq!(summary.gaps_ms, [(START + 119_000, START + 1_000_000)]);
    assert_eq!(summary.span_ms, Some((START, START + 1_009_000)));
    let uptime = &summary.chosen[0];
    assert_eq!((uptime.first, uptime.last, uptime.least, uptime.most), (0, 129, 0, 1_009));
    assert_eq!(summary.to_json()["gaps"], 1);
}

#[test]
fn the_same_metrics_are_one_schema() {
    let bytes = common::file(0, 40, 4);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.a");
    std::fs::write(&path, bytes).unwrap();
    let source = Source::open(&path).unwrap();
    let mut decoder = Decoder::new(source.limits());
    let mut schemas = Vec::new();
    for document in source.documents().map(Result::unwrap).filter(|d| d.kind() == DocumentKind::Chunk) {
        schemas.push(std::sync::Arc::clone(decoder.open(&document).unwrap().schema()));
    }
    schemas.dedup_by(|one, other| std::sync::Arc::ptr_eq(one, other));
    assert_eq!(schemas.len(), 2);
}
