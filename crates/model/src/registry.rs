//! Gives every series of one run a small number, so that a point costs a few bytes.

use crate::catalogue::Def;
use crate::{Series, SeriesId};
use std::collections::HashMap;
use std::fmt::{Display, Write};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The series known to one run, shared by its probes (which add) and its recorder (which reads what is new).
/// Holds at most [`Registry::LIMIT`] series, so that a server with endless short connections cannot fill memory.
#[derive(Debug, Default)]
pub struct Registry {
    inner: Mutex<Inner>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Inner {
    ids: HashMap<Arc<Series>, SeriesId>,
    list: Vec<Arc<Series>>,
    /// By the hash of a name and its labels as they were given: a first guess that is looked at before it is believed.
    guesses: HashMap<u64, SeriesId>,
    refused: u64,
}

impl Registry {
    /// The most series one run may have.
    pub const LIMIT: usize = 65_536;

    /// An empty registry.
    pub fn new() -> Self {
        Registry::default()
    }

    /// The number of this series, given now if it is new; none once the registry is full.
    pub fn intern(&self, series: Series) -> Option<SeriesId> {
        let mut inner = self.lock();
        if let Some(id) = inner.ids.get(&series) {
            return Some(*id);
        }
        if inner.list.len() >= Self::LIMIT {
            inner.refused += 1;
            return None;
        }
        let id = SeriesId(inner.list.len() as u32);
        let series = Arc::new(series);
        inner.ids.insert(Arc::clone(&series), id);
        inner.list.push(series);
        Some(id)
    }

    /// As [`Registry::intern`] of a definition's series, which is made only where it is not known yet: a probe asks for
    /// the same hundreds of series at every look.
    pub fn number<V: Display>(&self, def: &Def, labels: &[(&'static str, V)]) -> Option<SeriesId> {
        let hash = self.hash(def, labels);
        {
            let inner = self.lock();
            let guess = inner.guesses.get(&hash).and_then(|id| Some((*id, inner.list.get(id.0 as usize)?)));
            if let Some((id, series)) = guess
                && is_of(series, def, labels)
            {
                return Some(id);
            }
        }
        let id = self.intern(def.series(labels))?;
        let mut inner = self.lock();
        if inner.guesses.len() < Self::LIMIT {
            inner.guesses.entry(hash).or_insert(id);
        }
        Some(id)
    }

    fn hash<V: Display>(&self, def: &Def, labels: &[(&'static str, V)]) -> u64 {
        let mut hash = Hashing(self.hasher.build_hasher());
        hash.0.write(def.name.as_bytes());
        for (name, value) in labels {
            hash.0.write(name.as_bytes());
            hash.0.write_u8(b'=');
            // A hasher takes everything.
            let _never_fails = write!(hash, "{value}");
            hash.0.write_u8(b',');
        }
        hash.0.finish()
    }

    /// The series numbered `from` and above, in order.
    pub fn since(&self, from: usize) -> Vec<Arc<Series>> {
        self.lock().list.get(from..).map(<[_]>::to_vec).unwrap_or_default()
    }

    /// One series by its number.
    pub fn get(&self, id: SeriesId) -> Option<Arc<Series>> {
        self.lock().list.get(id.0 as usize).cloned()
    }

    /// How many series are known.
    pub fn len(&self) -> usize {
        self.lock().list.len()
    }

    /// Whether none is known yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often a new series was turned away because the registry was full.
    pub fn refused(&self) -> u64 {
        self.lock().refused
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while holding the lock leaves a list and a map that still agree: each is changed by one push.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes text as bytes to hash, without making it anew.
struct Hashing<H>(H);

impl<H: Hasher> Write for Hashing<H> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// Takes text as long as it is what is expected.
struct Expecting<'a>(&'a str);

impl Write for Expecting<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(std::fmt::Error)?;
        Ok(())
    }
}

/// Whether a known series is that of a definition and these labels.
fn is_of<V: Display>(series: &Series, def: &Def, labels: &[(&'static str, V)]) -> bool {
    let same = |(name, value): &(&'static str, V)| {
        series.labels.get(name).is_some_and(|known| {
            let mut rest = Expecting(known);
            write!(rest, "{value}").is_ok() && rest.0.is_empty()
        })
    };
    series.name == def.name && series.labels.iter().count() == labels.len() && labels.iter().all(same)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::catalogue;

    #[test]
    fn a_definition_with_labels_has_the_number_of_its_series() {
        let registry = Registry::new();
        let def = &catalogue::DISK_WRITES;
        let known = registry.intern(def.series(&[("dev", "8:0")])).unwrap();
        for _ in 0..2 {
            assert_eq!(registry.number(def, &[("dev", "8:0")]), Some(known));
            assert_ne!(registry.number(def, &[("dev", "8:00")]), Some(known));
            assert_ne!(registry.number(&catalogue::DISK_READS, &[("dev", "8:0")]), Some(known));
        }
        assert_eq!(registry.len(), 3);
        let twice = [("if", "eth0"), ("target", "host")];
        let turned = [twice[1], twice[0]];
        let sent = &catalogue::NET_SENT_BYTES;
        assert_eq!(registry.number(sent, &twice), registry.number(sent, &turned));
    }

    #[test]
    fn a_guess_that_is_another_series_is_not_believed() {
        let registry = Registry::new();
        let (one, other) = ([("dev", "8:0")], [("dev", "8:16")]);
        let def = &catalogue::DISK_WRITES;
        let first = registry.number(def, &one).unwrap();
        let hash = registry.hash(def, &other);
        registry.lock().guesses.insert(hash, first);
        assert_ne!(registry.number(def, &other), Some(first));
        assert_eq!(registry.get(registry.number(def, &other).unwrap()).unwrap().labels.get("dev"), Some("8:16"));
    }
}
