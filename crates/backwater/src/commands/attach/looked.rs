//! The sessions that rules look at: who they are, which socket is whose, whom a rule or a pool holds; and a server that is away.

use super::server::{Server, Session, is_late, is_lost};
use super::told::Told;
use super::{Arguments, described, let_go, now};
use backwater_flow::State;
use backwater_flow::rule::{Action, Attribute, Decision, Step};
use backwater_gate::attach::{Activity, AttachError, Hold, Named, OutsideSession, PoolStep, Seen, Watch};
use backwater_model::{Moment, Span};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

/// How often a server that is away is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// And one on which rules cannot look at what they need.
const AGAIN_UNFIT: Duration = Duration::from_secs(60);
/// When a socket that was not found is looked for again, and one that may not be paced is tried again.
const ASK_AGAIN: Span = Span::from_millis(10_000);

/// Which session: process id and begin.
pub(super) type Key = (i32, i64);

pub(super) fn looked_key(session: &Session) -> Key {
    (session.activity.pid, session.activity.began_us)
}

/// The server and what is remembered of its sessions.
pub(super) struct Looked {
    pub(super) server: Server,
    /// While the server does not answer.
    away: Option<Away>,
    pub(super) wanted: BTreeSet<Attribute>,
    /// The socket of each session, or why there is none.
    sockets: HashMap<Key, Result<Named, Refused>>,
    pub(super) watch: Watch,
    /// Those of low-priority pools that are held, with their users.
    low: HashMap<Key, String>,
    /// Those of them that cannot be held.
    refused: HashMap<Key, Refused>,
    /// Those of them that were let go, since they blocked somebody.
    freed: HashSet<Key>,
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

/// What cannot be done to a session now.
struct Refused {
    why: String,
    at: Moment,
}

impl Refused {
    /// Whether it is tried again: what was so may have passed.
    fn is_due(&self, now: Moment) -> bool {
        now - self.at >= ASK_AGAIN
    }
}

impl Looked {
    pub(super) fn new(server: Server, wanted: BTreeSet<Attribute>) -> Looked {
        let (sockets, watch, low) = (HashMap::new(), Watch::new(), HashMap::new());
        let (refused, freed) = (HashMap::new(), HashSet::new());
        Looked { server, away: None, wanted, sockets, watch, low, refused, freed, told_hidden: false }
    }

    /// Whether the server does not answer.
    pub(super) fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// The sessions that the rules look at. Who waits for whom matters for all of them.
    /// None at all while the server is away.
    pub(super) fn sessions(&mut self, arguments: &Arguments) -> anyhow::Result<Vec<Session>> {
        if !self.is_here() {
            return Ok(Vec::new());
        }
        let mut sessions = match self.server.sessions(&self.wanted) {
            Ok(sessions) => sessions,
            Err(error) if is_lost(&error) => {
                self.lose(&error);
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
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
        sessions.retain(Session::is_clients);
        for session in &mut sessions {
            let meant = is_meant(session);
            // One that is not meant has no statement that could be judged, and may still wait for one that has.
            session.activity.active &= meant;
        }
        let here: HashSet<Key> = sessions.iter().map(looked_key).collect();
        self.sockets.retain(|key, _| here.contains(key));
        self.refused.retain(|key, _| here.contains(key));
        self.freed.retain(|key| here.contains(key));
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
    fn lose(&mut self, error: &anyhow::Error) {
        if self.away.is_none() {
            super::note(&format!("{error:#}: what is held is let go until it answers again"));
        }
        let stands = is_late(error);
        let wait = if stands { AGAIN } else { Duration::ZERO };
        self.away = Some(Away { again: Instant::now() + wait, stands });
    }

    /// Whether the server can be asked; where it was lost, it is connected to anew.
    fn is_here(&mut self) -> bool {
        match &self.away {
            None => return true,
            Some(away) if Instant::now() < away.again => return false,
            Some(away) if away.stands => return true,
            Some(_) => {}
        }
        let wait = match self.server.again() {
            Ok(server) => {
                let unseen = self.wanted.iter().find_map(|attribute| Some((attribute, server.unseen(*attribute)?)));
                let Some((attribute, why)) = unseen else {
                    self.server = server;
                    return true;
                };
                super::note(&format!("a server answers, but no rule can look at {attribute} there: {why}"));
                AGAIN_UNFIT
            }
            Err(error) => {
                tracing::debug!("the server is still away: {error:#}");
                AGAIN
            }
        };
        self.away = Some(Away { again: Instant::now() + wait, stands: false });
        false
    }

    /// Holds the sessions of low-priority pools from their first look on, and lets those go that block urgent work, or whose pool
    /// is no longer low. To whom this was done: process id and user.
    pub(super) fn hold_low(
        &mut self,
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
            for key in wanted.iter().filter(|key| !self.low.contains_key(*key)) {
                super::note(&format!("would hold process {} for its pool (dry run: nothing is done)", key.0));
            }
            self.low = wanted.into_iter().map(|key| (key, String::new())).collect();
            return Ok(Vec::new());
        }
        let mut steps = Vec::new();
        for (activity, _) in activities {
            let key = (activity.pid, activity.began_us);
            let step = if wanted.contains(&key) {
                if let Some(cookie) = self.cookie(key) {
                    told.pooled(cookie, &activity.user, state.pool_of(&activity.user));
                }
                self.hold_for_pool(key, &activity.user, hold)?
            } else {
                self.let_go_for_pool(key, state.is_low(&activity.user), hold)?
            };
            steps.extend(step.map(|step| (activity.pid, activity.user.clone(), step)));
        }
        let gone = self.low.extract_if(|key, _| !wanted.contains(key));
        // Those whose server does not answer were let go with all others; the rest have ended.
        steps.extend(gone.filter(|_| self.away.is_some()).map(|(key, user)| (key.0, user, PoolStep::Unseen)));
        Ok(steps)
    }

    /// Holds a session for its pool, unless it is held or was refused a moment ago.
    fn hold_for_pool(&mut self, key: Key, user: &str, hold: &mut Hold) -> anyhow::Result<Option<PoolStep>> {
        let at = now();
        if self.low.contains_key(&key) || self.refused.get(&key).is_some_and(|refused| !refused.is_due(at)) {
            return Ok(None);
        }
        let refused = match self.sockets.get(&key) {
            Some(Ok(named)) => slow(named, None, hold)?,
            Some(Err(refused)) => Some(unfound(refused)),
            None => return Ok(None),
        };
        if let Some(why) = refused {
            // Told again only where it is another reason.
            if self.refused.get(&key).is_none_or(|before| before.why != why) {
                super::note(&why);
            }
            self.refused.insert(key, Refused { why, at });
            return Ok(None);
        }
        self.refused.remove(&key);
        self.low.insert(key, user.to_owned());
        Ok(Some(if self.freed.remove(&key) { PoolStep::HeldAgain } else { PoolStep::Held }))
    }

    /// Lets a session go that was held for its pool, because it blocks somebody or because its pool is no longer low.
    fn let_go_for_pool(&mut self, key: Key, is_low: bool, hold: &mut Hold) -> anyhow::Result<Option<PoolStep>> {
        if !is_low {
            self.freed.remove(&key);
        }
        if self.low.remove(&key).is_none() || self.watch.is_penalised(key) {
            return Ok(None);
        }
        let Some(cookie) = self.cookie(key) else { return Ok(None) };
        let Some(paced) = hold.release(cookie)? else { return Ok(None) };
        super::note(&let_go(&paced));
        if !is_low {
            return Ok(Some(PoolStep::Left));
        }
        self.freed.insert(key);
        Ok(Some(PoolStep::Freed))
    }

    /// What the host shows of those that are active or of a low-priority pool.
    pub(super) fn read(
        &mut self,
        sessions: &[Session],
        state: &State,
        hold: &mut Hold,
    ) -> anyhow::Result<Vec<(Activity, Seen)>> {
        let (mut asked, mut is_sought_again, at) = (Vec::new(), false, now());
        for session in sessions.iter().filter(|session| session.activity.active || state.is_low(&session.activity.user))
        {
            let key = looked_key(session);
            let before = self.sockets.get(&key);
            // One a look of those that were sought in vain: that may take a look at every process.
            let again = !is_sought_again && matches!(before, Some(Err(refused)) if refused.is_due(at));
            if again || before.is_none() {
                is_sought_again |= again;
                let found = match session.socket(hold.guardian()) {
                    Err(error) if matches!(error.downcast_ref(), Some(AttachError::Ended(_))) => return Err(error),
                    found => found.map_err(|error| Refused { why: error.to_string(), at }),
                };
                self.sockets.insert(key, found);
            }
            if let Some(Ok(named)) = self.sockets.get(&key) {
                asked.push((key, named.socket.clone()));
            }
        }
        let looks = hold.guardian().read(asked.iter().map(|(_, socket)| socket.clone()).collect())?;
        let seen: HashMap<Key, Seen> = asked
            .into_iter()
            .zip(looks)
            .map(|((key, socket), look)| {
                let reading = look.open().and_then(Result::ok);
                (key, Seen { acked_bytes: reading.and_then(|reading| reading.info.acked_bytes), ..process(socket.pid) })
            })
            .collect();
        let with = |session: &Session| {
            let seen = seen.get(&looked_key(session)).copied().unwrap_or_default();
            (session.activity.clone(), seen)
        };
        Ok(sessions.iter().map(with).collect())
    }

    /// The socket of a session, where it was found.
    pub(super) fn cookie(&self, key: Key) -> Option<u64> {
        Some(self.sockets.get(&key)?.as_ref().ok()?.socket.cookie)
    }

    /// The sessions as the console shows them.
    pub(super) fn outside(&self, sessions: &[Session], hold: &Hold, told: &Told) -> Vec<OutsideSession> {
        let held: HashMap<u64, u64> =
            hold.paced().iter().map(|paced| (paced.named.socket.cookie, paced.sent_bytes)).collect();
        let one = |session: &Session| {
            let activity = &session.activity;
            let cookie = self.cookie(looked_key(session)).filter(|cookie| held.contains_key(cookie));
            OutsideSession {
                pid: activity.pid,
                user: activity.user.clone(),
                application: session.application.clone(),
                client: session.client.map(|client| client.to_string()).unwrap_or_default(),
                active: activity.active,
                for_s: activity.elapsed_s.filter(|_| activity.active),
                sent_bytes: cookie.and_then(|cookie| held.get(&cookie).copied()),
                held_by: cookie.map(|cookie| told.holder(cookie)),
            }
        };
        sessions.iter().map(one).collect()
    }

    pub(super) fn act(
        &mut self,
        key: Key,
        decision: &Decision,
        session: Option<&Session>,
        hold: &mut Hold,
    ) -> anyhow::Result<()> {
        let socket = self.sockets.get(&key);
        match (decision.action, decision.step) {
            (Action::Penalty, Step::Began) => match socket {
                Some(Ok(named)) => slow(named, session, hold)?.iter().for_each(|why| super::note(why)),
                Some(Err(refused)) => super::note(&unfound(refused)),
                None => {}
            },
            (Action::Penalty, Step::Lifted(_)) => {
                if let Some(Ok(named)) = socket
                    && !self.low.contains_key(&key)
                    && let Some(paced) = hold.release(named.socket.cookie)?
                {
                    super::note(&let_go(&paced));
                }
            }
            (Action::Abort, Step::Began) => self.stop(session, false),
            (Action::Abort, Step::Escalated) => self.stop(session, true),
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
    for paced in hold.release_all()? {
        super::note(&let_go(&paced));
    }
    Ok(())
}

/// Holds one, unless it is held; why it cannot be held.
fn slow(named: &Named, session: Option<&Session>, hold: &mut Hold) -> anyhow::Result<Option<String>> {
    if hold.paced().iter().any(|paced| paced.named.socket.cookie == named.socket.cookie) {
        return Ok(None);
    }
    match hold.add(now(), named.clone()) {
        Ok(()) => {
            let age = session.and_then(|session| session.snapshot_age);
            let vacuum = age.map_or_else(String::new, |age| {
                format!("; its snapshot, {age} transactions old, holds back vacuum meanwhile")
            });
            super::note(&format!("holding {}{vacuum}", described(named)));
            Ok(None)
        }
        Err(error @ AttachError::Ended(_)) => Err(error.into()),
        Err(error) => Ok(Some(format!("cannot slow {}: {error}", described(named)))),
    }
}

/// Why one without a socket cannot be held.
fn unfound(refused: &Refused) -> String {
    format!("cannot slow it: {}", refused.why)
}

/// Processor time and private memory of a process of this host.
fn process(pid: i32) -> Seen {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let ticks = |text: String| {
        let fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11).take(2);
        fields.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()
    };
    let memory = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.trim().trim_end_matches(" kB").parse::<f64>().ok()
    };
    Seen {
        acked_bytes: None,
        cpu_s: read("stat").and_then(ticks).map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64),
        memory_bytes: read("status").and_then(memory).map(|kib| kib * 1024.0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_refused_is_tried_again_after_a_while() {
        let refused = Refused { why: "paced by somebody else".to_owned(), at: Moment(1_000_000) };
        let tried = |second: i64| refused.is_due(Moment(second * 1_000_000));
        assert_eq!([1, 10, 11, 600].map(tried), [false, false, true, true]);
    }

    #[test]
    fn a_process_shows_what_it_used() {
        let seen = process(i32::try_from(std::process::id()).unwrap());
        assert!(seen.cpu_s.is_some() && seen.memory_bytes.unwrap() > 1e4, "{seen:?}");
        assert_eq!(process(i32::MAX), Seen::default());
    }
}
