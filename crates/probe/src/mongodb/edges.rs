//! What the chunks at both ends of a flight recorder tell besides their readings: which disks and which engine, and what is left
//! out of them.

use super::facts::Unseen;
use super::plan::without_role;
use super::reader::below_role;
use ftdc::{Batch, Selection, Source, Timeline};
use std::sync::Arc;

/// Where the recorder tells the state of a member, the size of its oplog, and the times between which that lies.
const STATE: &str = "replSetGetStatus.myState";
const OPLOG: &str = "local.oplog.rs.stats.";
const OPLOG_ENDS: &str = "serverStatus.oplog.";
const PRIMARY: i64 = 1;

/// What the first chunk that can be read tells: names of the disks, and of the storage engine.
#[derive(Default)]
pub(super) struct First {
    pub(super) disks: Vec<String>,
    pub(super) engine: Option<String>,
}

impl First {
    /// Inflates one chunk.
    pub(super) fn of(source: &Source, timeline: &Arc<Timeline>) -> First {
        let selection = Selection::of(["*systemMetrics.disks.*.writes"]);
        let mut batches = source.select_onwards(&selection, i64::MIN..i64::MAX, timeline);
        let Some(batch) = batches.find_map(Result::ok) else { return First::default() };
        let name = |path: &str| {
            let path = without_role(path);
            Some(path.strip_prefix("systemMetrics.disks.")?.strip_suffix(".writes")?.to_owned())
        };
        let engine = below_role(batch.reference(), &["serverStatus", "storageEngine", "name"]);
        First {
            disks: batch.columns().filter_map(|(metric, _)| name(&metric.path)).collect(),
            engine: engine.and_then(|engine| Some(engine.text()?.into_owned())),
        }
    }
}

/// The ends of a primary's oplog, where its size is told and they are not: the recorder asks serverStatus for them only since 4.4.15.
/// A member that is no primary when the recording begins may be one when it ends.
pub(super) fn oplog_left_out(source: &Source, timeline: &Arc<Timeline>) -> Option<Unseen> {
    let selection = Selection::of([format!("*{STATE}"), format!("*{OPLOG}*"), format!("*{OPLOG_ENDS}*")]);
    let before_last_ms = timeline.times_ms().iter().rev().nth(1).copied().unwrap_or(i64::MIN);
    let from = |from_ms: i64| source.select_onwards(&selection, from_ms..i64::MAX, timeline).filter_map(Result::ok);
    let left_out = from(i64::MIN).next().into_iter().chain(from(before_last_ms).last()).any(|batch| leaves_out(&batch));
    left_out.then(|| Unseen {
        what: "the ends of the oplog",
        why: "the recorder of this release does not tell them".to_owned(),
        remedy: None,
    })
}

fn leaves_out(batch: &Batch) -> bool {
    let below = |name: &str| batch.columns().find(|(metric, _)| without_role(&metric.path).starts_with(name));
    let primary = below(STATE).is_some_and(|(_, states)| states.contains(&PRIMARY));
    primary && below(OPLOG).is_some() && below(OPLOG_ENDS).is_none()
}
