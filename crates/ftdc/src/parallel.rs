//! Decoding on several processors: chunks are independent of one another, so each worker takes whole ones, and what it
//! makes of them is handed on in the order of the file.

use crate::{Chunk, Decoder, Document, DocumentKind, FtdcError, Limits, Matrix};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};

/// Documents that wait in front of each worker, and results behind it.
const WAITING: usize = 1;

/// What is handed on for each document, in order.
#[derive(Debug)]
pub enum Decoded<T> {
    /// What was made of a chunk.
    Chunk(T),
    /// A document of another kind, as it is.
    Other(Document),
}

/// Decodes every value of every chunk on `threads` threads, makes something of each with `make` (on the worker, with
/// the values at hand), and hands it to `take` on the calling thread, in the documents' order. `take` returning false
/// ends it early.
///
/// Memory: a document waiting, one in work, inflated, and a result for each thread, and together no more decoded values than
/// [`Limits::values`], however many threads there are: matrices that wait to be filled again are among them.
pub fn decode<T: Send>(
    documents: impl Iterator<Item = Result<Document, FtdcError>> + Send,
    limits: Limits,
    threads: usize,
    make: impl Fn(&Document, &Chunk<'_>, &Matrix) -> T + Sync,
    mut take: impl FnMut(Result<Decoded<T>, FtdcError>) -> bool,
) {
    let threads = threads.max(1);
    let budget = Budget::new(limits.values);
    let decoder = Decoder::new(limits);
    std::thread::scope(|scope| {
        let mut inputs = Vec::with_capacity(threads);
        let mut outputs = Vec::with_capacity(threads);
        for _ in 0..threads {
            let (input, work) = sync_channel(WAITING);
            let (done, output) = sync_channel(WAITING);
            inputs.push(input);
            outputs.push(output);
            let (decoder, budget, make) = (decoder.clone(), &budget, &make);
            scope.spawn(move || worker(decoder, budget, &work, &done, make));
        }
        scope.spawn(move || feed(documents, &inputs));
        gather(&outputs, &mut take);
    });
}

type Item = Result<Document, FtdcError>;
type Made<T> = Result<Decoded<T>, FtdcError>;

/// Deals documents out in turn, so that results are gathered in order by asking the workers in the same turn.
fn feed(documents: impl Iterator<Item = Item>, inputs: &[SyncSender<Item>]) {
    for (document, input) in documents.zip(inputs.iter().cycle()) {
        if input.send(document).is_err() {
            return;
        }
    }
}

fn gather<T>(outputs: &[Receiver<Made<T>>], take: &mut impl FnMut(Made<T>) -> bool) {
    for output in outputs.iter().cycle() {
        // The first worker without a next result has had the last document's successor: there is none.
        let Ok(made) = output.recv() else { return };
        if !take(made) {
            return;
        }
    }
}

fn worker<T>(
    mut decoder: Decoder,
    budget: &Budget,
    work: &Receiver<Item>,
    done: &SyncSender<Made<T>>,
    make: &(impl Fn(&Document, &Chunk<'_>, &Matrix) -> T + Sync),
) {
    for document in work {
        let made = document.and_then(|document| match document.kind() {
            DocumentKind::Chunk => one(&mut decoder, budget, &document, make).map(Decoded::Chunk),
            _ => Ok(Decoded::Other(document)),
        });
        if done.send(made).is_err() {
            return;
        }
    }
}

fn one<T>(
    decoder: &mut Decoder,
    budget: &Budget,
    document: &Document,
    make: &impl Fn(&Document, &Chunk<'_>, &Matrix) -> T,
) -> Result<T, FtdcError> {
    let chunk = decoder.open(document)?;
    let mut share = budget.take(chunk.values());
    chunk.read_into(&mut share.matrix).map_err(|damage| document.fault(damage))?;
    Ok(make(document, &chunk, &share.matrix))
}

/// Values that may be in memory at once, and the matrices that hold them.
struct Budget {
    all: usize,
    left: Mutex<Left>,
    given_back: Condvar,
}

/// What nobody works with.
struct Left {
    /// Values for which there is no matrix.
    values: usize,
    /// To be filled again, the latest last; whoever needs room takes that of the oldest.
    spare: Vec<Matrix>,
}

/// A matrix to fill, and the values that are set aside for it.
struct Share<'b> {
    of: &'b Budget,
    values: usize,
    matrix: Matrix,
}

impl Budget {
    fn new(all: usize) -> Self {
        Budget { all, left: Mutex::new(Left { values: all, spare: Vec::new() }), given_back: Condvar::new() }
    }

    fn take(&self, values: usize) -> Share<'_> {
        // More than all there is would wait for ever.
        let values = values.min(self.all);
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let too_few = |left: &mut Left| left.room() < values;
        let mut left = self.given_back.wait_while(left, too_few).unwrap_or_else(PoisonError::into_inner);
        let (values, matrix) = left.take(values);
        Share { of: self, values, matrix }
    }
}

impl Left {
    fn room(&self) -> usize {
        self.values + self.spare.iter().map(Matrix::room).sum::<usize>()
    }

    /// A matrix that is large enough, and not so large that others wait for what is not needed; else the values for a new one.
    fn take(&mut self, values: usize) -> (usize, Matrix) {
        let fits = |matrix: &Matrix| (values..=2 * values).contains(&matrix.room());
        if let Some(place) = self.spare.iter().rposition(fits) {
            let matrix = self.spare.remove(place);
            return (matrix.room(), matrix);
        }
        while self.values < values && !self.spare.is_empty() {
            self.values += self.spare.remove(0).room();
        }
        self.values = self.values.saturating_sub(values);
        (values, Matrix::default())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut matrix = std::mem::take(&mut self.matrix);
        matrix.shrink();
        let mut left = self.of.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.values += self.values.saturating_sub(matrix.room());
        left.spare.extend(Some(matrix).filter(|matrix| matrix.room() > 0));
        self.of.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::encode::Encoder;
    use crate::{Builder, Documents};
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Chunks of this shape, each `times` times.
    fn file(chunks: &[(usize, usize)], times: usize) -> Vec<u8> {
        let chunk = |(metrics, samples): (usize, usize)| {
            let mut encoder = Encoder::new(samples);
            let at = |second: usize| 1_700_000_000_000 + second as i64 * 1_000;
            let sample = |second: usize| {
                let first = Builder::new().date("start", at(second));
                (1..metrics).fold(first, |built, n| built.int64(&format!("n{n}"), (second * n) as i64)).finish()
            };
            (0..samples).for_each(|second| assert!(encoder.add(at(second), &sample(second)).unwrap().is_none()));
            encoder.finish().unwrap()
        };
        chunks.iter().map(|shape| chunk(*shape).repeat(times)).collect::<Vec<_>>().concat()
    }

    /// Decodes with room for so many values on 16 threads; says how many there was memory for at most, in matrices that are looked
    /// at and in those that wait.
    fn held(bytes: &[u8], values: usize) -> usize {
        let budget = Budget::new(values);
        let (in_work, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let limits = Limits { values, ..Limits::default() };
        let documents: Vec<Document> = Documents::new(bytes, Path::new("f"), limits).map(Result::unwrap).collect();
        let next = AtomicUsize::new(0);
        let work = |decoder: &mut Decoder| {
            while let Some(document) = documents.get(next.fetch_add(1, Ordering::Relaxed)) {
                one(decoder, &budget, document, &|_, _, matrix| {
                    in_work.fetch_add(matrix.room(), Ordering::SeqCst);
                    // Nobody gives back or takes while this is counted.
                    let left = budget.left.lock().unwrap();
                    let spare: usize = left.spare.iter().map(Matrix::room).sum();
                    most.fetch_max(in_work.load(Ordering::SeqCst) + spare, Ordering::SeqCst);
                    drop(left);
                    in_work.fetch_sub(matrix.room(), Ordering::SeqCst);
                })
                .unwrap();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| work(&mut Decoder::new(limits)));
            }
        });
        let left = budget.left.lock().unwrap();
        assert_eq!(left.room(), values, "all is given back");
        most.into_inner()
    }

    #[test]
    fn no_more_values_are_held_than_the_limit_whatever_the_threads() {
        let few = held(&file(&[(50, 30)], 200), 5_000);
        assert!((1_500..=5_000).contains(&few), "{few}");
        // Large ones and small ones in turn: what waits gives way to what is needed.
        let mixed = held(&file(&[(50, 30), (10, 10), (50, 90), (20, 30)], 50), 5_000);
        assert!((4_500..=5_000).contains(&mixed), "{mixed}");
    }

    #[test]
    fn two_threads_fill_the_same_matrices_again() {
        let budget = Budget::new(5_000);
        let mut made = 0;
        for _ in 0..10 {
            let mut both = [budget.take(1_500), budget.take(1_500)];
            for share in &mut both {
                made += usize::from(share.matrix.room() == 0);
                drop(share.matrix.shape(50, 30));
            }
        }
        assert_eq!(made, 2);
        assert_eq!(budget.left.lock().unwrap().room(), 5_000);
        // What is far too large for a chunk is no use to it, and gives way where there is no other room.
        let (small, large) = (budget.take(100), budget.take(4_900));
        assert_eq!((small.values, large.values), (100, 4_900));
    }
}
