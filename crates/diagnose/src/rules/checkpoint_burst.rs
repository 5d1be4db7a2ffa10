//! checkpoint-burst: throughput dips, or latency jumps, while checkpoints sync; or checkpoints are forced too often.

use super::checkpoint_log::{self, SyncPhase};
use super::checkpoint_others;
use super::draft::draft;
use crate::figures::Figures;
use crate::grid::Lane;
use crate::remedy::checkpoint;
use crate::scene::Scene;
use crate::throughput;
use crate::unseen::{self, Missing};
use crate::waits::{Wait, classify};
use backwater_model::{
    Confidence, EventKind, Figure, Finding, Moment, Severity, Target, Track, Unit, catalogue as cat,
};
use std::ops::Range;

/// A sync phase shorter than this cannot be told from noise on a grid of seconds.
const SYNC_S: f64 = 1.0;
/// Throughput in the phases ÷ throughput just outside them, at most; latency likewise, at least.
const DIP: f64 = 0.7;
const JUMP: f64 = 2.0;
/// Seconds around a phase with which it is compared.
const AROUND_S: usize = 20;
/// Forced checkpoints closer together than this, in seconds, are too frequent; and how many make a habit.
const FREQUENT_S: f64 = 120.0;
const HABIT: usize = 3;

/// The findings of a window: at most one of each cause and server. Every server has a queue of this name.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let targets = &scene.window.meta.targets;
    let servers: Vec<Server<'_>> = match targets.as_slice() {
        [] | [_] => vec![Server { target: targets.first(), alone: true }],
        several => several.iter().map(|target| Server { target: Some(target), alone: false }).collect(),
    };
    servers.iter().flat_map(|server| of_server(scene, server)).collect()
}

/// Whose checkpoints are looked at.
struct Server<'a> {
    target: Option<&'a Target>,
    /// Whether everything in the window is of this server.
    alone: bool,
}

impl Server<'_> {
    /// Its name, where others must be told apart from it.
    fn told_apart(&self) -> Option<&str> {
        self.target.filter(|_| !self.alone).map(|target| target.name.as_str())
    }

    /// The same for what takes servers by name, where none are all.
    fn names(&self) -> Vec<String> {
        self.told_apart().map(str::to_owned).into_iter().collect()
    }

    fn begun(&self, cause: &str, span: (Moment, Moment)) -> Finding {
        Finding {
            victims: vec!["pg.commit".to_owned()],
            server: self.target.map(|target| target.name.clone()),
            ..draft("checkpoint-burst", cause, "pg.checkpoint", span)
        }
    }
}

fn of_server(scene: &Scene<'_>, server: &Server<'_>) -> Vec<Finding> {
    let mut phases = checkpoint_log::phases(scene, server.told_apart());
    phases.retain(|phase| phase.sync_s >= SYNC_S);
    sync_stall(scene, server, &phases).into_iter().chain(too_frequent(scene, server)).collect()
}

/// What happened in the sync phases, against the seconds around them.
struct Dip {
    seconds: Vec<usize>,
    inside: f64,
    outside: f64,
}

fn dip(scene: &Scene<'_>, lane: &Lane, phases: &[SyncPhase]) -> Option<Dip> {
    let ranges: Vec<Range<usize>> = phases.iter().filter_map(|phase| range(scene, phase)).collect();
    let within = |second: usize| ranges.iter().any(|range| range.contains(&second));
    let seconds: Vec<usize> = (0..scene.grid.count).filter(|second| within(*second)).collect();
    let near = |second: &usize| {
        let close = |range: &Range<usize>| *second + AROUND_S >= range.start && *second < range.end + AROUND_S;
        !within(*second) && ranges.iter().any(close)
    };
    let outside =
        crate::grid::median((0..scene.grid.count).filter(near).filter_map(|second| lane.get(second)).collect())?;
    let inside: Vec<f64> = seconds.iter().filter_map(|second| lane.get(*second)).collect();
    (!inside.is_empty()).then(|| Dip { inside: inside.iter().sum::<f64>() / inside.len() as f64, outside, seconds })
}

/// Whole seconds inside a phase.
fn range(scene: &Scene<'_>, phase: &SyncPhase) -> Option<Range<usize>> {
    let to = phase.to.seconds_since(scene.grid.from).min(scene.grid.count as f64);
    let from = phase.from.seconds_since(scene.grid.from).max(0.0);
    (to > from).then(|| from.round() as usize..to.round() as usize).filter(|range| !range.is_empty())
}

fn sync_stall(scene: &Scene<'_>, server: &Server<'_>, phases: &[SyncPhase]) -> Option<Finding> {
    let (throughput, _) = throughput::lane_of(scene.window, &scene.grid, server.told_apart());
    let work = dip(scene, &throughput, phases);
    let latency = dip(scene, &throughput::latency_ms(scene.window, &scene.grid), phases);
    let fell = work.as_ref().is_some_and(|dip| dip.outside > 0.0 && dip.inside <= DIP * dip.outside);
    let jumped = latency.as_ref().is_some_and(|dip| dip.outside > 0.0 && dip.inside >= JUMP * dip.outside);
    let seconds = work.as_ref().or(latency.as_ref()).map(|dip| dip.seconds.clone()).unwrap_or_default();
    let (first, last) = (*seconds.first()?, *seconds.last()?);
    if !(fell || jumped) || !stands_out(scene, server, &seconds) {
        return None;
    }
    let span = scene.grid.span(&(first..last + 1));
    let mut finding = server.begun("sync-stall", span);
    finding.ruled_out = checkpoint_others::ruled_out(scene, &seconds);
    let shares = storage_shares(scene, server, &seconds);
    finding.foreground_lost = (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64);
    finding.evidence = evidence(scene, phases, work.as_ref(), latency.as_ref(), &seconds);
    finding.confidence = if fell && finding.foreground_lost.is_some() { Confidence::High } else { Confidence::Medium };
    let sync: f64 = phases.iter().map(|phase| phase.sync_s).sum();
    finding.summary = match work.filter(|_| fell) {
        Some(dip) => format!(
            "While {} checkpoints synced ({} in all), {} fell to {} from {} just before and after.",
            phases.len(),
            Unit::Seconds.show(sync),
            scene.counted.label(),
            Unit::PerSecond.show(dip.inside),
            Unit::PerSecond.show(dip.outside),
        ),
        None => {
            format!("While {} checkpoints synced ({} in all), latency jumped.", phases.len(), Unit::Seconds.show(sync))
        }
    };
    finding.remedies = remedies(server.target);
    finding.unseen = not_seen(scene);
    Some(finding)
}

/// Whether sessions wait on storage in those seconds at all, where sessions are seen: a dip without it is something else's.
fn stands_out(scene: &Scene<'_>, server: &Server<'_>, seconds: &[usize]) -> bool {
    let shares = storage_shares(scene, server, seconds);
    let pressure: Vec<f64> = seconds.iter().filter_map(|second| scene.psi_io.get(*second)).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    match (shares.is_empty(), pressure.is_empty()) {
        (false, _) => mean(&shares) >= 0.2,
        (true, false) => mean(&pressure) >= 0.2,
        (true, true) => false,
    }
}

/// Share of the server's active sessions that wait on storage, in each of these seconds in which that is known.
fn storage_shares(scene: &Scene<'_>, server: &Server<'_>, seconds: &[usize]) -> Vec<f64> {
    let names = server.names();
    let share = |second: &usize| scene.share(&names, &(*second..second + 1), |sample| classify(sample) != Wait::Other);
    seconds.iter().filter_map(share).collect()
}

fn evidence(
    scene: &Scene<'_>,
    phases: &[SyncPhase],
    work: Option<&Dip>,
    latency: Option<&Dip>,
    seconds: &[usize],
) -> Vec<Figure> {
    let mut figures = Figures::default();
    let total = phases.iter().map(|phase| phase.sync_s).sum();
    let count = phases.len() as f64;
    figures.add("checkpoints_count", Some(count), Unit::Count, "checkpoints with a sync of a second or more");
    figures.add("sync_total_s", Some(total), Unit::Seconds, "time in syncs");
    let longest = phases.iter().filter_map(|phase| phase.longest_s).reduce(f64::max);
    figures.add("sync_longest_s", longest, Unit::Seconds, "the longest single sync");
    figures.add("throughput_during_per_s", work.map(|dip| dip.inside), Unit::PerSecond, "throughput while they synced");
    figures.add(
        "throughput_around_per_s",
        work.map(|dip| dip.outside),
        Unit::PerSecond,
        "throughput just before and after",
    );
    figures.add(
        "latency_during_ms",
        latency.map(|dip| dip.inside),
        Unit::Milliseconds,
        "mean latency while they synced",
    );
    figures.add(
        "latency_around_ms",
        latency.map(|dip| dip.outside),
        Unit::Milliseconds,
        "mean latency just before and after",
    );
    let pressure: Vec<f64> = seconds.iter().filter_map(|second| scene.psi_io.get(*second)).collect();
    let mean = (!pressure.is_empty()).then(|| pressure.iter().sum::<f64>() / pressure.len() as f64);
    figures.add("psi_io_some_ratio", mean, Unit::Ratio, "time in which some task waited on I/O, in the syncs");
    figures.list()
}

fn remedies(target: Option<&Target>) -> Vec<backwater_model::Remedy> {
    let mut list: Vec<_> = checkpoint::spread(target).into_iter().collect();
    let flush = target.and_then(|target| target.settings.get("checkpoint_flush_after"));
    // 0 turns it off; where it is on, as it is by default on Linux, the advice would change nothing.
    if flush.is_some_and(|text| text.trim_start().starts_with('0')) {
        list.push(checkpoint::checkpoint_flush(target));
    }
    list.push(checkpoint::flush_after(target));
    list
}

fn not_seen(scene: &Scene<'_>) -> Vec<backwater_model::Unseen> {
    let mut missing = Missing::default();
    let log = scene.window.events_of(EventKind::Log).next().is_some();
    missing.unless(scene.window, log, &unseen::SERVER_LOG);
    missing.unless(scene.window, !scene.window.samples().is_empty(), &unseen::SESSIONS);
    missing.list()
}

/// Checkpoints that WAL forced, closer together than they should be. A CHECKPOINT command counts as requested too, so each must
/// also have a good part of max_wal_size of WAL behind it.
fn too_frequent(scene: &Scene<'_>, server: &Server<'_>) -> Option<Finding> {
    let warnings = checkpoint_log::warnings(scene, server.told_apart());
    let own: Vec<(&'static str, &str)> = server.told_apart().map(|name| ("target", name)).into_iter().collect();
    let forced = scene.window.tracks(cat::PG_CHECKPOINTS_REQUESTED.name, &own).filter_map(|track| forced(scene, track));
    let (target, forced) = forced.max_by_key(|(_, list)| list.len()).unwrap_or_default();
    let forced = densest(&forced);
    let spacing = mean_spacing(forced);
    let counted = forced.len() >= HABIT && spacing.is_some_and(|seconds| seconds < FREQUENT_S);
    if !counted && warnings < 2 {
        return None;
    }
    let span = match (forced.first(), forced.last()) {
        (Some(first), Some(last)) if counted => (first.0, last.0),
        _ => (scene.window.from, scene.window.to),
    };
    let range = seconds_of(scene, span);
    let mut finding = server.begun("too-frequent", span);
    finding.ruled_out = checkpoint_others::ruled_out(scene, &range.collect::<Vec<_>>());
    // Its cost is more WAL, and how much of the waits for WAL that makes is not known: a larger max_wal_size may change nothing of them.
    finding.severity = Severity::Info;
    // What the log tells is not what was counted.
    let every = spacing
        .filter(|_| counted)
        .map_or_else(String::new, |seconds| format!(", one every {}", Unit::Seconds.show(seconds)));
    finding.summary = format!(
        "WAL filled max_wal_size and forced {} checkpoints{every}. Each makes the next write of every page a full page.",
        if counted { forced.len() } else { warnings },
    );
    finding.evidence = forced_figures(forced, spacing, warnings);
    finding.remedies = larger_wal(target, forced, spacing).into_iter().collect();
    finding.unseen = not_seen(scene);
    Some(finding)
}

/// A server, and when it was forced to a checkpoint by how much WAL.
type Forced<'a> = (Option<&'a Target>, Vec<(Moment, f64)>);

fn forced_figures(forced: &[(Moment, f64)], spacing: Option<f64>, warnings: usize) -> Vec<Figure> {
    let mut figures = Figures::default();
    let wal = forced.iter().map(|(_, wal)| *wal).reduce(f64::max);
    figures.add("checkpoints_forced_count", Some(forced.len() as f64), Unit::Count, "checkpoints forced by WAL");
    figures.add("checkpoint_spacing_s", spacing, Unit::Seconds, "mean time between them");
    figures.add("wal_between_bytes", wal, Unit::Bytes, "WAL between two of them, at most");
    figures.add("server_warnings_count", Some(warnings as f64), Unit::Count, "warnings in the server's log");
    figures.list()
}

/// The whole seconds between two moments.
fn seconds_of(scene: &Scene<'_>, (from, to): (Moment, Moment)) -> Range<usize> {
    let second = |at| scene.grid.second(at).unwrap_or(scene.grid.count);
    second(from)..second(to)
}

/// When requested checkpoints with enough WAL behind them were counted, and that WAL.
fn forced<'a>(scene: &Scene<'a>, track: Track<'_>) -> Option<Forced<'a>> {
    let name = track.series.labels.get("target")?;
    let target = scene.window.meta.targets.iter().find(|target| target.name == name);
    let max_wal = target
        .and_then(|target| target.settings.get("max_wal_size"))
        .and_then(|text| text.parse::<backwater_model::Bytes>().ok());
    let least = max_wal.map_or(16e6, |bytes| bytes.0 as f64) * 0.3;
    let wal = scene.window.track(cat::PG_WAL_INSERT.name, &[("target", name)])?;
    let mut since = scene.window.from;
    let mut list = Vec::new();
    for pair in track.points.windows(2).filter(|pair| pair[0].epoch == pair[1].epoch && pair[1].value > pair[0].value) {
        let written = wal.between(since, pair[1].at).increase().unwrap_or(0.0);
        if written >= least {
            list.push((pair[1].at, written));
        }
        since = pair[1].at;
    }
    Some((target, list))
}

/// Of forced checkpoints those that follow each other as closely as the rule asks for, where most of them do: a night between two
/// loads is neither's, and its hours would make both look rare.
fn densest(forced: &[(Moment, f64)]) -> &[(Moment, f64)] {
    let close = |a: &(Moment, f64), b: &(Moment, f64)| b.0.seconds_since(a.0) < FREQUENT_S;
    forced.chunk_by(close).max_by_key(|run| run.len()).unwrap_or_default()
}

fn mean_spacing(forced: &[(Moment, f64)]) -> Option<f64> {
    let (first, last) = (forced.first()?.0, forced.last()?.0);
    (forced.len() >= 2).then(|| last.seconds_since(first) / (forced.len() - 1) as f64)
}

/// Room for five minutes of WAL at the rate seen, with the share that PostgreSQL keeps for the next checkpoint.
fn larger_wal(
    target: Option<&Target>,
    forced: &[(Moment, f64)],
    spacing: Option<f64>,
) -> Option<backwater_model::Remedy> {
    let spacing = spacing.filter(|seconds| *seconds > 0.0)?;
    let between = forced.iter().skip(1).map(|(_, wal)| *wal).reduce(f64::max)?;
    let room = between / spacing * 300.0 * 1.9;
    let predicted =
        vec![Figure::new("checkpoint_spacing_s", 300.0, Unit::Seconds, "time between forced checkpoints, about")];
    Some(checkpoint::more_wal(target, room, predicted))
}
