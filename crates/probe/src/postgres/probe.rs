//! The probe itself: one connection, one thread, sessions at every look and the slower readings in between.

use super::conninfo::ConnInfo;
use super::counters;
use super::heartbeat::Heartbeat;
use super::identity::{Identity, Privileges};
use super::link::{Link, QueryError};
use super::logs::Logs;
use super::redo::Redo;
use super::schedule::Entry;
use super::sessions::{COUNT_PERIOD, Context, Looked, Sessions, are_short};
use super::settings;
use super::shmem::Memory;
use super::target::{self, Facts};
use super::tell;
use super::views::{self, Of, View};
use crate::failing::Failing;
use crate::host::{KernelWaits, Roots};
use crate::{Probe, ProbeError, Sink};
use backwater_model::{Moment, Span, Target, Text, catalogue};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The control file of a standby without a receiver is read at every so many looks at who it is.
const LOOKS_PER_CONTROL_FILE: u32 = 10;

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
    /// Whether sessions are read in the server's shared memory where that can be.
    pub read_memory: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions {
            name: None,
            keep_query_text: false,
            roots: Roots::default(),
            session_period: Duration::from_millis(100),
            read_memory: true,
        }
    }
}

/// A reading besides sessions and views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
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
    fn what(self) -> &'static str {
        match self {
            Task::Identity => "server identity",
            Task::Settings => "settings",
            Task::LogFile => "current log file",
            Task::LogLines => "log",
        }
    }
}

/// A view that is due, with its place.
type Due = (usize, Arc<View>);

/// What is true of one connection.
#[derive(Debug)]
struct Live {
    link: Link,
    facts: Facts,
    identity: Identity,
    /// Where its sessions can be read without asking.
    memory: Option<Memory>,
    /// How often the identity was looked at.
    identity_looks: u32,
    redo: Redo,
    views: Vec<Entry<Arc<View>>>,
    tasks: Vec<Entry<Task>>,
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
    /// What the role could see when it was last told what it cannot.
    rights: Option<Privileges>,
    identity: Identity,
    settings: BTreeMap<String, String>,
    sessions: Sessions,
    logs: Logs,
    /// Readings that failed when they were last tried, on this connection or on one before: to lose one ends no failure.
    failing: BTreeMap<&'static str, Failing>,
}

impl PostgresProbe {
    /// Connects, and learns what is to be known of the server. Blocks for as long as connecting takes, and must not be
    /// called from inside an async runtime.
    ///
    /// # Errors
    /// [`ProbeError::Connect`] with what to do next: refused, older than 12; [`ProbeError::Unreached`] where it is away.
    pub fn connect(info: ConnInfo, options: PostgresOptions) -> Result<(PostgresProbe, Target), ProbeError> {
        let runtime = Arc::new(runtime()?);
        let live = runtime.block_on(Live::open(&info, &options))?;
        let target = live.facts.target.clone();
        // Told now: whoever records for a week shall not learn at its end what is not in it.
        if !live.facts.privileges.all_stats {
            let (role, grant) = (&live.facts.privileges.role, live.facts.privileges.grant());
            let server = &target.name;
            tracing::warn!(
                "{server}: role {role} is no member of pg_monitor, so sessions of other roles and standbys stay unseen; to add \
                 them: {grant}"
            );
        }
        let mut probe = PostgresProbe {
            name: format!("postgres.{}", target.name),
            target: Text::from(target.name.as_str()),
            info,
            runtime,
            live: None,
            told: false,
            rights: None,
            identity: live.identity.clone(),
            settings: target.settings.clone(),
            sessions: Sessions::default(),
            logs: Logs::default(),
            failing: BTreeMap::new(),
            options,
        };
        probe.sessions.statements.keep_text = probe.options.keep_query_text;
        probe.adopt(live);
        Ok((probe, target))
    }

    /// A heartbeat on the same server, whose beats are missed after `limit`. `hostname` names the recorder there.
    ///
    /// # Errors
    /// [`ProbeError::System`] where this process can open no more files.
    pub fn heartbeat(&self, limit: Duration, hostname: Option<&str>) -> Result<Heartbeat, ProbeError> {
        let mut info = self.info.clone();
        if let Some(live) = &self.live {
            info.servers = vec![live.link.address.clone()];
        }
        Heartbeat::new(&self.target, &info, limit, hostname)
    }

    /// Makes a fresh connection the present one, or what was found out anew on the same one.
    fn adopt(&mut self, mut live: Live) {
        self.sessions.memory = live.memory.take();
        let facts = &live.facts;
        self.sessions.kernel = facts.local.as_ref().map(|_| KernelWaits::new(&self.options.roots));
        self.sessions.data_device.clone_from(&facts.target.data_device);
        self.sessions.statements.backslash_escapes =
            facts.target.settings.get("standard_conforming_strings").is_some_and(|value| value == "off");
        self.sessions.short_texts = are_short(facts.target.settings.get("track_activity_query_size"));
        self.sessions.forget_names();
        self.live = Some(Live { identity: live.identity.clone().after(&self.identity), ..live });
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
            self.adopt_settings(live.facts.target.settings.clone(), sink);
        }
        self.adopt_identity(&live, sink);
        let runtime = Arc::clone(&self.runtime);
        let result = self.all(&runtime, &mut live, sink);
        if !matches!(result, Ok(Looked::Whole)) {
            // A server that does not answer may have let go of its memory, and a role may no longer see what stands there.
            self.sessions.memory = None;
        }
        if matches!(result, Ok(Looked::OtherRights)) {
            // On the same connection: a server that is full would let nobody in again.
            let live = runtime.block_on(Live::of(live.link, &self.options, Some(live.identity)))?;
            self.adopt(live);
            return Ok(());
        }
        if !matches!(result, Err(QueryError::Lost(_))) {
            self.live = Some(live);
        }
        result.map(|_| ()).map_err(ProbeError::from)
    }

    /// Says what cannot be seen as a server is met: with other rights than before all of it, for what was said of the
    /// former ones may have been over meanwhile.
    fn tell_absences(&mut self, live: &Live, sink: &mut Sink<'_>) {
        let rights = &live.facts.privileges;
        if self.rights.replace(rights.clone()).is_some_and(|before| before != *rights) {
            sink.forget(&self.target);
        }
        tell::absences(&self.target, &live.facts, &live.identity, sink);
    }

    fn adopt_identity(&mut self, live: &Live, sink: &mut Sink<'_>) {
        if live.identity != self.identity {
            tell::change(&self.target, &self.identity, &live.identity, live.facts.target.postmaster_pid, sink);
            self.identity = live.identity.clone();
        }
    }

    fn adopt_settings(&mut self, settings: BTreeMap<String, String>, sink: &mut Sink<'_>) {
        tell::settings(&self.target, &self.settings, &settings, sink);
        self.sessions.commit_delay = settings.get("commit_delay").is_some_and(|value| value != "0");
        self.settings = settings;
    }

    /// Sessions, then the views that are due, asked in one go, then whatever else is due. Where the role has other rights than
    /// these views were chosen by, nothing of it is put down. By a Unix socket the runtime is entered only where more is due.
    fn all(&mut self, runtime: &Runtime, live: &mut Live, sink: &mut Sink<'_>) -> Result<Looked, QueryError> {
        let privileges = &live.facts.privileges;
        let context = Context { runtime, target: &self.target, identity: &live.identity, privileges };
        if self.sessions.read(&live.link, context, sink)? == Looked::OtherRights {
            return Ok(Looked::OtherRights);
        }
        let (views, empty) = self.views_due(live, sink.at);
        // One that had failed would be taken for one that fails for ever.
        for (_, view) in empty {
            self.worked(view.what, tell::NOTHING_THERE, sink);
        }
        if !views.is_empty() {
            runtime.block_on(self.read_views(&views, live, sink))?;
        }
        for place in 0..live.tasks.len() {
            if live.tasks[place].is_due(sink.at) {
                let task = live.tasks[place].task;
                let result = runtime.block_on(self.run(task, live, sink));
                self.note(&mut live.tasks[place], task.what(), result, &live.facts, sink)?;
            }
        }
        Ok(Looked::Whole)
    }

    async fn read_views(&mut self, views: &[Due], live: &mut Live, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        let answers = join_all(views.iter().map(|(_, view)| counters::ask(&live.link, view))).await;
        for ((place, view), answer) in views.iter().zip(answers) {
            let result = answer.map(|answer| {
                sink.present(&self.target, view.what);
                answer.put(view, &self.target, &live.identity, sink);
                if view.of == Of::Slots && answer.is_empty() {
                    live.views[*place].was_empty(sink.at);
                }
                if let Some(position) = live.redo.learn(view, &answer) {
                    let labels = [("target", self.target.as_ref())];
                    sink.put(&catalogue::PG_CHECKPOINT_REDO, &labels, live.identity.epoch(), position);
                }
            });
            self.note(&mut live.views[*place], view.what, result, &live.facts, sink)?;
        }
        Ok(())
    }

    /// The views to read now, with their places, and those of which it is known that they have no rows on such a server: they need
    /// not be asked.
    fn views_due(&self, live: &mut Live, at: Moment) -> (Vec<Due>, Vec<Due>) {
        let (in_recovery, walsenders) = (live.identity.in_recovery, self.sessions.walsenders);
        let wants_redo = live.redo.is_wanted();
        let archives = self.settings.get("archive_mode").is_none_or(|mode| mode != "off");
        let has_rows = |view: &View| match view.of {
            Of::Any => true,
            Of::Recovery => in_recovery,
            Of::Walsenders => walsenders,
            Of::Checkpoint => !in_recovery && wants_redo,
            Of::Archiving => archives,
            Of::Slots => true,
        };
        let entries = live.views.iter_mut().enumerate();
        let due = entries.filter_map(|(place, entry)| entry.is_due(at).then(|| (place, Arc::clone(&entry.task))));
        due.partition(|(_, view)| has_rows(view))
    }

    /// Remembers how a reading went, and tells what is missing now or is there again.
    fn note<T>(
        &mut self,
        entry: &mut Entry<T>,
        what: &'static str,
        result: Result<(), QueryError>,
        facts: &Facts,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        match result {
            Ok(()) => self.worked(what, tell::READ_AGAIN, sink),
            Err(QueryError::Lost(error)) => return Err(QueryError::Lost(error)),
            Err(QueryError::Denied(error)) => {
                entry.turn_off();
                self.worked(what, tell::DENIED, sink);
                // What the server does not have or not support, no privilege brings.
                let grant = error.to_string().contains("permission denied").then(|| facts.privileges.grant());
                sink.absent(&self.target, what, &error.to_string(), grant.as_deref());
            }
            Err(QueryError::Failed(error)) => {
                entry.failed(sink.at);
                if let Some(tell) = self.failing.entry(what).or_default().failed(sink.at) {
                    let probe = format!("{} {what}", self.name);
                    sink.event(tell.event(sink.at, &self.target, &probe, "cannot be read", &error));
                }
            }
        }
        Ok(())
    }

    /// Tells, where a reading had failed, that this is over, and how.
    fn worked(&mut self, what: &'static str, how: &str, sink: &mut Sink<'_>) {
        if self.failing.remove(what).is_some() {
            tell::fails_no_more(&self.target, &self.name, what, how, sink);
        }
    }

    fn read_log(&mut self, sink: &mut Sink<'_>) {
        let prefix = self.settings.get("log_line_prefix").map_or("", String::as_str);
        self.logs.read(&self.target, prefix, sink);
    }

    async fn run(&mut self, task: Task, live: &mut Live, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        match task {
            Task::Identity => {
                let read = live.identity_now().await?.after(&self.identity);
                if read != live.identity {
                    live.redo = Redo::default();
                }
                if (&read.system, &read.started) != (&live.identity.system, &live.identity.started) {
                    self.sessions.memory = None;
                }
                live.identity = read;
                self.adopt_identity(live, sink);
                if let Some(timeline) = live.identity.timeline {
                    let labels = [("target", self.target.as_ref())];
                    sink.put(&catalogue::PG_TIMELINE, &labels, live.identity.epoch(), timeline as f64);
                }
                Ok(())
            }
            Task::Settings => {
                self.sessions.forget_names();
                let settings = settings::read(&mut live.link).await?;
                self.adopt_settings(settings, sink);
                Ok(())
            }
            Task::LogFile => {
                self.read_log(sink);
                let (local, roots) = (live.facts.local.as_ref(), &self.options.roots);
                let directory = live.facts.target.data_directory.as_deref();
                if let Err(why) = self.logs.find(&mut live.link, local, directory, roots).await? {
                    sink.absent(&self.target, "log", &why, tell::log_remedy(&why, &live.facts).as_deref());
                }
                Ok(())
            }
            Task::LogLines => {
                self.read_log(sink);
                Ok(())
            }
        }
    }
}

impl Live {
    async fn open(info: &ConnInfo, options: &PostgresOptions) -> Result<Self, ProbeError> {
        Live::of(Link::open(info).await?, options, None).await
    }

    /// What there is to be read on a connection, by the rights that its role has now. Who the server is may be known: the control
    /// file is not asked for nothing, for a server that stalls may keep it locked.
    async fn of(mut link: Link, options: &PostgresOptions, known: Option<Identity>) -> Result<Self, ProbeError> {
        let mut facts = target::facts(&mut link, options.name.as_deref(), &options.roots).await?;
        let identity = match known {
            Some(identity) if identity.system.is_some() => identity,
            _ => Identity::read(&link).await?,
        };
        facts.target.system_identifier.clone_from(&identity.system);
        let now = crate::now();
        let views = views_of(link.major(), facts.privileges.all_stats, now);
        let memory = memory_of(&link, &facts, options).await?;
        // What is asked once need not be fast.
        link.take_longest();
        Ok(Live { link, facts, identity, memory, identity_looks: 0, redo: Redo::default(), views, tasks: tasks(now) })
    }

    /// Who the server is now. Of a standby without a receiver (it restores from an archive), the control file alone knows
    /// the timeline.
    async fn identity_now(&mut self) -> Result<Identity, QueryError> {
        self.identity_looks = self.identity_looks.wrapping_add(1);
        let whole = self.identity_looks.is_multiple_of(LOOKS_PER_CONTROL_FILE);
        if whole && self.identity.in_recovery && !Identity::has_receiver(&self.link).await? {
            return Identity::read(&self.link).await;
        }
        self.identity.present(&self.link).await
    }
}

/// The server's memory, where it is on this host, its role may see all that stands there, and so may this process.
async fn memory_of(link: &Link, facts: &Facts, options: &PostgresOptions) -> Result<Option<Memory>, QueryError> {
    let wanted = options.read_memory
        && options.session_period.as_secs_f64() < COUNT_PERIOD.seconds()
        && facts.privileges.all_stats;
    let Some(local) = facts.local.as_ref().filter(|_| wanted) else {
        return Ok(None);
    };
    let found = Memory::find(link, local.postmaster_pid, &options.roots.proc).await?;
    Ok(found.inspect_err(|why| tracing::debug!("{}: asked at every look: {why}", facts.target.name)).ok())
}

/// The views of this version that this role may read, in two looks of a second: what is asked in one go wakes server and
/// probe once more, after the look. Never in the first look: what a look at sessions takes of the server's memory must lie below what the views'
/// plans keep there, or the C library hands it back to the kernel and asks for it anew at every look.
fn views_of(major: i32, all_stats: bool, start: Moment) -> Vec<Entry<Arc<View>>> {
    let views = views::views(major).into_iter().filter(|view| all_stats || !view.needs_stats).enumerate();
    let entry = |(place, view): (usize, View)| {
        let (first, period) = (Span::from_millis(500 + place as i64 % 2 * 500), Span::from_millis(view.period_ms));
        Entry::new(Arc::new(view), start, first, period)
    };
    views.map(entry).collect()
}

/// The other readings, each begun at a look without views. Settings were read as it was met.
fn tasks(start: Moment) -> Vec<Entry<Task>> {
    let entry =
        |task, first_ms, period_ms| Entry::new(task, start, Span::from_millis(first_ms), Span::from_millis(period_ms));
    vec![
        entry(Task::Identity, 200, 1_000),
        entry(Task::LogFile, 300, 10_000),
        entry(Task::LogLines, 700, 1_000),
        entry(Task::Settings, 60_000, 60_000),
    ]
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
