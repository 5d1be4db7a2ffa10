//! sync-standby-slow: commits wait for a synchronous standby for longer than a round trip and a sync take.
//!
//! That commits wait for a synchronous standby is what it is for. Slow it is when each waits a tenth of a second or more: either
//! waiting sessions ÷ commits a second (Little's law) says so, a lower bound, for read-only commits are counted too; or the same
//! commits are seen waiting look after look. Sessions that wait for rows which such commits likely hold are counted beside.

use super::draft::draft;
use super::relate::Symptom;
use super::wal_evidence::Behind;
use crate::figures::Figures;
use crate::remedy::replication as remedy;
use crate::replication::synchronous::{self, Lack};
use crate::replication::{Doing, Standby, SyncWaits, View, activity, primaries, standby_row, target, unread_between};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Confidence, Finding, Severity, Unit, Unseen};
use std::ops::Range;

/// A hop takes most of the time from this share on.
const MOST: f64 = 0.7;
/// A standby is slow to take what arrives from this share of the time on.
const LATE: f64 = 0.5;
/// Share of the sessions from which it is critical.
const CRITICAL: f64 = 0.5;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>, behinds: &[Behind]) -> Vec<Symptom> {
    let mut names = primaries(scene.window);
    // A primary whose only synchronous standby is away has no row of one.
    let wanting = scene.window.meta.targets.iter().filter(|target| synchronous::wants(target));
    names.extend(wanting.map(|target| target.name.clone()));
    names.sort();
    names.dedup();
    let of = |server: String| of_primary(scene, behinds, &server).map(|finding| Symptom { server, finding });
    names.into_iter().filter_map(of).collect()
}

/// Whom the commits wait for.
enum Awaited<'a> {
    /// This standby, the first of those connected without which commits cannot end.
    Standby(&'a Behind),
    /// One that is not there.
    Missing(Lack),
    /// Which is not seen, or is any of a quorum.
    Unknown,
}

fn of_primary(scene: &Scene<'_>, behinds: &[Behind], name: &str) -> Option<Finding> {
    let waits = SyncWaits::of(scene, name);
    let (range, seconds) = waits.held()?;
    let commits = &waits.commits;
    let awaited = awaited(scene, behinds, name, &range);
    let cause = match &awaited {
        Awaited::Standby(behind) => hop(scene, behind, &range),
        Awaited::Missing(_) => "standby-missing",
        Awaited::Unknown => "standby-behind",
    };
    let mut finding = draft("sync-standby-slow", cause, "pg.commit", scene.grid.span(&range));
    finding.server = Some(name.to_owned());
    let lost = waits.share.mean(&range);
    let behind = waits.behind.mean(&range).filter(|share| *share > 0.0);
    finding.foreground_lost = lost;
    let held = lost.unwrap_or_default() + behind.unwrap_or_default();
    finding.severity = if held >= CRITICAL { Severity::Critical } else { Severity::Warning };
    finding.confidence = if commits.known() { Confidence::High } else { Confidence::Medium };
    let rate = commits.mean(&range);
    // Of the seconds in which commits are counted as they come.
    let waiting = waits.waiting.with(commits, |waiting, _| waiting).mean(&range);
    let each_s = waiting.zip(rate.filter(|rate| *rate > 0.0)).map(|(waiting, rate)| waiting / rate);
    let longest_s = waits.longest.max(&range).filter(|seconds| *seconds > 0.0);
    let mut figures = Figures::default();
    figures.add("sync_wait_ratio", lost, Unit::Ratio, "active sessions that wait for the synchronous standby");
    figures.add("row_wait_behind_ratio", behind, Unit::Ratio, "more that wait for rows, likely held by those");
    figures.add("commit_wait_s", each_s, Unit::Seconds, "wait of each commit, at least");
    figures.add("longest_wait_s", longest_s, Unit::Seconds, "longest wait of one commit that was seen, at least");
    figures.add("commits_per_s", rate, Unit::PerSecond, "commits, read-only ones included");
    figures.add("waited_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    finding.summary = summary(name, &awaited, lost, behind, (each_s, longest_s));
    finding.unseen = unseen(scene, name, &awaited, behind.is_some());
    finding.unseen.extend(unread_between(scene.window, name, View::Standbys, scene.grid.span(&range)));
    let settings = target(scene.window, name);
    finding.remedies = match awaited {
        Awaited::Missing(_) => vec![remedy::of_missing(settings.as_ref())],
        _ => remedy::of_sync(settings.as_ref()),
    };
    Some(finding)
}

fn awaited<'a>(scene: &Scene<'_>, behinds: &'a [Behind], name: &str, range: &Range<usize>) -> Awaited<'a> {
    if let Some(lack) = synchronous::lack(scene, name, range) {
        return Awaited::Missing(lack);
    }
    let is_needed = |behind: &&Behind| {
        let share = || synchronous::needed_during(scene, name, &behind.standby.name).mean(range);
        behind.standby.primary.as_deref() == Some(name) && share().is_some_and(|share| share >= 0.5)
    };
    behinds.iter().find(is_needed).map_or(Awaited::Unknown, Awaited::Standby)
}

/// One or two sentences. `each` is the mean wait of a commit and the longest of one, where known: lower bounds both.
fn summary(
    name: &str,
    awaited: &Awaited<'_>,
    lost: Option<f64>,
    behind: Option<f64>,
    each: (Option<f64>, Option<f64>),
) -> String {
    let whom = match awaited {
        Awaited::Standby(behind) => format!("synchronous standby {}", behind.standby.name),
        Awaited::Missing(Lack { connected: 0, .. }) => "a synchronous standby, and none is connected".to_owned(),
        Awaited::Missing(Lack { connected, wanted }) => {
            format!("synchronous standbys: {wanted} must answer, {connected} connected")
        }
        Awaited::Unknown => "a synchronous standby".to_owned(),
    };
    let wait = match each {
        (mean_s, Some(one_s)) if mean_s.is_none_or(|mean_s| one_s > mean_s) => {
            format!(", one commit for {} at least", Unit::Seconds.show(one_s))
        }
        (Some(mean_s), _) => format!(", {} each at least", Unit::Seconds.show(mean_s)),
        _ => String::new(),
    };
    let lost = Unit::Ratio.show(lost.unwrap_or_default());
    let mut text = format!("Commits on {name} wait for {whom} ({lost} of the active sessions{wait}).");
    if let Some(share) = behind {
        let share = Unit::Ratio.show(share);
        text.push_str(&format!(" {share} more wait for rows, likely held by transactions that wait so."));
    }
    text
}

fn unseen(scene: &Scene<'_>, name: &str, awaited: &Awaited<'_>, behind: bool) -> Vec<Unseen> {
    let seen = match awaited {
        Awaited::Standby(behind) => behind.standby.peer.is_some(),
        Awaited::Missing(_) => true,
        Awaited::Unknown => synchronous::readable(scene, name),
    };
    let mut missing = Missing::default();
    missing.unless(scene.window, seen, &unseen::STANDBY);
    let mut list = missing.list();
    list.extend(behind.then(|| Unseen {
        what: "who holds the rows that sessions wait for".to_owned(),
        why: "samples of sessions name no blocker, and leave out sessions idle in a transaction".to_owned(),
        remedy: Some(
            "SELECT pid, pg_blocking_pids(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'".to_owned(),
        ),
    }));
    list
}

/// Which hop takes most of the time, by the server's own lag times: they are of the present while commits are acknowledged.
fn hop(scene: &Scene<'_>, behind: &Behind, range: &Range<usize>) -> &'static str {
    let lag = |def: &Def| {
        let primary = behind.standby.primary.as_deref()?;
        scene.grid.gauge(standby_row(scene.window, def, primary, &behind.standby.name)).median(range)
    };
    let (write, flush) = (lag(&cat::PG_REPL_WRITE_LAG), lag(&cat::PG_REPL_FLUSH_LAG));
    match (write, flush) {
        (Some(write), Some(flush)) if flush > 0.0 && write >= MOST * flush => {
            if takes_late(scene, &behind.standby, range) { "standby-behind" } else { "network" }
        }
        (Some(write), Some(flush)) if flush > 0.0 && flush - write >= MOST * flush => "standby-flush",
        _ => "standby-behind",
    }
}

/// Whether the standby is slow to take what has arrived, which the same lag time holds: its walreceiver waits for storage, or what
/// was sent stands in front of it though the way is short.
fn takes_late(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>) -> bool {
    let stores = |doing: &Doing| matches!(doing, Doing::WalWrite | Doing::Data);
    let writes = standby
        .peer
        .as_ref()
        .and_then(|peer| activity(scene.window, &scene.grid, &peer.target, "walreceiver", None, range).share(stores));
    let shares = standby.tcp.shares(range);
    let stands = shares.is_some_and(|shares| shares.rwnd >= LATE) && !standby.tcp.window_bound(range);
    stands || writes.is_some_and(|share| share >= LATE)
}
