//! The bounds a recorder keeps on a host that has better things to do.

use crate::RecordError;
use std::time::Duration;

/// The smallest `max_size_bytes` that leaves room for a tail and a few segments.
const SMALLEST_BUDGET_BYTES: u64 = 256 * 1024;
/// However small the budget, segments are not closed before this.
const SMALLEST_SEGMENT_BYTES: u64 = 16 * 1024;

/// How a recording is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Sync every write to the device. Without it a power cut may lose what the kernel had not written yet (usually
    /// up to 30 s); a killed recorder loses nothing but its last second either way.
    pub durable: bool,
    /// How long readings are kept; none for ever.
    pub keep: Option<Duration>,
    /// How large the whole recording may become; the oldest segments are deleted first. None for no limit.
    pub max_size_bytes: Option<u64>,
    /// Recording stops when the file system has less than this free.
    pub free_floor_bytes: u64,
    /// A segment is closed after this many seconds.
    pub segment_seconds: u64,
    /// A segment is closed when its tail has this many bytes. Closing it takes about five times as much memory: 4 MiB
    /// keep a recorder of 50 sessions near 32 MiB, and 8 MiB would save 2 % on disk.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durable: false,
            keep: None,
            max_size_bytes: None,
            free_floor_bytes: 256 << 20,
            segment_seconds: 600,
            segment_bytes: 4 << 20,
        }
    }
}

impl Options {
    /// Refuses limits that cannot be kept, and lowers the segment size where the budget asks for it: only closed
    /// segments can be deleted, so that three tails must stay small beside the budget.
    pub(crate) fn checked(mut self) -> Result<Self, RecordError> {
        if let Some(budget) = self.max_size_bytes {
            if budget < SMALLEST_BUDGET_BYTES {
                let why = format!("{budget} bytes is too small for a recording; give at least {SMALLEST_BUDGET_BYTES}");
                return Err(RecordError::BadOption { option: "max size", why });
            }
            self.segment_bytes = self.segment_bytes.min(budget / 16);
        }
        if self.keep.is_some_and(|keep| keep.is_zero()) {
            return Err(RecordError::BadOption { option: "keep", why: "must be longer than zero".to_owned() });
        }
        if let Some(keep) = self.keep {
            self.segment_seconds = self.segment_seconds.min(keep.as_secs().div_ceil(4));
        }
        self.segment_seconds = self.segment_seconds.max(1);
        self.segment_bytes = self.segment_bytes.max(SMALLEST_SEGMENT_BYTES);
        Ok(self)
    }
}
