//! What a blind test keeps in its directory, so that it can be run in pieces: `plan.json`, which is written once, and
//! `runs.jsonl`, a line for each run that is done, synced before the next one begins.

use super::draw::{Draw, draws};
use super::tally::Judged;
use crate::LabError;
use crate::scenario::ServerKind;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What was drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// Whose causes these are.
    #[serde(default)]
    pub(super) server: ServerKind,
    pub(super) seconds: f64,
    pub(super) draws: Vec<Draw>,
}

/// The directory.
#[derive(Debug)]
pub(super) struct State {
    dir: PathBuf,
    pub(super) plan: Plan,
    pub(super) done: Vec<Judged>,
    log: File,
}

const PLAN: &str = "plan.json";
const RUNS: &str = "runs.jsonl";

impl State {
    /// A new test in a directory that holds none.
    pub(super) fn begin(
        dir: &Path,
        (seed, server, seconds): (u64, ServerKind, f64),
        (injected, healthy): (usize, usize),
    ) -> Result<State, LabError> {
        let path = dir.join(PLAN);
        if path.exists() {
            let next = "go on with it by --resume, or give --out another directory";
            return Err(LabError::Refused(format!("{} holds a blind test already: {next}", dir.display())));
        }
        std::fs::create_dir_all(dir).map_err(LabError::file("create", dir))?;
        let plan = Plan { seed, server, seconds, draws: draws(seed, server, injected, healthy) };
        let text = serde_json::to_string_pretty(&plan).unwrap_or_default();
        write_whole(&path, &text)?;
        Self::with(dir, plan, Vec::new())
    }

    /// The test that this directory holds, with what of it is done.
    pub(super) fn resume(dir: &Path) -> Result<State, LabError> {
        let path = dir.join(PLAN);
        let text = std::fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        let plan: Plan = serde_json::from_str(&text)
            .map_err(|error| LabError::Refused(format!("{} is no plan of a blind test: {error}", path.display())))?;
        let path = dir.join(RUNS);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let done = finished(&text, plan.draws.len());
        Self::with(dir, plan, done)
    }

    fn with(dir: &Path, plan: Plan, done: Vec<Judged>) -> Result<State, LabError> {
        let path = dir.join(RUNS);
        let log = OpenOptions::new().create(true).append(true).open(&path).map_err(LabError::file("write", &path))?;
        // A line that was cut off must not run into the next one.
        let state = State { dir: dir.to_path_buf(), plan, done, log };
        Ok(state)
    }

    /// Runs that are still to be made, in order.
    pub(super) fn left(&self) -> Vec<Draw> {
        let done = |draw: &&Draw| !self.done.iter().any(|run| run.number == draw.number);
        self.plan.draws.iter().filter(done).copied().collect()
    }

    /// Keeps a run that is done.
    pub(super) fn keep(&mut self, run: Judged) -> Result<(), LabError> {
        let line = serde_json::to_string(&run).unwrap_or_default();
        // A line that was cut off by a crash must not run into this one: an empty line is no run.
        let written = writeln!(self.log, "\n{line}").and_then(|()| self.log.sync_data());
        written.map_err(LabError::file("write", self.dir.join(RUNS)))?;
        self.done.push(run);
        self.done.sort_by_key(|run| run.number);
        Ok(())
    }

    /// Where the recording of a run goes. Its name says nothing but the number.
    pub(super) fn recording(&self, number: usize) -> PathBuf {
        self.dir.join(Self::recording_name(number))
    }

    /// The same, seen from the directory.
    pub(super) fn recording_name(number: usize) -> String {
        format!("runs/{number:03}")
    }
}

/// Every whole line, each run once; a line that was cut off is a run that was not done.
fn finished(text: &str, planned: usize) -> Vec<Judged> {
    let mut done: Vec<Judged> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    done.retain(|run| (1..=planned).contains(&run.number));
    // The last word on a run counts.
    done.reverse();
    done.sort_by_key(|run| run.number);
    done.dedup_by_key(|run| run.number);
    done
}

/// All of it or nothing, whatever happens meanwhile.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<(), LabError> {
    let beside = path.with_extension("new");
    let written =
        File::create(&beside).and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(LabError::file("write", &beside))?;
    std::fs::rename(&beside, path).map_err(LabError::file("write", path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn judged(state: &State, number: usize) -> Judged {
        Judged {
            number,
            deed: state.plan.draws[number - 1].deed,
            set: Vec::new(),
            reproduced: true,
            because: "as it should".to_owned(),
            found: vec![("io-capped".to_owned(), "cgroup-cap".to_owned())],
            noted: Vec::new(),
            recording: None,
            stretch_unix_us: Some([1, 2]),
            took_s: 30.0,
        }
    }

    #[test]
    fn a_test_goes_on_where_it_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::begin(dir.path(), (5, ServerKind::Postgres, 24.0), (3, 2)).unwrap();
        let (one, three) = (judged(&state, 1), judged(&state, 3));
        state.keep(one).unwrap();
        state.keep(three).unwrap();
        let plan = state.plan.clone();
        drop(state);
        // Killed in the middle of a line.
        let log = dir.path().join(RUNS);
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::write(&log, format!("{text}{{\"number\":2,\"deed\":")).unwrap();
        let mut again = State::resume(dir.path()).unwrap();
        assert_eq!(again.plan, plan);
        assert_eq!(again.left().iter().map(|draw| draw.number).collect::<Vec<_>>(), [2, 4, 5]);
        let two = judged(&again, 2);
        again.keep(two.clone()).unwrap();
        drop(again);
        let last = State::resume(dir.path()).unwrap();
        assert_eq!(last.left().len(), 2);
        assert_eq!(last.done[1], two);
    }

    #[test]
    fn a_test_is_not_begun_over_another_one() {
        let dir = tempfile::tempdir().unwrap();
        State::begin(dir.path(), (5, ServerKind::Postgres, 24.0), (3, 2)).unwrap();
        let error = State::begin(dir.path(), (6, ServerKind::Postgres, 24.0), (3, 2)).unwrap_err().to_string();
        assert!(error.contains("--resume"), "{error}");
    }

    #[test]
    fn there_must_be_something_to_resume() {
        let dir = tempfile::tempdir().unwrap();
        assert!(State::resume(dir.path()).is_err());
        std::fs::write(dir.path().join(PLAN), "{}").unwrap();
        assert!(State::resume(dir.path()).unwrap_err().to_string().contains("no plan"));
    }
}
