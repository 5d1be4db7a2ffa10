//! What arithmetic comes to, and what is said of what is none.

#![allow(clippy::unwrap_used)]

use super::draw::draw;
use super::expression::{Expression, Value, Variables};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

fn value(text: &str) -> Result<Value, String> {
    let variables =
        Variables::from([("scale".to_owned(), Value::Whole(25)), ("half".to_owned(), Value::Fraction(0.5))]);
    Expression::parse(text)?.value(&variables, &mut StdRng::seed_from_u64(1))
}

#[test]
fn arithmetic_is_pgbenchs() {
    for (text, wanted) in [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -3),
        ("-7 % 4", -3),
        ("10 - 4 - 3", 3),
        ("100000 * :scale", 2_500_000),
        ("- - 5", 5),
        ("abs(-4) + greatest(1, 9, 3) - least(4, 2)", 11),
        ("int(7.5)", 8),
        ("RANDOM(3, 3)", 3),
    ] {
        assert_eq!(value(text), Ok(Value::Whole(wanted)), "{text}");
    }
    assert_eq!(value("1 / 2.0 + :half"), Ok(Value::Fraction(1.0)));
    assert_eq!(value("double(3) * 1.5e-1"), Ok(Value::Fraction(3.0 * 0.15)));
}

#[test]
fn what_is_wrong_is_said() {
    for (text, wanted) in [
        ("1 +", "at the end"),
        ("1 2", "an operator at '2'"),
        ("(1", "')'"),
        ("randm(1, 2)", "'randm' is no known function; there are random"),
        ("random(1)", "random takes 2 arguments, not 1"),
        ("99999999999999999999", "no number of 64 bits"),
        (":", "a variable's name"),
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "out of range"),
        ("random(5, 1)", "the first bound is above the second"),
        (":nothing", "':nothing' has no value yet"),
        ("random_gaussian(1, 9, 1)", "at least 2"),
    ] {
        let error = value(text).unwrap_err();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn distributions_are_where_they_should_be() {
    let mean = |text: &str| {
        let (expression, mut dice) = (Expression::parse(text).unwrap(), StdRng::seed_from_u64(5));
        let draw = |_| expression.value(&Variables::new(), &mut dice).unwrap().fraction();
        (0..20_000).map(draw).sum::<f64>() / 20_000.0
    };
    assert!((mean("random(1, 1000)") - 500.5).abs() < 10.0);
    assert!((mean("random_gaussian(1, 1000, 3)") - 500.5).abs() < 5.0);
    // The mean of an exponential cut at 5: 1/5 - exp(-5)/(1 - exp(-5)) of the width.
    assert!((mean("random_exponential(1, 1000, 5)") - 193.7).abs() < 5.0);
}

proptest! {
    #[test]
    fn any_text_is_survived(text in ".*") {
        let _ = value(&text);
    }

    #[test]
    fn anything_that_looks_like_arithmetic_is_survived(text in "[-+*/%(),.:0-9a-e random_gaussian]{0,200}") {
        let _ = value(&text);
    }

    #[test]
    fn draws_stay_between_their_bounds(a: i64, b: i64, parameter in 2.0f64..20.0) {
        let (low, high) = (Value::Whole(a.min(b)), Value::Whole(a.max(b)));
        let mut dice = StdRng::seed_from_u64(9);
        for name in ["random", "random_gaussian", "random_exponential"] {
            let drawn = draw(name, &[low, high, Value::Fraction(parameter)], &mut dice).unwrap();
            prop_assert!(drawn >= a.min(b) && drawn <= a.max(b));
        }
    }
}

#[test]
fn deep_and_long_expressions_are_refused() {
    assert!(Expression::parse(&"(".repeat(1_000)).is_err());
    assert!(Expression::parse(&"-".repeat(4_000)).is_err());
    assert!(Expression::parse(&"1+".repeat(4_000)).is_err());
    assert!(value(&format!("{}1", "1+".repeat(2_000))).is_ok());
}
