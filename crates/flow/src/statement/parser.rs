//! A parser by recursive descent. Errors say where, what was found and what would have done.

use super::tokens::{self, Kind, Token};
use super::{Password, Request, Setting, Show, Statement};
use crate::LowPriorityBandwidth;
use crate::literal::{Literal, ValueError};
use crate::name;
use crate::pool::PoolOption;
use crate::rule::RuleOption;

/// Why a text is no statement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at character {position})")]
pub struct ParseError {
    /// What is wrong, and what would have done.
    pub message: String,
    /// Where, in characters from 1, as PostgreSQL's clients point at it.
    pub position: usize,
}

impl ParseError {
    pub(super) fn at(text: &str, byte: usize, message: String) -> Self {
        let position = text.char_indices().take_while(|(at, _)| *at < byte).count() + 1;
        ParseError { message, position }
    }
}

/// Reads statements separated by semicolons. Text without any is no error.
pub fn parse(text: &str) -> Result<Vec<Statement>, ParseError> {
    separated(text, |parser| parser.statement())
}

/// The same where a client speaks, who says things of its own session too.
pub fn parse_requests(text: &str) -> Result<Vec<Request>, ParseError> {
    separated(text, |parser| match parser.session_command()? {
        Some(command) => Ok(Request::Session(command)),
        None => parser.statement().map(Request::Statement),
    })
}

fn separated<'t, T>(text: &'t str, one: impl Fn(&mut Parser<'t>) -> Parsed<T>) -> Parsed<Vec<T>> {
    let mut parser = Parser { text, tokens: tokens::read(text)?, next: 0 };
    let mut read = Vec::new();
    loop {
        while parser.symbol_if(';') {}
        if parser.peek().kind == Kind::End {
            return Ok(read);
        }
        read.push(one(&mut parser)?);
        if !parser.symbol_if(';') && parser.peek().kind != Kind::End {
            return Err(parser.unexpected("the end of the statement"));
        }
    }
}

pub(super) struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    pub(super) next: usize,
}

pub(super) type Parsed<T> = Result<T, ParseError>;

impl Parser<'_> {
    fn statement(&mut self) -> Parsed<Statement> {
        match self.keyword_of(&["CREATE", "ALTER", "DROP", "SET", "SHOW"])? {
            "SET" => self.set(),
            "SHOW" => self.show(),
            "DROP" => self.drop(),
            verb => self.create_or_alter(verb == "CREATE"),
        }
    }

    fn create_or_alter(&mut self, create: bool) -> Parsed<Statement> {
        match self.keyword_of(&["EXCEPT", "RESOURCE", "USER"])? {
            "EXCEPT" => {
                self.keyword_of(&["RULE"])?;
                let name = self.name("the rule's name")?;
                let options = self.with(RuleOption::read, RuleOption::name)?;
                Ok(match create {
                    true => Statement::CreateRule { name, options },
                    false => Statement::AlterRule { name, options },
                })
            }
            "RESOURCE" => {
                self.keyword_of(&["POOL"])?;
                let name = self.name("the pool's name")?;
                // A pool as it comes needs no attributes.
                let plain = create && !self.at_keyword("WITH");
                let options = if plain { Vec::new() } else { self.with(PoolOption::read, PoolOption::name)? };
                Ok(match create {
                    true => Statement::CreatePool { name, options },
                    false => Statement::AlterPool { name, options },
                })
            }
            _ => self.user(create),
        }
    }

    fn drop(&mut self) -> Parsed<Statement> {
        match self.keyword_of(&["EXCEPT", "RESOURCE", "USER"])? {
            "EXCEPT" => {
                self.keyword_of(&["RULE"])?;
                Ok(Statement::DropRule { name: self.name("the rule's name")? })
            }
            "RESOURCE" => {
                self.keyword_of(&["POOL"])?;
                Ok(Statement::DropPool { name: self.name("the pool's name")? })
            }
            _ => Ok(Statement::DropUser { user: self.name("the user's name")? }),
        }
    }

    fn user(&mut self, create: bool) -> Parsed<Statement> {
        let user = self.name("the user's name")?;
        if self.at_keyword("WITH") {
            self.next += 1;
        }
        let (mut pool, mut password) = (None, None);
        loop {
            if pool.is_none() && self.at_keyword("RESOURCE") {
                self.next += 1;
                self.keyword_of(&["POOL"])?;
                pool = Some(self.name("the pool's name")?);
            } else if password.is_none() && self.at_keyword("PASSWORD") {
                self.next += 1;
                password = Some(self.password()?);
            } else {
                break;
            }
        }
        let Some(pool) = pool else { return Err(self.unexpected("RESOURCE POOL")) };
        Ok(match create {
            true => Statement::CreateUser { user, pool, password },
            false => Statement::AlterUser { user, pool, password },
        })
    }

    /// Never repeats what stands here: it may be a password without its quotes.
    fn password(&mut self) -> Parsed<Password> {
        match self.peek().kind.clone() {
            Kind::Text(text) => {
                self.next += 1;
                Ok(Password::new(text))
            }
            _ => Err(self.wrong("a password in single quotes is expected here".to_owned())),
        }
    }

    fn set(&mut self) -> Parsed<Statement> {
        let at = self.next;
        let setting = self.name("the name of a setting")?;
        if setting != LowPriorityBandwidth::NAME {
            self.next = at;
            return Err(self.wrong(format!("unknown setting '{setting}': there is {}", LowPriorityBandwidth::NAME)));
        }
        if self.at_keyword("TO") {
            self.next += 1;
        } else {
            self.symbol('=')?;
        }
        let at = self.next;
        let literal = self.literal()?;
        let value = match &literal {
            Literal::Text(word) if word.eq_ignore_ascii_case("default") => Ok(LowPriorityBandwidth::default()),
            other => LowPriorityBandwidth::read(other),
        };
        let value = value.map_err(|error| self.value_error(at, &error))?;
        Ok(Statement::Set(Setting::LowPriorityBandwidth(value)))
    }

    fn show(&mut self) -> Parsed<Statement> {
        let at = self.next;
        let word = self.name("what to show")?;
        word.parse::<Show>().map(Statement::Show).map_err(|error| {
            self.next = at;
            self.wrong(error.to_string())
        })
    }

    /// `WITH (name = value, …)`, each name once.
    fn with<T>(
        &mut self,
        read: impl Fn(&str, &Literal) -> Result<T, ValueError>,
        name: impl Fn(&T) -> &'static str,
    ) -> Parsed<Vec<T>> {
        self.keyword_of(&["WITH"])?;
        self.symbol('(')?;
        let mut options: Vec<T> = Vec::new();
        loop {
            let at = self.next;
            let attribute = self.name("the name of an attribute")?;
            self.symbol('=')?;
            let literal = self.literal()?;
            let option = read(&attribute, &literal).map_err(|error| self.value_error(at, &error))?;
            if options.iter().any(|other| name(other) == name(&option)) {
                return Err(self.value_error(at, &ValueError::Twice { name: name(&option) }));
            }
            options.push(option);
            if !self.symbol_if(',') {
                break;
            }
        }
        self.symbol(')')?;
        Ok(options)
    }

    fn literal(&mut self) -> Parsed<Literal> {
        let negative = self.symbol_if('-');
        let literal = match self.peek().kind.clone() {
            Kind::Number(number) => self.number(&number, negative)?,
            Kind::Word(text) | Kind::Text(text) if !negative => Literal::Text(text),
            _ => return Err(self.unexpected("a value")),
        };
        self.next += 1;
        Ok(literal)
    }

    fn number(&self, text: &str, negative: bool) -> Parsed<Literal> {
        if let Ok(whole) = text.parse::<i64>() {
            return Ok(Literal::Whole(if negative { -whole } else { whole }));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Literal::Number(if negative { -number } else { number })),
            _ => Err(self.wrong(format!("{text} is no number"))),
        }
    }

    /// A name: bare, in double quotes, or in single ones.
    fn name(&mut self, what: &str) -> Parsed<String> {
        let name = match &self.peek().kind {
            Kind::Word(word) => {
                let folded = name::fold(word);
                name::check(&folded).map_err(|why| self.wrong(why))?;
                folded
            }
            Kind::Quoted(name) => name.clone(),
            Kind::Text(text) => match name::read_list(text) {
                Ok(names) if names.len() == 1 => names.into_iter().next().unwrap_or_default(),
                _ => return Err(self.wrong(format!("{what} is expected here: one name"))),
            },
            _ => return Err(self.unexpected(what)),
        };
        self.next += 1;
        Ok(name)
    }

    pub(super) fn at_keyword(&self, keyword: &str) -> bool {
        matches!(&self.peek().kind, Kind::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    fn keyword_of(&mut self, keywords: &[&'static str]) -> Parsed<&'static str> {
        match keywords.iter().find(|keyword| self.at_keyword(keyword)) {
            Some(keyword) => {
                self.next += 1;
                Ok(keyword)
            }
            None => Err(self.unexpected(&keywords.join(", "))),
        }
    }

    pub(super) fn symbol(&mut self, symbol: char) -> Parsed<()> {
        if self.symbol_if(symbol) { Ok(()) } else { Err(self.unexpected(&format!("'{symbol}'"))) }
    }

    pub(super) fn symbol_if(&mut self, symbol: char) -> bool {
        let there = self.peek().kind == Kind::Symbol(symbol);
        if there {
            self.next += 1;
        }
        there
    }

    /// The last token is the end and is never passed.
    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    /// Without what was found, where that may be the rest of a password that was not quoted.
    pub(super) fn unexpected(&self, wanted: &str) -> ParseError {
        let is_secret = self.tokens.iter().take(self.next).any(Token::begins_a_password);
        let found = if is_secret { String::new() } else { format!(", not {}", self.peek().kind.shown()) };
        self.wrong(format!("{wanted} is expected here{found}"))
    }

    fn wrong(&self, message: String) -> ParseError {
        ParseError::at(self.text, self.peek().at, message)
    }

    fn value_error(&self, token: usize, error: &ValueError) -> ParseError {
        self.wrong_at(token, error.to_string())
    }

    pub(super) fn wrong_at(&self, token: usize, message: String) -> ParseError {
        ParseError::at(self.text, self.tokens[token].at, message)
    }
}
