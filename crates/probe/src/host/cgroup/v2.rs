//! I/O of version 2: `io.max` and `io.stat`. Limits hold for a group with all its children, counters include theirs.

use super::io::{Entry, READ, WRITE};
use crate::host::text::{assigned, is_device_number};
use backwater_model::catalogue::{self, Def};

/// Keys of `io.max`. The value `max` is no limit.
const LIMITS: [(&str, &str, &Def); 4] = [
    ("rbps", READ, &catalogue::CGROUP_BPS_LIMIT),
    ("wbps", WRITE, &catalogue::CGROUP_BPS_LIMIT),
    ("riops", READ, &catalogue::CGROUP_IOPS_LIMIT),
    ("wiops", WRITE, &catalogue::CGROUP_IOPS_LIMIT),
];

/// Keys of `io.stat`.
const COUNTERS: [(&str, &str, &Def); 4] = [
    ("rbytes", READ, &catalogue::CGROUP_IO_BYTES),
    ("wbytes", WRITE, &catalogue::CGROUP_IO_BYTES),
    ("rios", READ, &catalogue::CGROUP_IOS),
    ("wios", WRITE, &catalogue::CGROUP_IOS),
];

/// The limits of `io.max`.
pub(super) fn limits(text: &str) -> impl Iterator<Item = Entry<'_>> {
    entries(text, &LIMITS)
}

/// The counters of `io.stat`. A device without I/O yet has a line without keys.
pub(super) fn counters(text: &str) -> impl Iterator<Item = Entry<'_>> {
    entries(text, &COUNTERS)
}

fn entries<'a>(text: &'a str, keys: &'static [(&str, &str, &Def); 4]) -> impl Iterator<Item = Entry<'a>> {
    let lines = text.lines().filter_map(|line| {
        let (dev, rest) = line.split_once(' ').unwrap_or((line, ""));
        is_device_number(dev).then_some((dev, rest))
    });
    lines.flat_map(move |(dev, rest)| {
        keys.iter().filter_map(move |(key, op, def)| Some(Entry { dev, op, def, value: assigned(rest, key)? }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn max_is_no_limit() {
        let list: Vec<_> = limits("7:0 rbps=max wbps=4194304 riops=max wiops=1500\n8:16 rbps=max\n").collect();
        let shown: Vec<_> = list.iter().map(|entry| (entry.dev, entry.op, entry.def.name, entry.value)).collect();
        let expected = [
            ("7:0", WRITE, "host.cgroup.bytes_limit_per_s", 4_194_304),
            ("7:0", WRITE, "host.cgroup.iops_limit", 1_500),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn counters_of_every_device_are_read_and_others_keys_passed_over() {
        let text = "7:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6 cost.usage=9\n8:16\n(unknown) rbytes=1\n";
        let values: Vec<_> = counters(text).map(|entry| entry.value).collect();
        assert_eq!(values, [1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in ".*") {
            limits(&text).count();
            counters(&text).count();
        }
    }
}
