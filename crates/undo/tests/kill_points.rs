//! Fault injection: a run in a process of its own (this test program, started again) is killed with SIGKILL after
//! each of its steps, and `recover` must leave the host as it was. Each change is two steps: noted, made.
#![allow(clippy::unwrap_used, missing_docs, clippy::print_stderr)]
// The children are to outlive the run that is killed.
#![allow(clippy::zombie_processes)]

use backwater_undo::{Change, Journal, Stop, mounted_at, recover, start_time};
use rustix::process::{Signal, getpid, kill_process};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const STATE: &str = "BACKWATER_TEST_STATE";
const STEP: &str = "BACKWATER_TEST_STEP";

/// Counts the steps of the run in the child, and kills it at the one it was told.
struct Steps {
    done: usize,
    last: usize,
}

impl Steps {
    fn step(&mut self) {
        if self.done == self.last {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        self.done += 1;
    }

    fn change(&mut self, journal: &Journal, change: Change, make: impl FnOnce()) {
        journal.note(change).unwrap();
        self.step();
        make();
        self.step();
    }
}

/// In the child: runs `run` up to its fatal step; never comes back. In the parent: false.
fn is_child(run: fn(&Path, &Journal, &mut Steps)) -> bool {
    let (Ok(state), Ok(step)) = (std::env::var(STATE), std::env::var(STEP)) else { return false };
    let mut steps = Steps { done: 0, last: step.parse().unwrap() };
    let journal = Journal::begin(Path::new(&state), "killed run").unwrap();
    steps.step();
    run(&PathBuf::from(state).canonicalize().unwrap(), &journal, &mut steps);
    // Past the last step: told to the parent by an ordinary end, with everything undone.
    drop(journal);
    std::process::exit(0);
}

/// Kills a run after each of its steps in turn; how many there were.
fn kill_everywhere(test: &str, prepare: impl Fn(&Path), check: impl Fn(&Path, usize)) -> usize {
    for step in 0.. {
        let dir = tempfile::Builder::new().prefix("backwater-").tempdir().unwrap();
        prepare(dir.path());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(STATE, dir.path()).env(STEP, step.to_string());
        let output = command.output().unwrap();
        let status = output.status;
        if status.signal() == Some(9) {
            let recovered = recover(dir.path()).unwrap();
            assert!(recovered.iter().all(|one| one.is_complete()), "step {step}: {recovered:#?}");
        } else {
            assert!(status.success(), "step {step}: {status}: {}", String::from_utf8_lossy(&output.stderr));
        }
        check(dir.path(), step);
        assert_eq!(recover(dir.path()).unwrap(), [], "step {step}: a second recovery has nothing to do");
        if status.success() {
            return step;
        }
    }
    unreachable!()
}

fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let known = ["value", "rules"];
    let is_known = |path: &PathBuf| known.iter().any(|name| path.ends_with(name));
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| !is_known(path)).collect()
}

/// Those whose command line holds `word` and that have not ended.
fn running(word: &str) -> usize {
    let holds =
        |path: PathBuf| fs::read(path.join("cmdline")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(word));
    fs::read_dir("/proc").unwrap().filter(|entry| holds(entry.as_ref().unwrap().path())).count()
}

/// A child whose output goes nowhere: a pipe it inherited would keep the parent of this test waiting for it.
fn quiet(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn plain_run(state: &Path, journal: &Journal, steps: &mut Steps) {
    let lab = state.join("lab");
    steps.change(journal, Change::Directory { path: lab.clone() }, || fs::create_dir(&lab).unwrap());
    let image = state.join("image");
    steps.change(journal, Change::File { path: image.clone() }, || fs::write(&image, "x").unwrap());
    let value = state.join("value");
    let before = fs::read_to_string(&value).unwrap();
    steps.change(journal, Change::FileValue { path: value.clone(), before }, || fs::write(&value, "7").unwrap());
    // Named by its own directory, so that the parent can look for it.
    let sleeper = || {
        let mut command = quiet("sh", &["-c", "sleep 300 & exec sleep 301", state.to_str().unwrap()]);
        command.process_group(0);
        command
    };
    journal.spawn(&mut sleeper(), "a sleeper", Stop::Terminate).unwrap();
    steps.step();
    fs::write(lab.join("content"), "y").unwrap();
    steps.step();
    let child = sleeper().spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let start_time = start_time(pid).unwrap();
    journal.note(Change::Process { pid, start_time, what: "another".into(), stop: Stop::Quit }).unwrap();
    steps.step();
}

#[test]
fn files_values_and_processes() {
    if is_child(plain_run) {
        return;
    }
    let steps = kill_everywhere(
        "files_values_and_processes",
        |dir| fs::write(dir.join("value"), "20\n").unwrap(),
        |dir, step| {
            assert_eq!(leftovers(dir), Vec::<PathBuf>::new(), "step {step}");
            assert_eq!(fs::read_to_string(dir.join("value")).unwrap().trim(), "20", "step {step}");
            assert_eq!(running(&dir.display().to_string()), 0, "step {step}");
        },
    );
    assert_eq!(steps, 10);
}

/// So many changes that the journal is written anew, beside one that stays.
fn long_run(state: &Path, journal: &Journal, steps: &mut Steps) {
    let lab = state.join("lab");
    steps.change(journal, Change::Directory { path: lab.clone() }, || fs::create_dir(&lab).unwrap());
    let brief = state.join("x".repeat(200));
    for _ in 0..300 {
        let entry = journal.note(Change::File { path: brief.clone() }).unwrap();
        journal.undo(entry).unwrap();
    }
    assert!(fs::metadata(journal.path()).unwrap().len() < 300 * 200, "it was written anew");
    steps.step();
    let image = lab.join("image");
    steps.change(journal, Change::File { path: image.clone() }, || fs::write(&image, "x").unwrap());
}

#[test]
fn a_journal_that_was_written_anew() {
    if is_child(long_run) {
        return;
    }
    let steps = kill_everywhere(
        "a_journal_that_was_written_anew",
        |_| {},
        |dir, step| assert_eq!(leftovers(dir), Vec::<PathBuf>::new(), "step {step}"),
    );
    assert_eq!(steps, 6);
}

/// What `losetup` and friends say is part of the failure.
fn tool(program: &str, arguments: &[&str]) -> String {
    let path = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";
    let output = Command::new(program).args(arguments).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

const BLKIO: &str = "/sys/fs/cgroup/blkio";

fn root_run(state: &Path, journal: &Journal, steps: &mut Steps) {
    let image = state.join("image");
    let file = |path: &Path| fs::File::create(path).unwrap().set_len(64 << 20).unwrap();
    steps.change(journal, Change::File { path: image.clone() }, || file(&image));
    let device = PathBuf::from(tool("losetup", &["--find"]));
    let attach = Change::Loop { dev_path: device.clone(), backing: image.clone() };
    let attached = || drop(tool("losetup", &[device.to_str().unwrap(), image.to_str().unwrap()]));
    steps.change(journal, attach, attached);
    tool("mkfs.ext4", &["-q", "-F", device.to_str().unwrap()]);
    steps.step();
    let target = state.join("mount");
    steps.change(journal, Change::Directory { path: target.clone() }, || fs::create_dir(&target).unwrap());
    let source = device.display().to_string();
    let mount = Change::Mount { target: target.clone(), source, shared: None };
    steps.change(journal, mount, || drop(tool("mount", &[device.to_str().unwrap(), target.to_str().unwrap()])));
    root_limits(journal, steps, &device);
    let mut command = quiet("sleep", &["302"]);
    journal.spawn(command.current_dir(&target), "a sleeper on the disk", Stop::Quit).unwrap();
    steps.step();
    fs::write(target.join("data"), vec![1; 4 << 20]).unwrap();
    steps.step();
}

fn root_limits(journal: &Journal, steps: &mut Steps, device: &Path) {
    let number = device.to_str().unwrap().trim_start_matches("/dev/loop");
    let dev = format!("7:{number}");
    let rules = Path::new(BLKIO).join("blkio.throttle.write_iops_device");
    if rules.exists() {
        let rule = Change::BlkioRule { file: rules.clone(), dev: dev.clone(), before: None };
        steps.change(journal, rule, || fs::write(&rules, format!("{dev} 31713")).unwrap());
        let group = Path::new(BLKIO).join(format!("backwater-{}", journal.run()));
        steps.change(journal, Change::CgroupDir { path: group.clone() }, || fs::create_dir(&group).unwrap());
        let (child, _) = journal.spawn(&mut quiet("sleep", &["303"]), "a sleeper in the group", Stop::Quit).unwrap();
        fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
        steps.step();
    }
    let fine = PathBuf::from(format!("/sys/class/bdi/{dev}/max_ratio_fine"));
    if let Ok(before) = fs::read_to_string(&fine) {
        let value = Change::FileValue { path: fine.clone(), before };
        steps.change(journal, value, || fs::write(&fine, "512345").unwrap());
    }
}

/// The kernel's state that a run may change: all loop devices, rules and bdi limits.
fn host_state() -> Vec<String> {
    let mut state: Vec<String> = Vec::new();
    for entry in fs::read_dir("/sys/class/bdi").unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("7:") {
            let fine = fs::read_to_string(path.join("max_ratio_fine")).unwrap_or_default();
            state.push(format!("{}={fine}", path.display()));
        }
    }
    state.sort();
    state.push(fs::read_to_string(format!("{BLKIO}/blkio.throttle.write_iops_device")).unwrap_or_default());
    state
}

#[test]
fn loop_devices_mounts_rules_and_groups() {
    if is_child(root_run) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: loop_devices_mounts_rules_and_groups: needs root");
        return;
    }
    let steps = kill_everywhere(
        "loop_devices_mounts_rules_and_groups",
        |_| {},
        |dir, step| {
            assert_eq!(leftovers(dir), Vec::<PathBuf>::new(), "step {step}");
            assert_eq!(mounted_at(&dir.join("mount")), None, "step {step}");
            let image = dir.join("image").display().to_string();
            assert!(!tool("losetup", &["--list", "--noheadings"]).contains(&image), "step {step}");
            let rules = fs::read_to_string(format!("{BLKIO}/blkio.throttle.write_iops_device")).unwrap_or_default();
            assert!(!rules.contains(" 31713"), "step {step}: {rules}");
            assert!(!host_state().iter().any(|line| line.trim().ends_with("=512345")), "step {step}");
        },
    );
    assert!(steps >= 11, "{steps}");
    let groups = fs::read_dir(BLKIO).into_iter().flatten().flatten();
    assert!(!groups.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("backwater-")));
}

#[test]
fn one_run_does_not_undo_another() {
    let dir = tempfile::tempdir().unwrap();
    let live = Journal::begin(dir.path(), "live").unwrap();
    let kept = live.state_dir().join("kept");
    live.note(Change::File { path: kept.clone() }).unwrap();
    fs::write(&kept, "").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "files_values_and_processes"]).env(STATE, dir.path()).env(STEP, "4");
    fs::write(dir.path().join("value"), "20").unwrap();
    assert_eq!(command.output().unwrap().status.signal(), Some(9));
    let recovered = recover(dir.path()).unwrap();
    assert_eq!(recovered.len(), 1);
    assert_eq!(recovered[0].what, "killed run");
    assert!(kept.exists() && live.path().exists());
    live.finish().unwrap();
    assert!(!kept.exists());
}
