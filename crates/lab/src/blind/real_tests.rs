//! A short blind test on real servers.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use super::*;
use crate::progress::Silent;
use crate::scenario::ServerKind;
use backwater_diagnose::{Options, diagnose};

/// In this process, by the same door: a directory and two moments.
struct Here;

impl Diagnoser for Here {
    fn diagnose(&self, recording: &Path, [from, to]: [i64; 2]) -> Result<Vec<Finding>, String> {
        let recording = Recording::open(recording).map_err(|error| error.to_string())?;
        let at = |unix_us| recording.meta().moment_of_unix_us(unix_us);
        let window = recording.window(at(from), at(to)).map_err(|error| error.to_string())?;
        // What the diagnoser is shown names nothing that was done.
        assert_eq!(window.events_of(backwater_model::EventKind::Mark).count(), 0);
        for event in window.events() {
            let text = format!("{event:?}");
            let told = Deed::deck(ServerKind::Postgres, false).into_iter().find(|deed| text.contains(deed.name()));
            assert_eq!(told, None, "{text}");
        }
        Ok(diagnose(&window, &Options::default()))
    }
}

#[test]
fn a_run_is_recorded_without_its_name_and_judged() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: a_run_is_recorded_without_its_name_and_judged: needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = BlindOptions {
        out: dir.path().join("blind"),
        server: ServerKind::Postgres,
        injected: 1,
        healthy: 0,
        seed: Some(1),
        seconds: 8.0,
        resume: false,
        within: None,
        keep_all: true,
        version: None,
        server_bin: None,
        state_dir: dir.path().join("state"),
        cancel: Arc::default(),
    };
    let summary = run(&options, &Here, &Silent).unwrap();
    assert_eq!(summary.done, 1);
    let state = State::resume(&options.out).unwrap();
    assert!(state.left().is_empty());
    assert!(options.out.join("summary.md").exists() && !options.out.join("aside").exists());
    assert!(state.recording(1).join("meta.json").exists(), "{:?}", state.done);
    // What was done to the host is undone.
    let left: Vec<_> = std::fs::read_dir(&options.state_dir).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
