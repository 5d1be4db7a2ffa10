//! Putting changes back: one file a kind of change. Each is idempotent, and harmless for a change never made.

mod bursts;
mod cgroup;
mod loop_device;
pub(crate) mod mount;
mod netns;
mod pacing;
mod path;
pub(crate) mod process;
mod value;

use crate::{Change, Left};
use backwater_socket::Holders;
use std::path::Path;

/// Why a change cannot be put back, for a person.
pub(crate) type Why = String;

/// Puts one change back. `Ok` also when there is nothing to put back. `holders` are the same for all that are put back in one go.
pub(crate) fn put_back(change: &Change, state_dir: &Path, holders: &mut Holders) -> Result<(), Box<Left>> {
    let done = match change {
        Change::FileValue { path, before } => value::file(path, before),
        Change::BlkioRule { file, dev, before } => value::blkio_rule(file, dev, *before),
        Change::IoMax { cgroup, dev, before } => value::io_max(cgroup, dev, before.as_deref()),
        Change::CgroupDir { path } => cgroup::remove(path),
        Change::Mount { target, source, shared } => mount::unmount_ours(target, source, shared.as_deref(), state_dir),
        Change::Loop { dev_path, backing } => loop_device::detach(dev_path, backing),
        Change::Directory { path } => path::remove_directory(path, state_dir),
        Change::File { path } => path::remove_file(path, state_dir),
        Change::Process { pid, start_time, stop, .. } => process::end(*pid, *start_time, *stop),
        Change::Spawn { marker, stop, .. } => process::end_marked(marker, *stop),
        Change::Netns { name } => netns::remove(name),
        Change::SocketPacing { socket, before_bytes_per_s, before_congestion } => {
            let before = pacing::Before { bps: *before_bytes_per_s, congestion: before_congestion.as_deref() };
            pacing::restore(socket, before, holders)
        }
        Change::SmallBursts { namespace, before } => bursts::restore(namespace, *before),
    };
    done.map_err(|why| Box::new(Left { change: change.clone(), why, command: change.command() }))
}
