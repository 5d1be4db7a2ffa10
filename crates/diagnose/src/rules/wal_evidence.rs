//! What the findings about WAL and standbys have in common: the figures of every hop, how bad it is, what suffers; and
//! whether a standby is away.

use super::draft::draft;
use crate::commit::StandbyLevel;
use crate::device::DeviceView;
use crate::figures::Figures;
use crate::grid::Lane;
use crate::replication::{
    HOLE_S, Holder, Lag, Lags, Retention, Standby, View, candidates, down_since, missed_s, retention_since, standbys,
    synchronous, target_at, unread,
};
use crate::scene::Scene;
use backwater_model::{CommitWait, Figure, Finding, Moment, Severity, Track, Unit, Unseen, Window, catalogue as cat};
use std::ops::Range;

/// A standby and where it falls behind.
pub(super) struct Behind {
    pub(super) standby: Standby,
    pub(super) lags: Lags,
}

/// WAL that will be gone within so many seconds makes a lag critical.
const SOON_S: f64 = 600.0;
/// Share of the active sessions that must wait for a synchronous standby for its lag to be critical.
const HELD: f64 = 0.3;
/// Share of a stretch in which commits must need a standby's answer for their waits to be for it.
const NEEDED: f64 = 0.5;

/// That a standby is away.
pub(super) struct Away {
    /// Since it was last seen, or since something else tells it.
    pub(super) since: Moment,
    /// For so many seconds, as far as that is known.
    pub(super) seconds: f64,
    /// Why its row is not read, where something else tells that it is away.
    pub(super) unread: Option<Unseen>,
}

/// Whether a standby is away whose row was last read at a moment: it was read for without being there. Where its row is not read any
/// more, by its own word, that it does not stream; else by its slot, that nobody reads from it.
pub(super) fn away(window: &Window, standby: &Standby, row: Moment) -> Option<Away> {
    let primary = standby.primary.as_deref()?;
    if let Some(seconds) = missed_s(window, primary, View::Standbys, row) {
        return Some(Away { since: row, seconds, unread: None });
    }
    let unread = unread(window, primary, View::Standbys, row)?;
    let is_read = |track: &Track<'_>| track.at(window.to, HOLE_S).is_some();
    let own = || window.track(cat::PG_RECEIVER_STREAMING.name, &[("target", &standby.peer.as_ref()?.target)]);
    let slot = || window.track(cat::PG_SLOT_ACTIVE.name, &[("target", primary), ("slot", &standby.name)]);
    let flag = own().filter(is_read).or_else(slot)?;
    let since = down_since(window, flag)?.max(row);
    Some(Away { since, seconds: flag.points.last()?.at.seconds_since(since), unread: Some(unread) })
}

/// A finding about one standby that falls behind, with the figures of all hops, its severity and its victims.
pub(super) fn of_lag(scene: &Scene<'_>, behind: &Behind, rule: &str, cause: &str, hop: &str, lag: &Lag) -> Finding {
    let range = &lag.range;
    let standby = &behind.standby;
    let mut finding = draft(rule, cause, standby.queue(hop), scene.grid.span(range));
    let mut figures = lag_figures(scene, standby, range);
    figures.add("behind_s", Some(lag.seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    let held = sync_held(scene, standby, hop, range);
    let left = finding.figure("removal_left_s").or_else(|| finding.figure("full_left_s"));
    let critical = held.is_some_and(|share| share >= HELD) || left.is_some_and(|left| left <= SOON_S);
    finding.severity = if critical { Severity::Critical } else { Severity::Warning };
    finding.foreground_lost = held;
    finding.victims = victims(standby, hop, held.is_some_and(|share| share > 0.0));
    // What is received already is kept for it no longer.
    if finding.figure("retained_bytes") == Some(0.0) {
        finding.victims.retain(|queue| *queue != standby.queue("retained"));
    }
    finding
}

/// Share of the active sessions whose commits wait for this hop of a standby, where they need its answer.
fn sync_held(scene: &Scene<'_>, standby: &Standby, hop: &str, range: &Range<usize>) -> Option<f64> {
    let primary = standby.primary.clone()?;
    synchronous::needed_during(scene, &primary, &standby.name).mean(range).filter(|share| *share >= NEEDED)?;
    // A standby answers when it has flushed; what it has replayed is waited for with remote_apply alone.
    let (from, _) = scene.grid.span(range);
    let applies = || {
        let level = target_at(scene.window, &primary, from).as_ref().and_then(StandbyLevel::of);
        level == Some(StandbyLevel::Applied)
    };
    if hop == "standby_replay" && !applies() {
        return None;
    }
    scene.share(&[primary], range, |sample| CommitWait::of(sample) == Some(CommitWait::SynchronousStandby))
}

fn victims(standby: &Standby, hop: &str, commits: bool) -> Vec<String> {
    let hops = ["send", "standby_write", "standby_flush", "standby_replay"];
    // What waits to be sent only the primary tells.
    let told = |name: &&&str| standby.primary.is_some() || **name != "send";
    let upstream = hops.iter().take_while(|name| **name != hop).filter(told).map(|name| standby.queue(name));
    // Replay has no bounded queue before it: what waits there holds nobody upstream.
    let upstream = upstream.filter(|_| hop != "standby_replay");
    let retained = standby.primary.as_ref().map(|_| standby.queue("retained"));
    upstream.chain(retained).chain(commits.then(|| "pg.commit".to_owned())).collect()
}

/// The article's columns and what follows from them: delays behind the head of WAL at their highest, rates, time left.
pub(super) fn lag_figures(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>) -> Figures {
    let hops = &standby.hops;
    let mut figures = Figures::default();
    let local = hops.buffers.with(&hops.local_flush, |a, b| a + b);
    let add = |a: &Lane, b: &Lane| a.with(b, |a, b| a + b);
    let sent = add(&local, &hops.send);
    let shown = &hops.shown;
    let written = add(&sent, &shown.in_flight);
    let flushed = add(&written, &shown.standby_flush);
    let replayed = add(&flushed, &shown.replay);
    figures.add("generated_bytes_per_s", hops.generated.mean(range), Unit::BytesPerSecond, "WAL made on the primary");
    figures.add("sent_bytes_per_s", hops.sent_rate.mean(range), Unit::BytesPerSecond, "WAL sent");
    figures.add(
        "flushed_bytes_per_s",
        hops.received_rate.mean(range),
        Unit::BytesPerSecond,
        "WAL flushed by the standby",
    );
    figures.add("replayed_bytes_per_s", hops.replayed_rate.mean(range), Unit::BytesPerSecond, "WAL replayed");
    figures.add("sent_delay_bytes", sent.max(range), Unit::Bytes, "made, not yet sent, at most");
    let mut most = |name: &str, level: &Lane, label: &str| shown.add_most(&mut figures, name, level, label, range);
    most("write_delay_bytes", &written, "made, not yet written by the standby");
    most("flush_delay_bytes", &flushed, "made, not yet flushed by the standby");
    most("replay_delay_bytes", &replayed, "made, not yet replayed");
    most("stream_lag_bytes", &shown.stream, "flushed here and not on the standby");
    most("replay_lag_bytes", &shown.replay, "flushed by the standby, not yet replayed");
    figures.add("unsent_bytes", hops.send.max(range), Unit::Bytes, "flushed, not yet sent, at most");
    figures.add(
        "stream_lag_s",
        residence(&hops.stream, &hops.received_rate, range),
        Unit::Seconds,
        "time until the standby has what is flushed here, at its rate",
    );
    retention_figures(scene, standby, range, &mut figures);
    figures
}

/// Level ÷ outflow over the last seconds of a stretch.
pub(super) fn residence(level: &Lane, outflow: &Lane, range: &Range<usize>) -> Option<f64> {
    let end = range.end.saturating_sub(5).max(range.start)..range.end;
    let rate = outflow.mean(&end).filter(|rate| *rate > 0.0)?;
    Some(level.mean(&end)? / rate)
}

fn retention_figures(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>, figures: &mut Figures) {
    let Some(primary) = standby.primary.as_deref() else { return };
    let Some(kept) = retention_since(scene.window, primary, &standby.name, scene.grid.span(range)) else { return };
    kept_figures(&kept, figures);
}

/// What is kept for a standby or by a slot, and for how long: until WAL is removed, or until the disk that keeps it all is full.
pub(super) fn kept_figures(kept: &Retention, figures: &mut Figures) {
    figures.add("retained_bytes", Some(kept.level_bytes), Unit::Bytes, "WAL that it still needs");
    figures.add("retained_limit_bytes", kept.limit_bytes, Unit::Bytes, "what that may come to");
    let mut left = |name, value, label| figures.add(name, value, Unit::Seconds, label);
    if kept.holder == Holder::Disk {
        left("full_left_s", kept.earliest_s, "until the volume of WAL is full and the primary stops");
    } else {
        left("retention_left_s", kept.earliest_s, "until WAL that it needs may be removed");
        left("removal_left_s", kept.removal_s, "until the checkpoint that will remove it");
    }
}

/// Figures of the connection over a stretch.
pub(super) fn tcp_figures(standby: &Standby, range: &Range<usize>) -> Vec<Figure> {
    let tcp = &standby.tcp;
    let mut figures = Figures::default();
    if let Some(shares) = tcp.shares(range) {
        figures.add("tcp_busy_ratio", Some(shares.busy), Unit::Ratio, "time in which the connection had data to send");
        figures.add("rwnd_limited_ratio", Some(shares.rwnd), Unit::Ratio, "time in which the standby's window held it");
        figures.add(
            "sndbuf_limited_ratio",
            Some(shares.sndbuf),
            Unit::Ratio,
            "time in which the own send buffer held it",
        );
    }
    let again = tcp.retransmits.mean(range).zip(tcp.segments.mean(range).filter(|sent| *sent > 0.0));
    figures.add("retransmitted_ratio", again.map(|(again, sent)| again / sent), Unit::Ratio, "segments sent again");
    figures.add("tcp_notsent_bytes", tcp.notsent.mean(range), Unit::Bytes, "in the send buffer, not yet sent");
    figures.add("acked_bytes_per_s", tcp.acked.mean(range), Unit::BytesPerSecond, "acknowledged by the standby's host");
    figures.add("min_rtt_ms", tcp.min_rtt_s.median(range).map(|s| s * 1e3), Unit::Milliseconds, "smallest round trip");
    figures.add("peer_window_bytes", tcp.window.median(range), Unit::Bytes, "window that the standby offers");
    figures.list()
}

/// A rate as people read it, or that it is unknown.
pub(super) fn rate(lane: &Lane, range: &Range<usize>) -> String {
    lane.mean(range).map_or("an unknown rate".to_owned(), |value| Unit::BytesPerSecond.show(value))
}

/// The highest level as people read it.
pub(super) fn most(lane: &Lane, range: &Range<usize>) -> String {
    lane.max(range).map_or("an unknown amount".to_owned(), |value| Unit::Bytes.show(value))
}

/// Queues that a full device holds up: commits of the servers on it; of a standby, which has none, its flushing and replaying.
pub(super) fn held_by_device(scene: &Scene<'_>, device: &DeviceView) -> Vec<String> {
    let followers = candidates(scene.window);
    if device.targets.is_empty() || device.targets.iter().any(|target| !followers.contains(target)) {
        return vec!["pg.commit".to_owned()];
    }
    let own = |standby: &Standby| standby.peer.as_ref().is_some_and(|peer| device.targets.contains(&peer.target));
    let queues = |standby: Standby| ["standby_flush", "standby_replay"].map(|hop| standby.queue(hop));
    standbys(scene).into_iter().filter(own).flat_map(queues).collect()
}
