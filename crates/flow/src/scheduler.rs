//! Who sends next: strict between the two levels, by weight among the pools of a level, in turn among the sessions of
//! a pool. Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) over divisible byte streams.
//!
//! It knows byte counts, not bytes: a session's buffer belongs to whoever relays it, so nothing can be lost or put out
//! of order here. What it promises, each tested as a property:
//! - urgent work never waits for low: while anything urgent is ready, nothing else is chosen;
//! - work-conserving: as long as anything may go, something is chosen;
//! - no starvation within a level: between two visits of a backlogged pool, each other pool of its level sends at most
//!   [`QUANTUM_BYTES`] times its weight, and within a pool each other session at most [`QUANTUM_BYTES`] between two
//!   turns of a session. Low pools do wait for as long as urgent work fills the way: that is what low means.

use crate::{PoolId, Priority, SessionId};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What one turn sends at most, in bytes; a pool of weight w sends w of them a visit.
pub const QUANTUM_BYTES: u64 = 16 * 1024;

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

/// The pools of one level that have something to send.
#[derive(Debug, Default)]
struct Level {
    /// Pools in the order of their visits; the first is being visited.
    ring: VecDeque<PoolId>,
    queues: BTreeMap<PoolId, PoolQueue>,
    backlog_bytes: u64,
}

#[derive(Debug, Default)]
struct PoolQueue {
    /// What is left of this visit.
    deficit_bytes: u64,
    sessions: VecDeque<SessionId>,
}

impl Scheduler {
    /// Nobody yet.
    pub fn new() -> Self {
        Scheduler::default()
    }

    /// Sets a pool's weight (1 unless set), from its next visit on.
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
        let Some(gone) = self.sessions.remove(&session) else { return 0 };
        if gone.backlog_bytes > 0 {
            let level = self.level_mut(gone.priority);
            level.backlog_bytes -= gone.backlog_bytes;
            level.remove(gone.pool, session);
        }
        gone.backlog_bytes
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

    /// Who sends next, at most `most_bytes`; of a low-priority session at most `low_bytes`, what its class may send.
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
        let queue = self.queues.entry(pool).or_default();
        if queue.sessions.is_empty() {
            self.ring.push_back(pool);
        }
        queue.sessions.push_back(session);
    }

    fn remove(&mut self, pool: PoolId, session: SessionId) {
        let Some(queue) = self.queues.get_mut(&pool) else { return };
        queue.sessions.retain(|other| *other != session);
        if queue.sessions.is_empty() {
            self.drop_pool(pool);
        }
    }

    /// A pool with nothing to send leaves the ring and forgets what was left of its visit: idleness saves nothing up.
    fn drop_pool(&mut self, pool: PoolId) {
        self.queues.remove(&pool);
        self.ring.retain(|other| *other != pool);
    }

    fn next(
        &mut self,
        most_bytes: u64,
        weights: &BTreeMap<PoolId, u32>,
        sessions: &mut HashMap<SessionId, Session>,
    ) -> Option<(SessionId, u64)> {
        let pool = *self.ring.front()?;
        let queue = self.queues.get_mut(&pool)?;
        if queue.deficit_bytes == 0 {
            let weight = weights.get(&pool).copied().unwrap_or(1);
            queue.deficit_bytes = QUANTUM_BYTES * u64::from(weight);
        }
        let id = queue.sessions.pop_front()?;
        let session = sessions.get_mut(&id)?;
        let bytes = session.backlog_bytes.min(most_bytes).min(queue.deficit_bytes).min(QUANTUM_BYTES);
        session.backlog_bytes -= bytes;
        queue.deficit_bytes -= bytes;
        self.backlog_bytes -= bytes;
        if session.backlog_bytes > 0 {
            queue.sessions.push_back(id);
        }
        if queue.sessions.is_empty() {
            self.drop_pool(pool);
        } else if queue.deficit_bytes == 0 {
            self.ring.rotate_left(1);
        }
        Some((id, bytes))
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
