//! A lab run that is killed or interrupted leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What one run leaves is told from what another still has by there being one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: {test}: needs root");
    }
    root
}

fn command(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    command.env("BACKWATER_STATE_DIR", state).env("RUST_BACKTRACE", "0");
    command
}

fn start(state: &Path, scenario: &str, out: &Path, more: &[&str]) -> Child {
    let mut command = command(state);
    command.args(["lab", "run", scenario, "--quick", "--out"]).arg(out).args(more);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What a run said that has ended.
fn last_words(run: &mut Child) -> String {
    run.stderr.take().and_then(|said| std::io::read_to_string(said).ok()).unwrap_or_default()
}

/// Everything that the run of this process makes outside its state directory is named so.
fn ours(run: u32) -> String {
    format!("/backwater-{run}-")
}

/// What a run may leave on a host: loop devices, mounts, network namespaces, cgroup rules, processes of its own. A cable lives
/// in its namespaces alone and goes with them. Whatever else uses this host meanwhile is not looked at.
fn left_on_host(run: u32, state: &Path) -> Vec<String> {
    let ours = ours(run);
    let mut left = Vec::new();
    let mut look = |what: &str, text: String| {
        left.extend(text.lines().filter(|line| line.contains(&ours)).map(|line| format!("{what}: {line}")));
    };
    look("mount", std::fs::read_to_string("/proc/self/mountinfo").unwrap());
    look("namespace", namespaces().join("\n"));
    look("control group", control_groups().join("\n"));
    let loops = Command::new("losetup").arg("-a").output().unwrap();
    look("loop device", String::from_utf8_lossy(&loops.stdout).into_owned());
    look("process", processes());
    if let Ok(entries) = std::fs::read_dir(state) {
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        left.extend(
            names.filter(|name| name.starts_with("run-") || name.starts_with("journal-")).map(|n| format!("file: {n}")),
        );
    }
    left.extend(rules(run));
    left
}

fn namespaces() -> Vec<String> {
    let all = std::fs::read_dir("/run/netns").map(|all| all.map(|one| one.unwrap().path().display().to_string()));
    all.map(Iterator::collect).unwrap_or_default()
}

/// Ids and arguments of everybody's processes, a line each.
fn processes() -> String {
    let processes = Command::new("ps").args(["-eo", "pid,args"]).output();
    processes.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Groups below the root, where there is cgroup v2 alone.
fn control_groups() -> Vec<String> {
    let all = std::fs::read_dir("/sys/fs/cgroup").map(|all| all.flatten().map(|one| one.path().display().to_string()));
    all.map(Iterator::collect).unwrap_or_default()
}

/// The file that a loop device holds; none where it holds none.
fn backing_file(dev: &str) -> Option<String> {
    std::fs::read_to_string(format!("/sys/dev/block/{dev}/loop/backing_file")).ok()
}

/// Loop devices whose dirty pages are held to a limit, by `MAJ:MIN`. The limit outlives the device's file and would meet
/// whoever has its number next.
fn limited() -> Vec<String> {
    let names = std::fs::read_dir("/sys/class/bdi").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let strict = |dev: &String| {
        std::fs::read_to_string(format!("/sys/class/bdi/{dev}/strict_limit")).is_ok_and(|text| text.trim() == "1")
    };
    names.filter(|dev| dev.starts_with("7:")).filter(strict).collect()
}

/// Those of them that hold a file of this run.
fn limited_by(run: u32) -> Vec<String> {
    limited().into_iter().filter(|dev| backing_file(dev).is_some_and(|file| file.contains(&ours(run)))).collect()
}

/// Rules of the root group about devices of this run, or about devices that are no more.
fn rules(run: u32) -> Vec<String> {
    let mut list = Vec::new();
    for file in ["write_iops_device", "read_iops_device", "write_bps_device", "read_bps_device"] {
        let path = format!("/sys/fs/cgroup/blkio/blkio.throttle.{file}");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let of_another = |line: &&str| {
            let dev = line.split_whitespace().next().unwrap_or_default();
            backing_file(dev).is_some_and(|file| !file.contains(&ours(run)))
        };
        list.extend(text.lines().filter(|line| !of_another(line)).map(|line| format!("{file}: {line}")));
    }
    list
}

fn clean(state: &Path) {
    let output = command(state).args(["lab", "clean"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Kills a run of the scenario after each of so many milliseconds, and looks at what is left after `lab clean`.
fn killed_at(scenario: &str, points: &[u64]) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for point in points {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let mut run = start(&state, scenario, &dir.path().join("out"), &[]);
        // The moment itself is what is tested, so this sleeps and waits for no condition.
        std::thread::sleep(Duration::from_millis(*point));
        // One that could not even begin leaves nothing, and proves nothing.
        if let Some(status) = run.try_wait().unwrap() {
            assert!(status.success(), "{scenario} failed within {point} ms: {}", last_words(&mut run));
        }
        run.kill().unwrap();
        run.wait().unwrap();
        clean(&state);
        assert_eq!(left_on_host(run.id(), &state), Vec::<String>::new(), "{scenario} killed after {point} ms");
    }
}

/// Kills a run of one arm at the very moment at which something of it is there, and looks at what is left.
fn killed_when(scenario: &str, arm: &str, what: &str, is_there: &dyn Fn(u32) -> bool) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut run = start(&state, scenario, &dir.path().join("out"), &["--arm", arm]);
    let began = Instant::now();
    while !is_there(run.id()) {
        let ended = run.try_wait().unwrap();
        assert!(ended.is_none(), "the run of {arm} ended before there was {what}: {}", last_words(&mut run));
        assert!(began.elapsed() < Duration::from_secs(180), "there never was {what} in {arm}");
        std::thread::sleep(Duration::from_millis(1));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let held = limited_by(run.id());
    assert!(!left_on_host(run.id(), &state).is_empty(), "a killed run of {arm} left nothing, so nothing was tested");
    clean(&state);
    assert_eq!(left_on_host(run.id(), &state), Vec::<String>::new(), "{arm} killed with {what}");
    // What has another's file by now is that one's.
    let still = limited().into_iter().filter(|dev| held.contains(dev) && backing_file(dev).is_none());
    assert_eq!(still.collect::<Vec<_>>(), Vec::<String>::new(), "devices still limited: {arm} killed with {what}");
}

/// How a namespace's end of the cable queues; empty while there is none.
fn queueing(namespace: &str) -> String {
    let name = namespace.rsplit('/').next().unwrap_or_default();
    let shown = Command::new("ip").args(["netns", "exec", name, "tc", "qdisc", "show", "dev", "link0"]).output();
    shown.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

fn nightly() -> bool {
    std::env::var_os("BACKWATER_NIGHTLY").is_some()
}

#[test]
fn a_killed_run_is_put_right_by_clean() {
    if !is_root("a_killed_run_is_put_right_by_clean") {
        return;
    }
    let points: &[u64] = if nightly() {
        &[50, 150, 300, 500, 800, 1_200, 2_000, 3_000, 5_000, 8_000, 12_000, 18_000, 25_000, 35_000]
    } else {
        &[100, 600, 1_500, 4_000, 12_000]
    };
    killed_at("stampede", points);
}

#[test]
fn a_killed_run_of_two_servers_in_namespaces_is_put_right_by_clean() {
    if !is_root("a_killed_run_of_two_servers_in_namespaces_is_put_right_by_clean") {
        return;
    }
    let points: &[u64] = if nightly() {
        &[300, 600, 900, 1_200, 1_600, 2_000, 3_000, 5_000, 8_000, 12_000, 18_000, 25_000, 35_000, 45_000]
    } else {
        &[700, 1_300, 5_000, 16_000]
    };
    killed_at("wal-lag", points);
}

#[test]
fn a_run_killed_with_its_namespaces_cable_or_caps_in_force_is_put_right_by_clean() {
    if !is_root("a_run_killed_with_its_namespaces_cable_or_caps_in_force_is_put_right_by_clean") {
        return;
    }
    let own = |run: u32| namespaces().into_iter().filter(|path| path.contains(&ours(run))).collect::<Vec<_>>();
    killed_when("wal-lag", "no-cap", "one namespace", &|run| !own(run).is_empty());
    killed_when("wal-lag", "no-cap", "a cable", &|run| own(run).last().is_some_and(|end| !queueing(end).is_empty()));
    killed_when("wal-lag", "network-narrow", "a shaper", &|run| {
        own(run).iter().any(|end| queueing(end).contains("tbf"))
    });
    killed_when("wal-lag", "standby-capped", "a cap", &|run| !rules(run).is_empty());
}

/// The driver of WiredTiger, built already: without it a run would begin by building it.
fn has_driver(test: &str) -> bool {
    let named = std::env::var_os("BACKWATER_WT_DRIVER").is_some_and(|path| Path::new(&path).is_file());
    if !named {
        eprintln!(
            "skipped: {test}: needs the driver of WiredTiger (see wt-driver/README.md), named in BACKWATER_WT_DRIVER"
        );
    }
    named
}

#[test]
fn a_run_of_the_engine_killed_with_its_driver_cap_or_dirty_limit_is_put_right_by_clean() {
    let name = "a_run_of_the_engine_killed_with_its_driver_cap_or_dirty_limit_is_put_right_by_clean";
    if !is_root(name) || !has_driver(name) {
        return;
    }
    let driver =
        |run: u32| processes().lines().any(|line| line.contains(&ours(run)) && line.contains("/backwater-wt-driver"));
    killed_when("wt-stall", "dirty-cap", "its driver", &driver);
    killed_when("wt-stall", "dirty-cap", "its dirty limit", &|run| !limited_by(run).is_empty());
    killed_when("wt-stall", "dirty-cap", "a capped load", &|run| !rules(run).is_empty() && driver(run));
}

#[test]
fn ctrl_c_cleans_up_at_once() {
    if !is_root("ctrl_c_cleans_up_at_once") {
        return;
    }
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut run = start(&state, "stampede", &dir.path().join("out"), &[]);
    std::thread::sleep(Duration::from_secs(9));
    assert!(run.try_wait().unwrap().is_none(), "the run ended by itself: {}", last_words(&mut run));
    let pid = Pid::from_child(&run);
    let asked = Instant::now();
    kill_process(pid, Signal::INT).unwrap();
    let status = run.wait().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(45), "took {:?} to clean up", asked.elapsed());
    assert_eq!(status.code(), Some(2));
    assert_eq!(left_on_host(run.id(), &state), Vec::<String>::new());
}
