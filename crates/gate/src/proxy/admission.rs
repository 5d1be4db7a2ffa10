//! How many sessions there may be, in all and in each pool. A session that ends gives its place back by being dropped. Who asks the
//! server for encryption has one before anybody knows his pool.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    most: u32,
    total: u32,
    pools: HashMap<String, u32>,
}

/// A session's place.
#[derive(Debug)]
pub(super) struct Place {
    admission: Admission,
    /// None while nobody knows it.
    pool: Option<String>,
}

/// Why there is no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error("too many connections to the proxy (max_connections is {0})")]
    Proxy(u32),
    #[error("too many connections in resource pool {0} (max_connections is {1})")]
    Pool(String, u32),
}

impl Admission {
    pub(super) fn new(most: u32) -> Self {
        let admission = Admission { counts: Arc::default() };
        admission.limit(most);
        admission
    }

    /// Another limit in all, for who comes from now on.
    pub(super) fn limit(&self, most: u32) {
        self.lock().most = most;
    }

    /// Sessions in a pool.
    pub(super) fn count(&self, pool: &str) -> u32 {
        self.lock().pools.get(pool).copied().unwrap_or(0)
    }

    /// A place of the proxy's, if it has one, for somebody whose pool nobody knows yet.
    pub(super) fn admit_unknown(&self) -> Result<Place, Full> {
        let mut counts = self.lock();
        if counts.total >= counts.most {
            return Err(Full::Proxy(counts.most));
        }
        counts.total += 1;
        Ok(Place { admission: self.clone(), pool: None })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// It is in this pool from now on, if that has a place; else it is given back.
    pub(super) fn enter(mut self, pool: &str, pool_most: Option<u32>) -> Result<Place, Full> {
        let mut counts = self.admission.lock();
        let here = counts.pools.get(pool).copied().unwrap_or(0);
        if let Some(most) = pool_most
            && here >= most
        {
            return Err(Full::Pool(pool.to_owned(), most));
        }
        counts.pools.insert(pool.to_owned(), here + 1);
        drop(counts);
        self.pool = Some(pool.to_owned());
        Ok(self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.admission.lock();
        counts.total = counts.total.saturating_sub(1);
        if let Some(pool) = &self.pool
            && let Some(here) = counts.pools.get_mut(pool)
        {
            *here = here.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    impl Admission {
        fn admit(&self, pool: &str, pool_most: Option<u32>) -> Result<Place, Full> {
            self.admit_unknown()?.enter(pool, pool_most)
        }
    }

    #[test]
    fn places_are_given_back() {
        let admission = Admission::new(3);
        let first = admission.admit("a", Some(1)).unwrap();
        assert_eq!(admission.admit("a", Some(1)).unwrap_err(), Full::Pool("a".to_owned(), 1));
        let others = [admission.admit("b", None).unwrap(), admission.admit("b", None).unwrap()];
        assert_eq!(admission.admit("b", None).unwrap_err(), Full::Proxy(3));
        drop((first, others));
        assert!(admission.admit("a", Some(1)).is_ok());
    }

    #[test]
    fn whose_pool_is_not_known_yet_is_counted_all_the_same() {
        let admission = Admission::new(2);
        let places = [admission.admit_unknown().unwrap(), admission.admit_unknown().unwrap()];
        assert_eq!(admission.admit("a", None).unwrap_err(), Full::Proxy(2));
        let [first, second] = places.map(|place| place.enter("a", Some(1)));
        assert_eq!(second.unwrap_err(), Full::Pool("a".to_owned(), 1));
        assert_eq!(admission.count("a"), 1);
        let third = admission.admit_unknown().unwrap();
        drop((first, third));
        assert_eq!(admission.count("a"), 0);
        assert!([admission.admit_unknown(), admission.admit_unknown()].iter().all(Result::is_ok));
    }
}
