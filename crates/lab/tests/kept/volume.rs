//! A small volume of its own for a server's WAL, gone when it is dropped.

use crate::server::Server;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

pub struct Volume {
    dir: tempfile::TempDir,
}

fn run(program: &str, arguments: &[&Path], options: &[&str]) {
    let done = Command::new(program).args(options).args(arguments).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Volume {
    /// An empty file system of this size, on a loop device.
    pub fn of_mib(mib: u64) -> Volume {
        // In memory where that has room for it: what is measured beside it shall not wait for the disk below.
        let memory = Path::new("/dev/shm");
        let free = rustix::fs::statvfs(memory).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
        let place = if free > mib << 20 { memory.to_owned() } else { std::env::temp_dir() };
        let volume = Volume { dir: tempfile::tempdir_in(place).unwrap() };
        let (file, mount) = (volume.dir.path().join("file"), volume.dir.path().join("mount"));
        File::create(&file).unwrap().set_len(mib << 20).unwrap();
        run("mkfs.ext4", &[&file], &["-q", "-F"]);
        std::fs::create_dir(&mount).unwrap();
        run("mount", &[&file, &mount], &["-o", "loop"]);
        volume
    }

    /// Moves a directory of a server that is stopped there; a link takes its place.
    pub fn take_in(&self, directory: &Path, server: &Server) {
        let mount = self.dir.path().join("mount");
        // Whoever owns the directory walks through those above it.
        for (path, mode) in [(self.dir.path(), 0o755), (mount.as_path(), 0o777)] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path, mode).unwrap();
        }
        let place = mount.join("pg_wal");
        assert!(server.command("cp").arg("-a").arg(directory).arg(&place).status().unwrap().success());
        std::fs::remove_dir_all(directory).unwrap();
        std::os::unix::fs::symlink(&place, directory).unwrap();
    }
}

impl Drop for Volume {
    /// Until the last process of its server is gone it is busy.
    fn drop(&mut self) {
        let begun = Instant::now();
        let mount = self.dir.path().join("mount");
        while !Command::new("umount").arg(&mount).output().is_ok_and(|done| done.status.success()) {
            if begun.elapsed() > PATIENCE {
                assert!(std::thread::panicking(), "cannot unmount {}", mount.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
