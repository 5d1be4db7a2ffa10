//! How much a paced socket sends at once on a short way, which is a setting of its network namespace.
//!
//! At once goes what the rate gives in about a millisecond, and, since Linux 5.18, up to 64 KB more where the least round trip is
//! short: 64 KB / 2^(least round trip in µs / 2^`tcp_tso_rtt_log`), whatever the rate (tcp_tso_autosize, net/ipv4/tcp_output.c).
//! Of ten sockets that share a link these bursts meet, and whoever else needs it waits for them. With 0 there is no more.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SETTING: &str = "/proc/sys/net/ipv4/tcp_tso_rtt_log";
/// Where `ip netns` keeps namespaces, also those that no process is in.
const NAMED: &str = "/run/netns";
/// The setting with which no burst is larger than the rate makes it.
pub const SMALL_BURSTS: u32 = 0;

/// The network namespace of a process, by its inode.
///
/// # Errors
/// There is no such process, or it may not be looked at.
pub fn namespace_of(pid: i32) -> io::Result<u64> {
    inode(format!("/proc/{pid}/ns/net"))
}

/// `net.ipv4.tcp_tso_rtt_log` of a network namespace; None where the kernel is older, or the namespace is gone.
///
/// # Errors
/// It cannot be entered.
pub fn tso_rtt_log(namespace: u64) -> io::Result<Option<u32>> {
    let read = || match std::fs::read_to_string(SETTING) {
        Ok(text) => text.trim().parse().map(Some).map_err(|_| io::Error::other(format!("{SETTING} says {text:?}"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    Ok(inside(namespace, read)?.flatten())
}

/// Sets it; of a namespace that is gone there is nothing to set.
///
/// # Errors
/// It cannot be entered, or may not be changed: that takes CAP_SYS_ADMIN where it is another one's, and root.
pub fn set_tso_rtt_log(namespace: u64, value: u32) -> io::Result<()> {
    inside(namespace, || std::fs::write(SETTING, value.to_string())).map(Option::unwrap_or_default)
}

/// Does something in a network namespace; None where it is gone. A thread that lives just long enough enters it.
fn inside<T: Send>(namespace: u64, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<Option<T>> {
    if inode("/proc/thread-self/ns/net")? == namespace {
        return act().map(Some);
    }
    let Some(door) = door(namespace)? else { return Ok(None) };
    let visit = || {
        move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network))?;
        act().map(Some)
    };
    std::thread::scope(|scope| {
        match std::thread::Builder::new().name("bw-setns".to_owned()).spawn_scoped(scope, visit) {
            Ok(visitor) => {
                visitor.join().unwrap_or_else(|_| Err(io::Error::other("the visitor of a namespace panicked")))
            }
            Err(error) => Err(error),
        }
    })
}

/// A way into a network namespace: by a process that is in it, or by its name; None where nothing leads there any more.
fn door(namespace: u64) -> io::Result<Option<File>> {
    let processes = paths("/proc")?.into_iter().map(|process| process.join("ns/net"));
    let named = paths(NAMED).unwrap_or_default();
    for path in processes.chain(named) {
        if inode(&path).is_ok_and(|inode| inode == namespace)
            && let Ok(door) = File::open(&path)
            // Its process may have ended in between, and left its number to another.
            && door.metadata()?.ino() == namespace
        {
            return Ok(Some(door));
        }
    }
    Ok(None)
}

fn paths(directory: &str) -> io::Result<Vec<PathBuf>> {
    Ok(std::fs::read_dir(directory)?.flatten().map(|entry| entry.path()).collect())
}

fn inode(path: impl AsRef<Path>) -> io::Result<u64> {
    std::fs::metadata(path).map(|metadata| metadata.ino())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn the_setting_of_another_namespace_is_changed_and_no_other() {
        let own = namespace_of(i32::try_from(std::process::id()).unwrap()).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo there; exec sleep 600"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said.is_empty() {
            child.wait().unwrap();
            eprintln!("skipped: the_setting_of_another_namespace_is_changed_and_no_other: needs root (unshare --net)");
            return;
        }
        let theirs = namespace_of(i32::try_from(child.id()).unwrap()).unwrap();
        let (here, there) = (tso_rtt_log(own).unwrap(), tso_rtt_log(theirs).unwrap());
        if let Some(there) = there {
            set_tso_rtt_log(theirs, there + 1).unwrap();
            assert_eq!((tso_rtt_log(theirs).unwrap(), tso_rtt_log(own).unwrap()), (Some(there + 1), here));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(tso_rtt_log(theirs).unwrap(), None, "nobody is there any more");
        set_tso_rtt_log(theirs, 1).unwrap();
        assert_eq!(tso_rtt_log(own).unwrap(), here);
    }
}
