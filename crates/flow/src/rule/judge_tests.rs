//! What a judge does over the life of sessions.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::rule::{Attribute, RuleOption};
use backwater_model::EventKind;
use proptest::prelude::*;

fn rule(action: Action, elapsed_s: f64, cooldown_s: f64) -> Rule {
    let mut rule = Rule { action, cooldown_s, ..Rule::default() };
    rule.set(&RuleOption::Threshold(Attribute::ElapsedTime, Some(elapsed_s)));
    rule
}

fn look(
    judge: &mut Judge,
    at_s: f64,
    statement: Option<u64>,
    rules: &[(&str, &Rule)],
    elapsed_s: f64,
) -> Vec<Decision> {
    look_at(judge, at_s, (statement, 0), rules, elapsed_s)
}

/// Between two statements, of which nobody tells more.
const OF_USER1: Subject<'_> = Subject {
    session: SessionId(7),
    user: "user1",
    pool: "rp1",
    client: None,
    server_pid: None,
    statement: None,
    sent_bytes: 0,
};

/// At a session that has sent so many bytes.
fn look_at(
    judge: &mut Judge,
    at_s: f64,
    (statement, sent_bytes): (Option<u64>, u64),
    rules: &[(&str, &Rule)],
    elapsed_s: f64,
) -> Vec<Decision> {
    let subject = Subject { statement, sent_bytes, ..OF_USER1 };
    let figures = Figures { elapsed_s: statement.map(|_| elapsed_s), ..Figures::default() };
    judge.look(Moment::from_seconds(at_s), subject, rules.iter().copied(), &figures)
}

#[test]
fn a_penalty_is_imposed_once_and_lifted_when_its_statement_ends() {
    let penalty = rule(Action::Penalty, 60.0, 0.0);
    let rules = [("slow", &penalty)];
    let mut judge = Judge::new();
    assert!(look(&mut judge, 50.0, Some(1), &rules, 50.0).is_empty());
    let began = look(&mut judge, 61.0, Some(1), &rules, 61.0);
    assert_eq!(began.len(), 1);
    assert_eq!(began[0].to_string(), "rule slow demotes session 7 (user user1, pool rp1): elapsedtime 61 over 60 s");
    assert_eq!(judge.penalised_by(SessionId(7)), Some("slow"));
    assert!(look(&mut judge, 62.0, Some(1), &rules, 62.0).is_empty());
    let lifted = look(&mut judge, 70.0, None, &rules, 0.0);
    let began_at = Moment::from_seconds(61.0);
    assert_eq!(
        lifted[0].step,
        Step::Lifted(Lifted { began: began_at, cooldown_since: Some(lifted[0].at), why: Why::StatementEnded })
    );
    assert_eq!(
        lifted[0].to_string(),
        "rule slow lifts its penalty of session 7 (user user1, pool rp1) after 9.0 s: the statement ended \
         (imposed at elapsedtime 61 over 60 s)"
    );
    assert!(!judge.is_penalised(SessionId(7)));
    assert!(judge.sessions.is_empty());
}

#[test]
fn a_penalty_stays_while_it_cools_down_and_goes_on_if_it_matches_again() {
    let penalty = rule(Action::Penalty, 10.0, 30.0);
    let rules = [("slow", &penalty)];
    let mut judge = Judge::new();
    assert_eq!(look(&mut judge, 11.0, Some(1), &rules, 11.0).len(), 1);
    assert!(look(&mut judge, 20.0, None, &rules, 0.0).is_empty());
    assert!(look(&mut judge, 40.0, Some(2), &rules, 11.0).is_empty());
    assert!(look(&mut judge, 60.0, Some(2), &rules, 31.0).is_empty(), "the second statement keeps it in force");
    assert!(judge.is_penalised(SessionId(7)));
    assert!(look(&mut judge, 61.0, None, &rules, 0.0).is_empty());
    let lifted = look(&mut judge, 91.0, None, &rules, 0.0);
    let wanted = "(user user1, pool rp1) after 80.0 s, the last 30.0 s of it cool-down: the statement ended (";
    assert!(lifted.len() == 1 && lifted[0].to_string().contains(wanted), "{lifted:?}");
}

#[test]
fn a_cool_down_is_as_long_as_its_rule_says_now() {
    let (long, none) = (rule(Action::Penalty, 10.0, 86_400.0), rule(Action::Penalty, 10.0, 0.0));
    let mut judge = Judge::new();
    assert_eq!(look(&mut judge, 11.0, Some(1), &[("slow", &long)], 11.0).len(), 1);
    assert!(look(&mut judge, 20.0, None, &[("slow", &long)], 0.0).is_empty());
    assert_eq!(look(&mut judge, 21.0, None, &[("slow", &none)], 0.0).len(), 1);
    assert!(!judge.is_penalised(SessionId(7)));
}

#[test]
fn who_was_let_go_for_what_it_blocked_is_held_by_no_other_rule_until_its_statement_ends() {
    let penalty = rule(Action::Penalty, 10.0, 0.0);
    let rules = [("a", &penalty), ("b", &penalty)];
    let mut judge = Judge::new();
    assert_eq!(look(&mut judge, 11.0, Some(1), &rules, 11.0).len(), 1);
    assert_eq!(judge.lift(Moment::from_seconds(12.0), SessionId(7), Why::BlockedUrgent).len(), 1);
    assert!(look(&mut judge, 13.0, Some(1), &rules, 13.0).is_empty() && !judge.is_penalised(SessionId(7)));
    assert_eq!(look(&mut judge, 30.0, Some(2), &rules, 11.0).len(), 1);
    assert!(judge.is_penalised(SessionId(7)));
}

#[test]
fn what_was_not_done_is_taken_back_and_decided_again_whatever_the_cool_down() {
    let abort = rule(Action::Abort, 1.0, 60.0);
    let rules = [("stop", &abort)];
    let mut judge = Judge::new();
    assert_eq!(look(&mut judge, 2.0, Some(1), &rules, 2.0).len(), 1);
    let told = judge.take_back(Moment::from_seconds(3.0), SessionId(7), "stop").unwrap().to_string();
    assert!(told.starts_with("rule stop has done with") && told.contains("the statement did not run"), "{told}");
    assert_eq!(judge.take_back(Moment::from_seconds(3.0), SessionId(7), "stop"), None);
    assert!(look(&mut judge, 4.0, None, &rules, 0.0).is_empty());
    assert_eq!(look(&mut judge, 5.0, Some(1), &rules, 5.0)[0].step, Step::Began);
}

#[test]
fn an_abort_goes_before_a_penalty_and_ends_the_session_if_it_does_not_help() {
    let (penalty, abort, dry) =
        (rule(Action::Penalty, 1.0, 0.0), rule(Action::Abort, 1.0, 0.0), rule(Action::DryRun, 1.0, 0.0));
    let rules = [("a_penalty", &penalty), ("b_abort", &abort), ("c_dry", &dry)];
    let mut judge = Judge::new();
    let decided = look(&mut judge, 2.0, Some(1), &rules, 2.0);
    assert_eq!(decided.iter().map(|d| d.action).collect::<Vec<_>>(), [Action::DryRun, Action::Abort]);
    assert!(look(&mut judge, 6.9, Some(1), &rules, 6.9).is_empty());
    let escalated = look(&mut judge, 7.0, Some(1), &rules, 7.0);
    assert_eq!(escalated[0].step, Step::Escalated);
    assert!(look(&mut judge, 8.0, Some(1), &rules, 8.0).is_empty());
    let told: Vec<String> = look(&mut judge, 9.0, None, &rules, 0.0).iter().map(Decision::to_string).collect();
    let end = "session 7 (user user1, pool rp1) after 7.0 s: the statement ended";
    assert_eq!(
        told,
        [
            format!("rule b_abort has done with {end} (cancelled at elapsedtime 2 over 1 s)"),
            format!("rule c_dry would leave {end} (seen at elapsedtime 2 over 1 s)"),
        ]
    );
    assert!(judge.sessions.is_empty());
}

/// When an abort that began after two seconds is escalated, of a session that has sent so many bytes by each second after that.
fn escalated_at_s(sent_bytes: impl Fn(u32) -> u64) -> u32 {
    let abort = rule(Action::Abort, 1.0, 0.0);
    let rules = [("stop", &abort)];
    let mut judge = Judge::new();
    let mut look = |s: u32| {
        let at_s = f64::from(s);
        look_at(&mut judge, at_s, (Some(1), sent_bytes(s)), &rules, at_s)
    };
    assert_eq!(look(2).len(), 1);
    let mut later = (3..1_000).filter_map(|s| Some((s, look(s).pop()?)));
    let (at_s, decision) = later.next().unwrap();
    assert_eq!((decision.step, later.next()), (Step::Escalated, None));
    at_s
}

#[test]
fn an_abort_waits_for_what_the_server_had_said_and_for_nothing_more() {
    assert_eq!(escalated_at_s(|_| 7 * MB), 7);
    // 200 kB a second of three megabytes that stood in buffers, and then silence; an end would have come by then.
    assert_eq!(escalated_at_s(|s| u64::from(s.min(17)) * 200_000), 17 + 5);
    // More than buffers hold, at once and at 4 MB a second.
    assert_eq!(escalated_at_s(|s| u64::from(s) * 100 * MB), 7);
    assert_eq!(escalated_at_s(|s| u64::from(s) * 4 * MB), 2 + 11);
    assert_eq!(escalated_at_s(u64::from), 2 + 300);
}

#[test]
fn an_abort_that_cools_down_leaves_the_next_statement_alone() {
    let abort = rule(Action::Abort, 1.0, 60.0);
    let rules = [("stop", &abort)];
    let mut judge = Judge::new();
    assert_eq!(look(&mut judge, 2.0, Some(1), &rules, 2.0).len(), 1);
    assert!(look(&mut judge, 3.0, None, &rules, 0.0).is_empty());
    assert!(look(&mut judge, 10.0, Some(2), &rules, 5.0).is_empty());
    let steps: Vec<_> = look(&mut judge, 64.0, Some(3), &rules, 5.0).iter().map(|told| told.step.word()).collect();
    assert_eq!(steps, ["lifted", "began"]);
}

#[test]
fn a_rule_that_cools_down_keeps_no_other_from_acting() {
    let (abort, other) = (rule(Action::Abort, 1.0, 60.0), rule(Action::Abort, 4.0, 0.0));
    let rules = [("other", &other), ("stop", &abort)];
    let mut judge = Judge::new();
    assert_eq!(look(&mut judge, 2.0, Some(1), &rules, 2.0)[0].rule, "stop");
    assert!(look(&mut judge, 3.0, None, &rules, 0.0).is_empty());
    assert!(look(&mut judge, 10.0, Some(2), &rules, 3.0).is_empty());
    assert_eq!(look(&mut judge, 12.0, Some(2), &rules, 5.0)[0].rule, "other");
}

#[test]
fn what_blocks_urgent_work_is_released_and_left_alone_for_that_statement() {
    let penalty = rule(Action::Penalty, 1.0, 0.0);
    let rules = [("slow", &penalty)];
    let mut judge = Judge::new();
    look(&mut judge, 2.0, Some(1), &rules, 2.0);
    let lifted = judge.lift(Moment::from_seconds(3.0), SessionId(7), Why::BlockedUrgent);
    assert_eq!(lifted.len(), 1);
    assert!(!judge.is_penalised(SessionId(7)));
    assert!(look(&mut judge, 4.0, Some(1), &rules, 4.0).is_empty());
    assert_eq!(look(&mut judge, 9.0, Some(2), &rules, 2.0).len(), 1);
    let event = judge.forget(Moment::from_seconds(10.0), SessionId(7), Why::SessionEnded)[0].event("gate");
    assert_eq!(event.kind, EventKind::Decision);
    assert_eq!(event.fields["why"], "the session ended");
    assert_eq!(event.fields["elapsedtime"], "2");
}

#[test]
fn dropping_a_rule_lifts_what_it_did() {
    let penalty = rule(Action::Penalty, 1.0, 600.0);
    let mut judge = Judge::new();
    look(&mut judge, 2.0, Some(1), &[("slow", &penalty)], 2.0);
    let lifted = look(&mut judge, 3.0, Some(1), &[], 3.0);
    assert!(matches!(lifted[0].step, Step::Lifted(Lifted { why: Why::RuleGone, .. })));
}

proptest! {
    /// Whatever happens, what begins is lifted exactly once, and nothing is lifted that had not begun.
    #[test]
    fn what_begins_is_lifted_once(
        steps in prop::collection::vec(
            (0..20_000i64, prop::option::of(0..4u64), 0..30u32, any::<[bool; 4]>(), prop::bool::weighted(0.1)), 1..100),
        cooldown in 0..20u32,
    ) {
        let rules = [
            rule(Action::Penalty, 5.0, f64::from(cooldown)),
            rule(Action::Penalty, 15.0, 0.0),
            rule(Action::Abort, 25.0, 3.0),
            rule(Action::DryRun, 10.0, 1.0),
        ];
        let names = ["a", "b", "c", "d"];
        let (mut judge, mut now, mut open) = (Judge::new(), 0i64, Vec::<(String, Action)>::new());
        let mut see = |decisions: Vec<Decision>| {
            for decision in decisions {
                let at = open.iter().position(|(rule, _)| *rule == decision.rule);
                match decision.step {
                    Step::Began => { assert_eq!(at, None); open.push((decision.rule, decision.action)) }
                    Step::Escalated => assert_eq!(open[at.unwrap()].1, Action::Abort),
                    Step::Lifted(_) => drop(open.remove(at.unwrap())),
                }
            }
            open.iter().map(|(_, action)| *action).collect::<Vec<_>>()
        };
        for (pause_ms, statement, elapsed, present, blocks) in steps {
            now += pause_ms * 1_000;
            let list: Vec<(&str, &Rule)> = (0..4).filter(|at| present[*at]).map(|at| (names[at], &rules[at])).collect();
            let mut decided = look(&mut judge, now as f64 / 1e6, statement, &list, f64::from(elapsed));
            if blocks {
                decided.extend(judge.lift(Moment(now), SessionId(7), Why::BlockedUrgent));
            }
            prop_assert_eq!(see(decided).contains(&Action::Penalty), judge.is_penalised(SessionId(7)));
        }
        prop_assert!(see(judge.forget(Moment(now), SessionId(7), Why::SessionEnded)).is_empty());
    }
}

#[test]
fn a_decision_names_the_client_and_the_servers_process_where_they_are_known() {
    let penalty = rule(Action::Penalty, 60.0, 0.0);
    let mut judge = Judge::new();
    let subject = Subject { client: Some("10.0.0.9:40000"), server_pid: Some(4711), statement: Some(1), ..OF_USER1 };
    let figures = Figures { elapsed_s: Some(61.0), ..Figures::default() };
    let began = judge.look(Moment::from_seconds(61.0), subject, [("slow", &penalty)], &figures).remove(0);
    let gone = judge.forget(Moment::from_seconds(62.0), SessionId(7), Why::SessionEnded).remove(0);
    let whose = "session 7 (user user1, pool rp1, client 10.0.0.9:40000, server process 4711)";
    for decision in [began, gone] {
        assert!(decision.to_string().contains(whose), "{decision}");
        let fields = decision.event("proxy").fields;
        assert_eq!((&*fields["client"], &*fields["server_pid"]), ("10.0.0.9:40000", "4711"));
    }
}
