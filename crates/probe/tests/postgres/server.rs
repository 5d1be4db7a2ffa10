//! A real PostgreSQL in a temporary directory on a free port, run as an ordinary user where the tests run as root.

use backwater_probe::postgres::{ConnInfo, connect_client};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Directories with `postgres` and `initdb`: BACKWATER_PG_BINS (several, separated by colons), BACKWATER_PG_BIN, the
/// newest installed one, or the one on PATH.
pub fn installed() -> Vec<PathBuf> {
    let usable = |dir: &PathBuf| dir.join("postgres").exists() && dir.join("initdb").exists();
    for variable in ["BACKWATER_PG_BINS", "BACKWATER_PG_BIN"] {
        if let Some(list) = std::env::var_os(variable) {
            return std::env::split_paths(&list).filter(usable).collect();
        }
    }
    let majors = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = majors.map(|major| major.path().join("bin")).filter(usable).collect();
    dirs.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let newest = dirs.pop().or_else(|| std::env::split_paths(&path).find(usable));
    newest.into_iter().collect()
}

/// Runs a test on every server there is, two at a time since most of it is waiting; the test's name is for the one
/// line that tells there is none.
#[allow(dead_code)]
pub fn on_each(name: &str, test: impl Fn(&Path) + Sync) {
    let servers = installed();
    if servers.is_empty() {
        eprintln!("skipped: {name}: needs PostgreSQL (postgres and initdb on PATH, or BACKWATER_PG_BIN)");
    }
    for some in servers.chunks(2) {
        std::thread::scope(|scope| {
            for bin in some {
                eprintln!("{name}: {}", bin.display());
                scope.spawn(|| test(bin));
            }
        });
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
    bin: PathBuf,
    pub dir: tempfile::TempDir,
    pub port: u16,
    pub major: i32,
    child: Option<Child>,
}

impl Server {
    /// Makes a cluster and starts it. Superuser `postgres`, trusted on the socket; on TCP its password is `right`.
    pub fn start(bin: &Path, settings: &[&str]) -> Server {
        let mut server = Server::empty(bin);
        std::fs::write(server.dir.path().join("password"), "right\n").unwrap();
        let arguments =
            ["--auth-local=trust", "--auth-host=scram-sha-256", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N"];
        let mut initdb = server.command("initdb");
        initdb.args(arguments).arg(format!("--pwfile={}", server.dir.path().join("password").display()));
        let done = initdb.arg("-D").arg(server.data()).output().unwrap();
        assert!(done.status.success(), "initdb: {}", String::from_utf8_lossy(&done.stderr));
        server.start_again(settings);
        server
    }

    /// A directory of the right owner and a port, nothing in them yet.
    pub fn empty(bin: &Path) -> Server {
        let dir = tempfile::tempdir().unwrap();
        if let Some((uid, gid)) = ordinary_user() {
            std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid)).unwrap();
        }
        let port = backwater_socket::free_port().unwrap();
        let told = Command::new(bin.join("postgres")).arg("--version").output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let number = told.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty()).unwrap();
        Server { bin: bin.to_owned(), dir, port, major: number.parse().unwrap(), child: None }
    }

    /// As [`Server::empty`], of the same binaries.
    #[allow(dead_code)]
    pub fn sibling(&self) -> Server {
        Server::empty(&self.bin)
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A command of this server's, as its user.
    pub fn command(&self, name: &str) -> Command {
        let own = self.bin.join(name);
        let mut command = Command::new(if own.exists() { own } else { PathBuf::from(name) });
        if let Some((uid, gid)) = ordinary_user() {
            command.uid(uid).gid(gid);
        }
        command.current_dir(self.dir.path()).env("TZ", "UTC");
        command
    }

    /// Starts the cluster with these settings and waits until it answers.
    pub fn start_again(&mut self, settings: &[&str]) {
        let log = File::options().append(true).create(true).open(self.dir.path().join("log")).unwrap();
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string()).arg("-k").arg(self.dir.path());
        for setting in ["shared_buffers=16MB", "max_connections=30", "fsync=off"].iter().chain(settings) {
            command.arg("-c").arg(setting);
        }
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.child = Some(child);
        let begun = Instant::now();
        while let Err(error) = self.try_sql("SELECT 1") {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(ended.is_none() && begun.elapsed() < PATIENCE, "the server does not start: {error}\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops it (fast shutdown) and waits until it is gone.
    pub fn stop(&mut self) {
        self.end(Signal::INT);
    }

    /// Ends it at once, as a fault would.
    #[allow(dead_code)]
    pub fn crash(&mut self) {
        self.end(Signal::QUIT);
    }

    fn end(&mut self, signal: Signal) {
        if let Some(mut child) = self.child.take() {
            let _ = kill_process(Pid::from_child(&child), signal);
            child.wait().unwrap();
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.as_ref().unwrap().id() as i32
    }

    /// The address of its socket, for the superuser.
    pub fn socket(&self) -> String {
        self.socket_as("postgres")
    }

    pub fn socket_as(&self, user: &str) -> String {
        format!(
            "host={} port={} user={user} dbname=postgres application_name=tests",
            self.dir.path().display(),
            self.port
        )
    }

    /// Its address on TCP.
    pub fn tcp(&self, more: &str) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres {more}", self.port)
    }

    pub fn info(&self) -> ConnInfo {
        conninfo(&self.socket())
    }

    pub fn sql(&self, sql: &str) {
        self.try_sql(sql).unwrap();
    }

    fn try_sql(&self, sql: &str) -> Result<(), String> {
        let mut session = Session::open(&self.info())?;
        session.run(sql).map(|_| ())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Signal::QUIT);
    }
}

/// An address alone, nothing from the environment.
pub fn conninfo(target: &str) -> ConnInfo {
    ConnInfo::parse(target, &|_| None).unwrap()
}

/// A client of the tests' own.
pub struct Session {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Session {
    pub fn open(info: &ConnInfo) -> Result<Session, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, task) = connect_client(info).await.map_err(|error| error.to_string())?;
            tokio::spawn(task);
            Ok::<_, String>(client)
        })?;
        Ok(Session { runtime, client })
    }

    /// Runs statements to their end, and returns the first column of the last row.
    pub fn run(&mut self, sql: &str) -> Result<Option<String>, String> {
        let messages = self.runtime.block_on(self.client.simple_query(sql)).map_err(|error| format!("{error:?}"))?;
        let values = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(values.last())
    }

    /// Runs a statement in a thread of its own, until it ends or its backend does.
    pub fn spawn(mut self, sql: impl Into<String>) -> std::thread::JoinHandle<()> {
        let sql = sql.into();
        std::thread::spawn(move || {
            let _ = self.run(&sql);
        })
    }
}
