//! What the proxy costs, beside pgbouncer (session mode) and HAProxy (TCP) in the same run, with the direct way as the
//! reference and the least relay that C allows as the floor. On a server of its own that is gone afterwards; what a killed run
//! leaves is put back by the next.
//!
//! `cargo build --profile dist && cargo run --profile dist -p backwater-lab --example proxy`, with any of
//! `--only reads|writes|large|short|idle|storm`, `--clients 1,8,64,500`, `--rounds 5`, `--seconds 3`, and `--warm-up 6`: so
//! many seconds before them, of which no transaction counts.
#![allow(clippy::print_stdout, reason = "the figures are this program's output")]

mod idle;
mod peers;
mod pgbench;
#[path = "../overhead/place.rs"]
mod place;
mod rounds;
#[path = "../overhead/statistics.rs"]
#[allow(dead_code, reason = "shared with the other benchmark, which shows more of it")]
mod statistics;
mod storm;
mod urgent;

use backwater_lab::servers::{Postgres, PostgresSpec};
use backwater_socket::free_port;
use backwater_undo::Journal;
use peers::Way;
use pgbench::{Length, Load};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Branches of TPC-B.
const SCALE: &str = "20";
/// The relays must not be confused with a disk, nor with maintenance.
const SETTINGS: [(&str, &str); 9] = [
    ("shared_buffers", "1GB"),
    ("max_connections", "1200"),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("synchronous_commit", "off"),
    ("autovacuum", "off"),
    ("max_wal_size", "16GB"),
    ("checkpoint_timeout", "1h"),
    ("jit", "off"),
];
/// Ten thousand sessions have two sockets each in a relay, and two in this program.
const DESCRIPTORS: u64 = 65_536;

/// Raises how many descriptors this process may have, which the relays inherit, as far as it may: root may go beyond what it
/// was given. Returns how many they are.
fn raise_descriptors() -> Result<u64> {
    let raised = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(DESCRIPTORS);
    if most < DESCRIPTORS && setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(DESCRIPTORS);
    }
    let descriptors = DESCRIPTORS.min(most);
    setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors), maximum: Some(most) })?;
    Ok(descriptors)
}

/// What is measured on.
pub(crate) struct Bench {
    pub(crate) work: PathBuf,
    pub(crate) journal: Journal,
    pub(crate) password: String,
    /// How many a process may have open.
    pub(crate) descriptors: u64,
    server: Postgres,
    port: u16,
}

struct Options {
    only: Option<String>,
    clients: Vec<u32>,
    rounds: usize,
    length: Length,
}

impl Options {
    fn of(mut words: impl Iterator<Item = String>) -> Result<Options> {
        let length = Length { warm_up: Duration::ZERO, measured: Duration::from_secs(3) };
        let mut options = Options { only: None, clients: vec![1, 8, 64, 500], rounds: 5, length };
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--only" => options.only = Some(value),
                "--clients" => {
                    options.clients = value.split(',').map(|number| Ok(number.parse()?)).collect::<Result<_>>()?;
                }
                "--rounds" => options.rounds = value.parse::<usize>()?.clamp(2, 100),
                "--seconds" => options.length.measured = Duration::from_secs(value.parse::<u64>()?.clamp(1, 600)),
                "--warm-up" => options.length.warm_up = Duration::from_secs(value.parse::<u64>()?.min(600)),
                _ => return Err(format!("{name} is not known; see the head of examples/proxy/main.rs").into()),
            }
        }
        Ok(options)
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == part)
    }

    fn loads(&self) -> Vec<Load> {
        let of = |reads: bool| self.clients.iter().map(move |clients| Load::Transactions { reads, clients: *clients });
        let mut loads = Vec::new();
        loads.extend(of(true).filter(|_| self.wants("reads")));
        loads.extend(of(false).filter(|_| self.wants("writes")));
        loads.extend(Some(Load::LargeResults).filter(|_| self.wants("large")));
        loads.extend(Some(Load::ShortConnections).filter(|_| self.wants("short")));
        loads
    }
}

impl Bench {
    fn start(state_dir: &Path, descriptors: u64) -> Result<Bench> {
        let (journal, work) = place::enter(state_dir, "bench proxy")?;
        let settings: BTreeMap<_, _> = SETTINGS.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let port = free_port()?;
        let spec = PostgresSpec {
            installed: place::installed()?,
            data_dir: work.join("data"),
            wal_dir: None,
            user: None,
            settings,
            port: Some(port),
            socket_port: None,
            network: None,
        };
        let mut server = Postgres::create(&journal, spec)?;
        server.start(&journal)?;
        let password = server.password().ok_or("a server with a port has a password")?.to_owned();
        let bench = Bench { work, journal, password, descriptors, server, port };
        let status = bench.client_at("pgbench", port).args(["-i", "-q", "-s", SCALE, "-I", "dtGvp"]).output()?;
        if !status.status.success() {
            return Err(format!("cannot make the tables: {}", String::from_utf8_lossy(&status.stderr)).into());
        }
        Ok(bench)
    }

    /// A client program on its way to the server, with the password and nothing else from outside.
    pub(crate) fn client(&self, program: &str, way: &Way) -> Command {
        self.client_at(program, way.port)
    }

    fn client_at(&self, program: &str, port: u16) -> Command {
        let mut command = Command::new(program);
        let kept = std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("PG"));
        command.env_clear().envs(kept).env("PGPASSWORD", &self.password).env("PGUSER", "postgres");
        command.env("PGHOST", "127.0.0.1").env("PGPORT", port.to_string()).env("PGDATABASE", "postgres");
        command.env("PGSSLMODE", "disable").env("PGCONNECT_TIMEOUT", "30");
        // What they say is read.
        command.env("LC_ALL", "C");
        command
    }
}

/// The version line of a program.
fn version(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

/// Share of the processors' time that was idle since the figures before.
fn idle_ticks() -> Result<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().ok_or("no statistics of the processors")?;
    let fields: Vec<f64> = line.split_ascii_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    Ok((fields.get(3).copied().unwrap_or_default(), fields.iter().sum()))
}

fn measure(bench: &Bench, program: &Path, options: &Options) -> Result<()> {
    let (ways, missing) = peers::start(bench, program, bench.port)?;
    let (idle, all) = idle_ticks()?;
    for load in options.loads() {
        rounds::measure(bench, &ways, load, options.rounds, options.length)?;
    }
    let (idle_now, all_now) = idle_ticks()?;
    // Of no load at all there is nothing to tell.
    if all_now > all {
        println!("\n{:.0} % of the processors' time was idle meanwhile", (idle_now - idle) / (all_now - all) * 100.0);
    }
    for why in missing {
        println!("left out: {why}");
    }
    if options.wants("idle") {
        idle::measure(bench, program)?;
    }
    if options.wants("storm") {
        storm::measure(bench, program, options.rounds)?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let options = Options::of(std::env::args().skip(1))?;
    let built = place::built_dir()?;
    let program = built.join("backwater");
    if !program.is_file() {
        return Err("build the program first, by the same profile: cargo build --profile dist -p backwater".into());
    }
    let descriptors = raise_descriptors()?;
    let mut bench = Bench::start(&built.with_file_name("proxy-state"), descriptors)?;
    println!(
        "PostgreSQL {}, fsync off, TPC-B of scale {SCALE}, clients, relays and server on this one host, all by TCP with a\n\
         password; {}; {}.\n\
         {} rounds of every way in random order, {} s each (transactions after {} s of warming up). Medians; ratios are of\n\
         runs of the same round, with the one-sided 95 % bound of their mean. Prepared statements; p99 of every transaction, result or connection\n\
         by pgbench's log and psql's clock, the median of the rounds' own. CPU: of the relay alone.",
        bench.server.installed().version,
        version("pgbouncer", &["--version"]).unwrap_or_else(|| "no pgbouncer".to_owned()),
        version("haproxy", &["-v"]).unwrap_or_else(|| "no HAProxy".to_owned()),
        options.rounds,
        options.length.measured.as_secs(),
        options.length.warm_up.as_secs()
    );
    let measured = measure(&bench, &program, &options);
    bench.server.stop()?;
    bench.journal.finish()?;
    measured
}
