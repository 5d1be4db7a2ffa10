//! Gives every series of one run a small number, so that a point costs a few bytes.

use crate::catalogue::Def;
use crate::{Series, SeriesId};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Write};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The series known to one run, shared by its probes (which add) and its recorder (which reads what is new).
/// Holds at most [`Registry::LIMIT`] series, so that a server with endless short connections cannot fill memory: where it
/// is full, a new one takes the place of the one that has been gone for longest ([`Registry::gone`]). No number is given twice.
#[derive(Debug, Default)]
pub struct Registry {
    inner: Mutex<Inner>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Inner {
    ids: HashMap<Arc<Series>, SeriesId>,
    known: HashMap<SeriesId, Known>,
    /// By the hash of a name and its labels as they were given: a first guess that is looked at before it is believed.
    guesses: HashMap<u64, SeriesId>,
    /// Those whose process or connection has ended, in that order.
    gone: BTreeMap<u64, SeriesId>,
    turn: u64,
    next: u32,
    refused: u64,
}

#[derive(Debug)]
struct Known {
    series: Arc<Series>,
    /// Its place among the guesses, and among those that are gone.
    guess: Option<u64>,
    gone: Option<u64>,
}

impl Inner {
    /// The number of a series that is there, and by being asked for is there again.
    fn known(&mut self, id: SeriesId) -> SeriesId {
        if let Some(turn) = self.known.get_mut(&id).and_then(|known| known.gone.take()) {
            self.gone.remove(&turn);
        }
        id
    }

    /// Whether there is room for one more, which one that is gone may have to make.
    fn has_room(&mut self) -> bool {
        if self.known.len() < Registry::LIMIT {
            return true;
        }
        let Some((_, oldest)) = self.gone.pop_first() else { return false };
        if let Some(known) = self.known.remove(&oldest) {
            self.ids.remove(&known.series);
            known.guess.map(|guess| self.guesses.remove(&guess));
        }
        true
    }

    fn intern(&mut self, series: Series) -> Option<SeriesId> {
        if let Some(id) = self.ids.get(&series) {
            let id = *id;
            return Some(self.known(id));
        }
        if self.next == u32::MAX || !self.has_room() {
            self.refused += 1;
            return None;
        }
        let id = SeriesId(self.next);
        self.next += 1;
        let series = Arc::new(series);
        self.ids.insert(Arc::clone(&series), id);
        self.known.insert(id, Known { series, guess: None, gone: None });
        Some(id)
    }
}

impl Registry {
    /// The most series that are known at once.
    pub const LIMIT: usize = 65_536;

    /// An empty registry.
    pub fn new() -> Self {
        Registry::default()
    }

    /// The number of this series, given now if it is new; none once the registry is full of series that are not gone.
    pub fn intern(&self, series: Series) -> Option<SeriesId> {
        self.lock().intern(series)
    }

    /// As [`Registry::intern`] of a definition's series, which is made only where it is not known yet: a probe asks for
    /// the same hundreds of series at every look.
    pub fn number<V: Display>(&self, def: &Def, labels: &[(&'static str, V)]) -> Option<SeriesId> {
        let hash = self.hash(def, labels);
        let mut inner = self.lock();
        let guess = inner.guesses.get(&hash).copied();
        if let Some(id) = guess
            && inner.known.get(&id).is_some_and(|known| is_of(&known.series, def, labels))
        {
            return Some(inner.known(id));
        }
        let id = inner.intern(def.series(labels))?;
        if guess.is_none()
            && let Some(known) = inner.known.get_mut(&id)
            && known.guess.is_none()
        {
            known.guess = Some(hash);
            inner.guesses.insert(hash, id);
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

    /// Says that these series are of something that has ended. They stay known until their room is needed, so that points
    /// on their way still find their names.
    pub fn gone(&self, ids: impl IntoIterator<Item = SeriesId>) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        for id in ids {
            if let Some(known) = inner.known.get_mut(&id)
                && known.gone.is_none()
            {
                inner.turn += 1;
                known.gone = Some(inner.turn);
                inner.gone.insert(inner.turn, id);
            }
        }
    }

    /// One series by its number.
    pub fn get(&self, id: SeriesId) -> Option<Arc<Series>> {
        self.lock().known.get(&id).map(|known| Arc::clone(&known.series))
    }

    /// How many series are known.
    pub fn len(&self) -> usize {
        self.lock().known.len()
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
        // Nothing that is done while holding the lock panics but an allocation that fails, which ends the program.
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

    #[test]
    fn endless_connections_fill_it_to_its_limit_and_no_further() {
        let registry = Registry::new();
        let def = &catalogue::TCP_ACKED;
        let number = |pid: usize| registry.number(def, &[("pid", pid)]);
        let stays = number(usize::MAX).unwrap();
        let mut last = stays;
        for pid in 0..Registry::LIMIT * 3 {
            let id = number(pid).unwrap();
            assert!(id > last, "no number is given twice");
            last = id;
            registry.gone([id, id]);
        }
        assert_eq!((registry.len(), registry.refused()), (Registry::LIMIT, 0));
        let inner = registry.lock();
        assert_eq!((inner.ids.len(), inner.guesses.len()), (Registry::LIMIT, Registry::LIMIT));
        assert_eq!(inner.gone.len(), Registry::LIMIT - 1);
        drop(inner);
        assert_eq!(number(usize::MAX), Some(stays));
        assert!(registry.get(last).is_some(), "what went last is still known");
        assert_eq!(registry.get(SeriesId(1)), None);
    }

    #[test]
    fn what_is_asked_for_again_is_gone_no_longer_and_a_full_registry_refuses() {
        let registry = Registry::new();
        let def = &catalogue::TCP_ACKED;
        let number = |pid: usize| registry.number(def, &[("pid", pid)]);
        let ids: Vec<SeriesId> = (0..Registry::LIMIT).map(|pid| number(pid).unwrap()).collect();
        assert_eq!((number(Registry::LIMIT), registry.refused()), (None, 1));
        registry.gone([ids[0], ids[1]]);
        assert_eq!(number(0), Some(ids[0]));
        assert!(number(Registry::LIMIT).is_some());
        assert_eq!((registry.get(ids[1]), registry.get(ids[0]).is_some()), (None, true));
        assert_eq!(number(Registry::LIMIT + 1), None, "none of the others has ended");
    }
}
