//! Sessions that wait for a synchronous standby, look by look, and those that wait for rows which these likely hold.
//!
//! A commit that waits for a standby keeps its locks, so that with a hot row one of them holds all other sessions. No sample
//! names the holder of a lock. A session that waits for another transaction's end (Lock:transactionid) is counted behind the
//! standby only where, at the same look, a transaction that waits for the standby is at least as old as that wait: a younger one
//! cannot be what it waits for. Sessions in line for the row after it (Lock:tuple) follow most of those at the heads of lines.

use crate::grid::{Lane, both, episodes, longest};
use crate::scene::Scene;
use crate::waits::foreground;
use backwater_model::{CommitWait, Moment, Sample, catalogue as cat};
use std::collections::HashMap;
use std::ops::Range;

/// Seconds that a commit must wait to have waited long.
const LONG_S: f64 = 0.1;
/// How far the server's clock and ours may differ between two looks, in seconds.
const SLACK_S: f64 = 0.005;
/// Share of the active sessions that must wait for the standby, those in line behind them included, to be held by it.
const HELD: f64 = 0.3;
/// Sessions that must wait for it, on average.
const SOME: f64 = 0.5;
/// Share of the looks at waiting commits by which they must have waited long.
const LASTING: f64 = 0.5;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 5;
const BRIDGE_S: usize = 2;

/// One value a second each.
pub(crate) struct SyncWaits {
    /// Share of the active sessions that wait for the standby.
    pub(crate) share: Lane,
    /// Share of the active sessions that wait for rows, likely held by those.
    pub(crate) behind: Lane,
    /// Sessions that wait for the standby, on average over the looks.
    pub(crate) waiting: Lane,
    /// Share of the looks at those by which the same commit had been seen waiting for [`LONG_S`].
    pub(crate) lasting: Lane,
    /// The longest that one commit had been seen waiting, in seconds.
    pub(crate) longest: Lane,
    /// Commits a second, read-only ones included; unknown while one of those that wait is a procedure's, which the server counts
    /// when the procedure ends.
    pub(crate) commits: Lane,
}

/// Counts of one look, or of all looks of a second.
#[derive(Clone, Copy, Default)]
struct Counts {
    looks: u32,
    active: u32,
    standby: u32,
    uncounted: u32,
    behind: u32,
    lasting: u32,
    longest_s: f64,
}

/// What a session stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// Its commit waits for a standby.
    Standby,
    /// It waits for the end of the transaction that changed its row.
    Head,
    /// It waits for its turn at a row.
    Line,
}

impl Stand {
    fn of(sample: &Sample) -> Option<Stand> {
        if CommitWait::of(sample) == Some(CommitWait::SynchronousStandby) {
            return Some(Stand::Standby);
        }
        let lock = sample.wait_event_type.as_deref() == Some("Lock");
        match sample.wait_event.as_deref().filter(|_| lock)? {
            "transactionid" => Some(Stand::Head),
            "tuple" => Some(Stand::Line),
            _ => None,
        }
    }

    /// Age in seconds of what waits: a commit waits once in its transaction, for a row once or more in a statement.
    fn age_s(self, sample: &Sample) -> Option<f64> {
        let ages = match self {
            Stand::Standby if is_many(sample) => [None, None],
            Stand::Standby => [sample.xact_age_ms, sample.query_age_ms],
            Stand::Head | Stand::Line => [sample.query_age_ms, sample.xact_age_ms],
        };
        ages.into_iter().flatten().next().map(|ms| ms as f64 / 1e3)
    }
}

/// How long each session has been seen in the same wait.
#[derive(Default)]
struct Runs(HashMap<i32, (Stand, Moment)>);

impl Runs {
    /// Takes in the next look.
    fn look(&mut self, look: &[&Sample]) -> Counts {
        let mut counts = Counts { looks: 1, ..Counts::default() };
        let mut next = HashMap::new();
        let (mut heads, mut line, mut oldest_s) = (Vec::new(), 0_u32, None::<f64>);
        for sample in look.iter().filter(|sample| foreground(sample)) {
            counts.active += 1;
            let Some(stand) = Stand::of(sample) else { continue };
            let since = self.since(stand, sample);
            next.insert(sample.pid, (stand, since));
            let seen_s = sample.at.seconds_since(since);
            let age_s = stand.age_s(sample);
            match stand {
                Stand::Standby => {
                    counts.standby += 1;
                    counts.uncounted += u32::from(is_inside(sample));
                    counts.lasting += u32::from(seen_s >= LONG_S);
                    counts.longest_s = counts.longest_s.max(seen_s);
                    oldest_s = oldest_s.into_iter().chain(age_s).reduce(f64::max);
                }
                Stand::Head => heads.push(age_s.map(|_| seen_s)),
                Stand::Line => line += 1,
            }
        }
        self.0 = next;
        let old_enough = |seen_s: &&Option<f64>| seen_s.zip(oldest_s).is_some_and(|(seen, old)| old + SLACK_S >= seen);
        let behind = heads.iter().filter(old_enough).count();
        counts.behind = behind as u32 + if 2 * behind > heads.len() { line } else { 0 };
        counts
    }

    /// Since when a session has been seen in its wait: since an earlier look where what waits is older than that.
    fn since(&self, stand: Stand, sample: &Sample) -> Moment {
        let goes_on =
            |since: Moment| stand.age_s(sample).is_some_and(|age_s| age_s + SLACK_S >= sample.at.seconds_since(since));
        let run = self.0.get(&sample.pid).filter(|(before, since)| *before == stand && goes_on(*since));
        run.map_or(sample.at, |(_, since)| *since)
    }
}

impl SyncWaits {
    /// Of one server's sessions.
    pub(crate) fn of(scene: &Scene<'_>, server: &str) -> Self {
        let mut seconds = vec![Counts::default(); scene.grid.count];
        let mut runs = Runs::default();
        let samples: Vec<&Sample> = scene.window.samples().iter().filter(|sample| *sample.target == *server).collect();
        // All samples of one look bear the same moment.
        for look in samples.chunk_by(|a, b| a.at == b.at) {
            let found = runs.look(look);
            let second = look.first().and_then(|sample| scene.grid.second(sample.at));
            if let Some(all) = second.and_then(|second| seconds.get_mut(second)) {
                all.add(found);
            }
        }
        let lane = |part: fn(&Counts) -> u32, whole: fn(&Counts) -> u32| {
            let share = |all: &Counts| (whole(all) > 0).then(|| f64::from(part(all)) / f64::from(whole(all)));
            Lane(seconds.iter().map(share).collect())
        };
        let commits = commits(scene, server);
        SyncWaits {
            share: lane(|all| all.standby, |all| all.active),
            behind: lane(|all| all.behind, |all| all.active),
            waiting: lane(|all| all.standby, |all| all.looks),
            lasting: lane(|all| all.lasting, |all| all.standby),
            longest: Lane(seconds.iter().map(|all| (all.standby > 0).then_some(all.longest_s)).collect()),
            commits: scene.grid.lane(|second| commits.get(second).filter(|_| seconds[second].uncounted == 0)),
        }
    }

    /// Share of the active sessions that wait for the standby or in line behind those.
    pub(crate) fn all(&self) -> Lane {
        self.share.with(&self.behind, |those, behind| those + behind)
    }

    /// When commits waited long and held sessions up: the longest stretch, and all such seconds.
    pub(crate) fn held(&self) -> Option<(Range<usize>, usize)> {
        let waiting = self.waiting.smooth(2);
        let by_rate =
            waiting.with(&self.commits.smooth(2), |waiting, rate| f64::from(u8::from(waiting >= LONG_S * rate)));
        let by_looks = self.lasting.smooth(2).map(|share| f64::from(u8::from(share >= LASTING)));
        // Each of the two is a lower bound.
        let long = |second| [&by_rate, &by_looks].iter().any(|lane| lane.get(second) == Some(1.0));
        let some = waiting.0.iter().enumerate().map(|(second, count)| count.is_some_and(|c| c >= SOME) && long(second));
        let held = self.all().smooth(1).flags(|share| share >= HELD);
        longest(&episodes(&both(&held, &some.collect::<Vec<_>>()), LEAST_S, BRIDGE_S))
    }
}

/// Whether a text is of several statements at once, which are one for the server: neither ages nor counts are of one of them.
fn is_many(sample: &Sample) -> bool {
    let text = sample.query.as_deref().unwrap_or_default().trim_end();
    text.trim_end_matches(';').contains(';')
}

/// Whether a commit is one inside of a statement: of CALL or DO, of several at once, or of one that is older than its transaction.
fn is_inside(sample: &Sample) -> bool {
    let word = sample.query.as_deref().and_then(|text| text.split_whitespace().next()).unwrap_or_default();
    let older = sample.query_age_ms.zip(sample.xact_age_ms).is_some_and(|(query, xact)| query > xact + 1);
    older || is_many(sample) || ["CALL", "DO"].iter().any(|of| word.eq_ignore_ascii_case(of))
}

/// Commits of all databases of a server.
fn commits(scene: &Scene<'_>, server: &str) -> Lane {
    let labels = [("target", server)];
    let tracks = scene.window.tracks(cat::PG_XACT_COMMIT.name, &labels);
    let lanes: Vec<Lane> = tracks.map(|track| scene.grid.rate(Some(track))).collect();
    scene.grid.lane(|second| lanes.iter().filter_map(|lane| lane.get(second)).reduce(|a, b| a + b))
}

impl Counts {
    fn add(&mut self, look: Counts) {
        self.looks += look.looks;
        self.active += look.active;
        self.standby += look.standby;
        self.uncounted += look.uncounted;
        self.behind += look.behind;
        self.lasting += look.lasting;
        self.longest_s = self.longest_s.max(look.longest_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(at_ms: i64, pid: i32, wait: (&str, &str), age_ms: Option<i64>) -> Sample {
        Sample {
            at: Moment(at_ms * 1_000),
            pid,
            wait_event_type: Some(wait.0.into()),
            wait_event: Some(wait.1.into()),
            query_age_ms: age_ms,
            xact_age_ms: age_ms,
            ..Sample::default()
        }
    }

    const SYNC: (&str, &str) = ("IPC", "SyncRep");
    const HEAD: (&str, &str) = ("Lock", "transactionid");
    const LINE: (&str, &str) = ("Lock", "tuple");

    /// A session at a look: its pid, its wait, its age in milliseconds.
    type Seen = (i32, (&'static str, &'static str), Option<i64>);

    /// What the last of some looks counts; each is told by its time in milliseconds and its sessions.
    fn last(looks: &[(i64, &[Seen])]) -> Counts {
        let mut runs = Runs::default();
        let mut counts = Counts::default();
        for (at_ms, sessions) in looks {
            let sample = |(pid, wait, age_ms): &Seen| session(*at_ms, *pid, *wait, *age_ms);
            let samples: Vec<Sample> = sessions.iter().map(sample).collect();
            counts = runs.look(&samples.iter().collect::<Vec<_>>());
        }
        counts
    }

    #[test]
    fn those_in_line_behind_a_commit_that_waits_are_counted() {
        let counts = last(&[
            (0, &[(1, SYNC, Some(50)), (2, HEAD, Some(40)), (3, LINE, Some(40)), (4, LINE, Some(30))]),
            (100, &[(1, SYNC, Some(150)), (2, HEAD, Some(140)), (3, LINE, Some(140)), (4, LINE, Some(130))]),
        ]);
        assert_eq!((counts.active, counts.standby, counts.behind, counts.lasting), (4, 1, 3, 1));
        assert!((counts.longest_s - 0.1).abs() < 1e-9);
    }

    #[test]
    fn commits_inside_of_a_statement_are_not_counted_as_they_come() {
        let commit = |query: &str, query_age_ms| {
            is_inside(&Sample { query: Some(query.into()), query_age_ms, ..session(0, 1, SYNC, Some(5)) })
        };
        assert!(commit("CALL my_insert(?, ?)", Some(5)) && commit("do $$ BEGIN COMMIT; END $$", Some(5)));
        assert!(commit("/* batch */ CALL my_insert(?)", Some(900)), "older than its transaction");
        assert!(
            commit("BEGIN; INSERT INTO t VALUES (?); COMMIT; BEGIN; COMMIT;", Some(5)) && !commit("COMMIT;", Some(5))
        );
        assert!(!commit("COMMIT", Some(2)) && !commit("doit()", Some(5)) && !commit("INSERT INTO t VALUES (?)", None));
    }

    #[test]
    fn without_a_commit_that_waits_or_with_younger_ones_nobody_is() {
        let alone = last(&[(0, &[(2, HEAD, Some(40)), (3, LINE, Some(40))])]);
        assert_eq!((alone.active, alone.behind), (2, 0));
        // Each look another commit, 60 ms old: none of them can hold what was waited for 200 ms ago.
        let others = last(&[
            (0, &[(1, SYNC, Some(60)), (2, HEAD, Some(40)), (3, LINE, Some(40))]),
            (100, &[(1, SYNC, Some(60)), (2, HEAD, Some(140)), (3, LINE, Some(140))]),
            (200, &[(1, SYNC, Some(60)), (2, HEAD, Some(240)), (3, LINE, Some(240))]),
        ]);
        assert_eq!((others.standby, others.behind, others.lasting), (1, 0, 0));
        // Whose age is unknown may wait for anything.
        assert_eq!(last(&[(0, &[(1, SYNC, None), (2, HEAD, None)])]).behind, 0);
    }

    #[test]
    fn lines_follow_most_of_their_heads() {
        let sessions = |other: i64| {
            last(&[
                (0, &[(1, SYNC, Some(9_000)), (2, HEAD, Some(10)), (5, HEAD, Some(other)), (6, HEAD, Some(other))]),
                (900, &[(1, SYNC, Some(100)), (2, HEAD, Some(10)), (5, HEAD, Some(other)), (6, HEAD, Some(other))]),
                (
                    910,
                    &[
                        (1, SYNC, Some(110)),
                        (2, HEAD, Some(20)),
                        (5, HEAD, Some(other)),
                        (6, HEAD, Some(other)),
                        (3, LINE, Some(40)),
                    ],
                ),
            ])
            .behind
        };
        // Two have waited for something else since the first look.
        assert_eq!(sessions(2_000), 1);
        assert_eq!(sessions(20), 4);
    }
}
