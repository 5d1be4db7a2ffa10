//! The server and the proxy that the suites are run against, and the one certificate they need.

use super::told::{bounded, must};
use anyhow::{Context, bail};
use backwater_socket::free_port;
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Who may come how: the users of pgx's tests by a method each, everybody else as they are.
const ACCESS: &str = "local all,replication all trust
host all pgx_md5 127.0.0.1/32 md5
host all pgx_scram 127.0.0.1/32 scram-sha-256
host all pgx_pw 127.0.0.1/32 password
hostssl all pgx_ssl 127.0.0.1/32 scram-sha-256
hostssl all pgx_sslcert 127.0.0.1/32 cert
host all,replication all 127.0.0.1/32 trust
";

/// The proxies, by what they do: also the names of their files.
pub(super) const THROUGH: &str = "through";
pub(super) const HELD: &str = "held";
pub(super) const ENDED: &str = "ended";
/// What goes direct, and what does so with encryption.
const DIRECT: &str = "direct";
const ENCRYPTED: &str = "direct-encrypted";
/// What the second holds all sessions to together: more slowly some tests of drivers would not end in their own time.
pub(super) const HELD_TO: &str = "64MB";
/// Of user dba, on that one's console.
pub(super) const CONSOLE_PASSWORD: &str = "open sesame";

const SETTINGS: &str = "fsync = off
max_connections = 100
max_prepared_transactions = 10
wal_level = logical
listen_addresses = '127.0.0.1'
ssl = on
ssl_cert_file = '../localhost.crt'
ssl_key_file = '../localhost.key'
ssl_ca_file = '../ca.pem'
";

/// Where a server is reached, as user `postgres` and without a password.
pub(super) struct Place {
    pub(super) port: u16,
    /// The directory of its Unix socket, which has the same number.
    pub(super) socket_dir: PathBuf,
    /// Certificates and keys of pgx's tests.
    pub(super) certificates: PathBuf,
    /// Whether clients encrypt that are not told by their tests. What encrypts through to the server is hidden from a proxy: it
    /// would relay bytes, and follow no message.
    pub(super) sslmode: &'static str,
    /// Programs of the server's version.
    pub(super) bin: PathBuf,
}

impl Place {
    /// What libpq and those that are like it read of the environment.
    pub(super) fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("PGHOST", "127.0.0.1".to_owned()),
            ("PGPORT", self.port.to_string()),
            ("PGUSER", "postgres".to_owned()),
            ("PGSSLMODE", self.sslmode.to_owned()),
            // Nobody can bind a login to a channel that a proxy ends.
            ("PGCHANNELBINDING", "disable".to_owned()),
        ]
    }

    /// Runs statements of one kind each, in a database.
    pub(super) fn sql(&self, database: &str, statements: &[&str]) -> anyhow::Result<String> {
        let mut psql = bounded(PATIENCE, "psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database]);
        psql.envs(self.variables()).stdin(Stdio::null());
        for statement in statements {
            psql.arg("-c").arg(statement);
        }
        must(psql)
    }

    /// An empty database of this name, whatever was there before.
    pub(super) fn empty_database(&self, name: &str) -> anyhow::Result<()> {
        // A test that failed may have left sessions there.
        let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        let create = format!("CREATE DATABASE {name}");
        self.sql("postgres", &["SET client_min_messages = error", &drop, &create]).map(|_| ())
    }
}

/// A command as an ordinary user where this is root, whom neither initdb nor pg_regress serves.
pub(super) fn as_ordinary_user(command: &mut Command) -> anyhow::Result<()> {
    if let Some((user, group)) = ordinary_user()? {
        command.uid(user).gid(group);
    }
    Ok(())
}

/// Hands a directory to that user.
pub(super) fn hand_over(path: &Path) -> anyhow::Result<()> {
    let Some((user, group)) = ordinary_user()? else { return Ok(()) };
    std::os::unix::fs::chown(path, Some(user), Some(group))
        .with_context(|| format!("cannot hand over {}", path.display()))
}

fn ordinary_user() -> anyhow::Result<Option<(u32, u32)>> {
    if !crate::ci::is_root()? {
        return Ok(None);
    }
    let id =
        |what: &str| -> anyhow::Result<u32> { Ok(crate::run::output("id", &[what, "postgres"], &[])?.trim().parse()?) };
    Ok(Some((id("-u")?, id("-g")?)))
}

/// Where it leads, by its name.
type Way<'a> = (&'static str, &'a Place);

/// A server and three proxies in front of it: one that holds nothing, one that holds sessions to its low class (who
/// replicates has no pool) and has a console, and one that ends encryption on both sides.
pub(super) struct Servers {
    direct: Place,
    /// The same, for clients that encrypt.
    encrypted: Place,
    through: Place,
    held: Place,
    ended: Place,
    /// Where the second's console listens by itself: there encryption is declined, and not asked of the server.
    pub(super) console_port: u16,
    dir: PathBuf,
    processes: Vec<Running>,
}

/// A process that is asked to end, by the signal that it cleans up at, when it is let go.
struct Running {
    child: Child,
    signal: &'static str,
}

impl Running {
    /// Asks it to end, unless it has; whether it did so in good order.
    fn end(&mut self) -> anyhow::Result<bool> {
        if self.child.try_wait()?.is_none() {
            let mut kill = Command::new("kill");
            kill.arg(self.signal).arg(self.child.id().to_string());
            must(kill)?;
        }
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(false)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // What does not end when it is asked is ended; what has ended already is no error.
        let _asked = self.end();
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Servers {
    pub(super) fn start(room: &Path, backwater: &Path) -> anyhow::Result<Servers> {
        let dir = room.join("server");
        for way in [THROUGH, HELD, ENDED] {
            std::fs::create_dir_all(dir.join(way))?;
        }
        hand_over(&dir)?;
        let certificates = room.join("certificates");
        for name in ["localhost.crt", "localhost.key", "ca.pem"] {
            let to = dir.join(name);
            std::fs::copy(certificates.join(name), &to).with_context(|| format!("cannot copy {name}"))?;
            std::fs::set_permissions(&to, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
            hand_over(&to)?;
        }
        let bin = PathBuf::from(crate::run::output("pg_config", &["--bindir"], &[])?.trim());
        let place = |socket_dir, sslmode| -> anyhow::Result<Place> {
            Ok(Place { port: free_port()?, socket_dir, certificates: certificates.clone(), sslmode, bin: bin.clone() })
        };
        let (direct, through) = (place(dir.clone(), "disable")?, place(dir.join(THROUGH), "disable")?);
        let encrypted = Place { port: direct.port, ..place(dir.clone(), "require")? };
        let (held, ended) = (place(dir.join(HELD), "disable")?, place(dir.join(ENDED), "require")?);
        let console_port = free_port()?;
        let mut servers = Servers { direct, encrypted, through, held, ended, console_port, dir, processes: Vec::new() };
        servers.start_server()?;
        servers.start_proxy(backwater, THROUGH, "")?;
        let low = format!("low_priority_bandwidth = '{HELD_TO}'\n[pools.default]\npriority = 'low'\n");
        let admin = format!("[admin]\nlisten = '127.0.0.1:{console_port}'\nusers = {{ dba = '{CONSOLE_PASSWORD}' }}\n");
        servers.start_proxy(backwater, HELD, &format!("{low}{admin}"))?;
        let clients = "[tls]\ncertificate = 'localhost.crt'\nkey = 'localhost.key'\n";
        let server = "[server_tls]\nmode = 'verify-full'\nroots = 'ca.pem'\nname = 'localhost'\n";
        servers.start_proxy(backwater, ENDED, &format!("{clients}{server}"))?;
        for (direct, proxies) in servers.ways() {
            for (_, place) in proxies.into_iter().chain([direct]) {
                let seen = place.sql("postgres", &["SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"])?;
                if (seen.trim() == "t") != (place.sslmode == "require") {
                    bail!("the server says that a session by port {} has ssl {seen:?}", place.port);
                }
            }
        }
        Ok(servers)
    }

    /// What is compared: direct and through these proxies, all of them encrypted or none.
    pub(super) fn ways(&self) -> [(Way<'_>, Vec<Way<'_>>); 2] {
        [
            ((DIRECT, &self.direct), vec![(THROUGH, &self.through), (HELD, &self.held)]),
            ((ENCRYPTED, &self.encrypted), vec![(ENDED, &self.ended)]),
        ]
    }

    fn start_server(&mut self) -> anyhow::Result<()> {
        let data = self.dir.join("data");
        let mut initdb = bounded(PATIENCE, &self.direct.bin.join("initdb").to_string_lossy());
        initdb.args(["-U", "postgres", "-E", "UTF8", "--locale=C", "-N", "-A", "trust", "-D"]).arg(&data);
        as_ordinary_user(&mut initdb)?;
        initdb.current_dir(&self.dir);
        must(initdb)?;
        std::fs::write(data.join("pg_hba.conf"), ACCESS)?;
        let mut settings = File::options().append(true).open(data.join("postgresql.conf"))?;
        settings.write_all(SETTINGS.as_bytes())?;
        let mut postgres = Command::new(self.direct.bin.join("postgres"));
        postgres.arg("-D").arg(&data).arg("-k").arg(&self.dir).args(["-p", &self.direct.port.to_string()]);
        as_ordinary_user(&mut postgres)?;
        // A fast shutdown: sessions are ended.
        self.spawn(postgres, "-INT", "server.log", |servers| servers.direct.sql("postgres", &["SELECT 1"]).is_ok())
    }

    fn start_proxy(&mut self, backwater: &Path, way: &str, more: &str) -> anyhow::Result<()> {
        let Place { port, socket_dir, .. } = match way {
            HELD => &self.held,
            ENDED => &self.ended,
            _ => &self.through,
        };
        let (port, socket) = (*port, socket_dir.join(format!(".s.PGSQL.{port}")));
        let file = self.dir.join(format!("{way}.toml"));
        let listen = format!("listen = ['127.0.0.1:{port}', '{}']", socket.display());
        std::fs::write(&file, format!("{listen}\nserver = '127.0.0.1:{}'\n{more}", self.direct.port))?;
        let mut proxy = Command::new(backwater);
        proxy.arg("proxy").arg("-c").arg(&file);
        self.spawn(proxy, "-TERM", &format!("{way}.log"), |_| TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    fn spawn(
        &mut self,
        mut command: Command,
        signal: &'static str,
        log: &str,
        ready: impl Fn(&Servers) -> bool,
    ) -> anyhow::Result<()> {
        let path = self.dir.join(log);
        let file = File::create(&path)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).current_dir(&self.dir);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        self.processes.push(Running { child, signal });
        let begun = Instant::now();
        while !ready(self) {
            if begun.elapsed() > PATIENCE {
                bail!("{command:?} is not ready: {}", std::fs::read_to_string(&path).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// What the server calls itself, such as `PostgreSQL 15.18`.
    pub(super) fn version(&self) -> anyhow::Result<String> {
        let version = self.direct.sql("postgres", &["SHOW server_version"])?;
        Ok(format!("PostgreSQL {}", version.split_whitespace().next().unwrap_or_default()))
    }

    /// Ends all in good order, the proxies first, and keeps their logs. A proxy that did not survive is an error.
    pub(super) fn end(mut self, printed: &Path) -> anyhow::Result<()> {
        let proxies = self.processes.split_off(1);
        let ended = proxies.into_iter().map(|mut proxy| proxy.end()).collect::<anyhow::Result<Vec<_>>>()?;
        self.processes.clear();
        std::fs::copy(self.dir.join("server.log"), printed.join("server.log"))?;
        for (way, ended_well) in [THROUGH, HELD, ENDED].into_iter().zip(ended) {
            let (log, kept) = (format!("{way}.log"), printed.join(format!("{way}.log")));
            std::fs::copy(self.dir.join(log), &kept)?;
            let log = std::fs::read_to_string(kept)?;
            if !ended_well || log.contains("panicked") {
                bail!("the proxy ({way}) did not end in good order: {log}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Running;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    /// A process that says when it is ready, and says so when it is told to end; what it said last. (A shell cannot trap what
    /// was ignored when it began, as SIGINT is in the background of another shell.)
    fn last_word(signal: &'static str) -> String {
        let mut command = Command::new("sh");
        command.arg("-c").arg("trap 'echo interrupted; exit' USR1; trap 'echo terminated; exit' TERM; echo ready; while :; do sleep 0.05; done");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        drop(Running { child, signal });
        lines.next().unwrap().unwrap()
    }

    #[test]
    fn a_process_that_is_let_go_is_told_by_its_signal() {
        assert_eq!(last_word("-USR1"), "interrupted");
        assert_eq!(last_word("-TERM"), "terminated");
    }
}
