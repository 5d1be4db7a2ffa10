//! What is known of a living session, for those who judge it and those who show it: figures that its relay writes and
//! others read, and what others want of it. One session costs a few hundred bytes and a handful of relaxed stores a read.

use super::pools::LivePool;
use crate::clock;
use crate::wire::{Side, Tracker};
use backwater_flow::SessionId;
use backwater_model::{Moment, Span};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::Notify;

/// What a session does, as far as its messages tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// The login is not done.
    LoggingIn,
    /// Nothing, outside a transaction, at the end of a message.
    Idle,
    /// Nothing yet, but a transaction is open.
    Between,
    /// Nothing yet, and outside a transaction, but a message has begun.
    Speaking,
    /// A statement runs.
    Running,
    /// Nobody can say: it is encrypted.
    Hidden,
}

/// Who a session is.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) id: SessionId,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) application: String,
    /// The client's address.
    pub(super) peer: String,
    /// What its server process's title holds: our port, or `[local]`.
    pub(super) server_mark: String,
    /// Our end of its connection with the server, where that is TCP.
    pub(super) our_end: Option<SocketAddr>,
    /// The server's end of it: a cancel request goes there, since a name may have several addresses.
    pub(super) server_end: Option<SocketAddr>,
    /// When we began to connect with the server: its process is no older.
    pub(super) server_since: Moment,
    pub(super) began: Moment,
    /// It replicates, and nobody gave it a pool: rules, turns and the low class are for statements.
    pub(super) is_exempt: bool,
}

#[cfg(test)]
impl Identity {
    /// Of nobody in particular, for tests.
    pub(super) fn of_test(id: SessionId) -> Identity {
        Identity {
            id,
            user: String::new(),
            database: String::new(),
            application: String::new(),
            peer: String::new(),
            server_mark: String::new(),
            our_end: None,
            server_end: None,
            server_since: Moment(0),
            began: Moment(0),
            is_exempt: false,
        }
    }
}

/// Why a session is to end, as its client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) sqlstate: &'static str,
    pub(super) why: String,
}

/// A reason that was told, and what it holds for.
#[derive(Debug)]
struct Told {
    ending: Ending,
    /// What the session did then, and since when; None: whatever it does.
    only_while: Option<(Doing, Moment)>,
}

/// A living session.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) identity: Identity,
    pub(super) pool: Arc<LivePool>,
    doing: AtomicU8,
    /// Statements that have begun.
    statements: AtomicU64,
    /// When the statement that runs, or the last one, began; or what it does now began.
    since_us: AtomicI64,
    /// For how long the last statement waited for its turn.
    waited_us: AtomicI64,
    /// Since when one waits; 0 if none does.
    waiting_since_us: AtomicI64,
    rows: AtomicU64,
    up_bytes: AtomicU64,
    down_bytes: AtomicU64,
    cancel_key: OnceLock<Vec<u8>>,
    /// The server's process where only the server told it; 0 where it did not.
    told_pid: AtomicI32,
    /// It is relayed by the low class's worker.
    is_low: AtomicBool,
    /// It should be.
    wants_low: AtomicBool,
    /// It is let go since it blocks urgent work.
    freed: AtomicBool,
    /// When it last let go what it held: its last transaction ended then.
    let_go_us: AtomicI64,
    /// Its client does not take what the server said: some of it is held here.
    undelivered: AtomicBool,
    /// A cancel request is under way: no new statement may begin, or it would be hit.
    cancelling: AtomicBool,
    /// Its turn has come.
    granted: AtomicBool,
    ending: Mutex<Option<Told>>,
    /// The rule whose penalty is in force.
    held_by: Mutex<Option<String>>,
    /// Somebody wants something of it.
    pub(super) called: Notify,
}

/// What is known at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glimpse {
    pub(super) doing: Doing,
    /// The number of the statement that runs or waits.
    pub(super) statement: Option<u64>,
    /// Since when it does what it does.
    pub(super) since: Moment,
    /// How long the statement has waited for its turn.
    pub(super) waited: Span,
    pub(super) is_waiting: bool,
    pub(super) statements: u64,
    pub(super) rows: u64,
    pub(super) up_bytes: u64,
    pub(super) down_bytes: u64,
}

impl Doing {
    const ALL: [Doing; 6] =
        [Doing::LoggingIn, Doing::Idle, Doing::Between, Doing::Speaking, Doing::Running, Doing::Hidden];

    fn of(tracker: &Tracker) -> Doing {
        use crate::wire::Transaction;
        match (tracker.transaction(), tracker.statement()) {
            _ if tracker.is_opaque() => Doing::Hidden,
            (None, _) => Doing::LoggingIn,
            (_, Some(_)) => Doing::Running,
            (Some(Transaction::Idle), None) if tracker.at_boundary(Side::Up) => Doing::Idle,
            (Some(Transaction::Idle), None) => Doing::Speaking,
            _ => Doing::Between,
        }
    }

    /// As it is shown.
    pub(super) fn word(self) -> &'static str {
        match self {
            Doing::LoggingIn => "logging in",
            Doing::Idle => "idle",
            Doing::Between => "in transaction",
            Doing::Speaking => "in a message",
            Doing::Running => "active",
            Doing::Hidden => "encrypted",
        }
    }
}

impl Live {
    pub(super) fn new(identity: Identity, pool: Arc<LivePool>, hidden: bool) -> Arc<Live> {
        let doing = if hidden { Doing::Hidden } else { Doing::LoggingIn };
        let low = pool.is_low() && !identity.is_exempt;
        Arc::new(Live {
            doing: AtomicU8::new(doing as u8),
            statements: AtomicU64::new(0),
            since_us: AtomicI64::new(identity.began.0),
            waited_us: AtomicI64::new(0),
            waiting_since_us: AtomicI64::new(0),
            rows: AtomicU64::new(0),
            up_bytes: AtomicU64::new(0),
            down_bytes: AtomicU64::new(0),
            cancel_key: OnceLock::new(),
            told_pid: AtomicI32::new(0),
            is_low: AtomicBool::new(low),
            wants_low: AtomicBool::new(low),
            freed: AtomicBool::new(false),
            let_go_us: AtomicI64::new(i64::MIN),
            undelivered: AtomicBool::new(false),
            cancelling: AtomicBool::new(false),
            granted: AtomicBool::new(false),
            ending: Mutex::new(None),
            held_by: Mutex::new(None),
            called: Notify::new(),
            identity,
            pool,
        })
    }

    pub(super) fn doing(&self) -> Doing {
        let number = usize::from(self.doing.load(Ordering::Acquire));
        Doing::ALL.get(number).copied().unwrap_or(Doing::Hidden)
    }

    /// Bytes passed. Called by its relay alone. What is returned is the time where they changed what the session does.
    pub(super) fn passed(&self, side: Side, bytes: usize, tracker: &Tracker) -> Option<Moment> {
        let counter = if side == Side::Up { &self.up_bytes } else { &self.down_bytes };
        counter.store(counter.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
        self.rows.store(tracker.rows(), Ordering::Relaxed);
        let doing = Doing::of(tracker);
        let statements = tracker.statements();
        if doing == self.doing() && statements == self.statements.load(Ordering::Relaxed) {
            return None;
        }
        if self.cancel_key.get().is_none()
            && let Some(key) = tracker.cancel_key()
        {
            // It is set once: the next call finds it.
            let _ = self.cancel_key.set(key.to_vec());
        }
        if side == Side::Down && doing != Doing::Running {
            // What the statement that ends here waited for is nothing to the next one, which may need no turn.
            self.waited_us.store(0, Ordering::Relaxed);
        }
        let now = clock::now();
        self.since_us.store(now.0, Ordering::Relaxed);
        // Whoever sees this number sees since when: a statement with the time of the one before would be told to run for too long.
        self.statements.store(statements, Ordering::Release);
        self.doing.store(doing as u8, Ordering::Release);
        Some(now)
    }

    /// What it does, it does anew.
    pub(super) fn begins_anew(&self) {
        self.since_us.store(clock::now().0, Ordering::Relaxed);
    }

    /// Whether some of what the server said is held here, as its client does not take it. Called by its relay alone. Who has taken all of
    /// it is idle from then on.
    pub(super) fn holds_answer(&self, holds: bool) {
        if self.undelivered.load(Ordering::Relaxed) == holds {
            return;
        }
        if !holds && self.doing() == Doing::Idle {
            self.begins_anew();
        }
        self.undelivered.store(holds, Ordering::Release);
    }

    /// Whether its client has taken all that was said.
    pub(super) fn is_answered(&self) -> bool {
        !self.undelivered.load(Ordering::Acquire)
    }

    /// What is known now.
    pub(super) fn glimpse(&self, now: Moment) -> Glimpse {
        let doing = self.doing();
        let statements = self.statements.load(Ordering::Acquire);
        let waiting_since = self.waiting_since_us.load(Ordering::Relaxed);
        let is_waiting = waiting_since != 0;
        let waited =
            if is_waiting { now - Moment(waiting_since) } else { Span(self.waited_us.load(Ordering::Relaxed)) };
        // A statement that waits has not been seen by the tracker yet: it will be the next one.
        let statement = if is_waiting { Some(statements + 1) } else { (doing == Doing::Running).then_some(statements) };
        Glimpse {
            doing,
            statement,
            since: Moment(self.since_us.load(Ordering::Relaxed)),
            waited,
            is_waiting,
            statements,
            rows: self.rows.load(Ordering::Relaxed),
            up_bytes: self.up_bytes.load(Ordering::Relaxed),
            down_bytes: self.down_bytes.load(Ordering::Relaxed),
        }
    }

    /// The server's process, if the login or the server told it.
    pub(super) fn server_pid(&self) -> Option<i32> {
        let by_login = || Some(i32::from_be_bytes(*self.cancel_key()?.first_chunk()?));
        let told = self.told_pid.load(Ordering::Relaxed);
        Some(by_login().unwrap_or(told)).filter(|pid| *pid > 0)
    }

    /// The server says that this is its process, or knows none.
    pub(super) fn is_process(&self, pid: Option<i32>) {
        self.told_pid.store(pid.unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether its messages were never seen: it is encrypted through to the server.
    pub(super) fn is_encrypted_through(&self) -> bool {
        self.doing() == Doing::Hidden && self.cancel_key().is_none()
    }

    /// What a cancel request needs.
    pub(super) fn cancel_key(&self) -> Option<&[u8]> {
        self.cancel_key.get().map(Vec::as_slice)
    }

    /// Whether it is of the low class where no rule holds it.
    pub(super) fn belongs_low(&self) -> bool {
        self.pool.is_low() && !self.identity.is_exempt && !self.is_freed()
    }

    /// Somebody urgent waited at that moment for what it held then: it is urgent itself until its transaction ends. Whether it was
    /// not already; never where the transaction has ended meanwhile.
    pub(super) fn free(&self, blocked_at: Moment) -> bool {
        let first = !self.freed.swap(true, Ordering::AcqRel);
        // Looked at afterwards: an end in between takes back either this or what was just said.
        if !self.holds_since(blocked_at) {
            self.freed.store(false, Ordering::Release);
        }
        first && self.is_freed()
    }

    pub(super) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    /// Whether it may still hold what it held at that moment.
    pub(super) fn holds_since(&self, at: Moment) -> bool {
        self.let_go_us.load(Ordering::Acquire) < at.0
    }

    /// A transaction of it has ended, and what it held is gone.
    pub(super) fn lets_go(&self, now: Moment) {
        self.let_go_us.store(now.0, Ordering::Release);
        self.freed.store(false, Ordering::Release);
    }

    /// Whether its statements need turns.
    pub(super) fn needs_turns(&self) -> bool {
        self.pool.is_limited() && !self.identity.is_exempt
    }

    pub(super) fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Acquire)
    }

    /// It is in this class from now on.
    pub(super) fn is_in(&self, low: bool) {
        self.is_low.store(low, Ordering::Release);
    }

    /// Where it should be.
    pub(super) fn wants_low(&self) -> bool {
        self.wants_low.load(Ordering::Acquire)
    }

    /// Puts it into a class; it moves as soon as it is asked.
    pub(super) fn want(&self, low: bool) {
        // Said again and again of every session, most of which rest: what is so already is only read.
        if self.wants_low() != low && self.wants_low.swap(low, Ordering::AcqRel) != low {
            self.called.notify_one();
        }
    }

    /// A cancel request is under way, or is done.
    pub(super) fn cancelling(&self, now: bool) {
        self.cancelling.store(now, Ordering::Release);
        self.called.notify_one();
    }

    pub(super) fn is_cancelling(&self) -> bool {
        self.cancelling.load(Ordering::Acquire)
    }

    /// Ends it where it waits for its turn, and then nothing of what it asked for is begun. False where it does not wait, or no
    /// longer: nothing is done then.
    pub(super) fn end_waiting(&self, ending: Ending) -> bool {
        // Who takes this away decides what becomes of it: its relay does too, before it goes on ([`Live::waited`]).
        let waits = self.waiting_since_us.swap(0, Ordering::Relaxed) != 0;
        if waits {
            self.end(ending);
        }
        waits
    }

    /// Ends it; the first reason counts.
    pub(super) fn end(&self, ending: Ending) {
        self.told(Told { ending, only_while: None });
    }

    /// Ends it for what it has done since some time, if its relay finds that it has done nothing else meanwhile.
    pub(super) fn end_while(&self, doing: Doing, since: Moment, ending: Ending) {
        self.told(Told { ending, only_while: Some((doing, since)) });
    }

    fn told(&self, told: Told) {
        let mut before = self.lock_ending();
        if before.as_ref().is_none_or(|before| before.only_while.is_some()) {
            *before = Some(told);
        }
        drop(before);
        self.called.notify_one();
    }

    /// Why it is to end. For its relay alone, which knows that nothing passes between this and what it does then.
    pub(super) fn ending(&self) -> Option<Ending> {
        let is = (self.doing(), Moment(self.since_us.load(Ordering::Relaxed)));
        self.lock_ending().take_if(|told| told.only_while.is_some_and(|only_while| only_while != is));
        self.lock_ending().as_ref().map(|told| told.ending.clone())
    }

    /// A rule holds it from now on, or none.
    pub(super) fn hold(&self, rule: Option<&str>) {
        *self.held_by.lock().unwrap_or_else(PoisonError::into_inner) = rule.map(str::to_owned);
    }

    /// The rule that holds it.
    pub(super) fn held_by(&self) -> Option<String> {
        self.held_by.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock_ending(&self) -> MutexGuard<'_, Option<Told>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It waits for its turn from now on.
    pub(super) fn waits(&self, now: Moment) {
        self.waiting_since_us.store(now.0.max(1), Ordering::Relaxed);
    }

    /// It waits no longer. False where it did not, or somebody has ended it meanwhile ([`Live::end_waiting`]).
    pub(super) fn waited(&self, now: Moment) -> bool {
        let since = self.waiting_since_us.swap(0, Ordering::Relaxed);
        let waited = if since == 0 { 0 } else { now.0 - since };
        self.waited_us.store(waited, Ordering::Relaxed);
        since != 0
    }

    /// Its turn has come.
    pub(super) fn grant(&self) {
        self.granted.store(true, Ordering::Release);
        self.called.notify_one();
    }

    /// Whether its turn has come since it was last asked.
    pub(super) fn take_grant(&self) -> bool {
        self.granted.swap(false, Ordering::AcqRel)
    }
}
