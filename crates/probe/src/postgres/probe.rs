//! The probe itself: one connection, one thread, sessions at every look and the slower readings in between.

use super::conninfo::ConnInfo;
use super::counters;
use super::identity::Identity;
use super::link::{Link, QueryError};
use super::logs::Logs;
use super::schedule::Entry;
use super::sessions::{Context, Sessions};
use super::settings;
use super::target::{self, Facts};
use super::views::{self, View};
use crate::host::{KernelWaits, Roots};
use crate::{Probe, ProbeError, Sink};
use backwater_model::{Event, EventKind, Moment, Span, Target, Text};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How a server is watched.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The target's name; `host:port` where none is given.
    pub name: Option<String>,
    /// Keep statements as they stand instead of without their literals. What may hold a password is changed all the same.
    pub keep_query_text: bool,
    /// Where this host's kernel files are.
    pub roots: Roots,
    /// How often sessions are looked at.
    pub session_period: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions {
            name: None,
            keep_query_text: false,
            roots: Roots::default(),
            session_period: Duration::from_millis(100),
        }
    }
}

/// A reading slower than the sessions.
#[derive(Clone, Debug)]
enum Task {
    /// A view's counters.
    View(Arc<View>),
    /// Whether it is still the same server on the same timeline.
    Identity,
    /// Settings, and names of roles and databases.
    Settings,
    /// Which file is the log.
    LogFile,
    /// New lines of the log.
    LogLines,
}

impl Task {
    fn what(&self) -> &'static str {
        match self {
            Task::View(view) => view.what,
            Task::Identity => "server identity",
            Task::Settings => "settings",
            Task::LogFile => "current log file",
            Task::LogLines => "log",
        }
    }
}

/// What is true of one connection.
#[derive(Debug)]
struct Live {
    link: Link,
    facts: Facts,
    identity: Identity,
    schedule: Vec<Entry<Task>>,
}

/// Watches one PostgreSQL server.
#[derive(Debug)]
pub struct PostgresProbe {
    name: String,
    target: Text,
    info: ConnInfo,
    options: PostgresOptions,
    runtime: Arc<Runtime>,
    live: Option<Live>,
    /// Whether the facts of the present connection were put down.
    told: bool,
    identity: Identity,
    settings: BTreeMap<String, String>,
    sessions: Sessions,
    logs: Logs,
}

impl PostgresProbe {
    /// Connects, and learns what is to be known of the server. Blocks for as long as connecting takes, and must not be
    /// called from inside an async runtime.
    ///
    /// # Errors
    /// [`ProbeError::Connect`] with what to do next: unreachable, refused, older than 12.
    pub fn connect(info: ConnInfo, options: PostgresOptions) -> Result<(PostgresProbe, Target), ProbeError> {
        for warning in info.warnings() {
            tracing::warn!("{warning}");
        }
        let runtime = Arc::new(runtime()?);
        let live = runtime.block_on(Live::open(&info, &options))?;
        let target = live.facts.target.clone();
        let mut probe = PostgresProbe {
            name: format!("postgres.{}", target.name),
            target: Text::from(target.name.as_str()),
            info,
            runtime,
            live: None,
            told: false,
            identity: live.identity.clone(),
            settings: target.settings.clone(),
            sessions: Sessions::default(),
            logs: Logs::default(),
            options,
        };
        probe.sessions.statements.keep_text = probe.options.keep_query_text;
        probe.adopt(live);
        Ok((probe, target))
    }

    /// Makes a fresh connection the present one.
    fn adopt(&mut self, live: Live) {
        let facts = &live.facts;
        self.sessions.kernel = facts.local.as_ref().map(|_| KernelWaits::new(&self.options.roots));
        self.sessions.data_device.clone_from(&facts.target.data_device);
        self.sessions.statements.backslash_escapes =
            facts.target.settings.get("standard_conforming_strings").is_some_and(|value| value == "off");
        self.sessions.forget_names();
        self.live = Some(live);
        self.told = false;
    }

    fn look(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        if self.live.is_none() {
            let live = self.runtime.block_on(Live::open(&self.info, &self.options))?;
            self.adopt(live);
        }
        let Some(mut live) = self.live.take() else { return Ok(()) };
        if !std::mem::replace(&mut self.told, true) {
            self.tell_absences(&live, sink);
            self.tell_settings(live.facts.target.settings.clone(), sink);
        }
        self.tell_change(&live.identity, sink);
        let runtime = Arc::clone(&self.runtime);
        let result = runtime.block_on(self.all(&mut live, sink));
        if !matches!(result, Err(QueryError::Lost(_))) {
            self.live = Some(live);
        }
        result.map_err(ProbeError::from)
    }

    /// Sessions, then whatever else is due.
    async fn all(&mut self, live: &mut Live, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        let context = Context { target: &self.target, identity: &live.identity, privileges: &live.facts.privileges };
        self.sessions.read(&mut live.link, context, sink).await?;
        for place in 0..live.schedule.len() {
            if !live.schedule[place].is_due(sink.at) {
                continue;
            }
            let task = live.schedule[place].task.clone();
            let result = self.run(&task, live, sink).await;
            let entry = &mut live.schedule[place];
            let what = task.what();
            match result {
                Ok(()) if entry.worked() => self.tell_gap(what, None, sink),
                Ok(()) => {}
                Err(QueryError::Lost(error)) => return Err(QueryError::Lost(error)),
                Err(QueryError::Denied(error)) => {
                    entry.turn_off();
                    sink.absent(&self.target, what, &error.to_string(), Some(&live.facts.privileges.grant()));
                }
                Err(QueryError::Failed(error)) => {
                    if entry.failed(sink.at) {
                        self.tell_gap(what, Some(&error), sink);
                    }
                }
            }
        }
        Ok(())
    }

    async fn run(&mut self, task: &Task, live: &mut Live, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        match task {
            Task::View(view) => counters::read(&mut live.link, view, &self.target, &live.identity, sink).await,
            Task::Identity => {
                live.identity = Identity::read(&mut live.link).await?;
                self.tell_change(&live.identity, sink);
                Ok(())
            }
            Task::Settings => {
                self.sessions.forget_names();
                let settings = settings::read(&mut live.link).await?;
                self.tell_settings(settings, sink);
                Ok(())
            }
            Task::LogFile => {
                let (local, roots) = (live.facts.local.as_ref(), &self.options.roots);
                let directory = live.facts.target.data_directory.as_deref();
                self.logs.read(&self.target, sink);
                if let Err(why) = self.logs.find(&mut live.link, local, directory, roots).await? {
                    sink.absent(&self.target, "log", &why, log_remedy(&why, live).as_deref());
                }
                Ok(())
            }
            Task::LogLines => {
                self.logs.read(&self.target, sink);
                Ok(())
            }
        }
    }

    /// Says, where it is so, that this is another life of the server than before.
    fn tell_change(&mut self, identity: &Identity, sink: &mut Sink<'_>) {
        if let Some(change) = identity.change_since(&self.identity) {
            let message = format!("{}: {change}", self.target);
            let fields = [
                ("change", change),
                ("started_before_unix_s", self.identity.started.as_str()),
                ("started_after_unix_s", identity.started.as_str()),
            ];
            sink.event(Event::new(sink.at, &self.target, EventKind::Restart, message, &fields));
        }
        if *identity != self.identity {
            self.identity = identity.clone();
        }
    }

    fn tell_settings(&mut self, settings: BTreeMap<String, String>, sink: &mut Sink<'_>) {
        for (name, before, after) in settings::changes(&self.settings, &settings) {
            let message = format!("{name}: '{before}' → '{after}'");
            let fields = [("name", name), ("before", before), ("after", after)];
            sink.event(Event::new(sink.at, &self.target, EventKind::Setting, message, &fields));
        }
        self.settings = settings;
    }

    /// One reading fails, or works again, while the others go on.
    fn tell_gap(&self, what: &'static str, error: Option<&ProbeError>, sink: &mut Sink<'_>) {
        let probe = format!("{} {what}", self.name);
        let event = match error {
            Some(error) => {
                let reason = error.to_string();
                let fields = [("probe", probe.as_str()), ("reason", reason.as_str())];
                Event::new(sink.at, &self.target, EventKind::Gap, format!("{probe} cannot be read: {reason}"), &fields)
            }
            None => {
                let fields = [("probe", probe.as_str()), ("ended", "true")];
                Event::new(sink.at, &self.target, EventKind::Gap, format!("{probe} is read again"), &fields)
            }
        };
        sink.event(event);
    }

    /// What this role, server or place keeps from being seen.
    fn tell_absences(&self, live: &Live, sink: &mut Sink<'_>) {
        let privileges = &live.facts.privileges;
        let (target, grant) = (&self.target, privileges.grant());
        let role = format!("role {} is no member of pg_monitor", privileges.role);
        if !privileges.all_stats {
            sink.absent(target, "sessions of other roles", &role, Some(&grant));
            sink.absent(target, "standbys", &role, Some(&grant));
        }
        if !privileges.all_settings {
            sink.absent(target, "settings for superusers", &role, Some(&grant));
        }
        if live.facts.local.is_none() {
            let why = "the server's processes are not among those of this host";
            sink.absent(target, "kernel waits, processes and devices", why, Some("run backwater on the server's host"));
        }
        if live.identity.system.is_none() {
            sink.absent(target, "system identifier and timeline", "pg_control_system() is not allowed", None);
        }
        let off = |name: &str| live.facts.target.settings.get(name).is_some_and(|value| value == "off");
        if off("track_activities") {
            let remedy = "ALTER SYSTEM SET track_activities = on; SELECT pg_reload_conf()";
            sink.absent(target, "what sessions do", "track_activities is off", Some(remedy));
        }
        if off("track_io_timing") {
            let remedy = "ALTER SYSTEM SET track_io_timing = on; SELECT pg_reload_conf()";
            sink.absent(target, "times of reads and writes", "track_io_timing is off", Some(remedy));
        }
    }
}

/// What would let the log be read.
fn log_remedy(why: &str, live: &Live) -> Option<String> {
    if why.contains("another host") {
        Some("run backwater on the server's host".to_owned())
    } else if !live.facts.privileges.monitor {
        Some(live.facts.privileges.grant())
    } else if why.contains("logging_collector is off") {
        Some("ALTER SYSTEM SET logging_collector = on; then restart the server".to_owned())
    } else {
        Some("run as root or as the server's own user".to_owned())
    }
}

impl Live {
    async fn open(info: &ConnInfo, options: &PostgresOptions) -> Result<Self, ProbeError> {
        let mut link = Link::open(info).await?;
        let facts = target::facts(&mut link, options.name.as_deref(), &options.roots).await?;
        let identity = Identity::read(&mut link).await?;
        let schedule = schedule(link.major(), facts.privileges.all_stats, crate::now());
        Ok(Live { link, facts, identity, schedule })
    }
}

/// The slower readings, each begun at its own look.
fn schedule(major: i32, all_stats: bool, start: Moment) -> Vec<Entry<Task>> {
    let views = views::views(major).into_iter().filter(|view| all_stats || !view.needs_stats);
    let views = views.map(|view| (view.period_ms, Task::View(Arc::new(view))));
    let others = [(1_000, Task::Identity), (10_000, Task::LogFile), (1_000, Task::LogLines), (60_000, Task::Settings)];
    let tasks = views.chain(others).enumerate();
    let entry = |(place, (period_ms, task)): (usize, (i64, Task))| {
        // Settings were read at the connection.
        let first_ms = if matches!(task, Task::Settings) { period_ms } else { place as i64 % 10 * 100 };
        Entry::new(task, start, Span::from_millis(first_ms), Span::from_millis(period_ms))
    };
    tasks.map(entry).collect()
}

/// A runtime that runs only while a look is taken.
pub(super) fn runtime() -> Result<Runtime, ProbeError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    built.map_err(|source| ProbeError::System { call: "epoll_create1", source })
}

impl Probe for PostgresProbe {
    fn name(&self) -> &str {
        &self.name
    }

    fn period(&self) -> Duration {
        self.options.session_period
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        self.look(sink)
    }
}

impl Drop for PostgresProbe {
    fn drop(&mut self) {
        if let Some(live) = self.live.take() {
            self.runtime.block_on(live.link.close());
        }
    }
}
