//! What a finding could not see: what the probes said to be absent, and series that a rule wanted and did not find.

use backwater_model::catalogue::Def;
use backwater_model::{EventKind, SOME_CONNECTIONS, Unseen, Window};

/// A reading that a rule can use, and how to get it.
pub(crate) struct Wanted {
    /// What it is, for people.
    pub(crate) what: &'static str,
    /// Words by which a probe's own word of absence is recognised.
    pub(crate) words: &'static [&'static str],
    /// What would make it visible.
    pub(crate) remedy: &'static str,
}

/// The page cache of each device.
pub(crate) const DEVICE_CACHE: Wanted = Wanted {
    what: "dirty pages of each device",
    words: &["bdi", "debugfs", "dirty page cache"],
    remedy: "mount -t debugfs debugfs /sys/kernel/debug",
};
/// Kernel functions in which sessions sleep.
pub(crate) const KERNEL_WAITS: Wanted = Wanted {
    what: "kernel functions in which sessions wait",
    words: &["wchan", "kernel wait", "kernel function"],
    remedy: "run on the server's host as root or as the server's own user",
};
/// Sessions.
pub(crate) const SESSIONS: Wanted = Wanted {
    what: "active sessions",
    words: &["pg_monitor", "pg_stat_activity", "session"],
    remedy: "GRANT pg_monitor TO the role that Backwater connects as",
};
/// Pressure stall information.
pub(crate) const PRESSURE: Wanted =
    Wanted { what: "I/O pressure (PSI)", words: &["pressure", "psi"], remedy: "boot with psi=1 (Linux 4.20 or newer)" };
/// Limits of control groups.
pub(crate) const CGROUPS: Wanted = Wanted {
    what: "I/O limits of control groups",
    words: &["i/o limits of control groups", "blkio", "io.max"],
    remedy: "run on the host itself, or mount its control groups read-only into the container",
};
/// What each control group does.
pub(crate) const GROUP_RATES: Wanted = Wanted {
    what: "I/O of the control group itself",
    words: &["i/o of control groups", "io_serviced", "io.stat"],
    remedy: "run on the host itself, or mount its control groups read-only into the container",
};
/// The ratios of dirty memory, while they are in force.
pub(crate) const DIRTY_RATIOS: Wanted = Wanted {
    what: "vm.dirty_ratio and vm.dirty_background_ratio during these readings (they were read once, at the start)",
    words: &["dirty_threshold", "/proc/vmstat", "/proc/meminfo"],
    remedy: "make /proc/vmstat and /proc/meminfo readable: the limits in force are checked against them",
};
/// The server's log.
pub(crate) const SERVER_LOG: Wanted = Wanted {
    what: "the server's log",
    words: &["log cannot"],
    remedy: "run on the server's host as a user that may read its log, with log_checkpoints = on",
};

/// The connection to a standby.
pub(crate) const TCP: Wanted = Wanted {
    what: "the connection to the standby (TCP's timers)",
    words: &["tcp connection", "sock_diag"],
    remedy: "run on the primary's host, as root or as the server's own user",
};
/// All connections with clients.
pub(crate) const ALL_CONNECTIONS: Wanted = Wanted {
    what: "all connections with clients",
    words: &[SOME_CONNECTIONS],
    remedy: "those that move most are read; ss -tin lists them all",
};
/// What stands in line for an interface.
pub(crate) const LINE: Wanted = Wanted {
    what: "what stands in line for the interface (its queueing discipline)",
    words: &["queueing discipline", "network queues"],
    remedy: "run on the server's host as root",
};
/// What bounds the network.
pub(crate) const LINK: Wanted = Wanted {
    what: "a ceiling of the network on this host (a shaper, or the speed of an interface)",
    words: &["interface", "queueing discipline", "shaper"],
    remedy: "measure the way to the standby, or look at the shapers and links in between",
};
/// The standby itself.
pub(crate) const STANDBY: Wanted = Wanted {
    what: "the standby itself",
    words: &["standby"],
    remedy: "name it as a second target, and run on its host to see its devices and processes",
};
/// The standby's processes.
pub(crate) const STANDBY_PROCESSES: Wanted = Wanted {
    what: "processor time of the standby's startup process",
    words: &["/proc", "process"],
    remedy: "run on the standby's host as root or as the server's own user",
};
/// What the standby logs about conflicts.
pub(crate) const CONFLICT_LOG: Wanted = Wanted {
    what: "the standby's own lines about conflicts",
    words: &["log cannot", "the log of"],
    remedy: "log_recovery_conflict_waits = on (14 and newer), and run where the standby's log can be read",
};
/// Room for WAL.
pub(crate) const FREE_SPACE: Wanted = Wanted {
    what: "free space where WAL lies",
    words: &["free space", "statvfs"],
    remedy: "run on the primary's host",
};

/// What is told where the probes said nothing.
fn unsaid(window: &Window, wanted: &Wanted) -> Unseen {
    let of_a_server = [&SESSIONS, &KERNEL_WAITS, &SERVER_LOG].iter().any(|known| known.what == wanted.what);
    let (why, remedy) = if of_a_server && window.meta.targets.is_empty() {
        ("no server was watched", "name the server beside the host: postgres://…".to_owned())
    } else if window.meta.written_by.starts_with("MongoDB") {
        (
            "no flight recorder has it",
            "watch the server live, on its host: backwater record mongodb://… -o DIR".to_owned(),
        )
    } else if window.meta.host.read_as_root == Some(true) {
        (NO_READINGS, AS_WHOM.iter().fold(wanted.remedy.to_owned(), |remedy, words| remedy.replace(words, "")))
    } else {
        (NO_READINGS, wanted.remedy.to_owned())
    };
    Unseen { what: wanted.what.to_owned(), why: why.to_owned(), remedy: Some(remedy) }
}

const NO_READINGS: &str = "there are no readings of it in this window";
/// What root need not be told, the longer words first.
const AS_WHOM: [&str; 2] = [", as root or as the server's own user", " as root or as the server's own user"];

/// Collects what could not be seen, each thing once.
#[derive(Default)]
pub(crate) struct Missing(Vec<Unseen>);

impl Missing {
    /// Notes a wanted reading if it is missing, in the probe's own words where it has said why.
    pub(crate) fn unless(&mut self, window: &Window, seen: bool, wanted: &Wanted) {
        if seen {
            return;
        }
        let field = |event: &backwater_model::Event, name: &str| event.fields.get(name).cloned();
        let said = window.events_of(EventKind::Absent).find(|event| {
            let text =
                format!("{} {}", event.message, event.fields.get("what").map_or("", String::as_str)).to_lowercase();
            wanted.words.iter().any(|word| text.contains(&word.to_lowercase()))
        });
        let unseen = match said {
            Some(event) => Unseen {
                what: field(event, "what").unwrap_or_else(|| wanted.what.to_owned()),
                why: field(event, "why").unwrap_or_else(|| event.message.clone()),
                remedy: field(event, "remedy").or_else(|| Some(wanted.remedy.to_owned())),
            },
            None => unsaid(window, wanted),
        };
        if !self.0.contains(&unseen) {
            self.0.push(unseen);
        }
    }

    /// Everything noted.
    pub(crate) fn list(self) -> Vec<Unseen> {
        self.0
    }
}

/// Whether the probe has said that it reads some connections only: a sum of those it reads is then no total.
pub(crate) fn some_connections(window: &Window) -> bool {
    let mut absent = window.events_of(EventKind::Absent);
    absent.any(|event| event.fields.get("what").is_some_and(|what| what == SOME_CONNECTIONS))
}

/// Whether a window has any reading of a series.
pub(crate) fn seen(window: &Window, def: &Def) -> bool {
    window.tracks(def.name, &[]).any(|track| !track.points.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{HostFacts, Meta, Moment, Target};
    use std::sync::Arc;

    fn told(targets: usize, read_as_root: Option<bool>, wanted: &Wanted) -> Unseen {
        let host = HostFacts { read_as_root, ..HostFacts::default() };
        let meta = Meta { host, targets: vec![Target::default(); targets], ..Meta::default() };
        let window = Window::new(Moment(0), Moment(0), Arc::new(meta), vec![], vec![], vec![]);
        let mut missing = Missing::default();
        missing.unless(&window, false, wanted);
        missing.list().remove(0)
    }

    #[test]
    fn what_no_flight_recorder_has_is_seen_live() {
        let meta = Meta { written_by: "MongoDB 7.0.12".to_owned(), ..Meta::default() };
        let window = Window::new(Moment(0), Moment(0), Arc::new(meta), vec![], vec![], vec![]);
        let mut missing = Missing::default();
        missing.unless(&window, false, &CGROUPS);
        let unseen = missing.list().remove(0);
        assert!(
            unseen.remedy.unwrap().contains("backwater record mongodb://"),
            "running elsewhere changes nothing of the past"
        );
    }

    #[test]
    fn without_a_server_no_role_is_granted_anything() {
        let unseen = told(0, None, &SESSIONS);
        assert_eq!(unseen.why, "no server was watched");
        assert!(!unseen.remedy.unwrap().contains("GRANT"));
        assert!(told(1, None, &SESSIONS).remedy.unwrap().contains("GRANT pg_monitor"));
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        assert!(told(1, None, &KERNEL_WAITS).remedy.unwrap().contains("as root"));
        assert_eq!(told(1, Some(true), &KERNEL_WAITS).remedy.unwrap(), "run on the server's host");
        assert_eq!(told(1, Some(true), &TCP).remedy.unwrap(), "run on the primary's host");
    }
}
