//! Writing what the recorder writes: samples gathered into chunks, metadata, changes of metadata. Fixtures are made with
//! it, and what it writes is what mongod would (`src/mongo/db/ftdc/compressor.cpp`), down to where a chunk ends.

use crate::bson::kind;
use crate::deltas::DeltaWriter;
use crate::schema::Walk;
use crate::{Builder, Damage, Limits};
use zlib_rs::{Deflate, DeflateFlush, Status};

/// Samples behind the first in a full chunk, as mongod counts them (`diagnosticDataCollectionSamplesPerChunk`).
pub const SAMPLES_PER_CHUNK: usize = 300;
/// zlib's own default, which mongod uses.
const LEVEL: i32 = 6;
const WINDOW_BITS: u8 = 15;

/// Gathers samples into chunks.
#[derive(Clone, Debug)]
pub struct Encoder {
    most: usize,
    limits: Limits,
    open: Option<Open>,
}

/// A chunk in the making.
#[derive(Clone, Debug)]
struct Open {
    at_ms: i64,
    reference: Vec<u8>,
    shape: Vec<u8>,
    first: usize,
    last: Vec<i64>,
    /// Sample after sample: what each metric grew by.
    deltas: Vec<i64>,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder::new(SAMPLES_PER_CHUNK)
    }
}

impl Encoder {
    /// Chunks of a first sample and at most so many more (at least one).
    pub fn new(samples_behind_first: usize) -> Self {
        Encoder { most: samples_behind_first.max(1), limits: Limits::default(), open: None }
    }

    /// Takes a sample, a BSON document. Returns a whole document for the file if a chunk ended: because it is full, or
    /// because this sample has other metrics than those before it.
    ///
    /// # Errors
    /// The sample is no BSON, or has more metrics than [`Limits`] allow. It is then not taken.
    pub fn add(&mut self, at_ms: i64, sample: &[u8]) -> Result<Option<Vec<u8>>, Damage> {
        let mut walk = Walk::default();
        walk.over(sample, &self.limits)?;
        let shape = loose(&walk.skeleton);
        let mut done = None;
        match &mut self.open {
            Some(open) if open.shape == shape => {
                open.deltas.extend(walk.first.iter().zip(&open.last).map(|(now, then)| now.wrapping_sub(*then)));
                open.last = walk.first;
                open.first += 1;
            }
            _ => {
                done = self.finish();
                let (last, deltas) = (walk.first, Vec::new());
                self.open = Some(Open { at_ms, reference: sample.to_vec(), shape, first: 0, last, deltas });
            }
        }
        if self.open.as_ref().is_some_and(|open| open.first == self.most) {
            done = self.finish();
        }
        Ok(done)
    }

    /// The chunk as it stands, as mongod writes it to `metrics.interim`.
    pub fn interim(&self) -> Option<Vec<u8>> {
        self.open.as_ref().map(Open::document)
    }

    /// Ends the chunk.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        self.open.take().map(|open| open.document())
    }
}

impl Open {
    fn document(&self) -> Vec<u8> {
        let metrics = self.last.len();
        let mut writer = DeltaWriter::default();
        for metric in 0..metrics {
            self.deltas.iter().skip(metric).step_by(metrics).for_each(|delta| writer.push(*delta));
        }
        chunk(self.at_ms, &self.reference, metrics as u32, self.first as u32, &writer.finish())
    }
}

/// A chunk's document from its parts. They are not checked against each other: tests of readers want them wrong, too.
pub fn chunk(at_ms: i64, reference: &[u8], metrics: u32, samples_behind_first: u32, deltas: &[u8]) -> Vec<u8> {
    let mut whole = reference.to_vec();
    whole.extend_from_slice(&metrics.to_le_bytes());
    whole.extend_from_slice(&samples_behind_first.to_le_bytes());
    whole.extend_from_slice(deltas);
    let mut data = (whole.len() as u32).to_le_bytes().to_vec();
    data.extend(deflated(&whole));
    Builder::new().date("_id", at_ms).int32("type", 1).binary("data", &data).finish()
}

/// The document of metadata that stands at the beginning of each file.
pub fn metadata(at_ms: i64, document: &[u8]) -> Vec<u8> {
    Builder::new().date("_id", at_ms).int32("type", 0).raw_document("doc", document).finish()
}

/// A change of metadata; `index` 0 means that `document` is whole.
pub fn metadata_delta(at_ms: i64, index: i32, document: &[u8]) -> Vec<u8> {
    Builder::new().date("_id", at_ms).int32("type", 2).int32("index", index).raw_document("doc", document).finish()
}

/// zlib. A buffer too small for what it holds is made larger, so this cannot fail.
fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut room = bytes.len() + bytes.len() / 1_000 + 128;
    loop {
        let mut out = vec![0; room];
        let mut deflate = Deflate::new(LEVEL, true, WINDOW_BITS);
        if deflate.compress(bytes, &mut out, DeflateFlush::Finish) == Ok(Status::StreamEnd) {
            out.truncate(usize::try_from(deflate.total_out()).unwrap_or(room));
            return out;
        }
        room *= 2;
    }
}

/// A skeleton in which all numbers look alike: mongod goes on with a chunk when an integer becomes a double.
fn loose(skeleton: &[u8]) -> Vec<u8> {
    let mut shape = Vec::with_capacity(skeleton.len());
    let mut rest = skeleton;
    while let Some((first, after)) = rest.split_first() {
        shape.push(match *first {
            kind::DOUBLE | kind::INT32 | kind::DECIMAL => kind::INT64,
            other => other,
        });
        rest = after;
        if *first != 0 {
            let end = memchr::memchr(0, after).map_or(after.len(), |end| end + 1);
            let (key, behind) = after.split_at(end);
            shape.extend_from_slice(key);
            rest = behind;
        }
    }
    shape
}
