//! For the fuzzer: a server's memory of any bytes, in which only the recorder's own session is what it has to be: idle, and
//! waiting for its client.

use super::layout::segment_bytes;
use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;

const SLOTS: usize = 4;
const APPLICATION_BYTES: usize = 64;
const TEXT_BYTES: usize = 1_024;

/// Looks at it twice. The first byte is the server's major version.
pub(in crate::postgres) fn exercise(bytes: &[u8]) {
    let Some((major, bytes)) = bytes.split_first() else { return };
    let Some(layout) = Layout::of(i32::from(*major)) else { return };
    let _ = (layout.procs(bytes), segment_bytes(bytes));
    let _ = text_in(bytes);
    let mut memory = memory(bytes, layout);
    let mut running = Running::default();
    memory.before_answer(true);
    memory.after_answer();
    memory.learn("fuzz", &Look::default(), true, &mut running);
    for at in [9_000, 10_000] {
        let Some(look) = memory.look(&mut running, ServerTime::of(at)) else { continue };
        // Its own session tells of nothing.
        assert!(look.sessions.len() < SLOTS);
    }
}

/// The fuzzer cannot read on where it cannot have a file in memory.
#[allow(clippy::expect_used)]
fn memory(bytes: &[u8], layout: Layout) -> Memory {
    let procs = SLOTS * (layout.status_bytes + APPLICATION_BYTES + TEXT_BYTES);
    let mut all = vec![0; procs + SLOTS * layout.proc_bytes];
    let length = bytes.len().min(all.len());
    all[..length].copy_from_slice(&bytes[..length]);
    let pid = std::process::id().cast_signed();
    all[..4].fill(0);
    all[4..8].copy_from_slice(&pid.to_le_bytes());
    all[16..24].copy_from_slice(&i64::from(pid).to_le_bytes());
    all[232..236].copy_from_slice(&(1 + u32::from(layout.has_starting)).to_le_bytes());
    all[procs + layout.proc_pid_at..][..4].copy_from_slice(&pid.to_le_bytes());
    all[procs + layout.proc_wait_at..][..4].copy_from_slice(&0x0600_0000_u32.to_le_bytes());
    let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).map(File::from).expect("a file");
    file.write_all_at(&all, 0).expect("it is in memory");
    let segment = Segment::map(&file, all.len(), 4_096).expect("a file that is mapped");
    let own = Own::of(pid, Some(pid.into())).expect("this process");
    Memory::new(segment, Places::one_by_one(layout, SLOTS), own, 3)
}
