//! The server's counters as a table: which view has which series under which expression, by version. The edges that
//! matter are 13 (slots' safe size), 14 (pg_stat_wal), 16 (pg_stat_io), 17 (pg_stat_checkpointer) and 18 (bytes and WAL
//! in pg_stat_io).

mod replication;
mod wal;
mod work;

use backwater_model::catalogue::Def;

/// How old a value is when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// True at the read.
    Now,
    /// As old as the view's `age` says.
    Aged,
}

/// Where a view has rows: elsewhere it need not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Anywhere.
    Any,
    /// A server in recovery.
    Recovery,
    /// A server with walsenders.
    Walsenders,
    /// A primary on which a checkpoint has ended since it was asked last.
    Checkpoint,
    /// A server that archives its WAL.
    Archiving,
    /// A server with slots: where there was none, it is asked more rarely whether there is one now.
    Slots,
}

/// One series of a view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) def: &'static Def,
    expression: &'static str,
    pub(super) fresh: Fresh,
}

/// One query and the series it brings, in the order of its columns.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// For messages, and part of the epoch.
    pub(super) what: &'static str,
    /// Names of the labels besides `target`.
    pub(super) labels: Vec<&'static str>,
    pub(super) columns: Vec<Column>,
    /// Milliseconds between reads.
    pub(super) period_ms: i64,
    /// Whether it shows something only to pg_monitor.
    pub(super) needs_stats: bool,
    /// Where it has rows.
    pub(super) of: Of,
    /// How many rows are put down; the query brings one more where there are more. None: as many as come.
    pub(super) most_rows: Option<usize>,
    /// Selects the labels as text, the time of the last reset as text, the age in seconds, then the columns as float8.
    pub(super) sql: String,
}

/// What a view is made of.
struct Source {
    what: &'static str,
    from: &'static str,
    labels: &'static [(&'static str, &'static str)],
    reset: &'static str,
    age: &'static str,
    period_ms: i64,
    needs_stats: bool,
    of: Of,
    most_rows: Option<usize>,
}

const ALWAYS: Source = Source {
    what: "",
    from: "",
    labels: &[],
    reset: "''",
    age: "NULL",
    period_ms: 1_000,
    needs_stats: false,
    of: Of::Any,
    most_rows: None,
};

/// Up to 14 a collector process writes the statistics to a file; this is how old that file is.
const COLLECTOR_AGE: &str = "date_part('epoch', clock_timestamp() - pg_stat_get_snapshot_timestamp())";

impl Source {
    fn view(self, columns: &[(&'static Def, &'static str)]) -> View {
        let fresh = if self.age == "NULL" { Fresh::Now } else { Fresh::Aged };
        let columns = columns.iter().map(|(def, expression)| Column { def, expression, fresh }).collect();
        self.view_of(columns)
    }

    fn view_of(self, columns: Vec<Column>) -> View {
        let labels = self.labels.iter().map(|(_, expression)| format!("({expression})::text"));
        let facts = [format!("({})::text", self.reset), format!("({})::float8", self.age)];
        let values = columns.iter().map(|column| format!("({})::float8", column.expression));
        let list: Vec<_> = labels.chain(facts).chain(values).collect();
        let from = if self.from.is_empty() { String::new() } else { format!(" FROM {}", self.from) };
        let limit = self.most_rows.map(|most| format!(" LIMIT {}", most + 1)).unwrap_or_default();
        View {
            what: self.what,
            labels: self.labels.iter().map(|(name, _)| *name).collect(),
            columns,
            period_ms: self.period_ms,
            needs_stats: self.needs_stats,
            of: self.of,
            most_rows: self.most_rows,
            sql: format!("SELECT {}{from}{limit}", list.join(", ")),
        }
    }
}

/// Every view of this major version.
pub(super) fn views(major: i32) -> Vec<View> {
    let age = if major < 15 { COLLECTOR_AGE } else { "NULL" };
    let mut views = vec![
        wal::positions(),
        wal::redo(),
        wal::directory(),
        wal::archiver(age),
        work::databases(age),
        replication::standbys(),
        replication::slots(major),
        replication::receiver(major),
        replication::replay(major),
        replication::conflicts(major, age),
    ];
    if major < 17 {
        views.push(work::checkpoints_to_16(age));
    } else {
        views.extend([work::checkpoints_from_17(), work::background_writer_from_17(), work::backends_from_17()]);
    }
    if major >= 14 {
        views.push(wal::statistics(major, age));
    }
    if major >= 16 {
        views.push(work::io(major));
    }
    if major >= 18 {
        views.push(wal::io_from_18());
    }
    views
}

#[cfg(test)]
mod tests {
    use super::*;
    use backwater_model::catalogue as c;

    fn has(major: i32, def: &Def) -> bool {
        views(major).iter().flat_map(|view| &view.columns).any(|column| column.def == def)
    }

    #[test]
    fn the_edges_between_versions() {
        for major in 12..=18 {
            assert!(has(major, &c::PG_BACKEND_BUFFERS) && has(major, &c::PG_CHECKPOINT_SYNC_MS), "{major}");
            assert_eq!(has(major, &c::PG_SLOT_SAFE), major >= 13);
            assert_eq!(has(major, &c::PG_SLOT_LOST) && has(major, &c::PG_SLOT_UNRESERVED), major >= 13);
            assert_eq!(has(major, &c::PG_SLOT_INVALIDATION), major >= 17);
            assert_eq!(has(major, &c::PG_RECEIVER_WRITTEN), major >= 13);
            assert_eq!(has(major, &c::PG_WAL_RECORDS), major >= 14);
            assert_eq!(has(major, &c::PG_WAL_SYNC_MS), major >= 14);
            assert_eq!(has(major, &c::PG_IO_WRITES), major >= 16);
            let text: String = views(major).into_iter().map(|view| view.sql).collect();
            assert_eq!(text.contains("pg_stat_checkpointer"), major >= 17);
            assert_eq!(text.contains("op_bytes"), (16..18).contains(&major));
            assert_eq!(text.contains("pg_stat_get_snapshot_timestamp"), major < 15);
            assert_eq!(text.contains("object = 'wal'"), major >= 18);
            assert_eq!(text.contains("confl_active_logicalslot"), major >= 16);
        }
    }

    #[test]
    fn labels_are_those_of_the_catalogue_and_names_are_unique() {
        for major in 12..=18 {
            let mut names: Vec<_> = views(major).iter().map(|view| view.what).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), views(major).len());
            for view in views(major) {
                let labels: Vec<_> = ["target"].into_iter().chain(view.labels.iter().copied()).collect();
                assert!(view.columns.iter().all(|column| column.def.labels == labels), "{}", view.what);
            }
        }
    }
}
