//! How much a paced socket sends at once on a short way, which is a setting of its network namespace.
//!
//! At once goes what the rate gives in about a millisecond, and, since Linux 5.18, up to 64 KB more where the least round trip is
//! short: 64 KB / 2^(least round trip in µs / 2^`tcp_tso_rtt_log`), whatever the rate (tcp_tso_autosize, net/ipv4/tcp_output.c).
//! Of ten sockets that share a link these bursts meet, and whoever else needs it waits for them. With 0 there is no more.

use crate::call;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, capabilities, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SETTING: &str = "/proc/sys/net/ipv4/tcp_tso_rtt_log";
/// The setting with which no burst is larger than the rate makes it.
pub const SMALL_BURSTS: u32 = 0;

/// A network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// The kernel's own number for it (`SO_NETNS_COOKIE`), never given twice between two boots.
    pub cookie: u64,
    /// The inode by which it is found; one that has gone leaves it to another.
    pub inode: u64,
    /// A process that was in it, where to look first.
    pub pid: i32,
}

impl Namespace {
    /// That of a process, in which the namespace of one of its sockets has this cookie.
    pub(crate) fn new(pid: i32, cookie: u64) -> io::Result<Namespace> {
        Ok(Namespace { cookie, inode: inode(format!("/proc/{pid}/ns/net"))?, pid })
    }

    /// `net.ipv4.tcp_tso_rtt_log` there; None where the kernel is older than the setting, or the namespace is gone.
    ///
    /// # Errors
    /// It cannot be looked for, or not be entered: that takes CAP_SYS_ADMIN where it is another one's.
    pub fn tso_rtt_log(&self) -> io::Result<Option<u32>> {
        Ok(self.inside(read)?.flatten())
    }

    /// Sets it; where the namespace is gone there is nothing to set.
    ///
    /// # Errors
    /// As [`tso_rtt_log`](Namespace::tso_rtt_log), or it may not be changed: that takes root.
    pub fn set_tso_rtt_log(&self, value: u32) -> io::Result<()> {
        self.inside(|| std::fs::write(SETTING, value.to_string())).map(Option::unwrap_or_default)
    }

    /// Sets it to `by` where it is `now`, and leaves it alone where it is anything else.
    ///
    /// # Errors
    /// As [`set_tso_rtt_log`](Namespace::set_tso_rtt_log).
    pub fn replace_tso_rtt_log(&self, now: u32, by: u32) -> io::Result<()> {
        let replace = || if read()? == Some(now) { std::fs::write(SETTING, by.to_string()) } else { Ok(()) };
        self.inside(replace).map(Option::unwrap_or_default)
    }

    /// Does something in it; None where it is gone. A thread that lives just long enough enters it.
    fn inside<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<Option<T>> {
        let act = || if own_cookie()? == self.cookie { act().map(Some) } else { Ok(None) };
        if inode("/proc/thread-self/ns/net")? == self.inode {
            return act();
        }
        let Some(door) = self.door()? else { return Ok(None) };
        let visit = || {
            move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network))?;
            act()
        };
        let named = std::thread::Builder::new().name("bw-setns".to_owned());
        std::thread::scope(|scope| match named.spawn_scoped(scope, visit) {
            Ok(visitor) => {
                visitor.join().unwrap_or_else(|_| Err(io::Error::other("a visitor of a namespace panicked")))
            }
            Err(error) => Err(error),
        })
    }

    /// A way into it: by a process that is in it, or where it is mounted (as `ip netns` and containers' engines do); None where
    /// neither leads there any more.
    fn door(&self) -> io::Result<Option<File>> {
        let first = PathBuf::from(format!("/proc/{}", self.pid));
        let processes: io::Result<Vec<PathBuf>> = std::fs::read_dir("/proc")?.map(|entry| Ok(entry?.path())).collect();
        let processes = [first].into_iter().chain(processes?).map(|process| process.join("ns/net"));
        let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo")?;
        let mounted = mounts.lines().filter_map(|line| mounted(line, self.inode)).map(PathBuf::from);
        let may_trace = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE));
        let mut unread = None;
        for path in processes.chain(mounted) {
            match self.opened(&path) {
                Ok(None) => {}
                Ok(door) => return Ok(door),
                // What is no process, and one that has ended.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                // What nobody may look at, whatever rights they have, had no socket that was ever paced.
                Err(error) if error.kind() == ErrorKind::PermissionDenied && may_trace => {}
                Err(error) => unread = Some(error),
            }
        }
        unread.map_or(Ok(None), Err)
    }

    /// What is at this path, where it is this namespace.
    fn opened(&self, path: &Path) -> io::Result<Option<File>> {
        if inode(path)? != self.inode {
            return Ok(None);
        }
        let door = File::open(path)?;
        // Its process may have ended in between, and left its number to another.
        let is_it = door.metadata()?.ino() == self.inode;
        Ok(is_it.then_some(door))
    }
}

/// The number of the namespace that this thread is in: that of a socket which is made in it.
fn own_cookie() -> io::Result<u64> {
    call::namespace_cookie(socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// In the namespace of this thread; None where the kernel is older than the setting.
fn read() -> io::Result<Option<u32>> {
    match std::fs::read_to_string(SETTING) {
        Ok(text) => text.trim().parse().map(Some).map_err(|_| io::Error::other(format!("{SETTING} says {text:?}"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where a line of mountinfo says that the network namespace with this inode is mounted: `1 2 0:4 net:[4026532000] /run/netns/a …`
fn mounted(line: &str, inode: u64) -> Option<&str> {
    let mut fields = line.split(' ').skip(3);
    (fields.next()? == format!("net:[{inode}]")).then(|| fields.next())?
}

fn inode(path: impl AsRef<Path>) -> io::Result<u64> {
    std::fs::metadata(path).map(|metadata| metadata.ino())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]
    use super::*;
    use rustix::thread::{CapabilitySets, set_capabilities};
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_namespace_is_found_where_it_is_mounted() {
        let line = "497 29 0:4 net:[4026532177] /run/netns/a rw shared:243 - nsfs nsfs rw";
        assert_eq!(mounted(line, 4_026_532_177), Some("/run/netns/a"));
        assert_eq!(
            (mounted(line, 4), mounted("29 1 254:0 / / rw - ext4 /dev/vda rw", 4), mounted("", 4)),
            (None, None, None)
        );
    }

    #[test]
    fn the_setting_of_another_namespace_is_changed_and_no_other() {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo there; exec sleep 600"]).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else { return };
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said.is_empty() {
            child.wait().unwrap();
            eprintln!("skipped: the_setting_of_another_namespace_is_changed_and_no_other: needs root (unshare --net)");
            return;
        }
        let own_pid = i32::try_from(std::process::id()).unwrap();
        let own = Namespace::new(own_pid, own_cookie().unwrap()).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut theirs = Namespace::new(pid, 0).unwrap();
        assert_eq!(theirs.tso_rtt_log().unwrap(), None, "another namespace has this inode now");
        let door = File::open(format!("/proc/{pid}/ns/net")).unwrap();
        let visit = move || {
            move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            own_cookie().unwrap()
        };
        theirs.cookie = std::thread::spawn(visit).join().unwrap();
        // Whoever was in it first may have ended.
        theirs.pid = i32::MAX;
        let (here, there) = (own.tso_rtt_log().unwrap(), theirs.tso_rtt_log().unwrap());
        if let Some(there) = there {
            theirs.set_tso_rtt_log(there + 1).unwrap();
            assert_eq!((theirs.tso_rtt_log().unwrap(), own.tso_rtt_log().unwrap()), (Some(there + 1), here));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(theirs.tso_rtt_log().unwrap(), None, "nobody is there any more");
        // Where another's namespace may not be looked at, it may well be there. Rights belong to a thread: this one is no test's.
        let without_rights = move || {
            let empty = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective: empty, permitted: empty, inheritable: empty }).unwrap();
            theirs.tso_rtt_log()
        };
        let unsure = std::thread::spawn(without_rights).join().unwrap();
        assert_eq!(unsure.unwrap_err().kind(), ErrorKind::PermissionDenied);
        theirs.set_tso_rtt_log(1).unwrap();
        assert_eq!(own.tso_rtt_log().unwrap(), here);
    }
}
