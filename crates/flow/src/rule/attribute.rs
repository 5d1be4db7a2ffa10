//! What a rule can look at: the attributes of the product that the statements come from, as far as stock PostgreSQL and
//! Linux can measure them, and four more. WAL of the statement that runs is not among them: PostgreSQL 18 tells a session's WAL
//! when its transaction has ended, so that no rule could act on the one that wrote it. What is told of a session's WAL is held
//! against the statements that it runs next.

use crate::literal::{Literal, ValueError};
use crate::word::words;

words! {
    /// A figure of a running session that a rule sets a threshold for.
    pub enum Attribute: "an attribute of a rule" {
        /// Seconds since the statement began.
        ElapsedTime = "elapsedtime",
        /// Seconds that the statement waited: for its turn, or on a lock.
        BlockTime = "blocktime",
        /// MB a second to the client, mean of the last five seconds.
        Bandwidth = "bandwidth",
        /// Seconds of CPU that the statement used.
        CpuTime = "cputime",
        /// Percent of one CPU, mean since the statement began.
        CpuAvgPercent = "cpuavgpercent",
        /// MB of temporary files.
        SpillSize = "spillsize",
        /// MB of private memory.
        MemSize = "memsize",
        /// MB of WAL a second of its session, mean of the last five seconds; a server tells it when a statement has ended.
        WalRate = "walrate",
        /// MB of WAL that its session wrote in one go: since it last rested for [`RESTED_AFTER`](super::RESTED_AFTER), within the
        /// last [`LONGEST_GO`](super::LONGEST_GO).
        WalSize = "walsize",
        /// Rows sent to the client.
        Rows = "rows",
    }
}

impl Attribute {
    /// The unit of thresholds and figures.
    pub fn unit(self) -> &'static str {
        match self {
            Attribute::ElapsedTime | Attribute::BlockTime | Attribute::CpuTime => "s",
            Attribute::Bandwidth | Attribute::WalRate => "MB/s",
            Attribute::CpuAvgPercent => "%",
            Attribute::SpillSize | Attribute::MemSize | Attribute::WalSize => "MB",
            Attribute::Rows => "rows",
        }
    }

    /// What is measured, and where that can be.
    pub fn about(self) -> &'static str {
        match self {
            Attribute::ElapsedTime => "how long the statement has run",
            Attribute::BlockTime => {
                "how long it waited for its turn (max_active) or, where the server is asked, on a lock"
            }
            Attribute::Bandwidth => "what it sends to its client, mean of five seconds",
            Attribute::CpuTime => {
                "processor time that its process used, without parallel workers; the server must be on this host"
            }
            Attribute::CpuAvgPercent => {
                "of one processor, mean since it began, without parallel workers; the server must be on this host"
            }
            Attribute::SpillSize => {
                "temporary files of its process in pg_default, without those in temp_tablespaces and of parallel workers; the proxy \
                 needs a server_account"
            }
            Attribute::MemSize => {
                "private memory of its process, without parallel workers; the server must be on this host"
            }
            Attribute::WalRate => {
                "WAL of its session, mean of five seconds, told when a statement has ended: of jobs of many statements, not of one large one; \
                 PostgreSQL 18, the proxy needs a server_account"
            }
            Attribute::WalSize => {
                "WAL that its session wrote in one go, so since it last had neither statement nor transaction for 15 s, and within the \
                 last hour; told when a transaction has ended: it is the next statement that is over; PostgreSQL 18, the proxy needs a server_account"
            }
            Attribute::Rows => {
                "rows that it sent to its client so far, by COPY too; attach mode counts those of a SELECT, in the memory of its process, \
                 and from PostgreSQL 14 of COPY"
            }
        }
    }

    /// The range of thresholds, both ends included.
    pub fn range(self) -> (f64, f64) {
        match self {
            Attribute::CpuAvgPercent => (1.0, 100.0),
            Attribute::Rows => (1.0, 9e15),
            // Down to a millisecond and a kilobyte, so that experiments can be short; up to what a 32-bit int holds.
            _ => (0.001, f64::from(i32::MAX)),
        }
    }

    /// Reads a threshold; None is -1, which switches the attribute off.
    pub(crate) fn threshold(self, literal: &Literal) -> Result<Option<f64>, ValueError> {
        let (least, most) = self.range();
        match literal.number() {
            Some(-1.0) => Ok(None),
            Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(literal.refuse(self.word(), format!("{} from {least} to {most}, or -1 for off", self.unit()))),
        }
    }
}
