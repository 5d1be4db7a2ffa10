//! What scripts are understood, and what is said of the others.

#![allow(clippy::unwrap_used)]

use super::expression::Expression;
use super::parse::{Action, Part, Trouble, parse};
use proptest::prelude::*;
use std::time::Duration;

fn sql(text: &str) -> Vec<String> {
    parse(text, &["scale"]).unwrap().iter().filter_map(|step| statement(&step.action)).collect()
}

/// A statement with its variables in angle brackets, in double ones where they are quoted.
fn statement(action: &Action) -> Option<String> {
    let Action::Sql(parts) = action else { return None };
    Some(parts.iter().map(shown).collect())
}

fn shown(part: &Part) -> String {
    match part {
        Part::Text(text) => text.clone(),
        Part::Variable { name, quoted: false } => format!("<{name}>"),
        Part::Variable { name, quoted: true } => format!("<<{name}>>"),
    }
}

#[test]
fn pgbenchs_own_script_is_understood() {
    let text = "\\set aid random(1, 100000 * :scale)\n\\set delta random(-5000, 5000)\nBEGIN;\n\
                UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\nEND;\n";
    let steps = parse(text, &["scale"]).unwrap();
    assert_eq!(steps.iter().map(|step| step.line).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(steps[0].action, Action::Set("aid".into(), Expression::parse("random(1, 100000 * :scale)").unwrap()));
    let update = "UPDATE pgbench_accounts SET abalance = abalance + <delta> WHERE aid = <aid>";
    assert_eq!(sql(text), ["BEGIN", update, "END"]);
}

#[test]
fn semicolons_and_colons_end_and_begin_only_what_they_should() {
    assert_eq!(sql("select 'a;b' ; select 2"), ["select 'a;b'", "select 2"]);
    assert_eq!(sql("select 'it''s; :scale'"), ["select 'it''s; <<scale>>'"]);
    assert_eq!(sql(r"select E'\'; x', e'\\'; select 2"), [r"select E'\'; x', e'\\'", "select 2"]);
    assert_eq!(sql(r"select 'a\'; select 2"), [r"select 'a\'", "select 2"]);
    assert_eq!(sql("select \"a;b\"; ; -- no; more\n; /* ; /* ; */ */ ;"), ["select \"a;b\""]);
    assert_eq!(sql("do $x$ begin; $$ end $x$; select $1"), ["do $x$ begin; $$ end $x$", "select $1"]);
    assert_eq!(
        sql("select :scale::int, '10:30'::time, a[1:n], x := 3"),
        ["select <scale>::int, '10:30'::time, a[1:n], x := 3"]
    );
    assert_eq!(sql("create rule r as on insert to t do (select 1; select 2); select 3").len(), 2);
}

#[test]
fn sleeping_has_pgbenchs_units() {
    let sleep = |text: &str| match parse(&format!("\\set n 1\n{text}\nselect 1"), &[]).unwrap().remove(1).action {
        Action::Sleep(amount, one) => (amount, one),
        other => panic!("{other:?}"),
    };
    let number = |text: &str| Expression::parse(text).unwrap();
    assert_eq!(sleep("\\sleep 10 ms"), (number("10"), Duration::from_millis(1)));
    assert_eq!(sleep("\\sleep 10us"), (number("10"), Duration::from_micros(1)));
    assert_eq!(sleep("\\sleep 2"), (number("2"), Duration::from_secs(1)));
    assert_eq!(sleep("\\sleep :n s"), (number(":n"), Duration::from_secs(1)));
}

#[test]
fn a_command_goes_on_after_a_backslash() {
    let steps = parse("\\set a 1 + \\\n  2\nselect :a", &[]).unwrap();
    assert_eq!((steps[0].line, steps[1].line), (1, 3));
    assert_eq!(steps[0].action, Action::Set("a".into(), Expression::parse("1 + 2").unwrap()));
}

#[test]
fn trouble_is_told_with_its_line() {
    for (text, line, wanted) in [
        ("select 1;\n\\gset\n", 2, "'\\gset' is not understood; there are \\set and \\sleep"),
        ("select 1;\n\n\\set a randm(1, 2)", 3, "'randm' is no known function"),
        ("select 1;\nselect :acount", 2, "':acount' is never set before; there are scale"),
        ("\\set a :b + 1\nselect 1", 1, "':b' is never set before"),
        ("select 1;\nselect 'open\n;", 2, "never closed"),
        ("select /* open", 1, "no '*/'"),
        ("\nselect 1\n\\set a 1\n", 3, "cannot stand inside a statement"),
        ("\\set 1a 1\nselect 1", 1, "no variable's name"),
        ("\\sleep 1 h\nselect 1", 1, "no unit"),
        ("-- nothing\n", 2, "no SQL statement"),
    ] {
        let Trouble { line: found, message } = parse(text, &["scale"]).unwrap_err();
        assert_eq!(found, line, "{text}: {message}");
        assert!(message.contains(wanted), "{text}: {message}");
    }
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "(?s).*") {
        let _ = parse(&text, &["scale"]);
    }

    #[test]
    fn anything_that_looks_like_a_script_is_survived(text in "[\\\\set lp:;'\"$E/*\\-\n()\\[\\]a0ü]{0,120}") {
        let _ = parse(&text, &["scale"]);
    }

    #[test]
    fn a_statement_without_variables_comes_out_as_it_went_in(text in "select [a-z0-9 +()=]{0,60}[a-z]") {
        let balanced = text.matches('(').count() == text.matches(')').count();
        prop_assume!(balanced);
        prop_assert_eq!(sql(&text), [text]);
    }
}
