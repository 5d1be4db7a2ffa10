//! Who sends next: strict between the two levels, by weight among the pools of a level, in turn among the sessions of
//! a pool. Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): each pool has a virtual time that advances by
//! the bytes it sends over its weight, and the pool that is furthest behind sends next. Deficit round robin would do
//! for pools that always have a backlog; here a session asks for one turn at a time, so a pool with one session is
//! empty after each, and only a time that outlives emptiness keeps its weight.
//!
//! It knows byte counts, not bytes: a session's buffer belongs to whoever relays it, so nothing can be lost or put out
//! of order here. What it promises, each tested as a property:
//! - urgent work never waits for low: while anything urgent is ready, nothing else is chosen;
//! - work-conserving: as long as anything may go, something is chosen;
//! - no starvation within a level: between two turns of a backlogged pool of weight v, another pool of weight w sends at
//!   most a quantum · (1 + w ÷ v), and within a pool each other session at most a quantum between two turns of a session,
//!   a quantum being the most that one turn may send. Low pools do wait for as long as urgent work fills the way: that is what low means.

use crate::{PoolId, Priority, SessionId};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What one turn sends at most at a low rate, in bytes,
pub const LEAST_QUANTUM_BYTES: u64 = 16 * 1024;
/// and at a high one: a relay's cost is mostly the kernel's, call by call (docs/bench/pacing.md).
pub const MOST_QUANTUM_BYTES: u64 = 128 * 1024;

/// The choice: this session sends so many bytes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which session.
    pub session: SessionId,
    /// How many bytes, at least one. They count as sent.
    pub bytes: u64,
    /// The level it was chosen from.
    pub priority: Priority,
}

/// Sessions with bytes to send, by level and pool.
#[derive(Debug, Default)]
pub struct Scheduler {
    sessions: HashMap<SessionId, Session>,
    weights: BTreeMap<PoolId, u32>,
    high: Level,
    low: Level,
}

#[derive(Debug)]
struct Session {
    pool: PoolId,
    priority: Priority,
    backlog_bytes: u64,
}

/// The pools of one level.
#[derive(Debug, Default)]
struct Level {
    /// Every pool that ever had something to send.
    pools: BTreeMap<PoolId, PoolQueue>,
    /// The virtual time: that of the pool that was chosen last.
    time: u128,
    backlog_bytes: u64,
}

#[derive(Debug, Default)]
struct PoolQueue {
    /// The virtual time at which its next turn begins. A pool that was idle begins at the level's: idleness saves
    /// nothing up.
    start: u128,
    sessions: VecDeque<SessionId>,
}

/// Virtual time of a byte at weight 1, so large that weights divide it well.
const BYTE_TIME: u128 = 1 << 20;

impl Scheduler {
    /// Nobody yet.
    pub fn new() -> Self {
        Scheduler::default()
    }

    /// Sets a pool's weight (1 unless set), from its next turn on.
    pub fn set_weight(&mut self, pool: PoolId, weight: u32) {
        self.weights.insert(pool, weight.max(1));
    }

    /// A session begins, or moves to another pool or level and keeps what it has to send.
    pub fn place(&mut self, session: SessionId, pool: PoolId, priority: Priority) {
        let backlog = self.close(session);
        self.sessions.insert(session, Session { pool, priority, backlog_bytes: 0 });
        self.offer(session, backlog);
    }

    /// A session ends. Returns the bytes that it had not sent.
    pub fn close(&mut self, session: SessionId) -> u64 {
        let left = self.withdraw(session);
        self.sessions.remove(&session);
        left
    }

    /// A session has more to send, or could not send all of its turn. Unknown sessions are ignored.
    pub fn offer(&mut self, session: SessionId, bytes: u64) {
        let Some(known) = self.sessions.get_mut(&session) else { return };
        let was_idle = known.backlog_bytes == 0;
        known.backlog_bytes += bytes;
        let (pool, priority) = (known.pool, known.priority);
        let level = self.level_mut(priority);
        level.backlog_bytes += bytes;
        if was_idle && bytes > 0 {
            level.add(pool, session);
        }
    }

    /// A session wants no more for now. Returns the bytes that it had not sent.
    pub fn withdraw(&mut self, session: SessionId) -> u64 {
        let Some(known) = self.sessions.get_mut(&session) else { return 0 };
        let (left, pool, priority) = (std::mem::take(&mut known.backlog_bytes), known.pool, known.priority);
        if left > 0 {
            let level = self.level_mut(priority);
            level.backlog_bytes -= left;
            level.remove(pool, session);
        }
        left
    }

    /// Who sends next, at most `most_bytes`, the quantum; of a low-priority session at most `low_bytes`, what its class may send.
    /// None where nobody may send anything.
    pub fn next(&mut self, most_bytes: u64, low_bytes: u64) -> Option<Turn> {
        let high = self.high.backlog_bytes > 0;
        let (priority, most) =
            if high { (Priority::High, most_bytes) } else { (Priority::Low, most_bytes.min(low_bytes)) };
        if most == 0 {
            return None;
        }
        let level = match priority {
            Priority::High => &mut self.high,
            Priority::Low => &mut self.low,
        };
        let (session, bytes) = level.next(most, &self.weights, &mut self.sessions)?;
        Some(Turn { session, bytes, priority })
    }

    /// Bytes that wait at a level.
    pub fn backlog_bytes(&self, priority: Priority) -> u64 {
        match priority {
            Priority::High => self.high.backlog_bytes,
            Priority::Low => self.low.backlog_bytes,
        }
    }

    /// Bytes that a session has yet to send; none if it is unknown.
    pub fn session_backlog_bytes(&self, session: SessionId) -> Option<u64> {
        self.sessions.get(&session).map(|known| known.backlog_bytes)
    }

    fn level_mut(&mut self, priority: Priority) -> &mut Level {
        match priority {
            Priority::High => &mut self.high,
            Priority::Low => &mut self.low,
        }
    }
}

impl Level {
    fn add(&mut self, pool: PoolId, session: SessionId) {
        let queue = self.pools.entry(pool).or_default();
        if queue.sessions.is_empty() {
            queue.start = queue.start.max(self.time);
        }
        queue.sessions.push_back(session);
    }

    fn remove(&mut self, pool: PoolId, session: SessionId) {
        if let Some(queue) = self.pools.get_mut(&pool) {
            queue.sessions.retain(|other| *other != session);
        }
    }

    fn next(
        &mut self,
        most_bytes: u64,
        weights: &BTreeMap<PoolId, u32>,
        sessions: &mut HashMap<SessionId, Session>,
    ) -> Option<(SessionId, u64)> {
        let backlogged = self.pools.iter_mut().filter(|(_, queue)| !queue.sessions.is_empty());
        let (pool, queue) = backlogged.min_by_key(|(_, queue)| queue.start)?;
        let id = queue.sessions.pop_front()?;
        let session = sessions.get_mut(&id)?;
        let bytes = session.backlog_bytes.min(most_bytes);
        session.backlog_bytes -= bytes;
        self.backlog_bytes -= bytes;
        if session.backlog_bytes > 0 {
            queue.sessions.push_back(id);
        }
        self.time = queue.start;
        queue.start += u128::from(bytes) * BYTE_TIME / u128::from(weights.get(pool).copied().unwrap_or(1));
        Some((id, bytes))
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
