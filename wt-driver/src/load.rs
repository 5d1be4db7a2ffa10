//! A load: threads that begin operations when they are due, those that serve them (journal, expiry), and those that
//! look on.

use crate::database::Database;
use crate::engine::EngineError;
use crate::journal::{self, Waiting};
use crate::operation::Hands;
use crate::protocol::{Done, Kind, Load, Output, ThreadModel};
use crate::schedule::Schedule;
use crate::tally::Tally;
use crate::{expiry, replication, statistics};
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread sleeps before it looks whether the load is to end.
const NAP: Duration = Duration::from_millis(50);
/// How often progress is told.
const PROGRESS: Duration = Duration::from_millis(100);
/// Looks at progress between two looks at the free space.
const SPACE_EVERY: u32 = 5;
/// The stack of a thread: the engine may evict a page on it.
const STACK_BYTES: usize = 512 << 10;

/// A load under way.
pub(crate) struct Running<'a> {
    pub(crate) database: &'a Database,
    pub(crate) load: &'a Load,
    pub(crate) tally: Tally,
    pub(crate) waiting: Waiting,
    output: &'a Output,
    schedule: Mutex<Schedule>,
    random: Mutex<fastrand::Rng>,
    began: Instant,
    /// Somebody wants it to end.
    cancel: &'a AtomicBool,
    /// Its operations are over.
    over: Mutex<bool>,
    ended: Condvar,
    fault: Mutex<Option<String>>,
}

/// Drives a load until it is over and says what came of it.
pub(crate) fn drive(database: &Database, load: &Load, output: &Output, cancel: &AtomicBool) -> Result<Value, String> {
    load.check()?;
    if load.done == Done::Journal && !database.journal {
        return Err("done = journal: the database was opened without a journal; give done = commit".to_owned());
    }
    if load.majority_stands_s.is_some() && database.replication.is_none() {
        return Err(
            "majority_stands_s: the database is no member of a replica set; open it with replicated = true".to_owned()
        );
    }
    let mut random = load.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
    let schedule = Schedule::new(load.rate_per_s, load.seconds, load.arrivals, random.fork());
    let before = statistics::read(database, &load.statistics).map_err(|error| error.to_string())?;
    let run = Running {
        database,
        load,
        tally: Tally::new(load.seconds),
        waiting: Waiting::default(),
        output,
        schedule: Mutex::new(schedule),
        random: Mutex::new(random),
        began: Instant::now(),
        cancel,
        over: Mutex::new(false),
        ended: Condvar::new(),
        fault: Mutex::new(None),
    };
    let began_us = crate::protocol::boot_us();
    run.all().map_err(|error| error.to_string())?;
    let after = statistics::read(database, &load.statistics).map_err(|error| error.to_string())?;
    if let Some(fault) = run.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(fault);
    }
    let mut told = run.tally.told(load.seconds.min(run.began.elapsed().as_secs_f64()));
    told["load"] = json!(load.load);
    told["began_us"] = json!(began_us);
    told["stopped"] = json!(cancel.load(Relaxed));
    told["statistics"] = statistics::both(before, &after);
    Ok(told)
}

impl Running<'_> {
    /// Nanoseconds since it began.
    pub(crate) fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Its end, counted as `now_ns`.
    fn end_ns(&self) -> u64 {
        (self.load.seconds * 1e9) as u64
    }

    /// It cannot go on. The first reason is kept.
    pub(crate) fn fault(&self, why: String) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    /// Whether no operation is to begin any more.
    pub(crate) fn is_over(&self) -> bool {
        self.cancel.load(Relaxed)
            || *self.over.lock().unwrap_or_else(PoisonError::into_inner)
            || self.fault.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Does this at once and then each period, until the operations are over.
    pub(crate) fn every(&self, period: Duration, mut act: impl FnMut()) {
        let mut next = Instant::now();
        loop {
            act();
            next += period;
            let left = next.saturating_duration_since(Instant::now());
            let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.ended.wait_timeout_while(over, left, |over| !*over);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
            // What was slept through is left out.
            next = next.max(Instant::now() - period);
        }
    }

    /// All threads, until the last has ended.
    fn all(&self) -> Result<(), EngineError> {
        let connection = &self.database.connection;
        let journal = connection.session()?;
        let expiry = connection.session()?;
        let snapshot = connection.session()?;
        if self.load.hold_snapshot {
            snapshot.begin()?;
            // The first read takes the snapshot; whether there is such a document does not matter.
            let _ = snapshot.cursor(crate::database::DOCUMENTS)?.last_document()?;
        }
        // From here on the engine knows that there is a majority, which has what is there.
        if let Some(replication) = &self.database.replication {
            replication.confirm(connection, Duration::ZERO)?;
        }
        std::thread::scope(|scope| {
            // A session goes from thread to thread, never to two at once.
            let (journal, expiry) = (Sent(journal), Sent(expiry));
            let syncing = self.database.journal.then(|| scope.spawn(move || journal::sync(self, &journal.whole().0)));
            scope.spawn(|| self.look_on());
            if let Some(replication) = &self.database.replication {
                scope.spawn(move || replication::follow(self, replication));
            }
            if self.load.statistics_ms > 0 {
                scope.spawn(|| statistics::tell(self, self.output));
            }
            if self.load.load == Kind::TtlDelete {
                scope.spawn(move || expiry::watch(self, &expiry.whole().0));
            }
            match self.load.thread_model {
                ThreadModel::Pool => self.pool(),
                ThreadModel::PerConnection => self.per_connection(),
            }
            self.count_never_started();
            self.waiting.close();
            if let Some(syncing) = syncing {
                let _ = syncing.join();
            }
            *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.ended.notify_all();
        });
        self.output.line(&self.progress());
        if self.load.hold_snapshot {
            snapshot.rollback()?;
        }
        // Who stood still has caught up once nobody writes: what is dirty can be written.
        let caught_up = self.database.replication.as_ref().map(|own| own.confirm(connection, Duration::ZERO));
        caught_up.unwrap_or(Ok(()))
    }

    /// The next start, waited for; none when no more is to begin.
    fn next_start(&self) -> Option<u64> {
        if self.now_ns() >= self.end_ns() || self.is_over() {
            return None;
        }
        let due_ns = self.schedule.lock().unwrap_or_else(PoisonError::into_inner).next()?;
        self.tally.intend(due_ns);
        loop {
            let left = Duration::from_nanos(due_ns.saturating_sub(self.now_ns()));
            if left.is_zero() {
                return Some(due_ns);
            }
            if self.is_over() {
                return None;
            }
            std::thread::sleep(left.min(NAP));
        }
    }

    /// Starts that were due and that nobody got round to, with how long each had waited at the end.
    fn count_never_started(&self) {
        if self.is_over() {
            return;
        }
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(due_ns) = schedule.next() {
            self.tally.intend(due_ns);
            self.tally.never_began(due_ns, self.end_ns());
        }
    }

    pub(crate) fn fork(&self) -> fastrand::Rng {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }

    /// So many threads from beginning to end.
    fn pool(&self) {
        std::thread::scope(|scope| {
            for _ in 0..self.load.threads {
                let made = connection_thread().spawn_scoped(scope, || {
                    let worked = self.database.connection.session().and_then(|session| {
                        let mut hands = Hands::new(self, &session)?;
                        while let Some(due_ns) = self.next_start() {
                            hands.work(self, due_ns);
                        }
                        Ok(())
                    });
                    if let Err(error) = worked {
                        self.fault(error.to_string());
                    }
                    self.tally.threads_ended.fetch_add(1, Relaxed);
                });
                match made {
                    Ok(_) => drop(self.tally.threads_made.fetch_add(1, Relaxed)),
                    Err(error) => self.fault(format!("cannot make a thread: {error}")),
                }
            }
        });
    }

    /// A thread and a session for each operation.
    fn per_connection(&self) {
        let alive = AtomicUsize::new(0);
        let (room, one_less) = (Mutex::new(()), Condvar::new());
        std::thread::scope(|scope| {
            while let Some(due_ns) = self.next_start() {
                let guard = room.lock().unwrap_or_else(PoisonError::into_inner);
                let full = |_: &mut ()| alive.load(Relaxed) >= self.load.threads as usize;
                drop(one_less.wait_while(guard, full).unwrap_or_else(PoisonError::into_inner));
                alive.fetch_add(1, Relaxed);
                let (alive, room, one_less) = (&alive, &room, &one_less);
                let made = connection_thread().spawn_scoped(scope, move || {
                    self.connection(due_ns);
                    self.tally.threads_ended.fetch_add(1, Relaxed);
                    let _guard = room.lock().unwrap_or_else(PoisonError::into_inner);
                    alive.fetch_sub(1, Relaxed);
                    one_less.notify_one();
                });
                match made {
                    Ok(_) => drop(self.tally.threads_made.fetch_add(1, Relaxed)),
                    Err(error) => {
                        alive.fetch_sub(1, Relaxed);
                        self.tally.begun.fetch_add(1, Relaxed);
                        self.tally.fail(&format!("cannot make a thread: {error}"));
                    }
                }
            }
        });
    }

    /// What one connection does.
    fn connection(&self, due_ns: u64) {
        let worked = self.database.connection.session().and_then(|session| {
            Hands::new(self, &session)?.work(self, due_ns);
            Ok(())
        });
        if let Err(error) = worked {
            self.tally.begun.fetch_add(1, Relaxed);
            self.tally.fail(&error.to_string());
        }
    }

    /// Running totals, and how far a majority is.
    fn progress(&self) -> Value {
        let mut told = self.tally.progress();
        if let Some(Value::Object(more)) = self.database.replication.as_ref().map(|own| own.told()) {
            more.into_iter().for_each(|(name, value)| told[name] = value);
        }
        told
    }

    /// Tells progress, and ends the load before the volume is full: the engine would give up.
    fn look_on(&self) {
        let mut looks = 0u32;
        self.every(PROGRESS, || {
            self.output.line(&self.progress());
            let free = if looks.is_multiple_of(SPACE_EVERY) { self.database.free_bytes() } else { None };
            if let Some(free) = free.filter(|free| *free < self.load.least_free_bytes) {
                self.fault(format!(
                    "only {free} bytes are free in {}: the load was ended before the engine gives up. Give it a larger \
                     volume, or load it less long",
                    self.database.home.display()
                ));
            }
            looks += 1;
        });
    }
}

/// A thread that serves a connection, named as mongod names those.
fn connection_thread() -> std::thread::Builder {
    std::thread::Builder::new().name("conn".to_owned()).stack_size(STACK_BYTES)
}

/// A session that is handed to another thread for good.
struct Sent<T>(T);

// SAFETY: a session may be used by any thread as long as it is one at a time; whoever sends it has it no more.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    /// All of it, so that a closure takes the whole and not the field, which cannot be sent.
    fn whole(&self) -> &Self {
        self
    }
}
