//! One operation of a load, on a session of its own.

use crate::database::{DOCUMENTS, INDEX, entry};
use crate::engine::{Cursor, EngineError, Session};
use crate::load::Running;
use crate::protocol::{Done, Kind};
use crate::replication;
use std::sync::atomic::Ordering::Relaxed;

/// How often a transaction that was rolled back is tried.
const ATTEMPTS: usize = 1_000;
/// How far ahead new documents of a `ttl-delete` load expire: three days, in microseconds.
const AHEAD_US: u64 = 3 * 86_400 * 1_000_000;

/// What one thread works with.
pub(crate) struct Hands<'s> {
    session: &'s Session<'s>,
    documents: Cursor<'s>,
    index: Cursor<'s>,
    oplog: Option<Cursor<'s>>,
    body: Vec<u8>,
    random: fastrand::Rng,
}

impl<'s> Hands<'s> {
    pub(crate) fn new(run: &Running<'_>, session: &'s Session<'s>) -> Result<Hands<'s>, EngineError> {
        Ok(Hands {
            session,
            documents: session.cursor(DOCUMENTS)?,
            index: session.cursor(INDEX)?,
            oplog: replication::oplog(run, session)?,
            body: vec![0; run.load.document_bytes as usize],
            random: run.fork(),
        })
    }

    /// Does the operation that was to begin at `due_ns`, and counts it.
    pub(crate) fn work(&mut self, run: &Running<'_>, due_ns: u64) {
        run.tally.begun.fetch_add(1, Relaxed);
        let began_ns = run.now_ns();
        let wrote = self.operate(run);
        let now_ns = run.now_ns();
        match wrote {
            Ok(wrote) => {
                run.tally.committed(due_ns, began_ns, now_ns);
                if wrote && run.load.done == Done::Journal {
                    run.waiting.add(due_ns);
                } else {
                    run.tally.finish(due_ns, now_ns);
                }
            }
            Err(error) => {
                run.tally.served(began_ns, now_ns);
                run.tally.fail(&error.to_string());
                if error.is_panic() {
                    run.fault(error.to_string());
                }
            }
        }
    }

    /// Whether it wrote.
    fn operate(&mut self, run: &Running<'_>) -> Result<bool, EngineError> {
        let (id, order) = match run.load.load {
            Kind::ReadMixed => {
                let id = self.random.i64(1..run.database.next_id.load(Relaxed).max(2));
                if self.random.f64() < run.load.read_share {
                    return read(&self.documents, id).map(|()| false);
                }
                (id, None)
            }
            Kind::WriteHeavy => (run.database.next_id.fetch_add(1, Relaxed), Some(self.random.u64(..))),
            Kind::TtlDelete => {
                let order = run.now_ns() / 1_000 + AHEAD_US;
                (run.database.next_id.fetch_add(1, Relaxed), Some(order))
            }
        };
        self.random.fill(&mut self.body);
        transact(run, self.session, self.oplog.as_ref().map(|oplog| (oplog, &self.body[..])), || {
            self.documents.put(id, &self.body)?;
            order.map_or(Ok(()), |order| self.index.put_entry(&entry(order, id)))
        })?;
        Ok(true)
    }
}

/// A document that is gone is read too.
fn read(documents: &Cursor<'_>, id: i64) -> Result<(), EngineError> {
    match documents.size_of(id) {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Does this in a transaction, again where it is rolled back; `logged` goes into the oplog of a replica set.
pub(crate) fn transact(
    run: &Running<'_>,
    session: &Session<'_>,
    logged: Option<(&Cursor<'_>, &[u8])>,
    act: impl Fn() -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let whole = || {
        act()?;
        let (Some(replication), Some((oplog, what))) = (&run.database.replication, logged) else { return Ok(()) };
        replication.log(oplog, what)?;
        replication.stamp(session)
    };
    let mut attempt = 1;
    loop {
        session.begin()?;
        let done = match whole() {
            // A commit that fails has rolled back by itself.
            Ok(()) => session.commit(),
            Err(error) => session.rollback().and(Err(error)),
        };
        match done {
            Err(error) if error.is_rollback() && attempt < ATTEMPTS && !run.is_over() => {
                run.tally.conflicts.fetch_add(1, Relaxed);
                attempt += 1;
            }
            done => return done,
        }
    }
}
