//! Active sessions ten times a second, and the processes that carry WAL and pages whatever they do: what each waits for
//! by the server's word and by the kernel's.

use super::identity::{Identity, Privileges};
use super::link::{Link, QueryError};
use super::texts::{Interner, Statements};
use super::waits::{self, Wait};
use crate::Sink;
use crate::host::KernelWaits;
use backwater_model::{CARRIERS, Moment, Sample, Text, catalogue};
use std::collections::{BTreeMap, HashMap};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

/// The function under pg_stat_activity, without the view's joins. Idle sessions, and other processes in their main
/// loop, are left out, except those that carry WAL and pages: that they have nothing to do is what rules ask. A
/// background worker between two jobs waits in `Extension`. Heartbeats are the probe's own.
const SQL: &str = "SELECT a.pid, a.backend_type, a.usesysid, a.datid, a.application_name, host(a.client_addr), \
     a.client_port, a.state, a.wait_event_type, a.wait_event, left(a.query, 1024), \
     (date_part('epoch', statement_timestamp() - a.query_start) * 1000)::int8, \
     (date_part('epoch', statement_timestamp() - a.xact_start) * 1000)::int8, QUERY_ID \
     FROM pg_stat_get_activity(NULL) a WHERE a.pid <> pg_backend_pid() AND (a.backend_type IN ('CARRIERS') \
     OR (coalesce(a.wait_event_type, '') <> 'Activity' AND a.application_name IS DISTINCT FROM 'backwater heartbeat' \
     AND (a.state IN ('active', 'fastpath function call') OR (a.state IS NULL AND a.backend_type <> 'client backend' \
     AND a.wait_event_type IS NOT NULL AND a.wait_event_type <> 'Extension'))))";
const NAMES: &str = "SELECT oid, rolname::text, true FROM pg_roles WHERE oid = ANY($1) \
     UNION ALL SELECT oid, datname::text, false FROM pg_database WHERE oid = ANY($2)";

/// Reads sessions, and remembers names and texts between looks.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    texts: Interner,
    pub(super) statements: Statements,
    roles: HashMap<u32, Option<Text>>,
    databases: HashMap<u32, Option<Text>>,
    /// Sessions waiting on each queue; a queue once seen is counted for ever, or its last figure would seem to stay.
    waiting: BTreeMap<Text, u64>,
    /// Reads the kernel's side; none where the server is elsewhere.
    pub(super) kernel: Option<KernelWaits>,
    /// Device of the data directory.
    pub(super) data_device: Option<String>,
    /// Whether commits may be delayed on purpose (commit_delay), which no wait event says.
    pub(super) commit_delay: bool,
}

/// What a look needs to know of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) target: &'a Text,
    pub(super) identity: &'a Identity,
    pub(super) privileges: &'a Privileges,
}

impl Sessions {
    /// One look: a sample for each active session, and how many there are, by queue.
    pub(super) async fn read(
        &mut self,
        link: &mut Link,
        context: Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let sql = sql(link.major());
        let asked = crate::now();
        let rows = link.rows("sessions", &sql).await?;
        let answered = crate::now();
        let epoch = context.identity.epoch();
        let labels = [("target", context.target.as_ref())];
        sink.put(&catalogue::PG_PROBE_RESPONSE, &labels, epoch, (answered - asked).0 as f64);
        self.learn_names(link, &rows).await?;
        self.waiting.values_mut().for_each(|count| *count = 0);
        let mut active: u64 = 0;
        for row in &rows {
            let sample = self.sample(row, answered, context.target);
            if sample.backend_type.as_deref() == Some("client backend") {
                active += 1;
                if let Some(queue) = &sample.queue {
                    *self.waiting.entry(Text::clone(queue)).or_default() += 1;
                }
            }
            sink.sample(sample);
        }
        self.forget(&rows);
        // A role that sees only its own sessions would count wrongly; the absence was told at the connection.
        if context.privileges.all_stats {
            sink.put(&catalogue::PG_SESSIONS_ACTIVE, &labels, epoch, active as f64);
            for (queue, count) in &self.waiting {
                let labels = [("target", context.target.as_ref()), ("queue", queue.as_ref())];
                sink.put(&catalogue::PG_SESSIONS_WAITING, &labels, epoch, *count as f64);
            }
        }
        Ok(())
    }

    fn sample(&mut self, row: &Row, at: Moment, target: &Text) -> Sample {
        let text = |column: usize| get::<&str>(row, column).filter(|text| !text.is_empty());
        let pid = get(row, 0).unwrap_or_default();
        let kernel = self.kernel.as_mut().filter(|_| !waits::on_its_latch(text(8)));
        let (kernel_wait, kernel_state) = kernel.map(|kernel| kernel.read(pid)).unwrap_or_default();
        let commit_delay = self.commit_delay;
        let wait = Wait { backend_type: text(1), event: text(9), kernel: kernel_wait.as_deref(), commit_delay };
        let queue = waits::place(wait).and_then(|place| waits::queue_name(place, self.data_device.as_deref()));
        let name = |names: &HashMap<u32, Option<Text>>, oid: Option<u32>| names.get(&oid?).cloned().flatten();
        Sample {
            at,
            target: Text::clone(target),
            pid,
            backend_type: self.texts.some(text(1)),
            user: name(&self.roles, get(row, 2)),
            database: name(&self.databases, get(row, 3)),
            application: self.texts.some(text(4)),
            client_addr: self.texts.some(text(5)),
            client_port: get::<i32>(row, 6).filter(|port| *port > 0),
            state: self.texts.some(text(7)),
            wait_event_type: self.texts.some(text(8)),
            wait_event: self.texts.some(text(9)),
            queue: self.texts.some(queue.as_deref()),
            kernel_wait: self.texts.some(kernel_wait.as_deref()),
            kernel_state,
            query_id: get::<i64>(row, 13).filter(|id| *id != 0),
            query: text(10).and_then(|query| self.statements.get(query)),
            query_age_ms: get::<i64>(row, 11).map(|age| age.max(0)),
            xact_age_ms: get::<i64>(row, 12).map(|age| age.max(0)),
        }
    }

    /// Asks for the names of roles and databases not met before.
    async fn learn_names(&mut self, link: &mut Link, rows: &[Row]) -> Result<(), QueryError> {
        let unknown = |column: usize, known: &HashMap<u32, Option<Text>>| {
            let oids = rows.iter().filter_map(|row| get::<u32>(row, column));
            oids.filter(|oid| !known.contains_key(oid)).collect::<Vec<_>>()
        };
        let (roles, databases) = (unknown(2, &self.roles), unknown(3, &self.databases));
        if roles.is_empty() && databases.is_empty() {
            return Ok(());
        }
        // One dropped meanwhile has no name, and is not asked for again.
        self.roles.extend(roles.iter().map(|oid| (*oid, None)));
        self.databases.extend(databases.iter().map(|oid| (*oid, None)));
        for row in link.rows_with("names", NAMES, &[&roles, &databases]).await? {
            let (oid, name, is_role): (u32, &str, bool) = (row.get(0), row.get(1), row.get(2));
            let names = if is_role { &mut self.roles } else { &mut self.databases };
            names.insert(oid, Some(self.texts.get(name)));
        }
        Ok(())
    }

    fn forget(&mut self, rows: &[Row]) {
        if let Some(kernel) = &mut self.kernel {
            let pids: Vec<i32> = rows.iter().filter_map(|row| get(row, 0)).collect();
            kernel.forget_others(&pids);
        }
    }

    /// Asks for every name anew: roles and databases can be renamed.
    pub(super) fn forget_names(&mut self) {
        self.roles.clear();
        self.databases.clear();
    }
}

fn sql(major: i32) -> String {
    let query_id = if major >= 14 { "a.query_id" } else { "NULL::int8" };
    SQL.replace("QUERY_ID", query_id).replace("CARRIERS", &CARRIERS.join("', '"))
}

/// A column's value; none where it is null, or of another type than PostgreSQL's own (forks differ).
fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Option<T> {
    row.try_get::<_, Option<T>>(column).ok().flatten()
}
