//! Operations whose commit has returned and that wait for the journal's sync: one thread syncs again and again, each
//! time for all that had committed before, as mongod does for `j: true`.

use crate::engine::Session;
use crate::load::Running;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Operations that may wait at once; who comes then waits for room.
const MOST: usize = 1 << 20;
/// How often the journal is synced where nobody waits for it (mongod's commitIntervalMs).
const INTERVAL: Duration = Duration::from_millis(100);

/// Intended starts of operations that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    starts: Vec<u64>,
    closed: bool,
}

impl Waiting {
    /// An operation waits.
    pub(crate) fn add(&self, due_ns: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.starts.len() >= MOST && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.starts.push(due_ns);
        if state.starts.len() == 1 {
            self.changed.notify_all();
        }
    }

    /// Nobody will be added any more.
    pub(crate) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }

    /// All that wait, put into `into`; none once it is closed and nobody waits.
    fn take(&self, into: &mut Vec<u64>) -> Option<()> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut State| state.starts.is_empty() && !state.closed;
        let (mut state, _) =
            self.changed.wait_timeout_while(state, INTERVAL, idle).unwrap_or_else(PoisonError::into_inner);
        if state.closed && state.starts.is_empty() {
            return None;
        }
        std::mem::swap(&mut state.starts, into);
        self.changed.notify_all();
        Some(())
    }
}

/// Syncs until nobody is added any more and nobody waits.
pub(crate) fn sync(run: &Running<'_>, session: &Session<'_>) {
    let mut starts = Vec::new();
    while run.waiting.take(&mut starts).is_some() {
        if let Err(error) = session.sync_journal() {
            starts.iter().for_each(|_| run.tally.fail(&error.to_string()));
            run.fault(error.to_string());
        } else {
            let now_ns = run.now_ns();
            starts.iter().for_each(|due_ns| run.tally.finish(*due_ns, now_ns));
        }
        starts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_are_taken_once_and_the_last_before_the_end() {
        let (waiting, mut starts) = (Waiting::default(), Vec::new());
        waiting.add(1);
        waiting.add(2);
        assert_eq!((waiting.take(&mut starts), starts.as_slice()), (Some(()), &[1, 2][..]));
        waiting.add(3);
        waiting.close();
        starts.clear();
        assert_eq!((waiting.take(&mut starts), starts.as_slice()), (Some(()), &[3][..]));
        starts.clear();
        assert_eq!(waiting.take(&mut starts), None);
    }
}
