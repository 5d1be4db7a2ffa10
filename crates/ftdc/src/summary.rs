//! What a recording holds, in one pass: its span, its gaps, its damage, and what chosen metrics did.

use crate::json::time_text;
use crate::{
    Chunk, Decoder, Document, DocumentKind, Fault, FtdcError, Matrix, Metadata, MetricKind, Selection, Source,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ops::Range;

/// Samples come once a second by default; this much later is no jitter.
pub const GAP_MS: i64 = 10_000;
/// More gaps and faults than this are counted, but not kept.
const MOST_KEPT: usize = 1_000;

/// What a recording holds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Files that were looked at.
    pub files: usize,
    /// Bytes of documents that were read.
    pub bytes: u64,
    /// Bytes of chunks once inflated.
    pub inflated_bytes: u64,
    /// Chunks that were read.
    pub chunks: u64,
    /// Documents of metadata and of changes of it.
    pub metadata_documents: u64,
    /// Documents of a type not known here.
    pub other_documents: u64,
    /// Samples in the stretch of time.
    pub samples: u64,
    /// How often metrics came or went from one chunk to the next.
    pub schema_changes: u64,
    /// Fewest and most metrics in a chunk.
    pub metrics: Option<(usize, usize)>,
    /// Time of the first and the last sample, in milliseconds since 1970.
    pub span_ms: Option<(i64, i64)>,
    /// Where no sample was taken for more than [`GAP_MS`]: the last before and the first after.
    pub gaps_ms: Vec<(i64, i64)>,
    /// How many gaps there are.
    pub gaps: u64,
    /// How often a sample's time is before that of the one before it: the clock was set back.
    pub steps_back: u64,
    /// What could not be read.
    pub faults: Vec<Fault>,
    /// How many faults there are.
    pub fault_count: u64,
    /// The chosen metrics.
    pub chosen: Vec<MetricSummary>,
    /// What the server said of itself at last.
    pub metadata: Metadata,
}

/// What one metric did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSummary {
    /// Its path.
    pub path: String,
    /// Its type where it was first met.
    pub kind: MetricKind,
    /// Samples that have it.
    pub samples: u64,
    /// Its first value.
    pub first: i64,
    /// Its last value, in the order in which files are read.
    pub last: i64,
    /// Its smallest value.
    pub least: i64,
    /// Its largest value.
    pub most: i64,
}

impl Source {
    /// Sums up a stretch of time (milliseconds since 1970), with what the chosen metrics did in it. Only a system that
    /// refuses is an error; damage is part of the summary.
    pub fn summarise(&self, chosen: &Selection, stretch: Range<i64>) -> Result<Summary, FtdcError> {
        let mut gathering = Gathering::new(self, chosen, stretch.clone());
        for document in self.documents_between(stretch) {
            match document.and_then(|document| gathering.take(&document)) {
                Err(FtdcError::Damaged(fault)) => gathering.fault(fault),
                other => other?,
            }
        }
        Ok(Summary { files: self.files().len(), ..gathering.summary })
    }
}

struct Gathering<'s> {
    decoder: Decoder,
    matrix: Matrix,
    chosen: &'s Selection,
    stretch: Range<i64>,
    by_path: HashMap<String, usize>,
    last_ms: Option<i64>,
    last_schema: Option<std::sync::Arc<crate::Schema>>,
    summary: Summary,
}

impl<'s> Gathering<'s> {
    fn new(source: &Source, chosen: &'s Selection, stretch: Range<i64>) -> Self {
        Gathering {
            decoder: Decoder::new(source.limits()),
            matrix: Matrix::default(),
            chosen,
            stretch,
            by_path: HashMap::new(),
            last_ms: None,
            last_schema: None,
            summary: Summary::default(),
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.summary.fault_count += 1;
        if self.summary.faults.len() < MOST_KEPT {
            self.summary.faults.push(fault);
        }
    }

    fn take(&mut self, document: &Document) -> Result<(), FtdcError> {
        match document.kind() {
            DocumentKind::Chunk => {
                // Taken out, so that the chunk may borrow from the decoder while the rest is written to.
                let mut decoder = std::mem::take(&mut self.decoder);
                let taken = decoder.open(document).and_then(|chunk| self.chunk(document, &chunk));
                self.decoder = decoder;
                taken
            }
            DocumentKind::Metadata | DocumentKind::MetadataDelta => {
                self.summary.bytes += document.bytes().len() as u64;
                self.summary.metadata_documents += 1;
                self.summary.metadata.take(document).map_err(|damage| document.fault(damage))
            }
            DocumentKind::Other(_) => {
                self.summary.other_documents += 1;
                Ok(())
            }
        }
    }

    fn chunk(&mut self, document: &Document, chunk: &Chunk<'_>) -> Result<(), FtdcError> {
        let schema = chunk.schema();
        let places = self.chosen.places(schema);
        let times = chunk.times().map_err(|damage| document.fault(damage))?;
        chunk.read_some_into(&places, &mut self.matrix).map_err(|damage| document.fault(damage))?;
        let kept: Vec<usize> = (0..times.len()).filter(|row| self.stretch.contains(&times[*row])).collect();
        if kept.is_empty() {
            return Ok(());
        }
        let summary = &mut self.summary;
        summary.bytes += document.bytes().len() as u64;
        summary.inflated_bytes += chunk.inflated_bytes() as u64;
        summary.chunks += 1;
        summary.samples += kept.len() as u64;
        let count = schema.metrics().len();
        let (fewest, most) = summary.metrics.unwrap_or((count, count));
        summary.metrics = Some((fewest.min(count), most.max(count)));
        // A metric whose type changed is there as before.
        let names =
            |schema: &crate::Schema| schema.metrics().iter().map(|metric| metric.path.clone()).collect::<Vec<_>>();
        let others = |last: std::sync::Arc<crate::Schema>| last != *schema && names(&last) != names(schema);
        if self.last_schema.replace(schema.clone()).is_some_and(others) {
            summary.schema_changes += 1;
        }
        kept.iter().for_each(|row| self.time(times[*row]));
        for (column, place) in places.iter().enumerate() {
            let metric = &schema.metrics()[*place];
            let values = kept.iter().filter_map(|row| self.matrix.value(column, *row));
            let chosen = &mut self.summary.chosen;
            let known = *self.by_path.entry(metric.path.clone()).or_insert(chosen.len());
            for value in values {
                match chosen.get_mut(known) {
                    Some(known) => known.add(value),
                    None => chosen.push(MetricSummary::of(&metric.path, metric.kind, value)),
                }
            }
        }
        Ok(())
    }

    fn time(&mut self, now: i64) {
        let summary = &mut self.summary;
        let (first, last) = summary.span_ms.unwrap_or((now, now));
        summary.span_ms = Some((first.min(now), last.max(now)));
        if let Some(before) = self.last_ms.replace(now) {
            if now < before {
                summary.steps_back += 1;
            } else if now.saturating_sub(before) > GAP_MS {
                summary.gaps += 1;
                if summary.gaps_ms.len() < MOST_KEPT {
                    summary.gaps_ms.push((before, now));
                }
            }
        }
    }
}

impl MetricSummary {
    fn of(path: &str, kind: MetricKind, value: i64) -> Self {
        MetricSummary { path: path.to_owned(), kind, samples: 1, first: value, last: value, least: value, most: value }
    }

    fn add(&mut self, value: i64) {
        self.samples += 1;
        self.last = value;
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }
}

impl Summary {
    /// The same for programs.
    pub fn to_json(&self) -> Value {
        let between = |(from, to): &(i64, i64)| json!({ "from": time_text(*from), "to": time_text(*to) });
        let fault = |fault: &Fault| {
            json!({
                "file": fault.file.display().to_string(),
                "offset": fault.offset,
                "lost_bytes": fault.lost_bytes,
                "damage": fault.damage.to_string(),
            })
        };
        let metric = |metric: &MetricSummary| {
            json!({
                "path": metric.path,
                "kind": format!("{:?}", metric.kind),
                "samples": metric.samples,
                "first": metric.first,
                "last": metric.last,
                "least": metric.least,
                "most": metric.most,
            })
        };
        json!({
            "version": self.metadata.version(),
            "host": self.metadata.host(),
            "cores": self.metadata.cores(),
            "span": self.span_ms.as_ref().map(between),
            "files": self.files,
            "bytes": self.bytes,
            "inflated_bytes": self.inflated_bytes,
            "chunks": self.chunks,
            "metadata_documents": self.metadata_documents,
            "other_documents": self.other_documents,
            "samples": self.samples,
            "metrics_least": self.metrics.map(|metrics| metrics.0),
            "metrics_most": self.metrics.map(|metrics| metrics.1),
            "schema_changes": self.schema_changes,
            "gaps": self.gaps,
            "longest_gaps": self.longest_gaps(10).iter().map(between).collect::<Vec<_>>(),
            "clock_steps_back": self.steps_back,
            "fault_count": self.fault_count,
            "faults": self.faults.iter().map(fault).collect::<Vec<_>>(),
            "chosen": self.chosen.iter().map(metric).collect::<Vec<_>>(),
        })
    }

    /// The longest gaps, longest first.
    pub fn longest_gaps(&self, most: usize) -> Vec<(i64, i64)> {
        let mut gaps = self.gaps_ms.clone();
        gaps.sort_by_key(|(from, to)| std::cmp::Reverse(to.saturating_sub(*from)));
        gaps.truncate(most);
        gaps
    }
}
