//! What keeps WAL for a standby that is away or far behind, and what brings one back that lacks some.

use super::checkpoint::setting;
use super::replication::{command, elsewhere, of_missing};
use crate::replication::{Holder, Retention, is_logical, keep_bytes, setting_bytes, synchronous, target};
use crate::scene::Scene;
use backwater_model::{Activation, Bytes, Figure, Remedy, Target, Unit};

const MIB: f64 = 1_048_576.0;

/// An archive of WAL.
pub(crate) fn archive(settings: Option<&Target>, rate: f64) -> Remedy {
    let figures = vec![Figure::new("archive_bytes_per_s", rate, Unit::BytesPerSecond, "what the archive must take")];
    let command = "test ! -f /ARCHIVE/%f && cp %p /ARCHIVE/%f".to_owned();
    Remedy {
        activation: Activation::Restart,
        // While archive_mode is off the server shows no command, and the text of one is never recorded.
        undo: vec!["ALTER SYSTEM RESET archive_mode;".to_owned(), "ALTER SYSTEM RESET archive_command;".to_owned()],
        ..setting(
            settings,
            "Archive WAL".to_owned(),
            &[("archive_mode", "on".to_owned()), ("archive_command", command)],
            figures,
            "An archive that fails or lags keeps WAL on the primary until its disk is full: watch pg_stat_archiver.",
        )
    }
}

/// A standby that reads the archive where its primary has no more.
pub(crate) fn restore(standby: &str) -> Remedy {
    elsewhere(
        format!("Let {standby} read the archive"),
        vec!["on the standby: restore_command = 'cp /ARCHIVE/%f %p', then reload (14 and newer) or restart".to_owned()],
        "take restore_command out again",
        Vec::new(),
        "It survives any outage that the archive covers; how far that goes back is a matter of its own room.",
    )
}

/// For a standby that is away: what it will find when it comes back.
pub(crate) fn of_gone(scene: &Scene<'_>, primary: &str, name: &str, kept: Option<&Retention>) -> Vec<Remedy> {
    let (who, looks) = if is_logical(scene.window, primary, name) {
        let looks = "where it runs: tail of its log; of a subscription: SELECT * FROM pg_stat_subscription;";
        (format!("the reader of {name}"), looks)
    } else {
        (name.to_owned(), "on the standby: pg_isready; tail of its log; SELECT * FROM pg_stat_wal_receiver;")
    };
    let mut list = vec![elsewhere(
        format!("See why {who} is away: is the server up, does the network reach, what does its log say?"),
        vec![looks.to_owned()],
        "none",
        Vec::new(),
        "None.",
    )];
    let settings = target(scene.window, primary);
    list.extend(synchronous::needed(scene, primary, name).then(|| of_missing(settings.as_ref())));
    if kept.is_some_and(|kept| kept.holder == Holder::Disk) {
        list.push(room());
    } else {
        list.extend(more_kept(settings.as_ref(), None));
    }
    list
}

/// Where all is kept, and the disk is the limit.
fn room() -> Remedy {
    elsewhere(
        "Make room where WAL lies, or let go of what is kept".to_owned(),
        vec![
            "enlarge the volume; mend the archive (pg_stat_archiver); drop the slot if its reader is gone for good"
                .to_owned(),
        ],
        "none",
        Vec::new(),
        "A full disk stops the primary.",
    )
}

/// For a slot that nobody reads.
pub(crate) fn of_slot(scene: &Scene<'_>, primary: &str, slot: &str, kept: &Retention) -> Vec<Remedy> {
    let quoted = slot.replace('\'', "''");
    let (title, undo, risk) = if is_logical(scene.window, primary, slot) {
        (
            "Drop the slot, if nobody will read from it again",
            "none: what it kept is gone".to_owned(),
            "A reader that does come back must begin anew, with a new slot and a copy of its tables.",
        )
    } else {
        (
            "Drop the slot, if its standby is gone for good",
            format!(
                "SELECT pg_create_physical_replication_slot('{quoted}', true);   -- what it kept is gone all the same"
            ),
            "A standby that does come back must take its WAL from an archive, or be built anew.",
        )
    };
    let mut list = vec![command(
        title,
        vec![format!("SELECT pg_drop_replication_slot('{quoted}');   -- on {primary}")],
        vec![undo],
        vec![Figure::new("freed_bytes", kept.level_bytes, Unit::Bytes, "WAL that the next checkpoint may then remove")],
        risk,
    )];
    if kept.holder == Holder::Disk {
        let room = kept.limit_bytes.map_or(10.0 * 1024.0 * MIB, |limit| limit * 0.5);
        list.push(slot_cap(target(scene.window, primary).as_ref(), room, Vec::new()));
    }
    list
}

/// How a standby's host reaches a primary that is known by this name: `host:port`. What is local here is another host there.
fn reach(primary: &str) -> String {
    let (host, port) = match primary.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => (host, Some(port)),
        _ => (primary, None),
    };
    let local = host.is_empty() || host == "localhost" || host.starts_with("127.") || host.starts_with('/');
    let host = if local { "PRIMARY" } else { host.trim_matches(['[', ']']) };
    port.map_or_else(|| format!("-h {host}"), |port| format!("-h {host} -p {port}"))
}

/// For a standby whose WAL is gone, and with it the slot that was to keep it, where there was one.
pub(crate) fn of_removed(scene: &Scene<'_>, primary: &str, name: Option<&str>, by_slot: bool) -> Vec<Remedy> {
    let settings = target(scene.window, primary);
    let settings = settings.as_ref();
    let archives = settings.and_then(|target| target.settings.get("archive_mode")).is_some_and(|mode| mode != "off");
    let name = name.unwrap_or("the standby");
    let rebuild = elsewhere(
        format!("Build {name} anew"),
        vec![format!(
            "on the standby, stopped and with its data directory moved aside: pg_basebackup {} -D $PGDATA -R -X stream -C -S SLOT -P",
            reach(primary)
        )],
        "none: the old data directory can be kept until the new one runs",
        Vec::new(),
        "It copies everything over the network; take the copy's rate into account. The slot (-S) keeps WAL while it lasts.",
    );
    let archive = elsewhere(
        format!("Let {name} fetch what is missing from the archive"),
        vec!["on the standby: restore_command = 'cp /ARCHIVE/%f %p' (or that of the archiving tool), then reload (14 and newer) or restart".to_owned()],
        "take restore_command out again",
        Vec::new(),
        "The archive must hold every segment from the missing one on.",
    );
    let mut list = if archives { vec![archive, rebuild] } else { vec![rebuild, archive] };
    let most = setting_bytes(settings, "max_slot_wal_keep_size").filter(|_| by_slot);
    match most {
        Some(most) => list.push(slot_cap(settings, (most * 4.0).max(1024.0 * MIB), Vec::new())),
        None => list.extend(more_kept(settings, None)),
    }
    list
}

/// Ahead of time: more is kept for a standby.
pub(crate) fn of_retention(scene: &Scene<'_>, primary: &str, standby: &str, kept: &Retention) -> Vec<Remedy> {
    let settings = target(scene.window, primary);
    let settings = settings.as_ref();
    let growth = (kept.inflow_bytes_per_s - kept.outflow_bytes_per_s).max(0.0);
    // What another hour at this rate takes.
    let bytes = kept.level_bytes + growth * 3_600.0;
    let seconds = vec![Figure::new("retention_left_s", 3_600.0, Unit::Seconds, "time it then lasts, at this rate")];
    match kept.holder {
        Holder::Slot => vec![slot_cap(settings, bytes, seconds)],
        Holder::KeepSize => {
            let mut list = vec![keep(settings, bytes, seconds)];
            list.push(new_slot(standby));
            list
        }
        Holder::Disk => vec![room()],
    }
}

/// A slot that was given up because nobody read from it.
pub(crate) fn of_idle(scene: &Scene<'_>, primary: &str, slot: &str) -> Vec<Remedy> {
    let mut list = of_removed(scene, primary, Some(slot), false);
    list.truncate(2);
    list.push(setting(
        target(scene.window, primary).as_ref(),
        "Give up no slot because nobody reads from it".to_owned(),
        &[("idle_replication_slot_timeout", "0".to_owned())],
        Vec::new(),
        "A slot whose reader never comes back then keeps WAL for ever, or as much as max_slot_wal_keep_size allows.",
    ));
    list
}

/// A logical slot that was given up for what it needed of its server.
pub(crate) fn of_logical(slot: &str) -> Remedy {
    elsewhere(
        format!("Make slot {slot} and its subscription anew"),
        vec![
            "on the subscriber: ALTER SUBSCRIPTION NAME DISABLE; ALTER SUBSCRIPTION NAME SET (slot_name = NONE); DROP SUBSCRIPTION NAME"
                .to_owned(),
            format!("on the server that had the slot: SELECT pg_drop_replication_slot('{slot}')"),
            "on the subscriber: TRUNCATE the subscribed tables, then CREATE SUBSCRIPTION NAME … WITH (copy_data = true)".to_owned(),
        ],
        "none: what the slot kept is gone",
        Vec::new(),
        "All tables are emptied and copied again, and are not whole meanwhile; a reader of another kind begins by its own means. Before that, see what took it away: wal_level, and on a standby hot_standby_feedback.",
    )
}

fn more_kept(settings: Option<&Target>, bytes: Option<f64>) -> Option<Remedy> {
    let now = keep_bytes(settings).unwrap_or(0.0);
    let bytes = bytes.unwrap_or((now * 4.0).max(1024.0 * MIB));
    (bytes > now).then(|| keep(settings, bytes, Vec::new()))
}

/// wal_keep_size of at least so many bytes; wal_keep_segments where the server is of release 12.
pub(crate) fn keep(settings: Option<&Target>, bytes: f64, predicted: Vec<Figure>) -> Remedy {
    let segment = crate::replication::segment(settings);
    let segments = (bytes / segment).ceil();
    let old = settings.and_then(|target| target.version_num).is_some_and(|version| version < 130_000);
    let (name, value) = if old {
        ("wal_keep_segments", format!("{segments:.0}"))
    } else {
        ("wal_keep_size", format!("{:.0}MB", segments * segment / MIB))
    };
    let title = format!("Keep {} of WAL for standbys", Bytes((segments * segment) as u64));
    setting(settings, title, &[(name, value)], predicted, "pg_wal takes that much more space, standby or not.")
}

/// A cap on what a slot keeps.
pub(crate) fn slot_cap(settings: Option<&Target>, bytes: f64, predicted: Vec<Figure>) -> Remedy {
    let value = format!("{:.0}MB", (bytes / MIB).ceil());
    setting(
        settings,
        format!("Let slots keep at most {} of WAL", Bytes(bytes as u64)),
        &[("max_slot_wal_keep_size", value)],
        predicted,
        "A standby further behind than that loses its slot; without a cap the disk fills and the primary stops.",
    )
}

/// A slot for a standby that has none.
pub(crate) fn new_slot(standby: &str) -> Remedy {
    let plain: String =
        standby.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    Remedy {
        title: "Keep WAL by a slot: for as long as the standby needs it, and no longer".to_owned(),
        runtime: vec![
            format!("SELECT pg_create_physical_replication_slot('{plain}', true);   -- on the primary"),
            format!(
                "ALTER SYSTEM SET primary_slot_name = '{plain}'; SELECT pg_reload_conf();   -- on the standby (12: restart)"
            ),
        ],
        persistent: Vec::new(),
        activation: Activation::Reload,
        undo: vec![
            "ALTER SYSTEM RESET primary_slot_name; SELECT pg_reload_conf();   -- on the standby".to_owned(),
            format!("SELECT pg_drop_replication_slot('{plain}');   -- on the primary"),
        ],
        predicted: Vec::new(),
        risk: "Without max_slot_wal_keep_size (13 and newer) a standby that never comes back fills the disk."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::reach;

    #[test]
    fn a_primary_is_reached_by_host_and_port() {
        assert_eq!(reach("db1:5433"), "-h db1 -p 5433");
        assert_eq!(reach("[fe80::1]:5432"), "-h fe80::1 -p 5432");
        assert_eq!(reach("localhost:5432"), "-h PRIMARY -p 5432");
        assert_eq!(reach("primary"), "-h primary");
        assert_eq!(reach(""), "-h PRIMARY");
    }
}
