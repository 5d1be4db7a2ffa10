//! What helps a standby that falls behind, by what holds it: the cap, the link, the standby's disk or replay. Sizes come from the rates of the stretch; where a figure is unknown the remedy says what to measure.

use super::checkpoint::setting;
use super::iops;
use crate::caps::{Cap, CapOwner, CapUnit};
use crate::device::DeviceView;
use crate::grid::Lane;
use crate::replication::{Link, Standby, target};
use crate::scene::Scene;
use backwater_model::{Activation, Figure, Remedy, Target, Unit};
use std::ops::Range;

const MIB: f64 = 1_048_576.0;
/// Room over what was seen.
const ROOM: f64 = 1.2;

/// A remedy that no command of this host carries out.
pub(super) fn elsewhere(title: String, what: Vec<String>, undo: &str, predicted: Vec<Figure>, risk: &str) -> Remedy {
    Remedy {
        title,
        runtime: Vec::new(),
        persistent: what,
        activation: Activation::Immediate,
        undo: vec![undo.to_owned()],
        predicted,
        risk: risk.to_owned(),
    }
}

/// Commands that take effect at once.
pub(super) fn command(
    title: &str,
    runtime: Vec<String>,
    undo: Vec<String>,
    predicted: Vec<Figure>,
    risk: &str,
) -> Remedy {
    Remedy {
        title: title.to_owned(),
        runtime,
        persistent: Vec::new(),
        activation: Activation::Immediate,
        undo,
        predicted,
        risk: risk.to_owned(),
    }
}

/// Raises a cap to what carries so many bytes a second in writes of the size seen.
fn raise(
    scene: &Scene<'_>,
    device: &DeviceView,
    cap: &Cap,
    bytes_per_s: Option<f64>,
    range: &Range<usize>,
) -> Vec<Remedy> {
    let Some(was) = cap.limit.median(range) else { return Vec::new() };
    let size = device.write_size(range).filter(|size| *size > 0.0);
    let needed = bytes_per_s.and_then(|rate| match cap.unit {
        CapUnit::Bytes => Some(rate * ROOM),
        // Each flush is an operation of its own, so more WAL needs at most as many more as it has bytes.
        CapUnit::Operations => Some(crate::iops::orderly(rate * ROOM / size?)),
    });
    // What is made under a cap is held by it: the true need is unknown and larger, so at least twice as much.
    let to = needed.unwrap_or(0.0).max(was * 2.0);
    let predicted = vec![Figure::new(
        "wal_bytes_per_s",
        if cap.unit == CapUnit::Bytes { to } else { size.unwrap_or(0.0) * to },
        Unit::BytesPerSecond,
        "WAL that the device then takes, at most",
    )];
    let version = scene.window.meta.host.cgroup_version.as_deref();
    vec![match &cap.owner {
        CapOwner::Cgroup(group) => iops::raise_group(cap, device, group, version, was, to, predicted),
        CapOwner::Declared => iops::faster_volume(&cap.owner, was, to, cap.unit, predicted),
    }]
}

/// For a cap on the device of the primary's own WAL.
pub(crate) fn raise_wal_cap(
    scene: &Scene<'_>,
    device: &DeviceView,
    cap: &Cap,
    generated: &Lane,
    range: &Range<usize>,
) -> Vec<Remedy> {
    // The best rate of the window may have come before the cap held it.
    let most = generated.smooth(1).max(&(0..scene.grid.count));
    raise(scene, device, cap, most, range)
}

/// Lifts a control group's cap altogether.
pub(crate) fn lift(scene: &Scene<'_>, device: &DeviceView, cap: &Cap, range: &Range<usize>) -> Option<Remedy> {
    let was = cap.limit.median(range)?;
    let CapOwner::Cgroup(group) = &cap.owner else { return None };
    let version = scene.window.meta.host.cgroup_version.as_deref();
    let like = iops::raise_group(cap, device, group, version, was, was, Vec::new());
    // v1 takes 0 for no limit, v2 the word.
    let none = if version == Some("v2") { "max" } else { "0" };
    let set = like.undo.first()?;
    let at = set.rfind(&format!("{was:.0}'"))?;
    let lifted = format!("{}{none}{}", &set[..at], &set[at + format!("{was:.0}").len()..]);
    Some(Remedy {
        title: format!("Or lift the limit of control group {group} on {}", device.name),
        runtime: vec![lifted],
        persistent: Vec::new(),
        risk: "WAL may then be made faster than the network carries it: the standby falls behind until WAL that it needs is \
               removed. Whoever shares the device gets less of it."
            .to_owned(),
        ..like
    })
}

/// A link fast enough for what is made.
pub(crate) fn faster_link(standby: &str, needed: f64, limit: f64) -> Remedy {
    let (mbit, now) = (needed * 8.0 / 1e6, limit * 8.0 / 1e6);
    let figures = vec![Figure::new("link_bytes_per_s", needed, Unit::BytesPerSecond, "what the link must carry")];
    elsewhere(
        format!("Give {standby} a link of {mbit:.0} Mbit/s (now {now:.0})"),
        vec![format!("a link, or a shaper's rate, of {mbit:.0} Mbit/s or more between the two")],
        "go back to the former link",
        figures,
        "It costs money; whoever shares the link gets less of it.",
    )
}

/// For a device that is full.
pub(crate) fn of_full_wal_device(scene: &Scene<'_>, name: &str, device: &DeviceView) -> Vec<Remedy> {
    let shared = device.holds_data;
    let own =
        "Put pg_wal on a device of its own: stop the server, move the directory, leave a symbolic link".to_owned();
    let mut list = Vec::new();
    if shared {
        let how = vec![
            "mv $PGDATA/pg_wal /MOUNT/pg_wal && ln -s /MOUNT/pg_wal $PGDATA/pg_wal   # while the server is stopped"
                .to_owned(),
        ];
        list.push(Remedy {
            activation: Activation::Restart,
            ..elsewhere(
                own,
                how,
                "move it back",
                Vec::new(),
                "The server is down meanwhile; both devices are then needed for recovery.",
            )
        });
    }
    list.extend(compression(target(scene.window, name).as_ref(), None));
    list
}

/// For a network that is too narrow.
pub(crate) fn of_network(
    scene: &Scene<'_>,
    standby: &Standby,
    cause: &str,
    link: Option<&Link>,
    range: &Range<usize>,
) -> Vec<Remedy> {
    let needed = standby.hops.flushed_rate.smooth(1).max(range).map(|rate| rate * ROOM);
    let figures: Vec<Figure> = needed
        .map(|rate| Figure::new("link_bytes_per_s", rate, Unit::BytesPerSecond, "what the link must carry"))
        .into_iter()
        .collect();
    let mbit = needed.map_or("more than WAL is made".to_owned(), |rate| format!("{:.0} Mbit/s", rate * 8.0 / 1e6));
    let settings = standby.primary.as_deref().and_then(|name| target(scene.window, name));
    let settings = settings.as_ref();
    let mut list = Vec::new();
    match (cause, link) {
        ("shaper", Some(link)) => {
            let rate = needed.map_or(0.0, |rate| rate * 8.0);
            let name = &link.name;
            list.push(command(
                "Raise the shaper's rate",
                vec![format!("tc qdisc show dev {name}   # then, for TBF: tc qdisc change dev {name} root tbf rate {rate:.0}bit burst 256kb latency 50ms")],
                vec![format!("tc qdisc change dev {name} root tbf rate {:.0}bit burst 256kb latency 50ms", link.ceiling.median(range).unwrap_or(0.0) * 8.0)],
                figures,
                "Whoever shares the link gets less of it.",
            ));
        }
        ("receive-window" | "send-buffer", _) => {
            let product = standby.tcp.min_rtt_s.median(range).zip(needed).map(|(rtt, rate)| rtt * rate * 2.0);
            let bytes = product.unwrap_or(16.0 * MIB).max(4.0 * MIB);
            let (name, host) = if cause == "send-buffer" {
                ("net.ipv4.tcp_wmem", "primary")
            } else {
                ("net.ipv4.tcp_rmem", "standby")
            };
            list.push(command(
                &format!("Let TCP's buffers on the {host} grow to twice rate × round trip"),
                vec![format!("sysctl -w {name}='4096 131072 {bytes:.0}'   # on the {host}'s host")],
                vec![format!("sysctl -w {name}='4096 131072 6291456'")],
                figures,
                "Each connection may then use that much memory.",
            ));
        }
        _ => list.push(elsewhere(
            format!("Give the standby a link of {mbit}"),
            vec!["a faster link, or a way to the standby that is not shared".to_owned()],
            "go back to the former link",
            figures,
            "It costs money.",
        )),
    }
    list.extend(compression(settings, None));
    list
}

/// For a standby whose disk is too slow.
pub(crate) fn of_standby_disk(
    scene: &Scene<'_>,
    standby: &Standby,
    cap: Option<(&Cap, &DeviceView)>,
    range: &Range<usize>,
) -> Vec<Remedy> {
    let needed = standby.hops.flushed_rate.smooth(1).max(range);
    let mut list = match cap {
        Some((cap, device)) => raise(scene, device, cap, needed, range),
        None => {
            let figures = needed.map(|rate| {
                Figure::new("wal_bytes_per_s", rate * ROOM, Unit::BytesPerSecond, "what its disk must take")
            });
            vec![elsewhere(
                "Give the standby a disk that takes WAL as fast as it is made".to_owned(),
                vec![
                    "a faster volume for the standby's pg_wal, or a higher limit on it (blkio.throttle.*, io.max)"
                        .to_owned(),
                ],
                "go back to the former volume",
                figures.into_iter().collect(),
                "It costs money.",
            )]
        }
    };
    list.extend(compression(standby.primary.as_deref().and_then(|name| target(scene.window, name)).as_ref(), None));
    list
}

/// For queries of the standby that hold replay up.
pub(crate) fn of_conflict(scene: &Scene<'_>, standby: &Standby, cause: &str) -> Vec<Remedy> {
    let own = standby.peer.as_ref().and_then(|peer| target(scene.window, &peer.target));
    let own = own.as_ref();
    let mut list = vec![
        command(
            "Find the queries that hold replay up, on the standby, and end the oldest",
            vec![
                "SELECT pid, now() - xact_start AS age, query FROM pg_stat_activity WHERE state <> 'idle' AND xact_start IS NOT NULL ORDER BY age DESC;".to_owned(),
                "SELECT pg_cancel_backend(PID);   -- or pg_terminate_backend for a session idle in a transaction".to_owned(),
            ],
            vec!["none: a cancelled query must be run again".to_owned()],
            Vec::new(),
            "Their users see an error.",
        ),
        setting(
            own,
            "Let replay wait at most 30 s for queries of the standby".to_owned(),
            &[("max_standby_streaming_delay", "30s".to_owned())],
            vec![Figure::new("replay_delay_s", 30.0, Unit::Seconds, "delay that conflicts can cause, at most")],
            "Longer queries on the standby are cancelled when they conflict.",
        ),
    ];
    if cause == "snapshot" {
        list.push(setting(
            own,
            "Have the primary keep rows that the standby's queries still see".to_owned(),
            &[("hot_standby_feedback", "on".to_owned())],
            Vec::new(),
            "Long queries on the standby then keep the primary from removing dead rows: its tables grow.",
        ));
    }
    list
}

/// For replay that was paused.
pub(crate) fn of_pause(cause: &str) -> Vec<Remedy> {
    let looks = ["SELECT pg_is_wal_replay_paused();", "SHOW recovery_min_apply_delay;"];
    let looks = looks.map(|look| format!("{look}   -- on the standby"));
    let resume = "SELECT pg_wal_replay_resume();   -- on the standby".to_owned();
    let runtime = if cause == "paused" { vec![resume] } else { [&looks[..], &[resume]].concat() };
    let undo = vec!["SELECT pg_wal_replay_pause();".to_owned()];
    vec![command(
        "Resume replay",
        runtime,
        undo,
        Vec::new(),
        "Whoever paused it may have had a reason: a backup, an upgrade, a look into the past.",
    )]
}

/// For replay that takes a whole processor, or wants one and does not get it (`host-cpu`).
pub(crate) fn of_replay_cpu(scene: &Scene<'_>, standby: &Standby, cause: &str) -> Vec<Remedy> {
    if cause == "host-cpu" {
        return vec![elsewhere(
            "Give replay the processor that it wants".to_owned(),
            vec![
                "backwater top, on the standby's host: who else takes the processors there".to_owned(),
                "cat /proc/PID/cgroup of the startup process, then cpu.stat of that group: nr_throttled that rises means a quota; raise it (cpu.max of cgroup v2, cpu.cfs_quota_us of v1, a container's CPU limit)".to_owned(),
            ],
            "set the former quota again",
            Vec::new(),
            "Others on that host get less.",
        )];
    }
    let own = standby.peer.as_ref().and_then(|peer| target(scene.window, &peer.target));
    let own = own.as_ref();
    let version = own.and_then(|target| target.version_num).unwrap_or(0);
    let mut list = Vec::new();
    if version >= 150_000 {
        list.push(setting(
            own,
            "Let the standby read ahead what replay will need".to_owned(),
            &[("recovery_prefetch", "try".to_owned()), ("maintenance_io_concurrency", "64".to_owned())],
            Vec::new(),
            "More reads at once on the standby's disk.",
        ));
    }
    list.push(elsewhere(
        "Give the standby faster processors, and make less WAL on the primary".to_owned(),
        vec!["replay is one process: a higher clock helps, more processors do not; wal_compression and fewer full-page images (checkpoints further apart) give it less to do".to_owned()],
        "go back to the former machine",
        Vec::new(),
        "It costs money.",
    ));
    list
}

/// For a walsender that does not fill its socket.
pub(crate) fn of_walsender(scene: &Scene<'_>, standby: &Standby, cause: &str) -> Vec<Remedy> {
    let settings = standby.primary.as_deref().and_then(|name| target(scene.window, name));
    let settings = settings.as_ref();
    match cause {
        "wal-read" => vec![elsewhere(
            "Let the standby catch up from the archive instead".to_owned(),
            vec!["restore_command on the standby: it then reads old WAL from the archive, and not from the primary's disk".to_owned()],
            "take restore_command out again",
            Vec::new(),
            "The archive must be complete.",
        )],
        _ => compression(settings, None).into_iter().collect(),
    }
}

/// For commits that wait for a synchronous standby that is not there. An empty synchronous_standby_names also lets those go that
/// wait already (`SyncRepUpdateSyncStandbysDefined`, syncrep.c); synchronous_commit would not.
pub(crate) fn of_missing(settings: Option<&Target>) -> Remedy {
    setting(
        settings,
        "Let commits go on without it, those that wait included, until it is back".to_owned(),
        &[("synchronous_standby_names", String::new())],
        Vec::new(),
        "Commits that are acknowledged meanwhile are lost if the primary dies.",
    )
}

/// For commits that wait for a synchronous standby.
pub(crate) fn of_sync(settings: Option<&Target>) -> Vec<Remedy> {
    let risk = "Commits that were acknowledged are lost if the primary dies before the standby has them.";
    vec![setting(
        settings,
        "Do not wait for the standby, until it has caught up".to_owned(),
        &[("synchronous_commit", "local".to_owned())],
        Vec::new(),
        risk,
    )]
}

/// wal_compression, with the share of WAL that it can save at most where that is known.
pub(crate) fn compression(settings: Option<&Target>, saved_ratio: Option<f64>) -> Option<Remedy> {
    let on = settings.and_then(|target| target.settings.get("wal_compression")).is_some_and(|value| value != "off");
    if on {
        return None;
    }
    let new = settings.and_then(|target| target.version_num).is_some_and(|version| version >= 150_000);
    let value = if new { "lz4" } else { "on" };
    let predicted = saved_ratio.map(|share| Figure::new("saved_ratio", share, Unit::Ratio, "WAL that it saves, about"));
    Some(setting(
        settings,
        "Compress full-page images in WAL".to_owned(),
        &[("wal_compression", value.to_owned())],
        predicted.into_iter().collect(),
        "It takes processor time in every session that writes; lz4 (where the server was built with it) takes little.",
    ))
}
