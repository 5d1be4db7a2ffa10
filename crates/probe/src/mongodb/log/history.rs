//! Log files read whole, beside a flight recorder: slow operations counted second by second, the longest of each minute
//! kept. Only what lies in the recorder's time is kept, and of a time that no file covers nothing is said.

use super::lines::Lines;
use super::time::written_at;
use super::{SlowOperation, Writes};
use crate::ProbeError;
use backwater_model::{Epoch, Event, EventKind, Moment, Point, SeriesId};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most operations of one minute that are kept one by one, the longest; all are counted.
const MOST_KEPT: usize = 5;
const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
/// How much is read at once.
const PIECE: usize = 1 << 16;

/// What log files tell of slow operations.
#[derive(Debug)]
pub(in crate::mongodb) struct History {
    target: String,
    /// In order of time, none over another.
    files: Vec<Covered>,
}

/// What one file tells.
#[derive(Debug)]
struct Covered {
    path: PathBuf,
    epoch: Epoch,
    /// First and last line.
    span: (Moment, Moment),
    /// Slow operations that had ended, and their milliseconds, up to each second in which that grew.
    sums: Vec<(i64, u64, u64)>,
    kept: Vec<(Moment, SlowOperation)>,
}

impl History {
    /// Reads the log files of a server, in whatever order they are named, and keeps what lies between two moments.
    ///
    /// # Errors
    /// Where a file cannot be read or is no log of mongod, where two tell of the same time, and where none tells of the
    /// time that is asked for.
    pub(in crate::mongodb) fn read(
        paths: &[PathBuf],
        target: &str,
        (from, to): (Moment, Moment),
    ) -> Result<Self, ProbeError> {
        let mut files = paths.iter().map(|path| covered(path, target, (from, to))).collect::<Result<Vec<_>, _>>()?;
        files.sort_by_key(|file| file.span);
        for pair in files.windows(2) {
            if pair[1].span.0 < pair[0].span.1 {
                let why = format!("it tells of the same time as {}: are both of one server?", pair[0].path.display());
                return Err(wrong(&pair[1].path, why));
            }
        }
        if let Some(first) = files.first()
            && files.iter().all(|file| file.span.1 < from || file.span.0 > to)
        {
            let why = format!(
                "it tells of {} to {}, and the recorder of {} to {}",
                spelled(first.span.0),
                spelled(first.span.1),
                spelled(from),
                spelled(to)
            );
            return Err(wrong(&first.path, why));
        }
        Ok(History { target: target.to_owned(), files })
    }

    /// Counts of slow operations and their milliseconds after one moment and until another, a point a second.
    pub(in crate::mongodb) fn points(
        &self,
        (after, until): (Moment, Moment),
        (count, ms): (SeriesId, SeriesId),
    ) -> (Vec<Point>, Vec<Point>) {
        let (mut counts, mut times) = (Vec::new(), Vec::new());
        let mut free = after.0.div_euclid(SECOND_US) + 1;
        for file in &self.files {
            let (first, last) = (file.span.0.0.div_euclid(SECOND_US), ceiling(file.span.1));
            for second in first.max(free)..=last.min(until.0.div_euclid(SECOND_US)) {
                let known = file.sums.partition_point(|(at, ..)| *at <= second).checked_sub(1);
                let (operations, sum_ms) = known.map_or((0, 0), |place| (file.sums[place].1, file.sums[place].2));
                let at = Moment(second * SECOND_US);
                let point =
                    |series, value: u64| Point { at, series, epoch: file.epoch, value: value as f64, as_of: None };
                counts.push(point(count, operations));
                times.push(point(ms, sum_ms));
            }
            // A file that begins in the second in which another ends has its own points from the next on.
            free = free.max(last + 1);
        }
        (counts, times)
    }

    /// The longest operations that ended after one moment and until another.
    pub(in crate::mongodb) fn events(&self, after: Moment, until: Moment) -> Vec<Event> {
        let kept = self.files.iter().flat_map(|file| &file.kept).filter(|(at, _)| after < *at && *at <= until);
        kept.map(|(at, operation)| {
            let fields = operation.fields();
            let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            Event::new(*at, &self.target, EventKind::Log, operation.sentence(), &fields)
        })
        .collect()
    }
}

/// The first whole second at or after a moment.
fn ceiling(at: Moment) -> i64 {
    at.0.div_euclid(SECOND_US) + i64::from(at.0.rem_euclid(SECOND_US) > 0)
}

fn wrong(path: &Path, why: String) -> ProbeError {
    ProbeError::Log { path: path.to_owned(), why }
}

fn spelled(at: Moment) -> String {
    jiff::Timestamp::from_microsecond(at.0)
        .map_or_else(|_| "a time beyond reckoning".to_owned(), |at| format!("{at:.0}"))
}

fn covered(path: &Path, target: &str, asked: (Moment, Moment)) -> Result<Covered, ProbeError> {
    let failed = |source| ProbeError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let (mut lines, mut reading, mut bytes) = (Lines::default(), Reading::default(), vec![0; PIECE]);
    loop {
        let count = file.read(&mut bytes).map_err(failed)?;
        if count == 0 {
            break;
        }
        lines.take(&bytes[..count], |line| reading.take(line, asked));
    }
    let why = "no line in it begins as mongod's do, with a time and its zone (a compressed log must be unpacked first)";
    let span = reading.span.ok_or_else(|| wrong(path, why.to_owned()))?;
    let epoch = Epoch::of(&["mongodb.log", target, &span.0.0.to_string()]);
    let (mut count, mut sum_ms) = (0u64, 0u64);
    let sums = reading.seconds.into_iter().map(|(second, (operations, ms))| {
        (count, sum_ms) = (count + operations, sum_ms.saturating_add(ms));
        (second, count, sum_ms)
    });
    let sums = sums.collect();
    let mut kept: Vec<_> = reading.longest.into_values().flatten().collect();
    kept.sort_by_key(|(at, _)| *at);
    Ok(Covered { path: path.to_owned(), epoch, span, sums, kept })
}

/// A file being read.
#[derive(Default)]
struct Reading {
    span: Option<(Moment, Moment)>,
    writes: Writes,
    /// Operations and milliseconds by the second in which they had ended.
    seconds: BTreeMap<i64, (u64, u64)>,
    /// The longest by the minute.
    longest: BTreeMap<i64, Vec<(Moment, SlowOperation)>>,
}

impl Reading {
    fn take(&mut self, line: &str, (from, to): (Moment, Moment)) {
        let Some(at) = written_at(line) else { return };
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        if at < from || at > to {
            return;
        }
        let Some(operation) = self.writes.operation(line) else { return };
        let second = self.seconds.entry(ceiling(at)).or_default();
        *second = (second.0 + 1, second.1.saturating_add(operation.duration_ms));
        if operation.is_cut() {
            return;
        }
        let longest = self.longest.entry(at.0.div_euclid(MINUTE_US)).or_default();
        let place = longest.partition_point(|(_, other)| other.duration_ms >= operation.duration_ms);
        if place < MOST_KEPT {
            longest.insert(place, (at, operation));
            longest.truncate(MOST_KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const BEGIN_S: i64 = 1_767_225_600;

    fn line(at_ms: i64, ms: u64) -> String {
        let time = jiff::Timestamp::from_millisecond(BEGIN_S * 1_000 + at_ms).unwrap();
        format!(
            r#"{{"t":{{"$date":"{time:.3}"}},"s":"I","c":"WRITE","id":51803,"attr":{{"type":"update","ns":"a.b","durationMillis":{ms}}}}}"#
        ) + "\n"
    }

    fn at(second: f64) -> Moment {
        Moment::from_seconds(BEGIN_S as f64 + second)
    }

    fn read(texts: &[String], from: f64, to: f64) -> Result<History, ProbeError> {
        let dir = tempfile::tempdir().unwrap();
        let write = |(number, text): (usize, &String)| {
            let path = dir.path().join(number.to_string());
            std::fs::write(&path, text).unwrap();
            path
        };
        let paths: Vec<PathBuf> = texts.iter().enumerate().map(write).collect();
        History::read(&paths, "m", (at(from), at(to)))
    }

    fn counts(history: &History, from: f64, to: f64) -> Vec<(f64, f64)> {
        let (counts, _) = history.points((at(from), at(to)), (SeriesId(0), SeriesId(1)));
        counts.iter().map(|point| (point.at.seconds_since(at(0.0)), point.value)).collect()
    }

    #[test]
    fn counts_grow_second_by_second_between_first_and_last_line() {
        let text =
            [line(1_500, 200), "noise\n".to_owned(), line(3_100, 300), line(3_200, 400), line(5_000, 100)].concat();
        let history = read(&[text], 0.0, 100.0).unwrap();
        assert_eq!(counts(&history, 0.0, 100.0), [(1.0, 0.0), (2.0, 1.0), (3.0, 1.0), (4.0, 3.0), (5.0, 4.0)]);
        // Asked for in two parts, no second is told twice and none is left out.
        let parts = [counts(&history, 0.0, 3.4), counts(&history, 3.4, 100.0)].concat();
        assert_eq!(parts, counts(&history, 0.0, 100.0));
        let (_, ms) = history.points((at(0.0), at(100.0)), (SeriesId(0), SeriesId(1)));
        assert_eq!(ms.last().unwrap().value, 1_000.0);
    }

    #[test]
    fn a_write_and_the_command_that_held_it_are_one() {
        let update = r#""attr":{"type":"update","ns":"a.b""#;
        let of = |line: String| line.replace("\"attr\"", "\"ctx\":\"conn7\",\"attr\"");
        let command = |line: String| {
            of(line).replace(update, r#""attr":{"type":"command","command":{"update":"b"},"ns":"a.$cmd""#)
        };
        let text = [of(line(1_500, 200)), command(line(1_510, 210)), command(line(3_000, 300))].concat();
        let history = read(&[text], 0.0, 100.0).unwrap();
        assert_eq!(counts(&history, 0.0, 100.0), [(1.0, 0.0), (2.0, 1.0), (3.0, 2.0)]);
        let (_, ms) = history.points((at(0.0), at(100.0)), (SeriesId(0), SeriesId(1)));
        assert_eq!(ms.last().unwrap().value, 500.0);
        let kept = history.events(at(0.0), at(100.0));
        assert_eq!(kept.iter().map(|event| event.fields["kind"].as_str()).collect::<Vec<_>>(), ["update", "update"]);
    }

    #[test]
    fn rotated_files_follow_one_another_and_nothing_is_said_between() {
        let (old, new) = (line(1_000, 5) + &line(2_300, 5), line(2_600, 5) + &line(6_000, 5));
        let history = read(&[new, old.clone()], 0.0, 100.0).unwrap();
        assert_eq!(
            counts(&history, 0.0, 100.0).iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        );
        let (points, _) = history.points((at(0.0), at(100.0)), (SeriesId(0), SeriesId(1)));
        assert_ne!(points[2].epoch, points[3].epoch, "no rate from one file to the next");
        let error = read(&[old.clone(), old], 0.0, 100.0).unwrap_err().to_string();
        assert!(error.contains("same time"), "{error}");
    }

    #[test]
    fn the_longest_of_a_minute_are_kept() {
        let text: String = (0..120).map(|n| line(n * 1_000, n as u64 + 1)).collect();
        let history = read(&[text], 0.0, 200.0).unwrap();
        let events = history.events(at(-1.0), at(60.0));
        let durations: Vec<&str> = events.iter().map(|event| event.fields["duration_ms"].as_str()).collect();
        assert_eq!(durations, ["56", "57", "58", "59", "60"]);
        assert_eq!(history.events(at(-1.0), at(200.0)).len(), 10);
    }

    #[test]
    fn what_is_no_log_or_of_another_time_is_said() {
        let error = |text: &str| read(&[text.to_owned()], 50.0, 60.0).unwrap_err().to_string();
        assert!(error("\u{1f}\u{8b}\u{8}compressed\n").contains("unpacked"));
        assert!(error("").contains("no line in it"));
        let told = error(&line(1_000, 5));
        assert!(told.contains("2026-01-01T00:00:01Z") && told.contains("2026-01-01T00:00:50Z"), "{told}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            std::fs::write(&path, bytes).unwrap();
            let _ = History::read(&[path], "m", (Moment(0), Moment(i64::MAX)));
        }
    }
}
