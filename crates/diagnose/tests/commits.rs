//! Commit waits: the published runs row by row, and everything that must stay silent.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_diagnose::commit::{Counting, GroupBy, commit_queue, commit_queue_of, looks, tally};
use backwater_model::{
    CommitWait, Confidence, Event, EventKind, Finding, Meta, Moment, Sample, Severity, Window, catalogue as cat,
};
use common::judged::diagnose;
use common::{Readings, meta, session};

const CALL: &str = "CALL my_insert($1, $2)";

/// Class and event of a wait; none on CPU.
type Wait = Option<(&'static str, &'static str)>;
/// What a session was seen in, and how often.
type Seen = (Wait, usize);

/// A job that ran for so long and was seen so often in each wait, evenly mixed. Transactions are of equal length.
struct Job {
    pid: i32,
    query: Option<&'static str>,
    seconds: f64,
    transaction_s: f64,
    seen: Vec<Seen>,
}

impl Job {
    /// A row of the published table: rows a commit of ten million rows, seconds, samples on CPU, in WALWrite, in XactSync.
    fn published(rows_per_commit: f64, seconds: f64, cpu: usize, write: usize, sync: usize) -> Job {
        let seen = vec![(None, cpu), (Some(("IO", "WALWrite")), write), (Some(("IO", "XactSync")), sync)];
        Job { pid: 7, query: Some(CALL), seconds, transaction_s: seconds * rows_per_commit / 1e7, seen }
    }

    fn local(seconds: f64, transaction_s: f64, cpu: usize, sync: usize) -> Job {
        let seen = vec![(None, cpu), (Some(("IO", "WALSync")), sync)];
        Job { pid: 7, query: Some(CALL), seconds, transaction_s, seen }
    }

    fn samples(&self) -> Vec<Sample> {
        let count: usize = self.seen.iter().map(|(_, count)| count).sum();
        let mut mixed: Vec<(f64, Wait)> = Vec::new();
        for (wait, own) in &self.seen {
            mixed.extend((0..*own).map(|n| ((n as f64 + 0.5) / *own as f64, *wait)));
        }
        mixed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let one = |(place, (_, wait)): (usize, &(f64, Wait))| {
            let at = (place as f64 + 0.5) / count as f64 * self.seconds;
            // Where a transaction is looked at is spread over all of its length.
            let age_s = at.min(self.transaction_s) * ((place as f64 * 0.618_034).fract());
            Sample {
                query: self.query.map(Into::into),
                user: Some("app".into()),
                query_age_ms: Some((at * 1e3) as i64),
                xact_age_ms: Some((age_s * 1e3) as i64),
                ..session(100.0 + at, self.pid, "active", *wait, None)
            }
        };
        mixed.iter().enumerate().map(|(place, sample)| one((place, sample))).collect()
    }

    fn window(&self) -> Window {
        let readings = of(self.samples());
        readings.window(meta(), 100.0, 100.0 + self.seconds)
    }
}

fn of(samples: Vec<Sample>) -> Readings {
    let mut readings = Readings::default();
    readings.samples = samples;
    readings
}

fn found(window: &Window) -> Vec<Finding> {
    diagnose(window, &Options::default())
}

fn silent(window: &Window, what: &str) {
    let names: Vec<String> =
        found(window).iter().map(|finding| format!("{} {}", finding.rule, finding.cause)).collect();
    assert_eq!(names, Vec::<String>::new(), "{what}");
}

fn published() -> Vec<(f64, Job)> {
    let row = |rows, seconds, cpu, write, sync| (rows, Job::published(rows, seconds, cpu, write, sync));
    vec![
        row(1e7, 135.9, 346, 44, 0),
        row(1e6, 136.1, 349, 38, 3),
        row(1e5, 133.4, 315, 35, 30),
        row(1e4, 141.8, 283, 32, 91),
        row(1e3, 177.6, 252, 32, 250),
        row(1e2, 373.5, 249, 24, 776),
    ]
}

#[test]
fn the_published_runs_are_found_at_the_small_batches_and_only_there() {
    for (rows, job) in published() {
        let findings = found(&job.window());
        let Some(finding) = findings.first() else {
            assert!(rows >= 1e5, "{rows} rows a commit");
            continue;
        };
        assert!(rows < 1e5 && findings.len() == 1, "{rows} rows a commit: {findings:?}");
        assert_eq!((finding.rule.as_str(), finding.cause.as_str()), ("commit-too-small", "storage-answer"));
        assert_eq!(finding.queue, "pg.commit");
        // At 10,000 rows a run is 6 % slower than the best: worth knowing, no fault.
        let severity = if rows < 1e4 { Severity::Warning } else { Severity::Info };
        assert_eq!(finding.severity, severity, "{rows} rows a commit");
        assert_eq!(finding.remedies.iter().filter(|remedy| remedy.risk.is_empty()).count(), 0);
    }
}

#[test]
fn the_published_hundred_rows_come_with_their_figures() {
    let (_, job) = published().pop().unwrap();
    let window = job.window();
    let finding = found(&window).remove(0);
    assert!((finding.figure("commit_wait_ratio").unwrap() - 776.0 / 1049.0).abs() < 1e-6, "{finding:?}");
    // 100,000 commits in 373.5 s, by nothing but the transactions' ages; each waits 74 % of 3.7 ms.
    assert!(finding.figure("commits_per_s").is_none(), "ages of 2 ms are too short to count by");
    let queue = commit_queue(&window, "lab").unwrap();
    assert_eq!(queue.flavours[0].wait, CommitWait::RemoteStorage);
    assert!((queue.session_time_ratio - 800.0 / 1049.0).abs() < 1e-6);
    // Elapsed fell from 373.5 s to 133.4 s: 36 %; the samples alone say 27 %.
    let gain = &finding.remedies[0].predicted[0];
    assert!(gain.name == "elapsed_ratio" && (0.2..0.4).contains(&gain.value), "{gain:?}");
    assert!(
        finding
            .remedies
            .iter()
            .any(|remedy| remedy.runtime.iter().any(|line| line.contains("synchronous_commit = off")))
    );
    assert!(finding.ruled_out.iter().any(|out| out.cause == "locks"));
}

#[test]
fn commits_are_counted_by_the_ages_of_transactions() {
    // 20 ms each, 60 % of it in the commit: 12 ms.
    let window = Job::local(60.0, 0.02, 240, 360).window();
    let finding = found(&window).remove(0);
    assert_eq!((finding.cause.as_str(), finding.confidence), ("local-sync", Confidence::High));
    assert!((finding.figure("commits_per_s").unwrap() / 50.0 - 1.0).abs() < 0.15, "{finding:?}");
    assert!((finding.figure("cost_per_commit_ms").unwrap() / 12.0 - 1.0).abs() < 0.15, "{finding:?}");
    let queue = commit_queue(&window, "lab").unwrap();
    assert_eq!(queue.commits.unwrap().counting, Counting::TransactionAges);
}

/// The one finding about commits.
fn of_commits(window: &Window) -> Finding {
    found(window).into_iter().find(|finding| finding.rule == "commit-too-small").unwrap()
}

#[test]
fn readers_beside_a_job_do_not_change_what_its_commits_cost() {
    // The same job; at each look three reports of ten seconds each are on CPU.
    let samples = Job::local(60.0, 0.02, 240, 360).samples();
    let mut readings = Readings::default();
    for (look, own) in samples.into_iter().enumerate() {
        let at = own.at;
        let seconds = at.seconds() - 100.0;
        readings.put(&cat::PG_WAL_FLUSH, &[("target", "lab")], at.seconds(), 1e9 + seconds * 50.0 * 2e4);
        readings.samples.push(own);
        for reader in 0..3 {
            let age = Some((look as i64 * 100 + i64::from(reader) * 3_333) % 10_000);
            let report = session(0.0, 20 + reader, "active", None, None);
            let query = Some("SELECT sum(amount) FROM orders".into());
            readings.samples.push(Sample { at, query, query_age_ms: age, xact_age_ms: age, ..report });
        }
    }
    let window = readings.window(meta(), 100.0, 160.0);
    let queue = commit_queue(&window, "lab").unwrap();
    assert!((queue.commits.unwrap().per_s / 50.0 - 1.0).abs() < 0.1, "{queue:?}");
    assert!((queue.residence_ms.unwrap() / 12.0 - 1.0).abs() < 0.1, "{queue:?}");
    let finding = of_commits(&window);
    for (name, value) in [("commits_per_s", 50.0), ("cost_per_commit_ms", 12.0), ("wal_per_commit_bytes", 2e4)] {
        assert!((finding.figure(name).unwrap() / value - 1.0).abs() < 0.1, "{name}: {finding:?}");
    }
}

#[test]
fn one_stall_is_one_transaction() {
    let mut samples = Job::local(60.0, 0.02, 240, 360).samples();
    for (place, sample) in samples[100..120].iter_mut().enumerate() {
        sample.xact_age_ms = Some(place as i64 * 100);
    }
    let finding = of_commits(&of(samples).window(meta(), 100.0, 160.0));
    assert!((finding.figure("commits_per_s").unwrap() / 50.0 - 1.0).abs() < 0.1, "{finding:?}");
}

#[test]
fn what_ages_do_not_tell_has_no_rate() {
    let counted = |change: &dyn Fn(&mut Sample)| {
        let mut samples = Job::local(60.0, 0.02, 240, 360).samples();
        samples.iter_mut().for_each(change);
        let queue = commit_queue(&of(samples).window(meta(), 100.0, 160.0), "lab").unwrap();
        assert_eq!(queue.commits.is_some(), queue.residence_ms.is_some(), "{queue:?}");
        queue.commits
    };
    assert!(counted(&|_| ()).is_some());
    // A transaction of several statements: between them nobody looks.
    assert_eq!(counted(&|sample| sample.query_age_ms = Some(0)), None);
    // A session that does several things, some of which may only read.
    assert_eq!(counted(&|sample| sample.query = Some(format!("SELECT {}", sample.at.0 / 100_000 % 2).into())), None);
}

#[test]
fn no_more_is_committed_than_the_server_counts() {
    let counted = |query: &'static str| {
        let mut readings = of(Job { query: Some(query), ..Job::local(60.0, 0.02, 240, 360) }.samples());
        for second in 0..=60 {
            let labels = [("target", "lab"), ("database", "d")];
            readings.put(&cat::PG_XACT_COMMIT, &labels, 100.0 + f64::from(second), f64::from(second) * 30.0);
        }
        commit_queue(&readings.window(meta(), 100.0, 160.0), "lab").unwrap().commits.unwrap().per_s
    };
    assert!((counted("INSERT INTO t VALUES ($1)") / 30.0 - 1.0).abs() < 0.05, "two of five were rolled back");
    assert!((counted(CALL) / 50.0 - 1.0).abs() < 0.1, "while a procedure runs its commits are not counted");
}

#[test]
fn samples_are_held_against_the_processor_time_of_the_process() {
    // Samples say that it waits for 60 % of the time. The process computed for so much of it.
    let with = |computed: f64| {
        let job = Job::local(60.0, 0.02, 240, 360);
        let samples = job.samples();
        let pid = samples[0].pid.to_string();
        let mut readings = of(samples);
        for second in 0..=60 {
            let labels = [("target", "lab"), ("pid", pid.as_str()), ("what", "client backend")];
            readings.put(&cat::PROC_CPU, &labels, 100.0 + f64::from(second), f64::from(second) * computed);
        }
        found(&readings.window(meta(), 100.0, 160.0))
    };
    let agreeing = with(0.4).remove(0);
    assert!((agreeing.figure("commit_wait_ratio").unwrap() - 0.6).abs() < 0.02, "{agreeing:?}");
    assert_eq!(agreeing.figure("sampled_wait_ratio"), None);
    let truer = with(0.75).remove(0);
    assert!((truer.figure("commit_wait_ratio").unwrap() - 0.25).abs() < 0.02, "{truer:?}");
    assert!((truer.figure("sampled_wait_ratio").unwrap() - 0.6).abs() < 0.02, "{truer:?}");
    assert!((truer.figure("cost_per_commit_ms").unwrap() / 5.0 - 1.0).abs() < 0.15, "{truer:?}");
    assert!(truer.severity < agreeing.severity && truer.foreground_lost.unwrap() < 0.35);
    assert_eq!(with(0.9), [], "a tenth of the time");
}

#[test]
fn large_transactions_may_wait_for_wal() {
    silent(&Job::local(60.0, 30.0, 60, 540).window(), "WAL on a slow disk, half a minute a transaction");
    silent(&Job::local(60.0, 0.02, 540, 60).window(), "a tenth of the time");
    let mut writes = Job::local(60.0, 0.02, 300, 0);
    writes.seen.push((Some(("IO", "WALWrite")), 300));
    silent(&writes.window(), "writes of WAL, which full buffers cause as well");
}

#[test]
fn much_wal_a_commit_waits_for_its_bytes() {
    let job = Job::local(60.0, 0.1, 200, 400);
    let with = |bytes_per_commit: f64| {
        let mut readings = of(job.samples());
        for second in 0..=60 {
            let at = f64::from(second);
            readings.put(&cat::PG_WAL_FLUSH, &[("target", "lab")], 100.0 + at, 1e9 + at * 10.0 * bytes_per_commit);
        }
        readings.window(meta(), 100.0, 160.0)
    };
    silent(&with(8e6), "8 MB a commit");
    let finding = found(&with(2e4)).remove(0);
    assert!((finding.figure("wal_per_commit_bytes").unwrap() / 2e4 - 1.0).abs() < 0.2, "{finding:?}");
}

#[test]
fn users_of_an_application_are_no_job() {
    // Sixteen sessions, each with several statements, all waiting for commits most of the time.
    let texts = ["UPDATE accounts SET a = $1", "UPDATE tellers SET b = $1", "INSERT INTO history VALUES ($1)", "END"];
    let mut readings = Readings::default();
    for tick in 0..300 {
        for pid in 0..16 {
            let wait = (tick + pid) % 4 != 0;
            let wait = wait.then_some(("LWLock", "WALWrite"));
            let query = texts[((tick * 7 + pid * 3) % 4) as usize];
            let sample = session(100.0 + f64::from(tick) / 10.0, pid, "active", wait, None);
            readings.samples.push(Sample { query: Some(query.into()), xact_age_ms: Some(2), ..sample });
        }
    }
    silent(&readings.window(meta(), 100.0, 130.0), "an application");
    let mut rare = Job::local(60.0, 0.02, 20, 40);
    rare.query = Some("INSERT INTO t VALUES ($1)");
    let mut readings = of(rare.samples());
    (0..=600)
        .for_each(|n| readings.put(&cat::PG_PROBE_RESPONSE, &[("target", "lab")], 100.0 + f64::from(n) / 10.0, 300.0));
    silent(&readings.window(meta(), 100.0, 160.0), "a session that rests nine tenths of the time");
    let short = Job::local(3.0, 0.02, 10, 20);
    silent(&short.window(), "a burst of three seconds");
}

#[test]
fn inserts_from_a_client_are_a_job_only_where_rows_are_inserted() {
    let mut job = Job::local(60.0, 0.02, 200, 400);
    job.query = Some("INSERT INTO t VALUES ($1)");
    let with = |updated: f64| {
        let mut readings = of(job.samples());
        for second in 0..=60 {
            let labels = [("target", "lab"), ("database", "d")];
            let at = 100.0 + f64::from(second);
            readings.put(&cat::PG_TUP_INSERTED, &labels, at, 1e6 + f64::from(second) * 500.0);
            readings.put(&cat::PG_TUP_UPDATED, &labels, at, 1e6 + f64::from(second) * updated);
            readings.put(&cat::PG_XACT_COMMIT, &labels, at, 1e6 + f64::from(second) * 50.0);
        }
        readings.window(meta(), 100.0, 160.0)
    };
    silent(&with(1_500.0), "an application that inserts too");
    let finding = found(&with(0.0)).remove(0);
    assert!((finding.figure("rows_per_commit").unwrap() - 10.0).abs() < 0.5, "{finding:?}");
    assert!(finding.remedies[0].title.starts_with("Commit every"), "{}", finding.remedies[0].title);
}

#[test]
fn what_others_wrote_before_and_after_a_job_does_not_hide_it() {
    let mut job = Job::local(60.0, 0.02, 200, 400);
    job.query = Some("INSERT INTO t VALUES ($1)");
    let mut readings = of(job.samples());
    for second in 0..=180 {
        let labels = [("target", "lab"), ("database", "d")];
        let (at, of_job) = (40.0 + f64::from(second), f64::from((second - 60).clamp(0, 60)));
        readings.put(&cat::PG_TUP_INSERTED, &labels, at, 1e6 + of_job * 500.0);
        readings.put(&cat::PG_TUP_UPDATED, &labels, at, 1e6 + (f64::from(second) - of_job) * 1_500.0);
        readings.put(&cat::PG_XACT_COMMIT, &labels, at, 1e6 + f64::from(second) * 50.0);
    }
    let window = readings.window(meta(), 40.0, 220.0);
    assert!(found(&window).iter().any(|finding| finding.rule == "commit-too-small"));
}

#[test]
fn a_synchronous_standby_is_named() {
    let mut job = Job::local(60.0, 0.02, 100, 100);
    job.seen.push((Some(("IPC", "SyncRep")), 400));
    let mut meta: Meta = meta();
    let settings = [("synchronous_standby_names", "*"), ("synchronous_commit", "remote_apply")];
    meta.targets[0].settings.extend(settings.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let readings = of(job.samples());
    let finding = of_commits(&readings.window(meta, 100.0, 160.0));
    assert_eq!(finding.cause, "standby-answer");
    assert!(finding.summary.contains("remote_apply"), "{}", finding.summary);
    assert!(finding.remedies.iter().any(|remedy| remedy.title.contains("synchronous_commit = local")));
}

#[test]
fn what_is_waited_for_is_told_by_what_was_set_then() {
    let mut job = Job::local(60.0, 0.02, 100, 100);
    job.seen.push((Some(("IPC", "SyncRep")), 400));
    let told = |changed_s: f64| {
        let mut meta: Meta = meta();
        let settings = [("synchronous_standby_names", "*"), ("synchronous_commit", "on")];
        meta.targets[0].settings.extend(settings.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let mut readings = of(job.samples());
        let fields = [("name", "synchronous_commit"), ("before", "on"), ("after", "remote_apply")];
        let at = Moment::from_seconds(changed_s);
        readings.events.push(Event::new(at, "lab", EventKind::Setting, "synchronous_commit", &fields));
        of_commits(&readings.window(meta, 90.0, 170.0)).summary
    };
    assert!(told(95.0).contains("(remote_apply)") && told(165.0).contains("(on)"), "{} {}", told(95.0), told(165.0));
}

#[test]
fn of_some_sessions_only_their_own_waits_count() {
    // Others of the same server wait beside a client whose commits alone are counted: 100 a second, 6 ms each.
    let mut readings = Readings::default();
    for look in 0..600 {
        let at = 100.0 + f64::from(look) / 10.0;
        readings.put(&cat::PG_PROBE_RESPONSE, &[("target", "lab")], at, 300.0);
        readings.put(&cat::LOAD_COMPLETED, &[], at, f64::from(look) * 10.0);
        let wait = (look % 5 < 3).then_some(("IO", "WalSync"));
        let own = Sample { application: Some("load".into()), ..session(at, 7, "active", wait, None) };
        readings.samples.extend([own, session(at, 8, "active", Some(("IO", "WalSync")), None)]);
    }
    let window = readings.window(meta(), 100.0, 160.0);
    let own = commit_queue_of(&window, "lab", |sample| sample.application.is_some()).unwrap();
    assert!((own.waiting - 0.6).abs() < 0.01 && (own.residence_ms.unwrap() - 6.0).abs() < 0.1, "{own:?}");
    assert!(commit_queue(&window, "lab").unwrap().residence_ms.unwrap() > 15.0);
}

#[test]
fn littles_law_agrees_with_the_clients_clocks() {
    // One client, 100 commits a second, each 6 ms in the commit and 4 ms elsewhere, looked at ten times a second.
    let mut readings = Readings::default();
    for look in 0..600 {
        let at = 100.0 + f64::from(look) / 10.0;
        let wait = (look % 5 < 3).then_some(("IO", "WalSync"));
        readings.put(&cat::PG_PROBE_RESPONSE, &[("target", "lab")], at, 300.0);
        readings.put(&cat::LOAD_COMPLETED, &[], at, f64::from(look) * 10.0);
        readings.put(&cat::LOAD_COMMIT_US, &[], at, f64::from(look) * 10.0 * 6_000.0);
        readings.samples.push(Sample { query: Some(CALL.into()), ..session(at, 7, "active", wait, None) });
    }
    let queue = commit_queue(&readings.window(meta(), 100.0, 160.0), "lab").unwrap();
    assert!(
        (queue.residence_ms.unwrap() - 6.0).abs() < 0.1 && (queue.measured_ms.unwrap() - 6.0).abs() < 0.1,
        "{queue:?}"
    );
    assert_eq!(queue.commits.unwrap().counting, Counting::Clients);
}

#[test]
fn a_residence_is_a_part_of_what_the_clients_clock_says() {
    // Of 10 ms a client spends 4 on its rows and 6 on the commit: half a millisecond there, a half back, 1 computing, 4 waiting.
    let mut readings = Readings::default();
    for look in 0..600 {
        let at = 100.0 + f64::from(look) / 10.0;
        readings.put(&cat::PG_PROBE_RESPONSE, &[("target", "lab")], at, 300.0);
        readings.put(&cat::LOAD_COMPLETED, &[], at, f64::from(look) * 10.0);
        readings.put(&cat::LOAD_COMMIT_US, &[], at, f64::from(look) * 10.0 * 6_000.0);
        let phase_ms = (f64::from(look) * 0.618_034).fract() * 10.0;
        let on_its_way = (4.0..4.5).contains(&phase_ms) || phase_ms >= 9.5;
        let wait = (5.5..9.5).contains(&phase_ms).then_some(("IO", "WalSync"));
        if !on_its_way {
            readings.samples.push(Sample { query: Some(CALL.into()), ..session(at, 7, "active", wait, None) });
        }
    }
    let queue = commit_queue(&readings.window(meta(), 100.0, 160.0), "lab").unwrap();
    let (waiting, all) = (queue.residence_ms.unwrap(), queue.measured_ms.unwrap());
    assert!(waiting <= all && (waiting - 4.0).abs() < 0.1 && (all - 6.0).abs() < 0.1, "{queue:?}");
}

#[test]
fn advice_names_what_a_device_and_a_standbys_flush_take() {
    let mut job = Job::local(60.0, 0.02, 100, 200);
    job.seen.push((Some(("IPC", "SyncRep")), 300));
    let mut meta: Meta = meta();
    let settings = [("synchronous_standby_names", "*"), ("synchronous_commit", "on")];
    meta.targets[0].settings.extend(settings.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let mut readings = of(job.samples());
    for second in 0..=60 {
        let labels = [("target", "lab"), ("standby", "s1")];
        let lags = [(&cat::PG_REPL_WRITE_LAG, 8_000.0), (&cat::PG_REPL_FLUSH_LAG, 9_500.0)];
        for (def, value) in lags.into_iter().chain([(&cat::PG_REPL_SYNC, 1.0), (&cat::PG_REPL_STREAMING, 1.0)]) {
            readings.put(def, &labels, 100.0 + f64::from(second), value);
        }
    }
    let finding = of_commits(&readings.window(meta, 100.0, 160.0));
    let predicted = |title: &str| {
        let remedy = finding.remedies.iter().find(|remedy| remedy.title.contains(title)).unwrap();
        assert!(!remedy.risk.is_empty());
        (remedy.predicted[0].name.as_str(), remedy.predicted[0].value)
    };
    let (name, ms) = predicted("remote_write");
    assert!(name == "saved_ms" && (ms - 1.5).abs() < 1e-9, "{finding:?}");
    // A third of the time is the own disk's.
    let (name, least) = predicted("device that syncs faster");
    assert!(name == "least_elapsed_ratio" && (0.6..0.667).contains(&least), "{finding:?}");
}

#[test]
fn a_hole_in_the_recording_is_no_idle_time() {
    let job = Job::local(60.0, 0.02, 240, 360);
    let samples = job.samples().into_iter().filter(|s| !(110.0..150.0).contains(&s.at.seconds())).collect();
    let readings = of(samples);
    let window = readings.window(meta(), 100.0, 160.0);
    let queue = commit_queue(&window, "lab").unwrap();
    assert!((queue.waiting - 0.6).abs() < 0.05, "{queue:?}");
    assert_eq!(found(&window).len(), 1);
}

#[test]
fn sessions_are_counted_by_several_things_at_once() {
    let (_, job) = published().pop().unwrap();
    let samples = job.samples();
    let tally = tally(samples.iter(), None, &[GroupBy::WaitEvent, GroupBy::Query, GroupBy::User]);
    assert_eq!(tally.groups[0].names, ["IO:XactSync", CALL, "app"]);
    assert!((tally.share("on CPU") - 249.0 / 1049.0).abs() < 1e-9);
    assert!((tally.groups[0].wait_ratio - 776.0 / 800.0).abs() < 1e-9);
}

#[test]
fn a_look_that_began_before_the_window_counts_where_its_sessions_do() {
    let mut readings = Readings::default();
    for look in 0..30 {
        let at = 10.0 + f64::from(look) * 0.1;
        readings.put(&cat::PG_PROBE_RESPONSE, &[("target", "lab")], at, 900.0);
        // Sessions are put down when the answer has come.
        readings.samples.push(session(at + 0.001, 7, "active", None, None));
    }
    let window = readings.window(meta(), 10.0005, 13.0);
    assert_eq!(window.samples().len(), 30);
    assert_eq!(looks(&window, "lab"), Some(30), "no session is active for more than all of the time");
    // Nor for less, where the last look was answered after the window.
    let window = window.slice(window.from, backwater_model::Moment::from_seconds(12.9005));
    assert_eq!(window.samples().len(), 29);
    assert_eq!(looks(&window, "lab"), Some(29));
}
