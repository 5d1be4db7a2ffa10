//! What a commit costs and who waits on it: commit waits of every flavour as one queue (`pg.commit`), the fitted cost of a
//! commit and of a row, and the smallest batch that is nearly as fast as the best.

mod accounts;
mod ages;
mod cost;
mod dice;
mod flavour;
mod jobs;
mod knee;
mod queue;
mod tally;

pub use accounts::{OnProcessors, computed_share, on_processors};
pub use cost::{BatchRun, CommitCost, LeftOut, fit, leave_one_out};
pub use flavour::{StandbyLevel, flavour_label};
pub use knee::{Knee, WITHIN, knee};
pub use queue::{CommitQueue, CommitRate, Counting, FlavourShare, commit_queue, commit_queue_of, look_times, looks};
pub use tally::{
    Group, GroupBy, OnWhat, Slice, Tally, contested, contested_share, is_active, on_what, over_time, tally, wait_name,
};

pub use crate::remedy::commit::{Turns, turns};

pub(crate) use accounts::sleep_ratio;
pub(crate) use jobs::{Job, Kind as JobKind, jobs};
pub(crate) use queue::commit_rate;
