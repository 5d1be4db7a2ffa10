//! Whether the server runs on this host, told from `/proc`: the process with the backend's number must have begun when
//! the server says that the backend began. That holds for every kind of connection (socket, loopback, another network
//! namespace), and fails, as it should, for a server elsewhere and for one in a container that numbers its processes
//! by itself.

use crate::host::Roots;
use backwater_model::ClockAnchor;
use std::path::Path;

/// The start of a process is known to a clock tick; the server's clock is this host's, read a moment later.
const TOLERANCE_S: f64 = 2.0;

/// A server found among this host's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalServer {
    /// The postmaster's process id.
    pub(super) postmaster_pid: i32,
    /// Its working directory, which is the data directory; none where it may not be read.
    pub(super) directory: Option<String>,
}

/// What the server says of the probe's own backend.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    pub(super) pid: i32,
    /// Seconds since 1970.
    pub(super) started_unix_s: f64,
}

/// Finds the postmaster of the probe's own backend on this host.
pub(super) fn find(
    roots: &Roots,
    backend: &Backend,
    data_directory: Option<&str>,
    anchor: ClockAnchor,
    ticks_per_s: u64,
) -> Option<LocalServer> {
    let own = task(&roots.proc, backend.pid)?;
    let boot_unix_s = (anchor.unix_us - anchor.boot.0) as f64 / 1e6;
    let started_unix_s = boot_unix_s + own.start_ticks as f64 / ticks_per_s.max(1) as f64;
    if (started_unix_s - backend.started_unix_s).abs() > TOLERANCE_S {
        return None;
    }
    let postmaster = task(&roots.proc, own.parent)?;
    let directory = std::fs::read_link(roots.proc.join(own.parent.to_string()).join("cwd")).ok();
    let directory = directory.map(|path| path.to_string_lossy().into_owned());
    let same_place = match (&directory, data_directory) {
        (Some(have), Some(want)) => Path::new(have) == want || same_file(roots, own.parent, have, want),
        _ => true,
    };
    (postmaster.name == own.name && same_place).then_some(LocalServer { postmaster_pid: own.parent, directory })
}

/// data_directory may be spelled through a symbolic link, which is looked up as the postmaster sees it.
fn same_file(roots: &Roots, pid: i32, have: &str, want: &str) -> bool {
    let root = roots.proc.join(pid.to_string()).join("root");
    let inside = |path: &str| std::fs::canonicalize(root.join(path.trim_start_matches('/')));
    matches!((inside(have), inside(want)), (Ok(have), Ok(want)) if have == want)
        || matches!((std::fs::canonicalize(have), std::fs::canonicalize(want)), (Ok(have), Ok(want)) if have == want)
}

struct Task {
    name: String,
    parent: i32,
    start_ticks: u64,
}

/// The parent of a process.
pub(super) fn parent(proc: &Path, pid: i32) -> Option<i32> {
    task(proc, pid).map(|task| task.parent)
}

/// Fields 2, 4 and 22 of `/proc/PID/stat`. The name stands in parentheses and may itself hold some.
fn task(proc: &Path, pid: i32) -> Option<Task> {
    let text = std::fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    let (head, rest) = text.rsplit_once(") ")?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    Some(Task {
        name: head.split_once('(')?.1.to_owned(),
        parent: fields.get(1)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::Moment;

    fn process(root: &Path, pid: i32, name: &str, parent: i32, start: u64) {
        let directory = root.join(pid.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let zeros = "0 ".repeat(17);
        std::fs::write(directory.join("stat"), format!("{pid} ({name}) S {parent} {zeros}{start} 1 1\n")).unwrap();
    }

    #[test]
    fn number_name_and_start_must_agree() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 100, "postgres", 1, 500);
        process(root.path(), 200, "postgres", 100, 6_000);
        process(root.path(), 300, "kworker/0:1 (x)", 100, 6_000);
        std::os::unix::fs::symlink("/srv/data", root.path().join("100/cwd")).unwrap();
        let roots = Roots { proc: root.path().to_owned(), ..Roots::default() };
        let anchor = ClockAnchor { boot: Moment(0), unix_us: 1_000_000_000 };
        let found = |pid, started_unix_s, directory| {
            let backend = Backend { pid, started_unix_s };
            find(&roots, &backend, directory, anchor, 100).map(|server| server.postmaster_pid)
        };
        assert_eq!(found(200, 1_060.1, None), Some(100));
        assert_eq!(found(200, 1_060.1, Some("/srv/data")), Some(100));
        assert_eq!(found(200, 1_060.1, Some("/srv/other")), None);
        assert_eq!(found(200, 1_070.0, None), None);
        assert_eq!(found(300, 1_060.0, None), None);
        assert_eq!(found(999, 1_060.0, None), None);
    }
}
