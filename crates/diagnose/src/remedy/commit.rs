//! What makes commits cheaper: fewer of them, or not waiting for each; and what each of these risks.

use crate::commit::StandbyLevel;
use backwater_model::{Activation, Figure, Remedy, Unit};

/// What remedies for expensive commits rest on.
pub(crate) struct Cost {
    /// Share of the job's time that commits take, at least, as surely as so many samples tell: what is promised rests on it.
    pub(crate) share: f64,
    /// Rows of each transaction now, where that is known.
    pub(crate) rows_per_commit: Option<f64>,
    /// Commits a second now, where that is known.
    pub(crate) commits_per_s: Option<f64>,
    /// Sessions that wait in commits at once, on average.
    pub(crate) waiting: f64,
    /// How long a commit waits, in milliseconds, where that is known.
    pub(crate) residence_ms: Option<f64>,
    /// Who writes, where all are one.
    pub(crate) user: Option<String>,
    /// Whether commits wait for a synchronous standby.
    pub(crate) standby: bool,
    /// How far that one must have come, by the server's settings.
    pub(crate) level: Option<StandbyLevel>,
    /// What its flush takes after its write, in milliseconds, where that is known.
    pub(crate) standby_flush_ms: Option<f64>,
    /// Share of the job's time in writes and syncs to the server's own disk, at most, as surely as so many samples tell; 0 where it is
    /// not waited for.
    pub(crate) local_share: f64,
}

/// How the command of a remedy begins that is a change of the program, and of one that sets synchronous_commit.
const IN_PROGRAM: &str = "in the program: ";
const SET_LEVEL: &str = "SET synchronous_commit = ";

/// What a remedy for expensive commits turns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turns {
    /// Rows of each transaction.
    Rows,
    /// synchronous_commit, to this value.
    SynchronousCommit(String),
}

/// What a remedy for expensive commits turns; none where that is something else.
pub fn turns(remedy: &Remedy) -> Option<Turns> {
    let level = remedy.runtime.iter().find_map(|line| line.strip_prefix(SET_LEVEL)?.split(';').next());
    let rows = || remedy.persistent.iter().any(|line| line.starts_with(IN_PROGRAM)).then_some(Turns::Rows);
    level.map(|value| Turns::SynchronousCommit(value.to_owned())).or_else(rows)
}

/// Commits may take this share of a row's time: then larger batches no longer pay.
const WORTH: f64 = crate::commit::WITHIN;

impl Cost {
    /// How many times as many rows a commit should have: commits then take [`WORTH`] of the rows' time. Both costs follow from
    /// the shares: a commit costs share ÷ (1 − share) of the rows before it.
    pub(crate) fn factor(&self) -> f64 {
        (self.share / (1.0 - self.share).max(0.01) / WORTH).max(1.0)
    }

    /// The batch size at which larger ones no longer pay, rounded up to two digits.
    pub(crate) fn knee_rows(&self) -> Option<f64> {
        self.rows_per_commit.map(|rows| round_up(rows * self.factor()))
    }

    /// Time needed then, as a share of now, at most.
    pub(crate) fn elapsed_ratio(&self) -> f64 {
        ((1.0 - self.share) * (1.0 + WORTH)).min(1.0)
    }
}

/// What a share is at least that was seen in `count` of `all` samples: the lower end of Wilson's score interval, one-sided at
/// 90 % (E. B. Wilson, JASA 22, 1927). Where nearly all samples wait, the few that do not say little of how few they are.
pub(crate) fn at_least(count: usize, all: usize) -> f64 {
    const Z: f64 = 1.2816;
    let n = all.max(1) as f64;
    let share = count as f64 / n;
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((share + Z * Z / (2.0 * n) - half) / (1.0 + Z * Z / n)).clamp(0.0, share)
}

/// What a share is at most that was seen in `count` of `all` samples, likewise; 0 for none.
pub(crate) fn at_most(count: usize, all: usize) -> f64 {
    if count == 0 { 0.0 } else { 1.0 - at_least(all.saturating_sub(count), all) }
}

/// Rounded up to two digits, so that nobody takes it for more exact than it is.
fn round_up(value: f64) -> f64 {
    let step = 10_f64.powf(value.max(1.0).log10().floor() - 1.0).max(1.0);
    (value / step - 1e-9).ceil() * step
}

fn predicted(elapsed_ratio: f64) -> Figure {
    Figure::new("elapsed_ratio", elapsed_ratio, Unit::Ratio, "time the same rows take, of today's, at most")
}

/// More rows in each transaction.
pub(crate) fn larger_batch(cost: &Cost) -> Remedy {
    let times = format!("{:.0} times as many rows in each transaction", cost.factor().ceil());
    let (title, command) = match (cost.rows_per_commit, cost.knee_rows()) {
        (Some(now), Some(then)) => (
            format!("Commit every {} rows (now {})", Unit::Count.show(then), Unit::Count.show(now)),
            format!("{IN_PROGRAM}COMMIT once every {then:.0} rows"),
        ),
        _ => (format!("Put {times}"), format!("{IN_PROGRAM}{times}")),
    };
    let mut figures = vec![predicted(cost.elapsed_ratio())];
    if let Some(commits) = cost.commits_per_s {
        let after = commits / cost.factor() / cost.elapsed_ratio();
        figures.push(Figure::new("commits_per_s", after, Unit::PerSecond, "commits then"));
    }
    Remedy {
        title,
        runtime: Vec::new(),
        persistent: vec![command],
        activation: Activation::Immediate,
        undo: vec!["commit as often as before".to_owned()],
        predicted: figures,
        risk: "What fails is lost back to the last commit, so the program must be able to begin there again; locks on the rows \
               are held for as much longer, and a standby gets the rows in larger steps."
            .to_owned(),
    }
}

/// Not waiting for the disk, or not for the standby or its disk, in this job alone.
pub(crate) fn asynchronous(cost: &Cost) -> Vec<Remedy> {
    let mut list = Vec::new();
    if cost.standby {
        if cost.level == Some(StandbyLevel::Flushed) {
            list.push(written(cost));
        }
        let risk = "Commits are acknowledged before the standby has them: a failover loses the last of them. Nothing is lost in \
                    a crash that the server itself survives.";
        list.push(level(cost, "local", "Let this job not wait for the standby", risk));
    }
    let risk = "Commits are acknowledged before they are durable: a crash of the server loses up to three times wal_writer_delay \
                (0.6 s by default) of them, in order and without corruption. Only for work that can be done again.";
    list.push(level(cost, "off", "Let this job not wait for its commits", risk));
    list
}

fn level(cost: &Cost, value: &str, title: &str, risk: &str) -> Remedy {
    let session = format!("{SET_LEVEL}{value};  -- first in the job's own session");
    let role = cost.user.as_deref().map(|user| format!("ALTER ROLE {}", quoted(user)));
    let (persistent, undo) = match role {
        Some(role) => (
            vec![format!("{role} SET synchronous_commit = {value};  -- every new session of this role")],
            vec![format!("{role} RESET synchronous_commit;")],
        ),
        None => (Vec::new(), vec!["RESET synchronous_commit;".to_owned()]),
    };
    // Without the local sync nothing of the wait is left; without the standby the local sync still is, without its flush the way.
    let is_all = value == "off" || value == "local" && cost.local_share == 0.0;
    let ratio = is_all.then(|| predicted((1.0 - cost.share).clamp(0.0, 1.0)));
    Remedy {
        title: format!("{title} (synchronous_commit = {value})"),
        runtime: vec![session],
        persistent,
        activation: Activation::Immediate,
        undo,
        predicted: ratio.into_iter().collect(),
        risk: risk.to_owned(),
    }
}

/// Waiting for the standby's write and not for its flush. The server tells the time between the two, or can be asked for it.
fn written(cost: &Cost) -> Remedy {
    let risk = "Commits are acknowledged when the standby's kernel has them and not its disk: a crash of the standby's host \
                together with a failover loses what it had not flushed. The way there and back is waited for as before.";
    let mut remedy = level(cost, "remote_write", "Let this job not wait for the standby's flush", risk);
    let saved = "less wait of each commit, about: the standby's flush_lag - write_lag";
    remedy.predicted.extend(cost.standby_flush_ms.map(|ms| Figure::new("saved_ms", ms, Unit::Milliseconds, saved)));
    if cost.standby_flush_ms.is_none() {
        let ask = "SELECT application_name, flush_lag - write_lag FROM pg_stat_replication;  -- what it can save of each wait";
        remedy.runtime.insert(0, ask.to_owned());
    }
    remedy
}

/// A device for the WAL that syncs sooner: what can be gained at most is what of the time is the device's own. None where that is
/// too little to be worth it.
pub(crate) fn faster_device(cost: &Cost) -> Option<Remedy> {
    let left = 1.0 - cost.local_share;
    let label = "time the same rows take, of today's, at least: if syncs took no time";
    (cost.local_share >= WORTH).then(|| Remedy {
        title: "Put pg_wal on a device that syncs faster".to_owned(),
        runtime: Vec::new(),
        persistent: vec![
            "pg_test_fsync -f /MOUNT/test   # before: what a sync takes there, and beside it on the present device".to_owned(),
            "mv $PGDATA/pg_wal /MOUNT/pg_wal && ln -s /MOUNT/pg_wal $PGDATA/pg_wal   # while the server is stopped".to_owned(),
        ],
        activation: Activation::Restart,
        undo: vec!["move it back, while the server is stopped".to_owned()],
        predicted: vec![Figure::new("least_elapsed_ratio", left, Unit::Ratio, label)],
        risk: "It costs money, and the server is down while pg_wal is moved; both devices are then needed for recovery. Only a device \
               with power-loss protection keeps what a commit promises: one that acknowledges syncs from a cache that power loss \
               empties is fast and loses acknowledged commits."
            .to_owned(),
    })
}

/// Sessions that wait at once from which a shared sync pays: with fewer, each only waits longer.
const COMPANY: f64 = 3.0;

/// Letting commits wait for company, where there is any: several share one sync then. None where sessions commit alone.
pub(crate) fn commit_delay(cost: &Cost) -> Option<Remedy> {
    let residence_ms = cost.residence_ms.filter(|_| cost.local_share > 0.0 && cost.waiting >= COMPANY)?;
    // Half of the time of a sync, as the manual advises (PostgreSQL, "WAL Configuration").
    let delay_us = (residence_ms * 500.0).clamp(10.0, 10_000.0).round();
    let siblings = cost.waiting.ceil().min(5.0);
    Some(Remedy {
        title: format!("Let commits that come together share one sync (commit_delay = {delay_us:.0})"),
        runtime: vec![
            format!("ALTER SYSTEM SET commit_delay = {delay_us:.0};"),
            format!("ALTER SYSTEM SET commit_siblings = {siblings:.0};"),
            "SELECT pg_reload_conf();".to_owned(),
        ],
        persistent: vec!["ALTER SYSTEM keeps it.".to_owned()],
        activation: Activation::Reload,
        undo: vec![
            "ALTER SYSTEM RESET commit_delay;".to_owned(),
            "ALTER SYSTEM RESET commit_siblings;".to_owned(),
            "SELECT pg_reload_conf();".to_owned(),
        ],
        predicted: Vec::new(),
        // When each commit comes is what decides, and looks at sessions do not tell it: eight that shared syncs already gained nothing.
        risk: "Every commit that has company waits this much longer first; where syncs are already shared it only costs. How much is \
               gained cannot be foretold: it depends on how many more commits come within the delay, which samples of sessions do not \
               tell. Measure before and after."
            .to_owned(),
    })
}

/// Why commit_delay is no remedy here; none where it is one, or where commits do not wait for the server's own disk.
pub(crate) fn why_no_delay(cost: &Cost) -> Option<String> {
    (cost.local_share > 0.0 && cost.waiting < COMPANY).then(|| {
        format!(
            "commit_delay would only add to each commit: {} sessions commit at once on average, so there is nobody to share a \
             sync with",
            Unit::Count.show(cost.waiting)
        )
    })
}

/// A role's name as an SQL identifier.
fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cost(share: f64, rows: Option<f64>) -> Cost {
        Cost {
            share,
            rows_per_commit: rows,
            commits_per_s: Some(268.0),
            waiting: 0.74,
            residence_ms: Some(2.8),
            user: Some("app".to_owned()),
            standby: false,
            level: None,
            standby_flush_ms: None,
            local_share: 0.76,
        }
    }

    #[test]
    fn a_remedy_tells_what_it_turns() {
        let cost = Cost { standby: true, waiting: 8.0, ..cost(0.74, Some(100.0)) };
        let of = |remedies: Vec<Remedy>| remedies.iter().map(turns).collect::<Vec<_>>();
        let level = |value: &str| Some(Turns::SynchronousCommit(value.to_owned()));
        assert_eq!(of(vec![larger_batch(&cost)]), [Some(Turns::Rows)]);
        assert_eq!(of(vec![larger_batch(&Cost { rows_per_commit: None, ..cost })]), [Some(Turns::Rows)]);
        let cost = Cost { standby: true, waiting: 8.0, ..self::cost(0.74, None) };
        assert_eq!(of(asynchronous(&cost)), [level("local"), level("off")]);
        assert_eq!(of(commit_delay(&cost).into_iter().collect()), [None]);
    }

    /// The published row of 100 rows a commit: 74 % of the time in commits, flat from about 10,000 rows.
    #[test]
    fn the_batch_advised_follows_from_the_shares() {
        let cost = cost(0.74, Some(100.0));
        assert_eq!(cost.knee_rows(), Some(5_700.0));
        let remedy = larger_batch(&cost);
        assert_eq!(remedy.title, "Commit every 5700 rows (now 100)");
        assert!((remedy.predicted[0].value - 0.273).abs() < 0.001, "{:?}", remedy.predicted);
        assert!(larger_batch(&Cost { rows_per_commit: None, ..cost }).title.contains("57 times as many rows"));
    }

    /// A run with a standby 5 ms away: 130 of 131 samples in commits; measured, the same rows took 3.5 % of the time with 2,000
    /// of them a commit, and by the costs 17,900 is the knee.
    #[test]
    fn few_samples_beside_the_waits_promise_less() {
        let sure = at_least(130, 131);
        assert!((0.97..0.98).contains(&sure), "{sure}");
        let cost = cost(sure, Some(20.0));
        assert!((0.022..0.035).contains(&cost.elapsed_ratio()), "{}", cost.elapsed_ratio());
        assert!(cost.knee_rows().is_some_and(|rows| (10_000.0..20_000.0).contains(&rows)), "{:?}", cost.knee_rows());
        assert!((at_least(7_400, 10_000) - 0.734).abs() < 0.001);
        assert_eq!(at_least(0, 0), 0.0);
    }

    /// A faster device gains no more than what of the time is its own, and a standby's page cache no more than its flush.
    #[test]
    fn each_remedy_tells_what_it_gains_or_how_to_ask() {
        let device = faster_device(&cost(0.74, None)).unwrap();
        assert!((device.predicted[0].value - 0.24).abs() < 1e-9 && device.risk.contains("power-loss protection"));
        assert_eq!(turns(&device), None, "what it gains is a bound, and no promise to be held to");
        assert_eq!(faster_device(&Cost { local_share: 0.04, ..cost(0.74, None) }), None);
        let far = Cost { standby: true, level: Some(StandbyLevel::Flushed), local_share: 0.0, ..cost(0.9, None) };
        let asked = &asynchronous(&far)[0];
        assert_eq!(turns(asked), Some(Turns::SynchronousCommit("remote_write".to_owned())));
        assert!(asked.predicted.is_empty() && asked.runtime[0].contains("flush_lag - write_lag"), "{asked:?}");
        let told = &asynchronous(&Cost { standby_flush_ms: Some(2.0), ..far })[0];
        assert_eq!((told.predicted[0].name.as_str(), told.predicted[0].value), ("saved_ms", 2.0));
        assert!(told.runtime[0].starts_with(SET_LEVEL) && told.risk.contains("had not flushed"), "{told:?}");
        let applied = Cost { standby: true, level: Some(StandbyLevel::Applied), ..cost(0.9, None) };
        assert_eq!(asynchronous(&applied).len(), 2);
        let delay = commit_delay(&Cost { waiting: 8.0, ..cost(0.7, None) }).unwrap();
        assert!(delay.predicted.is_empty() && delay.risk.contains("cannot be foretold"));
    }

    #[test]
    fn a_share_lies_between_its_bounds() {
        assert!(at_least(60, 100) < 0.6 && at_most(60, 100) > 0.6 && at_most(60, 100) < 0.67);
        assert_eq!((at_most(0, 100), at_most(100, 100)), (0.0, 1.0));
    }

    #[test]
    fn delays_need_company() {
        let alone = cost(0.7, None);
        assert_eq!(commit_delay(&alone), None);
        assert!(why_no_delay(&alone).is_some());
        let many = Cost { waiting: 8.0, ..alone };
        assert_eq!(
            commit_delay(&many).map(|remedy| remedy.runtime[0].clone()),
            Some("ALTER SYSTEM SET commit_delay = 1400;".into())
        );
        assert_eq!(why_no_delay(&many), None);
    }

    #[test]
    fn names_cannot_break_out_of_commands() {
        assert_eq!(quoted("app"), "app");
        assert_eq!(quoted("a\"; DROP ROLE x; --"), "\"a\"\"; DROP ROLE x; --\"");
        let odd = Cost { user: Some("My App".to_owned()), standby: true, ..cost(0.5, None) };
        let remedies = asynchronous(&odd);
        assert_eq!(remedies.len(), 2);
        assert!(remedies[0].persistent[0].starts_with("ALTER ROLE \"My App\" SET synchronous_commit = local;"));
    }

    #[test]
    fn rounding_keeps_two_digits() {
        assert_eq!([1.0, 9.2, 10.0, 101.0, 5_692.0].map(round_up), [1.0, 10.0, 10.0, 110.0, 5_700.0]);
    }
}
