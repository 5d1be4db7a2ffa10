//! Looks at the sessions of pools with rules, lets [`backwater_flow::rule::Judge`] decide, and carries it out: a penalty
//! moves a session to the low class, an abort sends a cancel request and, if that does not help, ends the session.
//! Everything runs in one thread of its own, beside the relays: a session costs it a few loads a look.

use super::acceptor::Workers;
use super::cancel;
use super::control::Control;
use super::hidden::{Activity, Seen, Statements};
use super::live::{Doing, Ending, Glimpse, Live};
use super::process::Process;
use super::reach::in_time;
use super::server_view::Told;
use super::terms::Terms;
use super::worker::{Arrival, Phase};
use crate::wire::cancel_request;
use crate::{GateError, clock, in_line};
use backwater_flow::rule::{Action, Attribute, Decision, Figures, MeanRate, Rule, SessionWal, Step, Subject, Why};
use backwater_flow::{MB, PoolId, SessionId};
use backwater_model::{Moment, Span};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How often sessions are looked at: what a rule's thresholds are late by at most.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A session that only the server sees, and of which it tells nothing for so long, is held by no rule any more.
const UNSEEN_FOR: Span = Span::from_millis(10_000);
/// A server that has not been connected with and taken a cancel request within this time is not waited for: the session
/// may go on.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// The judge's thread.
pub(super) struct Bench {
    control: Arc<Control>,
    judge: backwater_flow::rule::Judge,
    watched: HashMap<SessionId, Watched>,
    /// Sessions of low pools that were let go.
    freed: HashSet<SessionId>,
    /// When the server had told what was looked at last.
    told_at: Option<Moment>,
}

/// What is remembered of a session between two looks.
#[derive(Default)]
struct Watched {
    mean: MeanRate,
    /// Sent when it was last looked at: what was before the first look is not held against it.
    down_bytes: Option<u64>,
    /// The statement that was last looked at.
    statement: Option<u64>,
    process: Process,
    /// The statement whose process that is.
    process_of: Option<u64>,
    /// The statement that an abort ends.
    stopped: Option<u64>,
    /// The same with its rule, where nothing was sent for it, as its turn came just then and it had not begun: the next look makes up for
    /// that. Where it does not run then either, it is judged anew.
    owed: Option<(u64, String)>,
    /// Seconds that it waited for locks, and when it was last looked at.
    locked_s: f64,
    was_locked: bool,
    looked_at: Option<Moment>,
    wal: SessionWal,
    /// Of a session that is encrypted through to the server.
    statements: Statements,
    unseen_since: Option<Moment>,
    seen: bool,
}

/// Starts the thread. It ends with the proxy, and says of everything that rules did that it is over. Sessions that change their class come by `moving`.
pub(super) fn start(
    control: Arc<Control>,
    workers: Arc<Workers>,
    mut moving: mpsc::UnboundedReceiver<Arrival>,
    mut phase: watch::Receiver<Phase>,
) -> Result<JoinHandle<()>, GateError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().build().map_err(GateError::system("start the judge"))?;
    let judging = async move {
        let mut bench = Bench::new(control);
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                // An error means that the proxy was dropped, which is the same.
                _ = phase.wait_for(|phase| *phase == Phase::Ending) => return bench.end(clock::now()),
                Some(arrival) = moving.recv() => {
                    bench.control.counters.moves.fetch_add(1, Ordering::Relaxed);
                    workers.hand(arrival);
                }
                _ = ticks.tick() => bench.look(clock::now()),
            }
        }
    };
    let thread = std::thread::Builder::new().name("judge".to_owned());
    let run = move || {
        runtime.block_on(judging);
        // Looking up a name for a cancel request may hang in a thread of its own; nobody waits for it.
        runtime.shutdown_background();
    };
    thread.spawn(run).map_err(GateError::system("start the judge"))
}

/// One look at all sessions.
struct Round<'r> {
    now: Moment,
    control: &'r Control,
    terms: &'r Terms,
    /// When the server told what is believed now, and whether it has since the last round.
    told_at: Option<Moment>,
    news: bool,
}

impl Bench {
    fn new(control: Arc<Control>) -> Bench {
        let (judge, watched) = (backwater_flow::rule::Judge::new(), HashMap::new());
        Bench { control, judge, watched, freed: HashSet::new(), told_at: None }
    }

    fn look(&mut self, now: Moment) {
        let control = Arc::clone(&self.control);
        let terms = control.terms();
        let sessions = control.sessions();
        // Whom only the server sees is looked at once for each of its answers.
        let told_at = control.server_view.told_at(now);
        let news = std::mem::replace(&mut self.told_at, told_at) != told_at;
        let round = Round { now, control: &control, terms: &terms, told_at, news };
        // Of ten thousand sessions most do nothing: what their pool says is looked up once, and nothing of theirs is written.
        let mut rules_by_pool: BTreeMap<PoolId, Vec<(&str, &Rule)>> = BTreeMap::new();
        let (mut held, mut unseen) = (Vec::new(), Vec::new());
        for live in sessions.iter() {
            // Asked first: who has taken its answer by now is idle since then.
            let is_answered = live.is_answered();
            let glimpse = live.glimpse(now);
            if live.is_low() {
                held.push(live);
            }
            if glimpse.doing == Doing::Hidden && live.is_freed() {
                unseen.push(live);
            }
            if glimpse.is_waiting {
                // It looks whether its client is still there.
                live.called.notify_one();
            }
            let overstayed = terms.limits.overstayed(glimpse.doing, glimpse.since, now);
            // Who waits for a turn has said something, and who is still reading is not idle: what is held for it would be lost.
            let is_busy = glimpse.is_waiting || (glimpse.doing == Doing::Idle && !is_answered);
            if let Some(ending) = overstayed.filter(|_| !is_busy) {
                live.end_while(glimpse.doing, glimpse.since, ending);
            }
            let of_pool = || terms.state.rules_of(&live.pool.name).collect();
            let rules = match live.identity.is_exempt {
                true => &[][..],
                false => rules_by_pool.entry(live.pool.id).or_insert_with(of_pool),
            };
            self.look_at(live, glimpse, rules, &round);
            live.want(live.belongs_low() || self.judge.is_penalised(live.identity.id));
        }
        self.tell_returns(&sessions);
        if !held.is_empty() || !unseen.is_empty() {
            let blockers = blockers(&control, &sessions, now);
            self.free_blockers(&control, &blockers, &held, now);
            // Whose transaction's end nobody sees is let go for as long as it is known to block.
            let goes_on = |live: &&Arc<Live>| live.server_pid().is_some_and(|pid| blockers.contains_key(&pid));
            unseen.into_iter().filter(|live| !goes_on(live)).for_each(|live| live.lets_go(now));
        }
        self.forget(now);
    }

    /// Judges a session by the rules of its pool.
    fn look_at(&mut self, live: &Arc<Live>, glimpse: Glimpse, rules: &[(&str, &Rule)], round: &Round<'_>) {
        let (id, now) = (live.identity.id, round.now);
        let is_through = glimpse.doing == Doing::Hidden && live.is_encrypted_through();
        let by_server =
            (is_through && round.news).then(|| round.control.server_view.told_of_hidden(live, now)).flatten();
        if is_through && round.news {
            live.is_process(by_server.as_ref().map(|(pid, _)| *pid));
        }
        if rules.is_empty() && !self.watched.contains_key(&id) {
            return;
        }
        let watched = self.watched.entry(id).or_default();
        watched.seen = true;
        if is_through && round.told_at.is_some() && !round.news {
            return;
        }
        let Some(seen) = watched.look(live, glimpse, by_server, round.control, now) else {
            let is_lost = watched.is_unseen(now) >= UNSEEN_FOR && is_through;
            if is_lost && round.told_at.is_some() && !rules.is_empty() {
                round.control.not_found(live);
            }
            return self.let_go_unseen(live, &glimpse, rules, is_lost, now);
        };
        let figures = watched.figures(&seen, now, rules, round.terms.server_is_here);
        let (statement, sent_bytes) = (seen.glimpse.statement, seen.glimpse.down_bytes);
        let subject = Subject {
            session: id,
            user: &seen.user,
            pool: &live.pool.name,
            client: Some(&live.identity.peer),
            server_pid: live.server_pid(),
            statement,
            sent_bytes,
        };
        if let Some((number, rule)) = watched.owed.take()
            && !(glimpse.statement == Some(number) && !glimpse.is_waiting && self.cancel(live, Some(number)))
        {
            let not_done = self.judge.take_back(now, id, &rule);
            not_done.iter().for_each(|decision| self.control.decided(decision));
        }
        for decision in self.judge.look(now, subject, rules.iter().copied(), &figures) {
            let done = match (&seen.by_server, decision.action) {
                (Some((pid, activity)), Action::Abort) => self.stop_by_server(&decision, *pid, activity),
                _ => self.carry_out(&decision, live, &glimpse),
            };
            if (decision.action, decision.step) == (Action::Abort, Step::Began)
                && let Some(watched) = self.watched.get_mut(&id)
            {
                watched.stopped = Some(decision.statement);
                watched.owed = (!done).then_some((decision.statement, decision.rule));
            }
        }
    }

    /// Whoever can no longer be followed keeps what it was given: nobody sees its statement end. A rule's end is seen, and where the
    /// server was to tell and does not, it is not held for ever.
    fn let_go_unseen(
        &mut self,
        live: &Arc<Live>,
        glimpse: &Glimpse,
        rules: &[(&str, &Rule)],
        is_lost: bool,
        now: Moment,
    ) {
        let Some(held) = live.held_by() else { return };
        let stands = rules.iter().any(|(name, rule)| **name == *held && rule.action == Action::Penalty);
        let why = if stands { Why::Unseen } else { Why::RuleGone };
        if is_lost || !stands {
            for decision in self.judge.lift(now, live.identity.id, why) {
                self.carry_out(&decision, live, glimpse);
            }
        }
    }

    /// A session of the low class, by its pool or by a rule, is let go at once while somebody waits for its lock who is urgent.
    fn free_blockers(&mut self, control: &Control, blockers: &HashMap<i32, Moment>, held: &[&Arc<Live>], now: Moment) {
        for live in held {
            let Some(blocked_at) = live.server_pid().and_then(|pid| blockers.get(&pid)).copied() else { continue };
            // What the server said of a transaction that has ended is nothing against the next one.
            if !live.holds_since(blocked_at) {
                continue;
            }
            let glimpse = live.glimpse(now);
            for decision in self.judge.lift(now, live.identity.id, Why::BlockedUrgent) {
                self.carry_out(&decision, live, &glimpse);
            }
            if live.pool.is_low() && live.free(blocked_at) {
                control.freed(live, true);
                self.freed.insert(live.identity.id);
            }
            live.want(live.belongs_low());
        }
    }

    /// Sessions that were let go and are held again; of one that is gone there is nothing to tell.
    fn tell_returns(&mut self, sessions: &[Arc<Live>]) {
        let control = &self.control;
        self.freed.retain(|id| {
            let place = sessions.binary_search_by_key(id, |live| live.identity.id);
            let Some(live) = place.ok().and_then(|place| sessions.get(place)) else { return false };
            let still = live.is_freed();
            if !still && live.belongs_low() {
                control.freed(live, false);
            }
            still
        });
    }

    /// Sessions that are gone.
    fn forget(&mut self, now: Moment) {
        let (control, judge) = (&self.control, &mut self.judge);
        self.watched.retain(|id, watched| {
            let there = std::mem::take(&mut watched.seen);
            if !there {
                judge.forget(now, *id, Why::SessionEnded).iter().for_each(|decision| control.decided(decision));
            }
            there
        });
    }

    /// Nobody is judged any more. Of sessions that went since the last look it is told that they did.
    fn end(&mut self, now: Moment) {
        let sessions = self.control.sessions();
        let is_here = |id: &SessionId| sessions.binary_search_by_key(id, |live| live.identity.id).is_ok();
        for id in self.watched.keys().filter(|id| !is_here(id)) {
            let gone = self.judge.forget(now, *id, Why::SessionEnded);
            gone.iter().for_each(|decision| self.control.decided(decision));
        }
        self.judge.end(now).iter().for_each(|decision| self.control.decided(decision));
    }

    /// False where the statement that is to be stopped does not run (yet).
    fn carry_out(&self, decision: &Decision, live: &Arc<Live>, glimpse: &Glimpse) -> bool {
        self.control.decided(decision);
        let Decision { rule, .. } = decision;
        match (decision.action, decision.step) {
            (Action::Abort, Step::Began) => {
                let pool = &live.pool.name;
                let why =
                    format!("terminating connection: rule {rule} ends what waits so long for its turn in pool {pool}");
                // One whose turn has come meanwhile is cancelled as others are.
                let has_ended = glimpse.is_waiting && live.end_waiting(Ending { sqlstate: "57014", why });
                return has_ended || self.cancel(live, Some(decision.statement));
            }
            (Action::Abort, Step::Escalated) => {
                live.end(Ending {
                    sqlstate: "57P01",
                    why: format!("terminating connection: rule {rule} cancelled its statement, and it went on"),
                });
                self.cancel(live, None);
                if let Some(pid) = live.server_pid() {
                    self.control.server_view.terminate(pid, &live.identity);
                }
            }
            // The class follows from what is in force.
            (Action::Penalty, Step::Began) => live.hold(Some(rule)),
            (Action::Penalty, Step::Lifted(_)) => live.hold(None),
            // A dry run is carried out by being told.
            _ => {}
        }
        true
    }

    /// Stops a statement that only the server sees; where it goes on, its session. The server tells the client why, within its
    /// encryption.
    fn stop_by_server(&self, decision: &Decision, pid: i32, activity: &Activity) -> bool {
        self.control.decided(decision);
        let whole_session = decision.step == Step::Escalated;
        if decision.step == Step::Began {
            self.control.counters.cancels.fetch_add(1, Ordering::Relaxed);
        }
        if whole_session || decision.step == Step::Began {
            self.control.server_view.stop(pid, activity, whole_session);
        }
        true
    }

    /// Sends a cancel request, for this statement or for whatever runs. Until the server has taken it the session begins no other
    /// statement, which it might hit. False where that statement does not run (yet): nothing is sent then.
    fn cancel(&self, live: &Arc<Live>, statement: Option<u64>) -> bool {
        let Some(key) = live.cancel_key() else {
            tracing::warn!(session = %live.identity.id, "its server gave no cancel key: its statement cannot be cancelled");
            return true;
        };
        let (packet, live) = (cancel_request(key), Arc::clone(live));
        let terms = self.control.terms();
        live.cancelling(true);
        // From here on no other begins; one that began since the decision is left alone.
        if statement.is_some() && live.glimpse(clock::now()).statement != statement {
            live.cancelling(false);
            return false;
        }
        self.control.counters.cancels.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let sent = in_time(CANCEL_WITHIN, cancel::send(&terms, Some(&live), &packet));
            if let Err(error) = sent.await {
                tracing::warn!(session = %live.identity.id, %error, "a cancel request failed");
            }
            live.cancelling(false);
        });
        true
    }
}

impl Watched {
    /// Takes what the server told. Locks of a statement are counted from its first look: what was before is not held against it.
    fn take(&mut self, now: Moment, statement: u64, told: Option<&Told>) {
        let passed_s = self.looked_at.replace(now).map_or(0.0, |last| now.seconds_since(last));
        let is_locked = told.is_some_and(|told| !told.blocked_by.is_empty());
        let was_locked = std::mem::replace(&mut self.was_locked, is_locked);
        if self.statement != Some(statement) {
            self.locked_s = 0.0;
        } else if is_locked && was_locked {
            // Since when between two looks is not known.
            self.locked_s += passed_s;
        }
    }

    /// What is known of a session: by its messages, or where these are hidden by the server. None where neither tells.
    fn look<'l>(
        &mut self,
        live: &'l Live,
        glimpse: Glimpse,
        by_server: Option<(i32, Told)>,
        control: &Control,
        now: Moment,
    ) -> Option<Seen<'l>> {
        if glimpse.doing == Doing::Hidden {
            let seen = Seen::by_server(live, glimpse, by_server?, &mut self.statements)?;
            self.unseen_since = None;
            return Some(seen);
        }
        let told = live.server_pid().and_then(|pid| control.server_view.told(pid, now));
        Some(Seen::by_messages(live, glimpse, now, told))
    }

    /// Nobody tells of it now: what passes meanwhile is no rate of later. For how long already.
    fn is_unseen(&mut self, now: Moment) -> Span {
        (self.looked_at, self.down_bytes) = (None, None);
        self.wal.see(now, None, None);
        now - *self.unseen_since.get_or_insert(now)
    }

    /// What is known of the statement that runs or waits.
    fn figures(&mut self, seen: &Seen<'_>, now: Moment, rules: &[(&str, &Rule)], server_is_here: bool) -> Figures {
        let Seen { live, glimpse, told, .. } = seen;
        let told = told.as_ref();
        let sent = self.down_bytes.replace(glimpse.down_bytes);
        self.mean.add(now, sent.map_or(0, |before| glimpse.down_bytes.saturating_sub(before)));
        let rested = (glimpse.doing == Doing::Idle && !glimpse.is_waiting).then(|| now - glimpse.since);
        self.wal.see(now, rested, told.and_then(|told| told.wal_bytes));
        let Some(statement) = glimpse.statement else { return Figures::default() };
        // Nor is what an aborted one sent held against the next, which the rule would hit at once.
        if self.stopped.take_if(|stopped| *stopped != statement).is_some() {
            self.mean = MeanRate::default();
        }
        // What the server said of the statement before is not held against this one.
        let of_it = told.filter(|told| told.asked_at >= glimpse.since);
        self.take(now, statement, of_it);
        let blocked_s = Some(glimpse.waited.seconds() + self.locked_s);
        if glimpse.is_waiting {
            return Figures { blocked_s, ..Figures::default() };
        }
        let elapsed = seen.until - glimpse.since;
        let process = server_is_here && wants_process(rules);
        if process && let Some(pid) = live.server_pid() {
            // Not of the statement that was last looked at: no rule may have asked for its process.
            let begins = self.process_of.replace(statement) != Some(statement);
            let user = format!(" {} ", seen.user);
            self.process.look(pid, &[&user, &live.identity.server_mark], begins, glimpse.since, now);
        }
        self.statement = Some(statement);
        let process = Some(&self.process).filter(|_| self.process_of == Some(statement));
        Figures {
            elapsed_s: Some(elapsed.max(Span(0)).seconds()),
            blocked_s,
            bandwidth_mb_per_s: Some(self.mean.bytes_per_second(now) / MB as f64),
            rows: seen.rows.map(|rows| rows as f64),
            cpu_s: process.and_then(Process::cpu_s),
            cpu_percent: process.and_then(Process::cpu_percent),
            memory_mb: process.and_then(Process::private_mb),
            spill_mb: of_it.and_then(|told| told.spill_bytes).map(|bytes| bytes / MB as f64),
            wal_mb_per_s: self.wal.mb_per_s(now),
            wal_mb: self.wal.mb(),
        }
    }
}

/// The server's processes that urgent ones wait for, and those that these wait for in turn (a server names only who is next
/// in line), with when it was asked.
fn blockers(control: &Control, sessions: &[Arc<Live>], now: Moment) -> HashMap<i32, Moment> {
    let urgent = sessions.iter().filter(|live| !live.is_low()).filter_map(|live| live.server_pid());
    in_line::blockers(urgent, |pid| control.server_view.told(pid, now).map(|told| (told.blocked_by, told.asked_at)))
}

/// Whether any rule looks at what only the system knows of the server's process.
fn wants_process(rules: &[(&str, &Rule)]) -> bool {
    const OF_PROCESS: [Attribute; 3] = [Attribute::CpuTime, Attribute::CpuAvgPercent, Attribute::MemSize];
    rules.iter().any(|(_, rule)| OF_PROCESS.iter().any(|of| matches!(rule.thresholds.get(of), Some(Some(_)))))
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
