//! sync-standby-slow: commits wait for a synchronous standby for longer than a round trip and a sync take.
//!
//! That commits wait for a synchronous standby is what it is for. Slow it is when each waits a tenth of a second or more:
//! waiting sessions ÷ commits a second (Little's law), which is a lower bound, for read-only commits are counted too.

use super::draft::draft;
use super::wal_evidence::Behind;
use crate::figures::Figures;
use crate::grid::{Lane, both, episodes, longest};
use crate::remedy::replication as remedy;
use crate::replication::{primaries, standby_row, target};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{CommitWait, Confidence, Finding, Severity, Unit};

/// Share of the active sessions that must wait for the standby.
const HELD: f64 = 0.3;
/// Seconds that a commit must wait.
const LONG_S: f64 = 0.1;
/// A hop takes most of the time from this share on.
const MOST: f64 = 0.7;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 5;
const BRIDGE_S: usize = 2;
/// Share of the sessions from which it is critical.
const CRITICAL: f64 = 0.5;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>, behinds: &[Behind]) -> Vec<Finding> {
    let mut names = primaries(scene.window);
    // A primary whose only synchronous standby is away has no row of one.
    names
        .extend(scene.window.meta.targets.iter().filter(|target| wants_sync(target)).map(|target| target.name.clone()));
    names.sort();
    names.dedup();
    names.iter().filter_map(|name| of_primary(scene, behinds, name)).collect()
}

fn wants_sync(target: &backwater_model::Target) -> bool {
    target.settings.get("synchronous_standby_names").is_some_and(|names| !names.trim().is_empty())
}

fn of_primary(scene: &Scene<'_>, behinds: &[Behind], name: &str) -> Option<Finding> {
    let targets = [name.to_owned()];
    let share = scene.grid.lane(|second| {
        scene.share(&targets, &(second..second + 1), |sample| {
            CommitWait::of(sample) == Some(CommitWait::SynchronousStandby)
        })
    });
    let waiting = waiting(scene, name);
    let commits = commits(scene, name);
    let long = waiting
        .smooth(2)
        .with(&commits.smooth(2), |waiting, rate| if waiting >= 0.5 && waiting >= LONG_S * rate { 1.0 } else { 0.0 });
    let flags = both(&share.smooth(1).flags(|share| share >= HELD), &long.flags(|flag| flag > 0.5));
    let (range, seconds) = longest(&episodes(&flags, LEAST_S, BRIDGE_S))?;
    let synchronous = |behind: &&Behind| {
        let row = [("target", name), ("standby", behind.standby.name.as_str())];
        let flag = scene.grid.gauge(scene.window.track(cat::PG_REPL_SYNC.name, &row));
        behind.standby.primary.as_deref() == Some(name) && flag.mean(&range).is_some_and(|flag| flag >= 0.5)
    };
    let sync = behinds.iter().find(synchronous);
    let cause = sync.map_or("standby-missing", |behind| hop(scene, behind, &range));
    let mut finding = draft("sync-standby-slow", cause, "pg.commit", scene.grid.span(&range));
    let lost = share.mean(&range);
    finding.foreground_lost = lost;
    finding.severity = if lost.is_some_and(|share| share >= CRITICAL) { Severity::Critical } else { Severity::Warning };
    finding.confidence = if commits.known() { Confidence::High } else { Confidence::Medium };
    let rate = commits.mean(&range);
    let wait_s = waiting.mean(&range).zip(rate.filter(|rate| *rate > 0.0)).map(|(waiting, rate)| waiting / rate);
    let mut figures = Figures::default();
    figures.add("sync_wait_ratio", lost, Unit::Ratio, "active sessions that wait for the synchronous standby");
    figures.add("commit_wait_s", wait_s, Unit::Seconds, "wait of each commit, at least");
    figures.add("commits_per_s", rate, Unit::PerSecond, "commits");
    figures.add("waited_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    let each = wait_s.map(|wait| format!(", {} each at least", Unit::Seconds.show(wait))).unwrap_or_default();
    finding.summary = match sync {
        Some(behind) => format!(
            "Commits on {name} wait for synchronous standby {} ({} of the active sessions{each}).",
            behind.standby.name,
            Unit::Ratio.show(lost.unwrap_or_default())
        ),
        None => format!(
            "Commits on {name} wait for a synchronous standby, and none is connected ({} of the active sessions{each}).",
            Unit::Ratio.show(lost.unwrap_or_default())
        ),
    };
    let mut missing = Missing::default();
    missing.unless(scene.window, sync.is_none_or(|behind| behind.standby.peer.is_some()), &unseen::STANDBY);
    finding.unseen = missing.list();
    finding.remedies = remedy::of_sync(target(scene.window, name).as_ref());
    Some(finding)
}

/// Which hop takes most of the time, by the server's own lag times: they are of the present while commits are acknowledged.
fn hop(scene: &Scene<'_>, behind: &Behind, range: &std::ops::Range<usize>) -> &'static str {
    let lag = |def: &Def| {
        let primary = behind.standby.primary.as_deref()?;
        scene.grid.gauge(standby_row(scene.window, def, primary, &behind.standby.name)).median(range)
    };
    let (write, flush) = (lag(&cat::PG_REPL_WRITE_LAG), lag(&cat::PG_REPL_FLUSH_LAG));
    match (write, flush) {
        (Some(write), Some(flush)) if flush > 0.0 && write >= MOST * flush => "network",
        (Some(write), Some(flush)) if flush > 0.0 && flush - write >= MOST * flush => "standby-flush",
        _ => "standby-behind",
    }
}

/// Sessions waiting for a synchronous standby, on average over the looks of each second.
fn waiting(scene: &Scene<'_>, name: &str) -> Lane {
    let mut counts = vec![(0_u32, 0_u32, i64::MIN); scene.grid.count];
    for sample in scene.window.samples().iter().filter(|sample| *sample.target == *name) {
        let Some(count) = scene.grid.second(sample.at).and_then(|second| counts.get_mut(second)) else { continue };
        count.0 += u32::from(CommitWait::of(sample) == Some(CommitWait::SynchronousStandby));
        // All samples of one look bear the same moment.
        count.1 += u32::from(sample.at.0 != count.2);
        count.2 = sample.at.0;
    }
    Lane(counts.iter().map(|(those, looks, _)| (*looks > 0).then(|| f64::from(*those) / f64::from(*looks))).collect())
}

fn commits(scene: &Scene<'_>, name: &str) -> Lane {
    let labels = [("target", name)];
    let lanes: Vec<Lane> =
        scene.window.tracks(cat::PG_XACT_COMMIT.name, &labels).map(|track| scene.grid.rate(Some(track))).collect();
    scene.grid.lane(|second| lanes.iter().filter_map(|lane| lane.get(second)).reduce(|a, b| a + b))
}
