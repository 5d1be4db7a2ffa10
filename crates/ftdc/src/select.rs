//! Named metrics only: which ones, and their values batch by batch. Everything else is passed over without being put
//! together, and chunks outside the stretch of time are not even inflated.

use crate::{Damage, Decoder, Document, DocumentKind, FtdcError, Matrix, Metric, Schema, Source, Timeline};
use std::ops::Range;
use std::sync::Arc;

/// Which metrics: patterns of paths, in which `*` stands for any characters, dots included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    patterns: Vec<String>,
}

impl Selection {
    /// The metrics that match any of these patterns.
    pub fn of<P: Into<String>>(patterns: impl IntoIterator<Item = P>) -> Self {
        Selection { patterns: patterns.into_iter().map(Into::into).collect() }
    }

    /// Every metric.
    pub fn all() -> Self {
        Selection::of(["*"])
    }

    /// Whether a metric of this path is meant. A path that is there more than once (`#2`) is meant by its plain name.
    pub fn has(&self, path: &str) -> bool {
        let plain = path.rsplit_once('#').filter(|(_, number)| number.parse::<usize>().is_ok()).map(|(plain, _)| plain);
        let is = |pattern: &String| matches(pattern, path) || plain.is_some_and(|plain| matches(pattern, plain));
        self.patterns.iter().any(is)
    }

    /// The places of the metrics meant in a schema, in its order.
    pub fn places(&self, schema: &Schema) -> Vec<usize> {
        let metrics = schema.metrics().iter().enumerate();
        metrics.filter(|(_, metric)| self.has(&metric.path)).map(|(place, _)| place).collect()
    }
}

/// Whether `text` is what `pattern` describes. Each `*` takes as little as will do, and what is behind it is tried
/// again further on: linear in practice, the product of the lengths at worst.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|head| text.strip_prefix(head)) else { return false };
    let mut open = false;
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        open = true;
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    open || rest.is_empty()
}

/// The chosen metrics of one chunk.
#[derive(Clone, Debug)]
pub struct Batch {
    schema: Arc<Schema>,
    places: Arc<[usize]>,
    times_ms: Vec<i64>,
    columns: Vec<Vec<i64>>,
    reference: Vec<u8>,
}

impl Batch {
    /// When each sample was begun, in milliseconds since 1970.
    pub fn times_ms(&self) -> &[i64] {
        &self.times_ms
    }

    /// Each chosen metric that this chunk has, with its values, one for each sample.
    pub fn columns(&self) -> impl Iterator<Item = (&Metric, &[i64])> {
        let metrics = self.places.iter().filter_map(|place| self.schema.metrics().get(*place));
        metrics.zip(self.columns.iter().map(Vec::as_slice))
    }

    /// The values of one metric; none if this chunk does not have it or it was not chosen.
    pub fn column(&self, path: &str) -> Option<&[i64]> {
        let place = self.schema.position(path)?;
        let column = self.places.binary_search(&place).ok()?;
        self.columns.get(column).map(Vec::as_slice)
    }

    /// The chunk's first sample as it was recorded, with its texts.
    pub fn reference(&self) -> &[u8] {
        &self.reference
    }

    /// The schema of the chunk it came from. Batches of chunks with the same metrics share it.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Leaves out the samples whose times are not wanted; how many.
    fn keep(&mut self, wanted: impl FnMut(&i64) -> bool) -> usize {
        let kept: Vec<bool> = self.times_ms.iter().map(wanted).collect();
        let left_out = kept.iter().filter(|kept| !**kept).count();
        if left_out > 0 {
            for column in self.columns.iter_mut().chain([&mut self.times_ms]) {
                let mut keep = kept.iter();
                column.retain(|_| keep.next().copied().unwrap_or(false));
            }
        }
        left_out
    }
}

/// See [`Source::select_onwards`].
struct Onwards<D> {
    documents: D,
    chooser: Chooser,
    timeline: Arc<Timeline>,
    stretch: Range<i64>,
    /// The time of the last sample that was given.
    latest_ms: i64,
    /// What is left of a chunk whose fault was told.
    ready: Option<Batch>,
}

impl<D: Iterator<Item = Result<Document, FtdcError>>> Onwards<D> {
    fn take(&mut self, document: &Document) -> Result<Option<Batch>, FtdcError> {
        let around = Some(document).filter(|document| document.kind() == DocumentKind::Chunk);
        let Some(around) = around.and_then(|chunk| self.timeline.around(chunk)) else { return Ok(None) };
        if around.start >= self.stretch.end || around.end <= self.stretch.start {
            return Ok(None);
        }
        let Some(mut batch) = self.chooser.batch_within(document, &self.stretch)? else { return Ok(None) };
        let latest_ms = &mut self.latest_ms;
        let backwards = batch.keep(|time| {
            // A clock that ran ahead within a chunk is told by the chunk behind it. A time that does not pass is none either: a few bytes
            // can claim millions of samples of one moment.
            let onwards = *time > *latest_ms && *time < around.end;
            if onwards {
                *latest_ms = *time;
            }
            onwards
        });
        let batch = Some(batch).filter(|batch| !batch.times_ms.is_empty());
        if backwards == 0 {
            return Ok(batch);
        }
        self.ready = batch;
        Err(document.fault(Damage::Backwards(backwards)))
    }
}

impl<D: Iterator<Item = Result<Document, FtdcError>>> Iterator for Onwards<D> {
    type Item = Result<Batch, FtdcError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(ready) = self.ready.take() {
            return Some(Ok(ready));
        }
        loop {
            let document = self.documents.next()?;
            if let Some(told) = document.and_then(|document| self.take(&document)).transpose() {
                return Some(told);
            }
        }
    }
}

impl Source {
    /// The chosen metrics between two moments (milliseconds since 1970), a batch for each chunk that has samples then.
    /// Samples are kept by their own times. Damage is an error in its place; the batches behind it still come.
    pub fn select(
        &self,
        selection: &Selection,
        stretch: Range<i64>,
    ) -> impl Iterator<Item = Result<Batch, FtdcError>> + use<> {
        let mut chooser = Chooser::new(self, selection.clone());
        let documents = self.documents_between(stretch.clone());
        documents.filter_map(move |document| {
            document.and_then(|document| chooser.batch_within(&document, &stretch)).transpose()
        })
    }

    /// As [`select`](Source::select), but times only go on. Chunks that do not fit the timeline are passed over: see
    /// [`Timeline::misplaced`]. Samples that do not fit within the others are left out, which is an error in its place, before what is
    /// left of their chunk.
    pub fn select_onwards(
        &self,
        selection: &Selection,
        stretch: Range<i64>,
        timeline: &Arc<Timeline>,
    ) -> impl Iterator<Item = Result<Batch, FtdcError>> + use<> {
        let chooser = Chooser::new(self, selection.clone());
        let documents = self.documents_along(timeline, &stretch);
        Onwards { documents, chooser, timeline: Arc::clone(timeline), stretch, latest_ms: i64::MIN, ready: None }
    }
}

/// Schemas whose chosen places are remembered: a server goes back and forth between a few.
const PLANS_KEPT: usize = 16;

struct Chooser {
    decoder: Decoder,
    selection: Selection,
    matrix: Matrix,
    /// Which places of a schema are chosen; the latest last.
    plans: Vec<(Arc<Schema>, Arc<[usize]>)>,
}

impl Chooser {
    fn new(source: &Source, selection: Selection) -> Self {
        Chooser { decoder: Decoder::new(source.limits()), selection, matrix: Matrix::default(), plans: Vec::new() }
    }

    /// The samples of a chunk that lie in a stretch of time, if it has any.
    fn batch_within(&mut self, document: &Document, stretch: &Range<i64>) -> Result<Option<Batch>, FtdcError> {
        let Some(mut batch) = self.batch(document)? else { return Ok(None) };
        batch.keep(|time| stretch.contains(time));
        Ok(Some(batch).filter(|batch| !batch.times_ms.is_empty()))
    }

    fn batch(&mut self, document: &Document) -> Result<Option<Batch>, FtdcError> {
        if document.kind() != DocumentKind::Chunk {
            return Ok(None);
        }
        let chunk = self.decoder.open(document)?;
        let schema = Arc::clone(chunk.schema());
        let places = match self.plans.iter().find(|(known, _)| Arc::ptr_eq(known, &schema)) {
            Some((_, places)) => Arc::clone(places),
            None => {
                let places: Arc<[usize]> = self.selection.places(&schema).into();
                if self.plans.len() == PLANS_KEPT {
                    self.plans.remove(0);
                }
                self.plans.push((Arc::clone(&schema), Arc::clone(&places)));
                places
            }
        };
        // The time comes first in mongod's documents, so it costs nothing beside the others.
        let wanted: Vec<usize> = schema.time().into_iter().chain(places.iter().copied()).collect();
        chunk.read_some_into(&wanted, &mut self.matrix).map_err(|damage| document.fault(damage))?;
        let mut columns: Vec<Vec<i64>> = (0..wanted.len()).map(|column| self.matrix.column(column).to_vec()).collect();
        let times_ms = match schema.time() {
            Some(_) => columns.remove(0),
            None => vec![chunk.at_ms(); chunk.samples()],
        };
        self.matrix.shrink();
        Ok(Some(Batch { reference: chunk.reference().to_vec(), schema, places, times_ms, columns }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, is) in [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("a.*", "a.b.c", true),
            ("*dirty*cache", "x dirty bytes in the cache", true),
            ("*dirty*cache", "x dirty bytes in the cache!", false),
            ("a*b*b", "ab", false),
            ("a*b*b", "abb", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("**", "anything", true),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_repeated_path_is_meant_by_its_plain_name() {
        let selection = Selection::of(["mounts./.free"]);
        assert!(selection.has("mounts./.free") && selection.has("mounts./.free#2"));
        assert!(!selection.has("mounts./.free#x"));
    }
}
