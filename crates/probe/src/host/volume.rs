//! Free space of the file systems that hold a watched server's data directory and its pg_wal (statvfs(3)).
//!
//! On a thread of its own: a network file system whose server is gone answers never, and must not stop other probes.

use super::device::{locate_in, place_in};
use super::task::directory;
use super::{Roots, Watch, file};
use crate::{Probe, ProbeError, Sink};
use backwater_model::{Epoch, catalogue};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How many looks the places of the directories are believed: pg_wal may become a symbolic link while a server is down.
const LOOKS_PER_SEARCH: u32 = 12;

/// Reads how much is free.
#[derive(Debug)]
pub(super) struct Volumes {
    roots: Roots,
    watch: Arc<Watch>,
    boot: String,
    seen: Option<u64>,
    looks: u32,
    /// Device to a directory on it, as this process reaches it.
    places: BTreeMap<String, PathBuf>,
}

impl Volumes {
    pub(super) fn new(roots: &Roots, watch: &Arc<Watch>) -> Self {
        let (roots, watch, boot) = (roots.clone(), Arc::clone(watch), file::boot_id(roots));
        Volumes { roots, watch, boot, seen: None, looks: 0, places: BTreeMap::new() }
    }

    fn refresh(&mut self, sink: &mut Sink<'_>) {
        let changes = self.watch.changes();
        let due = self.looks.is_multiple_of(LOOKS_PER_SEARCH);
        self.looks = self.looks.wrapping_add(1);
        if self.seen == Some(changes) && !due {
            return;
        }
        self.seen = Some(changes);
        self.places.clear();
        for server in self.watch.servers() {
            if let Err(error) = self.find(server.postmaster_pid) {
                file::tell_absent(sink, &format!("free space of the volumes of {}", server.target), &error, None);
            }
        }
    }

    /// A postmaster's working directory is its data directory; both are looked up as it sees them.
    fn find(&mut self, pid: i32) -> Result<(), ProbeError> {
        let link = directory(&self.roots, pid).join("cwd");
        let data = std::fs::read_link(&link).map_err(|source| ProbeError::Read { path: link, source })?;
        for path in [data.clone(), data.join("pg_wal")] {
            // A server that is no PostgreSQL has no pg_wal.
            let Ok(place) = place_in(&self.roots, pid, &path) else { continue };
            let device = locate_in(&self.roots, pid, &path)?;
            self.places.entry(device.dev).or_insert(place);
        }
        Ok(())
    }
}

/// Bytes that an ordinary user may still write.
fn free_bytes(place: &Path) -> Result<f64, ProbeError> {
    let fail = |error: rustix::io::Errno| ProbeError::Read { path: place.to_owned(), source: error.into() };
    let stat = rustix::fs::statvfs(place).map_err(fail)?;
    Ok(stat.f_bavail as f64 * stat.f_frsize as f64)
}

impl Probe for Volumes {
    fn name(&self) -> &str {
        "host.space"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        self.refresh(sink);
        for (dev, place) in &self.places {
            match free_bytes(place) {
                Ok(bytes) => {
                    let epoch = Epoch::of(&["device", &self.boot, dev]);
                    sink.put(&catalogue::VOLUME_FREE, &[("dev", dev)], epoch, bytes);
                }
                Err(error) => file::tell_absent(sink, &format!("free space of device {dev}"), &error, None),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::Server;
    use crate::host::testing::Look;
    use std::process::{Command, Stdio};

    #[test]
    fn the_volume_of_a_processs_working_directory_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), dir.path().join("pg_wal")).unwrap();
        let mut server =
            Command::new("cat").current_dir(dir.path()).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (roots, watch) = (Roots::default(), Arc::new(Watch::new()));
        watch.add_server(Server { target: "me".into(), postmaster_pid: server.id() as i32 });
        let look = Look::of(&mut Volumes::new(&roots, &watch));
        server.kill().unwrap();
        server.wait().unwrap();
        let dev = super::super::locate(&roots, dir.path()).unwrap().dev;
        let free = look.value("host.volume.free_bytes", &[("dev", &dev)]).unwrap();
        let now = free_bytes(dir.path()).unwrap();
        assert!(free > 0.0 && (free - now).abs() < 4e9, "{free} {now}");
        assert_eq!(look.batch.points.len(), 1, "both directories lie on one device");
    }

    #[test]
    fn a_server_that_has_ended_is_not_said_to_be_out_of_sight() {
        let mut server = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let watch = Arc::new(Watch::new());
        watch.add_server(Server { target: "ended".into(), postmaster_pid: server.id() as i32 });
        let mut volumes = Volumes::new(&Roots::default(), &watch);
        server.kill().unwrap();
        let stat = format!("/proc/{}/stat", server.id());
        while !std::fs::read_to_string(&stat).unwrap().contains(") Z") {
            std::thread::yield_now();
        }
        let mut look = Look::of(&mut volumes);
        server.wait().unwrap();
        watch.remove_server("ended");
        watch.add_server(Server { target: "gone".into(), postmaster_pid: server.id() as i32 });
        look.again(&mut volumes);
        assert!(look.batch.points.is_empty() && look.batch.events.is_empty(), "{:?}", look.batch);
    }
}
