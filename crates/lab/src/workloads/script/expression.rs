//! Arithmetic as in pgbench's `\set`: whole numbers and fractions, variables, `+ - * / %`, parentheses, and the
//! functions that draw at random.

use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::HashMap;
use std::fmt;

/// An expression may be so long, and nested so deep: a guard against exhausting the stack.
const MOST_BYTES: usize = 4_096;
const DEEPEST: usize = 64;

/// A value of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(i64),
    Fraction(f64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Whole(number) => number.fmt(f),
            Value::Fraction(number) => number.fmt(f),
        }
    }
}

impl Value {
    fn fraction(self) -> f64 {
        match self {
            Value::Whole(number) => number as f64,
            Value::Fraction(number) => number,
        }
    }

    fn whole(self) -> Result<i64, String> {
        match self {
            Value::Whole(number) => Ok(number),
            // 2⁶³ itself is the first that does not fit.
            Value::Fraction(number) if number.abs() < 9_223_372_036_854_775_808.0 => Ok(number.round() as i64),
            Value::Fraction(number) => Err(format!("{number} is no whole number of 64 bits")),
        }
    }
}

/// Variables by name.
pub(crate) type Variables = HashMap<String, Value>;

/// An arithmetic expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Number(Value),
    Variable(String),
    Negative(Box<Expression>),
    Two(char, Box<Expression>, Box<Expression>),
    Call(&'static Function, Vec<Expression>),
}

/// A function: its name, and how many arguments it takes.
#[derive(Debug, PartialEq)]
pub(crate) struct Function {
    name: &'static str,
    least: usize,
    most: usize,
}

const fn function(name: &'static str, least: usize, most: usize) -> Function {
    Function { name, least, most }
}

static FUNCTIONS: [Function; 8] = [
    function("random", 2, 2),
    function("random_gaussian", 3, 3),
    function("random_exponential", 3, 3),
    function("abs", 1, 1),
    function("int", 1, 1),
    function("double", 1, 1),
    function("greatest", 1, 64),
    function("least", 1, 64),
];

impl Expression {
    /// Understands the text, or says what it does not understand.
    pub(crate) fn parse(text: &str) -> Result<Expression, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("the expression is longer than {MOST_BYTES} bytes"));
        }
        let mut parser = Parser { rest: text, depth: 0 };
        let expression = parser.sum()?;
        parser.skip();
        if parser.rest.is_empty() { Ok(expression) } else { Err(parser.unexpected("an operator")) }
    }

    /// Names of the variables in it.
    pub(crate) fn variables<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Expression::Number(_) => {}
            Expression::Variable(name) => names.push(name),
            Expression::Negative(inner) => inner.variables(names),
            Expression::Two(_, left, right) => {
                left.variables(names);
                right.variables(names);
            }
            Expression::Call(_, arguments) => arguments.iter().for_each(|argument| argument.variables(names)),
        }
    }

    /// Its value, or why it has none.
    pub(crate) fn value(&self, variables: &Variables, dice: &mut StdRng) -> Result<Value, String> {
        match self {
            Expression::Number(value) => Ok(*value),
            Expression::Variable(name) => {
                variables.get(name).copied().ok_or_else(|| format!("':{name}' has no value yet"))
            }
            Expression::Negative(inner) => operate('-', Value::Whole(0), inner.value(variables, dice)?),
            Expression::Two(operator, left, right) => {
                operate(*operator, left.value(variables, dice)?, right.value(variables, dice)?)
            }
            Expression::Call(function, arguments) => {
                let arguments: Result<Vec<_>, _> =
                    arguments.iter().map(|argument| argument.value(variables, dice)).collect();
                call(function.name, &arguments?, dice)
            }
        }
    }
}

fn operate(operator: char, left: Value, right: Value) -> Result<Value, String> {
    let (Value::Whole(a), Value::Whole(b)) = (left, right) else {
        let (a, b) = (left.fraction(), right.fraction());
        return match operator {
            '+' => Ok(Value::Fraction(a + b)),
            '-' => Ok(Value::Fraction(a - b)),
            '*' => Ok(Value::Fraction(a * b)),
            '/' if b != 0.0 => Ok(Value::Fraction(a / b)),
            '%' => Err("'%' needs whole numbers".to_owned()),
            _ => Err("division by zero".to_owned()),
        };
    };
    if b == 0 && matches!(operator, '/' | '%') {
        return Err("division by zero".to_owned());
    }
    let result = match operator {
        '+' => a.checked_add(b),
        '-' => a.checked_sub(b),
        '*' => a.checked_mul(b),
        '/' => a.checked_div(b),
        _ => a.checked_rem(b),
    };
    result.map(Value::Whole).ok_or_else(|| format!("{a} {operator} {b} is out of range"))
}

fn call(name: &str, arguments: &[Value], dice: &mut StdRng) -> Result<Value, String> {
    let first = arguments.first().copied().unwrap_or(Value::Whole(0));
    match name {
        "abs" => match first {
            Value::Whole(number) => {
                number.checked_abs().map(Value::Whole).ok_or_else(|| "abs is out of range".to_owned())
            }
            Value::Fraction(number) => Ok(Value::Fraction(number.abs())),
        },
        "int" => first.whole().map(Value::Whole),
        "double" => Ok(Value::Fraction(first.fraction())),
        "greatest" => Ok(extreme(arguments, f64::gt)),
        "least" => Ok(extreme(arguments, f64::lt)),
        _ => draw(name, arguments, dice).map(Value::Whole),
    }
}

fn extreme(arguments: &[Value], better: fn(&f64, &f64) -> bool) -> Value {
    let pick = |best: Value, next: &Value| if better(&next.fraction(), &best.fraction()) { *next } else { best };
    let Some((first, rest)) = arguments.split_first() else { return Value::Whole(0) };
    rest.iter().fold(*first, pick)
}

/// Draws a whole number between two bounds, both included, with pgbench's three distributions.
fn draw(name: &str, arguments: &[Value], dice: &mut StdRng) -> Result<i64, String> {
    let [low, high, parameter @ ..] = arguments else { return Err(format!("{name} needs two bounds")) };
    let (low, high) = (low.whole()?, high.whole()?);
    if low > high {
        return Err(format!("{name}({low}, {high}): the first bound is above the second"));
    }
    let parameter = parameter.first().map_or(0.0, |value| value.fraction());
    let share = match name {
        "random_gaussian" if parameter >= 2.0 => gaussian(parameter, dice),
        "random_gaussian" => return Err("random_gaussian needs a parameter of at least 2".to_owned()),
        "random_exponential" if parameter > 0.0 => exponential(parameter, dice),
        "random_exponential" => return Err("random_exponential needs a parameter above 0".to_owned()),
        _ => return Ok(dice.random_range(low..=high)),
    };
    // The width of two 64-bit bounds needs 65 bits.
    let width = i128::from(high) - i128::from(low) + 1;
    let offset = ((width as f64 * share) as i128).clamp(0, width - 1);
    i64::try_from(i128::from(low) + offset).map_err(|error| error.to_string())
}

/// In [0, 1): a normal distribution cut off at `parameter` standard deviations, by Box and Muller.
fn gaussian(parameter: f64, dice: &mut StdRng) -> f64 {
    loop {
        let (radius, angle) = (1.0 - dice.random::<f64>(), dice.random::<f64>());
        let deviations = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).sin();
        if deviations >= -parameter && deviations < parameter {
            return (deviations + parameter) / (2.0 * parameter);
        }
    }
}

/// In [0, 1): an exponential distribution cut off where it has fallen to `exp(-parameter)`.
fn exponential(parameter: f64, dice: &mut StdRng) -> f64 {
    let cut = (-parameter).exp();
    let uniform = 1.0 - dice.random::<f64>();
    -(cut + (1.0 - cut) * uniform).ln() / parameter
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, wanted: &[char]) -> Option<char> {
        self.skip();
        let next = self.rest.chars().next().filter(|next| wanted.contains(next))?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn word(&mut self, part_of: fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !part_of(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn unexpected(&self, wanted: &str) -> String {
        match self.rest.chars().next() {
            Some(_) => format!("expected {wanted} at '{}'", self.rest.chars().take(20).collect::<String>()),
            None => format!("expected {wanted} at the end"),
        }
    }

    fn sum(&mut self) -> Result<Expression, String> {
        self.chain(&['+', '-'], Self::product)
    }

    fn product(&mut self) -> Result<Expression, String> {
        self.chain(&['*', '/', '%'], Self::factor)
    }

    fn chain(
        &mut self,
        operators: &[char],
        part: fn(&mut Self) -> Result<Expression, String>,
    ) -> Result<Expression, String> {
        let mut left = part(self)?;
        while let Some(operator) = self.take(operators) {
            left = Expression::Two(operator, Box::new(left), Box::new(part(self)?));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("the expression is nested deeper than {DEEPEST}"));
        }
        let factor = if self.take(&['-']).is_some() {
            self.factor().map(|inner| Expression::Negative(Box::new(inner)))
        } else if self.take(&['+']).is_some() {
            self.factor()
        } else if self.take(&['(']).is_some() {
            let inner = self.sum()?;
            self.take(&[')']).map(|_| inner).ok_or_else(|| self.unexpected("')'"))
        } else {
            self.leaf()
        };
        self.depth -= 1;
        factor
    }

    fn leaf(&mut self) -> Result<Expression, String> {
        if self.take(&[':']).is_some() {
            let name = self.word(is_name);
            return if name.is_empty() {
                Err(self.unexpected("a variable's name"))
            } else {
                Ok(Expression::Variable(name.to_owned()))
            };
        }
        match self.rest.chars().next() {
            Some(next) if next.is_ascii_digit() || next == '.' => self.number(),
            Some(next) if next.is_ascii_alphabetic() => self.function(),
            _ => Err(self.unexpected("a number, a :variable, a function or '('")),
        }
    }

    fn number(&mut self) -> Result<Expression, String> {
        let mut text = self.word(|c| c.is_ascii_digit() || c == '.').to_owned();
        if self.rest.starts_with(['e', 'E']) {
            text.push_str(self.word(|c| c.is_ascii_alphabetic()));
            if self.rest.starts_with(['+', '-']) {
                text.push_str(&self.rest[..1]);
                self.rest = &self.rest[1..];
            }
            text.push_str(self.word(|c| c.is_ascii_digit()));
        }
        let whole = text.bytes().all(|byte| byte.is_ascii_digit());
        let value = if whole { text.parse().ok().map(Value::Whole) } else { text.parse().ok().map(Value::Fraction) };
        value.map(Expression::Number).ok_or_else(|| format!("'{text}' is no number of 64 bits"))
    }

    fn function(&mut self) -> Result<Expression, String> {
        let name = self.word(is_name);
        let Some(function) = FUNCTIONS.iter().find(|function| function.name.eq_ignore_ascii_case(name)) else {
            let known: Vec<_> = FUNCTIONS.iter().map(|function| function.name).collect();
            return Err(format!("'{name}' is no known function; there are {}", known.join(", ")));
        };
        self.take(&['(']).ok_or_else(|| self.unexpected("'('"))?;
        let mut arguments = Vec::new();
        if self.take(&[')']).is_none() {
            loop {
                arguments.push(self.sum()?);
                match self.take(&[',', ')']) {
                    Some(',') => {}
                    Some(_) => break,
                    None => return Err(self.unexpected("',' or ')'")),
                }
            }
        }
        if (function.least..=function.most).contains(&arguments.len()) {
            return Ok(Expression::Call(function, arguments));
        }
        Err(format!("{name} takes {} arguments, not {}", function.least, arguments.len()))
    }
}

/// Whether a variable's or function's name may have this character.
pub(crate) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;

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
}
