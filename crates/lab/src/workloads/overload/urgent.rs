//! The urgent query: a small join with an answer of twenty rows, which takes some milliseconds of the server's time and
//! a few hundred bytes of the link.

use super::super::WorkloadError;
use super::super::driver::{Failure, Local, Session, Workload};
use super::super::error::cannot;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Instant;
use tokio_postgres::{Client, Statement};

/// Orders that there are, and the fewest and most that one query joins.
const ORDERS: i32 = 200_000;
const FEWEST: i32 = 100;
const MOST: i32 = 100_000;
const QUERY: &str = "SELECT c.region, count(*), sum(o.amount) FROM backwater_orders o JOIN backwater_customers c ON c.id = \
                     o.customer WHERE o.id BETWEEN $1 AND $1 + $2 GROUP BY c.region ORDER BY c.region";
/// Queries whose median tells how long one takes, and how often the size is put right by it.
const TRIED: usize = 15;
const ROUNDS: usize = 3;

/// Makes its tables, and notes how many orders one query joins.
pub(super) async fn make(client: &Client, wanted_ms: f64) -> Result<(), tokio_postgres::Error> {
    let tables = format!(
        "CREATE TABLE backwater_customers AS SELECT id, id % 20 AS region FROM generate_series(0, 999) AS id; \
         ALTER TABLE backwater_customers ADD PRIMARY KEY (id); \
         CREATE TABLE backwater_orders AS SELECT id, (id::int8 * 7919 % 1000)::int AS customer, id % 997 AS amount \
         FROM generate_series(1, {ORDERS}) AS id; ALTER TABLE backwater_orders ADD PRIMARY KEY (id)"
    );
    client.batch_execute(&tables).await?;
    // By themselves: VACUUM cannot run in a transaction, which several statements at once are.
    for table in ["backwater_customers", "backwater_orders"] {
        client.batch_execute(&format!("VACUUM (ANALYZE) {table}")).await?;
    }
    let statement = client.prepare(QUERY).await?;
    let mut orders = 5_000;
    for _ in 0..ROUNDS {
        let median_ms = median_ms(client, &statement, orders).await?;
        orders = (f64::from(orders) * wanted_ms / median_ms.max(0.01)).round() as i32;
        orders = orders.clamp(FEWEST, MOST);
    }
    client.batch_execute(&format!("CREATE TABLE backwater_urgent AS SELECT {orders} AS orders")).await
}

async fn median_ms(client: &Client, statement: &Statement, orders: i32) -> Result<f64, tokio_postgres::Error> {
    let mut times = Vec::with_capacity(TRIED);
    for number in 0..TRIED {
        let from = 1 + (number as i32 * 6_007) % (ORDERS - MOST);
        let began = Instant::now();
        client.query(statement, &[&from, &orders]).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(crate::metrics::median(&times).unwrap_or_default())
}

/// The query as a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Urgent;

impl Workload for Urgent {
    fn name(&self) -> &str {
        "net-overload"
    }

    fn session(
        &self,
        connection: Client,
        _client: usize,
        seed: u64,
    ) -> Local<'_, Result<Box<dyn Session>, WorkloadError>> {
        Box::pin(async move {
            let wrong = cannot("prepare the urgent query");
            let row = connection.query_one("SELECT orders FROM backwater_urgent", &[]).await.map_err(&wrong)?;
            let orders: i32 = row.try_get(0).map_err(&wrong)?;
            let query = connection.prepare(QUERY).await.map_err(&wrong)?;
            let dice = StdRng::seed_from_u64(seed);
            Ok(Box::new(UrgentSession { connection, query, orders, dice }) as Box<dyn Session>)
        })
    }
}

struct UrgentSession {
    connection: Client,
    query: Statement,
    orders: i32,
    dice: StdRng,
}

impl Session for UrgentSession {
    fn transaction(&mut self) -> Local<'_, Result<(), Failure>> {
        Box::pin(async {
            let from = self.dice.random_range(1..=ORDERS - MOST);
            self.connection.query(&self.query, &[&from, &self.orders]).await?;
            Ok(())
        })
    }
}
