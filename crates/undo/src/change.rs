//! The changes that can be noted, how each is named to a person, and in which order they are put back.

use backwater_socket::{Namespace, Socket};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// One change to the host, with what is needed to put it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// A kernel file (sysctl, bdi) gets another value. Undo: write `before`. A file changed twice in one run is noted
    /// once, with its first value.
    FileValue {
        /// The file.
        path: PathBuf,
        /// Its content before the run.
        before: String,
    },
    /// A cgroup v1 throttle rule. Undo: the value before, or 0, which clears the rule.
    BlkioRule {
        /// `…/blkio.throttle.write_iops_device`, or one of its sisters.
        file: PathBuf,
        /// `MAJ:MIN`.
        dev: String,
        /// The value before the run, where there was a rule.
        before: Option<u64>,
    },
    /// A control group is made. Undo: move what still runs in it to its parent, remove it.
    CgroupDir {
        /// Its directory, named `backwater-…`.
        path: PathBuf,
    },
    /// A cgroup v2 `io.max` rule. Undo: the rule before, or all four limits at `max`.
    IoMax {
        /// The control group's directory.
        cgroup: PathBuf,
        /// `MAJ:MIN`.
        dev: String,
        /// What stood after `MAJ:MIN` before the run, where there was a rule.
        before: Option<String>,
    },
    /// A file system is mounted. Undo: unmount it, but only if what is mounted there is what this run mounted.
    Mount {
        /// Where.
        target: PathBuf,
        /// What, as mountinfo names it: `/dev/loop3`, `backwater-debugfs`.
        source: String,
        /// Where runs share one mount: the name under which each holds it ([`Journal::share`](crate::Journal::share)).
        /// The last of them unmounts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shared: Option<String>,
    },
    /// A loop device is attached. Undo: detach it, but only if it still holds this file.
    Loop {
        /// `/dev/loop3`.
        dev_path: PathBuf,
        /// The file behind it, as a canonical path.
        backing: PathBuf,
    },
    /// A directory is made. Undo: remove it and all that is in it, unless something is mounted there.
    Directory {
        /// The directory; Backwater's own (see [`UndoError::NotOurs`](crate::UndoError::NotOurs)).
        path: PathBuf,
    },
    /// A file is made. Undo: remove it.
    File {
        /// The file; Backwater's own (see [`UndoError::NotOurs`](crate::UndoError::NotOurs)).
        path: PathBuf,
    },
    /// A process that runs. Undo: ask it, its group and its descendants to stop, wait, kill.
    Process {
        /// Its id.
        pid: i32,
        /// When it started, in clock ticks since boot (`/proc/PID/stat`, field 22), so that a reused id is never touched.
        start_time: u64,
        /// What it is, for a person.
        what: String,
        /// How it is asked to stop.
        stop: Stop,
    },
    /// A process that is about to be started, known by a variable in its environment
    /// ([`MARKER_VARIABLE`](crate::MARKER_VARIABLE)), because it has no id yet.
    Spawn {
        /// The variable's value.
        marker: String,
        /// What it is, for a person.
        what: String,
        /// How it is asked to stop.
        stop: Stop,
    },
    /// A named network namespace is made (`ip netns add`). Undo: remove it.
    Netns {
        /// Its name, `backwater-…`.
        name: String,
    },
    /// A connection of a running process gets a pacing rate (`SO_MAX_PACING_RATE`), and where `before_congestion` says so another
    /// congestion control ([`backwater_socket::WITHIN_HOST_CONGESTION`]). Undo: what it had before, but only if it is still that
    /// connection, and nobody has given it a third congestion control since.
    SocketPacing {
        /// Which.
        socket: Socket,
        /// Bytes a second before the run; None: no limit.
        before_bytes_per_s: Option<u64>,
        /// Its congestion control before the run; None: that is not changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before_congestion: Option<String>,
    },
    /// Paced connections of a network namespace send in small bursts ([`backwater_socket::SMALL_BURSTS`]). Undo:
    /// `net.ipv4.tcp_tso_rtt_log` before, but only if nobody has changed it since.
    SmallBursts {
        /// Which.
        namespace: Namespace,
        /// The setting before the run.
        before: u32,
    },
}

/// How a process is asked to stop, before it is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// SIGTERM: the usual.
    #[default]
    Terminate,
    /// SIGINT: PostgreSQL's fast shutdown, which ends sessions and writes a checkpoint.
    Interrupt,
    /// SIGQUIT: PostgreSQL's immediate shutdown, for data that is thrown away anyway.
    Quit,
}

impl Change {
    /// The order of undoing: lower first. Limits are lifted first, or ending a server and unmounting its disk would
    /// wait for the very cap that the run had set; then processes, what they live in, mounts and loop devices, files.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Change::FileValue { .. }
            | Change::BlkioRule { .. }
            | Change::IoMax { .. }
            | Change::SocketPacing { .. }
            | Change::SmallBursts { .. } => 0,
            Change::Process { .. } | Change::Spawn { .. } => 1,
            Change::CgroupDir { .. } | Change::Netns { .. } => 2,
            // In turns, the last first: a loop device's file may lie on a mount of the run's own.
            Change::Mount { .. } | Change::Loop { .. } => 3,
            Change::Directory { .. } | Change::File { .. } => 4,
        }
    }

    /// Whether both are about the same thing, so that the first note of a run, which holds the state before it, is the
    /// one to keep.
    pub(crate) fn same_target(&self, other: &Change) -> bool {
        match (self, other) {
            (Change::FileValue { path: a, .. }, Change::FileValue { path: b, .. }) => a == b,
            (Change::BlkioRule { file: a, dev: x, .. }, Change::BlkioRule { file: b, dev: y, .. }) => (a, x) == (b, y),
            (Change::IoMax { cgroup: a, dev: x, .. }, Change::IoMax { cgroup: b, dev: y, .. }) => (a, x) == (b, y),
            // Its process may have left it to another.
            (Change::SocketPacing { socket: a, .. }, Change::SocketPacing { socket: b, .. }) => a.cookie == b.cookie,
            (Change::SmallBursts { namespace: a, .. }, Change::SmallBursts { namespace: b, .. }) => {
                a.cookie == b.cookie
            }
            _ => self == other,
        }
    }

    /// Whether a reboot has put it back already. Restoring a kernel value of an earlier boot would even be wrong.
    pub(crate) fn gone_with_boot(&self) -> bool {
        match self {
            Change::FileValue { path, .. } => path.starts_with("/proc") || path.starts_with("/sys"),
            Change::Directory { .. } | Change::File { .. } => false,
            _ => true,
        }
    }

    /// The path that undoing it removes, where it removes one.
    pub(crate) fn removes(&self) -> Option<&Path> {
        match self {
            Change::Directory { path } | Change::File { path } => Some(path),
            _ => None,
        }
    }

    /// The shell command with which a person puts it back.
    pub fn command(&self) -> String {
        match self {
            Change::FileValue { path, before } => format!("echo '{}' > {}", before.trim_end(), quoted(path)),
            Change::BlkioRule { file, dev, before } => {
                format!("echo '{dev} {}' > {}", before.unwrap_or(0), quoted(file))
            }
            Change::CgroupDir { path } => format!("rmdir {}", quoted(path)),
            Change::IoMax { cgroup, dev, before } => {
                format!("echo '{dev} {}' > {}", before.as_deref().unwrap_or(NO_IO_MAX), quoted(&cgroup.join("io.max")))
            }
            Change::Mount { target, .. } => format!("umount {}", quoted(target)),
            Change::Loop { dev_path, .. } => format!("losetup -d {}", quoted(dev_path)),
            Change::Directory { path } => format!("rm -r --one-file-system {}", quoted(path)),
            Change::File { path } => format!("rm {}", quoted(path)),
            Change::Process { pid, .. } => format!("kill -9 {pid}"),
            Change::Spawn { marker, .. } => {
                format!(
                    "grep -lzx '{}={marker}' /proc/[0-9]*/environ | cut -d/ -f3 | xargs -r kill -9",
                    crate::MARKER_VARIABLE
                )
            }
            Change::Netns { name } => format!("ip netns delete {name}"),
            // No tool of the system sets the one, or knows a namespace for certain; a journal that is kept is tried again by this.
            Change::SocketPacing { .. } | Change::SmallBursts { .. } => "backwater lab clean".to_owned(),
        }
    }
}

/// The `io.max` rule that limits nothing.
pub(crate) const NO_IO_MAX: &str = "rbps=max wbps=max riops=max wiops=max";

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::FileValue { path, before } => write!(f, "value of {} (was {})", path.display(), before.trim_end()),
            Change::BlkioRule { file, dev, .. } => write!(f, "rule for device {dev} in {}", file.display()),
            Change::CgroupDir { path } => write!(f, "control group {}", path.display()),
            Change::IoMax { cgroup, dev, .. } => write!(f, "io.max for device {dev} in {}", cgroup.display()),
            Change::Mount { target, source, .. } => write!(f, "mount of {source} on {}", target.display()),
            Change::Loop { dev_path, backing } => {
                write!(f, "loop device {} on {}", dev_path.display(), backing.display())
            }
            Change::Directory { path } => write!(f, "directory {}", path.display()),
            Change::File { path } => write!(f, "file {}", path.display()),
            Change::Process { pid, what, .. } => write!(f, "process {pid} ({what})"),
            Change::Spawn { what, .. } => write!(f, "process ({what})"),
            Change::Netns { name } => write!(f, "network namespace {name}"),
            Change::SocketPacing { socket, .. } => {
                write!(f, "pacing of the connection with {} of process {}", socket.peer, socket.pid)
            }
            Change::SmallBursts { namespace, before } => {
                write!(f, "net.ipv4.tcp_tso_rtt_log of the network namespace {} (was {before})", namespace.inode)
            }
        }
    }
}

/// A path as a shell takes it literally.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-:+".contains(c));
    if plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn limits_are_lifted_before_processes_end_and_files_go_last() {
        let change = |text: &str| serde_json::from_str::<Change>(text).unwrap();
        let order = [
            change(r#"{"kind":"blkio_rule","file":"/f","dev":"7:0","before":null}"#),
            change(r#"{"kind":"process","pid":1,"start_time":1,"what":"x","stop":"quit"}"#),
            change(r#"{"kind":"netns","name":"backwater-a"}"#),
            change(r#"{"kind":"mount","target":"/m","source":"/dev/loop0"}"#),
            change(r#"{"kind":"file","path":"/b"}"#),
        ];
        assert!(order.windows(2).all(|pair| pair[0].rank() < pair[1].rank()));
        let loop_device = change(r#"{"kind":"loop","dev_path":"/dev/loop0","backing":"/b"}"#);
        assert_eq!(loop_device.rank(), order[3].rank(), "one may lie on the other: the last made goes first");
    }

    #[test]
    fn commands_can_be_pasted() {
        let rule = Change::BlkioRule { file: "/cg/blkio.x".into(), dev: "7:0".into(), before: None };
        assert_eq!(rule.command(), "echo '7:0 0' > /cg/blkio.x");
        let file = Change::File { path: "/a b/it's".into() };
        assert_eq!(file.command(), r"rm '/a b/it'\''s'");
        let value = Change::FileValue { path: "/proc/sys/vm/dirty_ratio".into(), before: "20\n".into() };
        assert_eq!(value.command(), "echo '20' > /proc/sys/vm/dirty_ratio");
    }
}
