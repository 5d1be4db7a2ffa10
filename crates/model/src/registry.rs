//! Gives every series of one run a small number, so that a point costs a few bytes.

use crate::{Series, SeriesId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The series known to one run, shared by its probes (which add) and its recorder (which reads what is new).
/// Holds at most [`Registry::LIMIT`] series, so that a server with endless short connections cannot fill memory.
#[derive(Debug, Default)]
pub struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    ids: HashMap<Arc<Series>, SeriesId>,
    list: Vec<Arc<Series>>,
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
