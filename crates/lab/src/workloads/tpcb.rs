//! A load like TPC-B, on the tables and with the statements of pgbench's default script, so that its figures can be
//! held beside pgbench's and pgbench can run on the same data.
//!
//! Unlike pgbench, which waits for the answer to each of the seven statements, a client sends all seven at once and
//! then waits for the seven answers: `BEGIN … END` is still one transaction with the same effects, but row locks are
//! held for less time and a client costs a third of the processor time, which on a small machine the server needs.

use super::driver::{Failure, Local, Session, Workload};
use super::error::{cannot, reason};
use super::{ACCOUNTS_PER_BRANCH, TELLERS_PER_BRANCH, WorkloadError};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

const STATEMENTS: [&str; 7] = [
    "BEGIN",
    "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
    "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
    "UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2",
    "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
    "END",
];

/// The load on data of this scale.
#[derive(Clone, Copy, Debug)]
pub struct Tpcb {
    scale: u32,
}

impl Tpcb {
    /// The load on data of this scale, made by [`initialise`](super::initialise) or by `pgbench -i`.
    pub fn new(scale: u32) -> Result<Tpcb, WorkloadError> {
        super::check_scale(scale)?;
        Ok(Tpcb { scale })
    }
}

impl Tpcb {
    /// Whether the data have this scale: otherwise updates would find no row, and cost nothing.
    async fn check(&self, connection: &Client) -> Result<(), WorkloadError> {
        let found = connection.query_one("SELECT max(bid)::bigint FROM pgbench_branches", &[]).await;
        let fail = |reason| WorkloadError::Prepare { what: format!("load data of scale {}", self.scale), reason };
        let scale = found.map_err(|error| fail(reason(&error)))?.get::<_, Option<i64>>(0).unwrap_or(0);
        if scale == i64::from(self.scale) { Ok(()) } else { Err(fail(format!("the data have scale {scale}"))) }
    }
}

impl Workload for Tpcb {
    fn name(&self) -> &str {
        "tpcb"
    }

    fn session(
        &self,
        connection: Client,
        client: usize,
        seed: u64,
    ) -> Local<'_, Result<Box<dyn Session>, WorkloadError>> {
        Box::pin(async move {
            let mut statements = Vec::with_capacity(STATEMENTS.len());
            for text in STATEMENTS {
                let wrong = cannot(format!("prepare '{text}'; make the data first"));
                statements.push(connection.prepare(text).await.map_err(wrong)?);
            }
            if client == 0 {
                self.check(&connection).await?;
            }
            let statements = statements.try_into().map_err(|_| WorkloadError::Prepare {
                what: "prepare all statements".into(),
                reason: "one is missing".into(),
            })?;
            let dice = StdRng::seed_from_u64(seed);
            Ok(Box::new(TpcbSession { connection, statements, dice, scale: self.scale }) as Box<dyn Session>)
        })
    }
}

struct TpcbSession {
    connection: Client,
    statements: [Statement; 7],
    dice: StdRng,
    scale: u32,
}

impl Session for TpcbSession {
    fn transaction(&mut self) -> Local<'_, Result<(), Failure>> {
        let dice = &mut self.dice;
        let aid = dice.random_range(1..=(ACCOUNTS_PER_BRANCH * self.scale) as i32);
        let bid = dice.random_range(1..=self.scale as i32);
        let tid = dice.random_range(1..=(TELLERS_PER_BRANCH * self.scale) as i32);
        let delta = dice.random_range(-5_000..=5_000);
        Box::pin(self.pipelined(aid, bid, tid, delta))
    }
}

impl TpcbSession {
    async fn pipelined(&self, aid: i32, bid: i32, tid: i32, delta: i32) -> Result<(), Failure> {
        let Self { connection, statements: [begin, account, balance, teller, branch, history, end], .. } = self;
        type Parameters<'a, const N: usize> = [&'a (dyn ToSql + Sync); N];
        let for_account: Parameters<'_, 2> = [&delta, &aid];
        let for_teller: Parameters<'_, 2> = [&delta, &tid];
        let for_branch: Parameters<'_, 2> = [&delta, &bid];
        let for_balance: Parameters<'_, 1> = [&aid];
        let for_history: Parameters<'_, 4> = [&tid, &bid, &aid, &delta];
        // In order: each is written to the connection when it is polled for the first time.
        let answers = tokio::join!(
            biased;
            connection.execute(begin, &[]),
            connection.execute(account, &for_account),
            connection.execute(balance, &for_balance),
            connection.execute(teller, &for_teller),
            connection.execute(branch, &for_branch),
            connection.execute(history, &for_history),
            connection.execute(end, &[]),
        );
        // The first that failed is why; those after it only say that the transaction is aborted.
        answers.0.and(answers.1).and(answers.2).and(answers.3).and(answers.4).and(answers.5).and(answers.6)?;
        Ok(())
    }
}
