//! The host probes on this machine: on a loop device of their own, when root.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use backwater_model::{Batch, Epoch, EventKind, Registry};
use backwater_probe::host::{Roots, Watch, capabilities, device, probes};
use backwater_probe::{Sink, now};
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A loop device that goes away with its owner, whatever happens.
struct Loop {
    path: String,
}

impl Loop {
    fn attach(file: &Path) -> Loop {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Loop { path: String::from_utf8(output.stdout).unwrap().trim().to_owned() }
    }

    fn dev(&self) -> String {
        let name = self.path.rsplit('/').next().unwrap();
        std::fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap().trim().to_owned()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["--detach", &self.path]).status();
        assert!(std::thread::panicking() || detached.unwrap().success());
    }
}

/// One look of every host probe: values and epochs by name and device, and what is absent.
fn look(roots: &Roots, watch: &Arc<Watch>) -> (BTreeMap<String, (f64, Epoch)>, Vec<String>) {
    let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
    for mut probe in probes(roots, watch) {
        probe.read(&mut Sink::new(now(), &registry, &mut batch, &mut absences)).unwrap();
    }
    let values = batch.points.iter().map(|point| {
        let series = registry.get(point.series).unwrap();
        let dev = series.labels.get("dev").map(|dev| format!("@{dev}")).unwrap_or_default();
        (format!("{}{dev}", series.name), (point.value, point.epoch))
    });
    let absent = batch.events.iter().filter(|event| event.kind == EventKind::Absent);
    (values.collect(), absent.map(|event| event.fields["what"].clone()).collect())
}

#[test]
fn a_loop_device_is_read_and_its_epoch_ends_when_it_is_detached() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: a_loop_device_is_read_and_its_epoch_ends_when_it_is_detached: needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("image");
    std::fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
    let (roots, watch) = (Roots::default(), Arc::new(Watch::new()));
    let attached = Loop::attach(&file);
    let dev = attached.dev();
    assert_eq!(device(&roots, &dev).backing, [file.display().to_string()]);
    watch.add_device(&roots, &dev);
    let (before, absent) = look(&roots, &watch);
    let mut disk = std::fs::OpenOptions::new().write(true).open(&attached.path).unwrap();
    disk.write_all(&[7; 1 << 20]).unwrap();
    disk.sync_all().unwrap();
    drop(disk);
    let (after, _) = look(&roots, &watch);
    let written = format!("host.disk.written_bytes@{dev}");
    assert_eq!(after[&written].0 - before[&written].0, f64::from(1 << 20));
    assert_eq!(after[&written].1, before[&written].1);
    let dirtied = after.get(&format!("host.bdi.written_bytes@{dev}"));
    assert!(dirtied.is_some() || absent.iter().any(|what| what.contains("dirty page cache of device")), "{absent:?}");

    drop(attached);
    let deadline = Instant::now() + Duration::from_secs(10);
    while device(&roots, &dev).backing == [file.display().to_string()] && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let (later, _) = look(&roots, &watch);
    assert_ne!(later[&written].1, before[&written].1, "counters of another life must not be compared");
}

#[test]
fn every_host_shows_its_page_cache_processors_and_mounted_devices() {
    let (roots, watch) = (Roots::default(), Arc::new(Watch::new()));
    watch.add_mounted_devices(&roots);
    let (values, _) = look(&roots, &watch);
    for name in ["host.vm.dirty_bytes", "host.vm.dirty_threshold_bytes", "host.memory.total_bytes", "host.cpu.idle_s"] {
        assert!(values.contains_key(name), "{name}");
    }
    let disks = watch.devices().into_iter().filter(|dev| !dev.starts_with("0:"));
    for dev in disks {
        assert!(values.contains_key(&format!("host.disk.writes@{dev}")), "{dev}");
    }
    assert!(capabilities(&roots).iter().any(|capability| capability.missing.is_none()));
}
