//! Notices that a watched server was moved to another control group: a service manager, or whoever starts it, often
//! moves it a moment after it began, and an operator may at any time. What was read of the old group would then go on
//! to be read, and be taken for the server's.

use crate::host::file::KernelFile;
use crate::host::task::directory;
use crate::host::{Roots, Server, Watch};
use crate::{Probe, ProbeError, Sink};
use std::sync::Arc;
use std::time::Duration;

/// Looks at which groups the postmaster of each server is in, and lets every probe of groups search anew when that has
/// changed. To be read before them.
#[derive(Debug)]
pub(in crate::host) struct Membership {
    roots: Roots,
    watch: Arc<Watch>,
    seen: Option<u64>,
    servers: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    server: Server,
    file: KernelFile,
    /// As it was read last; none before the first time.
    text: Option<String>,
}

impl Membership {
    pub(in crate::host) fn new(roots: &Roots, watch: &Arc<Watch>) -> Self {
        Membership { roots: roots.clone(), watch: Arc::clone(watch), seen: None, servers: Vec::new() }
    }

    fn refresh(&mut self) {
        let changes = self.watch.changes();
        if self.seen == Some(changes) {
            return;
        }
        self.seen = Some(changes);
        let mut before = std::mem::take(&mut self.servers);
        self.servers =
            self.watch.servers().into_iter().map(|server| member(&self.roots, server, &mut before)).collect();
    }
}

/// A server known before keeps its file and what was read from it.
fn member(roots: &Roots, server: Server, before: &mut Vec<Member>) -> Member {
    match before.iter().position(|member| member.server == server) {
        Some(place) => before.swap_remove(place),
        None => {
            let file = KernelFile::short(directory(roots, server.postmaster_pid).join("cgroup"));
            Member { server, file, text: None }
        }
    }
}

impl Member {
    /// Whether the server is elsewhere than at the look before. While its file cannot be read, it has not moved.
    fn moved(&mut self) -> bool {
        let Ok(text) = self.file.read() else { return false };
        if self.text.as_deref() == Some(&*text) {
            return false;
        }
        self.text.replace(text.into_owned()).is_some()
    }
}

impl Probe for Membership {
    fn name(&self) -> &str {
        "host.cgroup.membership"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn read(&mut self, _sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        self.refresh();
        let moved = self.servers.iter_mut().filter_map(|member| member.moved().then_some(&member.server)).count();
        if moved > 0 {
            tracing::debug!(moved, "watched servers are in other control groups now");
            self.watch.note_move();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::testing::Look;
    use std::fs::{create_dir_all, write};
    use std::path::Path;

    /// A host on version 2 with a server, process 7, in the root group, and a limited group that it may be moved to.
    fn host(root: &Path) -> (Roots, Arc<Watch>) {
        let roots = Roots::under(root);
        create_dir_all(roots.cgroup.join("db/pg")).unwrap();
        create_dir_all(roots.proc.join("7")).unwrap();
        write(roots.cgroup.join("cgroup.controllers"), "io memory\n").unwrap();
        write(roots.cgroup.join("io.stat"), "8:0 wbytes=1 wios=1\n").unwrap();
        write(roots.cgroup.join("db/io.stat"), "8:0 wbytes=3 wios=1\n").unwrap();
        write(roots.cgroup.join("db/io.max"), "8:0 wbps=max wiops=400\n").unwrap();
        write(roots.cgroup.join("db/pg/io.stat"), "8:0 wbytes=2 wios=1\n").unwrap();
        write(roots.cgroup.join("db/pg/memory.stat"), "file 4096\n").unwrap();
        for resource in ["io", "cpu", "memory"] {
            create_dir_all(roots.proc.join("pressure")).unwrap();
            write(roots.proc.join("pressure").join(resource), "some total=1\nfull total=1\n").unwrap();
            write(roots.cgroup.join(format!("db/pg/{resource}.pressure")), "some total=5\nfull total=5\n").unwrap();
        }
        write(roots.proc.join("stat"), "cpu 1 2 3 4 5 6 7 8\n").unwrap();
        write(roots.proc.join("7/cgroup"), "0::/\n").unwrap();
        let watch = Arc::new(Watch::new());
        watch.add_device(&roots, "8:0");
        watch.add_server(Server { target: "main".into(), postmaster_pid: 7 });
        (roots, watch)
    }

    #[test]
    fn a_server_that_is_moved_after_the_first_look_is_followed_at_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, watch) = host(dir.path());
        let mut totals = crate::host::totals(&roots, &watch);
        let mut look = Look::of(totals.as_mut());
        let limit = [("cgroup", "/db"), ("dev", "8:0"), ("op", "write")];
        let own = [("cgroup", "/db/pg")];
        assert_eq!(look.value("host.cgroup.iops_limit", &limit), None);
        write(roots.proc.join("7/cgroup"), "0::/db/pg\n").unwrap();
        look.again(totals.as_mut());
        assert_eq!(look.value("host.cgroup.iops_limit", &limit), Some(400.0));
        assert_eq!(look.value("host.cgroup.io_bytes", &own), Some(2.0));
        assert_eq!(look.value("host.cgroup.file_bytes", &own), Some(4_096.0));
        // Pressure is read at every second of these looks.
        look.again(totals.as_mut());
        assert_eq!(look.value("host.psi.io_some_us", &own), Some(5.0));
    }

    #[test]
    fn nothing_is_searched_while_nobody_moves() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, watch) = host(dir.path());
        let mut probe = Membership::new(&roots, &watch);
        let before = watch.changes();
        Look::of_many(&mut probe, 3);
        assert_eq!(watch.changes(), before);
        write(roots.proc.join("7/cgroup"), "0::/db\n").unwrap();
        Look::of_many(&mut probe, 3);
        assert_eq!(watch.changes(), before + 1);
        std::fs::remove_dir_all(roots.proc.join("7")).unwrap();
        Look::of_many(&mut probe, 3);
        assert_eq!(watch.changes(), before + 1, "a server that is gone has not moved");
    }
}
