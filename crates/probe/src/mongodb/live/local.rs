//! Whether the server runs on this host: the process with its number must be a mongod or mongos that began when the server says
//! that it did. A server elsewhere, or in a container that numbers its processes by itself, is not taken for a local one.

use crate::host::Roots;
use backwater_model::ClockAnchor;
use std::path::PathBuf;

/// A server counts its uptime from a moment after its process began, by a clock of its own.
const TOLERANCE_S: f64 = 5.0;

/// What a server said of its uptime, when that was heard, and how long it took to say it: it looks at its clock when it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uptime {
    pub(super) seconds: f64,
    pub(super) heard: ClockAnchor,
    pub(super) took_s: f64,
}

/// Whether process `pid` of this host is a server that has been up for so long.
pub(super) fn is_here(roots: &Roots, pid: i64, uptime: Uptime, ticks_per_s: u64) -> bool {
    let Ok(text) = std::fs::read_to_string(stat(roots, pid)) else { return false };
    let Some((name, start_ticks)) = name_and_start(&text) else { return false };
    let up_s = uptime.heard.boot.seconds() - start_ticks as f64 / ticks_per_s.max(1) as f64;
    name.starts_with("mongo") && (-TOLERANCE_S..=uptime.took_s + TOLERANCE_S).contains(&(up_s - uptime.seconds))
}

fn stat(roots: &Roots, pid: i64) -> PathBuf {
    roots.proc.join(pid.to_string()).join("stat")
}

/// Fields 2 and 22 of `/proc/PID/stat`. The name stands in parentheses and may itself hold some.
fn name_and_start(text: &str) -> Option<(&str, u64)> {
    let (head, rest) = text.rsplit_once(") ")?;
    Some((head.split_once('(')?.1, rest.split_ascii_whitespace().nth(19)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::Moment;

    #[test]
    fn number_name_and_uptime_must_agree() {
        let root = tempfile::tempdir().unwrap();
        for (pid, name) in [(40, "mongod"), (41, "java (x) y")] {
            std::fs::create_dir_all(root.path().join(pid.to_string())).unwrap();
            let stat = format!("{pid} ({name}) S 1 {}50000 1 1\n", "0 ".repeat(17));
            std::fs::write(root.path().join(format!("{pid}/stat")), stat).unwrap();
        }
        let roots = Roots { proc: root.path().to_owned(), ..Roots::default() };
        let heard = ClockAnchor { boot: Moment::from_seconds(600.0), unix_us: 0 };
        let took = |pid, seconds, took_s| is_here(&roots, pid, Uptime { seconds, heard, took_s }, 100);
        let here = |pid, seconds| took(pid, seconds, 0.0);
        assert!(here(40, 99.0));
        assert!(!here(40, 300.0) && !here(41, 99.0) && !here(42, 99.0));
        assert!(took(40, 91.0, 9.0), "what it said nine seconds ago");
        assert!(!here(40, 91.0) && !took(40, 109.0, 9.0), "it cannot have been up for longer than its process");
    }
}
