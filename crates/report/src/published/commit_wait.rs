//! What was published about commits: session samples while a procedure inserts ten million rows, on Aurora.

use super::{Published, PublishedRow};

pub(super) const TABLE: Published = Published {
    scenario: "commit-wait",
    source: "ten million rows inserted one by one by a procedure on Aurora, sampled from pg_stat_activity some 2.8 times a \
             second; the sampler cost 133.4 s -> 135.4 s",
    columns: &[("rows a commit", "rows_per_commit")],
    rows: &[
        PublishedRow {
            set: &["10,000,000"],
            seen: "135.9 s; on CPU 346 (88.7 %), IO:WALWrite 44 (11.3 %)",
            arm: "rows-200000",
        },
        PublishedRow {
            set: &["1,000,000"],
            seen: "136.1 s; on CPU 349 (89.5 %), IO:WALWrite 38 (9.74 %), IO:XactSync 3 (0.77 %)",
            arm: "rows-20000",
        },
        PublishedRow {
            set: &["100,000"],
            seen: "133.4 s; on CPU 315 (82.9 %), IO:WALWrite 35 (9.21 %), IO:XactSync 30 (7.89 %)",
            arm: "rows-2000",
        },
        PublishedRow {
            set: &["10,000"],
            seen: "141.8 s; on CPU 283 (69.7 %), IO:WALWrite 32 (7.88 %), IO:XactSync 91 (22.4 %)",
            arm: "rows-200",
        },
        PublishedRow {
            set: &["1,000"],
            seen: "177.6 s; on CPU 252 (47.2 %), IO:WALWrite 32 (5.99 %), IO:XactSync 250 (46.8 %)",
            arm: "rows-20",
        },
        PublishedRow {
            set: &["100"],
            seen: "373.5 s; on CPU 249 (23.7 %), IO:WALWrite 24 (2.29 %), IO:XactSync 776 (74.0 %)",
            arm: "rows-2",
        },
    ],
    caution: "Each of our rows has as many commits as the published one above it, of a fiftieth of the rows. Compare shares, not \
              counts: looks were less frequent there. Aurora waits for its storage fleet (XactSync), community PostgreSQL for its \
              own disk (WALSync).",
};
