//! Active sessions ten times a second, and the processes that carry WAL and pages whatever they do: what each waits for
//! by the server's word and by the kernel's.

use super::identity::{Identity, Privileges};
use super::link::{Link, QueryError};
use super::look::{Look, Sent, Session, When};
use super::queues::{Asleep, Queues};
use super::row::ServerTime;
use super::running::{Running, Wanted, Whose};
use super::shmem::Memory;
use super::texts::{Column, Interner, Statements};
use super::waits::Turns;
use crate::Sink;
use crate::host::{KernelWaits, Numbered};
use backwater_model::{CARRIERS, Epoch, Moment, Sample, Span, Text, catalogue};
use std::collections::{BTreeMap, HashMap};
use tokio::runtime::Runtime;

/// The function under pg_stat_activity, without the view's joins. Idle sessions, and other processes in their main
/// loop, are left out, except those that carry WAL and pages: that they have nothing to do is what rules ask. A
/// background worker between two jobs waits in `Extension`. Heartbeats are the probe's own. What most rows are is asked
/// first, and values come as the server keeps them: with many sessions its part of a look is the dearest. Texts, and whose
/// a session is, are sent once ([`Running`]), and of a session that is active not that it is. Of what the role may not see the
/// begin is null. The server's clock, and whether the role sees others, come once, in a row of its own that is no session's.
const SQL: &str = "SELECT NULL, NULL, NULL, NULL, CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN 'all' ELSE 'own' END, \
     NULL, statement_timestamp(), NULL, NULL, NULL UNION ALL \
     SELECT a.pid, a.wait_event_type, a.wait_event, a.application_name, \
     CASE WHEN a.state IS NULL THEN '' WHEN a.state <> 'active' THEN a.state END, QUERY_TEXT, a.query_start, a.xact_start, \
     QUERY_ID, CASE WHEN (a.backend_start > $2) IS NOT FALSE THEN ARRAY[a.backend_type, a.usesysid::text, a.datid::text, \
     host(a.client_addr), a.client_port::text] END FROM pg_stat_get_activity(NULL) a \
     WHERE a.pid <> pg_backend_pid() AND (\
     (ACTIVE AND a.wait_event_type IS DISTINCT FROM 'Activity' AND OURS_NOT) OR a.backend_type IN ('CARRIERS') \
     OR (a.state IS NULL AND a.backend_type <> 'client backend' AND a.wait_event_type NOT IN ('Activity', 'Extension') \
     AND OURS_NOT)IDLE_TOO)";
const OURS_NOT: &str = "a.application_name IS DISTINCT FROM 'backwater heartbeat'";
const ACTIVE: &str = "a.state IN ('active', 'fastpath function call')";
/// How often idle clients are counted, in the same look as the others: a look of their own would cost as much.
pub(super) const COUNT_PERIOD: Span = Span::from_millis(1_000);
const NAMES: &str = "SELECT oid, rolname::text, true FROM pg_roles WHERE oid = ANY($1) \
     UNION ALL SELECT oid, datname::text, false FROM pg_database WHERE oid = ANY($2)";

/// Columns of a look whose texts come again and again.
#[derive(Debug, Default)]
struct Columns {
    application: Column,
    state: Column,
    wait_event_type: Column,
    wait_event: Column,
    kernel_wait: Column,
}

/// How many clients a look saw.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    active: u64,
    idle: u64,
}

/// Sessions that wait on one queue.
#[derive(Debug)]
struct Waiting {
    sessions: u64,
    numbered: Numbered,
}

/// Reads sessions, and remembers names and texts between looks.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    texts: Interner,
    columns: Columns,
    queues: Queues,
    pub(super) statements: Statements,
    running: Running,
    roles: HashMap<u32, Option<Text>>,
    databases: HashMap<u32, Option<Text>>,
    /// Sessions waiting on each queue; a queue once seen is counted for ever, or its last figure would seem to stay.
    waiting: BTreeMap<Text, Waiting>,
    /// How many sessions there are, and how the server answers.
    numbered: Option<Numbered>,
    /// Reads the kernel's side; none where the server is elsewhere.
    pub(super) kernel: Option<KernelWaits>,
    /// Reads sessions in between, where that can be.
    pub(super) memory: Option<Memory>,
    /// Whether how often it was read there was told last time.
    had_memory: bool,
    turns: Turns,
    /// Device of the data directory.
    pub(super) data_device: Option<String>,
    /// Whether commits may be delayed on purpose (commit_delay), which no wait event says.
    pub(super) commit_delay: bool,
    /// Whether the server itself keeps no more of a statement's text than is wanted.
    pub(super) short_texts: bool,
    /// Whether the last look saw a walsender.
    pub(super) walsenders: bool,
    /// When idle clients are counted next.
    next_count: Moment,
    /// The longest answer since they were counted.
    longest_us: f64,
    /// Where the rows of a look are kept.
    buffer: Vec<u8>,
}

/// Whom a look asked.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Nobody,
    Server {
        /// For all sessions, or those at work.
        all: bool,
        /// How long it took to answer.
        response_us: f64,
        /// How long it took over the longest answer to the probe since the last look at all sessions.
        longest_us: f64,
    },
}

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// It was put down.
    Whole,
    /// Nothing was: the role has other rights than before, so that what there is to be read is to be found out anew.
    OtherRights,
}

/// What a look needs to know of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    /// For what the library must be asked.
    pub(super) runtime: &'a Runtime,
    pub(super) target: &'a Text,
    pub(super) identity: &'a Identity,
    pub(super) privileges: &'a Privileges,
}

impl Sessions {
    /// One look: a sample for each active session, and how many there are, by queue. The server is asked once a second, with idle
    /// clients, and in between where its memory cannot be read.
    pub(super) fn read(
        &mut self,
        link: &Link,
        context: Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Looked, QueryError> {
        // A tick may come a little early by the clock of the last one.
        let counts = sink.at + Span::from_millis(10) >= self.next_count;
        if counts {
            self.next_count = sink.at + COUNT_PERIOD;
        }
        // In a crash every session ends, and the memory is the server's no longer.
        let mut memory = self.memory.take().filter(|memory| !memory.has_ended());
        let looked = self.look(memory.as_mut().filter(|_| !counts), link, context, sink);
        let looked = match looked {
            Some(looked) => looked.map(|()| Looked::Whole),
            None => self.ask(memory.as_mut(), counts, link, context, sink),
        };
        self.memory = memory.filter(Memory::is_believed);
        looked
    }

    /// A look without asking; none where the server is to be asked.
    fn look(
        &mut self,
        memory: Option<&mut Memory>,
        link: &Link,
        context: Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Option<Result<(), QueryError>> {
        let look = memory?.look(&mut self.running, ServerTime::now())?;
        Some(self.put(&look, Asked::Nobody, crate::now(), link, context, sink))
    }

    /// A look at all sessions or at those at work, as the server answers.
    fn ask(
        &mut self,
        mut memory: Option<&mut Memory>,
        all: bool,
        link: &Link,
        context: Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Looked, QueryError> {
        let asking = Asking { with_idle: all, short_texts: self.short_texts };
        let prepared = link.prepare_look(context.runtime, asking.name(), |major| asking.sql(major))?;
        let ask = |wanted: Wanted, buffer| {
            link.look(context.runtime, &prepared, [wanted.statements, wanted.sessions], buffer)
        };
        if let Some(memory) = &mut memory {
            memory.before_answer(all);
        }
        let mut asked = crate::now();
        let mut rows = ask(self.running.wanted(), std::mem::take(&mut self.buffer))?;
        let unreadable = |why| link.unreadable(why);
        let mut look = Look::of(&rows).map_err(unreadable)?;
        if look.sessions.iter().any(|session| session.sent.is_none() && !self.running.knows(session.pid)) {
            asked = crate::now();
            rows = ask(Wanted::ALL, Vec::new())?;
            look = Look::of(&rows).map_err(unreadable)?;
        }
        let answered = crate::now();
        if let Some(memory) = &mut memory {
            memory.after_answer();
        }
        if look.has_other_rights(context.privileges) {
            return Ok(Looked::OtherRights);
        }
        let response_us = (answered - asked).0 as f64;
        self.longest_us = self.longest_us.max(response_us);
        let longest_us = self.longest_us.max(link.take_longest().as_secs_f64() * 1e6);
        self.longest_us = if all { 0.0 } else { longest_us };
        self.put(&look, Asked::Server { all, response_us, longest_us }, answered, link, context, sink)?;
        if all && (memory.is_some() || self.had_memory) {
            self.had_memory = memory.is_some();
            let looks = memory.as_mut().map_or(0, |memory| memory.take_looks());
            self.numbered.iter_mut().for_each(|it| it.put(sink, &catalogue::PG_PROBE_MEMORY_LOOKS, f64::from(looks)));
        }
        if let Some(memory) = memory {
            memory.learn(context.target, &look, all, &mut self.running);
        }
        self.buffer = rows.into_buffer();
        Ok(Looked::Whole)
    }

    /// Puts down what a look found, which was over then.
    fn put(
        &mut self,
        look: &Look<'_>,
        asked: Asked,
        over: Moment,
        link: &Link,
        context: Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let when = When { at: over, server: look.server };
        self.running.looked(when.server);
        self.learn_names(link, context.runtime, &look.sessions)?;
        let seen = self.put_samples(&look.sessions, when, context.target, sink);
        if let Asked::Server { all: true, .. } = asked {
            self.forget(&look.sessions);
        }
        self.put_counts(context, asked, seen, sink);
        Ok(())
    }

    fn put_counts(&mut self, context: Context<'_>, asked: Asked, seen: Seen, sink: &mut Sink<'_>) {
        let epoch = context.identity.epoch();
        let fresh = || Numbered::new(epoch, vec![("target", context.target.to_string())]);
        let numbered = self.numbered.get_or_insert_with(fresh).in_epoch(epoch);
        if let Asked::Server { all, response_us, longest_us } = asked {
            numbered.put(sink, &catalogue::PG_PROBE_RESPONSE, response_us);
            if all {
                numbered.put(sink, &catalogue::PG_PROBE_LONGEST, longest_us);
            }
        }
        // A role that sees only its own sessions would count wrongly; the absence was told at the connection.
        if context.privileges.all_stats {
            numbered.put(sink, &catalogue::PG_SESSIONS_ACTIVE, seen.active as f64);
            if let Asked::Server { all: true, .. } = asked {
                numbered.put(sink, &catalogue::PG_SESSIONS_TOTAL, (seen.active + seen.idle) as f64);
            }
            for waiting in self.waiting.values_mut() {
                waiting.numbered.in_epoch(epoch).put(sink, &catalogue::PG_SESSIONS_WAITING, waiting.sessions as f64);
            }
        }
    }

    /// A sample for each row but those of idle clients.
    fn put_samples(&mut self, sessions: &[Session<'_>], when: When, target: &Text, sink: &mut Sink<'_>) -> Seen {
        let mut seen = Seen::default();
        self.waiting.values_mut().for_each(|waiting| waiting.sessions = 0);
        self.walsenders = false;
        self.turns.next_look();
        sink.batch.samples.reserve(sessions.len());
        for session in sessions {
            let settled = session.sent.is_some_and(|sent| sent.is_settled());
            let sent = session.sent.map(|sent| self.whose(sent));
            let whose = self.running.whose(session.pid, sent, settled);
            let client = whose.backend_type.as_deref() == Some("client backend");
            // An active session's state is not sent.
            if client && !matches!(session.state, None | Some("fastpath function call")) {
                seen.idle += 1;
                continue;
            }
            let walsender = whose.backend_type.as_deref() == Some("walsender");
            let sample = self.sample(*session, whose, when, target);
            if client {
                seen.active += 1;
                if let Some(queue) = &sample.queue {
                    let labels = || vec![("target", target.to_string()), ("queue", queue.to_string())];
                    let fresh = || Waiting { sessions: 0, numbered: Numbered::new(Epoch::default(), labels()) };
                    self.waiting.entry(Text::clone(queue)).or_insert_with(fresh).sessions += 1;
                }
            }
            self.walsenders |= walsender;
            sink.sample(sample);
        }
        seen
    }

    /// Whose a session is of which that was sent.
    fn whose(&mut self, sent: Sent<'_>) -> Whose {
        let name = |names: &HashMap<u32, Option<Text>>, oid: Option<u32>| names.get(&oid?).cloned().flatten();
        Whose {
            backend_type: sent.backend_type.map(|kind| self.texts.get(kind)),
            user: name(&self.roles, sent.role),
            database: name(&self.databases, sent.database),
            client_addr: sent.client_addr.map(|address| self.texts.get(address)),
            client_port: sent.client_port.filter(|port| *port > 0),
        }
    }

    fn sample(&mut self, session: Session<'_>, whose: Whose, when: When, target: &Text) -> Sample {
        let Session { pid, class, begun, .. } = session;
        let kernel = self.kernel.as_mut().filter(|_| self.turns.asks(pid, class));
        let (kernel_wait, kernel_state) = kernel.map(|kernel| kernel.read(pid)).unwrap_or_default();
        let (columns, texts) = (&mut self.columns, &mut self.texts);
        let wait_event = columns.wait_event.some(texts, session.event);
        let kernel_wait = columns.kernel_wait.some(texts, kernel_wait.as_deref());
        let wait = Asleep { backend_type: &whose.backend_type, event: &wait_event, kernel: &kernel_wait };
        let queue = self.queues.of(wait, self.commit_delay, self.data_device.as_deref());
        let age_ms = |from: Option<ServerTime>| Some(when.server?.since(from?).0.max(0) / 1_000);
        Sample {
            at: when.at,
            target: Text::clone(target),
            pid,
            backend_type: whose.backend_type,
            user: whose.user,
            database: whose.database,
            application: columns.application.some(texts, session.application),
            client_addr: whose.client_addr,
            client_port: whose.client_port,
            state: columns.state.some(texts, Some(session.state.unwrap_or("active"))),
            wait_event_type: columns.wait_event_type.some(texts, class),
            wait_event,
            queue,
            kernel_wait,
            kernel_state,
            query_id: session.query_id.filter(|id| *id != 0),
            query: self.running.statement(pid, begun, session.query, &mut self.statements),
            query_age_ms: age_ms(begun),
            xact_age_ms: age_ms(session.transaction_begun),
        }
    }

    /// Asks for the names of roles and databases not met before.
    fn learn_names(&mut self, link: &Link, runtime: &Runtime, sessions: &[Session<'_>]) -> Result<(), QueryError> {
        let unknown = |oid: fn(Sent<'_>) -> Option<u32>, known: &HashMap<u32, Option<Text>>| {
            let oids = sessions.iter().filter_map(|session| oid(session.sent?));
            oids.filter(|oid| !known.contains_key(oid)).collect::<Vec<_>>()
        };
        let roles = unknown(|sent| sent.role, &self.roles);
        let databases = unknown(|sent| sent.database, &self.databases);
        if roles.is_empty() && databases.is_empty() {
            return Ok(());
        }
        // One dropped meanwhile has no name, and is not asked for again.
        self.roles.extend(roles.iter().map(|oid| (*oid, None)));
        self.databases.extend(databases.iter().map(|oid| (*oid, None)));
        for row in runtime.block_on(link.rows_with("names", NAMES, &[&roles, &databases]))? {
            let (oid, name, is_role): (u32, &str, bool) = (row.get(0), row.get(1), row.get(2));
            let names = if is_role { &mut self.roles } else { &mut self.databases };
            names.insert(oid, Some(self.texts.get(name)));
        }
        Ok(())
    }

    fn forget(&mut self, sessions: &[Session<'_>]) {
        let pids: Vec<i32> = sessions.iter().map(|session| session.pid).collect();
        self.running.forget_others(&pids);
        if let Some(kernel) = &mut self.kernel {
            kernel.forget_others(&pids);
        }
    }

    /// Asks for every name anew: roles and databases can be renamed, and the server may be another one.
    pub(super) fn forget_names(&mut self) {
        self.roles.clear();
        self.databases.clear();
        self.queues = Queues::default();
        self.running = Running::default();
    }
}

/// Which look is asked.
#[derive(Clone, Copy, Debug)]
struct Asking {
    with_idle: bool,
    short_texts: bool,
}

impl Asking {
    fn name(self) -> &'static str {
        match (self.with_idle, self.short_texts) {
            (true, true) => "sessions and idle ones",
            (true, false) => "sessions and idle ones, of long texts the beginning",
            (false, true) => "sessions",
            (false, false) => "sessions, of long texts the beginning",
        }
    }

    fn sql(self, major: i32) -> String {
        // Of idle clients only that they are there matters.
        let whose = if self.with_idle { "(ACTIVE OR a.backend_type <> 'client backend') AND " } else { "" };
        // Counting the characters of every text takes the server as long as sending it.
        let query = if self.short_texts { "a.query" } else { "left(a.query, 1024)" };
        let text = format!("CASE WHEN {whose}(a.query_start > $1) IS NOT FALSE THEN {query} END");
        SQL.replace("QUERY_TEXT", &text)
            .replace(
                "IDLE_TOO",
                if self.with_idle { " OR (a.backend_type = 'client backend' AND OURS_NOT)" } else { "" },
            )
            .replace("QUERY_ID", if major >= 14 { "a.query_id" } else { "NULL::int8" })
            .replace("CARRIERS", &CARRIERS.join("', '"))
            .replace("ACTIVE", ACTIVE)
            .replace("OURS_NOT", OURS_NOT)
    }
}

/// Whether the server keeps no more of a text than is wanted, as this track_activity_query_size says: in bytes, or in kilobytes
/// where it is whole ones.
pub(super) fn are_short(size: Option<&String>) -> bool {
    let bytes = size.and_then(|size| size.strip_suffix('B')).and_then(|size| size.parse::<u32>().ok());
    size.is_some_and(|size| size == "1kB") || bytes.is_some_and(|bytes| bytes <= 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_where_the_server_keeps_longer_ones() {
        let short = |size: &str| are_short(Some(&size.to_owned()));
        assert!(short("1kB") && short("100B") && short("1023B"));
        assert!(!short("1025B") && !short("4kB") && !short("1MB") && !short("") && !are_short(None));
    }
}
