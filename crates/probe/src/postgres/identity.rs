//! Which server this is, in which of its lives, and what this role may see there.

use super::link::{Link, QueryError};
use backwater_model::Epoch;

/// One life of one server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Identity {
    /// system_identifier; none where pg_control_system() is not allowed.
    pub(super) system: Option<String>,
    /// Timeline: of the write position on a primary; on a standby of what was received, or of the last checkpoint.
    pub(super) timeline: Option<i64>,
    /// pg_postmaster_start_time, seconds since 1970, as the server spells it.
    pub(super) started: String,
    /// Whether it is a standby.
    pub(super) in_recovery: bool,
}

const BASIC: &str = "SELECT date_part('epoch', pg_postmaster_start_time())::text, pg_is_in_recovery()";
/// The write position's segment name begins with the timeline; the control file knows it only from the next checkpoint
/// on, and on a standby the receiver knows it earlier.
const CONTROL: &str = "SELECT s.system_identifier::text, \
     CASE WHEN pg_is_in_recovery() THEN greatest(c.timeline_id, r.received_tli)::text \
     ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int8::text END \
     FROM pg_control_system() s, pg_control_checkpoint() c LEFT JOIN pg_stat_wal_receiver r ON true";

/// What may change while a connection lasts, without the control file: to read that is to wait, and nothing ends the wait,
/// for whoever writes it and syncs it (ControlFileLock in xlog.c), seconds on a capped device. A standby writes it all the time.
const PRESENT: &str = "SELECT pg_is_in_recovery(), CASE WHEN NOT pg_is_in_recovery() \
     THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int8::text \
     ELSE (SELECT received_tli::text FROM pg_stat_wal_receiver) END, \
     date_part('epoch', pg_postmaster_start_time())::text";

impl Identity {
    /// Asks only for what may have changed since: which server it is cannot on one connection to a server itself. (A pooler
    /// may hand on to another one, which was started at another time.)
    pub(super) async fn present(&self, link: &Link) -> Result<Self, QueryError> {
        if self.system.is_none() {
            return Identity::read(link).await;
        }
        let row = link.one("timeline", PRESENT).await?;
        let timeline = row.get::<_, Option<&str>>(1).and_then(|text| text.parse().ok());
        let (in_recovery, started): (bool, String) = (row.get(0), row.get(2));
        if started != self.started || (in_recovery && !self.in_recovery) {
            return Identity::read(link).await;
        }
        // A standby without a receiver stays on the timeline that was known.
        let timeline = if in_recovery { timeline.max(self.timeline) } else { timeline };
        Ok(Identity { timeline, in_recovery, ..self.clone() })
    }

    /// Whether WAL is received from another server, and the timeline of that can be seen.
    pub(super) async fn has_receiver(link: &Link) -> Result<bool, QueryError> {
        let sql = "SELECT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE received_tli IS NOT NULL)";
        Ok(link.one("receiver", sql).await?.get(0))
    }

    pub(super) async fn read(link: &Link) -> Result<Self, QueryError> {
        let row = link.one("server identity", BASIC).await?;
        let mut identity = Identity { system: None, timeline: None, started: row.get(0), in_recovery: row.get(1) };
        match link.one("control file", CONTROL).await {
            Ok(row) => {
                identity.system = row.get(0);
                identity.timeline = row.get::<_, Option<&str>>(1).and_then(|text| text.parse().ok());
            }
            // Some managed servers keep the control file to themselves.
            Err(QueryError::Denied(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(identity)
    }

    /// This, seen after another look of the same life: a standby's timeline never goes back, but the receiver that
    /// knew it may be gone.
    #[must_use]
    pub(super) fn after(mut self, before: &Identity) -> Self {
        let same =
            (&self.system, &self.started, self.in_recovery) == (&before.system, &before.started, before.in_recovery);
        if same && self.in_recovery && self.timeline.is_some() {
            self.timeline = self.timeline.max(before.timeline);
        }
        self
    }

    /// The epoch of this life.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch_of("", "")
    }

    /// The epoch of one view's counters, which also begin anew when they are reset.
    pub(super) fn epoch_of(&self, view: &str, reset: &str) -> Epoch {
        let timeline = self.timeline.map(|timeline| timeline.to_string()).unwrap_or_default();
        let parts = ["postgres", self.system.as_deref().unwrap_or_default(), &timeline, &self.started, view, reset];
        Epoch::of(&parts)
    }

    /// What changed since an earlier look, in words; none where it is the same life.
    pub(super) fn change_since(&self, before: &Identity) -> Option<&'static str> {
        if self.system != before.system {
            Some("another server answers at this address")
        } else if self.started != before.started {
            Some("the server was restarted")
        } else if before.in_recovery && !self.in_recovery {
            Some("the standby was promoted")
        } else if self.timeline != before.timeline {
            Some("the server follows another timeline")
        } else {
            None
        }
    }
}

/// What the role may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Privileges {
    /// current_user.
    pub(super) role: String,
    /// current_database: where privileges on functions are kept.
    pub(super) database: String,
    /// Sessions and statistics of others (pg_read_all_stats, part of pg_monitor).
    pub(super) all_stats: bool,
    /// Every setting (pg_read_all_settings, part of pg_monitor).
    pub(super) all_settings: bool,
    /// All of pg_monitor.
    pub(super) monitor: bool,
}

const PRIVILEGES: &str = "SELECT current_user::text, r.rolsuper OR pg_has_role('pg_read_all_stats', 'USAGE'), \
     r.rolsuper OR pg_has_role('pg_read_all_settings', 'USAGE'), r.rolsuper OR pg_has_role('pg_monitor', 'USAGE'), \
     current_database()::text FROM pg_roles r WHERE r.rolname = current_user";

impl Privileges {
    pub(super) async fn read(link: &mut Link) -> Result<Self, QueryError> {
        let row = link.one("privileges", PRIVILEGES).await?;
        let [all_stats, all_settings, monitor] = [1usize, 2, 3].map(|place| row.get(place));
        Ok(Privileges { role: row.get(0), database: row.get(4), all_stats, all_settings, monitor })
    }

    /// The command that gives the role everything the probe reads.
    pub(super) fn grant(&self) -> String {
        format!("GRANT pg_monitor TO {}", quoted(&self.role))
    }

    /// The command that lets the role call these functions. Each database has privileges of its own for them.
    pub(super) fn grant_execute(&self, functions: &str) -> String {
        let (role, database) = (quoted(&self.role), quoted(&self.database));
        format!("GRANT EXECUTE ON FUNCTION {functions} TO {role}; -- in the database {database}")
    }
}

/// A name as SQL takes it literally.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { system: Some("7".to_owned()), timeline: Some(1), started: "10.5".to_owned(), in_recovery: true }
    }

    #[test]
    fn every_part_makes_an_epoch() {
        let base = identity();
        let restarted = Identity { started: "11".to_owned(), ..identity() };
        let promoted = Identity { timeline: Some(2), in_recovery: false, ..identity() };
        let other = Identity { system: Some("8".to_owned()), ..identity() };
        for (changed, words) in [(&restarted, "restarted"), (&promoted, "promoted"), (&other, "another server")] {
            assert_ne!(changed.epoch(), base.epoch());
            assert!(changed.change_since(&base).is_some_and(|change| change.contains(words)));
        }
        assert_eq!(base.change_since(&identity()), None);
        // A receiver that is gone takes no timeline with it; a promotion brings its own.
        let later = Identity { timeline: Some(2), ..identity() };
        assert_eq!(identity().after(&later).timeline, Some(2));
        assert_eq!(later.clone().after(&identity()).timeline, Some(2));
        assert_eq!(Identity { in_recovery: false, ..identity() }.after(&later).timeline, Some(1));
        assert_eq!(restarted.after(&later).timeline, Some(1));
        assert_ne!(base.epoch_of("pg_stat_io", "1"), base.epoch_of("pg_stat_io", "2"));
    }
}
