//! What statements do to a state, what they leave alone, and the state's form in files.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::statement::parse;
use proptest::prelude::*;

const PUBLISHED: &str = "CREATE EXCEPT RULE bandwidth_rule1 WITH (bandwidth=128, ELAPSEDTIME=60, action='penalty');
    CREATE RESOURCE POOL rp1 WITH (EXCEPT_RULE='bandwidth_rule1');
    CREATE USER user1 RESOURCE POOL 'rp1' PASSWORD 'xxxxxxxx';";

fn after(text: &str) -> State {
    let mut state = State::default();
    for statement in parse(text).unwrap() {
        assert!(state.apply(&statement).unwrap(), "{statement}");
    }
    state
}

fn refused(state: &State, text: &str) -> String {
    let mut next = state.clone();
    let error = next.apply(&parse(text).unwrap()[0]).unwrap_err().to_string();
    assert_eq!(next, *state, "nothing is changed");
    error
}

#[test]
fn the_published_statements_bind_the_user_to_the_rule() {
    let state = after(PUBLISHED);
    assert_eq!(state.pool_of("user1"), "rp1");
    assert_eq!(state.pool_of("somebody"), DEFAULT_POOL);
    let rules: Vec<_> = state.rules_of("rp1").map(|(name, _)| name).collect();
    assert_eq!(rules, ["bandwidth_rule1"]);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let state = after(PUBLISHED);
    let cases = [
        ("CREATE EXCEPT RULE bandwidth_rule1 WITH (rows=1)", "rule bandwidth_rule1 exists already: ALTER changes it"),
        ("CREATE RESOURCE POOL rp2 WITH (except_rule='no')", "there is no rule no: there are bandwidth_rule1"),
        ("ALTER RESOURCE POOL rp1 WITH (weight=5, except_rule='no')", "there is no rule no: there are bandwidth_rule1"),
        ("DROP EXCEPT RULE bandwidth_rule1", "rule bandwidth_rule1 is used by rp1: change it first"),
        ("DROP RESOURCE POOL rp1", "resource pool rp1 is used by user1: change it first"),
        (
            "DROP RESOURCE POOL default",
            "the pool default cannot be dropped: it is the pool of whoever is bound to none",
        ),
        ("CREATE USER u RESOURCE POOL rp9", "there is no resource pool rp9: there are default, rp1"),
        ("CREATE USER user1 RESOURCE POOL rp1", "user user1 exists already: ALTER changes it"),
    ];
    for (text, error) in cases {
        assert_eq!(refused(&state, text), error);
    }
}

#[test]
fn altering_changes_what_is_named_and_dropping_undoes() {
    let mut state = after(PUBLISHED);
    let mut run = |text: &str| state.apply(&parse(text).unwrap()[0]).unwrap();
    assert!(run("ALTER EXCEPT RULE bandwidth_rule1 WITH (elapsedtime=-1, action=dryrun)"));
    assert!(!run("ALTER EXCEPT RULE bandwidth_rule1 WITH (action=dryrun)"), "the same again changes nothing");
    assert!(!run("SHOW RULES"));
    assert!(run("DROP USER user1"));
    assert!(run("DROP RESOURCE POOL rp1"));
    assert!(run("DROP EXCEPT RULE bandwidth_rule1"));
    assert_eq!(state.pools().len(), 1);
}

#[test]
fn toml_is_the_same_state() {
    let written = r#"
        low_priority_bandwidth = "auto"
        [rules.bandwidth_rule1]
        bandwidth = 128
        elapsedtime = 60
        action = "penalty"
        [pools.rp1]
        except_rule = ["bandwidth_rule1"]
        [users]
        user1 = "rp1"
    "#;
    let state: State = toml::from_str(written).unwrap();
    assert_eq!(state, after(&format!("{PUBLISHED} SET low_priority_bandwidth = 'auto'")));
    let again: State = toml::from_str(&toml::to_string(&state).unwrap()).unwrap();
    assert_eq!(again, state);
    assert_eq!(toml::from_str::<State>("").unwrap(), State::default());
}

#[test]
fn wrong_toml_says_what_is_wrong() {
    let wrong = |text: &str| toml::from_str::<State>(text).unwrap_err().to_string();
    assert!(wrong("[rules.r]\nrows = 0").contains("rule r: rows cannot be 0: it must be rows from 1"));
    assert!(wrong("[pools.p]\nexcept_rule = 'no'").contains("there is no rule no"));
    assert!(wrong("[pools.p]\nsize = 1").contains("resource pool p: unknown attribute 'size'"));
    assert!(wrong("[users]\nu = 'p'").contains("there is no resource pool p"));
    assert!(wrong("[rulez]").contains("rulez"));
    assert!(wrong("low_priority_bandwidth = 'fast'").contains("low_priority_bandwidth cannot be 'fast'"));
}

proptest! {
    /// Any statements in any order: a refusal changes nothing, references always hold, and files give it all back.
    #[test]
    fn a_state_is_always_whole(all in prop::collection::vec(crate::statement::tests_statements(), 1..40)) {
        let mut state = State::default();
        for statement in all {
            let before = state.clone();
            if state.apply(&statement).is_err() {
                prop_assert_eq!(&state, &before);
            }
            for pool in state.pools().values() {
                prop_assert!(pool.except_rules.iter().all(|rule| state.rules().contains_key(rule)));
            }
            prop_assert!(state.users().values().all(|pool| state.pools().contains_key(pool)));
            prop_assert!(state.pools().contains_key(DEFAULT_POOL));
        }
        let toml: State = toml::from_str(&toml::to_string(&state).unwrap()).unwrap();
        prop_assert_eq!(toml, state);
    }
}
