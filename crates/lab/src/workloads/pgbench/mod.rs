//! pgbench itself as the load, for those who want its figures and no others: run as a program, followed by its
//! progress lines, measured by its log of transactions.

mod lines;

use super::driver::config;
use super::{Counters, LoadResult, LoadSpec, WorkloadError};
use crate::servers::Installed;
use crate::servers::process::{clean, last_lines, signal, wait_for_end};
use lines::{Logged, Progress};
use std::fs::{DirBuilder, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_postgres::config::Host;

/// How often the caller's wish to stop is looked at; that pgbench ended is seen at once.
const CANCEL_LOOK: Duration = Duration::from_millis(50);
/// How long pgbench may take to stop, beyond its time or after it was told to.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// What the names of its log files begin with.
const LOG_PREFIX: &str = "pgbench-transactions";

/// pgbench on this machine.
#[derive(Clone, Debug)]
pub struct Pgbench {
    program: PathBuf,
    work_dir: PathBuf,
}

impl Pgbench {
    /// The pgbench that came with this server, else the one in `PATH`.
    pub fn find(installed: &Installed) -> Result<Pgbench, WorkloadError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(installed.bin_dir.clone()).chain(std::env::split_paths(&path));
        let program = dirs.map(|dir| dir.join("pgbench")).find(|program| program.is_file()).ok_or_else(|| {
            let places = installed.bin_dir.display();
            WorkloadError::Pgbench(format!(
                "there is none in {places} nor in PATH. Install it (`apt-get install postgresql`), or use kind = \"tpcb\", \
                 which needs none"
            ))
        })?;
        Ok(Pgbench { program, work_dir: crate::servers::temporary_dir() })
    }

    /// Puts its log of transactions, removed at the end, into this directory instead of the temporary one.
    pub fn work_in(self, work_dir: PathBuf) -> Pgbench {
        Pgbench { work_dir, ..self }
    }

    /// Runs it: its default script, on data made by [`initialise`](super::initialise) or by `pgbench -i`, or another with
    /// `scale` as `:scale`. Starts are spread as [`Arrivals::Poisson`](super::Arrivals) whatever `spec` says, for that is
    /// what it has. What was under way at the end is finished, not cancelled; starts that nobody got round to are not told.
    pub fn run(
        &self,
        conninfo: &str,
        script: Option<&Path>,
        scale: u32,
        spec: &LoadSpec,
        counters: &Counters,
        cancel: &AtomicBool,
    ) -> Result<LoadResult, WorkloadError> {
        let logs = Logs::new(&self.work_dir)?;
        let mut command = self.command(conninfo, spec, &logs)?;
        if let Some(script) = script {
            let fail = |source| WorkloadError::Read { path: script.to_path_buf(), source };
            command.arg(format!("--scale={scale}")).arg("-f").arg(std::fs::canonicalize(script).map_err(fail)?);
        }
        let began = SystemTime::now();
        let (success, said) = self.carry_out(&mut command, spec, counters, cancel)?;
        if !success {
            return Err(WorkloadError::Pgbench(format!("it failed:\n{}", last_lines(&said))));
        }
        let per_second = vec![0; spec.duration.as_secs() as usize];
        let seconds = spec.duration.as_secs_f64();
        let mut result = LoadResult { offered_per_s: spec.rate_per_s, seconds, per_second, ..LoadResult::default() };
        let from_us = (began + spec.warmup).duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        logs.read(from_us, spec.duration, &mut result)?;
        Ok(result)
    }

    /// Runs the command to its end; whether it was successful, and what it said.
    fn carry_out(
        &self,
        command: &mut Command,
        spec: &LoadSpec,
        counters: &Counters,
        cancel: &AtomicBool,
    ) -> Result<(bool, String), WorkloadError> {
        let fail = |error| WorkloadError::Pgbench(format!("cannot start {}: {error}", self.program.display()));
        let mut child = command.spawn().map_err(fail)?;
        let said = child.stderr.take();
        let longest = spec.warmup + spec.duration + STOP_WITHIN;
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| follow(said, counters));
            let success = watch(&mut child, longest, cancel)?;
            Ok((success, follower.join().unwrap_or_default()))
        })
    }

    fn command(&self, conninfo: &str, spec: &LoadSpec, logs: &Logs) -> Result<Command, WorkloadError> {
        let mut command = clean(&self.program);
        connect_by_environment(&mut command, conninfo)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(spec.clients);
        let seconds = (spec.warmup + spec.duration).as_secs_f64().ceil();
        command
            .args(["-n", "-M", "prepared", "--progress=1", "--log", "--log-prefix", LOG_PREFIX])
            .arg(format!("--client={}", spec.clients))
            .arg(format!("--jobs={threads}"))
            .arg(format!("--time={seconds}"))
            .arg(format!("--random-seed={}", spec.seed))
            .args(spec.rate_per_s.map(|rate| format!("--rate={rate}")))
            .current_dir(&logs.0)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(command)
    }
}

/// Connection parameters go into the environment: arguments are there for everybody to read.
fn connect_by_environment(command: &mut Command, conninfo: &str) -> Result<(), WorkloadError> {
    let config = config(conninfo)?;
    match config.get_hosts().first() {
        Some(Host::Tcp(host)) => drop(command.env("PGHOST", host)),
        Some(Host::Unix(path)) => drop(command.env("PGHOST", path)),
        None => {}
    }
    if let Some(port) = config.get_ports().first() {
        command.env("PGPORT", port.to_string());
    }
    for (name, value) in [("PGUSER", config.get_user()), ("PGDATABASE", config.get_dbname())] {
        command.envs(value.map(|value| (name, value)));
    }
    if let Some(password) = config.get_password() {
        command.env("PGPASSWORD", String::from_utf8_lossy(password).as_ref());
    }
    Ok(())
}

/// Waits for pgbench to end, and ends it when the caller wishes; whether it was successful.
fn watch(child: &mut Child, longest: Duration, cancel: &AtomicBool) -> Result<bool, WorkloadError> {
    let fail = |error: crate::servers::ServerError| WorkloadError::Pgbench(error.to_string());
    let deadline = std::time::Instant::now() + longest;
    loop {
        if let Some(status) = wait_for_end(child, CANCEL_LOOK).map_err(fail)? {
            return Ok(status.success());
        }
        let cancelled = cancel.load(Ordering::Relaxed);
        if cancelled || std::time::Instant::now() > deadline {
            signal(child, rustix::process::Signal::KILL);
            wait_for_end(child, STOP_WITHIN).map_err(fail)?;
            let late = || WorkloadError::Pgbench(format!("it did not end within {:.0} s", longest.as_secs_f64()));
            return Err(if cancelled { WorkloadError::Cancelled } else { late() });
        }
    }
}

/// Reads its progress into the counters; returns what else it said.
fn follow(said: Option<ChildStderr>, counters: &Counters) -> String {
    let mut other = String::new();
    let Some(said) = said else { return other };
    let mut before_s = 0.0;
    for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        match Progress::parse(&line) {
            Some(progress) => before_s = progress.count(before_s, counters),
            None => other = format!("{other}{line}\n"),
        }
    }
    other
}

/// The directory of its logs of transactions, one a thread; removed when this is dropped.
struct Logs(PathBuf);

impl Logs {
    fn new(work_dir: &Path) -> Result<Self, WorkloadError> {
        let path = work_dir.join(format!("backwater-pgbench-{:08x}", rand::random::<u32>()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| WorkloadError::Pgbench(format!("cannot make {} for its log: {error}", path.display())))?;
        Ok(Logs(path))
    }

    fn read(&self, from_us: u64, duration: Duration, result: &mut LoadResult) -> Result<(), WorkloadError> {
        let fail = |source| WorkloadError::Read { path: self.0.clone(), source };
        for entry in std::fs::read_dir(&self.0).map_err(fail)? {
            let file = File::open(entry.map_err(fail)?.path()).map_err(fail)?;
            for line in BufReader::new(file).split(b'\n') {
                if let Some(logged) = Logged::parse(&String::from_utf8_lossy(&line.map_err(fail)?)) {
                    logged.count(from_us, duration, result);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove the log of pgbench");
        }
    }
}
