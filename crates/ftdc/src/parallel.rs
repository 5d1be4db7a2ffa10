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
/// Memory: a document waiting, one in work and a result for each thread, and together no more decoded values than
/// [`Limits::values`], however many threads there are.
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
    let mut matrix = Matrix::default();
    for document in work {
        let made = document.and_then(|document| match document.kind() {
            DocumentKind::Chunk => one(&mut decoder, budget, &mut matrix, &document, make).map(Decoded::Chunk),
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
    matrix: &mut Matrix,
    document: &Document,
    make: &impl Fn(&Document, &Chunk<'_>, &Matrix) -> T,
) -> Result<T, FtdcError> {
    let chunk = decoder.open(document)?;
    let share = budget.take(chunk.values());
    chunk.read_into(matrix).map_err(|damage| document.fault(damage))?;
    let made = make(document, &chunk, matrix);
    matrix.shrink();
    drop(share);
    Ok(made)
}

/// Values that may be decoded at once.
struct Budget {
    all: usize,
    left: Mutex<usize>,
    given_back: Condvar,
}

struct Share<'b> {
    of: &'b Budget,
    values: usize,
}

impl Budget {
    fn new(all: usize) -> Self {
        Budget { all, left: Mutex::new(all), given_back: Condvar::new() }
    }

    fn take(&self, values: usize) -> Share<'_> {
        // More than all there is would wait for ever.
        let values = values.min(self.all);
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = self.given_back.wait_while(left, |left| *left < values).unwrap_or_else(PoisonError::into_inner);
        *left -= values;
        Share { of: self, values }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.of.left.lock().unwrap_or_else(PoisonError::into_inner) += self.values;
        self.of.given_back.notify_all();
    }
}
