//! The standby's own side: which watched server it is, and what its walreceiver and startup process were doing.

use super::{names, standby_row};
use crate::grid::{Grid, Lane};
use crate::scene::Scene;
use backwater_model::{Role, Sample, Span, Track, Window, catalogue as cat};
use backwater_model::{canonical_wait, is_nap};
use std::ops::Range;

/// What a standby told its primary, it has at least that long afterwards, by whoever's reading.
const LATER: Span = Span::from_millis(2_000);
/// Whose own readings say otherwise so many times in a row is another one. Not at the first: one that begins anew may begin
/// some way back.
const DENIED: usize = 5;

/// A standby that is watched itself.
pub(crate) struct Peer {
    /// Its name as a target.
    pub(crate) target: String,
    /// Device of its WAL, and of its data, by `MAJ:MIN`.
    pub(crate) wal_device: Option<String>,
    pub(crate) data_device: Option<String>,
    /// 1 while replay is paused.
    pub(crate) paused: Lane,
    /// Processor time of its startup process, seconds a second.
    pub(crate) startup_cpu: Lane,
}

impl Peer {
    pub(crate) fn of(scene: &Scene<'_>, target: String) -> Self {
        let gauge = |name| scene.grid.gauge(scene.window.track(name, &[("target", &target)]));
        let known = super::known(scene.window, &target);
        let device = |role: Role| {
            let devices = scene.window.meta.devices.iter();
            let mut with_role = devices.filter(|device| device.roles.contains(&(role, target.clone())));
            with_role.next().map(|device| device.dev.clone())
        };
        let data_device = known.and_then(|known| known.data_device.clone()).or_else(|| device(Role::Data));
        let wal_device = known.and_then(|known| known.wal_device.clone()).or_else(|| device(Role::Wal));
        Peer {
            wal_device: wal_device.or_else(|| data_device.clone()),
            data_device,
            paused: gauge(cat::PG_REPLAY_PAUSED.name),
            startup_cpu: cpu(scene, &target, "startup"),
            target,
        }
    }
}

/// Processor seconds a second of a server's processes of one sort, where there is one at a time.
pub(crate) fn cpu(scene: &Scene<'_>, target: &str, what: &str) -> Lane {
    let labels = [("target", target), ("what", what)];
    let tracks = scene.window.tracks(cat::PROC_CPU.name, &labels);
    tracks.fold(scene.grid.unknown(), |joined, track| joined.or(&scene.grid.rate(Some(track))))
}

/// Watched servers that are standbys by what they tell of themselves.
pub(crate) fn candidates(window: &Window) -> Vec<String> {
    let told = [cat::PG_WAL_REPLAY, cat::PG_RECEIVER_STREAMING, cat::PG_REPLAY_PAUSED];
    let has = |track: &Track<'_>| !track.points.is_empty();
    let tracks = told.iter().flat_map(|def| window.tracks(def.name, &[]).filter(has));
    let mut names: Vec<String> =
        tracks.filter_map(|track| track.series.labels.get("target").map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    names
}

/// The watched server that a primary knows by this name: by its slot, its own name, or as the only one there is, unless it
/// lacks what that standby has.
pub(crate) fn of(window: &Window, primary: &str, standby: &str) -> Option<String> {
    let other = |name: &String| name != primary && related(window, primary, name);
    let candidates: Vec<String> = candidates(window).into_iter().filter(other).collect();
    let slot = |name: &String| {
        let settings = super::known(window, name).map(|target| &target.settings);
        settings.and_then(|settings| settings.get("primary_slot_name")).is_some_and(|slot| slot == standby)
    };
    let called = |name: &String| {
        name == standby
            || standby.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(['@', ' ', '+', '/']))
    };
    let found = candidates.iter().find(|name| slot(name)).or_else(|| candidates.iter().find(|name| called(name)));
    let only = || (candidates.len() == 1 && names(window, primary).len() == 1).then(|| &candidates[0]);
    let lacking = |name: &&String| lacks(window, (primary, standby), name);
    found.or_else(|| only().filter(|name| !lacking(name))).cloned()
}

/// Whether a watched server lacks WAL which the primary's standby had said it had received or replayed: so it is another one,
/// such as a standby of that standby.
fn lacks(window: &Window, (primary, standby): (&str, &str), name: &str) -> bool {
    let both = [(&cat::PG_REPL_FLUSH, cat::PG_WAL_RECEIVE.name), (&cat::PG_REPL_REPLAY, cat::PG_WAL_REPLAY.name)];
    both.into_iter().any(|(told, own)| {
        let told = standby_row(window, told, primary, standby);
        let own = window.track(own, &[("target", name)]);
        told.zip(own).is_some_and(|(told, own)| denials(told, own) >= DENIED)
    })
}

/// How many readings in a row, at most, told of more than the other's readings had some time later.
fn denials(told: Track<'_>, own: Track<'_>) -> usize {
    let (mut most, mut in_a_row) = (0, 0);
    for point in told.points {
        let later = own.points.partition_point(|own| own.at < point.at + LATER);
        let Some(own) = own.points.get(later) else { break };
        in_a_row = if own.value < point.value { in_a_row + 1 } else { 0 };
        most = most.max(in_a_row);
    }
    most
}

/// Whether nothing speaks against two watched servers being of one cluster.
fn related(window: &Window, primary: &str, name: &str) -> bool {
    let both = super::known(window, primary).zip(super::known(window, name));
    both.is_none_or(|(primary, standby)| primary.may_replicate(standby))
}

/// What a background process does in one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Writes, syncs or makes WAL.
    WalWrite,
    /// Reads WAL from its files.
    WalRead,
    /// Reads or writes data files.
    Data,
    /// Waits for work: the main loop, or WAL to come.
    Idle,
    /// Waits for its client to take what it sends.
    Client,
    /// Waits for a query of the standby to end.
    Conflict(&'static str),
    /// Waits because it was told to pause.
    Paused,
    /// Waits because replay is delayed on purpose.
    Delayed,
    /// Works.
    Running,
    /// Anything else.
    Other,
}

/// What a sample of a walsender, walreceiver, walwriter or startup process says.
pub(crate) fn doing(sample: &Sample) -> Doing {
    let event = sample.wait_event.as_deref().map(canonical_wait).unwrap_or_default();
    let kind = sample.wait_event_type.as_deref().unwrap_or_default();
    match (kind, event.as_str()) {
        // It copies, or wants a processor: one that is kept from running as it leaves a system call still tells that call's wait.
        ("IO", _) if sample.kernel_state == Some('R') => Doing::Running,
        ("IO", "walread" | "walsendertimelinehistoryread") => Doing::WalRead,
        ("IO", name) if name.starts_with("wal") => Doing::WalWrite,
        ("LWLock", name) if name.starts_with("walwrite") => Doing::WalWrite,
        ("IO", _) => Doing::Data,
        (_, "recoveryconflictsnapshot") => Doing::Conflict("snapshot"),
        (_, "recoveryconflicttablespace") => Doing::Conflict("conflict"),
        ("Lock", _) => Doing::Conflict("lock"),
        ("BufferPin", _) | ("Buffer", "buffercleanup") => Doing::Conflict("bufferpin"),
        (_, "recoverypause") => Doing::Paused,
        (_, "recoveryapplydelay") => Doing::Delayed,
        ("Client", _) | (_, "walsenderwritedata") => Doing::Client,
        ("Activity", _) => Doing::Idle,
        (_, "recoverywalstream" | "recoverywalall" | "recoveryretrieveretryinterval") => Doing::Idle,
        ("", "") => asleep(sample),
        _ => Doing::Other,
    }
}

/// Without a wait of the server's: by the kernel's. Releases before 13 sleep through a conflict without saying so.
fn asleep(sample: &Sample) -> Doing {
    match (sample.kernel_state, sample.kernel_wait.as_deref()) {
        (Some('D'), _) => Doing::Data,
        (Some('S'), Some(function)) if is_nap(function) => Doing::Conflict("conflict"),
        (Some('S'), Some(_)) => Doing::Other,
        _ => Doing::Running,
    }
}

/// Samples of one sort of process over a stretch.
#[derive(Debug, Default)]
pub(crate) struct Activity(Vec<Doing>);

impl Activity {
    /// Share of the samples for which the test holds; none where there are too few to say.
    pub(crate) fn share(&self, test: impl Fn(&Doing) -> bool) -> Option<f64> {
        let those = self.0.iter().filter(|doing| test(doing)).count();
        (self.0.len() >= 3).then(|| those as f64 / self.0.len() as f64)
    }

    /// The sort of conflict that was seen most.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        let mut kinds: Vec<(&'static str, usize)> = Vec::new();
        for doing in &self.0 {
            let Doing::Conflict(kind) = doing else { continue };
            match kinds.iter_mut().find(|(known, _)| known == kind) {
                Some((_, count)) => *count += 1,
                None => kinds.push((kind, 1)),
            }
        }
        kinds.into_iter().max_by_key(|(_, count)| *count).map(|(kind, _)| kind)
    }
}

/// What the processes of this sort of a server did in a stretch; of one process where its id is given.
pub(crate) fn activity(
    window: &Window,
    grid: &Grid,
    target: &str,
    what: &str,
    pids: Option<&[i64]>,
    range: &Range<usize>,
) -> Activity {
    let (from, to) = grid.span(range);
    let samples = window.samples();
    let first = samples.partition_point(|sample| sample.at < from);
    let last = samples.partition_point(|sample| sample.at < to).max(first);
    let ours = |sample: &&Sample| {
        *sample.target == *target
            && sample.backend_type.as_deref() == Some(what)
            && pids.is_none_or(|pids| pids.contains(&i64::from(sample.pid)))
    };
    Activity(samples[first..last].iter().filter(ours).map(doing).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Epoch, Meta, Moment, Point, SeriesId, Target};
    use std::sync::Arc;

    /// A primary with one standby that it knows as walreceiver, and one watched standby, of these system identifiers.
    fn joined(primary: Option<&str>, standby: Option<&str>) -> Option<String> {
        let target = |name: &str, system: Option<&str>| Target {
            name: name.to_owned(),
            system_identifier: system.map(str::to_owned),
            ..Target::default()
        };
        let meta = Meta { targets: vec![target("one", primary), target("two", standby)], ..Meta::default() };
        let point = Point { at: Moment(0), series: SeriesId(0), epoch: Epoch(1), value: 1.0, as_of: None };
        let series = vec![
            (Arc::new(cat::PG_REPL_SENT.series(&[("target", "one"), ("standby", "walreceiver")])), vec![point]),
            (Arc::new(cat::PG_WAL_REPLAY.series(&[("target", "two")])), vec![point]),
        ];
        let window = Window::new(Moment(0), Moment(1), Arc::new(meta), series, vec![], vec![]);
        of(&window, "one", "walreceiver")
    }

    #[test]
    fn what_a_process_does_is_the_servers_word_unless_the_kernel_says_that_it_runs() {
        let seen = |kind: Option<&str>, event: Option<&str>, state: Option<char>| {
            let (wait_event_type, wait_event) = (kind.map(Into::into), event.map(Into::into));
            doing(&Sample { wait_event_type, wait_event, kernel_state: state, ..Sample::default() })
        };
        let read = |state| seen(Some("IO"), Some("WALRead"), state);
        let data = |state| seen(Some("IO"), Some("DataFileExtend"), state);
        for state in [None, Some('D'), Some('S')] {
            assert_eq!((read(state), data(state)), (Doing::WalRead, Doing::Data), "{state:?}");
        }
        assert_eq!((read(Some('R')), data(Some('R'))), (Doing::Running, Doing::Running));
        assert_eq!(
            seen(Some("LWLock"), Some("WALWrite"), Some('R')),
            Doing::WalWrite,
            "only a system call's wait is told too long"
        );
        assert_eq!((seen(None, None, Some('R')), seen(None, None, Some('D'))), (Doing::Running, Doing::Data));
    }

    #[test]
    fn a_standby_of_another_cluster_is_not_taken_for_the_only_one() {
        assert_eq!(joined(Some("7"), Some("7")).as_deref(), Some("two"));
        assert_eq!(joined(Some("7"), Some("8")), None);
        assert_eq!(joined(Some("7"), None).as_deref(), Some("two"), "nothing speaks against it");
    }

    /// The same where the standby told the primary of a megabyte more each second, and the watched one has what `own` says.
    fn by_positions(own: impl Fn(i64) -> i64) -> Option<String> {
        const MIB: f64 = 1_048_576.0;
        let points = |series: u32, value: &dyn Fn(i64) -> i64| {
            let point = |second: i64| Point {
                at: Moment(second * 1_000_000),
                series: SeriesId(series),
                epoch: Epoch(1),
                value: value(second) as f64 * MIB,
                as_of: None,
            };
            (0..30).map(point).collect::<Vec<_>>()
        };
        let row = [("target", "one"), ("standby", "walreceiver")];
        let series = vec![
            (Arc::new(cat::PG_REPL_SENT.series(&row)), points(0, &|second| second)),
            (Arc::new(cat::PG_REPL_FLUSH.series(&row)), points(1, &|second| second)),
            (Arc::new(cat::PG_WAL_RECEIVE.series(&[("target", "two")])), points(2, &own)),
            (Arc::new(cat::PG_WAL_REPLAY.series(&[("target", "two")])), points(3, &own)),
        ];
        let window = Window::new(Moment(0), Moment(30_000_000), Arc::new(Meta::default()), series, vec![], vec![]);
        of(&window, "one", "walreceiver")
    }

    #[test]
    fn who_lacks_what_the_standby_has_is_not_taken_for_the_only_one() {
        assert_eq!(by_positions(|second| second).as_deref(), Some("two"));
        assert_eq!(by_positions(|second| second - 2).as_deref(), Some("two"), "its readings may be a little older");
        assert_eq!(by_positions(|second| second - 4), None, "a standby of that standby, which lags");
        assert_eq!(by_positions(|second| second.min(12)), None, "and one that was cut off");
        let begun_anew = |second: i64| if (12..14).contains(&second) { 0 } else { second };
        assert_eq!(by_positions(begun_anew).as_deref(), Some("two"));
    }
}
