//! Deletes what has expired, as mongod's TTL monitor does: one thread, in the order of expiry, one transaction each.

use crate::database::{DOCUMENTS, INDEX, entry, parts};
use crate::engine::{Cursor, EngineError, Session};
use crate::load::Running;
use crate::operation::transact;
use crate::replication;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Looks for what has expired again and again until the load is over.
pub(crate) fn watch(run: &Running<'_>, session: &Session<'_>) {
    let period = Duration::from_secs_f64(run.load.ttl_period_s);
    let mut last = entry(0, 0);
    run.every(period, || {
        if let Err(error) = pass(run, session, &mut last) {
            run.tally.fail(&error.to_string());
            if error.is_panic() {
                run.fault(error.to_string());
            }
        }
    });
}

/// Everything that has expired by now. `last` is where the last pass came to: what is deleted stays in the index's pages
/// for a while, and need not be passed over each time.
fn pass(run: &Running<'_>, session: &Session<'_>, last: &mut [u8; 16]) -> Result<(), EngineError> {
    let (documents, index) = (session.cursor(DOCUMENTS)?, session.cursor(INDEX)?);
    let oplog = replication::oplog(run, session)?;
    let now_us = run.now_ns() / 1_000;
    while !run.is_over() {
        let next = match index.entry_after(*last) {
            Ok(next) => next,
            Err(error) if error.is_not_found() => break,
            Err(error) if error.is_rollback() => continue,
            Err(error) => return Err(error),
        };
        let (expires_us, id) = parts(&next);
        if expires_us > now_us {
            break;
        }
        transact(run, session, oplog.as_ref().map(|oplog| (oplog, &next[..])), || {
            gone(documents.remove(id))?;
            gone(index.remove_entry(&next))
        })?;
        *last = next;
        run.tally.deleted.fetch_add(1, Relaxed);
    }
    release(&index)
}

/// What is gone already is no error.
fn gone(removed: Result<(), EngineError>) -> Result<(), EngineError> {
    match removed {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

/// A cursor that stands on a page keeps it in the cache.
fn release(index: &Cursor<'_>) -> Result<(), EngineError> {
    index.reset()
}
