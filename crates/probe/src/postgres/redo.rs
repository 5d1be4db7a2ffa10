//! The redo position of the last checkpoint, asked for only once a checkpoint has ended.
//!
//! `pg_control_checkpoint()` waits for ControlFileLock, which whoever writes the control file holds until the file is synced
//! (UpdateControlFile in xlog.c): seconds on a capped device. Neither statement_timeout nor a cancel ends that wait, so the
//! probe would have to give up its connection, and all other readings with it. A primary in operation writes the file
//! at the end of a checkpoint alone, and adds the checkpoint's times to the counters only after that (LogCheckpointEnd): once
//! those have changed, nobody holds the lock, and until they change again the position stands.

use super::counters::Answer;
use super::views::View;
use backwater_model::catalogue::{self as c, Def};

/// What changes with every checkpoint: a small one takes no whole millisecond, so that only its count shows.
const COUNTERS: [&Def; 4] =
    [&c::PG_CHECKPOINTS_TIMED, &c::PG_CHECKPOINTS_REQUESTED, &c::PG_CHECKPOINT_WRITE_MS, &c::PG_CHECKPOINT_SYNC_MS];

/// What is known of it on one connection, in one life of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Redo {
    position: Option<f64>,
    /// As of the last look at them.
    counters: Option<[Option<f64>; 4]>,
    /// Whether the position was read since they changed.
    current: bool,
}

impl Redo {
    /// Whether it is to be asked for.
    pub(super) fn is_wanted(&self) -> bool {
        !self.current
    }

    /// Takes what any view answered, where it tells of checkpoints or of the position itself. Returns the position that was
    /// known and still stands.
    pub(super) fn learn(&mut self, view: &View, answer: &Answer) -> Option<f64> {
        if let Some(position) = answer.value(view, &c::PG_CHECKPOINT_REDO) {
            (self.position, self.current) = (Some(position), true);
            return None;
        }
        if view.columns.iter().all(|column| column.def != COUNTERS[0]) {
            return None;
        }
        self.stands(COUNTERS.map(|def| answer.value(view, def)))
    }

    /// The same for the counters alone.
    fn stands(&mut self, counters: [Option<f64>; 4]) -> Option<f64> {
        let changed = self.counters.replace(counters) != Some(counters);
        self.current &= !changed;
        self.position.filter(|_| self.current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(timed: f64, sync_ms: f64) -> [Option<f64>; 4] {
        [Some(timed), Some(0.0), Some(5.0), Some(sync_ms)]
    }

    #[test]
    fn it_stands_until_a_checkpoint_has_ended() {
        let mut redo = Redo::default();
        assert!(redo.is_wanted());
        assert_eq!(redo.stands(counters(1.0, 0.0)), None);
        (redo.position, redo.current) = (Some(100.0), true);
        assert_eq!(redo.stands(counters(1.0, 0.0)), Some(100.0));
        assert!(!redo.is_wanted());
        // It begins, and ends.
        assert_eq!(redo.stands(counters(2.0, 0.0)), None);
        assert!(redo.is_wanted());
        redo.current = true;
        assert_eq!(redo.stands(counters(2.0, 3.0)), None);
        assert!(redo.is_wanted());
    }

    #[test]
    fn nothing_stands_that_was_never_read() {
        let mut redo = Redo::default();
        redo.stands(counters(1.0, 0.0));
        assert_eq!(redo.stands(counters(1.0, 0.0)), None);
        assert!(redo.is_wanted());
    }
}
