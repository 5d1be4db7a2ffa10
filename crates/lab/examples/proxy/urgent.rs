//! A session that asks on, at times that do not wait for the answers: how long each took beside something else.

use crate::peers::Way;
use crate::statistics::{Ratios, median};
use crate::{Bench, Result};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Statement};

/// Accounts that both are about.
const ACCOUNTS: i32 = 100_000;
/// What the longer of the two takes alone, as in the article.
const SUM_MS: f64 = 5.0;
/// Queries whose median tells how long one takes, and how often the size is put right by it.
const TRIED: usize = 15;
const ROUNDS: usize = 3;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asks {
    /// One row by its key, as by pgbench -S.
    Row,
    /// The sum of so many, which takes some milliseconds: the article's urgent query.
    Sum { accounts: i32 },
}

impl Asks {
    /// A sum that takes as long as the article's query here and now.
    pub(crate) fn sum(conninfo: &str) -> Result<Asks> {
        let runtime = runtime()?;
        let client = runtime.block_on(connect(conninfo))?;
        let mut accounts = ACCOUNTS / 10;
        for _ in 0..ROUNDS {
            let asks = Asks::Sum { accounts };
            let statement = runtime.block_on(client.prepare(asks.query()))?;
            let mut times = Vec::with_capacity(TRIED);
            for _ in 0..TRIED {
                let began = Instant::now();
                runtime.block_on(asks.ask(&client, &statement))?;
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
            accounts = (f64::from(accounts) * SUM_MS / median(&times).max(0.01)).round() as i32;
            accounts = accounts.clamp(1, ACCOUNTS);
        }
        Ok(Asks::Sum { accounts })
    }

    const fn every(self) -> Duration {
        match self {
            Asks::Row => Duration::from_millis(2),
            Asks::Sum { .. } => Duration::from_millis(33),
        }
    }

    const fn query(self) -> &'static str {
        match self {
            Asks::Row => "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
            Asks::Sum { .. } => "SELECT sum(abalance) FROM pgbench_accounts WHERE aid > $1 AND aid <= $1 + $2",
        }
    }

    async fn ask(self, client: &Client, statement: &Statement) -> Result<()> {
        let from = rand::random_range(1..=ACCOUNTS);
        match self {
            Asks::Row => client.query_one(statement, &[&from]).await?,
            Asks::Sum { accounts } => client.query_one(statement, &[&from, &accounts]).await?,
        };
        Ok(())
    }
}

impl fmt::Display for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let every_ms = self.every().as_millis();
        match self {
            Asks::Row => write!(f, "a row by its key every {every_ms} ms, as pgbench -S does"),
            Asks::Sum { accounts } => {
                write!(
                    f,
                    "a sum over {accounts} rows every {every_ms} ms, as many as take about {SUM_MS} ms, as the article's query"
                )
            }
        }
    }
}

pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

pub(crate) fn conninfo(bench: &Bench, way: &Way) -> String {
    format!("host=127.0.0.1 port={} user=postgres dbname=postgres password={}", way.port, bench.password)
}

async fn connect(conninfo: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(conninfo, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// How long statements took.
pub(crate) struct Urgent {
    statements: usize,
    mean_ms: f64,
    p50_ms: f64,
    pub(crate) p99_ms: f64,
    longest_ms: f64,
}

impl Urgent {
    fn of(mut took: Vec<Duration>) -> Urgent {
        took.sort_unstable();
        let ms = |share: f64| {
            let at = (took.len() as f64 * share) as usize;
            took.get(at).or(took.last()).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        let mean_ms = took.iter().sum::<Duration>().as_secs_f64() * 1e3 / took.len() as f64;
        Urgent { statements: took.len(), mean_ms, p50_ms: ms(0.5), p99_ms: ms(0.99), longest_ms: ms(1.0) }
    }
}

/// Does it while a session asks: until it is done, or says that it is over.
pub(crate) fn beside<T>(asked: (Asks, &str), what: impl FnOnce(&AtomicBool) -> T) -> Result<(T, Urgent)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let urgent = scope.spawn(|| ask_on(asked, &over));
        let done = what(&over);
        over.store(true, Ordering::Relaxed);
        Ok((done, Urgent::of(urgent.join().map_err(|_| "the urgent session panicked")??)))
    })
}

/// Asks at fixed times, and returns how long each answer took. What is late because the answer before it was late counts from when it was due.
fn ask_on((asks, conninfo): (Asks, &str), over: &AtomicBool) -> Result<Vec<Duration>> {
    let runtime = runtime()?;
    let client = runtime.block_on(connect(conninfo))?;
    let statement = runtime.block_on(client.prepare(asks.query()))?;
    let (mut took, mut due) = (Vec::new(), Instant::now());
    while !over.load(Ordering::Relaxed) {
        due += asks.every();
        let left = due.saturating_duration_since(Instant::now());
        std::thread::sleep(left);
        let begun = if left.is_zero() { due } else { Instant::now() };
        runtime.block_on(asks.ask(&client, &statement))?;
        took.push(begun.elapsed());
    }
    Ok(took)
}

/// Ratios of a figure, round by round.
pub(crate) fn ratios(these: &[Urgent], those: &[Urgent], figure: fn(&Urgent) -> f64) -> Ratios {
    Ratios(these.iter().zip(those).map(|(this, that)| figure(this) / figure(that)).collect())
}

/// Medians of the rounds, how far apart their p99 lie, and how many times their mean is that of the same rounds alone.
pub(crate) fn tell(beside: &str, rounds: &[Urgent], alone: &[Urgent]) {
    let of = |figure: fn(&Urgent) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
    let p99s = of(|urgent| urgent.p99_ms);
    let times = ratios(rounds, alone, |urgent| urgent.mean_ms);
    println!(
        "  {beside:<14} {:>6} statements: mean {:.3} ms, {:.2} of alone ({:.2} at most); p50 {:.3} ms, p99 {:.3} ms ({:.3} to {:.3}), longest of all {:.3} ms",
        rounds.iter().map(|urgent| urgent.statements).sum::<usize>(),
        median(&of(|urgent| urgent.mean_ms)),
        times.median(),
        times.at_most(),
        median(&of(|urgent| urgent.p50_ms)),
        median(&p99s),
        p99s.iter().copied().fold(f64::INFINITY, f64::min),
        p99s.iter().copied().fold(0.0, f64::max),
        rounds.iter().map(|urgent| urgent.longest_ms).fold(0.0, f64::max)
    );
}
