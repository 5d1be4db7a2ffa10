//! `pg.commit` as a queue: who waits in it, and for how long by Little's law (J. D. C. Little, 1961: waiting = arrivals a
//! second × time each waits), over writing commits only. A session that only reads commits without waiting, so it must not
//! count among the arrivals. The server counts those too, and commits of a procedure not until it ends: its count bounds the rate
//! where it moves, and is none here ([`ages`](super::ages) says what tells it instead).
//!
//! It is the time in waits alone. A client's clock has in it what a commit computes and the way there and back as well, so that it
//! is the upper bound of this one, and no second measurement of the same.

use super::ages::{commits_per_s, most_per_s};
use super::sleep_ratio;
use super::tally::contested_share;
use crate::waits::foreground;
use backwater_model::{CommitWait, Moment, Sample, Span, Window, catalogue as cat};
use serde::Serialize;
use std::collections::BTreeMap;

/// How long a break between two looks may be, in usual periods, before it counts as a hole in the recording.
const HOLE_PERIODS: f64 = 5.0;

/// Who counted the commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counting {
    /// The lab's own clients, each commit of which writes.
    Clients,
    /// The ages of the transactions of each session that waits for commits.
    TransactionAges,
}

/// Writing commits a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CommitRate {
    /// So many.
    pub per_s: f64,
    /// By whose count.
    pub counting: Counting,
}

/// One flavour of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FlavourShare {
    /// Which.
    #[serde(serialize_with = "by_name")]
    pub wait: CommitWait,
    /// Sessions in it, on average.
    pub sessions: f64,
    /// Share of the active client sessions' time.
    pub session_time_ratio: f64,
}

fn by_name<S: serde::Serializer>(wait: &CommitWait, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(wait.name())
}

/// The commit queue of one server over a stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommitQueue {
    /// The server.
    pub target: String,
    /// How often was looked.
    pub looks: usize,
    /// Client sessions in the commit path, on average: the queue's level.
    pub waiting: f64,
    /// Share of the active client sessions' time.
    pub session_time_ratio: f64,
    /// Share of those that wait in which the kernel says that the process runs, of those that it was asked about.
    pub contested_ratio: Option<f64>,
    /// The flavours seen, the largest first.
    pub flavours: Vec<FlavourShare>,
    /// Writing commits a second: the queue's outflow.
    pub commits: Option<CommitRate>,
    /// How long a commit waits by Little's law, in milliseconds; none where writing commits cannot be counted.
    pub residence_ms: Option<f64>,
    /// How long a commit took by the clients' own clocks, in milliseconds, computing and the way included: what the residence is a
    /// part of.
    pub measured_ms: Option<f64>,
}

/// The commit queue of a server; none where it was not looked at, or no client session was ever active.
pub fn commit_queue(window: &Window, target: &str) -> Option<CommitQueue> {
    commit_queue_of(window, target, |_| true)
}

/// The same of some of its sessions, which a test names: where the commits of those alone are counted, what others wait for is no
/// part of it.
pub fn commit_queue_of(window: &Window, target: &str, test: impl Fn(&Sample) -> bool) -> Option<CommitQueue> {
    let own = |sample: &&Sample| *sample.target == *target && foreground(sample) && test(sample);
    let samples: Vec<&Sample> = window.samples().iter().filter(own).collect();
    let looks = looks(window, target)?;
    if samples.is_empty() {
        return None;
    }
    let functions_seen = samples.iter().any(|sample| sample.kernel_wait.is_some());
    let waits: Vec<(CommitWait, &Sample)> =
        samples.iter().filter_map(|sample| Some((CommitWait::of(sample)?, *sample))).collect();
    let waiting = waits.len() as f64 / looks as f64;
    let of = |wait: CommitWait| {
        let count = waits.iter().filter(|(own, _)| *own == wait).count() as f64;
        FlavourShare { wait, sessions: count / looks as f64, session_time_ratio: count / samples.len() as f64 }
    };
    let mut flavours: Vec<FlavourShare> =
        CommitWait::ALL.into_iter().map(of).filter(|share| share.sessions > 0.0).collect();
    flavours.sort_by(|a, b| b.sessions.total_cmp(&a.sessions));
    let commits = commit_rate(window, target, &samples, looks);
    Some(CommitQueue {
        target: target.to_owned(),
        looks,
        waiting,
        session_time_ratio: waits.len() as f64 / samples.len() as f64,
        contested_ratio: contested_share(waits.iter().map(|(_, sample)| *sample), functions_seen),
        flavours,
        residence_ms: commits.map(|rate| accounted(window, &waits, &samples) / looks as f64 / rate.per_s * 1e3),
        commits,
        measured_ms: measured_ms(window),
    })
}

/// Looks at which somebody waited for a commit, as far as the processor time of each leaves room for them ([`sleep_ratio`]).
fn accounted(window: &Window, waits: &[(CommitWait, &Sample)], samples: &[&Sample]) -> f64 {
    let mut sessions: BTreeMap<i32, (f64, Vec<&Sample>)> = BTreeMap::new();
    waits.iter().for_each(|(_, sample)| sessions.entry(sample.pid).or_default().0 += 1.0);
    for sample in samples {
        if let Some((_, own)) = sessions.get_mut(&sample.pid) {
            own.push(sample);
        }
    }
    sessions.values().map(|(count, own)| count * sleep_ratio(window, own).unwrap_or(1.0)).sum()
}

/// How often a server's sessions were looked at in a window: once for each count of them, or answer it gave; where that was not recorded, as
/// often as the usual distance of looks that found somebody fits into the time from the first to the last of them. None where
/// nobody looked.
pub fn looks(window: &Window, target: &str) -> Option<usize> {
    let Some(looks) = look_times(window, target, (window.from, window.to)) else {
        return expected_looks(&look_moments(window, target));
    };
    // Sessions are put down when the answer came, a moment after the look began: the first may have begun before the window,
    // and the last have been answered after it.
    let first = window.samples().iter().find(|sample| *sample.target == *target);
    let before = first.is_some_and(|sample| looks.first().is_some_and(|look| sample.at < *look));
    let after =
        looks.last().is_some_and(|look| *look + Span::from_seconds(response_s(window, target, *look)) > window.to);
    Some(looks.len() + usize::from(before) - usize::from(after))
}

/// When a server's sessions, or its threads, were looked at in this time, as far as that was recorded; none where it was not. A look counts
/// sessions where its role sees all, and has an answer where it asked.
pub fn look_times(window: &Window, target: &str, (from, to): (Moment, Moment)) -> Option<Vec<Moment>> {
    let of = |def: &cat::Def| {
        let points = window.track(def.name, &[("target", target)]).map(|track| track.between(from, to).points);
        points.unwrap_or_default().iter().map(|point| point.at).collect::<Vec<Moment>>()
    };
    let mut looks = [of(&cat::PG_SESSIONS_ACTIVE), of(&cat::PG_PROBE_RESPONSE)].concat();
    looks.sort_unstable();
    looks.dedup();
    let looks = if looks.is_empty() { of(&cat::THREADS_LOOKED) } else { looks };
    (!looks.is_empty()).then_some(looks)
}

/// How long the server took to answer the look of this moment; zero where it was not asked.
fn response_s(window: &Window, target: &str, at: Moment) -> f64 {
    let track = window.track(cat::PG_PROBE_RESPONSE.name, &[("target", target)]);
    let answer = track.and_then(|track| track.points.iter().rev().find(|point| point.at <= at).copied());
    answer.filter(|answer| answer.at == at).map_or(0.0, |answer| answer.value * 1e-6)
}

/// When a server's sessions were looked at; where looks were not recorded, when somebody was seen.
pub(super) fn look_moments(window: &Window, target: &str) -> Vec<Moment> {
    if let Some(looks) = look_times(window, target, (window.from, window.to)) {
        return looks;
    }
    let own = window.samples().iter().filter(|sample| *sample.target == *target);
    let mut moments: Vec<Moment> = own.map(|sample| sample.at).collect();
    moments.dedup();
    moments
}

/// Looks that these moments, at which somebody was seen, stand for: those that found nobody have no moment. None for none.
pub(super) fn expected_looks(moments: &[Moment]) -> Option<usize> {
    let (first, last) = (moments.first()?, moments.last()?);
    let mut steps: Vec<i64> = moments.windows(2).map(|pair| (pair[1] - pair[0]).0).collect();
    steps.sort_unstable();
    let Some(usual) = steps.get(steps.len() / 2).copied().filter(|usual| *usual > 0) else {
        return Some(moments.len());
    };
    // A hole in the recording is no look that found nobody.
    let holes = |step: &&i64| **step as f64 > usual as f64 * HOLE_PERIODS;
    let missed: i64 = steps.iter().filter(holes).map(|step| step - usual).sum();
    let span = Span((*last - *first).0 - missed);
    Some(((span.0 as f64 / usual as f64).round() as usize + 1).max(moments.len()))
}

/// Writing commits a second of those of these sessions that wait for commits, by the surest count there is.
pub(crate) fn commit_rate(window: &Window, target: &str, samples: &[&Sample], looks: usize) -> Option<CommitRate> {
    let rate = |per_s: f64, counting| (per_s > 0.0).then_some(CommitRate { per_s, counting });
    if let Some(load) = window.track(cat::LOAD_COMPLETED.name, &[]) {
        return rate(load.between(window.from, window.to).rate()?, Counting::Clients);
    }
    let most = most_per_s(window, target, samples).unwrap_or(f64::INFINITY);
    rate(commits_per_s(samples, looks)?.min(most), Counting::TransactionAges)
}

/// How long a commit took by the clients' own clocks.
fn measured_ms(window: &Window) -> Option<f64> {
    let rate = |def: &cat::Def| window.track(def.name, &[])?.between(window.from, window.to).increase();
    let (us, commits) = (rate(&cat::LOAD_COMMIT_US)?, rate(&cat::LOAD_COMPLETED)?);
    (commits > 0.0).then(|| us / commits / 1e3)
}
