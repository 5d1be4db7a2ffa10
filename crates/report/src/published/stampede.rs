//! What was published about dirty page limits: EDB's measurements with pgbench on cloud volumes.

use super::{Published, PublishedRow};

pub(super) const TABLE: Published = Published {
    scenario: "stampede",
    source: "EDB, pgbench on cloud volumes: scale 10,000 (150 GB), 32 clients, 500 s; 16 threads, 32 GB of memory; \
             500 GB gp2 volume (1,500 IOPS, burst 3,000); no checkpoint in the way, pg_wal on another disk",
    columns: &[("dirty limit", "dirty_limit_bytes"), ("volume", "write_iops")],
    rows: &[
        PublishedRow {
            set: &["default vm.dirty_ratio (usually 10–20 %)", "gp2 1,500 IOPS"],
            seen: "mean 800 TPS instead of 1,700: falls once Dirty passes about 4.5 GB (15–20 % of available memory), \
                   near zero at times, never recovers; buffers still draining 215 s after the test; checkpoint syncs 8–12 s",
            arm: "default",
        },
        PublishedRow {
            set: &["dirty_bytes 16 GB, background 25 % of it", "gp2 1,500 IOPS"],
            seen: "slow decline; only 8 GB reached in the test; drain 345 s",
            arm: "large-limit",
        },
        PublishedRow {
            set: &["dirty_bytes 1 GB", "gp2 1,500 IOPS"],
            seen: "less pronounced stalls; drain 30 s",
            arm: "small-limit",
        },
        PublishedRow {
            set: &["dirty_bytes 8 GB", "io2 10,000 IOPS"],
            seen: "peak TPS nearly 3×, mean nearly 2× the best gp2; flat at the limit; drain 55 s",
            arm: "large-limit-fast",
        },
        PublishedRow {
            set: &["dirty_bytes 1 GB", "io2 10,000 IOPS"],
            seen: "some overall performance lost, much steadier; drain under 10 s",
            arm: "small-limit-fast",
        },
    ],
    caution: "Ours is scaled to a small machine: compare rows with each other, not figures across the two tables.",
};
