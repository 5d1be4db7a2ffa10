//! What a finding could not see: what the probes said to be absent, and series that a rule wanted and did not find.

use backwater_model::catalogue::Def;
use backwater_model::{EventKind, Unseen, Window};

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
    remedy: "run as root with debugfs mounted: mount -t debugfs debugfs /sys/kernel/debug",
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
            wanted.words.iter().any(|word| text.contains(word))
        });
        let unseen = match said {
            Some(event) => Unseen {
                what: field(event, "what").unwrap_or_else(|| wanted.what.to_owned()),
                why: field(event, "why").unwrap_or_else(|| event.message.clone()),
                remedy: field(event, "remedy").or_else(|| Some(wanted.remedy.to_owned())),
            },
            None => Unseen {
                what: wanted.what.to_owned(),
                why: "there are no readings of it in this window".to_owned(),
                remedy: Some(wanted.remedy.to_owned()),
            },
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

/// Whether a window has any reading of a series.
pub(crate) fn seen(window: &Window, def: &Def) -> bool {
    window.tracks(def.name, &[]).any(|track| !track.points.is_empty())
}
