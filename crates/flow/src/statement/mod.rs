//! The console's language: a statement, how it is printed, and [`parse`], which reads it back.
//!
//! ```text
//! CREATE | ALTER EXCEPT RULE name WITH (attribute = value, …)          DROP EXCEPT RULE name
//! CREATE | ALTER RESOURCE POOL name WITH (attribute = value, …)        DROP RESOURCE POOL name
//! CREATE | ALTER USER name [WITH] RESOURCE POOL name [PASSWORD 'text']
//! DROP USER name
//! SET low_priority_bandwidth = | TO 256 | '256MB' | 'auto' | DEFAULT
//! SHOW POOLS | RULES | USERS | SESSIONS | QUEUES | GOVERNOR | EVENTS | STATS | CONFIG | low_priority_bandwidth
//! ```
//!
//! Clients also say things of their own session, which change nothing here ([`SessionCommand`], [`parse_requests`]).
//!
//! Keywords in any case; names fold to lower case unless they stand in double quotes; a pool's or rule's name may also
//! stand in single quotes, as in the product that the statements come from. Comments as in SQL.

mod parser;
mod password;
#[cfg(test)]
mod properties;
mod session;
mod tokens;

pub use parser::{ParseError, parse, parse_requests};
pub use password::Password;
#[cfg(test)]
pub(crate) use properties::statements as tests_statements;
pub use session::{Access, READ_ONLY, Request, SessionCommand};

use crate::LowPriorityBandwidth;
use crate::literal::Literal;
use crate::name::quote;
use crate::pool::PoolOption;
use crate::rule::RuleOption;
use crate::word::words;
use std::fmt;

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// A new rule.
    CreateRule {
        /// Its name.
        name: String,
        /// Its attributes; what is not named is off.
        options: Vec<RuleOption>,
    },
    /// Other attributes of a rule; what is not named stays.
    AlterRule {
        /// Its name.
        name: String,
        /// What changes.
        options: Vec<RuleOption>,
    },
    /// A rule goes.
    DropRule {
        /// Its name.
        name: String,
    },
    /// A new pool.
    CreatePool {
        /// Its name.
        name: String,
        /// Its attributes; what is not named is as in the default pool.
        options: Vec<PoolOption>,
    },
    /// Other attributes of a pool; what is not named stays.
    AlterPool {
        /// Its name.
        name: String,
        /// What changes.
        options: Vec<PoolOption>,
    },
    /// A pool goes.
    DropPool {
        /// Its name.
        name: String,
    },
    /// A user that was bound to no pool is bound to one, and perhaps made on the server.
    CreateUser {
        /// The user.
        user: String,
        /// The pool.
        pool: String,
        /// For the server only: never stored, printed or logged.
        password: Option<Password>,
    },
    /// A user's pool changes.
    AlterUser {
        /// The user.
        user: String,
        /// The pool.
        pool: String,
        /// For the server only: never stored, printed or logged.
        password: Option<Password>,
    },
    /// A user is bound to no pool any more. The role stays on the server.
    DropUser {
        /// The user.
        user: String,
    },
    /// A setting changes.
    Set(Setting),
    /// Something is to be shown.
    Show(Show),
}

/// A setting with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// What the low class may send.
    LowPriorityBandwidth(LowPriorityBandwidth),
}

words! {
    /// What can be shown.
    pub enum Show: "something that can be shown" {
        /// Pools, their settings and what they do now.
        Pools = "pools",
        /// Rules and how often each acted.
        Rules = "rules",
        /// Users and the pools they are bound to.
        Users = "users",
        /// Sessions and their figures.
        Sessions = "sessions",
        /// Queues that are watched.
        Queues = "queues",
        /// Which queue holds which pool to which rate.
        Governor = "governor",
        /// What happened last.
        Events = "events",
        /// Counters.
        Stats = "stats",
        /// The configuration in force.
        Config = "config",
        /// The setting.
        LowPriorityBandwidth = "low_priority_bandwidth",
    }
}

impl Show {
    /// What it shows, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Show::Pools => "pools, their settings and what they do now",
            Show::Rules => "rules, and how often each acted",
            Show::Users => "users and the pools that they are bound to",
            Show::Sessions => "sessions and their figures",
            Show::Queues => "what waits for its turn, and for the low class's bandwidth",
            Show::Governor => "what holds each low pool, to which rate",
            Show::Events => "the last decisions and changes",
            Show::Stats => "counters",
            Show::Config => "the configuration in force",
            Show::LowPriorityBandwidth => "the setting",
        }
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statement::CreateRule { name, options } => {
                write!(f, "CREATE EXCEPT RULE {}", quote(name))?;
                with(f, options.iter().map(|option| (option.name(), option.literal())))
            }
            Statement::AlterRule { name, options } => {
                write!(f, "ALTER EXCEPT RULE {}", quote(name))?;
                with(f, options.iter().map(|option| (option.name(), option.literal())))
            }
            Statement::DropRule { name } => write!(f, "DROP EXCEPT RULE {}", quote(name)),
            Statement::CreatePool { name, options } => {
                write!(f, "CREATE RESOURCE POOL {}", quote(name))?;
                with(f, options.iter().map(|option| (option.name(), option.literal())))
            }
            Statement::AlterPool { name, options } => {
                write!(f, "ALTER RESOURCE POOL {}", quote(name))?;
                with(f, options.iter().map(|option| (option.name(), option.literal())))
            }
            Statement::DropPool { name } => write!(f, "DROP RESOURCE POOL {}", quote(name)),
            Statement::CreateUser { user, pool, password } => write_user(f, "CREATE", user, pool, password.as_ref()),
            Statement::AlterUser { user, pool, password } => write_user(f, "ALTER", user, pool, password.as_ref()),
            Statement::DropUser { user } => write!(f, "DROP USER {}", quote(user)),
            Statement::Set(Setting::LowPriorityBandwidth(value)) => {
                write!(f, "SET {} = {}", LowPriorityBandwidth::NAME, sql(&value.literal()))
            }
            Statement::Show(what) => write!(f, "SHOW {what}"),
        }
    }
}

fn with(f: &mut fmt::Formatter<'_>, options: impl Iterator<Item = (&'static str, Literal)>) -> fmt::Result {
    let written: Vec<String> = options.map(|(name, literal)| format!("{name}={}", sql(&literal))).collect();
    if written.is_empty() { Ok(()) } else { write!(f, " WITH ({})", written.join(", ")) }
}

fn write_user(
    f: &mut fmt::Formatter<'_>,
    verb: &str,
    user: &str,
    pool: &str,
    password: Option<&Password>,
) -> fmt::Result {
    write!(f, "{verb} USER {} RESOURCE POOL {}", quote(user), quote(pool))?;
    if password.is_some() { f.write_str(" PASSWORD '********'") } else { Ok(()) }
}

fn sql(literal: &Literal) -> String {
    match literal {
        Literal::Text(text) => format!("'{}'", text.replace('\'', "''")),
        other => other.to_string(),
    }
}
