//! One run of a load by the client programs of PostgreSQL, and its figures.

use crate::peers::{LIMIT, Way};
use crate::{Bench, Result};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// pgbench's transactions: reading only, or TPC-B.
    Transactions { reads: bool, clients: u32 },
    /// One result of 100 MB.
    LargeResult,
    /// Two thousand connections with a query each, by eight clients.
    ShortConnections,
}

/// How long transactions go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Length {
    /// Of which nothing counts but the relay's processor time: a new process of the server reads its catalogs, and maps what it reads
    /// of the shared buffers page by page. A pooler's server processes did that in the run before.
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Transactions, connections or megabytes a second.
    pub(crate) per_s: f64,
    /// The latency that 99 of 100 are under; none where it says nothing.
    pub(crate) p99_ms: Option<f64>,
    /// Processor time of the relay for one of them, in microseconds.
    pub(crate) cpu_us: f64,
}

const LARGE: &str = "COPY (SELECT repeat('x', 999) FROM generate_series(1, 100000)) TO STDOUT";
const LARGE_MB: f64 = 100.0;
const SHORT_CLIENTS: u32 = 8;
const SHORT_EACH: u32 = 250;
/// pgbench's clock runs while its clients connect, each with a password that takes both ends some milliseconds.
const CONNECTING: Duration = Duration::from_millis(16);

impl Load {
    pub(crate) fn name(self) -> String {
        match self {
            Load::Transactions { reads, clients } => {
                format!(
                    "{}, {clients} client{}",
                    if reads { "select-only" } else { "TPC-B" },
                    if clients == 1 { "" } else { "s" }
                )
            }
            Load::LargeResult => "a result of 100 MB".to_owned(),
            Load::ShortConnections => "2,000 short connections, 8 at a time".to_owned(),
        }
    }

    /// Whether somebody has to wait where [`LIMIT`] statements run at once.
    pub(crate) fn is_limited(self) -> bool {
        matches!(self, Load::Transactions { clients, .. } if clients > LIMIT)
    }

    /// What its rate counts.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Load::Transactions { .. } => "tx/s",
            Load::LargeResult => "MB/s",
            Load::ShortConnections => "conn/s",
        }
    }

    /// Runs it once, for so long where its length is free.
    pub(crate) fn run(self, bench: &Bench, way: &Way, length: Length) -> Result<Figures> {
        let before = way.cpu_s()?;
        let (per_s, count, p99_ms) = match self {
            Load::Transactions { reads, clients } => transactions(bench, way, (reads, clients), length)?,
            Load::LargeResult => {
                let begun = Instant::now();
                let mut command = bench.client("psql", way);
                run(command.args(["-X", "-q", "-c", LARGE]).stdout(Stdio::null()))?;
                (LARGE_MB / begun.elapsed().as_secs_f64(), LARGE_MB, None)
            }
            Load::ShortConnections => {
                let mut command = bench.client("pgbench", way);
                command.args([
                    "-n",
                    "-S",
                    "-C",
                    "-c",
                    &SHORT_CLIENTS.to_string(),
                    "-j",
                    "2",
                    "-t",
                    &SHORT_EACH.to_string(),
                ]);
                (tps(&run(command.stdout(Stdio::piped()))?)?, f64::from(SHORT_CLIENTS * SHORT_EACH), None)
            }
        };
        Ok(Figures { per_s, p99_ms, cpu_us: (way.cpu_s()? - before) / count * 1e6 })
    }
}

fn transactions(
    bench: &Bench,
    way: &Way,
    (reads, clients): (bool, u32),
    length: Length,
) -> Result<(f64, f64, Option<f64>)> {
    let logs = bench.work.join("latencies");
    if logs.exists() {
        std::fs::remove_dir_all(&logs)?;
    }
    std::fs::create_dir(&logs)?;
    let mut command = bench.client("pgbench", way);
    command.args(["-n", "-M", "prepared", "-c", &clients.to_string(), "-j", &clients.min(2).to_string()]);
    let seconds = (length.warm_up + length.measured + CONNECTING * clients).as_secs().max(1);
    command.args(["-T", &seconds.to_string(), "-l", "--log-prefix", "tx"]).current_dir(&logs);
    if reads {
        command.arg("-S");
    }
    let per_s = tps(&run(command.stdout(Stdio::piped()))?)?;
    let mut ended = Vec::new();
    for file in std::fs::read_dir(&logs)? {
        ended.extend(std::fs::read_to_string(file?.path())?.lines().filter_map(Ended::of));
    }
    let all = (ended.len() as f64).max(1.0);
    if length.warm_up.is_zero() {
        return Ok((per_s, all, p99_ms(&ended)));
    }
    let last_us = ended.iter().map(|ended| ended.at_us).max().unwrap_or_default();
    ended.retain(|ended| Duration::from_micros(last_us - ended.at_us) < length.measured);
    Ok((ended.len() as f64 / length.measured.as_secs_f64(), all, p99_ms(&ended)))
}

/// A transaction that has ended: a line of pgbench's log.
struct Ended {
    latency_us: u64,
    at_us: u64,
}

impl Ended {
    /// `client transaction latency script seconds microseconds`
    fn of(line: &str) -> Option<Ended> {
        let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let [_, _, latency_us, _, seconds, microseconds] = numbers[..] else { return None };
        Some(Ended { latency_us, at_us: seconds * 1_000_000 + microseconds })
    }
}

fn p99_ms(ended: &[Ended]) -> Option<f64> {
    let mut latencies_us: Vec<u64> = ended.iter().map(|ended| ended.latency_us).collect();
    latencies_us.sort_unstable();
    latencies_us.get(latencies_us.len() * 99 / 100).map(|us| *us as f64 / 1e3)
}

/// What it printed.
fn run(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::piped()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("a client failed: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// `tps = 12345.678 (without initial connection time)`.
fn tps(text: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("tps = ")).ok_or("pgbench told no rate")?;
    Ok(line.split(' ').next().unwrap_or_default().parse()?)
}
