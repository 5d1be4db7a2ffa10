//! Whoever a rule matches: looked at again and again, judged, slowed, and let go when the statement ends.

use super::server::{Server, Session};
use super::told::Told;
use super::{Arguments, class_of, described, let_go, look, now, pause_looking, read_config};
use crate::{signals, terminal};
use anyhow::bail;
use backwater_flow::rule::{Action, Attribute, Decision, Rule, RuleOption, Step};
use backwater_flow::statement::{self, Statement};
use backwater_flow::{Priority, SessionId, State};
use backwater_gate::attach::{Activity, AttachError, Console, Hold, Named, OutsideSession, Seen, Watch};
use backwater_gate::proxy::ProxyConfig;
use backwater_model::{Event, EventKind};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Reads a rule: `bandwidth=128, action='penalty'`, or `CREATE EXCEPT RULE name WITH (…)`.
pub(super) fn parse(text: &str) -> Result<(String, Rule), String> {
    let whole = text.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("create"));
    let statement = if whole { text.to_owned() } else { format!("CREATE EXCEPT RULE attached WITH ({text})") };
    let mut parsed = statement::parse(&statement).map_err(|error| format!("{error} (in: {statement})"))?;
    let (name, options) = match (parsed.pop(), parsed.is_empty()) {
        (Some(Statement::CreateRule { name, options }), true) => (name, options),
        _ => return Err("one rule is wanted: attributes, or one CREATE EXCEPT RULE name WITH (…)".to_owned()),
    };
    // The statement's default is to abort: what slows and what ends queries must not differ by a forgotten word.
    if !whole && !options.iter().any(|option| matches!(option, RuleOption::Action(_))) {
        return Err("say what the rule does: action='penalty' (slow), 'abort' or 'dryrun'".to_owned());
    }
    let mut rule = Rule::default();
    options.iter().for_each(|option| rule.set(option));
    if !rule.thresholds.values().any(Option::is_some) {
        return Err("the rule has no threshold in force, so that it would never match".to_owned());
    }
    Ok((name, rule))
}

/// Which session: process id and begin.
type Key = (i32, i64);

/// Looks, judges and acts until somebody wants to end.
pub(super) fn run(
    arguments: &Arguments,
    config: Option<&ProxyConfig>,
    mut state: State,
    hold: &mut Hold,
    cancel: &AtomicBool,
    told: &mut Told,
) -> anyhow::Result<ExitCode> {
    let Some(target) = &arguments.target else { bail!("a rule needs a server: give its address") };
    let server = Server::connect(target)?;
    let governor = match (&arguments.config, config) {
        (Some(path), Some(config)) => Some(Governor::start(path.clone(), config, &server, told)?),
        _ => None,
    };
    let wanted = wanted(&server, &state)?;
    let mut looked = Looked { server, wanted, sockets: HashMap::new(), watch: Watch::new(), low: HashSet::new() };
    terminal::note(&format!("watching for {}; Ctrl-C puts everything back", words(&state)));
    let begun = Instant::now();
    while !arguments.is_over(begun, cancel) {
        if let Some(governor) = &governor {
            let next = governor.state();
            if next != state {
                looked.wanted = self::wanted(&looked.server, &next)?;
                hold.set_class(class_of(&next));
                told.govern(&next);
                state = next;
            }
        }
        look(hold)?;
        let sessions = looked.sessions(arguments)?;
        let activities = looked.read(&sessions, &state, hold)?;
        for (key, decision) in looked.watch.look(now(), &activities, &state) {
            // As everywhere here a session is known by its process.
            let session = SessionId(u64::try_from(key.0).unwrap_or_default());
            let decision = Decision { session, ..decision };
            tell(&decision, arguments)?;
            told.decided(&decision, looked.cookie(key));
            if let Some(governor) = &governor {
                governor.console.decided(&decision);
            }
            if !arguments.dry_run {
                let session = sessions.iter().find(|session| looked_key(session) == key);
                looked.act(key, &decision, session, hold)?;
            }
        }
        looked.hold_low(&activities, &state, arguments, hold, told)?;
        told.see(hold);
        if let Some(governor) = &governor {
            governor.console.see(looked.outside(&sessions, hold, told), hold.class_bps());
        }
        pause_looking(arguments.interval, hold, cancel)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a file says, and what is made of it on the console.
struct Governor {
    path: PathBuf,
    hangup: Arc<AtomicBool>,
    console: Console,
}

impl Governor {
    fn start(path: PathBuf, config: &ProxyConfig, server: &Server, told: &Told) -> anyhow::Result<Governor> {
        // Without a file a hangup ends it: a terminal that is closed must not leave sessions held with nobody to see it.
        let hangup = signals::hangup_flag()?;
        let unseen = Attribute::ALL.iter().filter_map(|attribute| Some((*attribute, server.unseen(*attribute)?)));
        let record = told.recorder();
        // What rules decide is told where they are judged.
        let tell = move |event: Event| {
            if let (EventKind::Setting, Some(record)) = (event.kind, &record) {
                record(event);
            }
        };
        let console = Console::start(config, unseen.collect(), Arc::new(tell))?;
        for address in console.addresses() {
            terminal::note(&format!("console at {address}"));
        }
        if config.admin.is_some() && console.addresses().is_empty() {
            terminal::note("nobody reaches the console: [admin] names no address of its own (listen = 'HOST:PORT')");
        }
        Ok(Governor { path, hangup, console })
    }

    /// What is in force, after the file was read again where that was asked for. A bad one changes nothing.
    fn state(&self) -> State {
        if self.hangup.swap(false, Ordering::SeqCst) {
            let read = read_config(&self.path).and_then(|config| Ok(self.console.reload(&config)?));
            match read {
                Ok(later) => {
                    for what in later {
                        super::note(&format!("{what} counts only from the next start"));
                    }
                }
                Err(error) => {
                    super::note(&format!(
                        "the configuration was not taken over, everything stays as it was: {error:#}"
                    ));
                }
            }
        }
        self.console.state()
    }
}

/// What the rules of a state look at.
///
/// # Errors
/// Some of it cannot be seen on this server from outside.
fn wanted(server: &Server, state: &State) -> anyhow::Result<BTreeSet<Attribute>> {
    let in_force = |rule: &Rule| -> Vec<Attribute> {
        rule.thresholds.iter().filter(|(_, threshold)| threshold.is_some()).map(|(attribute, _)| *attribute).collect()
    };
    let used = state.pools().keys().flat_map(|pool| state.rules_of(pool)).map(|(_, rule)| rule);
    let wanted: BTreeSet<Attribute> = used.flat_map(in_force).collect();
    for attribute in &wanted {
        if let Some(why) = server.unseen(*attribute) {
            bail!("no rule of attach mode can look at {attribute} here: {why}");
        }
    }
    Ok(wanted)
}

/// What there is, for people.
fn words(state: &State) -> String {
    let low = state.pools().values().filter(|pool| pool.priority == Priority::Low).count();
    let used: BTreeSet<&str> =
        state.pools().keys().flat_map(|pool| state.rules_of(pool)).map(|(name, _)| name).collect();
    let parts = [(used.len(), "rule"), (low, "low-priority pool")];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| super::counted(count, what));
    let words = parts.collect::<Vec<_>>().join(" and ");
    if words.is_empty() { "what the console will say".to_owned() } else { words }
}

fn tell(decision: &Decision, arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.json {
        let mut event = serde_json::to_value(decision.event("attach"))?;
        event["time"] = jiff::Timestamp::now().to_string().into();
        return terminal::print(&event.to_string());
    }
    let dry = if arguments.dry_run { " (dry run: nothing is done)" } else { "" };
    terminal::print(&format!("{} {decision}{dry}", super::stamp()))
}

fn looked_key(session: &Session) -> Key {
    (session.activity.pid, session.activity.began_us)
}

/// The server and what is remembered of its sessions.
struct Looked {
    server: Server,
    wanted: BTreeSet<Attribute>,
    /// The socket of each session, or why there is none.
    sockets: HashMap<Key, Result<Named, String>>,
    watch: Watch,
    /// Those of low-priority pools that are held.
    low: HashSet<Key>,
}

impl Looked {
    /// The sessions that the rules look at. Who waits for whom matters for all of them.
    fn sessions(&mut self, arguments: &Arguments) -> anyhow::Result<Vec<Session>> {
        let mut sessions = self.server.sessions(&self.wanted)?;
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

    /// Holds the sessions of low-priority pools from their first look on, and lets those go that block urgent work, or whose pool
    /// is no longer low.
    fn hold_low(
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
    fn read(&mut self, sessions: &[Session], state: &State, hold: &mut Hold) -> anyhow::Result<Vec<(Activity, Seen)>> {
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
    fn cookie(&self, key: Key) -> Option<u64> {
        Some(self.sockets.get(&key)?.as_ref().ok()?.socket.cookie)
    }

    /// The sessions as the console shows them.
    fn outside(&self, sessions: &[Session], hold: &Hold, told: &Told) -> Vec<OutsideSession> {
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

    fn act(&mut self, key: Key, decision: &Decision, session: Option<&Session>, hold: &mut Hold) -> anyhow::Result<()> {
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
            (Action::Abort, Step::Began) => self.stop(key.0, false),
            (Action::Abort, Step::Escalated) => self.stop(key.0, true),
            _ => {}
        }
        Ok(())
    }

    /// Whom this role may not stop goes on, and so does the rest.
    fn stop(&mut self, pid: i32, whole_session: bool) {
        if let Err(error) = self.server.stop(pid, whole_session) {
            super::note(&format!("process {pid} was not stopped: {error:#}"));
        }
    }
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
    fn a_rule_is_read_in_both_forms_and_never_ends_a_query_by_a_forgotten_word() {
        let (name, rule) = parse("bandwidth=128, elapsedtime=60, action='penalty'").unwrap();
        assert_eq!((name.as_str(), rule.action, rule.thresholds.len()), ("attached", Action::Penalty, 2));
        let (name, rule) = parse("create except rule r1 with (bandwidth=128)").unwrap();
        assert_eq!((name.as_str(), rule.action), ("r1", Action::Abort));
        assert!(parse("bandwidth=128").unwrap_err().contains("action='penalty'"));
        assert!(parse("bandwidth=-1, action='penalty'").unwrap_err().contains("never match"));
        assert!(parse("create resource pool p with (weight=1)").unwrap_err().contains("one rule"));
        assert!(parse("luck=7, action='abort'").unwrap_err().contains("unknown attribute 'luck'"));
    }

    #[test]
    fn a_process_shows_what_it_used() {
        let seen = process(i32::try_from(std::process::id()).unwrap());
        assert!(seen.cpu_s.is_some() && seen.memory_bytes.unwrap() > 1e4, "{seen:?}");
        assert_eq!(process(i32::MAX), Seen::default());
    }
}
