//! I/O of version 1: `blkio.throttle.*`. Limits and counters are each group's own: those of a parent neither hold
//! for nor include its children's (block/blk-throttle.c without `cgroup_subsys_on_dfl`).

use super::io::{Entry, READ, WRITE};
use crate::host::text::is_device_number;
use backwater_model::catalogue::{self, Def};

/// File of limits, direction, series: lines of `MAJ:MIN limit`.
pub(super) const LIMITS: [(&str, &str, &Def); 4] = [
    ("blkio.throttle.read_iops_device", READ, &catalogue::CGROUP_IOPS_LIMIT),
    ("blkio.throttle.write_iops_device", WRITE, &catalogue::CGROUP_IOPS_LIMIT),
    ("blkio.throttle.read_bps_device", READ, &catalogue::CGROUP_BPS_LIMIT),
    ("blkio.throttle.write_bps_device", WRITE, &catalogue::CGROUP_BPS_LIMIT),
];

/// File of counters, series: lines of `MAJ:MIN Read 12`.
pub(super) const COUNTERS: [(&str, &Def); 2] = [
    ("blkio.throttle.io_serviced", &catalogue::CGROUP_IOS),
    ("blkio.throttle.io_service_bytes", &catalogue::CGROUP_IO_BYTES),
];

/// The limits in one of [`LIMITS`].
pub(super) fn limits<'a>(text: &'a str, op: &'static str, def: &'static Def) -> impl Iterator<Item = Entry<'a>> {
    text.lines().filter_map(move |line| {
        let mut words = line.split_ascii_whitespace();
        let dev = words.next().filter(|dev| is_device_number(dev))?;
        Some(Entry { dev, op, def, value: words.next()?.parse().ok()? })
    })
}

/// The counters in one of [`COUNTERS`].
pub(super) fn counters<'a>(text: &'a str, def: &'static Def) -> impl Iterator<Item = Entry<'a>> {
    text.lines().filter_map(move |line| {
        let mut words = line.split_ascii_whitespace();
        let dev = words.next().filter(|dev| is_device_number(dev))?;
        let op = match words.next()? {
            "Read" => READ,
            "Write" => WRITE,
            _ => return None,
        };
        Some(Entry { dev, op, def, value: words.next()?.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn captured_counters_keep_reads_and_writes_apart() {
        let text = include_str!("../../../tests/fixtures/capped/sys/fs/cgroup/blkio/blkio.throttle.io_serviced");
        let list: Vec<_> = counters(text, &catalogue::CGROUP_IOS).map(|e| (e.dev, e.op, e.value)).collect();
        assert_eq!(list, [("7:0", READ, 144_483), ("7:0", WRITE, 254_057)]);
    }

    #[test]
    fn a_limit_is_a_device_and_a_number() {
        let list: Vec<_> = limits("7:0 1500\n8:16 x\nTotal 3\n\n", WRITE, &catalogue::CGROUP_IOPS_LIMIT).collect();
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].dev, list[0].value), ("7:0", 1_500));
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in ".*") {
            limits(&text, READ, &catalogue::CGROUP_IOPS_LIMIT).count();
            counters(&text, &catalogue::CGROUP_IOS).count();
        }
    }
}
