//! A chunk: inflated, its reference document walked, its deltas ready to be read as columns.

use crate::deltas::Deltas;
use crate::schema::{Schemas, Walk};
use crate::{Damage, Document, FtdcError, Limits, Schema, bson};
use std::sync::Arc;
use zlib_rs::{Inflate, InflateFlush, Status};

/// Bytes that deflate can make of one: 258 from two bits (zlib's technical notes give 1032 to 1).
const MOST_INFLATION: usize = 1_032;
/// Buffers larger than this are given back after a chunk.
const KEPT_BYTES: usize = 4 << 20;
/// zlib's largest window, which the stream's own header may only make smaller.
const WINDOW_BITS: u8 = 15;

/// Opens chunks. Keeps its buffers from one chunk to the next; a clone has buffers of its own and shares the schemas.
pub struct Decoder {
    limits: Limits,
    inflate: Inflate,
    fresh: bool,
    inflated: Vec<u8>,
    walk: Walk,
    schemas: Schemas,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new(Limits::default())
    }
}

impl Clone for Decoder {
    fn clone(&self) -> Self {
        Decoder { schemas: self.schemas.clone(), ..Decoder::new(self.limits) }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder with these limits.
    pub fn new(limits: Limits) -> Self {
        Decoder {
            limits,
            inflate: Inflate::new(true, WINDOW_BITS),
            fresh: true,
            inflated: Vec::new(),
            walk: Walk::default(),
            schemas: Schemas::default(),
        }
    }

    /// Opens a document of kind [`Chunk`](crate::DocumentKind::Chunk). Its values are not read yet.
    pub fn open(&mut self, document: &Document) -> Result<Chunk<'_>, FtdcError> {
        self.open_data(document.at_ms(), document.body()).map_err(|damage| document.fault(damage))
    }

    /// Opens the data of a chunk: four bytes of length, then zlib.
    pub fn open_data(&mut self, at_ms: i64, data: &[u8]) -> Result<Chunk<'_>, Damage> {
        let length = self.inflate(data)?;
        let inflated = self.inflated.get(..length).unwrap_or_default();
        let end = bson::length(inflated).ok_or(Damage::Bson("no reference document"))?;
        let (reference, rest) =
            inflated.split_at_checked(end).ok_or(Damage::Bson("the reference document is cut short"))?;
        let (counts, deltas) = rest.split_first_chunk::<8>().ok_or(Damage::Bson("no counts behind the reference"))?;
        let [metrics, samples] = [&counts[..4], &counts[4..]]
            .map(|four| four.first_chunk::<4>().copied().map(u32::from_le_bytes).unwrap_or_default());
        self.walk.over(reference, &self.limits)?;
        if self.walk.first.len() != metrics as usize {
            return Err(Damage::MetricCount { claimed: metrics, found: self.walk.first.len() });
        }
        let samples = samples as usize + 1;
        let values = (samples as u64).saturating_mul(u64::from(metrics.max(1)));
        if values > self.limits.values as u64 {
            let limit = self.limits.values as u64;
            return Err(Damage::TooLarge { what: "values in a chunk", claimed: values, limit });
        }
        let schema = self.schemas.of(&self.walk, &self.limits)?;
        Ok(Chunk { at_ms, schema, reference, first: &self.walk.first, deltas, samples, inflated_bytes: length })
    }

    /// Inflates into the buffer; says how many bytes of it are the chunk's.
    fn inflate(&mut self, data: &[u8]) -> Result<usize, Damage> {
        let (claimed, data) = data.split_first_chunk::<4>().ok_or(Damage::Inflate("there is none"))?;
        let claimed = u32::from_le_bytes(*claimed) as usize;
        if claimed > self.limits.inflated_bytes {
            let limit = self.limits.inflated_bytes as u64;
            return Err(Damage::TooLarge { what: "bytes of a chunk inflated", claimed: claimed as u64, limit });
        }
        // The claim is not believed further than the data could possibly inflate.
        let room = claimed.min(data.len().saturating_mul(MOST_INFLATION));
        if self.inflated.len() > KEPT_BYTES && room <= KEPT_BYTES {
            self.inflated = Vec::new();
        }
        if self.inflated.len() < room {
            self.inflated.resize(room, 0);
        }
        if !self.fresh {
            self.inflate.reset(true);
        }
        self.fresh = false;
        let into = self.inflated.get_mut(..room).unwrap_or_default();
        match self.inflate.decompress(data, into, InflateFlush::Finish) {
            Ok(Status::StreamEnd) => Ok(usize::try_from(self.inflate.total_out()).unwrap_or(0).min(room)),
            Ok(_) if self.inflate.total_out() as usize == room => Err(Damage::Inflate("it is longer than it says")),
            Ok(_) => Err(Damage::Inflate("it is cut short")),
            Err(error) => Err(Damage::Inflate(error.as_str())),
        }
    }
}

/// A chunk of samples, opened. Reading it decodes its values.
#[derive(Debug)]
pub struct Chunk<'d> {
    at_ms: i64,
    schema: Arc<Schema>,
    reference: &'d [u8],
    first: &'d [i64],
    deltas: &'d [u8],
    samples: usize,
    inflated_bytes: usize,
}

impl<'d> Chunk<'d> {
    /// The time of its document, in milliseconds since 1970.
    pub fn at_ms(&self) -> i64 {
        self.at_ms
    }

    /// Its metrics. Chunks of one reading with the same metrics share one schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Samples in it; at least one.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Values in it: metrics times samples.
    pub fn values(&self) -> usize {
        self.samples * self.first.len()
    }

    /// Bytes of it once inflated.
    pub fn inflated_bytes(&self) -> usize {
        self.inflated_bytes
    }

    /// The first sample as it was recorded: the only one whose strings and doubles are kept whole.
    pub fn reference(&self) -> &'d [u8] {
        self.reference
    }

    /// The first sample's values.
    pub fn first(&self) -> &'d [i64] {
        self.first
    }

    /// Calls `each` with every metric's place in the schema and its values, one for each sample. Only one metric's
    /// values are in memory at a time. Metrics before damage have been passed on when the damage is returned.
    pub fn for_each_column(&self, mut each: impl FnMut(usize, &[i64])) -> Result<(), Damage> {
        let mut column = vec![0; self.samples];
        let mut deltas = Deltas::new(self.deltas);
        for (metric, first) in self.first.iter().enumerate() {
            deltas.column(*first, &mut column).map_err(|_| self.broken(metric))?;
            each(metric, &column);
        }
        Ok(())
    }

    /// Decodes every value into `matrix`.
    pub fn read_into(&self, matrix: &mut Matrix) -> Result<(), Damage> {
        let mut deltas = Deltas::new(self.deltas);
        let columns = matrix.shape(self.first.len(), self.samples);
        for ((metric, first), column) in self.first.iter().enumerate().zip(columns) {
            deltas.column(*first, column).map_err(|_| self.broken(metric))?;
        }
        Ok(())
    }

    /// Decodes only the metrics at these places, in this order: column `n` of `matrix` is metric `places[n]`. The
    /// others are passed over without being put together, and nothing behind the last wanted one is looked at.
    pub fn read_some_into(&self, places: &[usize], matrix: &mut Matrix) -> Result<(), Damage> {
        let mut order: Vec<(usize, usize)> = places.iter().copied().zip(0..).collect();
        order.sort_unstable();
        drop(matrix.shape(places.len(), self.samples));
        let mut deltas = Deltas::new(self.deltas);
        let mut next = 0;
        let mut last: Option<(usize, usize)> = None;
        for (metric, column) in order {
            if let Some((same, of)) = last.filter(|(same, _)| *same == metric) {
                matrix.copy_column(of, column);
                last = Some((same, of));
                continue;
            }
            let first = *self.first.get(metric).ok_or_else(|| self.broken(metric))?;
            for skipped in next..metric {
                deltas.skip(self.samples - 1).map_err(|_| self.broken(skipped))?;
            }
            deltas.column(first, matrix.column_mut(column)).map_err(|_| self.broken(metric))?;
            next = metric + 1;
            last = Some((metric, column));
        }
        Ok(())
    }

    /// When each sample was begun, in milliseconds since 1970: metric `start`. A chunk without one (none of mongod's)
    /// has only the time of its document, which then stands for every sample.
    pub fn times(&self) -> Result<Vec<i64>, Damage> {
        let Some(place) = self.schema.time() else { return Ok(vec![self.at_ms; self.samples]) };
        let mut matrix = Matrix::default();
        self.read_some_into(&[place], &mut matrix)?;
        Ok(matrix.column(0).to_vec())
    }

    fn broken(&self, metric: usize) -> Damage {
        Damage::Deltas { metric, of: self.first.len() }
    }
}

/// Values of a chunk, metric after metric. Kept and filled again, so that a chunk costs no allocation.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    /// At least `columns * samples`; what is behind them is left from a larger chunk.
    values: Vec<i64>,
    columns: usize,
    samples: usize,
}

impl Matrix {
    /// How many metrics it holds.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many samples it holds.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// A metric's values; none beyond the last.
    pub fn column(&self, place: usize) -> &[i64] {
        if place >= self.columns {
            return &[];
        }
        let start = place.saturating_mul(self.samples);
        self.values.get(start..start.saturating_add(self.samples)).unwrap_or_default()
    }

    /// A metric's value in a sample.
    pub fn value(&self, place: usize, sample: usize) -> Option<i64> {
        self.column(place).get(sample).copied()
    }

    /// A sample's values, metric after metric.
    pub fn row(&self, sample: usize) -> impl Iterator<Item = i64> + '_ {
        (0..self.columns).filter_map(move |place| self.value(place, sample))
    }

    /// Gives memory back if there is much of it.
    pub fn shrink(&mut self) {
        if self.values.len() * size_of::<i64>() > 2 * KEPT_BYTES {
            *self = Matrix::default();
        }
    }

    /// Values that it has memory for.
    pub(crate) fn room(&self) -> usize {
        self.values.len()
    }

    /// Makes room for so many columns of so many samples, and gives them, with whatever was there before.
    pub(crate) fn shape(&mut self, columns: usize, samples: usize) -> impl Iterator<Item = &mut [i64]> {
        (self.columns, self.samples) = (columns, samples);
        let need = columns.saturating_mul(samples);
        if self.values.len() < need {
            // What was there gives way first, and there is no more than is needed.
            self.values = Vec::new();
            self.values = vec![0; need];
        }
        self.values.chunks_exact_mut(samples.max(1)).take(columns)
    }

    fn column_mut(&mut self, place: usize) -> &mut [i64] {
        let start = place * self.samples;
        self.values.get_mut(start..start + self.samples).unwrap_or_default()
    }

    fn copy_column(&mut self, from: usize, to: usize) {
        let start = from * self.samples;
        self.values.copy_within(start..start + self.samples, to * self.samples);
    }
}
