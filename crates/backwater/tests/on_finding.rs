//! `record --on-finding` ahead of a real cliff: a volume whose dirty pages climb to where the kernel begins to pause writers. The
//! command is told in time, and one that hangs, fails or does not exist is no concern of the recorder's, nor does it outlive a
//! recorder that is ended at once.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use backwater_lab::limits::{Cap, DiskSpec, SlowDisk, debugfs};
use backwater_model::Finding;
use backwater_model::catalogue::{BDI_WRITTEN, SELF_DROPPED};
use backwater_record::Recording;
use backwater_undo::Journal;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// What is written a second at most, and what of that the volume takes.
const INFLOW: u64 = 10 * MIB;
const DRAIN: u64 = 4 * MIB;
const PIECE: u64 = MIB / 4;
/// The volume's dirty pages: writers pause at three quarters of it. Just before that it counts as reached: who is paused need not
/// come any further.
const LIMIT: u64 = 320 * MIB;
const REACHED: u64 = LIMIT * 7 / 10;
/// Longer than anything here takes, also on a busy host.
const LONG: Duration = Duration::from_secs(300);
/// A command that hangs is ended after a minute: a recorder that waits for it reads nothing for as long.
const WAITED_S: f64 = 30.0;

/// A recorder with a command for findings.
struct Recorder {
    child: Child,
    dir: PathBuf,
}

impl Recorder {
    fn start(dir: PathBuf, command: &str) -> Recorder {
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_backwater"));
        recorder.args(["record", "host", "--free-floor", "1MB", "--on-finding", command, "-o"]).arg(&dir);
        let child = recorder.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Recorder { child, dir }
    }

    /// Ends it as a service manager would. How it went, how long it took, and what it said.
    fn stop(&mut self) -> (Option<i32>, Duration, String) {
        let begun = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), begun.elapsed(), said)
    }

    /// Ends it as somebody does who presses Ctrl-C and, told that it is stopping, once more. How it went.
    fn stop_at_once(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        // Kept until it has ended: it may say more.
        let mut lines = BufReader::new(self.child.stderr.take().unwrap()).lines();
        let stopping = lines.by_ref().map(Result::unwrap).any(|line| line.contains("once more to end at once"));
        assert!(stopping, "it ended without a word");
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap().code()
    }

    /// The longest time without a reading of the device, and how many batches were dropped.
    fn undisturbed(&self, dev: &str) -> (f64, f64) {
        let window = Recording::open(&self.dir).unwrap().window(None, None).unwrap();
        let track = window.track(BDI_WRITTEN.name, &[("dev", dev)]).unwrap();
        let gaps = track.points.windows(2).map(|pair| pair[1].at.seconds_since(pair[0].at));
        let dropped = window.track(SELF_DROPPED.name, &[]).unwrap().points.last().unwrap().value;
        (gaps.fold(0.0, f64::max), dropped)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // It may have ended before.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Writes as fast as [`INFLOW`] until the volume's dirty pages are where writers pause. When they were, if they ever were. What a
/// busy host kept it from writing is not made up for: nobody could be told ahead of a burst.
fn fill(disk: &SlowDisk) -> Option<Instant> {
    let mut file = File::create(disk.mount_point().join("data")).unwrap();
    let (piece, begun) = (vec![7; PIECE as usize], Instant::now());
    while begun.elapsed() < LONG {
        let next = Instant::now() + Duration::from_secs_f64(PIECE as f64 / INFLOW as f64);
        file.write_all(&piece).unwrap();
        if disk.level_bytes().unwrap() >= REACHED {
            return Some(Instant::now());
        }
        while let Some(left) = next.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
    }
    None
}

/// When there is a whole line in a file.
fn line_in(path: &Path) -> Instant {
    let begun = Instant::now();
    while !std::fs::read_to_string(path).is_ok_and(|text| text.contains('\n')) {
        assert!(begun.elapsed() < LONG, "nothing in {}", path.display());
        std::thread::park_timeout(Duration::from_millis(20));
    }
    Instant::now()
}

/// Waits until the process whose number is the first word of a file is gone.
fn is_gone(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let (pid, begun) = (text.split_whitespace().next().unwrap(), Instant::now());
    let lives = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    while lives() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{pid} lives on");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A volume that takes [`DRAIN`] and holds [`LIMIT`] dirty; gone with its journal.
fn volume(journal: &Journal, dir: &Path) -> SlowDisk {
    debugfs::ensure(journal).unwrap();
    let (name, fs) = ("data".to_owned(), "ext4".to_owned());
    let spec = DiskSpec { name, size_bytes: 2048 * MIB, fs, backing_dir: dir.to_owned(), direct_io: true };
    let disk = SlowDisk::create(journal, &spec).unwrap();
    disk.cap(journal, &Cap { write_bytes_per_s: Some(DRAIN), ..Cap::default() }).unwrap();
    disk.limit_dirty(journal, LIMIT).unwrap();
    disk
}

/// Until there is something to open.
fn begun(recorder: Recorder) -> Recorder {
    let begun = Instant::now();
    while !recorder.dir.join("series.jsonl").exists() {
        assert!(begun.elapsed() < LONG);
        std::thread::park_timeout(Duration::from_millis(50));
    }
    recorder
}

/// Recorders whose commands tell in files of this directory that they were run, and then do well, hang or fail; and one whose
/// command does not exist. Each by what it must say in the end.
fn recorders(dir: &Path) -> Vec<(&'static str, Recorder)> {
    let at = |name: &str| dir.join(name).display().to_string();
    let told = |name: &str, then: &str| {
        let words = "$$ $BACKWATER_STATE $BACKWATER_RULE $BACKWATER_CAUSE $BACKWATER_SEVERITY $BACKWATER_QUEUE";
        format!("echo {words} >> {}; {then}", at(name))
    };
    let commands = [
        ("recorded", told("good", &format!("cat >> {}", at("json")))),
        ("the command for findings was ended after", told("hangs", "sleep 1000; true")),
        ("the command for findings failed (exit status: 3)", told("fails", "exit 3")),
        ("the command for findings failed (exit status: 127)", "/no/such/command --at-all".to_owned()),
    ];
    let start = |(place, (says, command)): (usize, &(&'static str, String))| {
        (*says, Recorder::start(dir.join(format!("rec-{place}")), command))
    };
    let recorders: Vec<_> = commands.iter().enumerate().map(start).collect();
    recorders.into_iter().map(|(says, recorder)| (says, begun(recorder))).collect()
}

#[test]
fn a_command_is_told_ahead_of_the_cliff_and_a_bad_one_disturbs_nothing() {
    const NAME: &str = "a_command_is_told_ahead_of_the_cliff_and_a_bad_one_disturbs_nothing";
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: {NAME}: needs root");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = |name: &str| dir.path().join(name);
    let journal = Journal::begin(&at("state"), "test of --on-finding").unwrap();
    let disk = volume(&journal, dir.path());
    let recorders = recorders(dir.path());
    let started = format!("sleep 1000 & echo $! >> {}; wait", at("started").display());
    let mut ended_at_once = begun(Recorder::start(at("rec-at-once"), &started));

    let (heard, paused) = std::thread::scope(|scope| {
        let fills = scope.spawn(|| fill(&disk));
        let heard = line_in(&at("good"));
        line_in(&at("started"));
        assert_eq!(ended_at_once.stop_at_once(), Some(130));
        is_gone(&at("started"));
        (heard, fills.join().unwrap())
    });
    let paused = paused.expect("the volume's limit was never reached");
    eprintln!("told {:.1} s ahead", paused.saturating_duration_since(heard).as_secs_f64());
    assert!(heard < paused, "told {:?} after the cliff", heard - paused);
    let queue = format!("host.dirty@{}", disk.dev());
    let line = std::fs::read_to_string(at("good")).unwrap();
    let first = line.lines().next().unwrap();
    assert!(first.ends_with(&format!("begun dirty-throttle approaching warning {queue}")), "{line}");
    let finding = finding_in(&at("json"));
    assert_eq!((finding.cause.as_str(), finding.queue.as_str()), ("approaching", queue.as_str()));
    assert!(finding.figure("time_to_cliff_s").unwrap() > 0.0, "{}", finding.summary);
    for name in ["hangs", "fails"] {
        line_in(&at(name));
    }

    for (says, mut recorder) in recorders {
        let (code, took, said) = recorder.stop();
        assert_eq!(code, Some(0), "{said}");
        assert!(took.as_secs_f64() < WAITED_S, "{took:?}: {said}");
        assert!(said.contains(says), "{says}: {said}");
        assert_eq!(says == "recorded", !said.contains("the command for findings"), "{said}");
        let (gap_s, dropped) = recorder.undisturbed(disk.dev());
        assert!(gap_s < WAITED_S && dropped == 0.0, "{says}: {gap_s} s without a reading, {dropped} dropped");
    }
    is_gone(&at("hangs"));
    journal.finish().unwrap();
}

/// The first finding of a file, once it is whole.
fn finding_in(path: &Path) -> Finding {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some(Ok(finding)) = serde_json::Deserializer::from_str(&text).into_iter().next() {
            return finding;
        }
        assert!(begun.elapsed() < LONG, "{text}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
