//! Commits that wait for a synchronous standby, and who waits behind them: a run of a real server, and planted windows of which
//! most must be silent, or must not name the standby.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_model::{Event, EventKind, Finding, Meta, Moment, Sample, Severity, Target, Window, catalogue as cat};
use common::judged::{causes, diagnose};
use common::wal_plant::{Keep, MIB, Replay, START_S, WalPlant};
use common::{Readings, recorded, session};
use std::sync::Arc;

const STOPPED: &str = include_str!("runs/wal/sync-standby-stopped.txt");
/// A standby that may write 12 times a second, and 24 clients that wait for each other's rows.
const CAPPED: &str = include_str!("runs/blind/sync-standby-capped.txt");
/// When standbys go away, and when whatever else is planted begins.
const FROM_S: f64 = 10.0;

const SYNC: Option<(&str, &str)> = Some(("IPC", "SyncRep"));
const HEAD: Option<(&str, &str)> = Some(("Lock", "transactionid"));
const LINE: Option<(&str, &str)> = Some(("Lock", "tuple"));

/// A client at one look: what it waits for, and the age of its statement and transaction in seconds.
type Client = (Option<(&'static str, &'static str)>, f64);

fn found(window: &Window) -> Vec<Finding> {
    diagnose(window, &Options::default())
}

fn of<'a>(findings: &'a [Finding], rule: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.rule == rule).unwrap_or_else(|| panic!("{rule}: {:?}", causes(findings)))
}

/// The plant's readings with other clients from [`FROM_S`] on, of whom `look` tells at each look, by seconds since then.
fn readings(plant: &WalPlant, look: impl Fn(f64) -> Vec<Client>) -> Readings {
    let mut readings = plant.readings();
    readings.samples.retain(|sample| sample.backend_type.as_deref() != Some("client backend"));
    for tick in 0..(plant.seconds / 0.2) as i64 {
        let now = (tick * 10) as f64 * 0.02;
        let clients = if now >= FROM_S { look(now - FROM_S) } else { Vec::new() };
        for (pid, (wait, age_s)) in (40..).zip(clients) {
            let age_ms = Some((age_s * 1e3) as i64);
            let sample = session(START_S + now, pid, "active", wait, None);
            let ages = Sample { query_age_ms: age_ms, xact_age_ms: age_ms, ..sample };
            readings.samples.push(Sample { target: "primary".into(), ..ages });
        }
    }
    readings
}

/// Heartbeats of a server, each second, of which none is answered from [`FROM_S`] on.
fn miss_heartbeats(readings: &mut Readings, server: &str) {
    readings.forget("pg.heartbeat.");
    let own = [("target", server)];
    let (mut answered, mut missed) = (0.0, 0.0);
    for second in 0..40 {
        let (at, late) = (START_S + f64::from(second), f64::from(second) > FROM_S);
        *if late { &mut missed } else { &mut answered } += 1.0;
        readings.put(&cat::PG_HEARTBEATS, &own, at, answered);
        readings.put(&cat::PG_HEARTBEATS_MISSED, &own, at, missed);
        if !late {
            readings.put(&cat::PG_HEARTBEAT, &own, at, 4_000.0);
        }
    }
}

fn meta(plant: &WalPlant, synchronous: &str) -> Meta {
    let mut meta = plant.meta();
    meta.targets[0].settings.insert("synchronous_standby_names".to_owned(), synchronous.to_owned());
    meta
}

fn judged(plant: &WalPlant, synchronous: &str, readings: Readings) -> Vec<Finding> {
    found(&readings.window(meta(plant, synchronous), START_S, START_S + plant.seconds))
}

/// Two commits wait for the standby, two sessions for those, five in line after them.
fn stuck(since_s: f64) -> Vec<Client> {
    let age_s = since_s + 0.1;
    [[(SYNC, age_s); 2].as_slice(), &[(HEAD, age_s); 2], &[(LINE, age_s); 5]].concat()
}

fn gone() -> WalPlant {
    WalPlant { synchronous: true, away: Some((FROM_S, 1e9)), ..WalPlant::default() }
}

#[test]
fn a_stopped_synchronous_standby_of_a_real_server_is_told_first() {
    for keep in [|_: &str| true, |word: &str| !word.contains("localhost:5433") && !word.contains("dev=7:1")] {
        let findings = found(&recorded::window(STOPPED, keep));
        let expected = ["standby-gone disconnected", "sync-standby-slow standby-missing", "heartbeat-at-risk missed"];
        assert_eq!(causes(&findings), expected);
        let severities: Vec<Severity> = findings.iter().map(|finding| finding.severity).collect();
        assert_eq!(severities, [Severity::Critical, Severity::Warning, Severity::Warning]);
        assert!(findings[0].summary.contains("Commits need its answer"), "{}", findings[0].summary);
        assert_eq!(findings[0].victims, ["pg.commit", "pg.heartbeat"]);
        let slow = &findings[1];
        let figure = |name: &str| slow.figure(name).unwrap();
        // Two of nine wait for the standby. Commits are the probe's own, twenty a second.
        assert!((figure("sync_wait_ratio") - 2.0 / 9.0).abs() < 0.01 && figure("commits_per_s") > 15.0, "{slow:?}");
        assert!((figure("row_wait_behind_ratio") - 7.0 / 9.0).abs() < 0.02 && figure("longest_wait_s") > 22.0);
        assert!(slow.summary.contains("none is connected") && slow.summary.contains("likely"), "{}", slow.summary);
        assert!(slow.foreground_lost.unwrap() < 0.25, "only what the samples show is lost to it");
        assert!(slow.unseen.iter().any(|unseen| unseen.why.contains("no blocker")), "{:?}", slow.unseen);
        assert!(findings[2].summary.starts_with("24 of 28 "), "{}", findings[2].summary);
        assert!(findings.iter().skip(1).all(|finding| finding.summary.contains("likely standby-gone")));
    }
}

#[test]
fn a_capped_synchronous_standby_is_told_before_what_waits_for_it() {
    let findings = found(&recorded::window(CAPPED, |_| true));
    assert_eq!(
        causes(&findings),
        ["standby-disk cgroup-cap", "sync-standby-slow standby-behind", "io-capped cgroup-cap"],
    );
    let disk = &findings[0];
    // One or two of 24 wait for the standby, the others for their rows: those who suffer are not few for it.
    assert!(disk.foreground_lost.is_some_and(|share| share < 0.3) && disk.severity == Severity::Critical, "{disk:?}");
    assert!(disk.victims.contains(&"pg.commit".to_owned()), "{:?}", disk.victims);
    assert!(disk.summary.contains("Commits need its answer"), "{}", disk.summary);
    assert_eq!(disk.figure("limit_per_s"), Some(12.0));
    assert!(findings[1].summary.contains("likely standby-disk"), "{}", findings[1].summary);
    let off = |word: &str| word.contains("localhost:5433") || word.contains("dev=7:1");
    // Without the standby's own side nobody knows why; that commits wait for it stays.
    assert_eq!(causes(&found(&recorded::window(CAPPED, |word| !off(word)))), ["sync-standby-slow standby-behind"]);
    // Looked at half as often no commit is seen waiting for long: the cap that its standby stands at remains, and it alone.
    let seldom = |word: &str| {
        let at = word.split(' ').next().and_then(|at| at.parse::<f64>().ok());
        at.is_none_or(|at| (at * 10.0).floor() as i64 % 2 == 0)
    };
    let findings = found(&recorded::window(CAPPED, seldom));
    assert_eq!(causes(&findings), ["standby-disk cgroup-cap", "io-capped cgroup-cap"]);
    assert_eq!(causes(&found(&recorded::window(CAPPED, |word| seldom(word) && !off(word)))), Vec::<String>::new());
}

#[test]
fn a_synchronous_standby_that_syncs_often_and_answers_soon_is_silent() {
    // Five of six wait for it whenever one looks, each for a few milliseconds: its walreceiver syncs all the time.
    let plant = WalPlant { synchronous: true, ..WalPlant::default() };
    let mut planted = readings(&plant, |_| vec![(SYNC, 0.004); 5].into_iter().chain([(None, 0.001)]).collect());
    for sample in planted.samples.iter_mut().filter(|sample| sample.backend_type.as_deref() == Some("walreceiver")) {
        (sample.wait_event_type, sample.wait_event) = (Some("IO".into()), Some("WALSync".into()));
    }
    assert_eq!(causes(&judged(&plant, "*", planted)), Vec::<String>::new());
}

#[test]
fn the_network_is_not_named_while_the_standby_takes_late_what_arrives() {
    // Each commit waits a quarter of a second, nearly all of it until the standby has written.
    let plant = WalPlant { synchronous: true, ..WalPlant::default() };
    let cause = |wait: Option<(&str, &str)>| {
        let mut planted = readings(&plant, |_| vec![(SYNC, 0.25); 5]);
        for second in 0..plant.seconds as i32 {
            let row = [("target", "primary"), ("standby", "walreceiver@10.0.0.2")];
            for (lag, us) in [(&cat::PG_REPL_WRITE_LAG, 230_000.0), (&cat::PG_REPL_FLUSH_LAG, 250_000.0)] {
                planted.put(lag, &row, START_S + f64::from(second), us);
            }
        }
        let receivers = planted.samples.iter_mut().filter(|one| one.backend_type.as_deref() == Some("walreceiver"));
        for (sample, (class, event)) in receivers.zip(std::iter::repeat(wait).flatten()) {
            (sample.wait_event_type, sample.wait_event) = (Some(class.into()), Some(event.into()));
        }
        of(&judged(&plant, "*", planted), "sync-standby-slow").cause.clone()
    };
    assert_eq!(cause(Some(("Activity", "WalReceiverMain"))), "network");
    assert_eq!(cause(Some(("IO", "WALInitSync"))), "standby-behind");
}

#[test]
fn procedures_that_commit_are_not_held_for_few_commits() {
    // Eight sessions wait for it whenever one looks, each for a few milliseconds; the server counts 22 commits a second.
    let plant = WalPlant { synchronous: true, ..WalPlant::default() };
    let slow = |statement: &str| {
        let mut planted = readings(&plant, |_| vec![(SYNC, 0.005); 8]);
        planted.forget(cat::PG_XACT_COMMIT.name);
        for second in 0..plant.seconds as i32 {
            let labels = [("target", "primary"), ("database", "shop")];
            planted.put(&cat::PG_XACT_COMMIT, &labels, START_S + f64::from(second), f64::from(second) * 22.0);
        }
        for sample in planted.samples.iter_mut().filter(|sample| sample.pid >= 40) {
            sample.query = Some(statement.into());
        }
        judged(&plant, "*", planted).iter().any(|finding| finding.rule == "sync-standby-slow")
    };
    assert!(slow("COMMIT"), "22 commits a second of eight sessions are a third of a second each");
    assert!(!slow("CALL my_insert(?, ?)"), "counted when the procedure ends");
}

#[test]
fn what_lets_commits_go_is_offered_beside_the_cause() {
    let findings = found(&recorded::window(STOPPED, |_| true));
    for finding in &findings[..2] {
        let lines = finding.remedies.iter().flat_map(|remedy| remedy.runtime.iter().zip(&remedy.undo));
        let both = ("ALTER SYSTEM SET synchronous_standby_names = '';", "synchronous_standby_names = 'standby';");
        let mut lines = lines.filter(|(line, undo)| *line == both.0 && undo.ends_with(both.1));
        assert!(lines.next().is_some(), "{:?}", finding.remedies);
    }
}

#[test]
fn sessions_in_line_behind_commits_that_wait_are_counted() {
    let mut planted = readings(&gone(), stuck);
    miss_heartbeats(&mut planted, "primary");
    let findings = judged(&gone(), "*", planted);
    let expected = ["standby-gone disconnected", "sync-standby-slow standby-missing", "heartbeat-at-risk missed"];
    assert_eq!(causes(&findings), expected);
    assert_eq!((findings[0].severity, findings[1].severity), (Severity::Critical, Severity::Warning));
    assert!((findings[1].figure("row_wait_behind_ratio").unwrap() - 7.0 / 9.0).abs() < 0.05);
}

#[test]
fn without_lines_no_more_is_claimed_than_commits_that_wait() {
    let findings = judged(&gone(), "*", readings(&gone(), |since_s| vec![(SYNC, since_s + 0.1); 4]));
    let slow = of(&findings, "sync-standby-slow");
    assert_eq!((slow.cause.as_str(), slow.figure("row_wait_behind_ratio")), ("standby-missing", None));
    assert!(!slow.summary.contains("rows") && slow.unseen.is_empty(), "{slow:?}");
}

#[test]
fn row_locks_by_themselves_are_silent() {
    // One works, one waits for it, others stand in line: for as long as can be.
    let contended = |since_s: f64| {
        let mut clients = vec![(None, 0.01), (HEAD, since_s + 0.1)];
        clients.resize(12, (LINE, since_s + 0.1));
        clients
    };
    for (synchronous, setting) in [(false, ""), (false, "*"), (true, "*")] {
        let plant = WalPlant { synchronous, ..WalPlant::default() };
        assert_eq!(causes(&judged(&plant, setting, readings(&plant, contended))), Vec::<String>::new(), "{setting:?}");
    }
    // An asynchronous standby that goes away meanwhile is told, and not blamed.
    let plant = WalPlant { synchronous: false, ..gone() };
    let findings = judged(&plant, "", readings(&plant, contended));
    assert_eq!(causes(&findings), ["standby-gone disconnected"]);
    assert!(findings[0].victims.is_empty() && !findings[0].summary.contains("Commits"), "{findings:?}");
}

#[test]
fn a_hot_row_with_a_standby_that_keeps_up_is_silent() {
    // Whenever one looks another commit waits for the standby, for a few milliseconds; the line behind it is long.
    let busy = |since_s: f64| {
        let mut clients = vec![(SYNC, 0.008), (HEAD, 0.06)];
        clients.resize(12, (LINE, since_s.min(0.3)));
        clients
    };
    let plant = WalPlant { synchronous: true, ..WalPlant::default() };
    assert_eq!(causes(&judged(&plant, "*", readings(&plant, busy))), Vec::<String>::new());
}

#[test]
fn lines_behind_something_else_are_not_laid_on_the_standby() {
    // A session that is not seen (idle in a transaction) holds a row for long, while one commit in a while waits 0.4 s.
    let elsewhere = |since_s: f64| {
        let mut clients = vec![(SYNC, since_s % 0.4 + 0.01), (HEAD, since_s + 0.1)];
        clients.resize(12, (LINE, since_s + 0.1));
        clients
    };
    let plant = WalPlant { synchronous: true, ..WalPlant::default() };
    assert_eq!(causes(&judged(&plant, "*", readings(&plant, elsewhere))), Vec::<String>::new());
}

/// A second standby, of a run in which nothing is away.
fn with_second(setting: &str) -> Vec<Finding> {
    let mut planted = readings(&gone(), stuck);
    let second = WalPlant { synchronous: true, seed: 5, ..WalPlant::default() };
    planted.adopt(second.readings(), "b", 777);
    judged(&gone(), setting, planted)
}

#[test]
fn as_many_must_be_connected_as_must_answer() {
    let two = with_second("ANY 2 (walreceiver, b)");
    assert_eq!(causes(&two)[..2], ["standby-gone disconnected", "sync-standby-slow standby-missing"]);
    assert!(two[1].summary.contains("2 must answer, 1 connected"), "{}", two[1].summary);
    // The other answers for both: whatever commits wait for, it is not the one that is away.
    let one = with_second("ANY 1 (walreceiver, b)");
    let (slow, away) = (of(&one, "sync-standby-slow"), of(&one, "standby-gone"));
    assert!(slow.cause != "standby-missing" && !slow.summary.contains("standby-gone"), "{}", slow.summary);
    assert!(away.victims.is_empty() && !away.summary.contains("Commits"), "{}", away.summary);
}

/// The plant's readings with its standby counted as synchronous, however much WAL is made, and four commits that wait.
fn counted(plant: &WalPlant) -> Readings {
    let mut planted = readings(plant, |since_s| vec![(SYNC, since_s + 0.1); 4]);
    planted.forget(cat::PG_REPL_SYNC.name);
    let row = [("target", "primary"), ("standby", plant.name())];
    for second in 0..=plant.seconds as i32 {
        planted.put(&cat::PG_REPL_SYNC, &row, START_S + f64::from(second), 1.0);
    }
    planted
}

/// synchronous_standby_names has another value from the 35th of 40 seconds on.
fn changed(after: &str) -> Event {
    let fields = [("name", "synchronous_standby_names"), ("before", "another"), ("after", after)];
    Event::new(Moment::from_seconds(START_S + 35.0), "primary", EventKind::Setting, "changed", &fields)
}

/// A slow member of a quorum of two, and another that is quick.
fn quorum(setting: &str, change: Option<Event>) -> Vec<Finding> {
    let keep = Keep::Size(16_384.0 * MIB);
    let plant = WalPlant { standby_cap: Some(2.0 * MIB), keep, ..WalPlant::default() };
    let mut planted = counted(&plant);
    let second = WalPlant { synchronous: true, seed: 5, ..WalPlant::default() };
    planted.adopt(second.readings(), "b", 777);
    planted.events.extend(change);
    judged(&plant, setting, planted)
}

#[test]
fn whose_answer_is_needed_follows_from_the_setting_of_that_time() {
    for after in ["", "ANY 1 (walreceiver, b)"] {
        let relieved = quorum("ANY 2 (walreceiver, b)", Some(changed(after)));
        let disk = of(&relieved, "standby-disk");
        assert!(disk.severity == Severity::Critical && disk.foreground_lost.is_some_and(|share| share > 0.9));
        assert!(disk.victims.contains(&"pg.commit".to_owned()), "{after:?}: {disk:?}");
        assert!(of(&relieved, "sync-standby-slow").summary.contains("likely standby-disk"), "{after:?}");
    }
    let tightened = quorum("ANY 1 (walreceiver, b)", Some(changed("ANY 2 (walreceiver, b)")));
    let disk = of(&tightened, "standby-disk");
    assert_eq!((disk.severity, disk.foreground_lost), (Severity::Warning, None));
}

#[test]
fn who_is_away_is_the_reason_of_waits_before_commits_were_let_go() {
    let mut planted = readings(&gone(), stuck);
    planted.events.push(changed(""));
    let findings = judged(&gone(), "*", planted);
    let (slow, away) = (of(&findings, "sync-standby-slow"), of(&findings, "standby-gone"));
    assert!(slow.cause == "standby-missing" && slow.summary.contains("likely standby-gone"), "{}", slow.summary);
    assert!(!away.summary.contains("Commits need its answer"), "they do no longer: {}", away.summary);
}

#[test]
fn a_slow_member_of_a_quorum_that_others_make_holds_no_commit() {
    let told = |setting: &str| quorum(setting, None);
    let one = told("ANY 1 (walreceiver, b)");
    let (disk, slow) = (of(&one, "standby-disk"), of(&one, "sync-standby-slow"));
    assert_eq!((disk.severity, disk.foreground_lost), (Severity::Warning, None));
    assert!(!disk.victims.contains(&"pg.commit".to_owned()) && !disk.summary.contains("Commits"), "{disk:?}");
    assert_eq!(slow.cause, "standby-behind");
    assert!(!slow.summary.contains("walreceiver") && !slow.summary.contains("reason"), "{}", slow.summary);
    let both = told("ANY 2 (walreceiver, b)");
    let disk = of(&both, "standby-disk");
    assert!(disk.severity == Severity::Critical && disk.foreground_lost.is_some_and(|share| share > 0.9), "{disk:?}");
    assert!(disk.victims.contains(&"pg.commit".to_owned()) && disk.summary.contains("Commits need its answer"));
    assert!(of(&both, "sync-standby-slow").summary.contains("likely standby-disk"));
}

#[test]
fn replay_holds_commits_with_remote_apply_alone() {
    let plant = WalPlant { replay: Replay::Paused, ..WalPlant::default() };
    let told = |level: &str| {
        let mut meta = meta(&plant, "*");
        meta.targets[0].settings.insert("synchronous_commit".to_owned(), level.to_owned());
        found(&counted(&plant).window(meta, START_S, START_S + plant.seconds))
    };
    let on = told("on");
    let paused = of(&on, "replay-paused");
    assert_eq!((paused.severity, paused.foreground_lost), (Severity::Warning, None));
    assert!(!paused.victims.contains(&"pg.commit".to_owned()), "{:?}", paused.victims);
    assert!(!of(&on, "sync-standby-slow").summary.contains("reason"), "{:?}", causes(&on));
    let applied = told("remote_apply");
    let paused = of(&applied, "replay-paused");
    assert!(paused.severity == Severity::Critical && paused.foreground_lost.is_some_and(|share| share > 0.9));
    assert!(paused.victims.contains(&"pg.commit".to_owned()), "{:?}", paused.victims);
}

#[test]
fn that_none_is_connected_is_not_said_where_standbys_cannot_be_read() {
    let mut planted = readings(&gone(), stuck);
    planted.forget("pg.replication.");
    planted.samples.retain(|sample| sample.backend_type.as_deref() == Some("client backend"));
    let findings = judged(&gone(), "*", planted);
    let slow = of(&findings, "sync-standby-slow");
    assert_eq!(slow.cause, "standby-behind");
    assert!(!slow.summary.contains("connected"), "{}", slow.summary);
    assert!(slow.unseen.iter().any(|unseen| unseen.what.contains("standby")), "{:?}", slow.unseen);
}

#[test]
fn that_none_is_connected_is_said_once_the_role_has_its_rights() {
    let told = |carriers: bool| {
        let mut planted = readings(&gone(), stuck);
        planted.forget("pg.replication.");
        planted.samples.retain(|sample| carriers || !sample.is_carrier());
        let fields = [("what", "standbys"), ("why", "role plain is no member of pg_monitor")];
        planted.events.push(Event::new(Moment::from_seconds(START_S), "primary", EventKind::Absent, "", &fields));
        of(&judged(&gone(), "*", planted), "sync-standby-slow").cause.clone()
    };
    assert_eq!((told(true).as_str(), told(false).as_str()), ("standby-missing", "standby-behind"));
}

#[test]
fn that_none_is_connected_is_not_said_while_their_view_fails() {
    let plant = WalPlant { synchronous: true, ..WalPlant::default() };
    let told = |from_s: f64, events: &[(f64, (&str, &str))]| {
        let ended_s = events.iter().find(|(_, field)| field.0 == "ended").map_or(1e9, |(second, _)| *second);
        let mut planted = readings(&plant, stuck);
        planted.drop_rows(START_S + from_s, START_S + ended_s);
        let (view, reason) = (("probe", "postgres.primary pg_stat_replication"), ("reason", "no answer within 2 s"));
        let event = |(second, field): &(f64, (&str, &str))| {
            let at = Moment::from_seconds(START_S + second);
            let fields = if field.0 == "ended" { vec![view, *field] } else { vec![view, reason, *field] };
            Event::new(at, "primary", EventKind::Gap, "", &fields)
        };
        planted.events.extend(events.iter().map(event));
        judged(&plant, "*", planted)
    };
    let (begins, lasts, ends) = (("reason", "no answer within 2 s"), ("failing_s", "40"), ("ended", "true"));
    for (from_s, events) in [
        (FROM_S, vec![(FROM_S, begins)]),
        (FROM_S, vec![(FROM_S, begins), (35.0, ends)]),
        // It began before the window, of which is told after half a minute.
        (-1.0, vec![(30.0, lasts)]),
        // All that was told of it is its end.
        (-1.0, vec![(28.0, ends)]),
    ] {
        let findings = told(from_s, &events);
        let slow = of(&findings, "sync-standby-slow");
        assert!(slow.cause != "standby-missing" && !slow.summary.contains("connected"), "{}", slow.summary);
        let is_it = |unseen: &&backwater_model::Unseen| unseen.what == "pg_stat_replication of primary";
        let why = slow.unseen.iter().find(is_it).map(|unseen| unseen.why.as_str());
        let before = "it could not be read as the window begins, and why was told before";
        let expected = if events[0].1 == ends { before } else { begins.1 };
        assert_eq!(why, Some(expected), "{events:?}: {:?}", slow.unseen);
    }
}

#[test]
fn heartbeats_are_not_laid_on_a_standby_that_commits_do_without() {
    let plants = [
        WalPlant { away: Some((FROM_S, 1e9)), ..WalPlant::default() },
        WalPlant { replay: Replay::Paused, ..WalPlant::default() },
        WalPlant { link: Some(3.0 * MIB), ..WalPlant::default() },
    ];
    for plant in plants {
        let mut planted = plant.readings();
        miss_heartbeats(&mut planted, "primary");
        let findings = judged(&plant, "", planted);
        let heartbeat = of(&findings, "heartbeat-at-risk");
        assert!(findings.len() >= 2 && heartbeat.severity == Severity::Critical, "{:?}", causes(&findings));
        assert!(!heartbeat.summary.contains("reason"), "{}", heartbeat.summary);
    }
}

#[test]
fn heartbeats_are_laid_on_their_own_server() {
    let plant = WalPlant { primary_cap: Some(2.0 * MIB), wal_on_capped: false, ..WalPlant::default() };
    for (server, first) in [("primary", "io-capped"), ("other", "heartbeat-at-risk")] {
        let mut planted = plant.readings();
        miss_heartbeats(&mut planted, server);
        let mut meta = meta(&plant, "");
        let other = Target { name: "other".into(), kind: "postgres".into(), ..Target::default() };
        let mut unmet = meta.clone();
        unmet.targets.push(other.clone());
        meta.targets.push(Target { version_num: Some(150_000), ..other });
        let mut window = planted.window(meta, START_S, START_S + plant.seconds);
        let findings = found(&window);
        window.meta = Arc::new(unmet);
        let told = found(&window).iter().any(|finding| finding.rule == "heartbeat-at-risk");
        assert_eq!(told, server == "primary", "whether one is a standby that was never read nobody knows");
        assert_eq!(findings[0].rule, first, "{:?}", causes(&findings));
        let heartbeat = of(&findings, "heartbeat-at-risk");
        assert_eq!(heartbeat.summary.contains("io-capped"), server == "primary", "{}", heartbeat.summary);
    }
}
