//! Whom a rule or a pool holds, by which socket, and whom nothing can hold now. What was decided stands as long as it
//! is not lifted, which of rules the watch knows: whoever is held no longer meanwhile, since their connection was lost
//! or could not be paced, is found and held again.

use super::server::{Session, guardian_ended};
use super::sockets::{Key, Refused, Sockets, looked_key};
use super::told::Told;
use super::{described, let_go, now};
use backwater_flow::State;
use backwater_flow::rule::Attribute;
use backwater_gate::attach::{Activity, Hold, LocalProcess, Named, OutsideSession, PoolStep, Seen, Watch};
use std::collections::{BTreeSet, HashMap, HashSet};

/// At so many looks the process of a session must not be found until that is told.
const LOOKS_UNFOUND: u32 = 3;

/// What is remembered of sessions.
#[derive(Default)]
pub(super) struct Held {
    sockets: Sockets,
    /// Those of low-priority pools that are held, with their users.
    low: HashMap<Key, String>,
    /// Those that cannot be held, by a rule or for their pool.
    refused: HashMap<Key, Refused>,
    /// Those of low-priority pools that were let go, since they blocked somebody.
    freed: HashSet<Key>,
    /// The processes of those that came by Unix sockets; or at how many looks it was not found.
    local: HashMap<Key, Result<LocalProcess, u32>>,
    /// Whether it was said that some of these are not found, and that the rows of some cannot be counted.
    told_unfound: bool,
    told_uncounted: bool,
}

impl Held {
    /// Forgets whoever is not here any more. Those of low-priority pools stay until they are told to be gone.
    pub(super) fn retain(&mut self, here: &HashSet<Key>) {
        self.sockets.retain(here);
        self.refused.retain(|key, _| here.contains(key));
        self.freed.retain(|key| here.contains(key));
        self.local.retain(|key, _| here.contains(key));
    }

    /// What the host shows of those that are active, of a low-priority pool, or slowed by a rule; rows where a rule asks for
    /// them.
    pub(super) fn read(
        &mut self,
        sessions: &[Session],
        state: &State,
        watch: &Watch,
        wanted: &BTreeSet<Attribute>,
        hold: &mut Hold,
    ) -> anyhow::Result<Vec<(Activity, Seen)>> {
        let is_meant = |session: &&Session| {
            let Activity { active, user, .. } = &session.activity;
            *active || state.is_low(user) || watch.is_penalised(looked_key(session))
        };
        let meant: Vec<&Session> = sessions.iter().filter(is_meant).collect();
        self.seek(&meant, hold)?;
        let keys = meant.iter().map(|session| looked_key(session));
        let asked: Vec<_> = keys.filter_map(|key| Some((key, self.sockets.found(key)?.socket.clone()))).collect();
        let looks = hold.guardian().read(asked.iter().map(|(_, socket)| socket.clone()).collect())?;
        let mut processes = self.local_processes(&meant, wanted);
        processes.extend(asked.iter().map(|(key, socket)| (*key, socket.pid)));
        let rows =
            if wanted.contains(&Attribute::Rows) { self.count_rows(&meant, &processes, hold)? } else { HashMap::new() };
        let process =
            |(key, pid): (&Key, &i32)| (*key, Seen { rows: rows.get(key).copied(), ..Seen::of_process(*pid) });
        let mut seen: HashMap<Key, Seen> = processes.iter().map(process).collect();
        for ((key, _), look) in asked.into_iter().zip(looks) {
            let reading = look.open();
            match &reading {
                Some(Ok(_)) => {}
                Some(Err(why)) => tracing::debug!("what process {} sends cannot be seen: {why}", key.0),
                None => self.lose(key, hold)?,
            }
            let acked_bytes = reading.and_then(Result::ok).and_then(|reading| reading.info.acked_bytes);
            seen.entry(key).or_default().acked_bytes = acked_bytes;
        }
        let with = |session: &Session| {
            let seen = seen.get(&looked_key(session)).copied().unwrap_or_default();
            (session.activity.clone(), seen)
        };
        Ok(sessions.iter().map(with).collect())
    }

    /// The processes of those that came by Unix sockets.
    fn local_processes(&mut self, sessions: &[&Session], wanted: &BTreeSet<Attribute>) -> HashMap<Key, i32> {
        const OF_PROCESS: [Attribute; 4] =
            [Attribute::CpuTime, Attribute::CpuAvgPercent, Attribute::MemSize, Attribute::Rows];
        let matters = OF_PROCESS.iter().any(|attribute| wanted.contains(attribute));
        let mut processes = HashMap::new();
        for session in sessions.iter().filter(|session| session.is_local() && matters) {
            let key = looked_key(session);
            let known = self.local.entry(key).or_insert(Err(0));
            if let Err(looks) = *known {
                *known = LocalProcess::of(&session.activity).ok_or(looks.saturating_add(1));
            }
            match *known {
                Ok(process) => processes.extend(process.pid().map(|pid| (key, pid))),
                // One that has just ended is not found either.
                Err(LOOKS_UNFOUND) if !std::mem::replace(&mut self.told_unfound, true) => super::note(&format!(
                    "process {}, whose client came by a Unix socket, is not found among this host's: no rule on cputime, cpuavgpercent, \
                     memsize or rows reaches such sessions (in a container the server has numbers of its own)",
                    key.0
                )),
                Err(_) => {}
            }
        }
        processes
    }

    /// The rows that these sessions' queries have sent so far, of those that run one.
    fn count_rows(
        &mut self,
        sessions: &[&Session],
        processes: &HashMap<Key, i32>,
        hold: &mut Hold,
    ) -> anyhow::Result<HashMap<Key, f64>> {
        let active = sessions.iter().filter(|session| session.activity.active).map(|session| looked_key(session));
        let asked: Vec<(Key, i32)> = active.filter_map(|key| Some((key, *processes.get(&key)?))).collect();
        let counted = hold.guardian().count_rows(asked.iter().map(|(_, pid)| *pid).collect())?;
        let mut rows = HashMap::new();
        for ((key, _), counted) in asked.into_iter().zip(counted) {
            match counted {
                Ok(counted) => rows.extend(counted.map(|rows| (key, rows as f64))),
                Err(why) if !std::mem::replace(&mut self.told_uncounted, true) => {
                    super::note(&format!("no rule on rows reaches some sessions: {why}"));
                }
                Err(why) => tracing::debug!("the rows of process {} are not counted: {why}", key.0),
            }
        }
        Ok(rows)
    }

    /// Finds the sockets of these sessions, as many as one look may seek.
    fn seek(&mut self, sessions: &[&Session], hold: &mut Hold) -> anyhow::Result<()> {
        let at = now();
        let keys: Vec<Key> = sessions.iter().map(|session| looked_key(session)).collect();
        let sought = self.sockets.sought(at, &keys);
        for session in sessions.iter().filter(|session| sought.contains(&looked_key(session))) {
            let key = looked_key(session);
            let found = match session.socket(hold.guardian()) {
                Err(error) if guardian_ended(&error) => return Err(error),
                found => found.map_err(|error| Refused { why: error.to_string(), at }),
            };
            if found.is_ok() {
                // What was refused while there was none, or of another, says nothing of this one.
                self.refused.remove(&key);
            }
            self.sockets.put(key, found);
        }
        Ok(())
    }

    /// The server tells of a session whose connection is gone: it is held no longer, and sought again at the next look.
    fn lose(&mut self, key: Key, hold: &mut Hold) -> anyhow::Result<()> {
        if let Some(cookie) = self.cookie(key)
            && let Some(paced) = hold.release(now(), cookie)?
        {
            super::note(&let_go(&paced));
        }
        self.sockets.lose(key);
        Ok(())
    }

    /// The socket of a session, where it was found.
    pub(super) fn cookie(&self, key: Key) -> Option<u64> {
        Some(self.sockets.found(key)?.socket.cookie)
    }

    /// A rule slows it no longer.
    pub(super) fn lift(&mut self, key: Key, hold: &mut Hold) -> anyhow::Result<()> {
        if self.low.contains_key(&key) {
            return Ok(());
        }
        // The next decision is told anew where it cannot be carried out.
        self.refused.remove(&key);
        if let Some(cookie) = self.cookie(key)
            && let Some(paced) = hold.release(now(), cookie)?
        {
            super::note(&let_go(&paced));
        }
        Ok(())
    }

    /// Holds those whom a rule slows and who are not held, from the decision on and for as long as it stands.
    pub(super) fn hold_penalised(
        &mut self,
        sessions: &[Session],
        watch: &Watch,
        hold: &mut Hold,
        told: &mut Told,
    ) -> anyhow::Result<()> {
        let held = hold.cookies();
        for session in sessions {
            let key = looked_key(session);
            let Some(rule) = watch.penalised_by(key) else { continue };
            let is_held = self.cookie(key).is_some_and(|cookie| held.contains(&cookie));
            if is_held || !self.hold_now(key, session, hold)? {
                continue;
            }
            if let Some(cookie) = self.cookie(key) {
                told.ruled(cookie, &session.activity.user, rule);
            }
        }
        Ok(())
    }

    /// Says whom it would hold for their pool, and holds nobody.
    pub(super) fn would_hold(&mut self, wanted: HashSet<Key>) {
        for key in wanted.iter().filter(|key| !self.low.contains_key(*key)) {
            super::note(&format!("would hold process {} for its pool (dry run: nothing is done)", key.0));
        }
        self.low = wanted.into_iter().map(|key| (key, String::new())).collect();
    }

    /// Holds those of low-priority pools that are wanted, and lets the others go. To whom this was done: process id and user.
    pub(super) fn hold_low(
        &mut self,
        wanted: &HashSet<Key>,
        sessions: &[Session],
        state: &State,
        watch: &Watch,
        hold: &mut Hold,
        told: &mut Told,
    ) -> anyhow::Result<Vec<(i32, String, PoolStep)>> {
        let (held, mut steps) = (hold.cookies(), Vec::new());
        for session in sessions {
            let (key, user) = (looked_key(session), &session.activity.user);
            let step = if wanted.contains(&key) {
                let cookie = self.cookie(key);
                if let Some(cookie) = cookie {
                    told.pooled(cookie, user, state.pool_of(user));
                }
                let is_held = cookie.is_some_and(|cookie| held.contains(&cookie));
                self.hold_for_pool(session, is_held, hold)?
            } else {
                self.let_go_for_pool(key, state.is_low(user), watch.is_penalised(key), hold)?
            };
            steps.extend(step.map(|step| (session.activity.pid, user.clone(), step)));
        }
        Ok(steps)
    }

    /// Those that were held for their pool and are not to be any more, nor are here to be let go.
    pub(super) fn forget_low(&mut self, wanted: &HashSet<Key>) -> Vec<(Key, String)> {
        self.low.extract_if(|key, _| !wanted.contains(key)).collect()
    }

    /// Lets those go whom neither a rule nor a pool holds any more, though nobody said so: the server tells no more of a session
    /// that this role may not see any longer, and its connection lives on.
    pub(super) fn reconcile(&self, watch: &Watch, hold: &mut Hold) -> anyhow::Result<()> {
        let meant = watch.penalised().chain(self.low.keys().copied());
        let meant: HashSet<u64> = meant.filter_map(|key| self.cookie(key)).collect();
        for cookie in hold.cookies().difference(&meant) {
            if let Some(paced) = hold.release(now(), *cookie)? {
                super::note(&let_go(&paced));
            }
        }
        Ok(())
    }

    /// Holds a session for its pool.
    fn hold_for_pool(&mut self, session: &Session, is_held: bool, hold: &mut Hold) -> anyhow::Result<Option<PoolStep>> {
        let key = looked_key(session);
        if is_held && self.low.contains_key(&key) {
            return Ok(None);
        }
        // One that was held is so no longer: its connection was lost.
        self.low.remove(&key);
        if !self.hold_now(key, session, hold)? {
            return Ok(None);
        }
        self.low.insert(key, session.activity.user.clone());
        Ok(Some(if self.freed.remove(&key) { PoolStep::HeldAgain } else { PoolStep::Held }))
    }

    /// Lets a session go that was held for its pool, because it blocks somebody or because its pool is no longer low.
    fn let_go_for_pool(
        &mut self,
        key: Key,
        is_low: bool,
        is_penalised: bool,
        hold: &mut Hold,
    ) -> anyhow::Result<Option<PoolStep>> {
        if !is_low {
            self.freed.remove(&key);
        }
        if self.low.remove(&key).is_none() || is_penalised {
            return Ok(None);
        }
        let Some(cookie) = self.cookie(key) else { return Ok(None) };
        let Some(paced) = hold.release(now(), cookie)? else { return Ok(None) };
        super::note(&let_go(&paced));
        if !is_low {
            return Ok(Some(PoolStep::Left));
        }
        self.freed.insert(key);
        Ok(Some(PoolStep::Freed))
    }

    /// Holds one, unless it was refused a moment ago; whether it is held.
    fn hold_now(&mut self, key: Key, session: &Session, hold: &mut Hold) -> anyhow::Result<bool> {
        let at = now();
        if self.refused.get(&key).is_some_and(|refused| !refused.is_due(at)) {
            return Ok(false);
        }
        let refused = match self.sockets.of(key) {
            Some(Ok(named)) => slow(named, session, hold)?,
            Some(Err(refused)) => Some(format!("cannot slow it: {}", refused.why)),
            None => return Ok(false),
        };
        let Some(why) = refused else {
            self.refused.remove(&key);
            return Ok(true);
        };
        // Told again only where it is another reason.
        if self.refused.get(&key).is_none_or(|before| before.why != why) {
            super::note(&why);
        }
        self.refused.insert(key, Refused { why, at });
        Ok(false)
    }

    /// The sessions as the console shows them; with their rows where these are counted.
    pub(super) fn outside(
        &self,
        sessions: &[Session],
        watch: Option<&Watch>,
        hold: &Hold,
        told: &Told,
    ) -> Vec<OutsideSession> {
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
                rows: watch.and_then(|watch| watch.rows_of(looked_key(session))).filter(|_| activity.active),
                sent_bytes: cookie.and_then(|cookie| held.get(&cookie).copied()),
                snapshot_age_xids: session.snapshot_age,
                held_by: cookie.map(|cookie| told.holder(cookie)),
            }
        };
        sessions.iter().map(one).collect()
    }
}

/// Holds one, unless it is held; why it cannot be held.
fn slow(named: &Named, session: &Session, hold: &mut Hold) -> anyhow::Result<Option<String>> {
    if hold.paced().iter().any(|paced| paced.named.socket.cookie == named.socket.cookie) {
        return Ok(None);
    }
    match hold.add(now(), named.clone()) {
        Ok(()) => {
            let vacuum = session.snapshot_age.map_or_else(String::new, |age| {
                format!("; its snapshot, {age} transactions old, holds back vacuum meanwhile")
            });
            super::note(&format!("holding {}{vacuum}", described(named)));
            Ok(None)
        }
        Err(error) if error.is_end() => Err(error.into()),
        Err(error) => Ok(Some(format!("cannot slow {}: {error}", described(named)))),
    }
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
