//! mongod's part in a replica set, as far as the engine feels it: each transaction has a timestamp and an entry in an oplog,
//! which alone is journalled, and the engine is told up to where a majority has confirmed. What is newer than that no checkpoint
//! writes, and what it took the place of is not forgotten.

use crate::database::OPLOG;
use crate::engine::{Connection, Cursor, EngineError, Session};
use crate::load::Running;
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a majority takes to confirm where nothing is wrong; and how often the engine is told.
const CONFIRMS_WITHIN: Duration = Duration::from_millis(500);
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// How often a timestamp is taken anew that came too late: a thread that is held up for longer than a majority takes is rare.
const ATTEMPTS: usize = 10;

/// A timestamp as the engine's statistics have it: seconds since 1970 in the upper half. The lower half is the fraction of a second
/// (mongod counts operations there).
type Timestamp = u64;

/// What a database keeps of it from one load to the next.
#[derive(Debug)]
pub(crate) struct Replication {
    /// The number of the oplog's next entry.
    next_entry: AtomicI64,
    /// The newest timestamp of a transaction, and up to where a majority has confirmed.
    newest: AtomicU64,
    confirmed: AtomicU64,
    /// What time it was when it began, and a clock that nobody sets back.
    began_since_1970: Duration,
    began: Instant,
}

impl From<i64> for Replication {
    /// Goes on with this entry of the oplog.
    fn from(next_entry: i64) -> Replication {
        Replication {
            next_entry: AtomicI64::new(next_entry),
            newest: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            began_since_1970: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            began: Instant::now(),
        }
    }
}

impl Replication {
    fn now(&self) -> Duration {
        self.began_since_1970 + self.began.elapsed()
    }

    /// Puts what a transaction does into the oplog, within the same transaction.
    pub(crate) fn log(&self, oplog: &Cursor<'_>, what: &[u8]) -> Result<(), EngineError> {
        oplog.put(self.next_entry.fetch_add(1, Relaxed), what)
    }

    /// Gives the open transaction its timestamp.
    pub(crate) fn stamp(&self, session: &Session<'_>) -> Result<(), EngineError> {
        let mut attempt = 1;
        loop {
            let at = timestamp(self.now());
            match session.stamp(at) {
                Ok(()) => {
                    self.newest.fetch_max(at, Relaxed);
                    return Ok(());
                }
                Err(error) if error.is_invalid() && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// A majority has confirmed everything up to so long ago.
    pub(crate) fn confirm(&self, connection: &Connection, ago: Duration) -> Result<(), EngineError> {
        let at = timestamp(self.now().saturating_sub(ago));
        // What a load before confirmed at its end is newer than that for a moment.
        if at <= self.confirmed.load(Relaxed) {
            return Ok(());
        }
        connection.confirm(at, at)?;
        self.confirmed.store(at, Relaxed);
        Ok(())
    }

    /// Seconds since 1970 of the newest operation, and of the newest that a majority has.
    pub(crate) fn told(&self) -> Value {
        let (newest, confirmed) = (self.newest.load(Relaxed), self.confirmed.load(Relaxed));
        json!({ "optime_s": seconds(newest), "majority_s": seconds(newest.min(confirmed)) })
    }
}

/// The oplog's cursor, where there is an oplog.
pub(crate) fn oplog<'s>(run: &Running<'_>, session: &'s Session<'s>) -> Result<Option<Cursor<'s>>, EngineError> {
    run.database.replication.as_ref().map(|_| session.cursor(OPLOG)).transpose()
}

/// Tells the engine what a majority confirms, until the load is over. While a majority stands still it is told nothing.
pub(crate) fn follow(run: &Running<'_>, replication: &Replication) {
    run.every(TOLD_EVERY, || {
        let second = run.now_ns() as f64 / 1e9;
        let stands = run.load.majority_stands_s.is_some_and(|[from, to]| (from..to).contains(&second));
        if stands {
            return;
        }
        if let Err(error) = replication.confirm(&run.database.connection, CONFIRMS_WITHIN) {
            run.fault(error.to_string());
        }
    });
}

fn timestamp(since_1970: Duration) -> Timestamp {
    (since_1970.as_secs() << 32) | ((u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000)
}

fn seconds(at: Timestamp) -> f64 {
    at as f64 / 2.0_f64.powi(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_has_seconds_in_its_upper_half() {
        assert_eq!(timestamp(Duration::from_millis(7_500)), (7 << 32) + (1 << 31));
        assert!((seconds(timestamp(Duration::from_micros(1_750_000_000_250_000))) - 1_750_000_000.25).abs() < 1e-6);
        assert!(timestamp(Duration::from_nanos(999_999_999)) < timestamp(Duration::from_secs(1)));
    }
}
