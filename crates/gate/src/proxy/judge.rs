//! Looks at the sessions of pools with rules, lets [`backwater_flow::rule::Judge`] decide, and carries it out: a penalty
//! moves a session to the low class, an abort sends a cancel request and, if that does not help, ends the session.
//! Everything runs in one thread of its own, beside the relays: a session costs it a few loads a look.

use super::acceptor::Workers;
use super::control::Control;
use super::live::{Doing, Ending, Glimpse, Live};
use super::process::Process;
use super::server_view::Told;
use super::stream::Stream;
use super::worker::{Arrival, Phase};
use crate::wire::cancel_request;
use crate::{GateError, clock};
use backwater_flow::rule::{Action, Attribute, Decision, Figures, MeanRate, Rule, SessionWal, Step, Subject, Why};
use backwater_flow::{MB, PoolId, SessionId};
use backwater_model::{Moment, Span};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How often sessions are looked at: what a rule's thresholds are late by at most.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A server that does not answer a cancel request within this time is not waited for: the session may go on.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// The judge's thread.
pub(super) struct Bench {
    control: Arc<Control>,
    judge: backwater_flow::rule::Judge,
    watched: HashMap<SessionId, Watched>,
}

/// What is remembered of a session between two looks.
#[derive(Default)]
struct Watched {
    mean: MeanRate,
    down_bytes: u64,
    /// The statement that the process's figures are counted from.
    statement: Option<u64>,
    process: Process,
    /// Seconds that it waited for locks, and when it was last looked at.
    locked_s: f64,
    looked_at: Option<Moment>,
    wal: SessionWal,
    seen: bool,
}

/// Starts the thread. It ends with the proxy. Sessions that change their class come by `moving`.
pub(super) fn start(
    control: Arc<Control>,
    workers: Arc<Workers>,
    mut moving: mpsc::UnboundedReceiver<Arrival>,
    mut phase: watch::Receiver<Phase>,
) -> Result<(), GateError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().build().map_err(GateError::system("start the judge"))?;
    let judging = async move {
        let mut bench = Bench { control, judge: backwater_flow::rule::Judge::new(), watched: HashMap::new() };
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                // An error means that the proxy was dropped, which is the same.
                _ = phase.wait_for(|phase| *phase == Phase::Ending) => return,
                Some(arrival) = moving.recv() => {
                    bench.control.counters.moves.fetch_add(1, Ordering::Relaxed);
                    workers.hand(arrival);
                }
                _ = ticks.tick() => bench.look(clock::now()),
            }
        }
    };
    let thread = std::thread::Builder::new().name("judge".to_owned());
    thread.spawn(move || runtime.block_on(judging)).map_err(GateError::system("start the judge"))?;
    Ok(())
}

impl Bench {
    fn look(&mut self, now: Moment) {
        let control = Arc::clone(&self.control);
        let terms = control.terms();
        let sessions = control.sessions();
        // Of ten thousand sessions most do nothing: what their pool says is looked up once, and nothing of theirs is written.
        let mut rules_by_pool: BTreeMap<PoolId, Vec<(&str, &Rule)>> = BTreeMap::new();
        let (mut held, mut unseen) = (Vec::new(), Vec::new());
        for live in sessions.iter() {
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
            // Who waits for a turn has said something.
            let overstayed = terms.limits.overstayed(glimpse.doing, glimpse.since, now);
            if let Some(ending) = overstayed.filter(|_| !glimpse.is_waiting) {
                live.end(ending);
            }
            let of_pool = || terms.state.rules_of(&live.pool.name).collect();
            let rules = match live.identity.is_exempt {
                true => &[][..],
                false => rules_by_pool.entry(live.pool.id).or_insert_with(of_pool),
            };
            let id = live.identity.id;
            if rules.is_empty() && !self.watched.contains_key(&id) {
                live.want(live.belongs_low());
                continue;
            }
            let watched = self.watched.entry(id).or_default();
            watched.seen = true;
            if glimpse.doing == Doing::Hidden {
                // Whoever can no longer be followed keeps what it was given: nobody sees its statement end. A rule's end is seen.
                let stands =
                    |held: &String| rules.iter().any(|(name, rule)| name == held && rule.action == Action::Penalty);
                if live.held_by().is_some_and(|held| !stands(&held)) {
                    for decision in self.judge.lift(now, id, Why::RuleGone) {
                        self.carry_out(&decision, live, &glimpse);
                    }
                }
                live.want(live.belongs_low() || self.judge.is_penalised(id));
                continue;
            }
            let told = live.server_pid().and_then(|pid| control.server_view.told(pid, now));
            let figures = watched.figures((live, &glimpse), now, rules, terms.server_is_here, told.as_ref());
            let subject =
                Subject { session: id, user: &live.identity.user, pool: &live.pool.name, statement: glimpse.statement };
            for decision in self.judge.look(now, subject, rules.iter().copied(), &figures) {
                self.carry_out(&decision, live, &glimpse);
            }
            live.want(live.belongs_low() || self.judge.is_penalised(id));
        }
        if !held.is_empty() || !unseen.is_empty() {
            let blockers = blockers(&control, &sessions, now);
            self.free_blockers(&control, &blockers, &held, now);
            // Whose transaction's end nobody sees is let go for as long as it is known to block.
            let goes_on = |live: &&Arc<Live>| live.server_pid().is_some_and(|pid| blockers.contains_key(&pid));
            unseen.into_iter().filter(|live| !goes_on(live)).for_each(|live| live.lets_go(now));
        }
        self.forget(now);
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
                let who =
                    format!("session {} (user {}, pool {})", live.identity.id, live.identity.user, live.pool.name);
                control.freed(&format!("{who} is let go until its transaction ends: it blocked urgent work"), live);
            }
            live.want(live.belongs_low());
        }
    }

    /// Sessions that are gone.
    fn forget(&mut self, now: Moment) {
        let (control, judge) = (&self.control, &mut self.judge);
        self.watched.retain(|id, watched| {
            let there = std::mem::take(&mut watched.seen);
            if !there {
                judge.forget(now, *id).iter().for_each(|decision| control.decided(decision));
            }
            there
        });
    }

    fn carry_out(&self, decision: &Decision, live: &Arc<Live>, glimpse: &Glimpse) {
        self.control.decided(decision);
        let Decision { rule, .. } = decision;
        match (decision.action, decision.step) {
            (Action::Abort, Step::Began) if glimpse.is_waiting => live.end(Ending {
                sqlstate: "57014",
                why: format!(
                    "terminating connection: rule {rule} ends what waits so long for its turn in pool {}",
                    live.pool.name
                ),
            }),
            (Action::Abort, Step::Began) => self.cancel(live, Some(decision.statement)),
            (Action::Abort, Step::Escalated) => {
                live.end(Ending {
                    sqlstate: "57P01",
                    why: format!("terminating connection: rule {rule} cancelled its statement, and it went on"),
                });
                self.cancel(live, None);
                if let Some(pid) = live.server_pid() {
                    self.control.server_view.terminate(pid);
                }
            }
            // The class follows from what is in force.
            (Action::Penalty, Step::Began) => live.hold(Some(rule)),
            (Action::Penalty, Step::Lifted(_)) => live.hold(None),
            // A dry run is carried out by being told.
            _ => {}
        }
    }

    /// Sends a cancel request, for this statement or for whatever runs. Until the server has taken it the session begins no other
    /// statement, which it might hit.
    fn cancel(&self, live: &Arc<Live>, statement: Option<u64>) {
        let Some(key) = live.cancel_key() else {
            tracing::warn!(session = %live.identity.id, "its server gave no cancel key: its statement cannot be cancelled");
            return;
        };
        let (packet, live) = (cancel_request(key), Arc::clone(live));
        let terms = self.control.terms();
        live.cancelling(true);
        // From here on no other begins; one that began since the decision is left alone.
        if statement.is_some() && live.glimpse(clock::now()).statement != statement {
            live.cancelling(false);
            return;
        }
        self.control.counters.cancels.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let sent = async {
                let mut server = Stream::connect(&terms.server).await?;
                server.write_all(&packet).await?;
                // The server closes the connection when it has signalled its process.
                server.read(&mut [0; 16]).await.map(|_| ())
            };
            let sent = tokio::time::timeout(CANCEL_WITHIN, sent);
            let sent = sent.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if let Err(error) = sent {
                tracing::warn!(session = %live.identity.id, %error, "a cancel request failed");
            }
            live.cancelling(false);
        });
    }
}

impl Watched {
    /// Takes what the server told. Locks of a statement are counted from its first look: what was before is not held against it.
    fn take(&mut self, now: Moment, statement: u64, told: Option<&Told>) {
        let passed_s = self.looked_at.replace(now).map_or(0.0, |last| now.seconds_since(last));
        if self.statement != Some(statement) {
            self.locked_s = 0.0;
        } else if told.is_some_and(|told| !told.blocked_by.is_empty()) {
            self.locked_s += passed_s;
        }
    }

    /// What is known of the statement that runs or waits.
    fn figures(
        &mut self,
        (live, glimpse): (&Live, &Glimpse),
        now: Moment,
        rules: &[(&str, &Rule)],
        server_is_here: bool,
        told: Option<&Told>,
    ) -> Figures {
        self.mean.add(now, glimpse.down_bytes.saturating_sub(self.down_bytes));
        self.down_bytes = glimpse.down_bytes;
        let rested = (glimpse.doing == Doing::Idle && !glimpse.is_waiting).then(|| now - glimpse.since);
        self.wal.see(now, rested, told.and_then(|told| told.wal_bytes));
        let Some(statement) = glimpse.statement else { return Figures::default() };
        // What the server said of the statement before is not held against this one.
        let of_it = told.filter(|told| told.asked_at >= glimpse.since);
        self.take(now, statement, of_it);
        let blocked_s = Some(glimpse.waited.seconds() + self.locked_s);
        if glimpse.is_waiting {
            return Figures { blocked_s, ..Figures::default() };
        }
        let elapsed = now - glimpse.since;
        let process = server_is_here && wants_process(rules);
        if process && let Some(pid) = live.server_pid() {
            let begins = self.statement != Some(statement);
            let user = format!(" {} ", live.identity.user);
            self.process.look(pid, &[&user, &live.identity.server_mark], begins, glimpse.since, now);
        }
        self.statement = Some(statement);
        Figures {
            elapsed_s: Some(elapsed.max(Span(0)).seconds()),
            blocked_s,
            bandwidth_mb_per_s: Some(self.mean.bytes_per_second(now) / MB as f64),
            rows: Some(glimpse.rows as f64),
            cpu_s: self.process.cpu_s(),
            cpu_percent: self.process.cpu_percent(),
            memory_mb: self.process.private_mb(),
            spill_mb: of_it.and_then(|told| told.spill_bytes).map(|bytes| bytes / MB as f64),
            wal_mb_per_s: self.wal.mb_per_s(now),
            wal_mb: self.wal.mb(),
        }
    }
}

/// The server's processes that urgent ones wait for, and when it was asked.
fn blockers(control: &Control, sessions: &[Arc<Live>], now: Moment) -> HashMap<i32, Moment> {
    let urgent = sessions.iter().filter(|live| !live.is_low()).filter_map(|live| live.server_pid());
    let waiting = urgent.filter_map(|pid| control.server_view.told(pid, now));
    waiting.flat_map(|told| told.blocked_by.into_iter().map(move |pid| (pid, told.asked_at))).collect()
}

/// Whether any rule looks at what only the system knows of the server's process.
fn wants_process(rules: &[(&str, &Rule)]) -> bool {
    const OF_PROCESS: [Attribute; 3] = [Attribute::CpuTime, Attribute::CpuAvgPercent, Attribute::MemSize];
    rules.iter().any(|(_, rule)| OF_PROCESS.iter().any(|of| matches!(rule.thresholds.get(of), Some(Some(_)))))
}
