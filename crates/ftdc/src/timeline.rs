//! Which chunks of a recording follow one another. Clocks are set, files of several servers lie together, bits flip: what does not
//! fit between what lies around it is found once, for all of the recording, by the times that stand before the chunks, so that none
//! is inflated for it.

use crate::{Document, DocumentKind, Source, time_text};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Chunks further apart are of a clock that was not set yet, or of another one.
const LONGEST_GAP_MS: u64 = 365 * 86_400_000;

/// One chunk as it lies there.
#[derive(Clone, Debug)]
struct Place {
    file: Arc<Path>,
    offset: u64,
    at_ms: i64,
}

/// The times of chunks, gathered from the documents of a source in any order.
#[derive(Debug, Default)]
pub struct Times(Vec<Place>);

impl Times {
    /// Takes in a document; of metadata nothing.
    pub fn take(&mut self, document: &Document) {
        if document.kind() == DocumentKind::Chunk {
            let file = Arc::clone(&document.file);
            self.0.push(Place { file, offset: document.offset(), at_ms: document.at_ms() });
        }
    }

    /// Says which chunks follow one another, and puts the files of their source in the order of what is in them: a name is what a clock
    /// said when the file was begun.
    pub fn settle(mut self, source: &mut Source) -> Timeline {
        let mut of_files: HashMap<Arc<Path>, Vec<i64>> = HashMap::new();
        for place in &self.0 {
            of_files.entry(Arc::clone(&place.file)).or_default().push(place.at_ms);
        }
        source.sort_by(|file| of_files.get(file.path()).and_then(|times| middle(times)).or(file.first_ms()));
        let ranks: HashMap<&Path, usize> =
            source.files().iter().enumerate().map(|(rank, file)| (file.path(), rank)).collect();
        self.0.sort_by_key(|place| (ranks.get(&*place.file).copied(), place.offset));
        Timeline::of(&self.0)
    }
}

fn middle(times: &[i64]) -> Option<i64> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// Which chunks of a recording follow one another, and which do not fit between them.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    kept_ms: Vec<i64>,
    /// Places of each file's chunks in the list of those that are kept.
    files: HashMap<Arc<Path>, Range<usize>>,
    places: HashSet<(Arc<Path>, u64)>,
    misplaced: Vec<Misplaced>,
}

/// Chunks, one behind the other in a file, that do not fit in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// The file.
    pub file: Arc<Path>,
    /// Where the first begins.
    pub offset: u64,
    /// How many there are.
    pub chunks: usize,
    /// The times that stand before the first and the last, in milliseconds since 1970.
    pub from_ms: i64,
    /// See `from_ms`.
    pub to_ms: i64,
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.chunks {
            1 => format!("a chunk of {} does", time_text(self.from_ms)),
            many => format!("{many} chunks of {} to {} do", time_text(self.from_ms), time_text(self.to_ms)),
        };
        let (file, offset) = (self.file.display(), self.offset);
        write!(
            f,
            "{file}, byte {offset}: {what} not fit those before and behind (the clock was set, it is another server's, or more than a year away)"
        )
    }
}

impl Timeline {
    fn of(places: &[Place]) -> Timeline {
        let times: Vec<i64> = places.iter().map(|place| place.at_ms).collect();
        let kept = longest_part(&times, &following(&times));
        let mut timeline = Timeline::default();
        let mut next = kept.iter().copied().peekable();
        let mut before: Option<usize> = None;
        for (at, place) in places.iter().enumerate() {
            let own =
                timeline.files.entry(Arc::clone(&place.file)).or_insert(timeline.kept_ms.len()..timeline.kept_ms.len());
            if next.next_if_eq(&at).is_some() {
                timeline.kept_ms.push(place.at_ms);
                own.end = timeline.kept_ms.len();
                continue;
            }
            timeline.places.insert((Arc::clone(&place.file), place.offset));
            match timeline.misplaced.last_mut().filter(|last| before == at.checked_sub(1) && last.file == place.file) {
                Some(last) => (last.chunks, last.to_ms) = (last.chunks + 1, place.at_ms),
                None => timeline.misplaced.push(Misplaced {
                    file: Arc::clone(&place.file),
                    offset: place.offset,
                    chunks: 1,
                    from_ms: place.at_ms,
                    to_ms: place.at_ms,
                }),
            }
            before = Some(at);
        }
        timeline
    }

    /// The times that stand before the chunks that follow one another, in milliseconds since 1970: of their first samples (before
    /// MongoDB 4.2 of when they were written).
    pub fn times_ms(&self) -> &[i64] {
        &self.kept_ms
    }

    /// What does not fit, in the order in which it lies there.
    pub fn misplaced(&self) -> &[Misplaced] {
        &self.misplaced
    }

    /// Between which times the samples of a chunk lie, whichever end of it its own time tells: from the chunk before to the one behind.
    /// None for a chunk that does not fit. One that was written since is as good as the last.
    pub(crate) fn around(&self, document: &Document) -> Option<Range<i64>> {
        let misplaced =
            !self.places.is_empty() && self.places.contains(&(Arc::clone(&document.file), document.offset()));
        (!misplaced).then(|| {
            let first = self.kept_ms.partition_point(|kept| *kept < document.at_ms());
            let behind = self.kept_ms.partition_point(|kept| *kept <= document.at_ms());
            self.between(first..behind)
        })
    }

    /// Whether a file may have samples of a stretch of time. One that is not known was begun since.
    pub(crate) fn wants(&self, file: &Path, stretch: &Range<i64>) -> bool {
        self.files.get(file).is_none_or(|own| {
            let times = self.between(own.clone());
            !own.is_empty() && times.start < stretch.end && times.end > stretch.start
        })
    }

    fn between(&self, chunks: Range<usize>) -> Range<i64> {
        let before = chunks.start.checked_sub(1).and_then(|before| self.kept_ms.get(before));
        before.copied().unwrap_or(i64::MIN)..self.kept_ms.get(chunks.end).copied().unwrap_or(i64::MAX)
    }
}

/// The places of a longest run of times that do not go back (C. Schensted, Canadian Journal of Mathematics 13, 1961).
fn following(times: &[i64]) -> Vec<usize> {
    // For each length the place at which a run of that length ends the earliest, and what comes before each place in its run.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(times.len());
    for (at, time) in times.iter().enumerate() {
        let length = ends.partition_point(|end| times[*end] <= *time);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        if length == ends.len() {
            ends.push(at);
        } else {
            ends[length] = at;
        }
    }
    let mut run: Vec<usize> = std::iter::successors(ends.last().copied(), |at| before[*at]).collect();
    run.reverse();
    run
}

/// Of a run with gaps that no recording has, the part with the most chunks.
fn longest_part(times: &[i64], run: &[usize]) -> Vec<usize> {
    let apart = |a: &usize, b: &usize| times[*b].abs_diff(times[*a]) <= LONGEST_GAP_MS;
    run.chunk_by(apart).max_by_key(|part| part.len()).map(<[usize]>::to_vec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(times: &[i64]) -> Vec<i64> {
        let places: Vec<Place> = times
            .iter()
            .enumerate()
            .map(|(at, at_ms)| Place { file: Path::new("f").into(), offset: at as u64, at_ms: *at_ms })
            .collect();
        Timeline::of(&places).kept_ms
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_the_rest_follows() {
        const AHEAD: i64 = 7 * 86_400_000;
        // A clock that ran ahead at the beginning, in the middle, at the end.
        assert_eq!(kept(&[AHEAD, 1, 2, 3]), [1, 2, 3]);
        assert_eq!(kept(&[1, 2, AHEAD, AHEAD + 1, 3, 4, 5]), [1, 2, 3, 4, 5]);
        assert_eq!(kept(&[1, 2, 3, AHEAD]), [1, 2, 3, AHEAD], "nothing tells that it is not so");
        // One that was set back: the shorter side goes.
        assert_eq!(kept(&[10, 20, 30, 40, 50, 35]), [10, 20, 30, 40, 50]);
        assert_eq!(kept(&[10, 20, 30, 15, 25, 35, 45]), [10, 15, 25, 35, 45]);
        // One that was not set at all, and a bit that flipped.
        assert_eq!(kept(&[-9_000_000_000_000_000_000, 1, 2]), [1, 2]);
        assert_eq!(kept(&[1, 2, i64::MAX]), [1, 2]);
        assert_eq!(kept(&[]), [0; 0]);
    }

    #[test]
    fn what_lies_together_is_told_together() {
        let place = |offset: u64, at_ms: i64| Place { file: Path::new("f").into(), offset, at_ms };
        let places =
            [place(0, 10), place(1, 20), place(2, 5_000), place(3, 6_000), place(4, 30), place(5, 40), place(6, 7)];
        let timeline = Timeline::of(&places);
        let told: Vec<(u64, usize)> = timeline.misplaced().iter().map(|one| (one.offset, one.chunks)).collect();
        assert_eq!(told, [(2, 2), (6, 1)]);
        assert!(timeline.misplaced()[0].to_string().contains("f, byte 2: 2 chunks of 1970-01-01"));
        // Samples of the last chunk before lie before the first behind.
        assert_eq!(timeline.between(1..2), 10..30);
        assert_eq!(timeline.between(3..4), 30..i64::MAX);
    }

    proptest! {
        #[test]
        fn it_is_a_longest_run_that_never_goes_back(times in prop::collection::vec(0_i64..30, 0..60)) {
            let run = following(&times);
            prop_assert!(run.windows(2).all(|pair| pair[0] < pair[1] && times[pair[0]] <= times[pair[1]]));
            // By the plain way: the longest run that ends at each place.
            let mut longest = vec![0_usize; times.len()];
            for at in 0..times.len() {
                longest[at] = 1 + (0..at).filter(|b| times[*b] <= times[at]).map(|b| longest[b]).max().unwrap_or(0);
            }
            prop_assert_eq!(run.len(), longest.into_iter().max().unwrap_or(0));
        }
    }
}
