//! One process: `/proc/PID/stat` (proc(5)) and its children.

use super::{Roots, file};
use std::fs::read_dir;
use std::path::PathBuf;

/// The fields of `/proc/PID/stat` that matter here. Times in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: char,
    pub(super) parent: i32,
    pub(super) cpu_ticks: u64,
    /// Since boot: with the process id, the process' identity.
    pub(super) start_ticks: u64,
    pub(super) resident_pages: u64,
    /// Time blocked on block I/O, where the kernel accounts for it.
    pub(super) blkio_ticks: Option<u64>,
}

/// Parses the line. The second field is the program's name in parentheses and may hold anything, `) ` included.
pub(super) fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    // Numbered from 1 as in proc(5), where the name is the second; asked for in rising order.
    let (mut fields, mut next) = (rest.split_ascii_whitespace(), 3);
    let mut field = |number: usize| fields.nth(number - std::mem::replace(&mut next, number + 1));
    Some(Stat {
        state: field(3)?.chars().next()?,
        parent: field(4)?.parse().ok()?,
        cpu_ticks: field(14)?.parse::<u64>().ok()?.saturating_add(field(15)?.parse().ok()?),
        start_ticks: field(22)?.parse().ok()?,
        resident_pages: field(24)?.parse().ok()?,
        blkio_ticks: field(42).and_then(|ticks| ticks.parse().ok()),
    })
}

/// The directory of a process.
pub(super) fn directory(roots: &Roots, pid: i32) -> PathBuf {
    roots.proc.join(pid.to_string())
}

/// The user a process acts as. (The owner of its directory is root for a process that may not be dumped.)
pub(super) fn effective_user(roots: &Roots, pid: i32) -> Option<u32> {
    effective_user_in(&file::read(&directory(roots, pid).join("status")).ok()?)
}

/// `Uid:` real, effective, saved, file system.
fn effective_user_in(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The process ids of the children of a process. From the `children` files of its threads where the kernel has them
/// (each lists those that its thread began), otherwise by asking every process for its parent.
pub(super) fn children(roots: &Roots, parent: i32) -> Vec<i32> {
    let threads = read_dir(directory(roots, parent).join("task")).into_iter().flatten().flatten();
    let lists: Vec<_> = threads.filter_map(|thread| file::read(&thread.path().join("children")).ok()).collect();
    if lists.is_empty() {
        return search_children(roots, parent);
    }
    lists.iter().flat_map(|list| list.split_ascii_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
}

fn search_children(roots: &Roots, parent: i32) -> Vec<i32> {
    let entries = read_dir(&roots.proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let stat = |pid: i32| parse_stat(&file::read(&directory(roots, pid).join("stat")).ok()?);
    let mut found: Vec<(u64, i32)> = pids
        .filter_map(|pid| stat(pid).filter(|stat| stat.parent == parent).map(|stat| (stat.start_ticks, pid)))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, pid)| pid).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::testing::fixture;
    use proptest::prelude::*;

    #[test]
    fn a_captured_line_is_read() {
        let stat = parse_stat(include_str!("../../tests/fixtures/capped/proc/11173/stat")).unwrap();
        assert_eq!((stat.state, stat.parent, stat.cpu_ticks), ('D', 10_911, 58));
        assert_eq!((stat.start_ticks, stat.resident_pages, stat.blkio_ticks), (190_768, 20_259, Some(0)));
    }

    #[test]
    fn a_name_with_parentheses_and_an_old_short_line_are_understood() {
        let line = "7 (a) b (c)) S 1 7 7 0 -1 0 0 0 0 0 3 4 0 0 20 0 1 0 99 0 12 0\n";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.state, stat.parent, stat.cpu_ticks, stat.start_ticks), ('S', 1, 7, 99));
        assert_eq!(stat.blkio_ticks, None);
    }

    #[test]
    fn the_effective_user_is_the_second() {
        assert_eq!(effective_user_in("Name:\tsu\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"), Some(0));
        assert_eq!(effective_user_in("Name:\tx\nUid:\t1000\n"), None);
    }

    #[test]
    fn children_are_found_without_the_kernels_list() {
        let (roots, _) = fixture("capped");
        assert_eq!(children(&roots, 10_911), [11_173]);
        assert_eq!(children(&roots, 1), [] as [i32; 0]);
    }

    #[test]
    fn a_child_begun_by_any_thread_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (own, new) = (std::process::id() as i32, child.id() as i32);
        let searched = search_children(&Roots::default(), own).contains(&new);
        let listed = children(&Roots::default(), own).contains(&new);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(searched && listed);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*", fields in proptest::collection::vec("[0-9a-z-]{1,21}", 0..50)) {
            parse_stat(&text);
            effective_user_in(&text);
            parse_stat(&format!("1 (x) {}", fields.join(" ")));
        }
    }
}
