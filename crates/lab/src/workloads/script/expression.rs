//! Arithmetic as in pgbench's `\set`: whole numbers and fractions, variables, `+ - * / %`, parentheses, and the
//! functions that draw at random.

use super::draw::draw;
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
    /// The value as a fraction.
    pub(crate) fn fraction(self) -> f64 {
        match self {
            Value::Whole(number) => number as f64,
            Value::Fraction(number) => number,
        }
    }

    /// The value rounded to a whole number, if it fits.
    pub(crate) fn whole(self) -> Result<i64, String> {
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
