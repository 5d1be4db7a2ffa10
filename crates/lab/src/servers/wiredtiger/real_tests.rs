//! The real driver on the real engine, where it is there already (BACKWATER_WT_DRIVER, or beside this program).
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use super::{EngineEvents, WiredTiger, WiredTigerSpec, check_runs, installed};
use backwater_undo::Journal;
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Default)]
struct Counted(AtomicUsize);

impl EngineEvents for Counted {
    fn event(&self, _: &Value) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn started(name: &str, dir: &Path, journal: &Journal, events: &Arc<Counted>) -> Option<WiredTiger> {
    let Some(program) = installed() else {
        eprintln!(
            "skipped: {name}: needs the driver of WiredTiger (see wt-driver/README.md), named in BACKWATER_WT_DRIVER"
        );
        return None;
    };
    check_runs(&program).unwrap();
    // The driver's user must be able to come in.
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (home, run_dir) = (dir.join("backwater-home"), dir.join("backwater-driver"));
    Some(WiredTiger::start(journal, &WiredTigerSpec { program, home, run_dir }, Arc::clone(events) as _).unwrap())
}

#[test]
fn it_loads_a_new_database_again_and_again_and_leaves_nothing() {
    let (state, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = Journal::begin(state.path(), "test").unwrap();
    let events = Arc::new(Counted::default());
    let name = "it_loads_a_new_database_again_and_again_and_leaves_nothing";
    let Some(mut driver) = started(name, dir.path(), &journal, &events) else { return };
    assert!(driver.engine.starts_with("WiredTiger") && driver.version_num >= 30_000);
    assert_eq!(driver.memory_page_max, "10m");
    // Its user can change neither its program nor its log: they are this process's own.
    let of_program = std::fs::metadata(dir.path().join("backwater-driver")).unwrap();
    assert_eq!((of_program.uid(), of_program.mode() & 0o022), (rustix::process::geteuid().as_raw(), 0));
    for _ in 0..2 {
        let opened = driver.renew(&journal, "cache_size=64MB", 300, false).unwrap();
        assert_eq!((&opened["next_id"], &opened["cache_bytes"]), (&json!(1), &json!(64 << 20)));
        let run = json!({"cmd": "run", "load": "write-heavy", "rate_per_s": 500, "seconds": 0.5});
        assert!(driver.ask(&run, None).unwrap()["completed"].as_u64() > Some(100));
    }
    assert!(events.0.load(Ordering::SeqCst) > 4);
    let refused = driver.renew(&journal, "cache_sise=64MB", 300, false).unwrap_err().to_string();
    assert!(refused.contains("cache_sise"), "{refused}");
    driver.stop(&journal).unwrap();
    journal.finish().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_wish_to_end_stops_the_load_and_an_end_is_told_with_its_reason() {
    let (state, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = Journal::begin(state.path(), "test").unwrap();
    let name = "a_wish_to_end_stops_the_load_and_an_end_is_told_with_its_reason";
    let Some(mut driver) = started(name, dir.path(), &journal, &Arc::default()) else { return };
    driver.renew(&journal, "cache_size=64MB", 300, false).unwrap();
    let run = json!({"cmd": "run", "load": "write-heavy", "rate_per_s": 100, "seconds": 3600});
    let told = driver.ask(&run, Some(&AtomicBool::new(true))).unwrap();
    assert_eq!(told["stopped"], true);
    driver.ask(&json!({"cmd": "quit"}), None).unwrap();
    let ended = driver.ask(&json!({"cmd": "version"}), None).unwrap_err().to_string();
    assert!(ended.contains("has ended"), "{ended}");
    driver.stop(&journal).unwrap();
}
