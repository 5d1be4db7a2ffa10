//! A slow disk for a database: a file on a loop device with a file system of its own, whose requests can be capped and
//! whose dirty pages can be bounded without touching anything else on the host.

use super::bdi::{Bdi, DirtyLimit};
use super::cap::{Cap, CapMethod};
use super::{LimitError, loop_device, tool, values};
use backwater_model::Bytes;
use backwater_undo::{Change, Journal};
use rustix::mount::{MountFlags, mount};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What both file systems can be made on; XFS wants 300 MB itself.
const LEAST_BYTES: u64 = 64 << 20;
/// How long a disk without a cap may take to write out what is dirty.
const SETTLE_WITHIN: Duration = Duration::from_secs(120);
/// What counts as nothing: the file system's own bookkeeping is dirty now and then.
const SETTLED_BYTES: u64 = 1 << 20;

/// What disk to make.
#[derive(Clone, Debug)]
pub struct DiskSpec {
    /// For its names: `data`. Letters, digits and `-`.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// `ext4` or `xfs`.
    pub fs: String,
    /// A directory for the file behind it, and for its mount point.
    pub backing_dir: PathBuf,
    /// Whether the loop device passes by the page cache of the disk that holds the file. It should, wherever that disk
    /// can: else what the cap lets through ends in memory.
    pub direct_io: bool,
}

/// A disk that is mounted. It goes when the journal is finished; dropping it does nothing.
#[derive(Debug)]
pub struct SlowDisk {
    dev: String,
    device: PathBuf,
    mount_point: PathBuf,
    bdi: Bdi,
    method: CapMethod,
}

impl SlowDisk {
    /// Makes, formats and mounts it, free of limits that an earlier user of the loop device left.
    pub fn create(journal: &Journal, spec: &DiskSpec) -> Result<SlowDisk, LimitError> {
        check(spec)?;
        let backing_dir = spec.backing_dir.canonicalize().map_err(LimitError::file("use", &spec.backing_dir))?;
        let own = backing_dir.join(format!("backwater-{}-{}", journal.run(), spec.name));
        journal.note(Change::Directory { path: own.clone() })?;
        std::fs::create_dir(&own).map_err(LimitError::file("create", &own))?;
        let image = own.join("image");
        loop_device::make_file(&image, spec.size_bytes)?;
        let device = loop_device::attach(journal, &image, spec.direct_io)?;
        let dev = loop_device::number(&device)?;
        let bdi = Bdi::new(Path::new("/sys/class/bdi"), &dev);
        bdi.reset(journal)?;
        let method = CapMethod::choose(journal, Path::new("/sys/fs/cgroup"), &spec.name)?;
        method.set(journal, &dev, &Cap::default())?;
        format(journal, &spec.fs, &device)?;
        let mount_point = own.join("mount");
        attach_mount(journal, &device, &mount_point, &spec.fs)?;
        Ok(SlowDisk { dev, device, mount_point, bdi, method })
    }

    /// `MAJ:MIN`.
    pub fn dev(&self) -> &str {
        &self.dev
    }

    /// `/dev/loop0`.
    pub fn device_path(&self) -> &Path {
        &self.device
    }

    /// Where it is mounted; root's, open for others to enter.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// By which means it is capped.
    pub fn cap_method(&self) -> &CapMethod {
        &self.method
    }

    /// Puts a process (and so its later children) where the cap reaches it. Needed on cgroup v2, nothing on v1.
    pub fn adopt(&self, pid: u32) -> Result<(), LimitError> {
        match &self.method {
            CapMethod::BlkioV1Root { .. } => Ok(()),
            CapMethod::IoMaxV2 { cgroup } => values::write(&cgroup.join("cgroup.procs"), &pid.to_string()),
        }
    }

    /// Caps its requests; what was capped before is lifted.
    pub fn cap(&self, journal: &Journal, cap: &Cap) -> Result<(), LimitError> {
        self.method.set(journal, &self.dev, cap)
    }

    /// Caps the volume that this one's file lies on, for what is written here. On cgroup v2 it is this volume's group whose
    /// requests come there.
    pub fn cap_beneath(&self, journal: &Journal, beneath: &SlowDisk, cap: &Cap) -> Result<(), LimitError> {
        self.method.set(journal, &beneath.dev, cap)
    }

    /// The cap in force.
    pub fn cap_in_force(&self) -> Result<Cap, LimitError> {
        self.method.get(&self.dev)
    }

    /// Lifts the cap.
    pub fn lift_cap(&self, journal: &Journal) -> Result<(), LimitError> {
        self.cap(journal, &Cap::default())
    }

    /// Bounds its dirty pages, strictly; the bytes in force as the kernel rounds them. They move with the host's
    /// available memory: read them again with [`dirty_limit`](Self::dirty_limit).
    pub fn limit_dirty(&self, journal: &Journal, bytes: u64) -> Result<u64, LimitError> {
        self.bdi.limit(journal, bytes)
    }

    /// The bound in force; without one, the host's own threshold, not strict.
    pub fn dirty_limit(&self) -> Result<DirtyLimit, LimitError> {
        self.bdi.get()
    }

    /// Lifts the bound.
    pub fn unlimit_dirty(&self, journal: &Journal) -> Result<(), LimitError> {
        self.bdi.reset(journal)
    }

    /// What is dirty on it or under way to it; none where debugfs cannot be read.
    pub fn level_bytes(&self) -> Option<u64> {
        self.bdi.level_bytes()
    }

    /// Writes out everything that is dirty on it with the cap lifted, waits until nothing is under way, and caps it again.
    pub fn settle(&self) -> Result<(), LimitError> {
        let cap = self.cap_in_force()?;
        if cap.is_none() {
            return self.write_out();
        }
        self.method.apply(&self.dev, &Cap::default())?;
        let done = self.write_out();
        self.method.apply(&self.dev, &cap)?;
        done
    }

    fn write_out(&self) -> Result<(), LimitError> {
        loop_device::sync(&self.mount_point)?;
        let mut left = 0;
        let settled = values::wait_until(SETTLE_WITHIN, || {
            // Without debugfs the sync, which waits for what it wrote, has to do.
            left = self.bdi.level_bytes().unwrap_or(0);
            Ok(left < SETTLED_BYTES)
        })?;
        let seconds = SETTLE_WITHIN.as_secs();
        if settled { Ok(()) } else { Err(LimitError::NotSettled { dev: self.dev.clone(), left: Bytes(left), seconds }) }
    }
}

fn check(spec: &DiskSpec) -> Result<(), LimitError> {
    let refuse = |what: &str, value: &str, why: &str| {
        Err(LimitError::Value { what: what.to_owned(), value: value.to_owned(), why: why.to_owned() })
    };
    let plain = !spec.name.is_empty() && spec.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if !plain {
        return refuse("the name of a disk", &format!("'{}'", spec.name), "letters, digits and '-' only");
    }
    if !matches!(spec.fs.as_str(), "ext4" | "xfs") {
        return refuse("the file system of a disk", &format!("'{}'", spec.fs), "the lab makes ext4 and xfs");
    }
    if spec.size_bytes < LEAST_BYTES {
        return refuse(
            "the size of a disk",
            &Bytes(spec.size_bytes).to_string(),
            &format!("at least {}", Bytes(LEAST_BYTES)),
        );
    }
    if !rustix::process::geteuid().is_root() {
        return Err(LimitError::Unsupported {
            what: "a volume of its own".to_owned(),
            why: "loop devices and mounts need root".to_owned(),
            next: "Run the same command as root, with sudo".to_owned(),
        });
    }
    Ok(())
}

/// Everything is written now: what is put off (inode tables, the journal) would be written in the middle of an
/// experiment. Nothing is discarded: that would give the reserved blocks back.
fn format(journal: &Journal, fs: &str, device: &Path) -> Result<(), LimitError> {
    let device = device.display().to_string();
    let made = if fs == "xfs" {
        tool::run_journalled(journal, "mkfs.xfs", &["-q", "-f", "-K", &device])
    } else {
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        tool::run_journalled(journal, "mkfs.ext4", &["-q", "-F", "-i", "65536", "-E", options, &device])
    };
    made.map(drop)
}

fn attach_mount(journal: &Journal, device: &Path, target: &Path, fs: &str) -> Result<(), LimitError> {
    // Inside the directory that is noted already.
    std::fs::create_dir(target).map_err(LimitError::file("create", target))?;
    let source = device.display().to_string();
    journal.note(Change::Mount { target: target.to_owned(), source, shared: None })?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    mount(device, target, fs, flags, None)
        .map_err(|error| LimitError::file("mount the volume on", target)(error.into()))
}
