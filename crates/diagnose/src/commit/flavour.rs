//! The flavours of waiting for a commit in words, and how far a synchronous standby must have come. The flavours themselves,
//! whatever the release or the fork calls them, are the model's ([`CommitWait`]).

use backwater_model::{CommitWait, Target};
use serde::Serialize;

/// A flavour in words: what the commit waits for.
pub fn flavour_label(wait: CommitWait) -> &'static str {
    match wait {
        CommitWait::WalWrite => "writing WAL",
        CommitWait::WalSync => "syncing WAL",
        CommitWait::GroupCommit => "another session's write and sync (group commit)",
        CommitWait::SynchronousStandby => "a synchronous standby's answer",
        CommitWait::RemoteStorage => "the storage fleet's answer",
        CommitWait::CommitDelay => "commit_delay",
    }
}

/// How far a synchronous standby must have come before a commit is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StandbyLevel {
    /// It has written the WAL to its kernel (`remote_write`).
    Written,
    /// It has flushed it to disk (`on`).
    Flushed,
    /// It has replayed it (`remote_apply`).
    Applied,
}

impl StandbyLevel {
    /// The level by the server's settings, which a session may have changed for itself; none where commits do not wait for
    /// a standby, or the settings were not read.
    pub fn of(target: &Target) -> Option<StandbyLevel> {
        let names = target.settings.get("synchronous_standby_names").map(|names| names.trim());
        if names.is_some_and(str::is_empty) {
            return None;
        }
        match target.settings.get("synchronous_commit")?.as_str() {
            "remote_write" => Some(StandbyLevel::Written),
            "on" | "true" | "yes" | "1" => Some(StandbyLevel::Flushed),
            "remote_apply" => Some(StandbyLevel::Applied),
            _ => None,
        }
    }

    /// The level in words, for what a commit waits for.
    pub fn label(self) -> &'static str {
        match self {
            StandbyLevel::Written => "the standby's write (remote_write)",
            StandbyLevel::Flushed => "the standby's flush (on)",
            StandbyLevel::Applied => "the standby's replay (remote_apply)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_a_synchronous_standby() {
        let target = |names: &str, commit: &str| Target {
            settings: [("synchronous_standby_names", names), ("synchronous_commit", commit)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Target::default()
        };
        assert_eq!(StandbyLevel::of(&target("*", "on")), Some(StandbyLevel::Flushed));
        assert_eq!(StandbyLevel::of(&target("s1", "remote_apply")), Some(StandbyLevel::Applied));
        assert_eq!(StandbyLevel::of(&target("s1", "remote_write")), Some(StandbyLevel::Written));
        assert_eq!(StandbyLevel::of(&target("s1", "local")), None);
        assert_eq!(StandbyLevel::of(&target("", "on")), None);
    }
}
