//! wal-removed: WAL that a standby still needs is gone from the primary. It can go on only from an archive, or be built anew.
//! And ahead of it: when that will come about, at the present rates, or when the disk is full that keeps all of it.

use super::draft::draft;
use super::wal_evidence::{Behind, away, kept_figures};
use crate::figures::Figures;
use crate::remedy::retention as remedy;
use crate::replication::{
    HOLE_S, Holder, Retention, Standby, View, has_ended, is_logical, last_read, maybe_renamed, missed_s, retention,
    standby_row, target, unread, whose,
};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{
    Confidence, Event, EventKind, Finding, Moment, Severity, Span, Track, Unit, Window, catalogue as cat,
};

/// What the walsender says when it is asked for WAL that is gone (walsender.c, `XLogSendPhysical`; xlogreader.c), and the
/// standby after it.
const REMOVED: &str = "has already been removed";
/// What the checkpointer says when it gives up a slot: 13 to 15, and 16 on.
const SLOT_GONE: [&str; 2] = ["invalidating slot \"", "invalidating obsolete replication slot \""];
/// A standby that streams so many seconds after the line has found its WAL elsewhere.
const RECOVERED_S: f64 = 5.0;
/// Rows are read once a second: a standby whose last is no older than this, beside the server's own readings, may still be there.
const UNSURE_S: f64 = 2.0;
/// The label of what is missing.
const MISSING: &str = "WAL between what it has and what is kept";
/// The server's clock and ours may differ by so much.
const CLOCKS_S: f64 = 0.5;
/// Ahead of time: from so few seconds it is a warning.
const SOON_S: f64 = 300.0;
/// The level must have grown for so many seconds, in each part of them, for a warning; or stood over the limit.
const LOOK_S: f64 = 10.0;
const PARTS: usize = 5;

/// The findings of a window: at most one a standby, and one for a server whose log does not say which standby it was.
pub(super) fn find(scene: &Scene<'_>, behinds: &[Behind]) -> Vec<Finding> {
    let mut list = slots(scene);
    for finding in removed(scene, behinds) {
        if !list.iter().any(|other| is_same(other, &finding)) {
            list.push(finding);
        }
    }
    for finding in behinds.iter().filter_map(|behind| fell_behind(scene, behind)) {
        // A lost slot, or a line without a name, may be this very standby's.
        let unnamed = finding.server.as_deref().map(|primary| format!("pg.wal.retained@{primary}"));
        let may_be = |other: &Finding| {
            other.concerns(finding.server.as_deref())
                && (other.cause == "slot-lost" || Some(&other.queue) == unnamed.as_ref())
        };
        if !list.iter().any(|other| is_same(other, &finding) || may_be(other)) {
            list.push(finding);
        }
    }
    list
}

fn is_same(one: &Finding, other: &Finding) -> bool {
    one.queue == other.queue && one.concerns(other.server.as_deref())
}

fn critical(cause: &str, queue: String, span: (Moment, Moment)) -> Finding {
    Finding { severity: Severity::Critical, confidence: Confidence::High, ..draft("wal-removed", cause, queue, span) }
}

fn removed_lines(window: &Window) -> Vec<&Event> {
    let line = |event: &&Event| event.message.contains("requested WAL segment") && event.message.contains(REMOVED);
    window.events_of(EventKind::Log).filter(line).collect()
}

/// Slots that the log alone says are gone, as the server's name and theirs.
fn slots_gone(window: &Window) -> impl Iterator<Item = (&Event, &str)> {
    window.events_of(EventKind::Log).filter_map(|event| {
        let (_, rest) = SLOT_GONE.iter().find_map(|text| event.message.split_once(text))?;
        Some((event, rest.split('"').next()?))
    })
}

/// Whose WAL a server's log says is gone, by the server's name and by what a finding calls it: a slot, or the server itself
/// where nobody knows who asked.
pub(crate) fn named_in_log(window: &Window) -> Vec<(String, String)> {
    let slots = slots_gone(window).map(|(event, slot)| (event.source.clone(), slot.to_owned()));
    slots.chain(removed_lines(window).iter().map(|line| (line.source.clone(), line.source.clone()))).collect()
}

/// What the logs themselves say, of each server's.
fn removed(scene: &Scene<'_>, behinds: &[Behind]) -> Vec<Finding> {
    let lines = removed_lines(scene.window);
    let mut sources: Vec<&str> = lines.iter().map(|line| line.source.as_str()).collect();
    sources.sort_unstable();
    sources.dedup();
    let of = |source| Some((source, removed_of(scene, behinds, &lines, source)?));
    let list: Vec<(&str, Finding)> = sources.into_iter().filter_map(of).collect();
    // A primary and its standby both say it: then it is known whose it was.
    let primaries: Vec<String> = list.iter().filter_map(|(_, finding)| finding.server.clone()).collect();
    let is_known = |source: &str| primaries.iter().any(|primary| primary == source);
    let kept = list.into_iter().filter(|(source, finding)| finding.server.is_some() || !is_known(source));
    kept.map(|(_, finding)| finding).collect()
}

/// The lines of one server's log, if no standby has streamed since.
fn removed_of(scene: &Scene<'_>, behinds: &[Behind], all: &[&Event], source: &str) -> Option<Finding> {
    let window = scene.window;
    let lines: Vec<&Event> = all.iter().copied().filter(|line| line.source == source).collect();
    let (first, last) = (lines.first()?, lines.last()?);
    let of_source = behinds.iter().filter(|behind| {
        let own = behind.standby.peer.as_ref().is_some_and(|peer| peer.target == last.source);
        own || behind.standby.primary.as_deref() == Some(&last.source)
    });
    // While it is away its primary does not know it: then the watched standby whose own log says the same, of the same segment.
    let says_so = |behind: &&Behind| {
        let peer = behind.standby.peer.as_ref().filter(|_| behind.standby.primary.is_none());
        let same = |line: &&Event| lines.iter().any(|own| segment_of(own) == segment_of(line));
        peer.is_some_and(|peer| all.iter().filter(|line| same(line)).any(|line| line.source == peer.target))
    };
    // Of several standbys, the one that is away. Who asks may be none of them: a walsender that fails at once is never read.
    let away = of_source.filter(|behind| may_have_asked(window, &behind.standby, last.at));
    let standby = away.min_by_key(|behind| last_seen(window, behind)).map(|behind| &behind.standby);
    let streams_s = standby.and_then(|standby| streams_after(window, standby, last.at));
    if streams_s.is_some_and(|seconds| seconds >= RECOVERED_S) {
        return None;
    }
    // Whether one that has just come back is over it is not known yet.
    let standby = standby.filter(|_| streams_s.is_none());
    let standby = standby.or_else(|| behinds.iter().find(says_so).map(|behind| &behind.standby));
    let name = standby.map(|standby| standby.name.clone());
    let queue = format!("pg.wal.retained@{}", name.as_deref().unwrap_or(&last.source));
    let mut finding = critical("segment-removed", queue, (first.at, window.to));
    finding.server = standby.and_then(|standby| standby.primary.clone());
    let segment = segment_of(last).unwrap_or("it needs");
    finding.summary = format!(
        "{} asks for WAL segment {segment}, which {} has removed: replication is dead until that comes from an archive, or the \
         standby is built anew.",
        name.as_deref().map_or("A standby".to_owned(), |name| format!("Standby {name}")),
        if standby.is_some_and(|standby| standby.peer.as_ref().is_some_and(|peer| peer.target == last.source)) {
            "its primary"
        } else {
            &last.source
        },
    );
    let mut figures = Figures::default();
    figures.add("lines_count", Some(lines.len() as f64), Unit::Count, "times the log says so in this window");
    finding.evidence = figures.list();
    finding.evidence.extend(position_figures(scene, standby.and_then(|s| s.primary.as_deref()), name.as_deref()));
    finding.remedies = remedy::of_removed(
        scene,
        standby.and_then(|s| s.primary.as_deref()).unwrap_or(&last.source),
        name.as_deref(),
        false,
    );
    Some(finding)
}

/// The segment that a line names, whichever server's it is.
fn segment_of(line: &Event) -> Option<&str> {
    line.message.split_whitespace().skip_while(|word| *word != "segment").nth(1)
}

fn last_seen(window: &Window, behind: &Behind) -> i64 {
    let standby = &behind.standby;
    let row =
        standby.primary.as_deref().and_then(|primary| standby_row(window, &cat::PG_REPL_SENT, primary, &standby.name));
    row.and_then(|track| track.points.last()).map_or(i64::MAX, |point| point.at.0)
}

/// Whether a line may be a standby's: its walsender has ended, as one does that says so, and the standby has not gone on under another
/// name.
fn may_have_asked(window: &Window, standby: &Standby, at: Moment) -> bool {
    let Some(primary) = standby.primary.as_deref() else { return true };
    !has_ended(window, primary, &standby.name) && !outlives(window, primary, &standby.name, at)
}

/// Whether a standby's walsender was there before a line and is after it, or still is for all that is known: while rows are not read,
/// none has ended.
fn outlives(window: &Window, primary: &str, standby: &str, at: Moment) -> bool {
    let Some(row) = standby_row(window, &cat::PG_REPL_PID, primary, standby) else { return false };
    let Some(before) = row.points.iter().rfind(|point| point.at <= at) else { return false };
    let after = row.points.iter().find(|point| point.at.seconds_since(at) >= CLOCKS_S);
    let streams = || standby_row(window, &cat::PG_REPL_STREAMING, primary, standby).and_then(Track::last) == Some(1.0);
    let unsure = || {
        let soon = last_read(window, primary).is_some_and(|read| read.seconds_since(before.at) < UNSURE_S);
        soon || unread(window, primary, View::Standbys, before.at).is_some()
    };
    after.map_or_else(|| streams() && unsure(), |after| after.value == before.value)
}

/// Seconds from a moment to when a standby was last seen to stream, where that is later.
fn streams_after(window: &Window, standby: &Standby, at: Moment) -> Option<f64> {
    let row = standby_row(window, &cat::PG_REPL_STREAMING, standby.primary.as_deref()?, &standby.name)?;
    let later = row.points.last().filter(|point| point.value > 0.0 && point.at > at)?;
    Some(later.at.seconds_since(at))
}

fn position_figures(scene: &Scene<'_>, primary: Option<&str>, standby: Option<&str>) -> Vec<backwater_model::Figure> {
    let mut figures = Figures::default();
    if let Some((primary, standby)) = primary.zip(standby) {
        let oldest = scene.window.track(cat::PG_WAL_OLDEST_KEPT.name, &[("target", primary)]).and_then(Track::last);
        let had = standby_row(scene.window, &cat::PG_REPL_FLUSH, primary, standby).and_then(Track::last);
        let missing = oldest.zip(had).map(|(oldest, had)| oldest - had).filter(|bytes| *bytes > 0.0);
        figures.add("missing_bytes", missing, Unit::Bytes, MISSING);
    }
    figures.list()
}

/// Why a slot was given up: since 17 the server says so; before 16 there was one reason.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Invalidated {
    Size,
    Rows,
    Level,
    Idle,
    Unknown,
}

impl Invalidated {
    fn of(window: &Window, server: &str, slot: &str) -> Self {
        let told = window.track(cat::PG_SLOT_INVALIDATION.name, &[("target", server), ("slot", slot)]);
        let version = || target(window, server)?.version_num;
        match told.and_then(Track::last).map(|code| code as i64) {
            Some(1) => Invalidated::Size,
            Some(2) => Invalidated::Rows,
            Some(3) => Invalidated::Level,
            Some(4) => Invalidated::Idle,
            None if version().is_some_and(|version| version < 160_000) => Invalidated::Size,
            _ => Invalidated::Unknown,
        }
    }

    /// Whether it befalls logical slots alone.
    fn of_logical_alone(self) -> bool {
        matches!(self, Invalidated::Rows | Invalidated::Level)
    }

    fn words(self) -> &'static str {
        match self {
            Invalidated::Size => {
                "has lost WAL that its standby or reader needs, for it fell behind by more than max_slot_wal_keep_size"
            }
            Invalidated::Idle => "was given up, for nobody read from it for longer than idle_replication_slot_timeout",
            Invalidated::Rows => "was given up, for rows that its reader still needed were removed",
            Invalidated::Level => "was given up, for wal_level is no longer logical",
            Invalidated::Unknown => "is lost (the server's log says why, in the DETAIL)",
        }
    }

    /// What must be done then.
    const THEN_LOGICAL: &str = "what reads from it must begin anew, with a new slot and a copy of its tables";

    fn then_physical(self) -> &'static str {
        match self {
            Invalidated::Idle => {
                "its standby goes on with a new slot while its WAL is still kept; else it must take that from an archive, or be built anew"
            }
            _ => "the standby must take what is missing from an archive, or be built anew",
        }
    }
}

/// Slots that have lost what their reader needs.
fn slots(scene: &Scene<'_>) -> Vec<Finding> {
    let window = scene.window;
    let lost = |track: Track<'_>| {
        let last = track.points.last().filter(|point| point.value == 1.0)?;
        let (target, slot) = (track.series.labels.get("target")?, track.series.labels.get("slot")?);
        let since = track.points.iter().rev().take_while(|point| point.value == 1.0).last()?.at;
        Some((target.to_owned(), slot.to_owned(), since, last.at))
    };
    let mut list: Vec<(String, String, Moment, Moment)> =
        window.tracks(cat::PG_SLOT_LOST.name, &[]).filter_map(lost).collect();
    for (event, name) in slots_gone(window) {
        if list.iter().all(|(target, slot, ..)| (target, slot.as_str()) != (&event.source, name)) {
            list.push((event.source.clone(), name.to_owned(), event.at, event.at));
        }
    }
    list.into_iter()
        .map(|(target, slot, since, _)| {
            let mut finding = critical("slot-lost", format!("pg.wal.retained@{slot}"), (since, window.to));
            let why = Invalidated::of(window, &target, &slot);
            let logical = why.of_logical_alone() || is_logical(window, &target, &slot);
            let then = if logical { Invalidated::THEN_LOGICAL } else { why.then_physical() };
            finding.summary = format!("Slot {slot} of {target} {}: {then}.", why.words());
            finding.remedies = match why {
                _ if logical => vec![remedy::of_logical(&slot)],
                Invalidated::Idle => remedy::of_idle(scene, &target, &slot),
                _ => remedy::of_removed(scene, &target, Some(&slot), true),
            };
            finding.server = Some(target);
            finding
        })
        .collect()
}

/// Without a line: the standby is away, and the oldest segment that is kept begins after the position that it had.
/// A slot keeps what its standby needs until it is lost, which it tells itself; and one that is dropped is nobody's.
fn fell_behind(scene: &Scene<'_>, behind: &Behind) -> Option<Finding> {
    let window = scene.window;
    let (primary, name) = (behind.standby.primary.as_deref()?, &behind.standby.name);
    let slot = window.track(cat::PG_SLOT_ACTIVE.name, &[("target", primary), ("slot", name)]);
    if slot.is_some() || has_ended(window, primary, name) {
        return None;
    }
    let oldest = window.track(cat::PG_WAL_OLDEST_KEPT.name, &[("target", primary)])?.points.last()?;
    let row = standby_row(window, &cat::PG_REPL_FLUSH, primary, name)?.points.last()?;
    let away = away(window, &behind.standby, row.at)?;
    let own = own_position(window, &behind.standby);
    // What it had when its row was last read is not what it has, where that is read no longer.
    if away.unread.is_some() && own.is_none() {
        return None;
    }
    let had = own.map_or(row.value, |own| own.max(row.value));
    let is_away = oldest.at.seconds_since(row.at) >= RECOVERED_S && away.seconds >= RECOVERED_S;
    if !is_away || oldest.epoch != row.epoch || oldest.value <= had {
        return None;
    }
    let mut finding = critical("behind-oldest", behind.standby.queue("retained"), (away.since, window.to));
    finding.server = Some(primary.to_owned());
    finding.confidence = if away.unread.is_some() { Confidence::Low } else { Confidence::Medium };
    finding.summary = format!(
        "Standby {name} is away, and the oldest WAL that {primary} still has begins {} after the last that it had: it cannot go \
         on without an archive.",
        Unit::Bytes.show(oldest.value - had),
    );
    let mut figures = Figures::default();
    figures.add("missing_bytes", Some(oldest.value - had), Unit::Bytes, MISSING);
    finding.evidence = figures.list();
    let mut missing = Missing::default();
    missing.unless(window, false, &unseen::SERVER_LOG);
    finding.unseen = missing.list();
    finding.unseen.extend(maybe_renamed(window, primary, name));
    finding.unseen.extend(away.unread);
    finding.remedies = remedy::of_removed(scene, primary, Some(name), false);
    Some(finding)
}

/// How far a standby has come by its own word: an archive may have brought it further than it told its primary.
fn own_position(window: &Window, standby: &Standby) -> Option<f64> {
    let peer = standby.peer.as_ref()?;
    let last = |name: &str| window.track(name, &[("target", &peer.target)]).and_then(Track::last);
    [last(cat::PG_WAL_RECEIVE.name), last(cat::PG_WAL_REPLAY.name)].into_iter().flatten().reduce(f64::max)
}

/// Warnings that within so many seconds WAL which a standby needs will be removed, or fill the disk.
pub(crate) fn approaching(scene: &Scene<'_>, names: &[(String, String)], within_s: f64) -> Vec<Finding> {
    let to = scene.window.to;
    let of = |(primary, standby): &(String, String)| {
        if has_ended(scene.window, primary, standby) {
            return None;
        }
        let kept = retention(scene.window, primary, standby, to)?;
        let left = kept.end_s().filter(|left| *left <= within_s)?;
        let growing = kept.inflow_bytes_per_s > kept.outflow_bytes_per_s;
        let is_known = is_known(scene.window, primary, standby, &kept);
        (growing && is_known && stays(scene, primary, standby, kept.limit_bytes?)).then_some(())?;
        Some(warning(scene, primary, standby, &kept, left))
    };
    names.iter().filter_map(of).collect()
}

/// Whether it is known where a standby is: it is connected, its slot tells, or it was looked for and is away.
fn is_known(window: &Window, primary: &str, standby: &str, kept: &Retention) -> bool {
    let slot = window.track(cat::PG_SLOT_RESTART.name, &[("target", primary), ("slot", standby)]);
    let row = standby_row(window, &cat::PG_REPL_FLUSH, primary, standby).and_then(|row| row.points.last());
    let missed = || row.and_then(|row| missed_s(window, primary, View::Standbys, row.at));
    let is_away = || missed().is_some_and(|missed| missed >= RECOVERED_S);
    kept.connected || slot.is_some_and(|slot| slot.at(window.to, HOLE_S).is_some()) || is_away()
}

/// Whether what is kept for a standby grew through the last seconds, or stood over its limit for all of them: a burst that has
/// ended drains by now.
fn stays(scene: &Scene<'_>, primary: &str, standby: &str, limit: f64) -> bool {
    let level = |part: usize| {
        let at = scene.window.to - Span::from_seconds(LOOK_S * part as f64 / PARTS as f64);
        retention(scene.window, primary, standby, at).map(|kept| kept.level_bytes)
    };
    let levels: Option<Vec<f64>> = (0..=PARTS).rev().map(level).collect();
    levels.is_some_and(|levels| {
        levels.windows(2).all(|pair| pair[1] > pair[0]) || levels.iter().all(|level| *level >= limit)
    })
}

fn warning(scene: &Scene<'_>, primary: &str, standby: &str, kept: &Retention, left: f64) -> Finding {
    let span = (scene.window.to - Span::from_seconds(LOOK_S), scene.window.to);
    let mut finding = draft("wal-removed", "approaching", format!("pg.wal.retained@{standby}"), span);
    finding.server = Some(primary.to_owned());
    finding.severity = if left <= SOON_S { Severity::Warning } else { Severity::Info };
    let mut figures = Figures::default();
    kept_figures(kept, &mut figures);
    figures.add("checkpoint_interval_s", kept.checkpoint_interval_s, Unit::Seconds, "from one checkpoint to the next");
    finding.evidence = figures.list();
    let left = Unit::Seconds.show(left);
    let end = match kept.holder {
        Holder::Disk => format!("all of it is kept, and in {left} the volume of WAL is full and the primary stops."),
        _ => format!("in {left} a checkpoint will remove some of that, and replication dies."),
    };
    finding.summary = format!(
        "{} still needs {} of WAL, {} more is made each second than it takes: {end}",
        whose(scene.window, primary, standby),
        Unit::Bytes.show(kept.level_bytes),
        Unit::Bytes.show((kept.inflow_bytes_per_s - kept.outflow_bytes_per_s).max(0.0)),
    );
    finding.remedies = remedy::of_retention(scene, primary, standby, kept);
    finding
}
