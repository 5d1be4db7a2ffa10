//! The host's dirty limits as they are set: `/proc/sys/vm/dirty_*`. They may be changed while a recording runs, and what
//! takes a remedy back must name what was in force then.

use super::file::KernelFile;
use super::{Roots, SOURCE};
use crate::{Probe, ProbeError, Sink};
use backwater_model::{Epoch, catalogue};
use std::time::Duration;

/// The settings. Of each pair of bytes and ratio the one that is not in force reads 0
/// (Documentation/admin-guide/sysctl/vm.rst).
const NAMES: [&str; 4] = ["vm.dirty_bytes", "vm.dirty_ratio", "vm.dirty_background_bytes", "vm.dirty_background_ratio"];

/// Reads the settings now and then.
#[derive(Debug)]
pub(super) struct Sysctls {
    files: Vec<(&'static str, KernelFile)>,
}

impl Sysctls {
    pub(super) fn new(roots: &Roots) -> Self {
        let file = |name: &'static str| (name, KernelFile::short(roots.proc.join("sys").join(name.replace('.', "/"))));
        Sysctls { files: NAMES.map(file).into() }
    }
}

impl Probe for Sysctls {
    fn name(&self) -> &str {
        "host.sysctl"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        for (name, file) in &mut self.files {
            match file.number() {
                Some(value) => sink.put(&catalogue::SYSCTL, &[("name", name)], Epoch::default(), value as f64),
                None => sink.absent(SOURCE, name, "it is not in /proc/sys, or no number", None),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::testing::Look;

    #[test]
    fn a_setting_that_changes_is_read_again_and_a_missing_one_said_once() {
        let dir = tempfile::tempdir().unwrap();
        let vm = dir.path().join("proc/sys/vm");
        std::fs::create_dir_all(&vm).unwrap();
        std::fs::write(vm.join("dirty_ratio"), "20\n").unwrap();
        std::fs::write(vm.join("dirty_bytes"), "0\n").unwrap();
        let mut probe = Sysctls::new(&Roots::under(dir.path()));
        let mut look = Look::of(&mut probe);
        assert_eq!(look.value("host.sysctl", &[("name", "vm.dirty_ratio")]), Some(20.0));
        std::fs::write(vm.join("dirty_ratio"), "00\n").unwrap();
        std::fs::write(vm.join("dirty_bytes"), "67108864\n").unwrap();
        look.again(&mut probe);
        assert_eq!(look.value("host.sysctl", &[("name", "vm.dirty_ratio")]), Some(0.0));
        assert_eq!(look.value("host.sysctl", &[("name", "vm.dirty_bytes")]), Some(67_108_864.0));
        assert!(look.lacks("vm.dirty_background_bytes"));
        assert_eq!(look.batch.events.len(), 2);
    }
}
