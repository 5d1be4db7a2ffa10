//! Which numbers a chunk has: the numeric leaves of its reference document, in document order.
//!
//! A reference document is walked once for its values and its *skeleton* (types and keys, nothing else). Chunks with
//! the same skeleton share one [`Schema`], so names are spelled out once per schema and not once per chunk.

use crate::bson::{elements, kind};
use crate::{Damage, Limits};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What type a metric had in the reference document. Every value is a 64-bit integer all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MetricKind {
    /// A double, truncated by the recorder: not a number is 0, what is too large is the largest integer.
    Double,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A decimal number, rounded to an integer.
    Decimal,
    /// A truth value, 0 or 1.
    Bool,
    /// Milliseconds since 1970.
    Date,
    /// The seconds since 1970 of a timestamp of the replication log.
    TimestampSeconds,
    /// The counter of a timestamp of the replication log.
    TimestampIncrement,
}

/// One number of every sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Keys from the outside in, joined by dots, such as `serverStatus.wiredTiger.cache.bytes currently in the cache`.
    /// A path that is there again gets `#2`, `#3` and so on at its end; a timestamp's counter gets `.inc`.
    pub path: String,
    /// Its type in the reference document.
    pub kind: MetricKind,
}

/// The metrics of a chunk, in the order in which they are stored.
#[derive(Debug)]
pub struct Schema {
    metrics: Vec<Metric>,
    /// Places of the metrics, by path; made when one is first looked up.
    by_path: OnceLock<Vec<u32>>,
    time: Option<usize>,
    skeleton: Vec<u8>,
    /// What it takes in memory, nearly.
    bytes: usize,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.skeleton == other.skeleton
    }
}

impl Eq for Schema {}

impl Schema {
    /// Every metric, in order.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The place of a metric.
    pub fn position(&self, path: &str) -> Option<usize> {
        let path_at = |place: &u32| self.metrics.get(*place as usize).map_or("", |metric| metric.path.as_str());
        let by_path = self.by_path.get_or_init(|| {
            let mut places: Vec<u32> = (0..self.metrics.len() as u32).collect();
            places.sort_unstable_by(|one, other| path_at(one).cmp(path_at(other)));
            places
        });
        let found = by_path.binary_search_by(|place| path_at(place).cmp(path)).ok()?;
        by_path.get(found).map(|place| *place as usize)
    }

    /// The place of the time at which a sample was begun (`start`), which every mongod writes.
    pub fn time(&self) -> Option<usize> {
        self.time
    }

    fn of_skeleton(skeleton: &[u8], limits: &Limits) -> Result<Schema, Damage> {
        let mut metrics = Vec::new();
        let mut name_bytes = 0;
        let mut prefix = String::new();
        let mut ends = Vec::new();
        let mut rest = skeleton;
        while let Some((kind, after)) = rest.split_first() {
            if *kind == 0 {
                prefix.truncate(ends.pop().unwrap_or(0));
                rest = after;
                continue;
            }
            let end = memchr::memchr(0, after).unwrap_or(after.len());
            let key = String::from_utf8_lossy(&after[..end]);
            rest = after.get(end + 1..).unwrap_or_default();
            if matches!(*kind, kind::DOCUMENT | kind::ARRAY) {
                ends.push(prefix.len());
                prefix.push_str(&key);
                prefix.push('.');
                continue;
            }
            for kind in kinds(*kind) {
                let suffix = if *kind == MetricKind::TimestampIncrement { ".inc" } else { "" };
                let path = [&prefix, &*key, suffix].concat();
                name_bytes += path.len();
                if name_bytes > limits.name_bytes {
                    let (claimed, limit) = (name_bytes as u64, limits.name_bytes as u64);
                    return Err(Damage::TooLarge { what: "bytes of metrics' names", claimed, limit });
                }
                metrics.push(Metric { path, kind: *kind });
            }
        }
        for (place, path) in repeated(&metrics) {
            metrics[place].path = path;
        }
        let time = metrics.iter().position(|metric| metric.path == "start" && metric.kind == MetricKind::Date);
        let bytes = name_bytes + skeleton.len() + metrics.len() * (size_of::<Metric>() + size_of::<u32>());
        Ok(Schema { metrics, by_path: OnceLock::new(), time, skeleton: skeleton.to_vec(), bytes })
    }
}

/// New names for metrics whose path was there before: the path with the next number that no other metric has.
fn repeated(metrics: &[Metric]) -> Vec<(usize, String)> {
    // How often each path was there, or the last number given to it: searching from 2 each time would be quadratic.
    let mut known: HashMap<&str, usize> = HashMap::with_capacity(metrics.len());
    let again = metrics.iter().enumerate().filter(|(_, metric)| known.insert(&metric.path, 1).is_some());
    let again: Vec<usize> = again.map(|(place, _)| place).collect();
    let mut given = HashSet::new();
    let mut renamed = Vec::with_capacity(again.len());
    for place in again {
        let path = metrics[place].path.as_str();
        let mut number = known.get(path).copied().unwrap_or(1);
        let name = loop {
            number += 1;
            let name = format!("{path}#{number}");
            if !known.contains_key(name.as_str()) && !given.contains(&name) {
                break name;
            }
        };
        known.insert(path, number);
        given.insert(name.clone());
        renamed.push((place, name));
    }
    renamed
}

/// The metrics that an element of this type gives.
fn kinds(kind: u8) -> &'static [MetricKind] {
    match kind {
        kind::DOUBLE => &[MetricKind::Double],
        kind::INT32 => &[MetricKind::Int32],
        kind::INT64 => &[MetricKind::Int64],
        kind::DECIMAL => &[MetricKind::Decimal],
        kind::BOOL => &[MetricKind::Bool],
        kind::DATE => &[MetricKind::Date],
        kind::TIMESTAMP => &[MetricKind::TimestampSeconds, MetricKind::TimestampIncrement],
        _ => &[],
    }
}

/// What a walk over a reference document finds. Kept and used again, so that a chunk costs no allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    /// Type and key of each element that is or contains a metric; a zero where a document ends.
    pub(crate) skeleton: Vec<u8>,
    /// Each metric's value in the reference document.
    pub(crate) first: Vec<i64>,
}

impl Walk {
    pub(crate) fn over(&mut self, document: &[u8], limits: &Limits) -> Result<(), Damage> {
        self.skeleton.clear();
        self.first.clear();
        self.document(document, limits.depth)?;
        if self.first.len() > limits.metrics {
            let (claimed, limit) = (self.first.len() as u64, limits.metrics as u64);
            return Err(Damage::TooLarge { what: "metrics in a document", claimed, limit });
        }
        Ok(())
    }

    fn document(&mut self, document: &[u8], depth: usize) -> Result<(), Damage> {
        for element in elements(document)? {
            let element = element?;
            let inside = element.is_document();
            if !inside && kinds(element.kind).is_empty() {
                continue;
            }
            self.skeleton.push(element.kind);
            self.skeleton.extend_from_slice(element.key);
            self.skeleton.push(0);
            if inside {
                if depth == 0 {
                    return Err(Damage::Bson("documents lie too deep within one another"));
                }
                self.document(element.value, depth - 1)?;
                self.skeleton.push(0);
            } else {
                self.value(element.kind, element.value);
            }
        }
        Ok(())
    }

    /// As mongod extracts it: `extractMetricsFromDocument` in `src/mongo/db/ftdc/util.cpp`.
    fn value(&mut self, kind: u8, value: &[u8]) {
        let eight = || value.first_chunk::<8>().copied().unwrap_or_default();
        match kind {
            // Rust's cast does what the recorder does: not a number is 0, and the ends of the range hold.
            kind::DOUBLE => self.first.push(f64::from_le_bytes(eight()) as i64),
            kind::INT32 => {
                let four = value.first_chunk::<4>().copied().unwrap_or_default();
                self.first.push(i64::from(i32::from_le_bytes(four)));
            }
            kind::INT64 | kind::DATE => self.first.push(i64::from_le_bytes(eight())),
            kind::BOOL => self.first.push(i64::from(value.first().is_some_and(|byte| *byte != 0))),
            kind::TIMESTAMP => {
                let both = u64::from_le_bytes(eight());
                self.first.push((both >> 32) as i64);
                self.first.push((both & u64::from(u32::MAX)) as i64);
            }
            kind::DECIMAL => {
                let bits = value.first_chunk::<16>().copied().unwrap_or_default();
                self.first.push(crate::decimal::to_i64(u128::from_le_bytes(bits)));
            }
            _ => {}
        }
    }
}

/// Schemas met lately, shared by every decoder of one reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schemas {
    recent: Arc<Mutex<Vec<Arc<Schema>>>>,
}

/// Bytes of schemas that are kept. One of mongod's has about half a MiB; a server alternates between a handful.
const KEPT_BYTES: usize = 8 << 20;

impl Schemas {
    /// The schema of a walk: an old one where the skeleton is the same.
    pub(crate) fn of(&self, walk: &Walk, limits: &Limits) -> Result<Arc<Schema>, Damage> {
        if let Some(known) = self.known(&walk.skeleton) {
            return Ok(known);
        }
        let schema = Arc::new(Schema::of_skeleton(&walk.skeleton, limits)?);
        // Another thread may have met it meanwhile; all must then share the one that was first.
        if let Some(known) = self.known(&walk.skeleton) {
            return Ok(known);
        }
        let mut recent = self.lock();
        recent.insert(0, Arc::clone(&schema));
        let mut bytes = 0;
        recent.retain(|schema| {
            bytes += schema.bytes;
            bytes <= KEPT_BYTES
        });
        Ok(schema)
    }

    fn known(&self, skeleton: &[u8]) -> Option<Arc<Schema>> {
        let mut recent = self.lock();
        let place = recent.iter().position(|schema| schema.skeleton == skeleton)?;
        recent[..=place].rotate_right(1);
        recent.first().cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Schema>>> {
        // Nothing in here can be left half done.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Builder;

    fn schema(document: &[u8]) -> (Schema, Vec<i64>) {
        let mut walk = Walk::default();
        walk.over(document, &Limits::default()).unwrap();
        (Schema::of_skeleton(&walk.skeleton, &Limits::default()).unwrap(), walk.first)
    }

    #[test]
    fn every_numeric_leaf_is_a_metric_and_nothing_else() {
        let document = Builder::new()
            .date("start", 1_000)
            .string("host", "a")
            .document("s", |s| s.double("d", -2.9).int32("i", -3).int64("l", 4).bool("b", true).null("n"))
            .array("m", |m| m.int32("0", 7).string("1", "x").document("2", |d| d.int32("y", 8)))
            .timestamp("ts", 9, 10)
            .decimal("dec", 0x3040_0000_0000_0000_0000_0000_0000_000b)
            .finish();
        let (schema, first) = schema(&document);
        let paths: Vec<_> = schema.metrics().iter().map(|metric| metric.path.as_str()).collect();
        assert_eq!(paths, ["start", "s.d", "s.i", "s.l", "s.b", "m.0", "m.2.y", "ts", "ts.inc", "dec"]);
        assert_eq!(first, [1_000, -2, -3, 4, 1, 7, 8, 9, 10, 11]);
        assert_eq!((schema.time(), schema.position("m.2.y")), (Some(0), Some(6)));
    }

    #[test]
    fn repeated_keys_stay_apart() {
        let mount = |b: Builder| b.document("/", |d| d.int64("free", 1));
        let document = Builder::new().document("mounts", |m| mount(mount(mount(m)))).finish();
        let (schema, _) = schema(&document);
        let paths: Vec<_> = schema.metrics().iter().map(|metric| metric.path.as_str()).collect();
        assert_eq!(paths, ["mounts./.free", "mounts./.free#2", "mounts./.free#3"]);
    }

    #[test]
    fn odd_doubles_become_what_the_recorder_makes_of_them() {
        let document = Builder::new().double("n", f64::NAN).double("h", 1e300).double("l", f64::NEG_INFINITY).finish();
        assert_eq!(schema(&document).1, [0, i64::MAX, i64::MIN]);
    }

    #[test]
    fn names_that_would_fill_memory_are_refused() {
        // A hundred thousand metrics below a key of a megabyte would be a hundred gigabytes of names.
        let long = "k".repeat(1 << 20);
        let leaves = |b: Builder| (0..50_000).fold(b, |b, _| b.bool("", true));
        let document = Builder::new().document(&long, leaves).finish();
        let mut walk = Walk::default();
        walk.over(&document, &Limits::default()).unwrap();
        let refused = Schema::of_skeleton(&walk.skeleton, &Limits::default()).unwrap_err();
        assert!(matches!(refused, Damage::TooLarge { .. }), "{refused}");
    }

    #[test]
    fn the_same_skeleton_is_the_same_schema() {
        let schemas = Schemas::default();
        let mut walk = Walk::default();
        let mut of = |document: Vec<u8>| {
            walk.over(&document, &Limits::default()).unwrap();
            schemas.of(&walk, &Limits::default()).unwrap()
        };
        let one = of(Builder::new().int32("a", 1).finish());
        let other = of(Builder::new().int64("a", 1).finish());
        let again = of(Builder::new().int32("a", 2).finish());
        assert!(Arc::ptr_eq(&one, &again) && !Arc::ptr_eq(&one, &other));
    }
}
