//! Pools as living sessions know them: numbered once for the life of the process, and changed in place when the rules
//! change, so that a session need not be told.

use super::low_class::{LowClass, LowPool};
use super::turns::Turns;
use backwater_flow::{Pool, PoolId, Priority, State};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One pool.
#[derive(Debug)]
pub(super) struct LivePool {
    pub(super) name: String,
    pub(super) id: PoolId,
    pub(super) turns: Arc<Turns>,
    low: AtomicBool,
    /// Whether `turns` has a limit: looked at before each statement, without its lock.
    limited: AtomicBool,
    /// Bytes that its sessions, living and gone, sent to their clients.
    pub(super) gone_bytes: AtomicU64,
}

/// All pools that there ever were.
#[derive(Debug, Default)]
pub(super) struct LivePools {
    by_name: Mutex<BTreeMap<String, Arc<LivePool>>>,
}

impl LivePool {
    pub(super) fn new(name: &str, id: PoolId) -> Arc<LivePool> {
        Arc::new(LivePool {
            name: name.to_owned(),
            id,
            turns: Arc::default(),
            low: AtomicBool::new(false),
            limited: AtomicBool::new(false),
            gone_bytes: AtomicU64::new(0),
        })
    }

    /// Whether its sessions belong to the low class by themselves.
    pub(super) fn is_low(&self) -> bool {
        self.low.load(Ordering::Acquire)
    }

    /// Whether its statements need turns.
    pub(super) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Acquire)
    }

    fn set(&self, pool: &Pool) {
        self.low.store(pool.priority == Priority::Low, Ordering::Release);
        self.limited.store(pool.max_active.is_some(), Ordering::Release);
        self.turns.limit(pool.max_active);
    }
}

impl LivePools {
    /// Takes over a state: the pools' settings, and what the low class may do.
    pub(super) fn apply(&self, state: &State, low_class: &LowClass) {
        let mut pools = Vec::new();
        for (name, pool) in state.pools() {
            let live = self.get(name);
            live.set(pool);
            pools.push(LowPool { id: live.id, weight: pool.weight, bandwidth_bps: pool.bandwidth_bps });
        }
        // A pool that was dropped limits nobody who is still in it.
        for (_, gone) in self.lock().iter().filter(|(name, _)| !state.pools().contains_key(*name)) {
            gone.set(&Pool::default());
        }
        low_class.set(state.low_priority_bandwidth(), pools);
    }

    /// A pool by name; a number is given to a new one.
    pub(super) fn get(&self, name: &str) -> Arc<LivePool> {
        let mut by_name = self.lock();
        if let Some(known) = by_name.get(name) {
            return Arc::clone(known);
        }
        let id = PoolId(u32::try_from(by_name.len()).unwrap_or(u32::MAX));
        let pool = LivePool::new(name, id);
        by_name.insert(name.to_owned(), Arc::clone(&pool));
        pool
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LivePool>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
