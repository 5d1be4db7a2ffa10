//! The name, unit, kind and labels of every series that Backwater knows: the one vocabulary of probes, rules,
//! reports and documentation.

use crate::{Kind, Labels, Provenance, Series, Unit};
use std::borrow::Cow;
use std::fmt::Display;

/// What is fixed of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Def {
    /// Dotted name.
    pub name: &'static str,
    /// Unit.
    pub unit: Unit,
    /// Counter, gauge, histogram.
    pub kind: Kind,
    /// Names of the labels it carries.
    pub labels: &'static [&'static str],
    /// What it is and where it is read.
    pub doc: &'static str,
}

impl Def {
    /// The series of this definition with these label values, which must be those of [`Def::labels`].
    pub fn series<V: Display>(&self, labels: &[(&'static str, V)]) -> Series {
        debug_assert!(labels.iter().all(|(name, _)| self.labels.contains(name)), "{}: unknown label", self.name);
        Series {
            name: Cow::Borrowed(self.name),
            unit: self.unit,
            kind: self.kind,
            labels: Labels::of(labels),
            provenance: Provenance::Read,
        }
    }
}

macro_rules! catalogue {
    ($($id:ident $name:literal $unit:ident $kind:ident [$($label:literal)*] $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub const $id: Def = Def { name: $name, unit: Unit::$unit, kind: Kind::$kind, labels: &[$($label),*], doc: $doc };
        )*
        /// Every definition, in the order of this page.
        pub const ALL: &[Def] = &[$($id),*];
    };
}

catalogue! {
    // The page cache, host-wide: /proc/vmstat, in bytes (pages × page size).
    VM_DIRTY "host.vm.dirty_bytes" Bytes Gauge [] "Dirty page cache of the host (nr_dirty)";
    VM_WRITEBACK "host.vm.writeback_bytes" Bytes Gauge [] "Page cache being written (nr_writeback)";
    VM_DIRTIED "host.vm.dirtied_bytes" Bytes Counter [] "Page cache dirtied since boot (nr_dirtied)";
    VM_WRITTEN "host.vm.written_bytes" Bytes Counter [] "Page cache written since boot (nr_written)";
    VM_DIRTY_THRESHOLD "host.vm.dirty_threshold_bytes" Bytes Gauge [] "Hard dirty limit of the host (nr_dirty_threshold)";
    VM_BACKGROUND_THRESHOLD "host.vm.dirty_background_threshold_bytes" Bytes Gauge [] "Where background writeback begins (nr_dirty_background_threshold)";
    SYSCTL "host.sysctl" Count Gauge ["name"] "A setting of the kernel that may change while it runs: vm.dirty_bytes, vm.dirty_ratio and their background twins, 0 where the twin is in force (/proc/sys)";
    MEM_TOTAL "host.memory.total_bytes" Bytes Gauge [] "MemTotal";
    MEM_AVAILABLE "host.memory.available_bytes" Bytes Gauge [] "MemAvailable";

    // The page cache of one device: debugfs bdi stats, and limits in /sys/class/bdi.
    BDI_DIRTIED "host.bdi.dirtied_bytes" Bytes Counter ["dev"] "Page cache of the device dirtied (BdiDirtied)";
    BDI_WRITTEN "host.bdi.written_bytes" Bytes Counter ["dev"] "Page cache of the device written (BdiWritten)";
    BDI_RECLAIMABLE "host.bdi.reclaimable_bytes" Bytes Gauge ["dev"] "Dirty page cache of the device (BdiReclaimable)";
    BDI_WRITEBACK "host.bdi.writeback_bytes" Bytes Gauge ["dev"] "Page cache of the device being written (BdiWriteback)";
    BDI_DIRTY_THRESH "host.bdi.dirty_threshold_bytes" Bytes Gauge ["dev"] "Dirty limit of the device (BdiDirtyThresh)";
    BDI_GLOBAL_DIRTY_THRESH "host.bdi.global_dirty_threshold_bytes" Bytes Gauge ["dev"] "Dirty limit of the host as the device's writeback sees it (DirtyThresh)";
    BDI_BACKGROUND_THRESH "host.bdi.background_threshold_bytes" Bytes Gauge ["dev"] "Background limit of the host as the device's writeback sees it (BackgroundThresh)";
    BDI_WRITE_BANDWIDTH "host.bdi.write_bandwidth_bytes_per_s" BytesPerSecond Gauge ["dev"] "The kernel's estimate of the device's writeback rate (BdiWriteBandwidth)";
    BDI_MAX_BYTES "host.bdi.max_bytes" Bytes Gauge ["dev"] "Configured dirty limit of the device (/sys/class/bdi/*/max_bytes)";
    BDI_MAX_RATIO "host.bdi.max_ratio" Ratio Gauge ["dev"] "Configured share of the host's dirty limit (max_ratio ÷ 100)";
    BDI_STRICT_LIMIT "host.bdi.strict_limit" Flag Gauge ["dev"] "Whether the device's own limit holds even while the host's is far (strict_limit)";

    // Block devices: /proc/diskstats and /sys/block.
    DISK_READS "host.disk.reads" Count Counter ["dev"] "Reads completed";
    DISK_WRITES "host.disk.writes" Count Counter ["dev"] "Writes completed";
    DISK_READ_BYTES "host.disk.read_bytes" Bytes Counter ["dev"] "Bytes read";
    DISK_WRITTEN_BYTES "host.disk.written_bytes" Bytes Counter ["dev"] "Bytes written";
    DISK_READ_MS "host.disk.read_ms" Milliseconds Counter ["dev"] "Time of all reads, queueing in the device included";
    DISK_WRITE_MS "host.disk.write_ms" Milliseconds Counter ["dev"] "Time of all writes, queueing in the device included";
    DISK_IN_FLIGHT "host.disk.in_flight" Count Gauge ["dev"] "Requests in the device";
    DISK_BUSY_MS "host.disk.busy_ms" Milliseconds Counter ["dev"] "Time with at least one request in the device (io_ticks; sampled since Linux 5.0)";
    DISK_WEIGHTED_MS "host.disk.weighted_ms" Milliseconds Counter ["dev"] "Requests in the device × time";
    DISK_FLUSHES "host.disk.flushes" Count Counter ["dev"] "Cache flushes completed (Linux 5.5)";
    DISK_FLUSH_MS "host.disk.flush_ms" Milliseconds Counter ["dev"] "Time of all flushes (Linux 5.5)";
    DISK_NR_REQUESTS "host.disk.nr_requests" Count Gauge ["dev"] "Depth of the device's request queue";

    // Limits and counters of control groups (v1 blkio, v2 io). `op` is read or write. No point means no limit.
    CGROUP_IOPS_LIMIT "host.cgroup.iops_limit" PerSecond Gauge ["cgroup" "dev" "op"] "I/O operations a second allowed (v1 blkio.throttle.*_iops_device, v2 io.max)";
    CGROUP_BPS_LIMIT "host.cgroup.bytes_limit_per_s" BytesPerSecond Gauge ["cgroup" "dev" "op"] "Bytes a second allowed (v1 blkio.throttle.*_bps_device, v2 io.max)";
    CGROUP_IOS "host.cgroup.ios" Count Counter ["cgroup" "dev" "op"] "I/O operations of the group (v1 io_serviced, v2 io.stat)";
    CGROUP_IO_BYTES "host.cgroup.io_bytes" Bytes Counter ["cgroup" "dev" "op"] "Bytes of the group (v1 io_service_bytes, v2 io.stat)";
    CGROUP_MEMORY_LIMIT "host.cgroup.memory_limit_bytes" Bytes Gauge ["cgroup"] "Memory limit (v2 memory.max, v1 memory.limit_in_bytes); the smallest on the way to the root";
    CGROUP_MEMORY_USED "host.cgroup.memory_bytes" Bytes Gauge ["cgroup"] "Memory in use (memory.current)";
    CGROUP_MEMORY_FILE "host.cgroup.file_bytes" Bytes Gauge ["cgroup"] "Page cache of the group (memory.stat file)";
    CGROUP_MEMORY_RECLAIMABLE "host.cgroup.dirtyable_bytes" Bytes Gauge ["cgroup"] "Memory of the group the kernel counts as dirtyable: limit − used + file pages on its lists";
    CGROUP_DIRTY "host.cgroup.dirty_bytes" Bytes Gauge ["cgroup"] "Dirty page cache of the group (v2 memory.stat file_dirty)";
    CGROUP_WRITEBACK "host.cgroup.writeback_bytes" Bytes Gauge ["cgroup"] "Page cache of the group being written (v2 memory.stat file_writeback)";

    // Pressure: /proc/pressure and cgroup files. `cgroup` is `host` for the whole host.
    PSI_IO_SOME "host.psi.io_some_us" Microseconds Counter ["cgroup"] "Time in which some task waited on I/O";
    PSI_IO_FULL "host.psi.io_full_us" Microseconds Counter ["cgroup"] "Time in which all non-idle tasks waited on I/O";
    PSI_CPU_SOME "host.psi.cpu_some_us" Microseconds Counter ["cgroup"] "Time in which some task waited for a processor";
    PSI_MEMORY_SOME "host.psi.memory_some_us" Microseconds Counter ["cgroup"] "Time in which some task waited for memory";
    PSI_MEMORY_FULL "host.psi.memory_full_us" Microseconds Counter ["cgroup"] "Time in which all non-idle tasks waited for memory";

    // Processors: /proc/stat, all of them together, in seconds of processor time.
    CPU_USER "host.cpu.user_s" Seconds Counter [] "User and nice time";
    CPU_SYSTEM "host.cpu.system_s" Seconds Counter [] "System, interrupt and soft interrupt time";
    CPU_IDLE "host.cpu.idle_s" Seconds Counter [] "Idle time";
    CPU_IOWAIT "host.cpu.iowait_s" Seconds Counter [] "Idle time with I/O outstanding";
    CPU_STEAL "host.cpu.steal_s" Seconds Counter [] "Time taken by the hypervisor";

    // Processes of a watched server: /proc/PID/{io,stat}. `target` is the server's name, `what` its backend type.
    THREADS_LOOKED "host.threads.looked" Count Gauge ["target"] "Threads of a server looked at in one look, of which those at work are samples";
    PROC_READ_BYTES "host.process.read_bytes" Bytes Counter ["target" "pid" "what"] "Bytes fetched from storage (read_bytes)";
    PROC_WRITE_BYTES "host.process.write_bytes" Bytes Counter ["target" "pid" "what"] "Bytes dirtied or written (write_bytes)";
    PROC_CANCELLED_BYTES "host.process.cancelled_write_bytes" Bytes Counter ["target" "pid" "what"] "Dirty bytes dropped before they were written";
    PROC_READ_CALLS "host.process.read_calls" Count Counter ["target" "pid" "what"] "read-like system calls (syscr)";
    PROC_WRITE_CALLS "host.process.write_calls" Count Counter ["target" "pid" "what"] "write-like system calls (syscw)";
    PROC_CPU "host.process.cpu_s" Seconds Counter ["target" "pid" "what"] "User and system time";
    PROC_BLKIO_DELAY "host.process.blkio_delay_s" Seconds Counter ["target" "pid" "what"] "Time blocked on block I/O (needs delay accounting)";
    PROC_UID "host.process.uid" Count Gauge ["target" "pid" "what"] "Effective user id";

    // TCP sockets of a watched server's processes: sock_diag TCP_INFO.
    TCP_NOTSENT "host.tcp.notsent_bytes" Bytes Gauge ["target" "pid" "local" "peer"] "Written by the server, not yet sent";
    TCP_UNACKED "host.tcp.unacked_bytes" Bytes Gauge ["target" "pid" "local" "peer"] "Sent, not yet acknowledged (segments × mss)";
    TCP_SENDQ "host.tcp.sendq_bytes" Bytes Gauge ["target" "pid" "local" "peer"] "Queued for sending, sent and unacknowledged included (idiag_wqueue)";
    TCP_ACKED "host.tcp.acked_bytes" Bytes Counter ["target" "pid" "local" "peer"] "Acknowledged by the peer";
    TCP_RECEIVED "host.tcp.received_bytes" Bytes Counter ["target" "pid" "local" "peer"] "Received from the peer";
    TCP_BUSY "host.tcp.busy_us" Microseconds Counter ["target" "pid" "local" "peer"] "Time with data to send";
    TCP_RWND_LIMITED "host.tcp.rwnd_limited_us" Microseconds Counter ["target" "pid" "local" "peer"] "Time held by the peer's receive window";
    TCP_SNDBUF_LIMITED "host.tcp.sndbuf_limited_us" Microseconds Counter ["target" "pid" "local" "peer"] "Time held by the own send buffer";
    TCP_MIN_RTT "host.tcp.min_rtt_us" Microseconds Gauge ["target" "pid" "local" "peer"] "Smallest round trip";
    TCP_RTT "host.tcp.rtt_us" Microseconds Gauge ["target" "pid" "local" "peer"] "Smoothed round trip";
    TCP_MAX_PACING "host.tcp.max_pacing_bytes_per_s" BytesPerSecond Gauge ["target" "pid" "local" "peer"] "Rate that it is held to (SO_MAX_PACING_RATE); not there where it is held to none";
    TCP_RETRANSMITS "host.tcp.retransmits" Count Counter ["target" "pid" "local" "peer"] "Segments sent again";
    TCP_DELIVERY_RATE "host.tcp.delivery_bytes_per_s" BytesPerSecond Gauge ["target" "pid" "local" "peer"] "Latest delivery rate";

    TCP_SENT "host.tcp.sent_bytes" Bytes Counter ["target" "pid" "local" "peer"] "Sent, what was sent again included (Linux 4.19)";
    TCP_SEGMENTS_OUT "host.tcp.segments_out" Count Counter ["target" "pid" "local" "peer"] "Segments sent";
    TCP_SEGMENTS_IN "host.tcp.segments_in" Count Counter ["target" "pid" "local" "peer"] "Segments received";
    TCP_PEER_WINDOW "host.tcp.peer_window_bytes" Bytes Gauge ["target" "pid" "local" "peer"] "Receive window the peer offers (Linux 5.4)";

    // Network interfaces of the watched server's network namespace; `target` is the server's name, `host` for the host's own.
    NET_SENT_BYTES "host.net.sent_bytes" Bytes Counter ["target" "if"] "Bytes sent";
    NET_RECEIVED_BYTES "host.net.received_bytes" Bytes Counter ["target" "if"] "Bytes received";
    NET_SENT_PACKETS "host.net.sent_packets" Count Counter ["target" "if"] "Packets sent";
    NET_RECEIVED_PACKETS "host.net.received_packets" Count Counter ["target" "if"] "Packets received";
    NET_DROPS "host.net.drops" Count Counter ["target" "if"] "Packets dropped on their way out, by the queueing discipline or the device";
    NET_BACKLOG "host.net.backlog_bytes" Bytes Gauge ["target" "if"] "Bytes standing in the interface's queueing discipline";
    NET_SPEED "host.net.speed_bytes_per_s" BytesPerSecond Gauge ["target" "if"] "Speed the device says it has (/sys/class/net/*/speed); no point where it says none";
    NET_SHAPER "host.net.shaper_bytes_per_s" BytesPerSecond Gauge ["target" "if"] "Rate of the shaper on the interface (TBF, or HTB's root class)";
    NET_ADDRESS "host.net.address" Count Gauge ["target" "if" "address"] "1 where the interface has this address: connections from there go by it";

    // File systems of watched directories.
    VOLUME_FREE "host.volume.free_bytes" Bytes Gauge ["dev"] "Free space for ordinary users on the file system that lies on the device";

    // Volumes whose rating was told.
    VOLUME_IOPS "host.volume.declared_iops" PerSecond Gauge ["dev"] "Declared I/O operations a second";
    VOLUME_BPS "host.volume.declared_bytes_per_s" BytesPerSecond Gauge ["dev"] "Declared bytes a second";
    VOLUME_BURST_IOPS "host.volume.declared_burst_iops" PerSecond Gauge ["dev"] "Declared burst I/O operations a second";

    // PostgreSQL: write-ahead log positions, as bytes.
    PG_WAL_INSERT "pg.wal.insert_bytes" Bytes Counter ["target"] "Insert position (pg_current_wal_insert_lsn)";
    PG_WAL_WRITE "pg.wal.write_bytes" Bytes Counter ["target"] "Write position (pg_current_wal_lsn)";
    PG_WAL_FLUSH "pg.wal.flush_bytes" Bytes Counter ["target"] "Flush position (pg_current_wal_flush_lsn)";
    PG_WAL_RECEIVE "pg.wal.receive_bytes" Bytes Counter ["target"] "On a standby: received and flushed";
    PG_WAL_REPLAY "pg.wal.replay_bytes" Bytes Counter ["target"] "On a standby: replayed";
    PG_WAL_OLDEST_KEPT "pg.wal.oldest_kept_bytes" Bytes Gauge ["target"] "Begin of the oldest segment still in pg_wal (pg_ls_waldir)";
    PG_WAL_DIR "pg.wal.directory_bytes" Bytes Gauge ["target"] "Size of all segments in pg_wal (pg_ls_waldir)";
    PG_WAL_WRITES "pg.wal.writes" Count Counter ["target"] "Times WAL was written (14 to 17: pg_stat_wal; 18: pg_stat_io)";
    PG_WAL_SYNCS "pg.wal.syncs" Count Counter ["target"] "Times WAL was synced (14 to 17: pg_stat_wal; 18: pg_stat_io)";
    PG_WAL_WRITE_MS "pg.wal.write_ms" Milliseconds Counter ["target"] "Time in writes of WAL (with track_wal_io_timing)";
    PG_WAL_SYNC_MS "pg.wal.sync_ms" Milliseconds Counter ["target"] "Time in syncs of WAL (with track_wal_io_timing)";
    PG_WAL_RECORDS "pg.wal.records" Count Counter ["target"] "WAL records (14+)";
    PG_WAL_FPI "pg.wal.full_page_images" Count Counter ["target"] "Full-page images (14+)";
    PG_WAL_BUFFERS_FULL "pg.wal.buffers_full" Count Counter ["target"] "Times WAL was written because wal_buffers were full (14+)";

    // PostgreSQL: databases.
    PG_XACT_COMMIT "pg.db.commits" Count Counter ["target" "database"] "Commits, read-only ones included";
    PG_XACT_ROLLBACK "pg.db.rollbacks" Count Counter ["target" "database"] "Rollbacks";
    PG_TUP_INSERTED "pg.db.rows_inserted" Count Counter ["target" "database"] "Rows inserted";
    PG_TUP_UPDATED "pg.db.rows_updated" Count Counter ["target" "database"] "Rows updated";
    PG_TUP_DELETED "pg.db.rows_deleted" Count Counter ["target" "database"] "Rows deleted";
    PG_BLKS_READ "pg.db.blocks_read" Count Counter ["target" "database"] "Blocks read into shared buffers";
    PG_BLKS_HIT "pg.db.blocks_hit" Count Counter ["target" "database"] "Blocks found in shared buffers";
    PG_TEMP_BYTES "pg.db.temp_bytes" Bytes Counter ["target" "database"] "Temporary files written";
    PG_DEADLOCKS "pg.db.deadlocks" Count Counter ["target" "database"] "Deadlocks";
    PG_CONFLICTS "pg.db.conflicts" Count Counter ["target" "database"] "Queries cancelled by recovery";

    // PostgreSQL: checkpoints and the background writer.
    PG_CHECKPOINTS_TIMED "pg.checkpoint.timed" Count Counter ["target"] "Checkpoints begun because of checkpoint_timeout";
    PG_CHECKPOINTS_REQUESTED "pg.checkpoint.requested" Count Counter ["target"] "Checkpoints begun because of max_wal_size or a command";
    PG_CHECKPOINT_WRITE_MS "pg.checkpoint.write_ms" Milliseconds Counter ["target"] "Time spent writing in checkpoints";
    PG_CHECKPOINT_SYNC_MS "pg.checkpoint.sync_ms" Milliseconds Counter ["target"] "Time spent syncing in checkpoints";
    PG_CHECKPOINT_BUFFERS "pg.checkpoint.buffers_written" Count Counter ["target"] "Buffers written by checkpoints";
    PG_CHECKPOINT_REDO "pg.checkpoint.redo_bytes" Bytes Counter ["target"] "Redo position of the last checkpoint (pg_control_checkpoint)";
    PG_BGWRITER_BUFFERS "pg.bgwriter.buffers_written" Count Counter ["target"] "Buffers written by the background writer";
    PG_BACKEND_BUFFERS "pg.backend.buffers_written" Count Counter ["target"] "Buffers written by backends themselves";
    PG_BACKEND_FSYNCS "pg.backend.fsyncs" Count Counter ["target"] "Syncs that backends had to do themselves";
    PG_BUFFERS_ALLOCATED "pg.buffers.allocated" Count Counter ["target"] "Buffers allocated";

    // PostgreSQL 16+: pg_stat_io by backend type, object and context.
    PG_IO_READS "pg.io.reads" Count Counter ["target" "backend_type" "object" "context"] "Reads";
    PG_IO_WRITES "pg.io.writes" Count Counter ["target" "backend_type" "object" "context"] "Writes";
    PG_IO_WRITE_BYTES "pg.io.write_bytes" Bytes Counter ["target" "backend_type" "object" "context"] "Bytes written";
    PG_IO_READ_BYTES "pg.io.read_bytes" Bytes Counter ["target" "backend_type" "object" "context"] "Bytes read";
    PG_IO_EXTENDS "pg.io.extends" Count Counter ["target" "backend_type" "object" "context"] "Relation extensions";
    PG_IO_WRITEBACKS "pg.io.writebacks" Count Counter ["target" "backend_type" "object" "context"] "Writebacks asked of the kernel";
    PG_IO_FSYNCS "pg.io.fsyncs" Count Counter ["target" "backend_type" "object" "context"] "Syncs";
    PG_IO_WRITE_MS "pg.io.write_ms" Milliseconds Counter ["target" "backend_type" "object" "context"] "Time in writes (with track_io_timing)";
    PG_IO_FSYNC_MS "pg.io.fsync_ms" Milliseconds Counter ["target" "backend_type" "object" "context"] "Time in syncs (with track_io_timing)";

    // PostgreSQL: standbys, slots, archiver. `standby` is the slot, else application_name + client address.
    PG_REPL_SENT "pg.replication.sent_bytes" Bytes Counter ["target" "standby"] "Sent position";
    PG_REPL_WRITE "pg.replication.write_bytes" Bytes Counter ["target" "standby"] "Position the standby has written";
    PG_REPL_FLUSH "pg.replication.flush_bytes" Bytes Counter ["target" "standby"] "Position the standby has flushed";
    PG_REPL_REPLAY "pg.replication.replay_bytes" Bytes Counter ["target" "standby"] "Position the standby has replayed";
    PG_REPL_WRITE_LAG "pg.replication.write_lag_us" Microseconds Gauge ["target" "standby"] "write_lag as the server shows it: of the last WAL acknowledged, and frozen while nothing is";
    PG_REPL_FLUSH_LAG "pg.replication.flush_lag_us" Microseconds Gauge ["target" "standby"] "flush_lag as the server shows it";
    PG_REPL_REPLAY_LAG "pg.replication.replay_lag_us" Microseconds Gauge ["target" "standby"] "replay_lag as the server shows it";
    PG_REPL_REPLY_AGE "pg.replication.reply_age_s" Seconds Gauge ["target" "standby"] "How long ago the standby last spoke (reply_time); its positions are that old";
    PG_REPL_STREAMING "pg.replication.streaming" Flag Gauge ["target" "standby"] "Whether the walsender is in state streaming (0: startup, catchup)";
    PG_REPL_SYNC "pg.replication.synchronous" Flag Gauge ["target" "standby"] "Whether commits wait for this standby (sync_state sync or quorum)";
    PG_REPL_PID "pg.replication.walsender_pid" Count Gauge ["target" "standby"] "Process id of the walsender, by which its socket is found";
    PG_RECEIVER_STREAMING "pg.receiver.streaming" Flag Gauge ["target"] "On a standby: whether the walreceiver is connected and streaming";
    PG_RECEIVER_WRITTEN "pg.receiver.written_bytes" Bytes Counter ["target"] "On a standby: received and written, not yet flushed (13+)";
    PG_RECEIVER_LATEST_END "pg.receiver.latest_end_bytes" Bytes Counter ["target"] "On a standby: the end of WAL its upstream last told of";
    PG_RECEIVER_MESSAGE_AGE "pg.receiver.message_age_s" Seconds Gauge ["target"] "On a standby: how long ago its upstream last spoke";
    PG_REPLAY_PAUSED "pg.replay.paused" Flag Gauge ["target"] "On a standby: whether replay is paused";
    PG_REPLAY_CONFLICTS "pg.replay.conflicts" Count Counter ["target" "kind"] "On a standby: queries cancelled so that replay could go on (pg_stat_database_conflicts)";
    PG_TIMELINE "pg.wal.timeline" Count Gauge ["target"] "Timeline of the last checkpoint";
    PG_SLOT_LOST "pg.slot.lost" Flag Gauge ["target" "slot"] "Whether the slot has lost WAL that its reader needs (wal_status lost, 13+)";
    PG_SLOT_LOGICAL "pg.slot.logical" Flag Gauge ["target" "slot"] "Whether the slot is a logical one, of a subscription or another reader of changes";
    PG_SLOT_INVALIDATION "pg.slot.invalidation" Count Gauge ["target" "slot"] "Why the slot was given up (invalidation_reason, 17+): 0 not, 1 WAL removed, 2 rows removed, 3 wal_level, 4 idle, 5 another";
    PG_SLOT_UNRESERVED "pg.slot.unreserved" Flag Gauge ["target" "slot"] "Whether the next checkpoint may remove WAL that the slot needs (wal_status unreserved, 13+)";
    PG_SLOT_RESTART "pg.slot.restart_bytes" Bytes Counter ["target" "slot"] "Oldest WAL the slot keeps";
    PG_SLOT_ACTIVE "pg.slot.active" Flag Gauge ["target" "slot"] "Whether somebody reads from the slot";
    PG_SLOT_SAFE "pg.slot.safe_bytes" Bytes Gauge ["target" "slot"] "WAL that may still be written before the slot is lost (13+)";
    PG_ARCHIVED "pg.archiver.archived" Count Counter ["target"] "Segments archived";
    PG_ARCHIVE_FAILED "pg.archiver.failed" Count Counter ["target"] "Failed attempts to archive";

    PG_ARCHIVED_UPTO "pg.archiver.last_archived_bytes" Bytes Counter ["target"] "End of the last segment archived";

    // PostgreSQL: what a failover manager's check would see.
    PG_HEARTBEAT "pg.heartbeat.response_us" Microseconds Gauge ["target"] "From the intended start of a heartbeat (connect, one row, commit) to its acknowledgement";
    PG_HEARTBEATS "pg.heartbeat.answered" Count Counter ["target"] "Heartbeats that were answered in time";
    PG_HEARTBEATS_MISSED "pg.heartbeat.missed" Count Counter ["target"] "Heartbeats that were not answered in time";

    // PostgreSQL: sessions, and the probe itself.
    PG_SESSIONS_ACTIVE "pg.sessions.active" Count Gauge ["target"] "Client sessions in state active";
    PG_SESSIONS_WAITING "pg.sessions.waiting" Count Gauge ["target" "queue"] "Active client sessions waiting on this queue";
    PG_SESSIONS_TOTAL "pg.sessions.total" Count Gauge ["target"] "Client sessions";
    PG_PROBE_RESPONSE "pg.probe.response_us" Microseconds Gauge ["target"] "How long the server took to answer a look at sessions; looks in its shared memory have none";
    PG_PROBE_LONGEST "pg.probe.longest_us" Microseconds Gauge ["target"] "How long the server took over the longest of its answers to the probe since the point before";
    PG_PROBE_MEMORY_LOOKS "pg.probe.memory_looks" Count Gauge ["target"] "Looks at sessions in the server's shared memory, without asking, since the last at which idle ones were counted";

    // MongoDB: what its clients do (serverStatus, live or from diagnostic.data). `op` of operations is reads, writes, commands or
    // transactions; of opcounters insert, query, update, delete, getmore or command; of queues and tickets read or write.
    MONGO_UPTIME "mongo.uptime_ms" Milliseconds Counter ["target"] "Time since the server was started (uptimeMillis)";
    MONGO_OPS "mongo.ops" Count Counter ["target" "op"] "Operations answered (opLatencies.*.ops)";
    MONGO_LATENCY "mongo.latency_us_total" Microseconds Counter ["target" "op"] "Sum of the server's own latencies (opLatencies.*.latency)";
    MONGO_OPCOUNTERS "mongo.opcounters" Count Counter ["target" "op"] "Operations of clients (opcounters)";
    MONGO_REPLICATED "mongo.replicated_ops" Count Counter ["target" "op"] "Operations applied from the oplog (opcountersRepl)";
    MONGO_TTL_DELETED "mongo.ttl.deleted" Count Counter ["target"] "Documents deleted because they expired (metrics.ttl.deletedDocuments)";
    MONGO_TTL_PASSES "mongo.ttl.passes" Count Counter ["target"] "Passes of the TTL monitor (metrics.ttl.passes)";
    MONGO_CONNECTIONS "mongo.connections.current" Count Gauge ["target"] "Connections of clients (connections.current)";
    MONGO_CONNECTIONS_FREE "mongo.connections.available" Count Gauge ["target"] "Connections that may still be opened (connections.available)";
    MONGO_CONNECTIONS_ACTIVE "mongo.connections.active" Count Gauge ["target"] "Connections with an operation in progress (connections.active, 3.6+)";
    MONGO_CONNECTIONS_CREATED "mongo.connections.created" Count Counter ["target"] "Connections ever opened (connections.totalCreated)";
    MONGO_CONNECTIONS_REJECTED "mongo.connections.rejected" Count Counter ["target"] "Connections turned away at the limit (connections.rejected)";
    MONGO_THREADS "mongo.threads" Count Gauge ["target"] "Threads that serve connections (serviceExecutor statistics), or all threads where those are not told";
    MONGO_REQUESTS "mongo.network.requests" Count Counter ["target"] "Messages received (network.numRequests)";
    MONGO_RECEIVED "mongo.network.received_bytes" Bytes Counter ["target"] "Received from clients (network.bytesIn)";
    MONGO_SENT "mongo.network.sent_bytes" Bytes Counter ["target"] "Sent to clients (network.bytesOut)";
    MONGO_LOCK_QUEUE "mongo.lock_queue" Count Gauge ["target" "op"] "Operations waiting for a lock or a ticket (globalLock.currentQueue)";
    MONGO_CLIENTS "mongo.active_clients" Count Gauge ["target" "op"] "Operations at work, or waiting within the engine (globalLock.activeClients)";
    MONGO_TICKETS_OUT "mongo.tickets.out" Count Gauge ["target" "op"] "Tickets into the engine in use (wiredTiger.concurrentTransactions, queues.execution since 8.0)";
    MONGO_TICKETS_FREE "mongo.tickets.available" Count Gauge ["target" "op"] "Tickets that are free";
    MONGO_TICKETS_TOTAL "mongo.tickets.total" Count Gauge ["target" "op"] "Tickets there are; since 7.0 the server changes them as it goes";
    MONGO_TICKETS_QUEUED "mongo.tickets.queued" Count Gauge ["target" "op"] "Operations that wait for a ticket (7.0+)";
    MONGO_TICKETS_QUEUED_US "mongo.tickets.queued_us" Microseconds Counter ["target" "op"] "Time operations waited for a ticket (7.0+)";
    MONGO_PAGE_FAULTS "mongo.page_faults" Count Counter ["target"] "Page faults that needed the disk (extra_info.page_faults)";
    MONGO_RESIDENT "mongo.resident_bytes" Bytes Gauge ["target"] "Resident memory (mem.resident)";
    MONGO_WRITE_CONFLICTS "mongo.write_conflicts" Count Counter ["target"] "Write conflicts (metrics.operation.writeConflicts)";
    MONGO_CONCERN_WAITS "mongo.write_concern.waits" Count Counter ["target"] "Waits for a write concern of more than one member (metrics.getLastError.wtime.num)";
    MONGO_CONCERN_MS "mongo.write_concern.wait_ms" Milliseconds Counter ["target"] "Time of those waits (metrics.getLastError.wtime.totalMillis)";
    MONGO_SLOW_OPS "mongo.slow_ops" Count Counter ["target"] "Slow operations written to the server's log since it was first read";
    MONGO_SLOW_MS "mongo.slow_ops_ms" Milliseconds Counter ["target"] "Time of those operations";
    MONGO_PROBE_RESPONSE "mongo.probe.response_us" Microseconds Gauge ["target"] "How long the server took to answer serverStatus";

    // MongoDB: flow control (4.2+).
    MONGO_FLOW_LAGGED "mongo.flow_control.lagged" Flag Gauge ["target"] "Whether flow control holds writers now (flowControl.isLagged)";
    MONGO_FLOW_LAGGED_US "mongo.flow_control.lagged_us" Microseconds Counter ["target"] "Time in which it did (flowControl.isLaggedTimeMicros)";
    MONGO_FLOW_WAIT_US "mongo.flow_control.acquiring_us" Microseconds Counter ["target"] "Time writers waited for its tickets (flowControl.timeAcquiringMicros)";
    MONGO_FLOW_LIMIT "mongo.flow_control.limit" Count Gauge ["target"] "Write tickets it hands out a second (flowControl.targetRateLimit)";
    MONGO_FLOW_SUSTAINER "mongo.flow_control.sustainer" Count Gauge ["target"] "Operations a second of the member that sustains the commit point (flowControl.sustainerRate)";

    // MongoDB: the replica set as one member sees it. `member` is its host, or its number in diagnostic.data, which has no texts.
    MONGO_STATE "mongo.repl.state" Count Gauge ["target"] "State of this member: 1 primary, 2 secondary, 3 recovering (replSetGetStatus.myState)";
    MONGO_COMMITTED "mongo.repl.committed_s" Seconds Counter ["target"] "Optime that a majority has, in seconds since 1970 (optimes.lastCommittedOpTime)";
    MONGO_MEMBER_STATE "mongo.member.state" Count Gauge ["target" "member"] "State of a member, as numbers of mongo.repl.state";
    MONGO_MEMBER_HEALTH "mongo.member.healthy" Flag Gauge ["target" "member"] "Whether the member answers";
    MONGO_MEMBER_OPTIME "mongo.member.optime_s" Seconds Counter ["target" "member"] "Optime the member has applied, in seconds since 1970";
    MONGO_MEMBER_SELF "mongo.member.self" Flag Gauge ["target" "member"] "Whether it is the member that says so";
    MONGO_OPLOG "mongo.oplog.used_bytes" Bytes Gauge ["target"] "Size of the oplog's documents (local.oplog.rs size)";
    MONGO_OPLOG_MAX "mongo.oplog.max_bytes" Bytes Gauge ["target"] "Size it may come to";
    MONGO_OPLOG_FIRST "mongo.oplog.first_s" Seconds Counter ["target"] "Time of its oldest entry, in seconds since 1970 (serverStatus.oplog.earliestOptime)";
    MONGO_OPLOG_LAST "mongo.oplog.last_s" Seconds Counter ["target"] "Time of its newest entry, in seconds since 1970 (serverStatus.oplog.latestOptime)";

    // WiredTiger's cache: what stands in it, and who takes it out (serverStatus.wiredTiger, or the engine's own statistics).
    WT_CACHE_USED "wt.cache.used_bytes" Bytes Gauge ["target"] "bytes currently in the cache";
    WT_CACHE_DIRTY "wt.cache.dirty_bytes" Bytes Gauge ["target"] "tracked dirty bytes in the cache";
    WT_CACHE_UPDATES "wt.cache.updates_bytes" Bytes Gauge ["target"] "bytes allocated for updates (4.4+)";
    WT_CACHE_MAX "wt.cache.max_bytes" Bytes Gauge ["target"] "maximum bytes configured";
    WT_CACHE_READ "wt.cache.read_bytes" Bytes Counter ["target"] "bytes read into cache";
    WT_CACHE_WRITTEN "wt.cache.written_bytes" Bytes Counter ["target"] "bytes written from cache";
    WT_BLOCK_WRITTEN "wt.block.written_bytes" Bytes Counter ["target"] "bytes written into the data files, as they are on disk";
    WT_APP_EVICT_US "wt.app.evicting_us" Microseconds Counter ["target"] "application thread time evicting";
    WT_APP_WAIT_US "wt.app.waiting_us" Microseconds Counter ["target"] "application thread time waiting for cache; time evicting is part of it";
    WT_APP_PAGE_US "wt.app.page_waiting_us" Microseconds Counter ["target"] "page acquire time sleeping: application threads wait for a page that another thread evicts, reads or splits";
    WT_APP_EVICTED "wt.app.evicted_pages" Count Counter ["target"] "Pages evicted by application threads; since 8.1 attempts";
    WT_APP_WRITES "wt.app.page_writes" Count Counter ["target"] "application threads page write from cache to disk count";
    WT_APP_WRITE_US "wt.app.page_write_us" Microseconds Counter ["target"] "application threads page write from cache to disk time";
    WT_APP_READS "wt.app.page_reads" Count Counter ["target"] "application threads page read from disk to cache count";
    WT_APP_READ_US "wt.app.page_read_us" Microseconds Counter ["target"] "application threads page read from disk to cache time";
    WT_EVICTED_DIRTY "wt.evict.dirty_pages" Count Counter ["target"] "modified pages evicted";
    WT_EVICTED_CLEAN "wt.evict.clean_pages" Count Counter ["target"] "unmodified pages evicted";
    WT_EVICT_WORKERS "wt.evict.workers" Count Gauge ["target"] "eviction worker threads active";
    WT_EVICT_MISSED "wt.evict.goals_missed" Count Counter ["target"] "eviction server unable to reach eviction goal";

    // WiredTiger's checkpoints, journal, history and files.
    WT_CHECKPOINT_RUNNING "wt.checkpoint.running" Flag Gauge ["target"] "Whether a checkpoint runs now (since 8.0 its progress state is not 0)";
    WT_CHECKPOINT_MS "wt.checkpoint.last_ms" Milliseconds Gauge ["target"] "Duration of the last checkpoint";
    WT_CHECKPOINT_FSYNC_US "wt.checkpoint.fsync_us" Microseconds Gauge ["target"] "fsync duration of the last checkpoint after it took its transaction";
    WT_CHECKPOINTS "wt.checkpoint.count" Count Counter ["target"] "Checkpoints (up to 7.0)";
    WT_CHECKPOINT_LOCK_US "wt.checkpoint.lock_wait_us" Microseconds Counter ["target"] "checkpoint lock application thread wait time";
    WT_PINNED "wt.history.pinned_s" Seconds Gauge ["target"] "range of timestamps currently pinned, as seconds (timestamp ÷ 2³²)";
    WT_PINNED_OLDEST "wt.history.pinned_by_oldest_s" Seconds Gauge ["target"] "range of timestamps pinned by the oldest timestamp, as seconds";
    WT_PINNED_IDS "wt.history.pinned_ids" Count Gauge ["target"] "range of transaction IDs currently pinned";
    WT_HISTORY_CACHE "wt.history.cache_bytes" Bytes Gauge ["target"] "Bytes of the history store (before 4.4 the overflow table) in the cache";
    WT_HISTORY_DISK "wt.history.disk_bytes" Bytes Gauge ["target"] "History store table on-disk size (4.4+)";
    WT_HISTORY_INSERTS "wt.history.inserts" Count Counter ["target"] "History store (before 4.4 overflow table) insert calls";
    WT_LOG_SYNCS "wt.log.syncs" Count Counter ["target"] "log sync operations";
    WT_LOG_SYNC_US "wt.log.sync_us" Microseconds Counter ["target"] "log sync time duration";
    WT_LOG_BYTES "wt.log.written_bytes" Bytes Counter ["target"] "log bytes written";
    WT_FSYNCS "wt.fsyncs" Count Counter ["target"] "total fsync I/Os";
    WT_WRITES "wt.writes" Count Counter ["target"] "total write I/Os";

    // The lab's own load, as its clients see it.
    LOAD_COMPLETED "load.transactions" Count Counter [] "Transactions completed";
    LOAD_FAILED "load.failures" Count Counter [] "Transactions that failed";
    LOAD_LATENCY_US "load.latency_us_total" Microseconds Counter [] "Sum of latencies from the intended start";
    LOAD_SERVICE_US "load.service_us_total" Microseconds Counter [] "Sum of latencies from the actual start";
    LOAD_COMMIT_US "load.commit_us_total" Microseconds Counter [] "Time that clients spent in the commits of completed transactions alone";
    LOAD_ROWS "load.rows" Count Counter [] "Rows whose statement was answered";
    LOAD_WAITING "load.waiting" Count Gauge [] "Transactions begun and not yet answered";

    // What holds work back: a proxy's own counts.
    FLOW_RATE "flow.rate_bytes_per_s" BytesPerSecond Gauge [] "What all low-priority sessions together may send (low_priority_bandwidth, or what was found for 'auto')";
    FLOW_QUEUEING "flow.queueing_us" Microseconds Gauge [] "Queueing delay on the way to clients from which that rate was last found ('auto' only)";
    FLOW_HELD "flow.held" Count Gauge [] "Sessions that are held, of all pools and by name";
    FLOW_WAITING "flow.waiting" Count Gauge [] "Low-priority sessions that wait for some of that rate";
    FLOW_POOL_RATE "flow.pool.rate_bytes_per_s" BytesPerSecond Gauge ["pool"] "What the pool's own bandwidth allows its low-priority sessions";
    FLOW_POOL_SESSIONS "flow.pool.sessions" Count Gauge ["pool"] "Sessions of the pool";
    FLOW_POOL_HELD "flow.pool.held" Count Gauge ["pool"] "Sessions of the pool that are held to the low class's rate, because the pool is low or a rule demoted them";
    FLOW_POOL_RUNNING "flow.pool.running" Count Gauge ["pool"] "Statements of the pool that run";
    FLOW_POOL_WAITING "flow.pool.waiting" Count Gauge ["pool"] "Statements of the pool that wait for their turn (max_active)";
    FLOW_POOL_SENT "flow.pool.sent_bytes" Bytes Counter ["pool"] "Sent to the pool's clients";

    // The recorder itself.
    SELF_CPU "recorder.cpu_s" Seconds Counter [] "Processor time of the recorder";
    SELF_MEMORY "recorder.memory_bytes" Bytes Gauge [] "Resident memory of the recorder";
    SELF_MISSED "recorder.missed_ticks" Count Counter ["probe"] "Ticks at which a probe was late and took no reading";
    SELF_DROPPED "recorder.dropped_batches" Count Counter [] "Batches dropped because the recorder could not keep up";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let mut names: Vec<_> = ALL.iter().map(|def| def.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for def in ALL.iter().filter(|def| def.unit == Unit::Bytes) {
            assert!(def.name.ends_with("_bytes"), "{}", def.name);
        }
        for def in ALL.iter().filter(|def| def.unit == Unit::BytesPerSecond) {
            assert!(def.name.ends_with("_per_s"), "{}", def.name);
        }
    }
}
