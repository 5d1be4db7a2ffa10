//! Format, lints, style and tests. A test that cannot run here says `skipped: NAME: REASON`; as root that is a
//! failure, because there everything can run; but for what the hardware itself rules out, which says
//! `cannot run on this machine: NAME: REASON` and is told at the end.

use crate::{driver, fuzz, page, promtool, run, tidy};
use anyhow::{Context, anyhow, bail};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

/// Commands and files that tests of the host need, and the Debian package of each.
const TOOLS: &[(&str, &str)] = &[
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("linux.uml", "user-mode-linux"),
    // Its loop devices are a module.
    ("insmod", "kmod"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("chromium", "chromium"),
    (driver::HEADER, "libwiredtiger-dev"),
    // A server for the tests that take the one that is installed, and its clients.
    ("initdb", "postgresql"),
    ("psql", "postgresql-client"),
    // libFuzzer is C++.
    ("c++", "g++"),
    // A terminal for the view that is shown on one.
    ("tmux", "tmux"),
];

pub(crate) fn all() -> anyhow::Result<()> {
    run::step("format", "cargo", &["fmt", "--all", "--check"])?;
    tidy::check()?;
    install_tools()?;
    driver::lints()?;
    tests_beside(&lints)
}

/// Clippy, in what tests leave of the processors: in a directory of its own, since cargo lets nobody else build in the one that
/// it is in.
fn lints(tally: &mut Tally) -> anyhow::Result<bool> {
    let clippy = ["cargo", "clippy", "--quiet", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    let [beside, arguments @ ..] = run::BESIDE;
    let arguments = [arguments.as_slice(), &clippy].concat();
    let found = run::output(beside, &arguments, &[("CARGO_TARGET_DIR", "target/lints")]);
    Ok(is_well(tally, "lints", &found))
}

/// Says how something beside the tests went, which go on whatever it came to.
fn is_well<T>(tally: &mut Tally, what: &str, came_to: &anyhow::Result<T>) -> bool {
    match came_to {
        Ok(_) => run::say(&format!("{what}: all well")),
        Err(error) => tally.went_wrong(&format!("{what}: {error:#}")),
    }
    came_to.is_ok()
}

/// What every major version of the server must pass, the probe's tests and one of attach (and the oldest and the newest, one of how
/// long WAL is kept); the rest run on one version. Most of their time is waiting, so that more of them than processors run at once,
/// in two sets that take about as long.
const ON_EVERY_MAJOR: [&[&str]; 2] = [
    OF_THE_PROBE,
    &["rows_of_a_query_are_counted_from_outside", "a_size_is_counted_down_to_the_checkpoint_that_removes"],
];

const OF_THE_PROBE: &[&str] = &[
    "sessions_locks_and_counters",
    "a_look_tells_the_same_by_the_socket_and_by_the_network",
    "log_lines_become_events",
    "a_role_without_pg_monitor_sees_less_and_is_told_so",
    "resets_begin_an_epoch_of_their_view_alone",
    "a_standby_is_seen_from_both_ends",
    "every_hop_is_told_through_pause_conflict_restart_and_promotion",
    "a_primary_is_asked_once_a_checkpoint",
    "a_commit_that_waits_for_a_standby",
    "a_slot_that_falls_behind_is_lost_and_one_that_is_dropped_ends",
    "a_commit_that_is_delayed_on_purpose",
    "archived_positions_and_writes_of_wal",
    "beats_are_answered_missed_and_answered_again",
];

/// The lab's own list of the servers that it downloads.
const BUILDS: &str = include_str!("../../lab/src/servers/builds.rs");

/// Tests that take minutes, mostly of waiting: for processes that are killed one after the other, for a small machine of
/// their own, for a peer that is gone and answers nothing, for a browser; and those for which others must have downloaded a server of a
/// newer version than the installed one. They run last, beside those of every major version,
/// which wait for servers, in two sets that take about as long: what changes this host and puts it right, and all else.
const LONG: [&[&str]; 2] = [
    &[
        "a_killed_run_is_put_right_by_clean",
        "a_killed_run_of_two_servers_in_namespaces_is_put_right_by_clean",
        "a_run_killed_with_its_namespaces_cable_or_caps_in_force_is_put_right_by_clean",
        "loop_devices_mounts_rules_and_groups",
        "one_run_does_not_undo_another",
        "files_values_and_processes",
    ],
    &[
        "the_page_works_in_a_browser",
        "limits_of_cgroup_v2_are_read_where_they_hold",
        "a_peer_that_vanished_is_let_go_after_a_minute",
        "a_server_that_vanished_is_given_up_after_a_minute",
        "a_shard_that_is_unlike_its_siblings_stands_out_behind_a_router",
        "a_rate_of_wal_is_that_of_who_writes_in_attach_mode",
        "a_rate_of_wal_is_that_of_who_writes_through_the_proxy",
        "a_batch_that_wrote_too_much_in_one_go_is_cancelled_in_attach_mode",
        "a_batch_that_wrote_too_much_in_one_go_is_cancelled_through_the_proxy",
        "a_statement_is_cancelled_by_a_long_key",
    ],
];

/// Every fuzz target has a minute, in what tests leave of the processors.
const FUZZED_FOR_S: u64 = 60;
const FUZZED_AT_ONCE: usize = 4;

pub(crate) fn tests() -> anyhow::Result<()> {
    install_tools()?;
    tests_beside(&|_| Ok(true))
}

/// All tests, and something else beside those that are not long.
fn tests_beside(other: Tests<'_>) -> anyhow::Result<()> {
    let mut tally = Tally::default();
    tally.skipped.extend(page::check()?);
    let promtool = promtool::find()?;
    run::step("build", "cargo", &["build", "--workspace", "--bins", "--examples", "--locked"])?;
    let driver = driver::possible().then(driver::build).transpose()?;
    let promtool = promtool.as_ref().map(|path| path.display().to_string());
    let of_driver = driver.as_deref().map(|path| ("BACKWATER_WT_DRIVER", path));
    let of_promtool = promtool.as_deref().map(|path| ("BACKWATER_PROMTOOL", path));
    let variables: Vec<(&str, &str)> = of_driver.into_iter().chain(of_promtool).collect();
    run::step("build of the tests", "cargo", &["test", "--workspace", "--locked", "--no-run", "--quiet"])?;
    let mut most = vec!["test", "--workspace", "--locked", "--no-fail-fast", "--", "--show-output"];
    most.extend(LONG.concat().into_iter().flat_map(|name| ["--skip", name]));
    let short = |tally: &mut Tally| {
        let mut passed = cargo_test(tally, &most, &variables)?;
        if driver.is_some() {
            passed &= cargo_test(tally, &driver::tests(), &[])?;
        }
        Ok(passed)
    };
    let mut passed = at_once(&mut tally, [&short, &fuzzed, other]);
    let [probe, attach] = ON_EVERY_MAJOR.map(on_every_major);
    passed &= at_once(&mut tally, [&long(LONG[0]), &long(LONG[1]), &probe, &attach]);
    tally.told(passed)
}

fn fuzzed(tally: &mut Tally) -> anyhow::Result<bool> {
    if !on_path("c++") {
        tally.skipped.push("the fuzz targets: need c++ (g++)".to_owned());
        return Ok(true);
    }
    // Else the tests could wait for this build, which gives way to everything.
    TESTS_RUN.wait();
    let fuzzed = fuzz::build().and_then(|fuzzer| {
        run::say("fuzz targets");
        fuzzer.beside_others().run(None, FUZZED_FOR_S, FUZZED_AT_ONCE)?.stood()
    });
    Ok(is_well(tally, "fuzz targets", &fuzzed))
}

/// Set once tests run, or could not.
static TESTS_RUN: OnceLock<()> = OnceLock::new();

type Tests<'a> = &'a (dyn Fn(&mut Tally) -> anyhow::Result<bool> + Sync);

/// Runs sets of tests side by side. Whether all passed: one that could not run is said, and what the others came to is kept.
fn at_once<const N: usize>(tally: &mut Tally, sets: [Tests<'_>; N]) -> bool {
    let mut tallies = [(); N].map(|()| Tally::default());
    let results = std::thread::scope(|scope| {
        let running = sets.into_iter().zip(&mut tallies).map(|(tests, tally)| scope.spawn(move || tests(tally)));
        running.collect::<Vec<_>>().into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    tallies.into_iter().for_each(|part| tally.add(part));
    let mut passed = true;
    for result in results {
        let result = result.map_err(|_| anyhow!("a thread that ran tests panicked")).flatten();
        passed &= result.unwrap_or_else(|error| {
            tally.went_wrong(&format!("a set of tests: {error:#}"));
            false
        });
    }
    passed
}

/// Only these tests, and what else is said to them. Of all tests of the workspace: for one file of them, or one package,
/// features differ, and what is built already is built again.
fn only<'a>(names: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    let all = ["test", "--workspace", "--tests", "--locked", "--no-fail-fast", "--", "--show-output", "--exact"];
    [&all, more, names].concat()
}

fn long(names: &'static [&str]) -> impl Fn(&mut Tally) -> anyhow::Result<bool> + Sync {
    move |tally| {
        let passed = cargo_test(tally, &only(names, &[]), &[])?;
        all_ran(tally, names, passed)
    }
}

/// None of these tests may be missed because it has another name now.
fn all_ran(tally: &Tally, names: &[&str], passed: bool) -> anyhow::Result<bool> {
    if passed && tally.passed != names.len() as u64 {
        bail!("{} of the {} tests {} ran: was one renamed?", tally.passed, names.len(), names.join(", "));
    }
    Ok(passed)
}

/// Runs these tests on every server that the lab's tests have downloaded.
fn on_every_major(names: &'static [&str]) -> impl Fn(&mut Tally) -> anyhow::Result<bool> + Sync {
    move |tally| {
        let servers = downloaded();
        if servers.is_empty() {
            let cache = cache_dir().display().to_string();
            tally.skipped.push(format!("tests on every major version: needs downloaded servers in {cache}"));
            return Ok(true);
        }
        let missing = missing(&servers);
        if !missing.is_empty() {
            bail!("tests on every major version: not downloaded: {}", missing.join(", "));
        }
        let arguments = only(names, &["--test-threads=4"]);
        let passed = cargo_test(tally, &arguments, &[("BACKWATER_PG_BINS", &servers.join(":"))])?;
        all_ran(tally, names, passed)
    }
}

/// Where the lab keeps the servers that it downloads: `cache_dir` of crates/lab/src/servers/download.rs.
fn cache_dir() -> PathBuf {
    if is_root().unwrap_or(false) {
        return PathBuf::from("/var/cache/backwater");
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    home.unwrap_or_else(std::env::temp_dir).join("backwater")
}

/// Directories of the programs of every downloaded server, the oldest first.
fn downloaded() -> Vec<String> {
    let entries = std::fs::read_dir(cache_dir()).into_iter().flatten().flatten();
    let bins = entries.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("postgres").exists());
    let mut bins: Vec<String> = bins.map(|bin| bin.display().to_string()).collect();
    bins.sort();
    bins
}

/// The pinned builds for this machine's processor that are not among these directories.
fn missing(servers: &[String]) -> Vec<String> {
    let architecture = if cfg!(target_arch = "aarch64") { "ARM64" } else { "AMD64" };
    let version = |line: &str| {
        let (_, own) = line.trim().split_once("build(")?;
        let mut parts = own.split(", ");
        let version = parts.nth(1)?.trim_matches('"').to_owned();
        (parts.next()? == architecture).then_some(version)
    };
    let there = |version: &String| servers.iter().any(|bin| bin.contains(&format!("/postgresql-{version}-")));
    BUILDS.lines().filter_map(version).filter(|version| !there(version)).collect()
}

pub(crate) fn is_root() -> anyhow::Result<bool> {
    Ok(run::output("id", &["-u"], &[])?.trim() == "0")
}

/// Whether a command is there.
pub(crate) fn on_path(tool: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    // Debian keeps its PostgreSQL servers off everybody's PATH.
    let servers = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut servers = servers.map(|version| version.path().join("bin"));
    // An absolute path stays what it is.
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|dir| Path::new(dir).join(tool).exists())
        || servers.any(|dir| dir.join(tool).exists())
}

/// Installs the packages whose commands are missing, where this is root on Debian or Ubuntu.
fn install_tools() -> anyhow::Result<()> {
    let missing: Vec<_> = TOOLS.iter().filter(|(tool, _)| !on_path(tool)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root()? || !on_path("apt-get") {
        run::say(&format!(
            "not installed: {}; tests that need them will say that they are skipped",
            missing.join(", ")
        ));
        return Ok(());
    }
    run::step("package lists", "apt-get", &["update", "-qq"])?;
    let mut arguments = vec!["install", "-qq", "-y", "--no-install-recommends"];
    arguments.extend(&missing);
    run::step("packages that the tests need", "apt-get", &arguments)
}

/// What the lines of a test run say.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
    /// Tests of what this machine's hardware rules out, whoever runs them.
    impossible: Vec<String>,
    /// What failed tests said, to be told again at the end: a long log may be cut in its middle.
    last_words: Vec<String>,
    /// And what else went wrong.
    wrong: Vec<String>,
    /// The last that a test process said which has told no result yet.
    unfinished: Option<String>,
}

/// Lines of what failed tests said that are told again, and of anything else that went wrong.
const LAST_WORDS: usize = 200;
const WORDS_OF_OTHERS: usize = 40;

impl Tally {
    fn add(&mut self, mut other: Tally) {
        other.ended();
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.impossible.extend(other.impossible);
        self.last_words.extend(other.last_words);
        self.last_words.truncate(LAST_WORDS);
        self.wrong.extend(other.wrong);
    }

    /// Says what went wrong, now and at the end.
    fn went_wrong(&mut self, why: &str) {
        run::say(why);
        self.wrong.extend(why.lines().take(WORDS_OF_OTHERS).map(str::to_owned));
    }

    /// A test process has ended, or cargo: one that was killed told no result, and so no failed test.
    fn ended(&mut self) {
        if let Some(last) = self.unfinished.take() {
            self.went_wrong(&format!("a test process ended without a result; the last that it said: {last}"));
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(skipped) = line.trim_start().strip_prefix("skipped: ") {
            self.skipped.push(skipped.to_owned());
        }
        if let Some(impossible) = line.trim_start().strip_prefix("cannot run on this machine: ") {
            self.impossible.push(impossible.to_owned());
        }
        if begins_tests(line) {
            self.ended();
            self.unfinished = Some(line.to_owned());
        }
        if let Some(last) = self.unfinished.as_mut().filter(|_| line.starts_with("test ")) {
            line.clone_into(last);
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        self.unfinished = None;
        let number = |word: &str| {
            let before = result.split(word).next()?;
            before.split_whitespace().next_back()?.parse::<u64>().ok()
        };
        self.passed += number(" passed").unwrap_or(0);
        self.failed += number(" failed").unwrap_or(0);
    }

    /// Says how it went; an error where a test failed, or was skipped as root.
    #[allow(clippy::print_stdout)]
    fn told(&self, passed: bool) -> anyhow::Result<()> {
        for skipped in &self.skipped {
            println!("skipped: {skipped}");
        }
        for impossible in &self.impossible {
            println!("cannot run on this machine: {impossible}");
        }
        for line in self.last_words.iter().chain(&self.wrong) {
            println!("{line}");
        }
        let [skipped, impossible] = [&self.skipped, &self.impossible].map(Vec::len);
        println!(
            "{} passed, {} failed, {skipped} skipped, {impossible} that cannot run here",
            self.passed, self.failed
        );
        if !passed {
            bail!("tests failed");
        }
        if is_root()? && !self.skipped.is_empty() {
            bail!("as root nothing may be skipped");
        }
        Ok(())
    }
}

/// Whether this is what a test process says first: `running 7 tests`.
fn begins_tests(line: &str) -> bool {
    let rest = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test"));
    rest.is_some_and(|(number, end)| number.parse::<u64>().is_ok() && matches!(end, "" | "s"))
}

/// Runs tests, with these variables set, and adds what their lines say. Whether all passed.
fn cargo_test(tally: &mut Tally, arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<bool> {
    let passed = run_tests(tally, arguments, variables);
    TESTS_RUN.get_or_init(|| ());
    passed
}

#[allow(clippy::print_stdout)]
fn run_tests(tally: &mut Tally, arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<bool> {
    run::say(&format!("tests: cargo {}", arguments.join(" ")));
    let mut command = run::command("cargo")?;
    command.args(arguments).stdout(Stdio::piped());
    for (name, value) in variables {
        run::say(&format!("with {name}={value}"));
        command.env(name, value);
    }
    let mut child = command.spawn().context("cannot start cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let mut failing = false;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        tally.line(&line);
        if line.starts_with("running ") {
            TESTS_RUN.get_or_init(|| ());
        }
        failing = match line.as_str() {
            "failures:" => true,
            "successes:" => false,
            // The last word of these tests: what follows is of others.
            _ if line.starts_with("test result: ") => false,
            _ => failing,
        };
        if failing || line.starts_with("test ") || line.starts_with("running ") {
            println!("{line}");
        }
        if failing && tally.last_words.len() < LAST_WORDS {
            tally.last_words.push(line);
        }
    }
    tally.ended();
    let status = child.wait()?;
    if !status.success() {
        tally.went_wrong(&format!("cargo {}: {status}", arguments.join(" ")));
    }
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::{Tally, missing};

    #[test]
    fn a_test_process_that_was_killed_is_told_by_the_last_that_it_said() {
        let mut tally = Tally::default();
        let said = ["running 2 tests", "test a ... ok", "running 1 test", "test b ... ok"];
        said.iter().for_each(|line| tally.line(line));
        tally.line("test result: ok. 1 passed; 0 failed; 0 ignored");
        tally.ended();
        assert_eq!((tally.passed, tally.wrong.len()), (1, 1), "{:?}", tally.wrong);
        assert!(tally.wrong[0].ends_with("test a ... ok"), "{:?}", tally.wrong);
    }

    #[test]
    fn a_server_that_is_not_downloaded_is_missed() {
        let all = missing(&[]);
        assert!(all.len() >= 4 && all.iter().any(|version| version.starts_with("18.")), "{all:?}");
        let bins: Vec<String> = all.iter().map(|version| format!("/c/postgresql-{version}-linux-amd64/bin")).collect();
        assert_eq!(missing(&bins), Vec::<String>::new());
        assert_eq!(missing(&bins[1..]), all[..1]);
    }
}
