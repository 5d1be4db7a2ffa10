//! What the probe says besides readings: that the server is another than before, that settings changed, that a reading
//! works again, that something cannot be seen here.

use super::identity::Identity;
use super::settings;
use super::target::Facts;
use crate::{Sink, rights};
use backwater_model::{Event, EventKind};
use std::collections::BTreeMap;

const ON_THE_HOST: &str = "run backwater on the server's host";

/// Says, where it is so, that this is another life of the server than before.
pub(super) fn change(
    target: &str,
    before: &Identity,
    after: &Identity,
    postmaster_pid: Option<i32>,
    sink: &mut Sink<'_>,
) {
    let Some(change) = after.change_since(before) else { return };
    let pid = postmaster_pid.map(|pid| pid.to_string());
    let mut fields = vec![
        ("change", change),
        ("started_before_unix_s", before.started.as_str()),
        ("started_after_unix_s", after.started.as_str()),
    ];
    // Whoever follows the server's processes must follow the new ones.
    fields.extend(pid.as_deref().map(|pid| ("postmaster_pid", pid)));
    sink.event(Event::new(sink.at, target, EventKind::Restart, format!("{target}: {change}"), &fields));
}

/// Says which settings have another value than before.
pub(super) fn settings(
    target: &str,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    sink: &mut Sink<'_>,
) {
    for (name, before, after) in settings::changes(before, after) {
        let message = format!("{name}: '{before}' → '{after}'");
        let fields = [("name", name), ("before", before), ("after", after)];
        sink.event(Event::new(sink.at, target, EventKind::Setting, message, &fields));
    }
}

/// How a failure is over where the reading works again.
pub(super) const READ_AGAIN: &str = "is read again";
/// The same where it is not asked any more: the server has none of it.
pub(super) const NOTHING_THERE: &str = "is not asked any more: nothing is to be read there now";
/// The same where the server says that it will never tell it: why is told beside it.
pub(super) const DENIED: &str = "is not asked any more: the server denies it";

/// Says that one reading fails no more that had failed while the others went on, and how.
pub(super) fn fails_no_more(target: &str, probe: &str, what: &str, how: &str, sink: &mut Sink<'_>) {
    let probe = format!("{probe} {what}");
    let fields = [("probe", probe.as_str()), ("ended", "true")];
    sink.event(Event::new(sink.at, target, EventKind::Gap, format!("{probe} {how}"), &fields));
}

/// Says what this role, server or place keeps from being seen.
pub(super) fn absences(target: &str, facts: &Facts, identity: &Identity, sink: &mut Sink<'_>) {
    let privileges = &facts.privileges;
    let grant = privileges.grant();
    let role = format!("role {} is no member of pg_monitor", privileges.role);
    if !privileges.all_stats {
        sink.absent(target, "sessions of other roles", &role, Some(&grant));
        sink.absent(target, "standbys", &role, Some(&grant));
        sink.absent(target, "processes that carry WAL and pages", &role, Some(&grant));
        if identity.in_recovery {
            sink.absent(target, "the standby's receiver of WAL", &role, Some(&grant));
        }
    }
    if !privileges.all_settings {
        sink.absent(target, "settings for superusers", &role, Some(&grant));
    }
    if facts.local.is_none() {
        let why = "the server's processes are not among those of this host";
        sink.absent(target, "kernel waits, processes and devices", why, Some(ON_THE_HOST));
    }
    if identity.system.is_none() {
        sink.absent(target, "system identifier and timeline", "pg_control_system() is not allowed", None);
    }
    for (name, what) in [
        ("track_activities", "what sessions do"),
        ("track_io_timing", "times of reads and writes"),
        ("track_wal_io_timing", "times of writes and syncs of WAL"),
    ] {
        if facts.target.settings.get(name).is_some_and(|value| value == "off") {
            let remedy = format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()");
            sink.absent(target, what, &format!("{name} is off"), Some(&remedy));
        }
    }
}

/// Since this major, members of pg_monitor may call pg_current_logfile(); before it, nobody may unless told so.
const MONITORS_ASK_FOR_LOG: i32 = 17;

/// What would let the log be read, by why it cannot be.
pub(super) fn log_remedy(why: &str, facts: &Facts) -> Option<String> {
    let privileges = &facts.privileges;
    let major = facts.target.version_num.unwrap_or_default() / 10_000;
    Some(if why.contains("another host") {
        ON_THE_HOST.to_owned()
    } else if why.contains("pg_current_logfile") {
        // The name of the file is all that is asked for: no more than that function is granted.
        if major >= MONITORS_ASK_FOR_LOG && !privileges.monitor {
            privileges.grant()
        } else {
            privileges.grant_execute("pg_current_logfile()")
        }
    } else if why.contains("data directory is not known") {
        privileges.grant()
    } else if why.contains("logging_collector is off") || why.contains("was deleted") {
        "ALTER SYSTEM SET logging_collector = on; then restart the server".to_owned()
    } else {
        rights::remedy("run as root or as the server's own user").to_owned()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Batch, Moment, Registry};
    use std::collections::HashSet;

    #[test]
    fn what_was_not_asked_is_not_said_to_be_read() {
        let told = |how: &str| {
            let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
            let mut sink = Sink::new(Moment(0), &registry, &mut batch, &mut absences);
            fails_no_more("a", "postgres.a", "pg_stat_replication", how, &mut sink);
            batch.events.pop().unwrap()
        };
        assert_eq!(told(READ_AGAIN).message, "postgres.a pg_stat_replication is read again");
        let empty = told(NOTHING_THERE);
        assert!(empty.message.ends_with("nothing is to be read there now"), "{}", empty.message);
        assert_eq!(empty.fields["ended"], "true", "for rules it is over all the same");
    }
}
