//! When checkpoints synced: from the server's log, else from its counters.
//!
//! The line is that of PostgreSQL's `LogCheckpointEnd` (src/backend/access/transam/xlog.c): `checkpoint complete: … write=1.2 s,
//! sync=0.4 s, total=1.7 s; sync files=12, longest=0.2 s, average=0.1 s; distance=… kB, …`.

use crate::scene::Scene;
use backwater_model::{Event, EventKind, Moment, Span, catalogue as cat};

/// One checkpoint's sync phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SyncPhase {
    pub(super) from: Moment,
    pub(super) to: Moment,
    /// Time spent in syncs, in seconds.
    pub(super) sync_s: f64,
    /// The longest single sync, where the log tells.
    pub(super) longest_s: Option<f64>,
}

/// The number after `key` in a log line: `sync=` in `… sync=0.4 s, …`.
fn number(line: &str, key: &str) -> Option<f64> {
    let rest = &line[line.find(key)? + key.len()..];
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    rest[..end].parse().ok().filter(|number: &f64| number.is_finite())
}

/// Sync phases of a window, of one server where there are several: the log's where it was read, else the counters'.
pub(super) fn phases(scene: &Scene<'_>, only: Option<&str>) -> Vec<SyncPhase> {
    let logged: Vec<SyncPhase> = lines(scene, only).filter_map(|event| phase(event.at, &event.message)).collect();
    if logged.is_empty() { counted(scene, only) } else { logged }
}

/// Log lines; a server's own name it as their source.
fn lines<'a>(scene: &Scene<'a>, only: Option<&str>) -> impl Iterator<Item = &'a Event> {
    scene.window.events_of(EventKind::Log).filter(move |event| only.is_none_or(|name| event.source == name))
}

fn phase(at: Moment, line: &str) -> Option<SyncPhase> {
    if !line.contains("checkpoint complete:") && !line.contains("restartpoint complete:") {
        return None;
    }
    // ", sync=" and not "sync files=".
    let sync_s = number(line, ", sync=")?;
    Some(SyncPhase { from: at - Span::from_seconds(sync_s), to: at, sync_s, longest_s: number(line, "longest=") })
}

/// The counter of sync time jumps when a checkpoint ends; the syncs ran just before.
fn counted(scene: &Scene<'_>, only: Option<&str>) -> Vec<SyncPhase> {
    let mut phases = Vec::new();
    let own: Vec<(&'static str, &str)> = only.map(|name| ("target", name)).into_iter().collect();
    for track in scene.window.tracks(cat::PG_CHECKPOINT_SYNC_MS.name, &own) {
        for pair in track.points.windows(2) {
            let (rise, late) = (pair[1].value - pair[0].value, pair[1].at.seconds_since(pair[0].at));
            if pair[0].epoch == pair[1].epoch && rise > 0.0 && late <= 15.0 {
                let sync_s = rise / 1e3;
                let from = pair[0].at - Span::from_seconds(sync_s);
                phases.push(SyncPhase { from, to: pair[1].at, sync_s, longest_s: None });
            }
        }
    }
    phases
}

/// How often the server itself warned that checkpoints come too often.
pub(super) fn warnings(scene: &Scene<'_>, only: Option<&str>) -> usize {
    lines(scene, only).filter(|event| event.message.contains("checkpoints are occurring too frequently")).count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_of_every_release_are_read() {
        let old = "checkpoint complete: wrote 44 buffers (0.3%); 0 WAL file(s) added, 0 removed, 0 recycled; write=4.332 s, \
                   sync=2.513 s, total=6.862 s; sync files=13, longest=1.004 s, average=0.001 s; distance=260 kB, estimate=260 kB";
        let phase = phase(Moment::from_seconds(100.0), old).unwrap();
        assert_eq!((phase.sync_s, phase.longest_s), (2.513, Some(1.004)));
        assert_eq!(phase.from, Moment::from_seconds(97.487));
        let new = "LOG:  checkpoint complete: wrote 44 buffers (0.3%), wrote 3 SLRU buffers; 0 WAL file(s) added, 0 removed, \
                   0 recycled; write=4.3 s, sync=0.1 s, total=6.8 s; sync files=13, longest=0.05 s, average=0.001 s; \
                   distance=260 kB, estimate=260 kB; lsn=0/16B3748, redo lsn=0/16B3710";
        assert_eq!(super::phase(Moment(0), new).unwrap().sync_s, 0.1);
        for broken in
            ["", "checkpoint complete:", "checkpoint complete: , sync=", "checkpoint complete: , sync=x s", "sync=1 s"]
        {
            assert_eq!(super::phase(Moment(0), broken), None, "{broken}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic(line in ".*", at in proptest::num::i64::ANY) {
            let _ = phase(Moment(at), &line);
            let _ = phase(Moment(at), &format!("checkpoint complete: {line}, sync={line}"));
        }
    }
}
