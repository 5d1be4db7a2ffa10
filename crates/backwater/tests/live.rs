//! `backwater serve` and `backwater watch` as a user meets them, the page in a real browser.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "browser/mod.rs"]
mod browser;
#[path = "../../live/tests/common/planted.rs"]
mod planted;

use backwater_model::{Moment, Registry};
use backwater_record::{Options, Writer};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HOSTILE: &str = "</script><script>alert('ran')</script><img src=x onerror=alert('ran')>'\"&amp;\u{1b}[2J";

/// A recording that is written while `going` holds, a second each second; at least ninety seconds of it.
fn recording(dir: &Path, going: &AtomicBool) {
    let registry = Arc::new(Registry::new());
    let options = Options { free_floor_bytes: 0, ..Options::default() };
    let mut writer = Writer::create(dir, planted::meta(HOSTILE), Arc::clone(&registry), options).unwrap();
    let mut at = 0;
    while at < 90 || going.load(Ordering::SeqCst) {
        writer.write(&planted::second(at, &registry, HOSTILE)).unwrap();
        writer.tick(Moment(at * 1_000_000)).unwrap();
        if at >= 90 {
            std::thread::park_timeout(Duration::from_secs(1));
        }
        at += 1;
    }
    writer.close().unwrap();
}

fn watch_once(dir: &Path, width: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    command.args(["watch", dir.to_str().unwrap(), "--once"]).env("COLUMNS", width).env("LC_ALL", "C.UTF-8");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_recording_on_a_terminal_as_plain_text() {
    let dir = tempfile::tempdir().unwrap();
    recording(&dir.path().join("rec"), &AtomicBool::new(false));
    let text = watch_once(&dir.path().join("rec"), "80");
    assert!(text.contains("host.dirty@7:0") && text.contains("206 MiB"), "{text}");
    assert!(text.contains("IO: DataFileWrite") || text.contains("DataFileWrite"), "{text}");
    assert!(!text.contains('\u{1b}'), "no control sequence, of somebody else or our own: {text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
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
    let writer = std::thread::spawn(move || recording(&path, &still));
    while !rec.join("series.jsonl").exists() {
        std::thread::yield_now();
    }
    let (mut server, address) = served(&rec);
    let mut command = Command::new("node");
    command.args(["--test", "test/live.test.mjs"]).current_dir(&web).env("BACKWATER_LIVE", &address);
    let output = command.output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    going.store(false, Ordering::SeqCst);
    writer.thread().unpark();
    writer.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
