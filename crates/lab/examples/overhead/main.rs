//! What recording costs: the processor time and memory of `backwater record` and of its session in the server, and
//! what is left of a load's throughput while it runs. On a server of its own that is gone afterwards; what a killed
//! run leaves is put back by the next.
//!
//! `cargo build --profile dist && cargo run --profile dist -p backwater-lab --example overhead`, with any of
//! `--only cost|loss`, `--sessions 50,200`, `--loads calm,saturated,computing`, `--sessions-every 10ms`, `--cost-seconds 60`,
//! `--blocks 8`, `--seconds 8`, `--clients tcp`: the load's clients by 127.0.0.1 and not by the server's socket, `--with "--no-shared-memory"`: what more `record` is told, and `--beside PROGRAM` with
//! `--beside-with "..."`: another build of the program (or the same one, told otherwise), measured at the same time under the
//! same load, for a comparison on a noisy host.
#![allow(clippy::print_stdout, reason = "the figures are this program's output")]

mod cost;
mod options;
mod place;
mod recorder;
mod statistics;
mod throughput;

use backwater_lab::servers::{Postgres, PostgresSpec};
use backwater_lab::workloads::{self, Counters, LoadResult, LoadSpec, TpcbSpec, Workload};
use backwater_undo::Journal;
use cost::{Cost, Load};
use options::Options;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How often sessions are looked at unless it is said otherwise, as the program does, and at most.
const USUAL: Duration = Duration::from_millis(100);
const OFTEN: Duration = Duration::from_millis(10);
/// With so many sessions the cost of looking often is measured.
const SESSIONS_OFTEN: usize = 50;
/// Branches: 150 MB, which the server's buffers hold.
pub(crate) const SCALE: u32 = 10;
/// Recorder and disk must not be confused: nothing is synced, nothing is checkpointed or vacuumed meanwhile.
const SETTINGS: [(&str, &str); 9] = [
    ("shared_buffers", "512MB"),
    ("max_connections", "300"),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("synchronous_commit", "off"),
    ("autovacuum", "off"),
    ("max_wal_size", "16GB"),
    ("checkpoint_timeout", "1h"),
    ("jit", "off"),
];

/// What is measured on.
pub(crate) struct Bench {
    pub(crate) server: Postgres,
    pub(crate) work: PathBuf,
    pub(crate) journal: Journal,
    /// How the load's clients connect.
    clients: String,
}

impl Bench {
    fn start(state_dir: &Path, by_tcp: bool) -> Result<Bench> {
        let (journal, work) = place::enter(state_dir, "bench overhead")?;
        let settings: BTreeMap<_, _> = SETTINGS.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let data_dir = work.join("data");
        let port = by_tcp.then(free_port).transpose()?;
        let spec = PostgresSpec {
            installed: place::installed()?,
            data_dir,
            wal_dir: None,
            user: None,
            settings,
            port,
            socket_port: None,
            network: None,
        };
        let mut server = Postgres::create(&journal, spec)?;
        server.start(&journal)?;
        let spec = TpcbSpec { scale: SCALE, fillfactor: 50 };
        workloads::initialise(&server.conninfo(), &spec, &AtomicBool::new(false), &|_| {})?;
        let clients = match port.zip(server.password()) {
            Some((port, password)) => {
                format!("host=127.0.0.1 port={port} user=postgres dbname=postgres password={password}")
            }
            None => server.conninfo(),
        };
        Ok(Bench { server, work, journal, clients })
    }

    /// Drives a load; raising `cancel` ends it.
    pub(crate) fn drive(&self, workload: &dyn Workload, spec: &LoadSpec, cancel: &AtomicBool) -> Result<LoadResult> {
        let result = workloads::run(&self.clients, workload, spec, &Counters::default(), cancel)?;
        match &result.first_failure {
            Some(failure) => Err(format!("the load failed: {failure}").into()),
            None => Ok(result),
        }
    }

    fn end(mut self) -> Result<()> {
        self.server.stop()?;
        Ok(self.journal.finish()?)
    }
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn load_average() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

fn main() -> Result<()> {
    let options = Options::of(std::env::args().skip(1))?;
    let built = place::built_dir()?;
    let program = built.join("backwater");
    if !program.is_file() {
        return Err("build the program first, by the same profile: cargo build --profile dist -p backwater".into());
    }
    let at_start = load_average()?;
    let bench = Bench::start(&built.with_file_name("overhead-state"), options.by_tcp)?;
    println!(
        "PostgreSQL {}, fsync off so that the disk's noise is left out, everything on this one host, clients by\n\
         {}; load average {at_start} at the start (what others did here at the same time is in the figures)",
        bench.server.installed().version,
        if options.by_tcp { "TCP" } else { "a Unix socket" }
    );
    if options.cost {
        costs(&bench, &program, &options)?;
    }
    if options.loss {
        throughput::measure(&bench, &program, &options)?;
    }
    bench.end()?;
    println!("\nload average {} at the end", load_average()?);
    Ok(())
}

fn costs(bench: &Bench, program: &Path, options: &Options) -> Result<()> {
    let every = options.sessions_every.unwrap_or(USUAL);
    for sessions in &options.sessions {
        for load in &options.loads {
            cost::measure(bench, program, Cost { sessions: *sessions, load: *load, every }, options)?;
        }
    }
    if options.sessions_every.is_none() {
        let often = Cost { sessions: SESSIONS_OFTEN, load: Load::Calm, every: OFTEN };
        cost::measure(bench, program, often, options)?;
    }
    Ok(())
}
