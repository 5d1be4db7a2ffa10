//! Rows of what the flight recorder says of the host: processors, memory, disks, pressure. The series are those of the
//! host's own probes, so that the same rules read them. Disks go by their kernel names here.

use super::table::{Row, row};
use backwater_model::catalogue as cat;

/// Bytes of a sector in the kernel's counts, whatever the device's own.
const SECTOR: f64 = 512.0;
const KIB: f64 = 1_024.0;

macro_rules! disk {
    ($def:ident, $key:literal) => {
        row(&cat::$def, &[concat!("systemMetrics.disks.#.", $key)]).of("dev", "")
    };
}

macro_rules! pressure {
    ($def:ident, $key:literal) => {
        row(&cat::$def, &[concat!("systemMetrics.pressure.", $key, ".totalMicros")]).of("cgroup", "host")
    };
}

/// The host as mongod sees it.
pub(super) const HOST: &[Row] = &[
    row(&cat::CPU_USER, &["systemMetrics.cpu.user_ms"]).times(1e-3),
    row(&cat::CPU_SYSTEM, &["systemMetrics.cpu.system_ms"]).times(1e-3),
    row(&cat::CPU_IDLE, &["systemMetrics.cpu.idle_ms"]).times(1e-3),
    row(&cat::CPU_IOWAIT, &["systemMetrics.cpu.iowait_ms"]).times(1e-3),
    row(&cat::CPU_STEAL, &["systemMetrics.cpu.steal_ms"]).times(1e-3),
    row(&cat::MEM_TOTAL, &["systemMetrics.memory.MemTotal_kb"]).times(KIB),
    row(&cat::MEM_AVAILABLE, &["systemMetrics.memory.MemAvailable_kb"]).times(KIB),
    row(&cat::VM_DIRTY, &["systemMetrics.memory.Dirty_kb"]).times(KIB),
    disk!(DISK_READS, "reads"),
    disk!(DISK_WRITES, "writes"),
    disk!(DISK_READ_BYTES, "read_sectors").times(SECTOR),
    disk!(DISK_WRITTEN_BYTES, "write_sectors").times(SECTOR),
    disk!(DISK_READ_MS, "read_time_ms"),
    disk!(DISK_WRITE_MS, "write_time_ms"),
    disk!(DISK_IN_FLIGHT, "io_in_progress"),
    disk!(DISK_BUSY_MS, "io_time_ms"),
    disk!(DISK_WEIGHTED_MS, "io_queued_ms"),
    pressure!(PSI_IO_SOME, "io.some"),
    pressure!(PSI_IO_FULL, "io.full"),
    pressure!(PSI_CPU_SOME, "cpu.some"),
    pressure!(PSI_MEMORY_SOME, "memory.some"),
    pressure!(PSI_MEMORY_FULL, "memory.full"),
];
