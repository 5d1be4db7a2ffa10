//! The sessions that rules look at: who they are, what is done to them, and a server that is away.

use super::held::Held;
use super::server::{Server, Session, guardian_ended, is_ended, is_late, is_lost};
use super::sockets::{Key, looked_key};
use super::told::Told;
use super::{Arguments, let_go};
use backwater_flow::State;
use backwater_flow::rule::{Action, Attribute, Decision, Step};
use backwater_gate::attach::{Activity, Guardian, Hold, PoolStep, Seen, Watch};
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

/// How often a server that is away is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// And one on which rules cannot look at what they need.
pub(super) const AGAIN_UNFIT: Duration = Duration::from_secs(60);

/// The server and what is remembered of its sessions.
pub(super) struct Looked {
    pub(super) server: Server,
    /// While the server does not answer.
    away: Option<Away>,
    pub(super) wanted: BTreeSet<Attribute>,
    pub(super) watch: Watch,
    pub(super) held: Held,
    /// Whether it was said that there are sessions that this role may not see.
    told_hidden: bool,
}

/// A server that does not answer.
struct Away {
    /// When it is tried again.
    again: Instant,
    /// Whether its connection stands: it is asked there. A new one each time would leave it with ever more processes that hang.
    stands: bool,
}

impl Looked {
    pub(super) fn new(server: Server, wanted: BTreeSet<Attribute>) -> Looked {
        Looked { server, away: None, wanted, watch: Watch::new(), held: Held::default(), told_hidden: false }
    }

    /// Whether the server does not answer.
    pub(super) fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// The sessions that the rules look at. Who waits for whom matters for all of them.
    /// None at all while the server is away.
    pub(super) fn sessions(&mut self, arguments: &Arguments, guardian: &mut Guardian) -> anyhow::Result<Vec<Session>> {
        if !self.is_here(guardian)? {
            return Ok(Vec::new());
        }
        let asked = self.server.learn_rows_again(guardian).and_then(|()| self.server.sessions(&self.wanted));
        let mut sessions = match asked {
            Ok(sessions) => sessions,
            Err(error) if is_ended(&error) || guardian_ended(&error) => return Err(error),
            // Whatever a server refuses today (a conflict with replay, no memory, a right that was taken away), it may do later.
            Err(error) => {
                self.lose(&error);
                return Ok(Vec::new());
            }
        };
        if self.away.take().is_some() {
            super::note("the server answers again");
        }
        let is_named = |wanted: &[String], found: &str| wanted.is_empty() || wanted.iter().any(|name| name == found);
        let is_meant = |session: &Session| {
            is_named(&arguments.user, &session.activity.user) && is_named(&arguments.application, &session.application)
        };
        if let Some(hidden) = sessions.iter().find(|session| session.is_hidden() && is_meant(session)) {
            self.tell_hidden(hidden);
        }
        let others = sessions.iter().filter(|session| !session.is_clients() && !session.activity.blocked_by.is_empty());
        self.watch.besides(others.map(|session| (session.activity.pid, session.activity.blocked_by.clone())));
        sessions.retain(Session::is_clients);
        for session in &mut sessions {
            let meant = is_meant(session);
            // One that is not meant has no statement that could be judged, and may still wait for one that has.
            session.activity.active &= meant;
        }
        let here: HashSet<Key> = sessions.iter().map(looked_key).collect();
        self.held.retain(&here);
        Ok(sessions)
    }

    /// A session that is meant may not be seen: that is told once, or rules that reach nobody would seem to be kept.
    fn tell_hidden(&mut self, session: &Session) {
        if !std::mem::replace(&mut self.told_hidden, true) {
            super::note(&format!(
                "this role may not see the sessions of {}, so that nothing here reaches them: GRANT pg_read_all_stats \
                 TO it",
                session.activity.user
            ));
        }
    }

    /// The server does not answer: told once, until it does.
    pub(super) fn lose(&mut self, error: &anyhow::Error) {
        if self.away.is_none() {
            super::note(&format!("{error:#}: what is held is let go until it answers again"));
        }
        let stands = is_late(error) || !is_lost(error);
        let wait = if stands { AGAIN } else { Duration::ZERO };
        self.away = Some(Away { again: Instant::now() + wait, stands });
    }

    /// Something else is asked for: a server that was connected to and did not do may do now.
    pub(super) fn wants(&mut self, wanted: BTreeSet<Attribute>) {
        self.wanted = wanted;
        if let Some(away) = self.away.as_mut().filter(|away| !away.stands) {
            away.again = Instant::now();
        }
    }

    /// Whether the server can be asked; where it was lost, it is connected to anew.
    fn is_here(&mut self, guardian: &mut Guardian) -> anyhow::Result<bool> {
        match &self.away {
            None => return Ok(true),
            Some(away) if Instant::now() < away.again => return Ok(false),
            Some(away) if away.stands => return Ok(true),
            Some(_) => {}
        }
        let wait = match self.server.again(guardian) {
            Ok(server) => {
                let unseen = self.wanted.iter().find_map(|attribute| Some((attribute, server.unseen(*attribute)?)));
                let Some((attribute, why)) = unseen else {
                    self.server = server;
                    return Ok(true);
                };
                super::note(&format!("a server answers, but no rule can look at {attribute} there: {why}"));
                // It says what can be looked at, until what is asked for is less.
                self.server = server;
                AGAIN_UNFIT
            }
            Err(error) if guardian_ended(&error) => return Err(error),
            Err(error) => {
                tracing::debug!("the server is still away: {error:#}");
                AGAIN
            }
        };
        self.away = Some(Away { again: Instant::now() + wait, stands: false });
        Ok(false)
    }

    /// Holds those whom a rule slows, and the sessions of low-priority pools from their first look on; of these it lets
    /// go whoever blocks urgent work, or whose pool is no longer low. To whom something was done for their pool:
    /// process id and user.
    pub(super) fn hold(
        &mut self,
        sessions: &[Session],
        activities: &[(Activity, Seen)],
        state: &State,
        arguments: &Arguments,
        hold: &mut Hold,
        told: &mut Told,
    ) -> anyhow::Result<Vec<(i32, String, PoolStep)>> {
        if self.is_away() && !activities.is_empty() {
            // It was lost since they were read: the next look lets everybody go.
            return Ok(Vec::new());
        }
        let wanted = self.watch.low(activities, state);
        if arguments.dry_run {
            self.held.would_hold(wanted);
            return Ok(Vec::new());
        }
        self.held.hold_penalised(sessions, &self.watch, hold, told)?;
        let mut steps = self.held.hold_low(&wanted, sessions, state, &self.watch, hold, told)?;
        let gone = self.held.forget_low(&wanted).into_iter();
        self.held.reconcile(&self.watch, hold)?;
        // Those whose server does not answer were let go with all others; the rest have ended, or may not be seen any more.
        steps.extend(gone.filter(|_| self.away.is_some()).map(|(key, user)| (key.0, user, PoolStep::Unseen)));
        Ok(steps)
    }

    pub(super) fn act(
        &mut self,
        key: Key,
        decision: &Decision,
        session: Option<&Session>,
        hold: &mut Hold,
    ) -> anyhow::Result<()> {
        match (decision.action, decision.step) {
            (Action::Penalty, Step::Lifted(_)) => self.held.lift(key, hold)?,
            (Action::Abort, Step::Began) => self.stop(session, false),
            (Action::Abort, Step::Escalated) => self.stop(session, true),
            // Whom a rule slows is held at every look, this one's too.
            _ => {}
        }
        Ok(())
    }

    /// Whom this role may not stop goes on, and so does the rest.
    fn stop(&mut self, session: Option<&Session>, whole_session: bool) {
        let Some(Session { activity, .. }) = session else { return };
        let pid = activity.pid;
        if self.is_away() {
            super::note(&format!("process {pid} was not stopped: the server does not answer"));
            return;
        }
        match self.server.stop(activity, whole_session) {
            Ok(true) => {}
            // The server was asked, and does it once it goes on.
            Err(error) if is_late(&error) => {
                super::note(&format!("whether process {pid} is stopped is not known: {error:#}"));
                self.lose(&error);
            }
            Ok(false) => super::note(&format!("process {pid} was not stopped: its statement had ended by itself")),
            Err(error) => super::note(&format!("process {pid} was not stopped: {error:#}")),
        }
    }
}

pub(super) fn release_all(hold: &mut Hold) -> anyhow::Result<()> {
    for paced in hold.release_all(super::now())? {
        super::note(&let_go(&paced));
    }
    Ok(())
}
