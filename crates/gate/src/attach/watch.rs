//! Figures of a server's sessions, out of what `pg_stat_activity`, their sockets and their processes show at each look,
//! and what rules make of them. Time is an argument.

use crate::in_line;
use crate::used::{Used, began_ticks, cpu_percent, is_titled, unix_us};
use backwater_flow::rule::{Action, Decision, Figures, Judge, MeanRate, SessionWal, Step, Subject, Why};
use backwater_flow::{SessionId, State};
use backwater_model::{Moment, Span};
use std::collections::{HashMap, HashSet};

const MB: f64 = backwater_flow::MB as f64;

/// How long after its process begins a session does, at most, on a host that has other things to do; and how much sooner it may seem
/// to, since the system counts in hundredths of a second.
const BEGINS_WITHIN_US: std::ops::Range<i64> = -20_000..1_000_000;

/// A client session as the server shows it at one look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// Its process id, as the server knows it.
    pub pid: i32,
    /// When it began, in microseconds of the server's clock: with the process id it names the session.
    pub began_us: i64,
    /// Whose.
    pub user: String,
    /// Whether a statement runs.
    pub active: bool,
    /// When that began, in microseconds of the server's clock.
    pub statement_us: Option<i64>,
    /// Seconds that it runs, by the server's clock.
    pub elapsed_s: Option<f64>,
    /// Seconds for which it has had neither statement nor transaction, by the server's clock; None while it has one.
    pub idle_s: Option<f64>,
    /// Whether it waits for a lock, and for whose: their process ids.
    pub blocked_by: Vec<i32>,
    /// Bytes of its temporary files; None: may not be seen.
    pub spill_bytes: Option<f64>,
    /// WAL that the session wrote since it began (PostgreSQL 18); None: not known.
    pub wal_bytes: Option<f64>,
    /// Rows that it has copied to its client so far (PostgreSQL 14); None: it does not, or it is not known.
    pub copied_rows: Option<f64>,
}

/// The process on this host of a session whose client came by a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalProcess {
    pid: i32,
    /// When it began, which tells it from a later one of the same number, whatever becomes of the clock.
    began_ticks: u64,
}

impl LocalProcess {
    /// The process that has the session's number here, is titled as one of its user's by a Unix socket, and began as the session did.
    pub fn of(session: &Activity) -> Option<LocalProcess> {
        let (pid, began_ticks) = (session.pid, began_ticks(session.pid)?);
        let marks = [&*format!(" {} ", session.user), "[local]"];
        let is_it = begins_with(session.began_us, unix_us(began_ticks)) && is_titled(pid, &marks);
        is_it.then_some(LocalProcess { pid, began_ticks })
    }

    /// Its number, as long as it is there.
    pub fn pid(self) -> Option<i32> {
        (began_ticks(self.pid) == Some(self.began_ticks)).then_some(self.pid)
    }
}

/// Whether a session that began then is of a process that began then, both in microseconds since 1970.
fn begins_with(session_us: i64, process_us: i64) -> bool {
    BEGINS_WITHIN_US.contains(&session_us.saturating_sub(process_us))
}

/// What the host shows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Bytes that its client acknowledged since it connected.
    pub acked_bytes: Option<u64>,
    /// Processor seconds of its process.
    pub cpu_s: Option<f64>,
    /// Private memory of its process, in bytes.
    pub memory_bytes: Option<f64>,
    /// Rows that its query has sent to its client so far, counted after the server was asked.
    pub rows: Option<f64>,
}

impl Seen {
    /// What its process shows, and nothing of its connection.
    pub fn of_process(pid: i32) -> Seen {
        let Used { cpu_s, memory_bytes } = Used::of(pid);
        Seen { cpu_s, memory_bytes, ..Seen::default() }
    }
}

/// The memory between looks, and the judge.
#[derive(Debug, Default)]
pub struct Watch {
    judge: Judge,
    sessions: HashMap<(i32, i64), Session>,
    numbered: u64,
    /// Processes that are no client's and wait for locks, and whom they wait for.
    besides: HashMap<i32, Vec<i32>>,
}

#[derive(Debug)]
struct Session {
    id: SessionId,
    statement: u64,
    statement_us: Option<i64>,
    last_look: Option<Moment>,
    blocked_s: f64,
    /// It waited for a lock at the last look.
    was_blocked: bool,
    /// The statement that an abort ends.
    stopped: Option<u64>,
    /// Figures of the process when the statement was first seen.
    cpu_began_s: Option<f64>,
    acked: Option<u64>,
    sent: MeanRate,
    wal: SessionWal,
    /// The most rows that the statement was seen to have sent: while a function of its runs a query, its own is not seen.
    rows: Option<f64>,
    /// Those that were counted right after the last look, perhaps of the next statement: sure once a look finds the same one.
    rows_after: Option<f64>,
}

impl Watch {
    /// Nothing seen yet.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// Looks at all sessions that there are, and judges each by the rules of its user's pool. Decisions come with the session's
    /// process id and begin.
    pub fn look(&mut self, now: Moment, activities: &[(Activity, Seen)], state: &State) -> Vec<((i32, i64), Decision)> {
        let mut decisions = Vec::new();
        for (activity, seen) in activities {
            let key = (activity.pid, activity.began_us);
            let session = self.sessions.entry(key).or_insert_with(|| {
                self.numbered += 1;
                Session::new(SessionId(self.numbered))
            });
            let figures = session.figures(now, activity, seen);
            let pool = state.pool_of(&activity.user);
            let statement = activity.active.then_some(session.statement);
            let sent_bytes = seen.acked_bytes.unwrap_or_default();
            let subject = Subject {
                session: session.id,
                user: &activity.user,
                pool,
                // A session here is known by its process.
                client: None,
                server_pid: None,
                statement,
                sent_bytes,
            };
            let made = self.judge.look(now, subject, state.rules_of(pool), &figures);
            let aborts = |decision: &&Decision| (decision.action, decision.step) == (Action::Abort, Step::Began);
            session.stopped = made.iter().find(aborts).map(|decision| decision.statement).or(session.stopped);
            decisions.extend(made.into_iter().map(|decision| (key, decision)));
        }
        decisions.extend(self.gone(now, activities));
        decisions.extend(self.blocking(now, activities, state));
        decisions
    }

    /// Nobody is looked at any more, for this reason: what was done is lifted, and whoever is there later is met anew.
    pub fn lift_all(&mut self, now: Moment, why: Why) -> Vec<((i32, i64), Decision)> {
        let mut decisions = Vec::new();
        for (key, session) in self.sessions.drain() {
            let lifted = self.judge.forget(now, session.id, why);
            decisions.extend(lifted.into_iter().map(|decision| (key, decision)));
        }
        decisions
    }

    /// Who else waits at this look for locks of whom: what the server does by itself (applies, replays, works in the background), by
    /// process id. It is nobody's low session, and waits as urgent ones do.
    pub fn besides(&mut self, waiting: impl IntoIterator<Item = (i32, Vec<i32>)>) {
        self.besides = waiting.into_iter().collect();
    }

    /// The sessions of low-priority pools that are to be held now, whatever they do: not those that hold a lock for which somebody
    /// waits who is not held.
    pub fn low(&self, activities: &[(Activity, Seen)], state: &State) -> HashSet<(i32, i64)> {
        let blockers = self.blockers(activities, state);
        let low = activities.iter().map(|(activity, _)| activity).filter(|activity| state.is_low(&activity.user));
        low.filter(|activity| !blockers.contains(&activity.pid))
            .map(|activity| (activity.pid, activity.began_us))
            .collect()
    }

    /// The rows that a session's statement was last seen to have sent.
    pub fn rows_of(&self, key: (i32, i64)) -> Option<u64> {
        self.sessions.get(&key)?.rows.map(|rows| rows as u64)
    }

    /// The rule that demotes a session now.
    pub fn penalised_by(&self, key: (i32, i64)) -> Option<&str> {
        self.judge.penalised_by(self.sessions.get(&key)?.id)
    }

    /// Whether a session is demoted now.
    pub fn is_penalised(&self, key: (i32, i64)) -> bool {
        self.penalised_by(key).is_some()
    }

    /// Those that are.
    pub fn penalised(&self) -> impl Iterator<Item = (i32, i64)> {
        self.sessions.keys().copied().filter(move |key| self.is_penalised(*key))
    }

    /// Process ids of those for whose locks somebody waits who is neither demoted nor of a low-priority pool, and of
    /// those for whom these wait in turn: a server names only who is next in line.
    fn blockers(&self, activities: &[(Activity, Seen)], state: &State) -> HashSet<i32> {
        let urgent = |activity: &&Activity| {
            !self.is_penalised((activity.pid, activity.began_us)) && !state.is_low(&activity.user)
        };
        let all = || activities.iter().map(|(activity, _)| activity);
        let by_pid: HashMap<i32, &Activity> = all().map(|activity| (activity.pid, activity)).collect();
        let blocked_by =
            |pid: i32| by_pid.get(&pid).map(|activity| &activity.blocked_by).or_else(|| self.besides.get(&pid));
        let waiting = all().filter(urgent).map(|activity| activity.pid).chain(self.besides.keys().copied());
        in_line::blockers(waiting, |pid| Some((blocked_by(pid)?.clone(), ()))).into_keys().collect()
    }

    fn gone(&mut self, now: Moment, activities: &[(Activity, Seen)]) -> Vec<((i32, i64), Decision)> {
        let here: HashSet<_> = activities.iter().map(|(activity, _)| (activity.pid, activity.began_us)).collect();
        let gone: Vec<_> = self.sessions.keys().copied().filter(|key| !here.contains(key)).collect();
        let mut decisions = Vec::new();
        for key in gone {
            if let Some(session) = self.sessions.remove(&key) {
                let lifted = self.judge.forget(now, session.id, Why::SessionEnded);
                decisions.extend(lifted.into_iter().map(|decision| (key, decision)));
            }
        }
        decisions
    }

    /// A demoted session whose lock somebody waits for who is not demoted is let go at once.
    fn blocking(&mut self, now: Moment, activities: &[(Activity, Seen)], state: &State) -> Vec<((i32, i64), Decision)> {
        let blockers = self.blockers(activities, state);
        let mut decisions = Vec::new();
        for (activity, _) in activities.iter().filter(|(activity, _)| blockers.contains(&activity.pid)) {
            let key = (activity.pid, activity.began_us);
            if let Some(session) = self.sessions.get(&key) {
                let lifted = self.judge.lift(now, session.id, Why::BlockedUrgent);
                decisions.extend(lifted.into_iter().map(|decision| (key, decision)));
            }
        }
        decisions
    }
}

impl Session {
    fn new(id: SessionId) -> Session {
        Session {
            id,
            statement: 0,
            statement_us: None,
            last_look: None,
            blocked_s: 0.0,
            was_blocked: false,
            stopped: None,
            cpu_began_s: None,
            acked: None,
            sent: MeanRate::default(),
            wal: SessionWal::default(),
            rows: None,
            rows_after: None,
        }
    }

    /// CPU of a statement is counted from its first look: what it used before is not held against it.
    fn figures(&mut self, now: Moment, activity: &Activity, seen: &Seen) -> Figures {
        let passed = self.last_look.map_or(Span(0), |last| (now - last).max(Span(0)));
        self.last_look = Some(now);
        let is_blocked = activity.active && !activity.blocked_by.is_empty();
        let was_blocked = std::mem::replace(&mut self.was_blocked, is_blocked);
        let begins = activity.active && (activity.statement_us != self.statement_us || self.statement == 0);
        if begins {
            self.statement += 1;
            self.statement_us = activity.statement_us;
            self.blocked_s = 0.0;
            self.cpu_began_s = seen.cpu_s;
            (self.rows, self.rows_after) = (None, None);
        } else if is_blocked && was_blocked {
            // Since when between two looks is not known: it may have been a moment ago.
            self.blocked_s += passed.seconds();
        }
        if let (Some(before), Some(acked)) = (self.acked, seen.acked_bytes) {
            self.sent.add_over(now, acked.saturating_sub(before), passed);
        }
        self.acked = seen.acked_bytes;
        if begins && self.stopped.take().is_some() {
            // What was aborted sent it, not this one, which the rule would hit at once.
            self.sent = MeanRate::default();
        }
        self.wal.see(now, activity.idle_s.map(Span::from_seconds), activity.wal_bytes);
        if !activity.active {
            return Figures::default();
        }
        self.rows = [self.rows, self.rows_after, activity.copied_rows].into_iter().flatten().reduce(f64::max);
        self.rows_after = seen.rows;
        let since = |value: Option<f64>, began: Option<f64>| Some((value? - began?).max(0.0));
        let cpu_s = since(seen.cpu_s, self.cpu_began_s);
        let elapsed_s = activity.elapsed_s;
        Figures {
            elapsed_s,
            blocked_s: Some(self.blocked_s),
            bandwidth_mb_per_s: self.acked.map(|_| self.sent.bytes_per_second(now) / MB),
            cpu_s,
            cpu_percent: cpu_s.zip(elapsed_s).and_then(|(cpu_s, elapsed_s)| cpu_percent(cpu_s, elapsed_s)),
            spill_mb: activity.spill_bytes.map(|bytes| bytes / MB),
            memory_mb: seen.memory_bytes.map(|bytes| bytes / MB),
            wal_mb_per_s: self.wal.mb_per_s(now),
            wal_mb: self.wal.mb(),
            rows: self.rows,
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
