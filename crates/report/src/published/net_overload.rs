//! What was published about a network under overload: GaussDB(DWS), a small join beside large ones.

use super::{Published, PublishedRow};

pub(super) const TABLE: Published = Published {
    scenario: "net-overload",
    source: "GaussDB(DWS), three nodes on 10 Gbit/s: a large broadcast join as background, a small join (5 ms alone) as the \
             urgent query; demoted, the background may send 256 MB/s and no more than a millisecond's worth at once",
    columns: &[("control", "mode"), ("large results", "background_streams"), ("send buffers", "send_buffer_bytes")],
    rows: &[
        PublishedRow { set: &["none", "0", "4 KB, 16 KB, 4 MB"], seen: "5.048 ms", arm: "alone" },
        PublishedRow {
            set: &["none", "1", "4 KB, 16 KB, 4 MB"],
            seen: "86.197 ms (679 ms in another run)",
            arm: "none-1",
        },
        PublishedRow { set: &["none", "3", "4 KB, 16 KB, 4 MB"], seen: "165.397 ms", arm: "none-3" },
        PublishedRow { set: &["none", "5", "4 KB, 16 KB, 4 MB"], seen: "206.677 ms", arm: "none-5" },
        PublishedRow { set: &["none", "10", "4 KB, 16 KB, 4 MB"], seen: "278.875 ms", arm: "none-10" },
        PublishedRow {
            set: &["demoted, no bucket", "1", "4 KB, 16 KB, 4 MB"],
            seen: "367 ms (73 × alone; 679 ms without control: 1.9 × better)",
            arm: "demoted-only-1",
        },
        PublishedRow { set: &["demoted", "1", "4 KB, 16 KB, 4 MB"], seen: "11.031 ms", arm: "proxy-1" },
        PublishedRow { set: &["demoted", "3", "4 KB, 16 KB, 4 MB"], seen: "10.952 ms", arm: "proxy-3" },
        PublishedRow { set: &["demoted", "5", "4 KB, 16 KB, 4 MB"], seen: "10.64 ms", arm: "proxy-5" },
        PublishedRow { set: &["demoted", "10", "4 KB, 16 KB, 4 MB"], seen: "12.045 ms", arm: "proxy-10" },
        PublishedRow { set: &["none", "1", "51,200 B"], seen: "403 ms (80 × alone)", arm: "none-10-buffers-50" },
        PublishedRow {
            set: &["demoted, no bucket", "1", "51,200 B"],
            seen: "12 ms (2.4 × alone, 34 × better)",
            arm: "demoted-only-10-buffers-50",
        },
        PublishedRow { set: &["none", "1", "102,400 B"], seen: "439 ms (87 × alone)", arm: "none-10-buffers-100" },
        PublishedRow {
            set: &["demoted, no bucket", "1", "102,400 B"],
            seen: "17 ms (3.4 × alone, 26 × better)",
            arm: "demoted-only-10-buffers-100",
        },
        PublishedRow { set: &["none", "1", "512,000 B"], seen: "573 ms (114 × alone)", arm: "none-10-buffers-500" },
        PublishedRow {
            set: &["demoted, no bucket", "1", "512,000 B"],
            seen: "77 ms (15 × alone, 7.4 × better)",
            arm: "demoted-only-10-buffers-500",
        },
    ],
    caution: "Here the link is 200 Mbit/s, the rule acts after a second, and the link's queue is that of a token bucket filter: \
              compare rows with each other, not figures across the two tables.",
};
