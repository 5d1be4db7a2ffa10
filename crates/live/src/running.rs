//! The command that runs for a finding, and how whoever cannot wait ends it.

use rustix::process::{Pid, Signal, kill_process_group};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whoever ends everything at once waits so long for a command that is being started.
const STARTS: Duration = Duration::from_secs(1);

/// The command that runs now, for whoever must end it at once. Cheap to clone: all clones are of one hook.
#[derive(Clone, Debug, Default)]
pub struct Running(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    runs: Runs,
    /// Nothing is started any more.
    over: bool,
}

#[derive(Debug, Default)]
enum Runs {
    #[default]
    Nothing,
    /// One that the system has not started yet.
    Starting,
    /// The leader of a group that has not been waited for, so that its number is nobody else's.
    Group(Pid),
}

impl State {
    fn kill(&self) {
        if let Runs::Group(group) = self.runs {
            // The command's whole group, or its own children would live on. It may have ended this moment.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Running {
    /// Ends the command that runs, with all that it started, and lets none be started any more. One that the system is about to
    /// start is waited for, a second at most; should it take longer, it is ended as soon as it is there.
    pub fn end(&self) {
        let mut state = self.state();
        state.over = true;
        let starting = |state: &mut State| matches!(state.runs, Runs::Starting);
        let waited = self.0.1.wait_timeout_while(state, STARTS, starting);
        waited.unwrap_or_else(PoisonError::into_inner).0.kill();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one, unless there is to be none any more.
    pub(crate) fn start(&self, spawn: impl FnOnce() -> std::io::Result<Child>) -> std::io::Result<Option<Child>> {
        {
            let mut state = self.state();
            if state.over {
                return Ok(None);
            }
            state.runs = Runs::Starting;
        }
        // Whoever ends it at once must not wait for however long this takes.
        let child = spawn();
        let mut state = self.state();
        state.runs = child.as_ref().map_or(Runs::Nothing, |child| Runs::Group(Pid::from_child(child)));
        if state.over {
            state.kill();
        }
        self.0.1.notify_all();
        child.map(Some)
    }

    /// How it ended, once it has.
    pub(crate) fn ended(&self, child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
        let mut state = self.state();
        let status = child.try_wait()?;
        if status.is_some() {
            state.runs = Runs::Nothing;
        }
        Ok(status)
    }

    /// Ends the one that runs, with all that it started.
    pub(crate) fn kill(&self) {
        self.state().kill();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;
    use std::time::Instant;

    fn sleeper() -> std::io::Result<Child> {
        Command::new("sleep").arg("1000").process_group(0).spawn()
    }

    /// Waits until nothing is started any more.
    fn is_over(running: &Running) {
        let begun = Instant::now();
        while !running.0.0.try_lock().is_ok_and(|state| state.over) {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody can end it");
            std::thread::yield_now();
        }
    }

    /// The signal that ended it, once one has.
    fn signal(mut child: Child) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.signal();
            }
            if begun.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                child.wait().unwrap();
                return None;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_command_that_is_being_started_is_ended_too() {
        let running = Running::default();
        std::thread::scope(|scope| {
            let spawn = || {
                scope.spawn(|| running.end());
                is_over(&running);
                sleeper()
            };
            let child = running.start(spawn).unwrap().unwrap();
            assert_eq!(signal(child), Some(9));
        });
        assert!(running.start(sleeper).unwrap().is_none(), "none is started after it");
    }

    #[test]
    fn who_ends_it_does_not_wait_for_a_command_that_cannot_be_started() {
        let running = Running::default();
        let spawn = || {
            running.end();
            sleeper()
        };
        let child = running.start(spawn).unwrap().unwrap();
        assert_eq!(signal(child), Some(9), "ended once it was there");
        let none = Running::default().start(|| Err(std::io::ErrorKind::NotFound.into()));
        assert_eq!(none.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}
