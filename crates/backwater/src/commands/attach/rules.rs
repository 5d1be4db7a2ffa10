//! Whoever a rule matches: looked at again and again, judged, slowed, and let go when the statement ends.

use super::end::End;
use super::looked::{AGAIN_UNFIT, Looked, release_all};
use super::server::{Server, is_lost};
use super::sockets::{Key, looked_key};
use super::told::Told;
use super::{Arguments, class_of, look, now, pause_looking, read_config};
use crate::{signals, terminal};
use anyhow::bail;
use backwater_flow::rule::{Attribute, Decision, Rule, RuleOption, Why};
use backwater_flow::statement::{self, Statement};
use backwater_flow::{Priority, SessionId, State};
use backwater_gate::attach::{Console, Hold, PoolStep};
use backwater_gate::proxy::ProxyConfig;
use backwater_model::{Event, EventKind};
use std::collections::{BTreeSet, HashSet};
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

/// Looks, judges and acts until the time is over or somebody wants to end.
pub(super) fn run(
    arguments: &Arguments,
    config: Option<&ProxyConfig>,
    state: State,
    hold: &mut Hold,
    end: &End,
    told: &mut Told,
) -> anyhow::Result<ExitCode> {
    let Some(target) = &arguments.target else { bail!("a rule needs a server: give its address") };
    // A file or a console may ask for rows later.
    let counts_rows = config.is_some() || asked_for(&state).contains(&Attribute::Rows);
    let mut server = connect(target, end, counts_rows, hold)?;
    let governor = match (&arguments.config, config) {
        (Some(path), Some(config)) => Some(Governor::start(path.clone(), config, &server, told)?),
        _ => None,
    };
    let wanted = wanted(&server, &state)?;
    let end = end.within(arguments.seconds);
    server.ends(&end);
    let looked = Looked::new(server, wanted);
    terminal::note(&format!("watching for {}; Ctrl-C puts everything back", words(&state)));
    let mut ruling = Ruling { arguments, state, looked, governor, told };
    let done = ruling.until(&end, hold);
    // Whatever ended it: everybody is let go now, which whoever called does.
    ruling.is_over()?;
    done.map(|()| ExitCode::SUCCESS)
}

/// Rules and pools that govern the sessions of a server.
struct Ruling<'a> {
    arguments: &'a Arguments,
    state: State,
    looked: Looked,
    /// Where rules and pools are a file's, or a console's.
    governor: Option<Governor>,
    told: &'a mut Told,
}

impl Ruling<'_> {
    fn until(&mut self, end: &End, hold: &mut Hold) -> anyhow::Result<()> {
        while !end.is_here() {
            self.hear(hold);
            self.look(hold)?;
            pause_looking(self.arguments.interval, hold, end)?;
        }
        Ok(())
    }

    /// Takes over what a file or the console says now.
    fn hear(&mut self, hold: &mut Hold) {
        let Some(governor) = self.governor.as_mut() else { return };
        let Some(next) = governor.news(&self.state) else { return };
        match take_over(&next, &mut self.looked, hold, self.told) {
            true => self.state = next,
            false => governor.unfit = Some((next, Instant::now())),
        }
    }

    fn look(&mut self, hold: &mut Hold) -> anyhow::Result<()> {
        look(hold)?;
        let Ruling { arguments, looked, .. } = self;
        let sessions = looked.sessions(arguments, hold.guardian())?;
        if looked.is_away() {
            release_all(hold)?;
        }
        let activities = looked.held.read(&sessions, &self.state, &looked.watch, &looked.wanted, hold)?;
        let decisions = match looked.is_away() {
            true => looked.watch.lift_all(now(), Why::Unseen),
            false => looked.watch.look(now(), &activities, &self.state),
        };
        for (key, decision) in decisions {
            let decision = self.tell(key, decision)?;
            if !self.arguments.dry_run {
                let session = sessions.iter().find(|session| looked_key(session) == key);
                self.looked.act(key, &decision, session, hold)?;
            }
        }
        let Ruling { arguments, state, looked, told, .. } = self;
        let pooled = looked.hold(&sessions, &activities, state, arguments, hold, told)?;
        told.see(hold);
        if let Some(governor) = &self.governor {
            for (pid, user, step) in pooled {
                governor.console.pooled(pid, &user, state.pool_of(&user), step);
            }
            let counted = Some(&looked.watch).filter(|_| looked.wanted.contains(&Attribute::Rows));
            let outside = looked.held.outside(&sessions, counted, hold, told);
            governor.console.see(outside, looked.server.all_unseen(), hold.class_bps());
        }
        Ok(())
    }

    /// Nobody is looked at any more: what rules and pools did is over, and that is told.
    fn is_over(&mut self) -> anyhow::Result<()> {
        for (key, decision) in self.looked.watch.lift_all(now(), Why::Ended) {
            self.tell(key, decision)?;
        }
        let low = self.looked.held.forget_low(&HashSet::new());
        if let Some(governor) = self.governor.as_ref().filter(|_| !self.arguments.dry_run) {
            for ((pid, _), user) in low {
                governor.console.pooled(pid, &user, self.state.pool_of(&user), PoolStep::Ended);
            }
        }
        Ok(())
    }

    /// Tells a decision wherever it is asked for; returns it with the session's name here.
    fn tell(&mut self, key: Key, decision: Decision) -> anyhow::Result<Decision> {
        // As everywhere here a session is known by its process.
        let session = SessionId(u64::try_from(key.0).unwrap_or_default());
        let decision = Decision { session, ..decision };
        print(&decision, self.arguments)?;
        self.told.decided(&decision, self.looked.held.cookie(key));
        if let Some(governor) = &self.governor {
            governor.console.decided(&decision);
        }
        Ok(decision)
    }
}

fn connect(target: &str, end: &End, counts_rows: bool, hold: &mut Hold) -> anyhow::Result<Server> {
    let mut server = Server::connect(target, end)?;
    if counts_rows {
        match server.learn_rows(hold.guardian()) {
            // Whoever asks for rows is told why there are none.
            Err(error) if is_lost(&error) => {}
            learnt => learnt?,
        }
    }
    Ok(server)
}

/// Lets other rules and pools govern from here on, where this server lets them; one that is away, as far as is known.
fn take_over(next: &State, looked: &mut Looked, hold: &mut Hold, told: &mut Told) -> bool {
    match wanted(&looked.server, next) {
        Ok(wanted) => looked.wants(wanted),
        Err(error) => {
            super::note(&format!("what was said last is not taken over, what was before goes on: {error:#}"));
            return false;
        }
    }
    hold.set_class(class_of(next));
    told.govern(next);
    true
}

/// What a file says, and what is made of it on the console.
struct Governor {
    path: PathBuf,
    hangup: Arc<AtomicBool>,
    console: Console,
    /// What the server did not let govern, and when.
    unfit: Option<(State, Instant)>,
}

impl Governor {
    fn start(path: PathBuf, config: &ProxyConfig, server: &Server, told: &Told) -> anyhow::Result<Governor> {
        // Without a file a hangup ends it: a terminal that is closed must not leave sessions held with nobody to see it.
        let hangup = signals::hangup_flag()?;
        let record = told.recorder();
        // What rules decide is told where they are judged.
        let tell = move |event: Event| {
            let by_rule = event.kind == EventKind::Decision && event.fields.contains_key("rule");
            if let Some(record) = record.as_ref().filter(|_| !by_rule) {
                record(event);
            }
        };
        let console = Console::start(config, server.all_unseen(), Arc::new(tell))?;
        for address in console.addresses() {
            terminal::note(&format!("console at {address}"));
        }
        if config.admin.is_some() && console.addresses().is_empty() {
            terminal::note("nobody reaches the console: [admin] names no address of its own (listen = 'HOST:PORT')");
        }
        Ok(Governor { path, hangup, console, unfit: None })
    }

    /// What is to govern, where that is something else than now, and was not found unfit a little while ago.
    fn news(&mut self, now: &State) -> Option<State> {
        let next = self.state();
        if next == *now {
            self.unfit = None;
            return None;
        }
        let is_unfit = self.unfit.as_ref().is_some_and(|(unfit, at)| *unfit == next && at.elapsed() < AGAIN_UNFIT);
        (!is_unfit).then_some(next)
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
                        "the configuration was not taken over, everything stays as it was: {}",
                        terminal::told(&error)
                    ));
                }
            }
        }
        self.console.state()
    }
}

/// What the rules of a state look at.
fn asked_for(state: &State) -> BTreeSet<Attribute> {
    let in_force = |rule: &Rule| -> Vec<Attribute> {
        rule.thresholds.iter().filter(|(_, threshold)| threshold.is_some()).map(|(attribute, _)| *attribute).collect()
    };
    let used = state.pools().keys().flat_map(|pool| state.rules_of(pool)).map(|(_, rule)| rule);
    used.flat_map(in_force).collect()
}

/// As [`asked_for`].
///
/// # Errors
/// Some of it cannot be seen on this server from outside.
fn wanted(server: &Server, state: &State) -> anyhow::Result<BTreeSet<Attribute>> {
    let wanted = asked_for(state);
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

fn print(decision: &Decision, arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.json {
        let mut event = serde_json::to_value(decision.event("attach"))?;
        event["time"] = jiff::Timestamp::now().to_string().into();
        return terminal::print(&event.to_string());
    }
    let dry = if arguments.dry_run { " (dry run: nothing is done)" } else { "" };
    terminal::print(&format!("{} {decision}{dry}", super::stamp()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_flow::rule::Action;

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
}
