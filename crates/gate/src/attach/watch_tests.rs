//! Sessions that are slowed for what they do, and let go when they have done it.
#![allow(clippy::unwrap_used)]
use super::*;
use backwater_flow::StateForm;
use backwater_flow::rule::{Action, Rule, RuleOption, Step};

fn rule(text: &str) -> State {
    let statement = format!("CREATE EXCEPT RULE r WITH ({text})");
    let parsed = backwater_flow::statement::parse(&statement).unwrap().remove(0);
    let backwater_flow::statement::Statement::CreateRule { name, options } = parsed else { panic!("{parsed:?}") };
    let mut rule = Rule::default();
    options.iter().for_each(|option: &RuleOption| rule.set(option));
    State::of_rules([(name, rule)])
}

fn running(pid: i32, elapsed_s: f64) -> Activity {
    let statement_us = Some(1_000_000);
    Activity {
        pid,
        began_us: 5,
        user: "etl".into(),
        active: true,
        statement_us,
        elapsed_s: Some(elapsed_s),
        ..Activity::default()
    }
}

fn at(seconds: f64) -> Moment {
    Moment::from_seconds(1_000.0 + seconds)
}

/// What happened, in words.
fn steps(decisions: &[((i32, i64), Decision)]) -> Vec<(i32, String)> {
    let told = |decision: &Decision| match decision.step {
        Step::Lifted(lifted) => lifted.why.word().to_owned(),
        step => step.word().to_owned(),
    };
    decisions.iter().map(|((pid, _), decision)| (*pid, told(decision))).collect()
}

#[test]
fn a_stream_is_demoted_for_its_bandwidth_and_let_go_when_its_statement_ends() {
    let rules = rule("bandwidth=20, action='penalty'");
    let mut watch = Watch::new();
    let mut done = Vec::new();
    for tick in 0..120 {
        let now = f64::from(tick) * 0.25;
        // 60 MB/s from the start; the other session hardly sends.
        let stream = Seen { acked_bytes: Some((now * 60.0 * MB) as u64), ..Seen::default() };
        let quiet = Seen { acked_bytes: Some((now * 0.1 * MB) as u64), ..Seen::default() };
        let mut activities = vec![(running(1, now), stream), (running(2, now), quiet)];
        if tick >= 100 {
            activities[0].0.active = false;
        }
        for step in steps(&watch.look(at(now), &activities, &rules)) {
            done.push((now, step));
        }
        assert_eq!(watch.is_penalised((1, 5)), done.len() == 1, "{done:?}");
        assert!(!watch.is_penalised((2, 5)));
    }
    let [(began, first), (ended, last)] = &done[..] else { panic!("{done:?}") };
    // A five-second mean of 60 MB/s passes 20 after 1.7 s.
    assert!((1.5..2.3).contains(began) && *first == (1, "began".into()), "{done:?}");
    assert!(*ended == 25.0 && *last == (1, "the statement ended".into()), "{done:?}");
}

#[test]
fn a_blocker_of_urgent_work_is_let_go_and_a_blocker_of_its_like_is_not() {
    let rules = rule("elapsedtime=5, action='penalty'");
    let mut watch = Watch::new();
    let slow = || (running(1, 6.0), Seen::default());
    assert_eq!(steps(&watch.look(at(0.0), &[slow()], &rules)), [(1, "began".into())]);
    let mut like = running(2, 6.0);
    like.blocked_by = vec![1];
    let both = [slow(), (like, Seen::default())];
    assert_eq!(steps(&watch.look(at(0.5), &both, &rules)), [(2, "began".into())]);
    assert!(watch.is_penalised((1, 5)));
    let mut urgent = running(3, 0.1);
    urgent.blocked_by = vec![1];
    let all = [slow(), (urgent, Seen::default())];
    let told = steps(&watch.look(at(1.0), &all, &rules));
    assert!(told.contains(&(1, "it blocked urgent work".into())), "{told:?}");
    assert!(told.contains(&(2, "the session ended".into())), "{told:?}");
    assert!(!watch.is_penalised((1, 5)));
    assert_eq!(steps(&watch.look(at(1.5), &[slow()], &rules)), []);
}

#[test]
fn who_holds_up_a_blocker_of_urgent_work_is_let_go_too() {
    let rules = rule("elapsedtime=5, action='penalty'");
    let mut watch = Watch::new();
    let slow = || (running(1, 6.0), Seen::default());
    let waiting = |pid: i32, elapsed_s: f64, of: i32| {
        (Activity { blocked_by: vec![of], ..running(pid, elapsed_s) }, Seen::default())
    };
    let held = [slow(), waiting(2, 6.0, 1)];
    assert_eq!(steps(&watch.look(at(0.0), &held, &rules)), [(1, "began".into()), (2, "began".into())]);
    // The server says that the third waits for the second, and no more.
    let all = [slow(), waiting(2, 6.0, 1), waiting(3, 0.1, 2)];
    let freed = |pid| (pid, "it blocked urgent work".to_owned());
    assert_eq!(steps(&watch.look(at(0.5), &all, &rules)), [freed(1), freed(2)]);
}

#[test]
fn an_abort_waits_while_what_the_server_had_said_is_acknowledged() {
    let rules = rule("elapsedtime=5, action='abort'");
    let mut watch = Watch::new();
    let mut look = |s: u32, acked_mb: f64| {
        let seen = Seen { acked_bytes: Some((acked_mb * MB) as u64), ..Seen::default() };
        steps(&watch.look(at(f64::from(s)), &[(running(1, f64::from(s)), seen)], &rules))
    };
    assert_eq!(look(6, 1.0), [(1, "began".into())]);
    for s in 7..20 {
        assert_eq!(look(s, f64::from(s)), []);
    }
    assert_eq!(look(23, 19.0), []);
    assert_eq!(look(24, 19.0), [(1, "escalated".into())]);
}

#[test]
fn what_an_aborted_statement_sent_does_not_stop_the_next() {
    let rules = rule("bandwidth=100, action='abort'");
    let mut watch = Watch::new();
    let mut look = |s: f64, statement: i64, acked_mb: f64| {
        let activity = Activity { statement_us: Some(statement), ..running(1, 1.0) };
        let seen = Seen { acked_bytes: Some((acked_mb * MB) as u64), ..Seen::default() };
        steps(&watch.look(at(s), &[(activity, seen)], &rules))
    };
    assert_eq!(look(0.0, 1, 0.0), []);
    assert_eq!(look(1.0, 1, 600.0), [(1, "began".into())]);
    assert_eq!(look(1.5, 2, 600.0), [(1, "the statement ended".into())]);
    assert_eq!(look(2.0, 2, 610.0), []);
    assert_eq!(look(2.5, 2, 1_200.0), [(1, "began".into())], "what it sends itself counts");
}

#[test]
fn looks_that_are_far_apart_tell_the_same_rate() {
    let rules = rule("bandwidth=128, action='penalty'");
    for interval_s in [0.5, 3.0, 4.9, 10.0, 61.0] {
        let mut watch = Watch::new();
        for look in 0..20 {
            let now = f64::from(look) * interval_s;
            let seen = Seen { acked_bytes: Some((now * 120.0 * MB) as u64), ..Seen::default() };
            assert_eq!(steps(&watch.look(at(now), &[(running(1, now), seen)], &rules)), [], "every {interval_s} s");
        }
    }
}

#[test]
fn cpu_wal_and_waits_are_of_the_statement_not_of_the_session() {
    let mut session = Session::new(SessionId(1));
    let seen = |cpu_s| Seen { cpu_s: Some(cpu_s), ..Seen::default() };
    let mut activity = Activity { wal_bytes: Some(100.0 * MB), ..running(1, 0.0) };
    let first = session.figures(at(0.0), &activity, &seen(50.0));
    assert_eq!((first.cpu_s, first.cpu_percent), (Some(0.0), None));
    activity.blocked_by = vec![9];
    activity.elapsed_s = Some(2.0);
    activity.wal_bytes = Some(130.0 * MB);
    let second = session.figures(at(2.0), &activity, &seen(51.0));
    assert_eq!((second.cpu_s, second.cpu_percent), (Some(1.0), Some(50.0)));
    assert_eq!(second.wal_mb_per_s, Some(6.0));
    assert_eq!(second.blocked_s, Some(0.0), "it may have begun to wait just now");
    assert_eq!(session.figures(at(2.5), &activity, &seen(51.0)).blocked_s, Some(0.5));
    activity.statement_us = Some(9_000_000);
    let next = session.figures(at(3.0), &activity, &seen(51.5));
    assert_eq!((next.cpu_s, next.blocked_s, session.statement), (Some(0.0), Some(0.0), 2));
}

#[test]
fn a_batch_is_held_for_the_wal_of_its_transactions_before_until_it_has_rested() {
    let rules = rule("walsize=50, action='penalty'");
    let mut watch = Watch::new();
    let mut look = |s: f64, wal_mb: f64, idle_s: Option<f64>| {
        let statement_us = Some((s * 1e6) as i64);
        let active = idle_s.is_none();
        let batch = Activity { wal_bytes: Some(wal_mb * MB), idle_s, active, statement_us, ..running(1, 0.0) };
        let quiet = Activity { wal_bytes: Some(900.0 * MB), ..running(2, 0.0) };
        steps(&watch.look(at(s), &[(batch, Seen::default()), (quiet, Seen::default())], &rules))
    };
    assert_eq!(look(0.0, 0.0, None), []);
    assert_eq!(look(1.0, 40.0, None), []);
    assert_eq!(look(2.0, 40.0, Some(0.5)), []);
    assert_eq!(look(3.0, 80.0, None), [(1, "began".into())]);
    assert_eq!(look(4.0, 90.0, Some(0.5)), [(1, "the statement ended".into())]);
    assert_eq!(look(5.0, 90.0, None), [(1, "began".into())]);
    assert_eq!(look(21.0, 95.0, Some(15.5)), [(1, "the statement ended".into())]);
    assert_eq!(look(22.0, 95.0, None), []);
}

#[test]
fn what_cannot_be_seen_convicts_nobody() {
    let mut watch = Watch::new();
    let rules = rule("bandwidth=1, cputime=1, walrate=1, walsize=1, action='penalty'");
    for tick in 0..100 {
        let now = f64::from(tick);
        assert_eq!(steps(&watch.look(at(now), &[(running(1, now), Seen::default())], &rules)), []);
    }
    assert_eq!(rule("elapsedtime=1").rules()["r"].action, Action::Abort);
}

#[test]
fn rules_are_those_of_the_users_pool_and_a_low_pool_is_held_whatever_it_does() {
    let text = "[rules.slow]\nelapsedtime = 5\naction = 'penalty'\n[pools.reports]\nexcept_rule = 'slow'\n\
                [pools.batch]\npriority = 'low'\n[users]\netl = 'batch'\nbi = 'reports'\n";
    let state = State::try_from(toml::from_str::<StateForm>(text).unwrap()).unwrap();
    let of = |pid, user: &str| Activity { user: user.into(), ..running(pid, 9.0) };
    let sessions = [of(1, "etl"), of(2, "bi"), of(3, "app")].map(|activity| (activity, Seen::default()));
    let mut watch = Watch::new();
    let decisions = watch.look(at(0.0), &sessions, &state);
    assert_eq!(steps(&decisions), [(2, "began".into())]);
    assert_eq!(decisions[0].1.pool, "reports");
    assert_eq!(watch.low(&sessions, &state), HashSet::from([(1, 5)]));
    // Somebody urgent waits for the batch's lock; then somebody who is held as well.
    let mut waiting = sessions.clone();
    waiting[2].0.blocked_by = vec![1];
    assert_eq!(watch.low(&waiting, &state), HashSet::new());
    waiting[2].0.blocked_by = Vec::new();
    waiting[1].0.blocked_by = vec![1];
    assert_eq!(watch.low(&waiting, &state), HashSet::from([(1, 5)]));
}

#[test]
fn of_whom_the_server_tells_no_more_nobody_says_that_they_ended() {
    let rules = rule("elapsedtime=5, action='penalty'");
    let mut watch = Watch::new();
    let activities = [(running(1, 6.0), Seen::default())];
    assert_eq!(steps(&watch.look(at(0.0), &activities, &rules)), [(1, "began".to_owned())]);
    assert_eq!(steps(&watch.lift_all(at(1.0), Why::Unseen)), [(1, "the server tells no more of it".to_owned())]);
    assert!(!watch.is_penalised((1, 5)) && watch.lift_all(at(2.0), Why::Unseen).is_empty());
    // It was only out of sight.
    assert_eq!(steps(&watch.look(at(3.0), &activities, &rules)), [(1, "began".to_owned())]);
}

#[test]
fn rows_are_the_most_that_a_statement_was_seen_to_send() {
    let rules = rule("rows=1000, action='penalty'");
    let mut watch = Watch::new();
    let mut look = |second: f64, statement_us, copied_rows, rows| {
        let activity = Activity { statement_us: Some(statement_us), copied_rows, ..running(1, second) };
        steps(&watch.look(at(second), &[(activity, Seen { rows, ..Seen::default() })], &rules))
    };
    let (began, ended) = ([(1, "began".to_owned())], [(1, "the statement ended".to_owned())]);
    assert_eq!(look(1.0, 1, None, None), [], "what is not known is not over");
    assert_eq!(look(2.0, 1, None, Some(1_001.0)), [], "it may be the next statement's");
    assert_eq!(look(3.0, 1, None, None), began, "it was not; a function hides them now");
    assert_eq!(look(4.0, 1, None, Some(2_000.0)), []);
    assert_eq!(look(5.0, 2, None, Some(1_000.0)), ended);
    assert_eq!(look(6.0, 2, None, Some(1_000.0)), [], "not over");
    assert_eq!(look(7.0, 2, Some(1_001.0), None), began, "of a COPY the server tells");
}

#[test]
fn a_process_is_a_sessions_own_only_where_number_title_and_begin_fit() {
    assert!(begins_with(5_000_000, 4_990_000) && begins_with(5_000_000, 5_010_000));
    assert!(!begins_with(5_000_000, 5_100_000), "it began after the session");
    assert!(!begins_with(5_000_000, 3_000_000), "long before it");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "read line", " etl ", "[local]"]).stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let began_us = unix_us(began_ticks(pid).unwrap());
    let of = |user: &str, pid: i32, began_us: i64| {
        LocalProcess::of(&Activity { pid, user: user.to_owned(), began_us, ..Activity::default() })
    };
    // The kernel puts a program's arguments down last.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let own = loop {
        match of("etl", pid, began_us) {
            Some(own) => break own,
            None => assert!(std::time::Instant::now() < until, "it is never the session's"),
        }
    };
    let others = [of("bi", pid, began_us), of("etl", pid, began_us + 3_000_000), of("etl", i32::MAX, began_us)];
    assert_eq!((own.pid(), others), (Some(pid), [None, None, None]));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(own.pid(), None, "it is gone");
}
