//! Reads a script as pgbench does: SQL statements that end in `;`, and `\set` and `\sleep` on lines of their own.

use super::expression::{Expression, is_name};
use super::quotes::{comment_end, dollar_tag, quote_end};
use std::collections::HashSet;
use std::time::Duration;

/// One step of a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// The line where it begins, counted from 1.
    pub(crate) line: usize,
    /// What to do.
    pub(crate) action: Action,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Sends a statement.
    Sql(Vec<Part>),
    /// Gives a variable a value.
    Set(String, Expression),
    /// Waits: an amount, and what one of it is.
    Sleep(Expression, Duration),
}

/// A part of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// As it stands.
    Text(String),
    /// A variable's value.
    Variable {
        /// Its name.
        name: String,
        /// Whether it stands inside quotes, where a parameter cannot.
        quoted: bool,
    },
}

/// What is not understood, and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trouble {
    /// Counted from 1.
    pub(crate) line: usize,
    /// What is wrong and what would do.
    pub(crate) message: String,
}

/// Reads a script. `given` are variables that have a value from the start.
pub(crate) fn parse(text: &str, given: &[&str]) -> Result<Vec<Step>, Trouble> {
    let mut reader = Reader { rest: text, line: 1, known: given.iter().map(|name| (*name).to_owned()).collect() };
    let mut steps = Vec::new();
    loop {
        reader.skip_space();
        if reader.rest.is_empty() {
            break;
        }
        let step = if reader.rest.starts_with('\\') { Some(reader.command()?) } else { reader.statement()? };
        steps.extend(step);
    }
    if steps.iter().any(|step| matches!(step.action, Action::Sql(_))) {
        return Ok(steps);
    }
    Err(Trouble { line: reader.line, message: "the script has no SQL statement".to_owned() })
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    known: HashSet<String>,
}

impl<'a> Reader<'a> {
    fn trouble<T>(line: usize, message: impl Into<String>) -> Result<T, Trouble> {
        Err(Trouble { line, message: message.into() })
    }

    /// Takes so many bytes, which end at a character's end.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn skip_space(&mut self) {
        let space = self.rest.len() - self.rest.trim_start().len();
        self.take(space);
    }

    /// A backslash command: to the end of the line, or further where the line ends in a backslash.
    fn command(&mut self) -> Result<Step, Trouble> {
        let line = self.line;
        let mut text = String::new();
        loop {
            let end = self.rest.find('\n').map_or(self.rest.len(), |end| end + 1);
            let taken = self.take(end).trim_end();
            match taken.strip_suffix('\\').filter(|start| !start.is_empty() && !self.rest.is_empty()) {
                Some(start) => text.push_str(start),
                None => {
                    text.push_str(taken);
                    break;
                }
            }
        }
        let text = text.trim_start_matches('\\');
        let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let action = match name {
            "set" => self.set(arguments.trim()),
            "sleep" => self.sleep(arguments.trim()),
            _ => Err(format!(
                "'\\{name}' is not understood; there are \\set and \\sleep. pgbench itself knows more (kind = \"pgbench\")"
            )),
        };
        match action {
            Ok(action) => Ok(Step { line, action }),
            Err(message) => Self::trouble(line, message),
        }
    }

    fn set(&mut self, arguments: &str) -> Result<Action, String> {
        let (name, text) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
        if !is_variable(name) {
            return Err(format!("'{name}' is no variable's name: write \\set name expression"));
        }
        let expression = self.expression(text)?;
        self.known.insert(name.to_owned());
        Ok(Action::Set(name.to_owned(), expression))
    }

    fn sleep(&mut self, arguments: &str) -> Result<Action, String> {
        let number_end = arguments.find(|c: char| !(is_name(c) || c == ':')).unwrap_or(arguments.len());
        let (amount, unit) = arguments.split_at(number_end);
        // `10ms` is one word.
        let digits = amount.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0).unwrap_or(amount.len());
        let (amount, glued) = amount.split_at(digits);
        let unit = if glued.is_empty() { unit.trim() } else { glued };
        let one = match unit {
            "us" => Duration::from_micros(1),
            "ms" => Duration::from_millis(1),
            "s" | "" => Duration::from_secs(1),
            _ => return Err(format!("'{unit}' is no unit of \\sleep; there are us, ms and s")),
        };
        Ok(Action::Sleep(self.expression(amount)?, one))
    }

    /// An expression whose variables all have a value.
    fn expression(&self, text: &str) -> Result<Expression, String> {
        let expression = Expression::parse(text)?;
        let mut names = Vec::new();
        expression.variables(&mut names);
        match names.iter().find(|name| !self.known.contains(**name)) {
            Some(name) => Err(self.never_set(name)),
            None => Ok(expression),
        }
    }

    fn never_set(&self, name: &str) -> String {
        let mut known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        known.sort_unstable();
        format!("':{name}' is never set before; there are {}", known.join(", "))
    }

    /// A statement up to its `;`. None where there is nothing but comments and semicolons.
    fn statement(&mut self) -> Result<Option<Step>, Trouble> {
        let line = self.line;
        let mut statement = Statement::default();
        while let Some(next) = self.rest.chars().next() {
            match next {
                ';' if statement.open == 0 => {
                    self.take(1);
                    break;
                }
                '\\' => {
                    let message = "a command cannot stand inside a statement: end the statement with ';' before it";
                    return Self::trouble(self.line, message);
                }
                ':' => self.variable(&mut statement)?,
                _ => self.token(next, &mut statement)?,
            }
        }
        let parts = statement.finish();
        Ok((!parts.is_empty()).then_some(Step { line, action: Action::Sql(parts) }))
    }

    /// A quoted string, a comment, a word, or a single character.
    fn token(&mut self, next: char, statement: &mut Statement) -> Result<(), Trouble> {
        let line = self.line;
        if self.rest.starts_with("--") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.take(end);
        } else if self.rest.starts_with("/*") {
            let Some(end) = comment_end(self.rest) else { return Self::trouble(line, "this '/*' has no '*/'") };
            statement.comment(self.take(end));
        } else if next == '\'' || next == '"' {
            let escapes = next == '\'' && statement.ends_in_escape();
            let Some(end) = quote_end(self.rest, next, escapes) else {
                return Self::trouble(line, format!("this {next} is never closed"));
            };
            let quoted = self.take(end);
            self.quoted(quoted, statement);
        } else if let Some(tag) = dollar_tag(self.rest).filter(|_| !statement.ends_in_word()) {
            let Some(end) = self.rest[tag.len()..].find(tag) else {
                return Self::trouble(line, format!("this {tag} is never closed"));
            };
            let quoted = self.take(end + 2 * tag.len());
            self.quoted(quoted, statement);
        } else {
            match next {
                '(' | '[' => statement.open += 1,
                ')' | ']' => statement.open = statement.open.saturating_sub(1),
                _ => {}
            }
            statement.brackets.track(next);
            statement.text(self.take(next.len_utf8()));
        }
        Ok(())
    }

    /// A colon outside quotes: a variable, a cast, a slice of an array, or just a colon.
    fn variable(&mut self, statement: &mut Statement) -> Result<(), Trouble> {
        let after = &self.rest[1..];
        if after.starts_with([':', '=']) {
            statement.text(self.take(2));
            return Ok(());
        }
        let name = &after[..after.find(|c| !is_name(c)).unwrap_or(after.len())];
        if self.known.contains(name) {
            let variable = Part::Variable { name: name.to_owned(), quoted: false };
            self.take(1 + name.len());
            statement.part(variable);
        } else if is_variable(name) && !statement.brackets.inside() {
            return Self::trouble(self.line, self.never_set(name));
        } else {
            statement.text(self.take(1 + name.len()));
        }
        Ok(())
    }

    /// Quoted text. As in pgbench a variable counts there too, but what has no value is left as it stands.
    fn quoted(&self, text: &str, statement: &mut Statement) {
        let mut rest = text;
        while let Some(colon) = rest.find(':') {
            let after = &rest[colon + 1..];
            let name = &after[..after.find(|c| !is_name(c)).unwrap_or(after.len())];
            if self.known.contains(name) && !rest[..colon].ends_with(':') {
                statement.text(&rest[..colon]);
                statement.part(Part::Variable { name: name.to_owned(), quoted: true });
                rest = &after[name.len()..];
            } else {
                statement.text(&rest[..=colon]);
                rest = after;
            }
        }
        statement.text(rest);
    }
}

/// Whether this can be a variable's name. One of digits alone, which pgbench allows, would be found in every time of
/// day.
fn is_variable(name: &str) -> bool {
    name.chars().all(is_name) && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// How deep in square brackets a statement is.
#[derive(Default)]
struct Brackets(usize);

impl Brackets {
    fn track(&mut self, next: char) {
        match next {
            '[' => self.0 += 1,
            ']' => self.0 = self.0.saturating_sub(1),
            _ => {}
        }
    }

    fn inside(&self) -> bool {
        self.0 > 0
    }
}

/// A statement that is being read.
#[derive(Default)]
struct Statement {
    parts: Vec<Part>,
    has_content: bool,
    /// Open round and square brackets: a `;` inside them ends nothing.
    open: usize,
    brackets: Brackets,
}

impl Statement {
    fn text(&mut self, text: &str) {
        self.has_content |= !text.trim().is_empty();
        self.append(text);
    }

    /// A comment is kept, as a planner's extension may read it, but makes no statement.
    fn comment(&mut self, text: &str) {
        self.append(text);
    }

    fn append(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(Part::Text(last)) => last.push_str(text),
            _ => self.parts.push(Part::Text(text.to_owned())),
        }
    }

    fn part(&mut self, part: Part) {
        self.has_content = true;
        self.parts.push(part);
    }

    fn last_text(&self) -> &str {
        match self.parts.last() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// Whether a string that begins here has backslash escapes: it stands right after an E that is a word of its own.
    fn ends_in_escape(&self) -> bool {
        let text = self.last_text();
        let before = text.strip_suffix(['e', 'E']);
        before.is_some_and(|before| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    }

    fn ends_in_word(&self) -> bool {
        self.last_text().ends_with(|c: char| c.is_alphanumeric() || c == '_')
    }

    fn finish(mut self) -> Vec<Part> {
        if let Some(Part::Text(last)) = self.parts.last_mut() {
            last.truncate(last.trim_end().len());
        }
        if self.has_content { self.parts } else { Vec::new() }
    }
}
