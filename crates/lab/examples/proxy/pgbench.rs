//! One run of a load by the client programs of PostgreSQL, and its figures.

use crate::peers::{LIMIT, Way};
use crate::{Bench, Result};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// pgbench's transactions: reading only, or TPC-B.
    Transactions { reads: bool, clients: u32 },
    /// Results of 100 MB, one after another.
    LargeResults,
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
const LARGE_RESULTS: u32 = 20;
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
            Load::LargeResults => format!("{LARGE_RESULTS} results of 100 MB (p99 is the longest)"),
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
            Load::LargeResults => "MB/s",
            Load::ShortConnections => "conn/s",
        }
    }

    /// Runs it once, for so long where its length is free.
    pub(crate) fn run(self, bench: &Bench, way: &Way, length: Length) -> Result<Figures> {
        let before = way.cpu_s()?;
        let (per_s, count, p99_ms) = match self {
            Load::Transactions { reads, clients } => transactions(bench, way, (reads, clients), length)?,
            Load::LargeResults => large_results(bench, way)?,
            Load::ShortConnections => short_connections(bench, way)?,
        };
        Ok(Figures { per_s, p99_ms, cpu_us: (way.cpu_s()? - before) / count * 1e6 })
    }
}

/// Megabytes a second, megabytes, and the longest time of a result by psql's clock, which is the p99 of so few.
fn large_results(bench: &Bench, way: &Way) -> Result<(f64, f64, Option<f64>)> {
    let mut command = bench.client("psql", way);
    // It tells the time of a statement that failed, too.
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", "\\timing on", "-c", "\\o /dev/null"]);
    command.args((0..LARGE_RESULTS).flat_map(|_| ["-c", LARGE]));
    let said = run(command.stdout(Stdio::piped()))?;
    let took = |line: &str| line.strip_prefix("Time: ")?.split(' ').next()?.parse::<f64>().ok();
    let us: Vec<u64> = said.lines().filter_map(took).map(|ms| (ms * 1e3) as u64).collect();
    if us.len() != LARGE_RESULTS as usize {
        return Err(format!("psql told the times of {} of {LARGE_RESULTS} results", us.len()).into());
    }
    let megabytes = f64::from(LARGE_RESULTS) * LARGE_MB;
    Ok((megabytes * 1e6 / us.iter().sum::<u64>() as f64, megabytes, p99_ms(us)))
}

/// Connections a second, connections, and the p99 of one: from the end of the one before by the same client, so that
/// connecting, logging in and leaving count.
fn short_connections(bench: &Bench, way: &Way) -> Result<(f64, f64, Option<f64>)> {
    let (clients, each) = (SHORT_CLIENTS.to_string(), SHORT_EACH.to_string());
    // A thread waits where its client connects: each has its own.
    let words = ["-n", "-S", "-C", "-c", &clients, "-j", &clients, "-t", &each];
    let (per_s, ended) = logged(bench, way, &words)?;
    let mut by_client = BTreeMap::<u64, Vec<u64>>::new();
    for one in ended {
        by_client.entry(one.client).or_default().push(one.at_us);
    }
    let between = by_client.values().flat_map(|ends| ends.windows(2).map(|pair| pair[1] - pair[0]));
    Ok((per_s, f64::from(SHORT_CLIENTS * SHORT_EACH), p99_ms(between.collect())))
}

fn transactions(
    bench: &Bench,
    way: &Way,
    (reads, clients): (bool, u32),
    length: Length,
) -> Result<(f64, f64, Option<f64>)> {
    let (count, threads) = (clients.to_string(), clients.min(2).to_string());
    let seconds = (length.warm_up + length.measured + CONNECTING * clients).as_secs().max(1).to_string();
    let mut words = vec!["-n", "-M", "prepared", "-c", &count, "-j", &threads, "-T", &seconds];
    words.extend(reads.then_some("-S"));
    let (per_s, mut ended) = logged(bench, way, &words)?;
    let all = (ended.len() as f64).max(1.0);
    let last_us = ended.iter().map(|ended| ended.at_us).max().unwrap_or_default();
    if !length.warm_up.is_zero() {
        ended.retain(|ended| Duration::from_micros(last_us - ended.at_us) < length.measured);
    }
    let per_s = if length.warm_up.is_zero() { per_s } else { ended.len() as f64 / length.measured.as_secs_f64() };
    Ok((per_s, all, p99_ms(ended.iter().map(|ended| ended.latency_us).collect())))
}

/// pgbench's rate, and what its log of every transaction says.
fn logged(bench: &Bench, way: &Way, words: &[&str]) -> Result<(f64, Vec<Ended>)> {
    let logs = bench.work.join("latencies");
    if logs.exists() {
        std::fs::remove_dir_all(&logs)?;
    }
    std::fs::create_dir(&logs)?;
    let mut command = bench.client("pgbench", way);
    command.args(words).args(["-l", "--log-prefix", "tx"]).current_dir(&logs);
    let per_s = tps(&run(command.stdout(Stdio::piped()))?)?;
    let mut ended = Vec::new();
    for file in std::fs::read_dir(&logs)? {
        ended.extend(std::fs::read_to_string(file?.path())?.lines().filter_map(Ended::of));
    }
    Ok((per_s, ended))
}

/// A transaction that has ended: a line of pgbench's log.
struct Ended {
    client: u64,
    latency_us: u64,
    at_us: u64,
}

impl Ended {
    /// `client transaction latency script seconds microseconds`
    fn of(line: &str) -> Option<Ended> {
        let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let [client, _, latency_us, _, seconds, microseconds] = numbers[..] else { return None };
        Some(Ended { client, latency_us, at_us: seconds * 1_000_000 + microseconds })
    }
}

fn p99_ms(mut latencies_us: Vec<u64>) -> Option<f64> {
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
