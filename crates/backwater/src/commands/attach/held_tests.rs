//! Whoever is to be held, and whose connection is lost and found again, with a helper that answers as it was told to.
#![allow(clippy::unwrap_used)]
use super::*;
use backwater_flow::StateForm;
use backwater_flow::rule::{Action, Attribute, Rule, RuleOption};
use backwater_gate::attach::{Guardian, Rates};
use std::process::Command;

/// Says its first line at once and one more to each question, whatever it is; its standard input is the line to its master, both ways.
const SAYS: &str = "for answer; do printf '%s\\n' \"$answer\" >&0; read -r question || exit; done";

const READY: &str = r#"{"ready":{"count":0,"left":[]}}"#;
const NONE: &str = r#"{"readings":[]}"#;
const READ: &str = r#"{"readings":[{"read":{"queued_bytes":0,"info":{"established":true,"half_closed":false}}}]}"#;
const GONE: &str = r#"{"readings":["gone"]}"#;
const FAILED: &str = r#"{"readings":[{"failed":"no descriptor is left"}]}"#;
const PACED: &str = r#"{"each":["done"]}"#;
const REFUSED: &str = r#"{"each":[{"refused":"it is paced already"}]}"#;
const DONE: &str = r#""done""#;
const FOUND: &str = r#"{"found":{"tcp":[{"socket":{"pid":4711,"start_time":8,"inode":9,"descriptor":7,"cookie":10,
    "local":"10.0.0.7:5432","peer":"10.0.0.9:40000"},"title":"postgres: etl"}],"others":0}}"#;
const UNFOUND: &str = r#"{"found":{"tcp":[],"others":1}}"#;

const KEY: Key = (4711, 1);

/// Every question that is asked must have its answer here, in turn: one more or one of another kind, and the look fails.
fn hold(answers: &[&[&str]]) -> Hold {
    let mut command = Command::new("sh");
    command.args(["-c", SAYS, "sh", READY]);
    command.args(answers.concat().iter().map(|answer| answer.replace('\n', " ")));
    Hold::new(Guardian::start(command).unwrap(), Rates { each_bps: Some(2 << 20), class: None })
}

/// One session of etl, that runs a statement or not.
fn session(active: bool) -> Session {
    let activity = Activity { pid: KEY.0, began_us: KEY.1, user: "etl".to_owned(), active, ..Activity::default() };
    Session::of_client(activity, "10.0.0.9:40000".parse().unwrap())
}

/// A rule slows that session from here on.
fn penalise(watch: &mut Watch) {
    let mut slow = Rule { action: Action::Penalty, ..Rule::default() };
    slow.set(&RuleOption::Threshold(Attribute::ElapsedTime, Some(1.0)));
    let activity = Activity { elapsed_s: Some(9.0), ..session(true).activity };
    let rules = State::of_rules([("slow".to_owned(), slow)]);
    assert_eq!(watch.look(now(), &[(activity, Seen::default())], &rules).len(), 1);
}

/// It does no longer.
fn lift(held: &mut Held, watch: &mut Watch, hold: &mut Hold) {
    let activity = session(true).activity;
    assert_eq!(watch.look(now(), &[(activity, Seen::default())], &State::default()).len(), 1);
    held.lift(KEY, hold).unwrap();
}

/// The steps for pools, and by what those are held who are afterwards.
type Done = (Vec<PoolStep>, Vec<String>);

/// As at every look: who is gone is let go, the sessions are read, and whoever is to be held is.
fn look(held: &mut Held, watch: &Watch, hold: &mut Hold, state: &State, told: &mut Told) -> Done {
    let sessions = [session(state.is_low("etl"))];
    super::super::look(hold).unwrap();
    let activities = held.read(&sessions, state, watch, &BTreeSet::new(), hold).unwrap();
    held.hold_penalised(&sessions, watch, hold, told).unwrap();
    let wanted = watch.low(&activities, state);
    let steps = held.hold_low(&wanted, &sessions, state, watch, hold, told).unwrap();
    held.reconcile(watch, hold).unwrap();
    told.see(hold);
    let holders = hold.paced().iter().map(|paced| told.holder(paced.named.socket.cookie));
    (steps.into_iter().map(|(_, _, step)| step).collect(), holders.collect())
}

#[test]
fn whom_a_rule_slows_is_found_and_held_again_when_the_connection_was_lost_until_it_is_lifted() {
    let mut hold = hold(&[
        // Nobody is held; it is found, read and held.
        &[NONE, FOUND, READ, PACED],
        &[READ, READ],
        // It cannot be read: nothing else is asked.
        &[FAILED, FAILED],
        // It is gone, and put back.
        &[GONE, DONE, GONE],
        &[NONE, FOUND, READ, PACED],
        // Gone for one look only: it is there when it is read next, and held at once.
        &[GONE, DONE, READ, PACED],
        &[READ, READ],
        &[DONE],
        &[NONE, NONE],
    ]);
    let (mut held, mut watch) = (Held::default(), Watch::new());
    let (mut told, state) = (Told::unrecorded(), State::default());
    penalise(&mut watch);
    let (by_rule, nobody): (Done, Done) = ((Vec::new(), vec!["slow".to_owned()]), Done::default());
    for at in 0..3 {
        assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told), by_rule, "{at}");
    }
    assert_eq!(hold.paced()[0].failures(), 1);
    assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told), nobody, "it is lost");
    for at in 4..7 {
        assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told), by_rule, "{at}");
    }
    lift(&mut held, &mut watch, &mut hold);
    assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told), nobody);
}

#[test]
fn a_session_of_a_low_pool_is_held_again_and_one_that_is_not_found_is_not_sought_at_every_look() {
    let mut hold = hold(&[
        &[NONE, FOUND, READ, PACED],
        &[GONE, DONE, GONE],
        &[NONE, FOUND, READ, PACED],
        &[GONE, DONE, GONE],
        // By its process, and by its client's address.
        &[NONE, UNFOUND, UNFOUND, NONE],
        &[NONE, NONE],
        &[NONE, NONE],
    ]);
    let text = "[pools.batch]\npriority = 'low'\n[users]\netl = 'batch'\n";
    let state = State::try_from(toml::from_str::<StateForm>(text).unwrap()).unwrap();
    let (mut held, watch, mut told) = (Held::default(), Watch::new(), Told::unrecorded());
    let (by_pool, nobody): (Done, Done) = ((vec![PoolStep::Held], vec!["pool batch".to_owned()]), Done::default());
    assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told), by_pool);
    assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told), nobody);
    assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told), by_pool);
    for at in 3..7 {
        assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told), nobody, "{at}");
    }
}

#[test]
fn whoever_is_told_of_no_more_while_the_connection_lives_is_let_go() {
    let mut hold = hold(&[&[NONE, FOUND, READ, PACED], &[READ, DONE]]);
    let (mut held, mut watch) = (Held::default(), Watch::new());
    let (mut told, state) = (Told::unrecorded(), State::default());
    penalise(&mut watch);
    assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told).1, ["slow"]);
    super::super::look(&mut hold).unwrap();
    // It was lifted for that as well, after it had been forgotten.
    held.retain(&HashSet::new());
    assert_eq!(watch.look(now(), &[], &state).len(), 1);
    held.lift(KEY, &mut hold).unwrap();
    assert_eq!(hold.paced().len(), 1);
    held.reconcile(&watch, &mut hold).unwrap();
    assert!(hold.paced().is_empty());
}

#[test]
fn a_rule_that_matches_again_one_that_cannot_be_held_is_told_again() {
    let mut hold = hold(&[
        &[NONE, FOUND, READ, REFUSED],
        // Not tried at every look.
        &[NONE, READ],
        &[NONE, READ, REFUSED],
    ]);
    let (mut held, mut watch) = (Held::default(), Watch::new());
    let (mut told, state) = (Told::unrecorded(), State::default());
    penalise(&mut watch);
    for at in 0..2 {
        assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told), Done::default(), "{at}");
        assert!(held.refused.contains_key(&KEY), "{at}");
    }
    lift(&mut held, &mut watch, &mut hold);
    assert!(held.refused.is_empty());
    penalise(&mut watch);
    assert_eq!(look(&mut held, &watch, &mut hold, &state, &mut told), Done::default());
    assert!(held.refused.contains_key(&KEY));
}
