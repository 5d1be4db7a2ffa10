//! Pressure stall information: `/proc/pressure/{io,cpu,memory}`, and the same of a server's control group on cgroup v2.

use super::file::{KernelFile, boot_id, missing};
use super::text::assigned;
use super::{Roots, SOURCE, Watch, cgroups_of};
use crate::{Probe, ProbeError, Sink};
use backwater_model::Epoch;
use backwater_model::catalogue::{self, Def};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// File, kind of line, series. (A processor is never short for *all* tasks of a host: `cpu full` is always zero.)
const LINES: [(usize, &str, &Def); 5] = [
    (0, "some", &catalogue::PSI_IO_SOME),
    (0, "full", &catalogue::PSI_IO_FULL),
    (1, "some", &catalogue::PSI_CPU_SOME),
    (2, "some", &catalogue::PSI_MEMORY_SOME),
    (2, "full", &catalogue::PSI_MEMORY_FULL),
];
const RESOURCES: [&str; 3] = ["io", "cpu", "memory"];

/// Reads for how long tasks had to wait for a resource.
#[derive(Debug)]
pub(super) struct Pressure {
    roots: Roots,
    watch: Arc<Watch>,
    seen: Option<u64>,
    boot: String,
    host: Group,
    groups: Vec<Group>,
}

/// The three files of the host or of one control group.
#[derive(Debug)]
struct Group {
    label: String,
    epoch: Epoch,
    files: [KernelFile; 3],
}

impl Group {
    fn of_host(roots: &Roots, boot: &str) -> Self {
        let files = RESOURCES.map(|resource| KernelFile::short(roots.proc.join("pressure").join(resource)));
        Group { label: "host".to_owned(), epoch: Epoch::of(&["boot", boot]), files }
    }

    fn of_cgroup(label: &str, dir: &Path, epoch: Epoch) -> Self {
        let files = RESOURCES.map(|resource| KernelFile::short(dir.join(format!("{resource}.pressure"))));
        Group { label: label.to_owned(), epoch, files }
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        let labels = [("cgroup", self.label.as_str())];
        for (place, file) in self.files.iter_mut().enumerate() {
            let text = file.read()?;
            for (_, kind, def) in LINES.iter().filter(|(file, _, _)| *file == place) {
                if let Some(total_us) = total(&text, kind) {
                    sink.put(def, &labels, self.epoch, total_us as f64);
                }
            }
        }
        Ok(())
    }
}

/// Microseconds of the line that begins with this word.
fn total(text: &str, kind: &str) -> Option<u64> {
    assigned(text.lines().find(|line| line.split(' ').next() == Some(kind))?, "total")
}

/// Why this host has no pressure information, and what would change it.
pub(super) fn why_absent(error: &ProbeError) -> (String, Option<&'static str>) {
    if missing(error) {
        return ("this kernel is older than 4.20 or was built without PSI".to_owned(), None);
    }
    (format!("pressure information is switched off ({error})"), Some("boot with psi=1 on the kernel's command line"))
}

impl Pressure {
    pub(super) fn new(roots: &Roots, watch: &Arc<Watch>) -> Self {
        let boot = boot_id(roots);
        let host = Group::of_host(roots, &boot);
        Pressure { roots: roots.clone(), watch: Arc::clone(watch), seen: None, boot, host, groups: Vec::new() }
    }

    fn refresh(&mut self) {
        let changes = self.watch.changes();
        if self.seen == Some(changes) {
            return;
        }
        self.seen = Some(changes);
        let all = self.watch.servers().into_iter().filter_map(|server| {
            let unified = cgroups_of(&self.roots, server.postmaster_pid).ok()?.unified?;
            Some((unified.path.clone(), unified))
        });
        let once: std::collections::BTreeMap<_, _> = all.filter(|(path, _)| path != "/").collect();
        let group =
            |(path, unified): (String, super::Cgroup)| Group::of_cgroup(&path, &unified.dir, unified.epoch(&self.boot));
        self.groups = once.into_iter().map(group).collect();
    }
}

impl Probe for Pressure {
    fn name(&self) -> &str {
        "host.psi"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        self.refresh();
        if let Err(error) = self.host.read(sink) {
            let (why, remedy) = why_absent(&error);
            sink.absent(SOURCE, "pressure (PSI)", &why, remedy);
            return Ok(());
        }
        for group in &mut self.groups {
            if group.read(sink).is_err() {
                let what = format!("pressure of control group {}", group.label);
                sink.absent(SOURCE, &what, "its pressure files cannot be read (cgroup.pressure may be 0)", None);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::{Look, fixture};
    use proptest::prelude::*;

    #[test]
    fn captured_totals_are_read() {
        let (roots, watch) = fixture("capped");
        let look = Look::of(&mut Pressure::new(&roots, &watch));
        let host = [("cgroup", "host")];
        assert_eq!(look.value("host.psi.io_some_us", &host), Some(63_466_397.0));
        assert_eq!(look.value("host.psi.io_full_us", &host), Some(42_174_798.0));
        assert_eq!(look.value("host.psi.cpu_some_us", &host), Some(80_571_113.0));
        assert_eq!(look.value("host.psi.memory_full_us", &host), Some(0.0));
    }

    #[test]
    fn a_group_of_cgroup_v2_has_its_own() {
        let (roots, watch) = fixture("unified");
        let look = Look::of(&mut Pressure::new(&roots, &watch));
        let group = [("cgroup", "/system.slice/postgresql.service")];
        assert_eq!(look.value("host.psi.io_some_us", &group), Some(9_000_000.0));
        assert_eq!(look.value("host.psi.cpu_some_us", &[("cgroup", "host")]), Some(1_000.0));
    }

    #[test]
    fn a_kernel_without_psi_is_an_absence_not_a_failure() {
        let (mut roots, watch) = fixture("capped");
        roots.proc = "/nonexistent".into();
        let look = Look::of_many(&mut Pressure::new(&roots, &watch), 2);
        assert!(look.batch.points.is_empty() && look.lacks("PSI"));
        assert_eq!(look.batch.events.len(), 1);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            total(&text, "some");
        }
    }
}
