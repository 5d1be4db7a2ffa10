//! A real PostgreSQL in a temporary directory, reached by TCP with a password and by its socket without, and the
//! programs that come with it. Tests of other crates use it too.
#![allow(unreachable_pub, dead_code)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
pub const PASSWORD: &str = "right";

/// The directory of the newest server: BACKWATER_PG_BIN, an installed one, or the one on PATH.
fn installed() -> Option<PathBuf> {
    let usable = |dir: &PathBuf| dir.join("postgres").exists() && dir.join("initdb").exists();
    if let Some(dir) = std::env::var_os("BACKWATER_PG_BIN") {
        return Some(PathBuf::from(dir)).filter(usable);
    }
    let majors = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = majors.map(|major| major.path().join("bin")).filter(usable).collect();
    dirs.sort();
    dirs.pop().or_else(|| std::env::split_paths(&std::env::var_os("PATH")?).find(usable))
}

pub fn on_path(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(program).exists())
}

/// Runs a test on a server, if there are one and its clients.
pub fn with_server(name: &str, settings: &[&str], test: impl FnOnce(&mut Server)) {
    match installed() {
        Some(bin) if on_path("psql") && on_path("pgbench") => test(&mut Server::start(&bin, settings)),
        _ => eprintln!("skipped: {name}: needs PostgreSQL (postgres, initdb, psql, pgbench)"),
    }
}

/// Runs a test on every server that BACKWATER_PG_BINS names (directories, separated by colons), or on the one that there is.
pub fn with_each_server(name: &str, test: impl Fn(&mut Server)) {
    let Some(list) = std::env::var_os("BACKWATER_PG_BINS") else { return with_server(name, &[], test) };
    if !on_path("psql") {
        return eprintln!("skipped: {name}: needs psql");
    }
    for bin in std::env::split_paths(&list) {
        eprintln!("{name}: {}", bin.display());
        test(&mut Server::start(&bin, &[]));
    }
}

/// Whom the server runs as: `postgres` or `nobody` where the tests run as root, since initdb refuses root.
fn ordinary_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let text = std::fs::read_to_string("/etc/passwd").unwrap();
    let entry = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let fields: Vec<_> = line.split(':').collect();
        Some((fields[2].parse().ok()?, fields[3].parse().ok()?))
    };
    entry("postgres").or_else(|| entry("nobody"))
}

pub struct Server {
    pub dir: tempfile::TempDir,
    pub port: u16,
    bin: PathBuf,
    child: Option<Child>,
    /// What ends it as a crash would: who started it in a container may hear of no other.
    end: Signal,
}

impl Server {
    /// A place for a server, with nothing in it.
    fn nowhere(bin: &Path) -> Server {
        let dir = tempfile::tempdir().unwrap();
        if let Some((uid, gid)) = ordinary_user() {
            std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid)).unwrap();
        }
        let port = backwater_socket::free_port().unwrap();
        Server { dir, port, bin: bin.to_owned(), child: None, end: Signal::QUIT }
    }

    fn start(bin: &Path, settings: &[&str]) -> Server {
        let mut server = Server::nowhere(bin);
        std::fs::write(server.dir.path().join("password"), PASSWORD).unwrap();
        let mut initdb = server.command("initdb");
        initdb.args([
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        ]);
        initdb.arg(format!("--pwfile={}", server.dir.path().join("password").display())).arg("-D").arg(server.data());
        let done = initdb.output().unwrap();
        assert!(done.status.success(), "initdb: {}", String::from_utf8_lossy(&done.stderr));
        server.start_again(settings);
        server
    }

    /// Another server of the same version.
    pub fn another(&self, settings: &[&str]) -> Server {
        Server::start(&self.bin, settings)
    }

    /// A standby that was copied from whoever is reached at this port and follows it there; None without pg_basebackup.
    pub fn standby_by(&self, port: u16) -> Option<Server> {
        if !self.bin.join("pg_basebackup").exists() {
            return None;
        }
        let mut standby = Server::nowhere(&self.bin);
        let mut copy = standby.command("pg_basebackup");
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-c", "fast", "-p", &port.to_string()]);
        text(&copy.env("PGPASSWORD", PASSWORD).arg("-D").arg(standby.data()).output().unwrap());
        standby.start_again(&[]);
        Some(standby)
    }

    pub fn start_again(&mut self, settings: &[&str]) {
        self.start_by(self.command("postgres"), settings);
    }

    /// The same with process ids of its own, as in a container.
    pub fn start_contained(&mut self, settings: &[&str]) {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]).current_dir(self.dir.path());
        if let Some((uid, gid)) = ordinary_user() {
            let [uid, gid] = [uid, gid].map(|id| id.to_string());
            command.args(["setpriv", "--reuid", &uid, "--regid", &gid, "--clear-groups"]);
        }
        command.arg(self.bin.join("postgres")).env("TZ", "UTC");
        self.end = Signal::KILL;
        self.start_by(command, settings);
    }

    fn start_by(&mut self, mut command: Command, settings: &[&str]) {
        let log = File::options().append(true).create(true).open(self.dir.path().join("log")).unwrap();
        command.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string()).arg("-k").arg(self.dir.path());
        for setting in ["shared_buffers=32MB", "max_connections=60", "fsync=off"].iter().chain(settings) {
            command.arg("-c").arg(setting);
        }
        self.child = Some(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        let begun = Instant::now();
        while !self.direct("SELECT 1").output().unwrap().status.success() {
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "the server does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the server as a crash would: sessions are cut off.
    pub fn stop_at_once(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = kill_process(Pid::from_child(&child), self.end);
            let _ = child.wait();
        }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A command of this server's, as its user.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        if let Some((uid, gid)) = ordinary_user() {
            command.uid(uid).gid(gid);
        }
        command.current_dir(self.dir.path()).env("TZ", "UTC");
        command
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// psql straight to the server, by its socket.
    pub fn direct(&self, sql: &str) -> Command {
        psql(&self.dir.path().display().to_string(), self.port, sql)
    }

    /// The single value of a query, straight from the server.
    pub fn value(&self, sql: &str) -> String {
        text(&self.direct(sql).output().unwrap())
    }

    /// A role `open_door` that logs in without a password.
    pub fn make_open_door(&self) {
        self.value("CREATE ROLE open_door LOGIN");
        let path = self.data().join("pg_hba.conf");
        let hba = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("host all open_door all trust\n{hba}")).unwrap();
        self.value("SELECT pg_reload_conf()");
    }

    /// Waits until a query's value is this.
    pub fn until(&self, sql: &str, wanted: &str) {
        let begun = Instant::now();
        loop {
            let found = self.value(sql);
            if found == wanted {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{sql}: {found} instead of {wanted}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_at_once();
    }
}

/// psql with one statement, printing values only.
pub fn psql(host: &str, port: u16, sql: &str) -> Command {
    let mut command = client("psql", host, port);
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql]);
    command
}

/// A client program, with the password and nothing else from outside.
pub fn client(program: &str, host: &str, port: u16) -> Command {
    let mut command = Command::new(program);
    let kept = std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("PG"));
    command.env_clear().envs(kept).env("PGPASSWORD", PASSWORD).env("PGCONNECT_TIMEOUT", "20").env("PGUSER", "postgres");
    command.env("PGHOST", host).env("PGPORT", port.to_string()).env("PGDATABASE", "postgres").stdin(Stdio::null());
    command
}

/// What a program printed; it must have succeeded.
pub fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// What a program complained of; it must have failed.
pub fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Ended with its owner, whatever happens.
pub struct Running(pub Child);

impl Running {
    /// Starts a program of which nobody reads anything.
    pub fn start(command: &mut Command) -> Running {
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Memory of this process, in KB.
pub fn resident_kb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
