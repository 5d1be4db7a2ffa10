//! How a server's processes count the rows of a query: learnt by one of our own, and again where the server is another.

use super::{Server, address, block_on, guardian_ended, in_time, is_ended, is_lost};
use backwater_gate::attach::{Guardian, Named};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

/// A session's own process, and where the server sees its client.
const OWN: &str =
    "SELECT pg_catalog.pg_backend_pid(), host(pg_catalog.inet_client_addr()), pg_catalog.inet_client_port()";
/// How often it is tried to learn how rows are counted: on a busy host a look may come too late.
const TRIES: usize = 5;
/// And when it is tried once more, where it could be learnt before.
const LEARN_AGAIN: Duration = Duration::from_secs(60);
/// How often it is looked meanwhile whether the statement sleeps already.
const LEARN_LOOK: Duration = Duration::from_millis(10);

/// A statement that sleeps after some thousands of rows, and after how many. The number is hardly anything else's in a process,
/// and each time another.
fn experiment(at: SystemTime) -> (String, u64) {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let rows = 10_000 + u64::from(since.subsec_micros()) % 10_000;
    let last = rows + 1;
    let statement = format!(
        "SELECT CASE i WHEN {last} THEN pg_catalog.pg_sleep(0.5) END FROM pg_catalog.generate_series(1, {last}) i /* backwater */"
    );
    (statement, rows)
}

impl Server {
    /// Another connection with the same server, which may be of another release meanwhile.
    pub(in super::super) fn again(&self, guardian: &mut Guardian) -> anyhow::Result<Server> {
        let mut server = Server::connect(&self.target, &self.end)?;
        let could = self.learn_again.is_some() || self.counts_rows();
        if self.counts_rows.is_some() {
            server.learn_rows(guardian)?;
        }
        server.learn_again = (could && !server.counts_rows()).then(|| Instant::now() + LEARN_AGAIN);
        Ok(server)
    }

    /// Tries once more to learn how rows are counted, where that could be before and it is time.
    ///
    /// # Errors
    /// As of [`Server::learn_rows`].
    pub(in super::super) fn learn_rows_again(&mut self, guardian: &mut Guardian) -> anyhow::Result<()> {
        if self.learn_again.is_none_or(|again| Instant::now() < again) {
            return Ok(());
        }
        self.learn_again = Some(Instant::now() + LEARN_AGAIN);
        self.try_to_learn(1, guardian)?;
        if self.counts_rows() {
            self.learn_again = None;
        }
        Ok(())
    }

    /// Whether rules can look at rows.
    pub(in super::super) fn counts_rows(&self) -> bool {
        matches!(self.counts_rows, Some(Ok(())))
    }

    /// Finds out how this server's processes count the rows of a query, by one of our own: from then on rules can look at rows, or
    /// it is known why not.
    ///
    /// # Errors
    /// The guardian or the server is gone, or it is time to end.
    pub(in super::super) fn learn_rows(&mut self, guardian: &mut Guardian) -> anyhow::Result<()> {
        self.try_to_learn(TRIES, guardian)
    }

    fn try_to_learn(&mut self, tries: usize, guardian: &mut Guardian) -> anyhow::Result<()> {
        self.counts_rows =
            Some(Err("a query of our own was not found in its memory, or in more than one way".to_owned()));
        for _ in 0..tries {
            match self.experiment(guardian) {
                Ok(false) => {}
                Ok(true) => {
                    self.counts_rows = Some(Ok(()));
                    break;
                }
                Err(error) if is_ended(&error) || guardian_ended(&error) => return Err(error),
                Err(error) => {
                    self.counts_rows = Some(Err(format!("{error:#}")));
                    return if is_lost(&error) { Err(error) } else { Ok(()) };
                }
            }
        }
        Ok(())
    }

    /// Runs a query whose rows are known, and has its process looked at meanwhile. Whether it was learnt how these are counted.
    fn experiment(&mut self, guardian: &mut Guardian) -> anyhow::Result<bool> {
        let (statement, rows) = experiment(SystemTime::now());
        block_on(&self.runtime, &self.end, async {
            // A pooler may give each transaction another process.
            let transaction = in_time(self.client.transaction()).await?;
            let own = in_time(transaction.query_one(OWN, &[])).await?;
            let port = own.get::<_, Option<i32>>(2).and_then(|port| u16::try_from(port).ok());
            // In a container it has another number there than here; by a Unix socket nothing else names it.
            let pids = match address(own.get(1)).zip(port).map(SocketAddr::from) {
                Some(client) => {
                    let is_own = |named: &&Named| named.socket.inner_pid() == Some(own.get(0));
                    guardian.find_peer(client)?.tcp.iter().filter(is_own).map(|named| named.socket.pid).collect()
                }
                None => vec![own.get(0)],
            };
            let mut running = std::pin::pin!(in_time(transaction.query(&statement, &[])));
            let mut learnt = false;
            loop {
                match tokio::time::timeout(LEARN_LOOK, &mut running).await {
                    Ok(answer) => return answer.map(|_| learnt),
                    Err(_) if learnt => {}
                    Err(_) => {
                        for pid in &pids {
                            learnt = learnt || guardian.learn_rows(*pid, &statement, rows)?;
                        }
                    }
                }
            }
        })
    }
}
