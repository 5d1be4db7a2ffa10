//! What was published about WiredTiger at its peak: a sharded MongoDB 3.6 whose operators tuned it step by step.

use super::{Published, PublishedRow};

pub(super) const TABLE: Published = Published {
    scenario: "wt-stall",
    source: "MongoDB 3.6, sharded, 190 GB of memory a server, NVMe; more than 1.2 million operations a second at the peak, \
             near 10 billion documents kept for three days; the steps in the order in which they were taken",
    columns: &[
        ("cache", "cache_size"),
        ("dirty trigger, %", "eviction_dirty_trigger"),
        ("eviction threads", "eviction"),
        ("checkpoint", "checkpoint"),
    ],
    rows: &[
        PublishedRow {
            set: &["110 GB", "20", "4/4", "60 s, 2 GB of journal"],
            seen: "mean latency 80 ms, timeouts of 5 s; the disk busy 0 % or 100 %",
            arm: "defaults",
        },
        PublishedRow {
            set: &["110 GB", "20", "4/4", "60 s, 2 GB of journal"],
            seen: "with a thread for each of 10,000 connections mean latency 200 ms; 80 ms with shared threads",
            arm: "thread-per-operation",
        },
        PublishedRow {
            set: &["50 GB", "25", "8/12", "25 s, 1 GB of journal"],
            seen: "mean latency 20 ms, timeouts of 1 s remained",
            arm: "first-round",
        },
        PublishedRow {
            set: &["50 GB", "30", "14/18", "20 s, 1 GB of journal"],
            seen: "on a mended kernel mean latency 2 to 4 ms, spikes of 80 ms; last 1 ms, spikes of 35 ms",
            arm: "last-round",
        },
        PublishedRow {
            set: &["50 GB", "30", "8/12", "25 s, 1 GB of journal"],
            seen: "a slow member pins history: dirty surges to 50 %, once thousands of ms",
            arm: "slow-member",
        },
    ],
    caution: "Ours is the engine alone on a capped disk, with times scaled by five and one setting changed at a time where the \
              article changed several: compare rows with each other, not figures across the two tables.",
};
