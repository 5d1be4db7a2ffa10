//! `backwater serve` as a user meets it, the page in a real browser.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "browser/mod.rs"]
mod browser;
#[path = "../../live/tests/common/planted.rs"]
mod planted;

use backwater_model::{ArmOutcome, FlowPool, FlowState, Meta, Moment, Outcome, Registry, Target};
use backwater_record::{Options, Writer, write_flow};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HOSTILE: &str = "</script><script>alert('ran')</script><img src=x onerror=alert('ran')>'\"&amp;\u{1b}[2J";

/// A recording that is written while `going` holds, a second each second; at least ninety seconds of it.
fn recording(dir: &Path, going: &AtomicBool) {
    recording_with(dir, going, |_| None);
}

/// The same, with something done after each second, after which something else may be known of what is watched.
fn recording_with(dir: &Path, going: &AtomicBool, mut each: impl FnMut(i64) -> Option<Meta>) {
    let registry = Arc::new(Registry::new());
    let options = Options { free_floor_bytes: 0, ..Options::default() };
    let mut writer = Writer::create(dir, planted::meta(HOSTILE), Arc::clone(&registry), options).unwrap();
    let mut at = 0;
    while at < 90 || going.load(Ordering::SeqCst) {
        writer.write(&planted::second(at, &registry, HOSTILE)).unwrap();
        writer.tick(Moment(at * 1_000_000)).unwrap();
        each(at).into_iter().for_each(|meta| writer.update_meta(meta).unwrap());
        if at >= 90 {
            std::thread::park_timeout(Duration::from_secs(1));
        }
        at += 1;
    }
    writer.close().unwrap();
}

#[test]
fn what_would_let_others_look_is_refused() {
    let serve = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_backwater")).arg("serve").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, why) = serve(&["--bind", "0.0.0.0"]);
    assert!(code == Some(2) && why.contains("--tls-cert"), "{why}");
    let (code, why) = serve(&["--bind", "0.0.0.0", "--plain", "--no-token"]);
    assert!(code == Some(2) && why.contains("loopback"), "{why}");
    let dir = tempfile::tempdir().unwrap();
    let (token, rec) = (dir.path().join("token"), dir.path().join("rec"));
    std::fs::write(&token, "short\n").unwrap();
    recording(&rec, &AtomicBool::new(false));
    let (code, why) = serve(&[rec.to_str().unwrap(), "--port", "0", "--token-file", token.to_str().unwrap()]);
    assert!(code == Some(2) && why.contains("token needs"), "{why}");
}

/// What comes to a recording while it is looked at: once the file `asked` is there, who is held, newer each second, and what a run
/// of the lab came to, that the server was upgraded, and a second one; nobody is held any more when it says so.
fn latecomers(dir: PathBuf, asked: PathBuf) -> impl FnMut(i64) -> Option<Meta> {
    move |at| {
        let word = std::fs::read_to_string(&asked).ok()?;
        if word == "gone" {
            drop(std::fs::remove_file(dir.join("flow.json")));
        } else {
            let pool = FlowPool { name: HOSTILE.to_owned(), priority: "low".to_owned(), ..FlowPool::default() };
            let (rate_bps, rate_by) = (Some(5.0 * planted::MIB), HOSTILE.to_owned());
            let at = Moment(at * 1_000_000);
            let state = FlowState { at, rate_bps, rate_by, pools: vec![pool], held_in_all: 3, ..FlowState::default() };
            write_flow(&dir, &state).unwrap();
            let metrics = [("tps_mean".to_owned(), 1_234.0)].into();
            let arm = ArmOutcome { name: "late".to_owned(), metrics, repeats: 1, ..ArmOutcome::default() };
            let outcome = Outcome { scenario: format!("late {HOSTILE}"), arms: vec![arm], ..Outcome::default() };
            let half = dir.join("outcome.json.tmp");
            std::fs::write(&half, serde_json::to_vec(&outcome).unwrap()).unwrap();
            std::fs::rename(&half, dir.join("outcome.json")).unwrap();
        }
        let mut meta = planted::meta(HOSTILE);
        meta.targets[0].version_num = Some(190_000);
        meta.targets.push(Target {
            name: format!("second {HOSTILE}"),
            kind: "mongodb".to_owned(),
            ..Target::default()
        });
        Some(meta)
    }
}

/// A server of this recording and the address that it printed.
fn served(dir: &Path) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    command.args(["serve", dir.to_str().unwrap(), "--port", "0"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

/// Runs web/test/live.test.mjs in an installed Chromium.
#[test]
fn the_live_page_works_in_a_browser() {
    const NAME: &str = "the_live_page_works_in_a_browser";
    let Some(web) = browser::web(NAME) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (rec, going) = (dir.path().join("rec"), Arc::new(AtomicBool::new(true)));
    let (path, still) = (rec.clone(), Arc::clone(&going));
    let asked = dir.path().join("asked");
    let later = latecomers(rec.clone(), asked.clone());
    let writer = std::thread::spawn(move || recording_with(&path, &still, later));
    while !rec.join("series.jsonl").exists() {
        std::thread::yield_now();
    }
    let (mut server, address) = served(&rec);
    let mut command = Command::new("node");
    command.args(["--test", "test/live.test.mjs"]).current_dir(&web);
    command.env("BACKWATER_LIVE", &address).env("BACKWATER_LATER", &asked);
    let output = command.output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    going.store(false, Ordering::SeqCst);
    writer.thread().unpark();
    writer.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
