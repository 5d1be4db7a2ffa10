//! commit-too-small: a job writes a few rows, commits, waits for the commit, and does the same again.
//!
//! Waiting for commits is no fault by itself: the users of an application commit as often as their business asks. So only
//! sessions are judged that do the same small transaction over and over without rest ([`jobs`]), and only where the
//! wait is the commits' own. Large transactions wait for WAL as well: writes while the WAL buffers are full, syncs at the
//! end of a segment. Those are told apart by how long a transaction takes and how much WAL it writes.

use crate::commit::{
    CommitQueue, CommitRate, Counting, Job, JobKind, StandbyLevel, commit_queue, commit_rate, computed_share,
    contested_share, flavour_label, jobs, sleep_ratio,
};
use crate::figures::Figures;
use crate::grid::median;
use crate::remedy::commit::{self as remedy, Cost};
use crate::replication::{names, standby_row, target_at};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use crate::waits::foreground;
use backwater_model::{
    CommitWait, Confidence, Figure, Finding, RuledOut, Sample, Severity, Target, Track, Unit, Window, catalogue as cat,
};
use std::collections::BTreeMap;

/// Share of the job's time in commits from which it is worth saying, and from which it is a fault.
const NOTED: f64 = 0.2;
const COSTS: f64 = 0.3;
/// A transaction that takes longer than this is not small, in milliseconds.
const LONG_MS: f64 = 1_000.0;
/// Nor is one that writes more WAL than this, in bytes: then a commit waits for the bytes, not for being one.
const MUCH_WAL: f64 = 1_048_576.0;
/// Samples from which shares are sure.
const MANY: usize = 50;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    scene.window.meta.targets.iter().filter_map(|target| of_target(scene, target)).collect()
}

fn of_target(scene: &Scene<'_>, target: &Target) -> Option<Finding> {
    let jobs = jobs(scene.window, &target.name);
    let from = jobs.iter().map(Job::from).min()?;
    let to = jobs.iter().map(Job::to).max()?;
    // Rates and shares of the very stretch in which the jobs were seen, and what was set then.
    let window = scene.window.slice(from, to);
    let target = &target_at(scene.window, &target.name, from)?;
    let seen = Seen::of(&window, target, jobs)?;
    let small = seen.share >= NOTED
        && seen.transaction_ms.is_none_or(|ms| ms <= LONG_MS)
        && seen.wal_per_commit.is_none_or(|bytes| bytes <= MUCH_WAL);
    small.then(|| finding(&window, target, &seen))
}

/// What was seen of a server's jobs.
struct Seen<'a> {
    jobs: Vec<Job<'a>>,
    queue: CommitQueue,
    /// The jobs' own commits: what others do beside them must not change what one of theirs costs.
    commits: Option<CommitRate>,
    /// Samples of all jobs, and how many of them by flavour; those counted that are the commits' own.
    samples: usize,
    flavours: BTreeMap<CommitWait, usize>,
    /// Share of the jobs' time in commits, as far as their processor time leaves room for it; and of their samples.
    share: f64,
    sampled: f64,
    /// Share of their time that they computed, by the kernel's accounts; none where that is not known of all.
    computed: Option<f64>,
    /// Looks at which they waited for commits, reduced like the share.
    waited: f64,
    /// Share of these commit waits in which the kernel says that the process runs, of those that it was asked about.
    contested: Option<f64>,
    transaction_ms: Option<f64>,
    /// WAL of the server ÷ the jobs' commits: what others write is in it, so that it is the most that one can have.
    wal_per_commit: Option<f64>,
    rows_per_commit: Option<f64>,
    standby_flush_ms: Option<f64>,
    /// Share of all active client sessions' time.
    lost: f64,
}

impl<'a> Seen<'a> {
    fn of(window: &Window, target: &Target, jobs: Vec<Job<'a>>) -> Option<Seen<'a>> {
        let queue = commit_queue(window, &target.name)?;
        let own: Vec<&Sample> = jobs.iter().flat_map(|job| job.samples.iter().copied()).collect();
        let functions_seen = own.iter().any(|sample| sample.kernel_wait.is_some());
        let mut flavours: BTreeMap<CommitWait, usize> = BTreeMap::new();
        let mut waits = Vec::new();
        for sample in &own {
            if let Some(wait) = CommitWait::of(sample).filter(|wait| is_own(*wait, target)) {
                *flavours.entry(wait).or_default() += 1;
                waits.push(*sample);
            }
        }
        let waiting: usize = flavours.values().sum();
        let accounted = Accounted::of(window, target, &jobs);
        let commits = commit_rate(window, &target.name, &own, queue.looks);
        let clients = window.samples().iter().filter(|s| *s.target == *target.name && foreground(s)).count();
        let wal = window
            .track(cat::PG_WAL_FLUSH.name, &[("target", &target.name)])
            .and_then(|track| track.between(window.from, window.to).rate());
        Some(Seen {
            samples: own.len(),
            share: accounted.waited / accounted.active,
            sampled: waiting as f64 / own.len() as f64,
            computed: accounted.computed,
            waited: accounted.waited,
            contested: contested_share(waits, functions_seen),
            transaction_ms: transaction_ms(&jobs, commits),
            wal_per_commit: wal.zip(commits).map(|(wal, rate)| wal / rate.per_s),
            rows_per_commit: rows_per_commit(window, target),
            standby_flush_ms: standby_flush_ms(window, target),
            lost: (accounted.waited / clients.max(1) as f64).min(1.0),
            flavours,
            commits,
            queue,
            jobs,
        })
    }

    fn most(&self) -> Option<CommitWait> {
        self.flavours.iter().max_by_key(|(_, count)| **count).map(|(wait, _)| *wait)
    }

    fn cause(&self) -> &'static str {
        match self.most() {
            Some(CommitWait::SynchronousStandby) => "standby-answer",
            Some(CommitWait::RemoteStorage) => "storage-answer",
            _ => "local-sync",
        }
    }

    /// The jobs' commits a second.
    fn commits_per_s(&self) -> Option<f64> {
        self.commits.map(|rate| rate.per_s)
    }

    /// What shares of samples are to be multiplied by.
    fn truer(&self) -> f64 {
        if self.sampled > 0.0 { self.share / self.sampled } else { 1.0 }
    }

    /// How long a commit waits by Little's law, in milliseconds.
    fn residence_ms(&self) -> Option<f64> {
        let level = self.waited / self.queue.looks as f64;
        self.commits_per_s().map(|rate| level / rate * 1e3)
    }
}

/// What jobs' samples come to beside the processor time of their processes, as far as that is known.
struct Accounted {
    /// Looks at which they waited for commits, and at which they were at work.
    waited: f64,
    active: f64,
    /// Share of their time that they computed; none where that is not known of all.
    computed: Option<f64>,
}

impl Accounted {
    fn of(window: &Window, target: &Target, jobs: &[Job<'_>]) -> Self {
        let mut all = Accounted { waited: 0.0, active: 0.0, computed: Some(0.0) };
        for job in jobs {
            let ratio = sleep_ratio(window, &job.samples).unwrap_or(1.0);
            let own = |sample: &&&Sample| CommitWait::of(sample).is_some_and(|wait| is_own(wait, target));
            all.waited += job.samples.iter().filter(own).count() as f64 * ratio;
            // Between its statements it sleeps as well.
            all.active += job.looks() - (job.looks() - job.samples.len() as f64) * ratio;
            let computed = job.samples.first().and_then(|first| computed_share(window, first));
            all.computed = all.computed.zip(computed).map(|(sum, own)| sum + own / jobs.len() as f64);
        }
        all
    }
}

/// Whether a wait of this flavour is a commit's own. WAL is written in the middle of transactions too, whenever the buffers
/// are full; a write is a commit's own only where it is the sync as well.
fn is_own(wait: CommitWait, target: &Target) -> bool {
    let synced_by_write = target.settings.get("wal_sync_method").is_some_and(|method| method.starts_with("open_"));
    wait != CommitWait::WalWrite || synced_by_write
}

/// How long one transaction takes: by the clients' count where there is one, else by the transactions' ages.
fn transaction_ms(jobs: &[Job<'_>], commits: Option<CommitRate>) -> Option<f64> {
    if let Some(rate) = commits.filter(|rate| rate.counting == Counting::Clients) {
        return Some(jobs.len() as f64 / rate.per_s * 1e3);
    }
    let lengths: Vec<f64> = jobs.iter().filter_map(Job::transaction_ms).collect();
    (!lengths.is_empty()).then(|| lengths.iter().sum::<f64>() / lengths.len() as f64)
}

/// Rows of each transaction, by the clients' count, else by the server's where both counts moved. (They stand still while a
/// procedure runs.) Read-only commits make the server's figure too small, never too large.
fn rows_per_commit(window: &Window, target: &Target) -> Option<f64> {
    let increase = |track: Track<'_>| track.between(window.from, window.to).increase().filter(|count| *count > 0.0);
    let load = |def: &cat::Def| window.track(def.name, &[]).and_then(increase);
    if let (Some(rows), Some(commits)) = (load(&cat::LOAD_ROWS), load(&cat::LOAD_COMPLETED)) {
        return Some(rows / commits);
    }
    let labels = [("target", target.name.as_str())];
    let sum = |def: &cat::Def| window.tracks(def.name, &labels).filter_map(increase).reduce(|sum, count| sum + count);
    let (rows, commits) = (sum(&cat::PG_TUP_INSERTED)?, sum(&cat::PG_XACT_COMMIT)?);
    (rows >= commits).then_some(rows / commits)
}

/// What the flush of the standby that commits wait for takes after its write, in milliseconds, by the server's own lag times; none
/// where several are waited for, or the times are not told.
fn standby_flush_ms(window: &Window, target: &Target) -> Option<f64> {
    let own = |def: &cat::Def, standby: &str| {
        let points = standby_row(window, def, &target.name, standby)?.between(window.from, window.to).points;
        median(points.iter().map(|point| point.value).collect())
    };
    let mut waited = names(window, &target.name);
    waited.retain(|standby| own(&cat::PG_REPL_SYNC, standby).is_some_and(|flag| flag >= 0.5));
    let [standby] = &waited[..] else { return None };
    let us = own(&cat::PG_REPL_FLUSH_LAG, standby)? - own(&cat::PG_REPL_WRITE_LAG, standby)?;
    (us >= 0.0).then_some(us / 1e3)
}

fn finding(window: &Window, target: &Target, seen: &Seen<'_>) -> Finding {
    let cost = cost(target, seen);
    let mut missing = Missing::default();
    let texts = seen.jobs.iter().all(|job| job.statement.is_some());
    missing.unless(window, texts, &unseen::SESSIONS);
    missing.unless(window, seen.jobs.iter().any(kernel_seen), &unseen::KERNEL_WAITS);
    let mut remedies = vec![remedy::larger_batch(&cost)];
    remedies.extend(remedy::asynchronous(&cost));
    remedies.extend(remedy::commit_delay(&cost));
    remedies.extend(remedy::faster_device(&cost));
    let sure = texts
        && seen.samples >= MANY
        && seen.transaction_ms.is_some()
        && (seen.computed.is_some() || seen.contested.is_none_or(|share| share < 0.5));
    Finding {
        rule: "commit-too-small".to_owned(),
        cause: seen.cause().to_owned(),
        severity: if seen.share >= COSTS { Severity::Warning } else { Severity::Info },
        queue: "pg.commit".to_owned(),
        server: Some(target.name.clone()),
        from: window.from,
        to: window.to,
        foreground_lost: Some(seen.lost),
        summary: summary(target, seen, &cost),
        evidence: evidence(seen, &cost),
        ruled_out: ruled_out(seen, &cost),
        unseen: missing.list(),
        confidence: match (sure, texts) {
            (true, _) => Confidence::High,
            (false, true) => Confidence::Medium,
            (false, false) => Confidence::Low,
        },
        victims: Vec::new(),
        remedies,
    }
}

fn kernel_seen(job: &Job<'_>) -> bool {
    job.samples.iter().any(|sample| sample.kernel_wait.is_some())
}

fn cost(target: &Target, seen: &Seen<'_>) -> Cost {
    let mut users: Vec<&str> = seen.jobs.iter().filter_map(|job| job.samples.first()?.user.as_deref()).collect();
    users.sort_unstable();
    users.dedup();
    let count = |wait: CommitWait| seen.flavours.get(&wait).copied().unwrap_or(0);
    let local: usize = [CommitWait::WalSync, CommitWait::WalWrite, CommitWait::GroupCommit].map(count).iter().sum();
    Cost {
        share: remedy::at_least(seen.flavours.values().sum(), seen.samples) * seen.truer(),
        rows_per_commit: seen.rows_per_commit,
        commits_per_s: seen.commits_per_s(),
        waiting: seen.queue.waiting,
        residence_ms: seen.residence_ms(),
        user: if let [one] = users[..] { Some(one.to_owned()) } else { None },
        standby: count(CommitWait::SynchronousStandby) > 0,
        level: StandbyLevel::of(target),
        standby_flush_ms: seen.standby_flush_ms,
        local_share: remedy::at_most(local, seen.samples) * seen.truer(),
    }
}

fn summary(target: &Target, seen: &Seen<'_>, cost: &Cost) -> String {
    let (who, spends) = match (&seen.jobs[..], seen.jobs.iter().any(|job| job.kind == JobKind::Procedure)) {
        ([_], true) => ("A procedure commits".to_owned(), "spends"),
        ([_], false) => ("A session commits".to_owned(), "spends"),
        (many, _) => (format!("{} sessions commit", many.len()), "spend"),
    };
    let whose = if seen.jobs.len() == 1 { "its" } else { "their" };
    let often = cost.commits_per_s.map_or("small transactions one after the other".to_owned(), |rate| {
        format!("{} times a second", Unit::Count.show(rate))
    });
    let rows =
        cost.rows_per_commit.map(|rows| format!(", {} rows each time,", Unit::Count.show(rows))).unwrap_or_default();
    let waits = match (seen.most(), StandbyLevel::of(target)) {
        (Some(CommitWait::SynchronousStandby), Some(level)) => level.label(),
        (Some(wait), _) => flavour_label(wait),
        (None, _) => "commits",
    };
    let each = cost.residence_ms.map(|ms| format!(" ({} each)", Unit::Milliseconds.show(ms))).unwrap_or_default();
    let more = match cost.knee_rows() {
        Some(knee) => format!("with {} rows in each", Unit::Count.show(knee)),
        None => format!("with {:.0} times as many rows in each", cost.factor().ceil()),
    };
    format!(
        "{who} {often}{rows} and {spends} {} of {whose} time waiting for commits{each}: mostly for {waits}. The same rows would take \
         {} of the time {more}, at most.",
        Unit::Ratio.show(seen.share),
        Unit::Ratio.show(cost.elapsed_ratio()),
    )
}

fn evidence(seen: &Seen<'_>, cost: &Cost) -> Vec<Figure> {
    let mut figures = Figures::default();
    let of = |count: usize| count as f64 / seen.samples as f64 * seen.truer();
    figures.add("commit_wait_ratio", Some(seen.share), Unit::Ratio, "share of the job's time spent in commits");
    let more = Some(seen.sampled).filter(|sampled| sampled - seen.share > 0.01);
    figures.add(
        "sampled_wait_ratio",
        more,
        Unit::Ratio,
        "of its samples: more than its processor time leaves room for",
    );
    figures.add("computed_ratio", seen.computed, Unit::Ratio, "of its time it computed, by the kernel's accounts");
    for (wait, count) in &seen.flavours {
        let name = format!("{}_ratio", wait.name().replace('-', "_"));
        figures.add(&name, Some(of(*count)), Unit::Ratio, &format!("of it: {}", flavour_label(*wait)));
    }
    figures.add(
        "contested_ratio",
        seen.contested,
        Unit::Ratio,
        "commit waits in which the kernel says that the process runs",
    );
    figures.add("commits_per_s", cost.commits_per_s, Unit::PerSecond, "writing commits");
    figures.add("rows_per_commit", cost.rows_per_commit, Unit::Count, "rows of each transaction");
    figures.add("cost_per_commit_ms", cost.residence_ms, Unit::Milliseconds, "wait of one commit, by Little's law");
    figures.add(
        "commit_latency_ms",
        seen.queue.measured_ms,
        Unit::Milliseconds,
        "time of one commit, by the clients' clocks",
    );
    figures.add("transaction_ms", seen.transaction_ms, Unit::Milliseconds, "one transaction");
    figures.add("wal_per_commit_bytes", seen.wal_per_commit, Unit::Bytes, "WAL of one transaction, at most");
    figures.add(
        "knee_rows",
        cost.knee_rows(),
        Unit::Count,
        "rows a commit from which larger batches gain less than 5 %",
    );
    figures.add("jobs_count", Some(seen.jobs.len() as f64), Unit::Count, "sessions that do this");
    let busy = seen.jobs.iter().map(|job| job.busy).sum::<f64>() / seen.jobs.len() as f64;
    figures.add("busy_ratio", Some(busy), Unit::Ratio, "looks at which such a session was at work");
    figures.list()
}

fn ruled_out(seen: &Seen<'_>, cost: &Cost) -> Vec<RuledOut> {
    let mut list = Vec::new();
    let mut out = |cause: &str, because: String| list.push(RuledOut { cause: cause.to_owned(), because });
    let own = || seen.jobs.iter().flat_map(|job| &job.samples);
    let share = |class: &str| {
        own().filter(|sample| sample.wait_event_type.as_deref() == Some(class)).count() as f64 / seen.samples as f64
    };
    out("locks", format!("{} of the time is spent waiting for locks", Unit::Ratio.show(share("Lock"))));
    if let Some(bytes) = seen.wal_per_commit {
        let show = Unit::Bytes.show(bytes);
        out(
            "WAL volume",
            format!(
                "a commit has at most {show} of WAL to make durable: it waits for being a commit, not for the bytes"
            ),
        );
        out("wal_compression as a remedy", "it makes fewer bytes (of full-page images), not fewer commits".to_owned());
    }
    if let Some(contested) = seen.contested.filter(|share| *share < 0.5) {
        let share = Unit::Ratio.show(1.0 - contested);
        out("work called waiting", format!("the kernel, too, sees the process asleep in {share} of these waits"));
    }
    if let Some(because) = remedy::why_no_delay(cost) {
        out("commit_delay as a remedy", because);
    }
    list
}
