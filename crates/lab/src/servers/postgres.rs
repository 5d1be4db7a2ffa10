//! A PostgreSQL server that the lab makes, runs and ends.
//!
//! It is reached by a Unix socket in a directory that only its own user (and root) may enter, so local connections
//! need no password. With a port it also listens on 127.0.0.1, where a random password is asked for: on a shared
//! machine everybody reaches loopback. In a network of the lab's own it listens there instead, for its standby, without
//! a password: nobody else is in that network.

use super::process::{self, signal, wait_for_end};
use super::{Installed, ServerError, copy, initdb, place, settings};
use crate::limits::NetworkEnd;
use backwater_undo::{Entry, Journal, Stop, UndoError};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The port in the socket's name where none is given.
const DEFAULT_PORT: u16 = 5432;
/// A server that replays WAL on a capped disk needs long.
const START_WITHIN: Duration = Duration::from_secs(120);
/// A fast shutdown writes a checkpoint, perhaps to a capped disk.
const STOP_FAST_WITHIN: Duration = Duration::from_secs(60);
const STOP_NOW_WITHIN: Duration = Duration::from_secs(10);
/// How often the server's own word on being ready is looked at. That it ended is seen at once.
const READY_LOOK: Duration = Duration::from_millis(10);

/// What server to make.
#[derive(Clone, Debug)]
pub struct PostgresSpec {
    /// Whose programs.
    pub installed: Installed,
    /// Where its data go: absent, or an empty directory.
    pub data_dir: PathBuf,
    /// Where its WAL goes, if elsewhere.
    pub wal_dir: Option<PathBuf>,
    /// The user and group that it runs as. None for this process's own; as root, for an ordinary one
    /// ([`ordinary_user`](super::ordinary_user)).
    pub user: Option<(u32, u32)>,
    /// Settings, as in `postgresql.conf`.
    pub settings: BTreeMap<String, String>,
    /// A port on 127.0.0.1; none to be reached by its socket only.
    pub port: Option<u16>,
    /// The port in its socket's name where it has none on 127.0.0.1; none for the usual. Servers that are watched
    /// together are told apart by it.
    pub socket_port: Option<u16>,
    /// The end of a network of the lab's own that it lives in; none for the host's network.
    pub network: Option<NetworkEnd>,
}

impl PostgresSpec {
    fn port(&self) -> u16 {
        self.port.or(self.socket_port).unwrap_or(DEFAULT_PORT)
    }
}

/// A server, running or not. Dropping it stops it at once; its directories go when the journal is finished.
#[derive(Debug)]
pub struct Postgres {
    spec: PostgresSpec,
    run_dir: PathBuf,
    password: Option<String>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    entry: Entry,
}

impl Postgres {
    /// Makes the data directory (`initdb`), with nothing running yet.
    pub fn create(journal: &Journal, spec: PostgresSpec) -> Result<Postgres, ServerError> {
        let server = Self::place(journal, spec)?;
        initdb::run(journal, &server.spec, &server.run_dir, server.password.as_deref())?;
        Ok(server)
    }

    /// Makes a standby of a server that does not run: a copy of its files. Its settings must say where the primary is
    /// ([`address_for_standby`](Self::address_for_standby)).
    pub fn standby_of(primary: &Postgres, journal: &Journal, spec: PostgresSpec) -> Result<Postgres, ServerError> {
        let server = Self::place(journal, spec)?;
        copy::standby(&primary.spec, &server.spec)?;
        Ok(server)
    }

    /// Makes this standby anew from the primary. Neither may run.
    pub fn copy_again(&mut self, primary: &Postgres) -> Result<(), ServerError> {
        copy::standby(&primary.spec, &self.spec)
    }

    /// Its directories, empty, and its password.
    fn place(journal: &Journal, mut spec: PostgresSpec) -> Result<Postgres, ServerError> {
        if spec.user.is_none() {
            spec.user = process::ordinary_user()?;
        }
        let dirs = [Some(&spec.data_dir), spec.wal_dir.as_ref()];
        for path in dirs.iter().copied().flatten().chain([&spec.installed.program("initdb")]) {
            place::reachable(path, spec.user)?;
        }
        let run_dir = place::run_dir(journal, spec.port(), spec.user)?;
        for path in dirs.iter().copied().flatten() {
            place::private(journal, path, spec.user)?;
        }
        let password = spec.port.map(|_| format!("{:032x}", rand::random::<u128>()));
        Ok(Postgres { spec, run_dir, password, running: None })
    }

    /// Starts it and waits until it takes connections.
    pub fn start(&mut self, journal: &Journal) -> Result<(), ServerError> {
        if self.is_running() {
            return Ok(());
        }
        self.write_settings()?;
        self.check_port()?;
        let log = self.open_log()?;
        let log_start = log.metadata().map_err(ServerError::file("look at", self.log_path()))?.len();
        let again = log.try_clone().map_err(ServerError::file("open", self.log_path()))?;
        let program = self.spec.installed.program("postgres");
        let mut command = process::clean(&program);
        process::as_user(&mut command, self.spec.user);
        command.arg("-D").arg(&self.spec.data_dir).stdout(Stdio::from(log)).stderr(Stdio::from(again));
        let namespace = self.spec.network.as_ref().map(|end| end.namespace.as_str());
        let spawn = || journal.spawn(&mut command, "the lab's PostgreSQL server", Stop::Quit);
        let started = process::within(namespace, spawn)?;
        let (child, entry) = started.map_err(|error| program_error(error, &program))?;
        self.running = Some(Running { child, entry });
        let ready = self.wait_until_ready(log_start);
        if ready.is_err() {
            self.stop_now();
            self.forget(journal);
        }
        ready
    }

    /// Stops it if it runs, and starts it with these settings in place of the earlier ones.
    pub fn restart(&mut self, journal: &Journal, settings: &BTreeMap<String, String>) -> Result<(), ServerError> {
        self.stop()?;
        self.forget(journal);
        self.spec.settings = settings.clone();
        self.start(journal)
    }

    /// Makes these its settings: restarts it if it runs with others, starts it if it does not run.
    pub fn configure(&mut self, journal: &Journal, settings: &BTreeMap<String, String>) -> Result<(), ServerError> {
        if self.runs_with(settings) { Ok(()) } else { self.restart(journal, settings) }
    }

    /// Whether it runs, and with these settings.
    pub fn runs_with(&mut self, settings: &BTreeMap<String, String>) -> bool {
        self.is_running() && self.spec.settings == *settings
    }

    /// Stops it: sessions are ended and a checkpoint is written; if that takes longer than a minute, at once.
    pub fn stop(&mut self) -> Result<(), ServerError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        signal(&running.child, Signal::INT);
        if wait_for_end(&mut running.child, STOP_FAST_WITHIN)?.is_none() {
            tracing::warn!(data_dir = %self.spec.data_dir.display(), "the server does not stop: it is ended at once");
        }
        self.stop_now();
        Ok(())
    }

    /// Ends it at once; it will replay its WAL if it is started again.
    pub fn stop_now(&mut self) {
        let Some(running) = &mut self.running else { return };
        for end in [Signal::QUIT, Signal::KILL] {
            if matches!(running.child.try_wait(), Ok(Some(_))) {
                return;
            }
            signal(&running.child, end);
            if let Err(error) = wait_for_end(&mut running.child, STOP_NOW_WITHIN) {
                tracing::warn!(%error, "cannot wait for the server to end");
            }
        }
    }

    /// Whether its process lives.
    pub fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| matches!(running.child.try_wait(), Ok(None)))
    }

    /// Its process id; none where it was not started.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// How to connect to it: a libpq connection string without a password.
    pub fn conninfo(&self) -> String {
        format!("host={} port={} user=postgres dbname=postgres", quoted(&self.run_dir), self.port())
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.run_dir.join(format!(".s.PGSQL.{}", self.port()))
    }

    /// How a standby connects to it: by the lab's own network where it lives in one, else by its socket.
    pub fn address_for_standby(&self) -> String {
        match &self.spec.network {
            Some(end) => format!("host={} port={} user=postgres", end.address, self.port()),
            None => format!("host={} port={} user=postgres", quoted(&self.run_dir), self.port()),
        }
    }

    /// The password of user `postgres` on 127.0.0.1, where it has a port.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Its log.
    pub fn log_path(&self) -> PathBuf {
        self.run_dir.join("postgres.log")
    }

    /// Its data directory.
    pub fn data_dir(&self) -> &Path {
        &self.spec.data_dir
    }

    /// Whose programs it runs.
    pub fn installed(&self) -> &Installed {
        &self.spec.installed
    }

    /// Reads the files of all tables and indexes, so that they are in the page cache. Returns how many bytes.
    pub fn read_into_page_cache(&self) -> Result<u64, ServerError> {
        let base = self.spec.data_dir.join("base");
        let mut bytes = 0;
        for database in std::fs::read_dir(&base).map_err(ServerError::file("read", &base))?.flatten() {
            let path = database.path();
            for file in std::fs::read_dir(&path).map_err(ServerError::file("read", &path))?.flatten() {
                // A file may go at any time: temporary tables, dropped ones.
                let Ok(mut open) = File::open(file.path()) else { continue };
                bytes +=
                    std::io::copy(&mut open, &mut std::io::sink()).map_err(ServerError::file("read", file.path()))?;
            }
        }
        Ok(bytes)
    }

    fn port(&self) -> u16 {
        self.spec.port()
    }

    fn write_settings(&self) -> Result<(), ServerError> {
        let text =
            settings::render(&self.spec.settings, &self.run_dir.display().to_string(), self.port(), &self.listens())?;
        initdb::write_owned(&self.spec.data_dir.join(settings::FILE), &text, self.spec.user)
    }

    /// Where it listens beside its socket.
    fn listens(&self) -> String {
        match (&self.spec.network, self.spec.port) {
            (Some(end), _) => end.address.to_string(),
            (None, Some(_)) => "127.0.0.1".to_owned(),
            (None, None) => String::new(),
        }
    }

    /// That a port is taken is better known before the server is started than read out of its log.
    fn check_port(&self) -> Result<(), ServerError> {
        let Some(port) = self.spec.port else { return Ok(()) };
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(ServerError::PortInUse { port }),
            Err(source) => Err(ServerError::System { call: "bind", source }),
        }
    }

    fn open_log(&self) -> Result<File, ServerError> {
        let path = self.log_path();
        OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(ServerError::file("open", &path))
    }

    fn wait_until_ready(&mut self, log_start: u64) -> Result<(), ServerError> {
        let (log, data_dir) = (self.log_path(), self.spec.data_dir.clone());
        let Some(running) = &mut self.running else { return Ok(()) };
        let began = Instant::now();
        loop {
            if let Some(status) = wait_for_end(&mut running.child, READY_LOOK)? {
                let tail = process::tail(&log, log_start);
                return Err(match self.spec.port {
                    Some(port) if tail.contains("Address already in use") => ServerError::PortInUse { port },
                    _ => ServerError::Died { data_dir, status: status.to_string(), log, tail },
                });
            }
            let pid_file = std::fs::read_to_string(data_dir.join("postmaster.pid")).unwrap_or_default();
            if is_ready(&pid_file, running.child.id()) {
                return Ok(());
            }
            if began.elapsed() > START_WITHIN {
                let tail = process::tail(&log, log_start);
                return Err(ServerError::NotReady { data_dir, seconds: START_WITHIN.as_secs_f64(), log, tail });
            }
        }
    }

    /// Forgets a server that has ended, in the journal too.
    fn forget(&mut self, journal: &Journal) {
        if let Some(running) = self.running.take()
            && let Err(error) = journal.undo(running.entry)
        {
            tracing::warn!(%error, "a stopped server stays in the journal");
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop_now();
    }
}

/// Whether this text of `postmaster.pid` is of this process and its eighth line says that it takes connections.
fn is_ready(pid_file: &str, pid: u32) -> bool {
    let mut lines = pid_file.lines();
    lines.next().is_some_and(|line| line.trim() == pid.to_string())
        && lines.nth(6).is_some_and(|line| line.trim() == "ready")
}

/// A value of a libpq connection string.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if plain { text } else { format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'")) }
}

/// A program that cannot be started is told as such, with what to do about it.
pub(crate) fn program_error(error: UndoError, program: &Path) -> ServerError {
    match error {
        UndoError::Spawn { source, .. } => ServerError::Program { program: program.to_path_buf(), source },
        other => ServerError::Journal(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ready_is_said_in_the_eighth_line_by_the_right_process() {
        let text = "42\n/data\n1700000000\n5432\n/run\n\n  1 2\nready   \n";
        assert!(is_ready(text, 42));
        assert!(!is_ready(text, 43));
        assert!(!is_ready(&text.replace("ready", "starting"), 42));
        assert!(!is_ready("42\n", 42));
    }

    #[test]
    fn odd_paths_are_quoted() {
        assert_eq!(quoted(Path::new("/tmp/backwater-1")), "/tmp/backwater-1");
        assert_eq!(quoted(Path::new(r"/a b/it's\")), r"'/a b/it\'s\\'");
    }

    proptest! {
        #[test]
        fn any_pid_file_is_survived(text in ".*") {
            let _ = is_ready(&text, 1);
        }
    }
}
