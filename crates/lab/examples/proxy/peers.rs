//! The ways to the server that are compared: direct, and through each relay, all on 127.0.0.1, all with the server's own
//! password; what is not installed is left out and said so.

use crate::{Bench, Result};
use backwater_socket::free_port;
use backwater_undo::Stop;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const START_WITHIN: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// The floor's source.
const RELAY: &str = include_str!("relay.c");
/// That of the floor of a storm.
const CLOSER: &str = include_str!("closer.c");
pub(crate) const OWN: &str = "backwater";
/// The same, told to let so many statements run at once and the rest wait in front of the server.
pub(crate) const LIMITED: &str = "max_active 8";
pub(crate) const LIMIT: u32 = 8;
pub(crate) const DIRECT: &str = "direct";

/// A way to a server.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    /// The relay's process; none where there is none.
    pid: Option<u32>,
}

impl Way {
    /// Processor seconds of its relay since that began.
    pub(crate) fn cpu_s(&self) -> Result<f64> {
        self.pid.map_or(Ok(0.0), cpu_s_of)
    }

    /// Descriptors that its relay has open.
    pub(crate) fn descriptors(&self) -> Result<usize> {
        let pid = self.pid.ok_or("there is no relay")?;
        Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
    }

    /// Resident memory of its relay, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let pid = self.pid.ok_or("there is no relay")?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no resident memory")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

/// Processor seconds of a process since it began.
pub(crate) fn cpu_s_of(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = text.rsplit_once(')').ok_or("no such statistics")?.1.split_ascii_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(str::parse::<u64>).sum::<std::result::Result<u64, _>>()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Starts all of them before the server at this port. Returns what could not be started, and why.
pub(crate) fn start(bench: &Bench, program: &Path, server: u16) -> Result<(Vec<Way>, Vec<String>)> {
    let mut ways = vec![Way { name: DIRECT, port: server, pid: None }];
    let mut missing = Vec::new();
    ways.push(relay(bench, OWN, backwater(program, server))?);
    let limit = format!("[pools.default]\nmax_active = {LIMIT}\n");
    ways.push(start_own(bench, program, server, (LIMITED, &limit))?);
    match which("pgbouncer") {
        Some(found) => ways.push(relay(bench, "pgbouncer", pgbouncer(bench, found, server))?),
        None => missing.push("pgbouncer is not installed (Debian: pgbouncer)".to_owned()),
    }
    match which("haproxy") {
        Some(found) => ways.push(relay(bench, "haproxy", haproxy(bench, found, server))?),
        None => missing.push("haproxy is not installed (Debian: haproxy)".to_owned()),
    }
    match which("cc") {
        Some(_) => ways.push(relay(bench, "C relay", least(bench, ("relay", RELAY), Some(server))?)?),
        None => missing.push("no C compiler for the least relay (Debian: gcc)".to_owned()),
    }
    Ok((ways, missing))
}

/// Only those that a server that does nothing but greet is enough for.
pub(crate) fn start_plain(bench: &Bench, program: &Path, server: u16) -> Result<Vec<Way>> {
    let mut ways = vec![relay(bench, OWN, backwater(program, server))?];
    if let Some(found) = which("haproxy") {
        ways.push(relay(bench, "haproxy", haproxy(bench, found, server))?);
    }
    Ok(ways)
}

/// The proxy by itself, under a name, with more of a configuration after its addresses.
pub(crate) fn start_own(bench: &Bench, program: &Path, server: u16, (name, more): (&'static str, &str)) -> Result<Way> {
    let (config, program) = (bench.work.join(format!("{}.toml", name.replace(' ', "-"))), program.to_owned());
    let more = more.to_owned();
    relay(bench, name, move |port| {
        std::fs::write(&config, format!("listen = '127.0.0.1:{port}'\nserver = '127.0.0.1:{server}'\n{more}"))?;
        let mut command = Command::new(program);
        command.args(["proxy", "-c"]).arg(config);
        Ok(command)
    })
}

fn backwater(program: &Path, server: u16) -> impl FnOnce(u16) -> Result<Command> {
    let program = program.to_owned();
    move |port| {
        let mut command = Command::new(program);
        command.args(["proxy", "--listen", &format!("127.0.0.1:{port}"), "--server", &format!("127.0.0.1:{server}")]);
        Ok(command)
    }
}

fn pgbouncer(bench: &Bench, program: PathBuf, server: u16) -> impl FnOnce(u16) -> Result<Command> {
    let (work, password) = (bench.work.clone(), bench.password.clone());
    move |port| {
        let (config, users) = (work.join("pgbouncer.ini"), work.join("pgbouncer.users"));
        std::fs::write(&users, format!("\"postgres\" \"{password}\"\n"))?;
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={server} dbname=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = session\n\
             max_client_conn = 5000\ndefault_pool_size = 600\nlog_connections = 0\nlog_disconnections = 0\nlog_stats = 0\n",
            users.display()
        );
        std::fs::write(&config, text)?;
        let mut command = Command::new(program);
        // It refuses to run as root.
        if let Some((uid, gid)) = backwater_lab::servers::ordinary_user()? {
            for path in [&config, &users] {
                std::os::unix::fs::chown(path, Some(uid), Some(gid))?;
            }
            command.uid(uid).gid(gid);
        }
        command.arg("-q").arg(config);
        Ok(command)
    }
}

fn haproxy(bench: &Bench, program: PathBuf, server: u16) -> impl FnOnce(u16) -> Result<Command> {
    // It wants two descriptors for each, and some for itself, or does not start.
    let (work, most) = (bench.work.clone(), bench.descriptors.saturating_sub(200) / 2);
    move |port| {
        let config = work.join(format!("haproxy-{port}.cfg"));
        let text = format!(
            "global\n maxconn {most}\ndefaults\n mode tcp\n timeout connect 10s\n timeout client 1h\n timeout server 1h\n\
             frontend front\n bind 127.0.0.1:{port}\n default_backend back\nbackend back\n server one 127.0.0.1:{server}\n"
        );
        std::fs::write(&config, text)?;
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(config);
        Ok(command)
    }
}

/// A process that only closes whatever connects.
pub(crate) fn start_closer(bench: &Bench) -> Result<Way> {
    relay(bench, "closer", least(bench, ("closer", CLOSER), None)?)
}

fn least(
    bench: &Bench,
    (name, text): (&str, &str),
    server: Option<u16>,
) -> Result<impl FnOnce(u16) -> Result<Command> + use<>> {
    let compiler = which("cc").ok_or("there is no C compiler (Debian: gcc)")?;
    let (source, program) = (bench.work.join(format!("{name}.c")), bench.work.join(name));
    std::fs::write(&source, text)?;
    let compiled = Command::new(compiler).args(["-O2", "-o"]).arg(&program).arg(&source).status()?;
    if !compiled.success() {
        return Err(format!("{name}.c does not compile").into());
    }
    Ok(move |port: u16| {
        let mut command = Command::new(program);
        command.arg(port.to_string()).args(server.map(|server| server.to_string()));
        Ok(command)
    })
}

/// Starts a relay on a free port and waits until it takes connections.
fn relay(bench: &Bench, name: &'static str, command: impl FnOnce(u16) -> Result<Command>) -> Result<Way> {
    let port = free_port()?;
    let log = bench.work.join(format!("{}-{port}.log", name.replace(' ', "-")));
    let mut command = command(port)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
    let (mut child, _) = bench.journal.spawn(&mut command, "a relay that is measured", Stop::Terminate)?;
    let deadline = Instant::now() + START_WITHIN;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if child.try_wait()?.is_some() || Instant::now() > deadline {
            return Err(format!("{name} does not start: {}", std::fs::read_to_string(&log)?).into());
        }
        std::thread::sleep(LOOK);
    }
    Ok(Way { name, port, pid: Some(child.id()) })
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    places.map(|dir| dir.join(program)).find(|file| file.is_file())
}
