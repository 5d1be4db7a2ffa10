//! What was published about the lag of a standby under a cap on I/O: PostgreSQL for tenants who share a host.

use super::{Published, PublishedRow};

pub(super) const TABLE: Published = Published {
    scenario: "wal-lag",
    source: "PostgreSQL for tenants of one host, primary and standby each held to 200 reads and 200 writes a second by \
             control groups; one client calls a function 100 times that makes a table of 201 columns, puts 5,000 rows into \
             it and drops it, with synchronous_commit off",
    columns: &[("I/O cap", "write_iops"), ("of the standby", "standby_write_iops"), ("network", "network_bytes_per_s")],
    rows: &[
        PublishedRow {
            set: &["200 IOPS", "200 IOPS", "1 Gbit/s"],
            seen: "WAL about 800 KB/s (580 to 1,320); peak delays: sent 102,789 KB, written 107,270 KB, flushed \
                   111,110 KB, replayed 114,742 KB; last: 99,381, 103,861, 107,573, 111,084 KB",
            arm: "both-capped",
        },
        PublishedRow {
            set: &["none", "none", "1 Gbit/s"],
            seen: "WAL about 300,000 KB/s (286,000 to 347,000), more than the network carries; delays grow to the end: sent \
                   3,439,531 KB, written and flushed 3,443,627 KB, replayed 3,448,171 KB; then segments that the standby \
                   needs are removed and replication dies",
            arm: "network-narrow",
        },
    ],
    caution: "Ours is scaled to a small machine, with bytes capped as well as operations: compare rows with each other, not \
              figures across the two tables.",
};
