//! The limits on the real kernel. Each test undoes what it did also when it fails: its journal is dropped.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "../../../probe/tests/uml/guest.rs"]
mod guest;

use super::*;
use crate::servers::process::within;
use backwater_undo::{Journal, mounted_at, recover};
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const RUN: &str = "BACKWATER_TEST_LIMITS";

fn root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: {test}: needs root");
    }
    root
}

fn spec(dir: &Path) -> DiskSpec {
    let (name, fs) = ("data".to_owned(), "ext4".to_owned());
    DiskSpec { name, size_bytes: 256 * MIB, fs, backing_dir: dir.to_owned(), direct_io: true }
}

fn journal(dir: &tempfile::TempDir) -> Journal {
    Journal::begin(&dir.path().join("state"), "test of limits").unwrap()
}

/// All that the kernel holds for a device: rules and bounds.
fn kernel_state(dev: &str) -> Vec<String> {
    let bdi = ["max_ratio_fine", "min_ratio_fine", "strict_limit"].map(|name| format!("/sys/class/bdi/{dev}/{name}"));
    let mut state: Vec<_> = bdi.iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
    for kind in ["read_iops", "write_iops", "read_bps", "write_bps"] {
        let rules =
            fs::read_to_string(format!("/sys/fs/cgroup/blkio/blkio.throttle.{kind}_device")).unwrap_or_default();
        state.extend(rules.lines().filter(|line| line.starts_with(&format!("{dev} "))).map(str::to_owned));
    }
    state
}

fn attached(dir: &Path) -> bool {
    let list = tool::run("losetup", &["--list", "--noheadings", "--output", "BACK-FILE"]).unwrap();
    list.contains(&dir.canonicalize().unwrap().display().to_string())
}

fn write(disk: &SlowDisk, bytes: u64) -> Duration {
    let begun = Instant::now();
    let mut file = fs::File::create(disk.mount_point().join("data")).unwrap();
    file.write_all(&vec![7; bytes as usize]).unwrap();
    file.sync_data().unwrap();
    begun.elapsed()
}

#[test]
fn a_disk_is_made_limited_and_gone() {
    if !root("a_disk_is_made_limited_and_gone") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    debugfs::ensure(&journal).unwrap();
    let disk = SlowDisk::create(&journal, &spec(dir.path())).unwrap();
    let mounted = mounted_at(disk.mount_point()).unwrap();
    assert_eq!((mounted.file_system.as_str(), Path::new(&mounted.source)), ("ext4", disk.device_path()));
    assert_eq!(disk.cap_in_force().unwrap(), Cap::default());
    let free = write(&disk, 8 * MIB);

    let cap = Cap { write_bytes_per_s: Some(8 * MIB), write_iops: Some(1_000), ..Cap::default() };
    disk.cap(&journal, &cap).unwrap();
    assert_eq!(disk.cap_in_force().unwrap(), cap);
    let capped = write(&disk, 16 * MIB);
    assert!(
        capped > Duration::from_millis(1_500),
        "16 MiB at 8 MiB/s took {capped:?}; without a cap 8 MiB took {free:?}"
    );
    fs::write(disk.mount_point().join("more"), vec![1; 4 << 20]).unwrap();
    disk.settle().unwrap();
    assert_eq!(disk.cap_in_force().unwrap(), cap, "settling puts the cap back");
    disk.lift_cap(&journal).unwrap();

    let held = disk.limit_dirty(&journal, 32 * MIB).unwrap();
    assert!(held.abs_diff(32 * MIB) < MIB, "{held}");
    assert!(disk.dirty_limit().unwrap().strict);
    assert!(matches!(disk.limit_dirty(&journal, 4096), Err(LimitError::Value { .. })));
    assert!(matches!(disk.limit_dirty(&journal, 1 << 50), Err(LimitError::Value { .. })));
    disk.unlimit_dirty(&journal).unwrap();
    assert!(!disk.dirty_limit().unwrap().strict);
    disk.limit_dirty(&journal, 32 * MIB).unwrap();
    disk.cap(&journal, &cap).unwrap();

    let (dev, mount_point) = (disk.dev().to_owned(), disk.mount_point().to_owned());
    journal.finish().unwrap();
    assert_eq!(mounted_at(&mount_point), None);
    assert!(!attached(dir.path()));
    assert_eq!(kernel_state(&dev), ["1000000\n", "0\n", "0\n"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the journals' directory is left");
}

#[test]
fn a_disk_on_another_is_slow_by_itself_and_both_go() {
    if !root("a_disk_on_another_is_slow_by_itself_and_both_go") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    let beneath = DiskSpec { name: "beneath".to_owned(), size_bytes: 512 * MIB, ..spec(dir.path()) };
    let beneath = SlowDisk::create(&journal, &beneath).unwrap();
    let disk = SlowDisk::create(&journal, &spec(beneath.mount_point())).unwrap();
    if matches!(disk.cap_method(), CapMethod::IoMaxV2 { .. }) {
        journal.finish().unwrap();
        return eprintln!("skipped: a_disk_on_another_is_slow_by_itself_and_both_go: it writes from the root group");
    }
    disk.cap_beneath(&journal, &beneath, &Cap { write_bytes_per_s: Some(8 * MIB), ..Cap::default() }).unwrap();
    assert_eq!(disk.cap_in_force().unwrap(), Cap::default(), "its own device shows none");
    let slow = write(&disk, 16 * MIB);
    assert!(slow > Duration::from_millis(1_500), "16 MiB at 8 MiB/s took {slow:?}");
    let devices = [beneath.device_path(), disk.device_path()].map(Path::to_owned);
    let own = format!("backwater-{}-", journal.run());
    journal.finish().unwrap();
    // By the device: a file on a mount that is gone has another path.
    for device in devices {
        let name = device.file_name().unwrap().to_str().unwrap().to_owned();
        let behind = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        assert!(behind.as_ref().map_or(true, |file| !file.contains(&own)), "{name}: {behind:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the journals' directory is left");
}

#[test]
fn a_share_of_a_processor_is_all_that_a_process_gets() {
    const NAME: &str = "a_share_of_a_processor_is_all_that_a_process_gets";
    if !root(NAME) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    let share = match ProcessorShare::create(&journal, "test") {
        Ok(share) => share,
        Err(LimitError::Unsupported { why, .. }) => return eprintln!("skipped: {NAME}: {why}"),
        Err(error) => panic!("{error}"),
    };
    let mut spinning = Command::new("sh");
    spinning.args(["-c", "while :; do :; done"]);
    let (mut child, _) = journal.spawn(&mut spinning, "a spinner", backwater_undo::Stop::Terminate).unwrap();
    share.adopt(child.id()).unwrap();
    share.bound(&journal, 0.1).unwrap();
    let used = |seconds: u64| {
        // Nanoseconds on a processor, by the kernel.
        let read = || -> f64 {
            let text = fs::read_to_string(format!("/proc/{}/schedstat", child.id())).unwrap();
            text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
        };
        let (before, begun) = (read(), Instant::now());
        std::thread::sleep(Duration::from_secs(seconds));
        (read() - before) / begun.elapsed().as_secs_f64()
    };
    let bound = used(2);
    assert!((0.02..0.2).contains(&bound), "{bound}");
    share.lift(&journal).unwrap();
    let free = used(1);
    assert!(free > 2.0 * bound, "{free} after {bound}");
    child.kill().unwrap();
    child.wait().unwrap();
    journal.finish().unwrap();
    let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(fs::read_dir);
    let left = roots.into_iter().flatten().flatten().flatten();
    let ours = format!("backwater-{}", journal.run());
    assert!(left.map(|entry| entry.file_name()).all(|name| !name.to_string_lossy().starts_with(&ours)));
}

#[test]
fn an_xfs_disk_is_capped_too() {
    const NAME: &str = "an_xfs_disk_is_capped_too";
    if !root(NAME) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    let xfs = DiskSpec { fs: "xfs".into(), size_bytes: 512 * MIB, ..spec(dir.path()) };
    let disk = match SlowDisk::create(&journal, &xfs) {
        Ok(disk) => disk,
        Err(error) if error.to_string().contains("xfsprogs") => return eprintln!("skipped: {NAME}: {error}"),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(mounted_at(disk.mount_point()).unwrap().file_system, "xfs");
    disk.cap(&journal, &Cap { write_bytes_per_s: Some(8 * MIB), ..Cap::default() }).unwrap();
    let capped = write(&disk, 16 * MIB);
    assert!(capped > Duration::from_millis(1_500), "16 MiB at 8 MiB/s took {capped:?}");
    journal.finish().unwrap();
    assert!(!attached(dir.path()));
}

#[test]
fn a_group_of_its_own_is_capped_on_cgroup_v2() {
    if !root("a_group_of_its_own_is_capped_on_cgroup_v2") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    let disk = SlowDisk::create(&journal, &DiskSpec { direct_io: false, ..spec(dir.path()) }).unwrap();
    let CapMethod::IoMaxV2 { cgroup } = disk.cap_method().clone() else {
        journal.finish().unwrap();
        return in_user_mode_linux("limits::root_tests::a_group_of_its_own_is_capped_on_cgroup_v2");
    };
    disk.cap(&journal, &Cap { write_bytes_per_s: Some(4 * MIB), ..Cap::default() }).unwrap();
    // It waits for a line, so that it writes only when it is in the group.
    let mut writer = Command::new("sh");
    let script = "read go; dd if=/dev/zero of=data bs=1M count=16 conv=fdatasync 2>/dev/null";
    writer.args(["-c", script]).current_dir(disk.mount_point()).stdin(Stdio::piped());
    let (mut child, _) = journal.spawn(&mut writer, "a writer", backwater_undo::Stop::Terminate).unwrap();
    disk.adopt(child.id()).unwrap();
    let begun = Instant::now();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(3), "16 MiB at 4 MiB/s took {took:?}");
    journal.finish().unwrap();
    assert!(!cgroup.exists() && !attached(dir.path()));
}

/// Runs one test of this program where there is only cgroup v2: in a kernel of its own, on this host's files.
fn in_user_mode_linux(test: &str) {
    let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/uml/init.sh");
    let program = std::env::current_exe().unwrap();
    let words = ["mem=512M".to_owned(), format!("PROGRAM={}", program.display()), format!("TEST={test}")];
    let Some(lines) = guest::run(test, &init, &words, |line| line.starts_with("test result: ")) else { return };
    let text = lines.join("\n");
    assert!(text.contains("1 passed; 0 failed") && !text.contains("skipped:"), "{text}");
}

#[test]
fn a_failure_in_the_middle_leaves_nothing() {
    if !root("a_failure_in_the_middle_leaves_nothing") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let panicked = std::panic::catch_unwind(|| {
        let journal = journal(&dir);
        let disk = SlowDisk::create(&journal, &spec(dir.path())).unwrap();
        disk.cap(&journal, &Cap { write_iops: Some(500), ..Cap::default() }).unwrap();
        // Somebody stands on it, and it is full of dirty pages.
        fs::write(disk.mount_point().join("data"), vec![1; 32 << 20]).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.is_err() && !attached(dir.path()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_made_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    let broken = [
        DiskSpec { name: "../x".into(), ..spec(dir.path()) },
        DiskSpec { fs: "btrfs".into(), ..spec(dir.path()) },
        DiskSpec { size_bytes: MIB, ..spec(dir.path()) },
    ];
    for spec in broken {
        assert!(matches!(SlowDisk::create(&journal, &spec), Err(LimitError::Value { .. })));
    }
    if root("what_cannot_be_made_says_why") {
        let missing = DiskSpec { backing_dir: dir.path().join("missing"), ..spec(dir.path()) };
        assert!(matches!(SlowDisk::create(&journal, &missing), Err(LimitError::File { .. })));
        let large = DiskSpec { size_bytes: 1 << 60, ..spec(dir.path()) };
        assert!(matches!(SlowDisk::create(&journal, &large), Err(LimitError::NoSpace { .. })));
    } else {
        let error = SlowDisk::create(&journal, &spec(dir.path())).unwrap_err().to_string();
        assert!(error.contains("root"), "{error}");
    }
}

#[test]
fn two_runs_at_once_do_not_undo_each_other() {
    if !root("two_runs_at_once_do_not_undo_each_other") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (journal(&dir), journal(&dir));
    let cap = Cap { write_iops: Some(700), ..Cap::default() };
    let disks = [&one, &two].map(|journal| {
        debugfs::ensure(journal).unwrap();
        let disk = SlowDisk::create(journal, &spec(dir.path())).unwrap();
        disk.cap(journal, &cap).unwrap();
        disk.limit_dirty(journal, 16 * MIB).unwrap();
        disk
    });
    assert_ne!(disks[0].dev(), disks[1].dev());
    one.finish().unwrap();
    assert_eq!(recover(&dir.path().join("state")).unwrap(), []);
    assert_eq!(mounted_at(disks[0].mount_point()), None);
    assert!(mounted_at(disks[1].mount_point()).is_some());
    assert_eq!(disks[1].cap_in_force().unwrap(), cap);
    assert!(disks[1].dirty_limit().unwrap().strict);
    assert!(debugfs::device_stats(disks[1].dev()).is_some(), "debugfs is the second run's too");
    two.finish().unwrap();
    assert!(!attached(dir.path()));
}

#[test]
fn sysctls_of_the_host_come_back() {
    if !root("sysctls_of_the_host_come_back") {
        return;
    }
    let names = ["dirty_writeback_centisecs", "dirty_bytes", "dirty_ratio"].map(|name| format!("/proc/sys/vm/{name}"));
    let read = || names.clone().map(|path| fs::read_to_string(path).unwrap());
    let before = read();
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (journal(&dir), journal(&dir));
    let allowed = AllowHostChanges::as_the_user_said();
    // Values that nobody on this host feels.
    sysctl::set(&one, &allowed, "vm.dirty_writeback_centisecs", 501).unwrap();
    sysctl::set(&one, &allowed, "vm.dirty_bytes", 4_000 * MIB).unwrap();
    assert_ne!(read(), before);
    let refused = sysctl::set(&two, &allowed, "vm.dirty_bytes", 4_001 * MIB).unwrap_err().to_string();
    assert!(refused.contains("another run"), "{refused}");
    one.finish().unwrap();
    assert_eq!(read(), before);
}

/// The run that is killed: everything there is, one after the other.
fn doomed_run(state: &Path) {
    let journal = Journal::begin(state, "doomed").unwrap();
    debugfs::ensure(&journal).unwrap();
    let disk = SlowDisk::create(&journal, &spec(state.parent().unwrap())).unwrap();
    disk.cap(&journal, &Cap { write_iops: Some(900), write_bytes_per_s: Some(64 * MIB), ..Cap::default() }).unwrap();
    disk.limit_dirty(&journal, 24 * MIB).unwrap();
    fs::write(disk.mount_point().join("data"), vec![1; 8 << 20]).unwrap();
    let mut writer = Command::new("sh");
    writer.args(["-c", "while :; do echo x > spot; sync spot; done"]).current_dir(disk.mount_point());
    let (mut child, _) = journal.spawn(&mut writer, "a writer", backwater_undo::Stop::Quit).unwrap();
    fs::write(complete(state), "").unwrap();
    child.wait().unwrap();
}

/// There once the doomed run has done all that it does.
fn complete(state: &Path) -> PathBuf {
    state.with_extension("complete")
}

#[test]
fn a_run_killed_at_any_point_is_put_right() {
    if let Ok(state) = std::env::var(RUN) {
        return doomed_run(Path::new(&state));
    }
    if !root("a_run_killed_at_any_point_is_put_right") {
        return;
    }
    for lines in 1.. {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        if !killed_after(lines, &state) {
            assert!(lines > 12, "{lines}");
            break;
        }
        let recovered = recover(&state).unwrap();
        assert!(recovered.iter().all(backwater_undo::Recovered::is_complete), "after {lines} lines: {recovered:#?}");
        assert!(!attached(dir.path()), "after {lines} lines");
        let left: Vec<PathBuf> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [state], "after {lines} lines");
    }
}

/// Starts a run in a process of its own and kills it once its journal has so many lines; false when it never gets there.
fn killed_after(lines: usize, state: &Path) -> bool {
    let test = "limits::root_tests::a_run_killed_at_any_point_is_put_right";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(RUN, state);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let count = || {
        let entries = fs::read_dir(state).into_iter().flatten().flatten();
        let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        texts.map(|text| text.lines().count()).max().unwrap_or(0)
    };
    let begun = Instant::now();
    // What is complete writes no more lines, however long it is waited for.
    let mut over = false;
    while count() < lines && !over {
        assert!(begun.elapsed() < Duration::from_secs(120), "neither {lines} lines nor complete");
        over = complete(state).exists();
        std::thread::yield_now();
    }
    let there = count() >= lines;
    child.kill().unwrap();
    let _ = fs::remove_file(complete(state));
    assert_eq!(child.wait().unwrap().signal(), Some(9), "it must not end by itself");
    if !there {
        // The last one, complete and running, is put right too.
        assert!(recover(state).unwrap().iter().all(backwater_undo::Recovered::is_complete));
    }
    there
}

#[test]
fn a_network_is_made_narrowed_widened_and_gone() {
    if !root("a_network_is_made_narrowed_widened_and_gone") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    let network = Network::create(&journal).unwrap();
    let (here, there) = (network.primary().clone(), network.standby().clone());
    let inside = |end: &NetworkEnd| Some(end.namespace.clone());
    let listener = within(inside(&there).as_deref(), || TcpListener::bind((there.address, 0))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    within(inside(&here).as_deref(), || TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap().unwrap();
    assert!(TcpStream::connect_timeout(&to, Duration::from_millis(200)).is_err(), "reached from outside");
    let shaper = || tool::run("tc", &["-n", &here.namespace, "qdisc", "show", "dev", "link0"]).unwrap();
    assert!(network.narrow(1_000, Narrow::Ends).unwrap_err().to_string().contains("at least"));
    network.narrow(3_000_000, Narrow::Ends).unwrap();
    assert!(shaper().contains("tbf") && shaper().contains("24Mbit"), "{}", shaper());
    // Another rate takes the place of the one before.
    network.narrow(6_000_000, Narrow::Ends).unwrap();
    assert!(shaper().contains("48Mbit"), "{}", shaper());
    network.widen().unwrap();
    network.widen().unwrap();
    assert!(!shaper().contains("tbf"), "{}", shaper());
    journal.finish().unwrap();
    for end in [here, there] {
        assert!(!Path::new("/run/netns").join(end.namespace).exists());
    }
}

#[test]
fn a_network_with_a_switch_is_narrow_at_one_place() {
    if !root("a_network_with_a_switch_is_narrow_at_one_place") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    let network = Network::create_switched(&journal).unwrap();
    let (here, there) = (network.primary().clone(), network.standby().clone());
    let listener = within(Some(&there.namespace), || TcpListener::bind((there.address, 0))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    within(Some(&here.namespace), || TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap().unwrap();
    let at_server = || tool::run("tc", &["-n", &here.namespace, "qdisc", "show", "dev", "link0"]).unwrap();
    for place in [Narrow::Switch, Narrow::Ends] {
        network.narrow(3_000_000, place).unwrap();
        assert_eq!(at_server().contains("tbf"), place == Narrow::Ends);
        let before = network.wire_bytes().unwrap().unwrap();
        within(Some(&here.namespace), || TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap().unwrap();
        assert!(network.wire_bytes().unwrap().unwrap() > before);
    }
    network.widen().unwrap();
    assert_eq!(network.wire_bytes().unwrap(), None);
    journal.finish().unwrap();
}
