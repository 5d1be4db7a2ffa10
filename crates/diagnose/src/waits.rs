//! What active sessions waited on: the server's own wait beside the kernel's, second by second.

use crate::grid::{Grid, Lane};
use backwater_model::{Sample, Window};
use std::ops::Range;

/// One session's wait as far as a storage rule is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Held by the kernel's dirty limit itself (`balance_dirty_pages`).
    Paused,
    /// Queued, in the middle of a buffered write, behind a session that is held (the file's lock, a page under
    /// writeback, the journal).
    Queued,
    /// In a write of the server, the kernel's part unseen.
    Writing,
    /// Waiting for storage otherwise: reads, syncs.
    Storage,
    /// Not waiting for storage.
    Other,
}

/// Whether a sample is a client's session at work.
pub(crate) fn foreground(sample: &Sample) -> bool {
    let client = sample.backend_type.as_deref().is_none_or(|kind| kind == "client backend");
    client && sample.state.as_deref().is_none_or(|state| state == "active" || state.starts_with("fastpath"))
}

/// Lower case without underscores and the word `Lock` at the end, so that names compare across releases.
fn plain(name: &str) -> String {
    let name: String = name.chars().filter(|c| *c != '_').collect::<String>().to_ascii_lowercase();
    name.strip_suffix("lock").map(str::to_owned).unwrap_or(name)
}

/// What one session waits on.
pub(crate) fn classify(sample: &Sample) -> Wait {
    let server = sample.wait_event.as_deref().map(plain).unwrap_or_default();
    let io = sample.wait_event_type.as_deref() == Some("IO");
    let reading = io && server.contains("read");
    let stuck = sample.kernel_state.is_none_or(|state| state == 'D');
    match sample.kernel_wait.as_deref() {
        Some(function) if function.starts_with("balance_dirty_pages") => Wait::Paused,
        Some(function) if stuck && !reading && queued_in_write(function, &server, io) => Wait::Queued,
        Some(_) if sample.kernel_state == Some('D') || io => Wait::Storage,
        Some(_) => Wait::Other,
        None if io && matches!(server.as_str(), "datafilewrite" | "datafileextend" | "datafileflush") => Wait::Writing,
        None if io || sample.kernel_state == Some('D') => Wait::Storage,
        None => Wait::Other,
    }
}

/// Whether a session waits for WAL to be written, flushed or made room for.
pub(crate) fn on_wal(sample: &Sample) -> bool {
    let server = sample.wait_event.as_deref().map(plain).unwrap_or_default();
    let kind = sample.wait_event_type.as_deref();
    // Not those of replication, which are IPC and Activity.
    matches!(kind, Some("IO" | "LWLock")) && server.starts_with("wal") && !server.starts_with("walsender")
}

/// Functions in which sessions stand behind one that is held: the inode's lock in the file system's buffered write,
/// a page that is being written, a transaction of the journal that cannot end.
fn queued_in_write(function: &str, server: &str, io: bool) -> bool {
    if function.contains("buffered_write") || function.contains("file_write_iter") {
        return true;
    }
    let journal = ["wait_transaction_locked", "add_transaction_credits", "start_this_handle", "xlog_grant_head"];
    let page = function.starts_with("folio_wait") || function.starts_with("wait_on_page");
    // A page wait outside a data-file read is a wait for writeback; for a session that the server says is not in
    // I/O at all it may be a page fault, which is no part of this.
    journal.iter().any(|name| function.starts_with(name)) || (page && io && !server.contains("sync"))
}

/// Shares of the active sessions, second by second.
pub(crate) struct Waits {
    /// Active client sessions seen, a second, all looks together.
    pub(crate) active: Lane,
    /// Share held or queued by the dirty limit: kernel waits, or the server's write waits where those are unseen.
    pub(crate) throttled: Lane,
    /// Share seen in the kernel's pause itself.
    pub(crate) paused: Lane,
    /// Share that waits on storage in any way.
    pub(crate) storage: Lane,
    /// Whether kernel waits could be seen.
    pub(crate) kernel_seen: bool,
}

/// Waits of the sessions of these targets (all, where none is named).
pub(crate) fn lanes(window: &Window, grid: &Grid, targets: &[String]) -> Waits {
    let mut counts = vec![Counted::default(); grid.count];
    let mut kernel_seen = false;
    for sample in window.samples().iter().filter(|sample| is_ours(sample, targets)) {
        let Some(count) = grid.second(sample.at).and_then(|second| counts.get_mut(second)) else { continue };
        // The state alone is readable by everybody; the function is not.
        kernel_seen |= sample.kernel_wait.is_some();
        let wait = classify(sample);
        count.all += 1;
        count.throttled += u32::from(matches!(wait, Wait::Paused | Wait::Queued | Wait::Writing));
        count.paused += u32::from(wait == Wait::Paused);
        count.storage += u32::from(wait != Wait::Other);
    }
    let lane =
        |value: fn(&Counted) -> f64| Lane(counts.iter().map(|count| (count.all > 0).then(|| value(count))).collect());
    Waits {
        active: lane(|count| f64::from(count.all)),
        throttled: lane(|count| f64::from(count.throttled) / f64::from(count.all)),
        paused: lane(|count| f64::from(count.paused) / f64::from(count.all)),
        storage: lane(|count| f64::from(count.storage) / f64::from(count.all)),
        kernel_seen,
    }
}

/// Samples of one second.
#[derive(Clone, Copy, Default)]
struct Counted {
    all: u32,
    throttled: u32,
    paused: u32,
    storage: u32,
}

/// Whether a sample is a client's session at work on one of these targets (on any, where none is named).
fn is_ours(sample: &Sample, targets: &[String]) -> bool {
    (targets.is_empty() || targets.iter().any(|name| **name == *sample.target)) && foreground(sample)
}

/// Share of the active client samples in a range of seconds for which the test holds; none where there are none.
pub(crate) fn share(
    window: &Window,
    grid: &Grid,
    targets: &[String],
    range: &Range<usize>,
    test: impl Fn(&Sample) -> bool,
) -> Option<f64> {
    let (from, to) = grid.span(range);
    let samples = window.samples();
    let first = samples.partition_point(|sample| sample.at < from);
    let last = samples.partition_point(|sample| sample.at < to).max(first);
    let within = samples[first..last].iter().filter(|sample| is_ours(sample, targets));
    let (all, those) = within.fold((0_u32, 0_u32), |(all, those), sample| (all + 1, those + u32::from(test(sample))));
    (all > 0).then(|| f64::from(those) / f64::from(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kernel: Option<&str>, state: char, server: Option<(&str, &str)>) -> Sample {
        Sample {
            kernel_wait: kernel.map(Into::into),
            kernel_state: Some(state),
            wait_event_type: server.map(|(kind, _)| kind.into()),
            wait_event: server.map(|(_, event)| event.into()),
            ..Sample::default()
        }
    }

    #[test]
    fn waits_are_told_apart() {
        let write = Some(("IO", "DataFileWrite"));
        let cases = [
            (sample(Some("balance_dirty_pages"), 'D', write), Wait::Paused),
            (sample(Some("balance_dirty_pages_ratelimited_flags"), 'S', None), Wait::Paused),
            (sample(Some("ext4_buffered_write_iter"), 'D', write), Wait::Queued),
            (sample(Some("xfs_file_buffered_write"), 'D', Some(("IO", "DataFileExtend"))), Wait::Queued),
            (sample(Some("ext4_buffered_write_iter"), 'R', write), Wait::Storage),
            (sample(Some("folio_wait_bit_common"), 'D', write), Wait::Queued),
            (sample(Some("folio_wait_bit_common"), 'D', Some(("IO", "DataFileRead"))), Wait::Storage),
            (sample(Some("folio_wait_bit_common"), 'D', None), Wait::Storage),
            (sample(Some("jbd2_log_wait_commit"), 'D', Some(("IO", "WALSync"))), Wait::Storage),
            (sample(Some("futex_do_wait"), 'S', Some(("LWLock", "WALWrite"))), Wait::Other),
            (sample(Some("do_epoll_wait"), 'S', Some(("Client", "ClientRead"))), Wait::Other),
            (sample(None, 'R', None), Wait::Other),
        ];
        for (sample, wait) in cases {
            assert_eq!(classify(&sample), wait, "{sample:?}");
        }
        let blind = Sample {
            wait_event_type: Some("IO".into()),
            wait_event: Some("DataFileWrite".into()),
            ..Sample::default()
        };
        assert_eq!(classify(&blind), Wait::Writing);
    }

    #[test]
    fn only_clients_at_work_count() {
        let of = |kind: &str, state: &str| Sample {
            backend_type: Some(kind.into()),
            state: Some(state.into()),
            ..Sample::default()
        };
        assert!(foreground(&of("client backend", "active")));
        assert!(!foreground(&of("client backend", "idle in transaction")));
        assert!(!foreground(&of("checkpointer", "active")));
    }
}
