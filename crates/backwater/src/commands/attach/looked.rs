//! The sessions that rules look at: who they are, which socket is whose, whom a rule or a pool holds; and a server that is away.

use super::server::{Server, Session};
use super::told::Told;
use super::{Arguments, described, let_go, now};
use backwater_flow::State;
use backwater_flow::rule::{Action, Attribute, Decision, Step};
use backwater_gate::attach::{Activity, AttachError, Hold, Named, OutsideSession, Seen, Watch};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

/// How often a server that is away is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// And one on which rules cannot look at what they need.
const AGAIN_UNFIT: Duration = Duration::from_secs(60);

/// Which session: process id and begin.
pub(super) type Key = (i32, i64);

pub(super) fn looked_key(session: &Session) -> Key {
    (session.activity.pid, session.activity.began_us)
}

/// The server and what is remembered of its sessions.
pub(super) struct Looked {
    target: String,
    pub(super) server: Server,
    /// While the server does not answer: when it is tried again.
    away: Option<Instant>,
    pub(super) wanted: BTreeSet<Attribute>,
    /// The socket of each session, or why there is none.
    sockets: HashMap<Key, Result<Named, String>>,
    pub(super) watch: Watch,
    /// Those of low-priority pools that are held.
    low: HashSet<Key>,
}

impl Looked {
    pub(super) fn new(target: String, server: Server, wanted: BTreeSet<Attribute>) -> Looked {
        let (sockets, watch, low) = (HashMap::new(), Watch::new(), HashSet::new());
        Looked { target, server, away: None, wanted, sockets, watch, low }
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
                super::note(&format!("{error:#}: what is held is let go until it answers again"));
                self.away = Some(Instant::now());
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let is_meant = |wanted: &[String], found: &str| wanted.is_empty() || wanted.iter().any(|name| name == found);
        sessions.retain(Session::is_clients);
        for session in &mut sessions {
            let meant = is_meant(&arguments.user, &session.activity.user)
                && is_meant(&arguments.application, &session.application);
            // One that is not meant has no statement that could be judged, and may still wait for one that has.
            session.activity.active &= meant;
        }
        let here: HashSet<Key> = sessions.iter().map(looked_key).collect();
        self.sockets.retain(|key, _| here.contains(key));
        Ok(sessions)
    }

    /// Whether the server can be asked; where it was lost, it is connected to anew.
    fn is_here(&mut self) -> bool {
        match self.away {
            None => return true,
            Some(next) if Instant::now() < next => return false,
            Some(_) => {}
        }
        match Server::connect(&self.target) {
            Ok(server) => {
                let unseen = self.wanted.iter().find_map(|attribute| Some((attribute, server.unseen(*attribute)?)));
                match unseen {
                    None => {
                        super::note("the server answers again");
                        (self.server, self.away) = (server, None);
                    }
                    Some((attribute, why)) => {
                        super::note(&format!("a server answers, but no rule can look at {attribute} there: {why}"));
                        self.away = Some(Instant::now() + AGAIN_UNFIT);
                    }
                }
            }
            Err(error) => {
                tracing::debug!("the server is still away: {error:#}");
                self.away = Some(Instant::now() + AGAIN);
            }
        }
        self.away.is_none()
    }

    /// Holds the sessions of low-priority pools from their first look on, and lets those go that block urgent work, or whose pool
    /// is no longer low.
    pub(super) fn hold_low(
        &mut self,
        activities: &[(Activity, Seen)],
        state: &State,
        arguments: &Arguments,
        hold: &mut Hold,
        told: &mut Told,
    ) -> anyhow::Result<()> {
        let wanted = self.watch.low(activities, state);
        if arguments.dry_run {
            for key in wanted.difference(&self.low) {
                super::note(&format!("would hold process {} for its pool (dry run: nothing is done)", key.0));
            }
            self.low = wanted;
            return Ok(());
        }
        for (activity, _) in activities {
            let key = (activity.pid, activity.began_us);
            if !wanted.contains(&key) {
                continue;
            }
            if let Some(cookie) = self.cookie(key) {
                told.pooled(cookie, &activity.user, state.pool_of(&activity.user));
            }
            if self.low.contains(&key) {
                continue;
            }
            match self.sockets.get(&key) {
                Some(Ok(named)) => slow(named, None, hold)?,
                Some(Err(why)) => super::note(&format!("cannot slow it: {why}")),
                None => continue,
            }
            self.low.insert(key);
        }
        let over: Vec<Key> = self.low.difference(&wanted).copied().collect();
        for key in over {
            self.low.remove(&key);
            if let Some(Ok(named)) = self.sockets.get(&key)
                && !self.watch.is_penalised(key)
                && let Some(paced) = hold.release(named.socket.cookie)?
            {
                super::note(&let_go(&paced));
            }
        }
        Ok(())
    }

    /// What the host shows of those that are active or of a low-priority pool.
    pub(super) fn read(
        &mut self,
        sessions: &[Session],
        state: &State,
        hold: &mut Hold,
    ) -> anyhow::Result<Vec<(Activity, Seen)>> {
        let mut asked = Vec::new();
        for session in sessions.iter().filter(|session| session.activity.active || state.is_low(&session.activity.user))
        {
            let key = looked_key(session);
            if let std::collections::hash_map::Entry::Vacant(place) = self.sockets.entry(key) {
                let found = match session.socket(hold.guardian()) {
                    Err(error) if matches!(error.downcast_ref(), Some(AttachError::Ended(_))) => return Err(error),
                    found => found.map_err(|error| error.to_string()),
                };
                place.insert(found);
            }
            if let Some(Ok(named)) = self.sockets.get(&key) {
                asked.push((key, named.socket.clone()));
            }
        }
        let readings = hold.guardian().read(asked.iter().map(|(_, socket)| socket.clone()).collect())?;
        let seen: HashMap<Key, Seen> = asked
            .into_iter()
            .zip(readings)
            .map(|((key, socket), reading)| {
                let process = process(socket.pid);
                (key, Seen { acked_bytes: reading.and_then(|reading| reading.info.acked_bytes), ..process })
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
                Some(Ok(named)) => slow(named, session, hold)?,
                Some(Err(why)) => super::note(&format!("cannot slow it: {why}")),
                None => {}
            },
            (Action::Penalty, Step::Lifted(_)) => {
                if let Some(Ok(named)) = socket
                    && !self.low.contains(&key)
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
        match self.server.stop(activity, whole_session) {
            Ok(true) => {}
            Ok(false) => super::note(&format!("process {pid} was not stopped: its statement had ended by itself")),
            Err(error) => super::note(&format!("process {pid} was not stopped: {error:#}")),
        }
    }
}

/// Whether the connection is gone or going, and not the query at fault.
fn is_lost(error: &anyhow::Error) -> bool {
    let code = |error: &tokio_postgres::Error| error.code().map(|code| code.code().to_owned());
    let error = error.chain().find_map(|cause| cause.downcast_ref::<tokio_postgres::Error>());
    // Class 57P: it is shut down, or has crashed; 08: so says a pooler; 57014: it took too long.
    let is_passing = |code: String| code.starts_with("57P") || code.starts_with("08") || code == "57014";
    error.is_some_and(|error| code(error).is_none_or(is_passing))
}

pub(super) fn release_all(hold: &mut Hold) -> anyhow::Result<()> {
    let cookies: Vec<u64> = hold.paced().iter().map(|paced| paced.named.socket.cookie).collect();
    for cookie in cookies {
        if let Some(paced) = hold.release(cookie)? {
            super::note(&let_go(&paced));
        }
    }
    Ok(())
}

fn slow(named: &Named, session: Option<&Session>, hold: &mut Hold) -> anyhow::Result<()> {
    if hold.paced().iter().any(|paced| paced.named.socket.cookie == named.socket.cookie) {
        return Ok(());
    }
    match hold.add(now(), named.clone()) {
        Ok(()) => {
            let age = session.and_then(|session| session.snapshot_age);
            let vacuum = age.map_or_else(String::new, |age| {
                format!("; its snapshot, {age} transactions old, holds back vacuum meanwhile")
            });
            super::note(&format!("holding {}{vacuum}", described(named)));
        }
        Err(error @ AttachError::Ended(_)) => return Err(error.into()),
        Err(error) => super::note(&format!("cannot slow {}: {error}", described(named))),
    }
    Ok(())
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
    fn a_process_shows_what_it_used() {
        let seen = process(i32::try_from(std::process::id()).unwrap());
        assert!(seen.cpu_s.is_some() && seen.memory_bytes.unwrap() > 1e4, "{seen:?}");
        assert_eq!(process(i32::MAX), Seen::default());
    }
}
