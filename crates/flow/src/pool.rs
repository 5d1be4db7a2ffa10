//! Pools: what sessions are grouped by, with a priority, a weight, limits and exception rules.

use crate::literal::{Literal, RATE_WANTED, ValueError, rate_literal};
use crate::name;
use crate::word::words;
use serde::{Deserialize, Serialize};

words! {
    /// The two levels. Only low-priority work is ever slowed, and urgent work never waits for it.
    #[derive(Default)]
    pub enum Priority: "a priority" {
        /// Urgent: sent at once.
        #[default]
        High = "high",
        /// Held to the low class's rate; what a penalty demotes a session to.
        Low = "low",
    }
}

/// The pool of whoever is bound to none. It always exists.
pub const DEFAULT_POOL: &str = "default";
/// Exception rules that a pool can have, as in the product that they come from.
pub const MOST_RULES: usize = 16;
/// Weights go from 1 to this.
pub const MOST_WEIGHT: u32 = 100;

/// One pool's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Exception rules by name; any of them that matches acts.
    pub except_rules: Vec<String>,
    /// Share among the pools of the same level.
    pub weight: u32,
    /// The level of its sessions while no rule has demoted them.
    pub priority: Priority,
    /// Connections at once; the next is refused. None: no limit.
    pub max_connections: Option<u32>,
    /// Statements running at once; the next waits. None: no limit.
    pub max_active: Option<u32>,
    /// Bytes a second to the clients of this pool, in all. None: no limit of its own.
    pub bandwidth_bps: Option<u64>,
}

impl Default for Pool {
    fn default() -> Self {
        Pool {
            except_rules: Vec::new(),
            weight: 1,
            priority: Priority::High,
            max_connections: None,
            max_active: None,
            bandwidth_bps: None,
        }
    }
}

/// A pool as the scheduler knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolId(
    /// Its number, given by whoever keeps the names.
    pub u32,
);

/// One client's session, for the life of the process that numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(
    /// Its number.
    pub u64,
);

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One attribute of a pool as written in a statement or in TOML.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolOption {
    /// All of its exception rules.
    ExceptRules(Vec<String>),
    /// Its share among the pools of its level.
    Weight(u32),
    /// Its level.
    Priority(Priority),
    /// Connections at once.
    MaxConnections(Option<u32>),
    /// Statements at once.
    MaxActive(Option<u32>),
    /// Bytes a second.
    Bandwidth(Option<u64>),
}

impl PoolOption {
    /// The names of all attributes of a pool.
    pub const NAMES: [&'static str; 6] =
        ["except_rule", "weight", "priority", "max_connections", "max_active", "bandwidth"];

    /// What an attribute of a pool is, by one of [`PoolOption::NAMES`].
    pub fn about(name: &str) -> &'static str {
        match name {
            "except_rule" => "names of exception rules, such as 'a, b'; any that matches acts",
            "weight" => {
                "its share among the low pools while they all have something to send; of a high pool: for its sessions that a penalty holds"
            }
            "priority" => "'high': never slowed; 'low': in the low class from the beginning",
            "max_connections" => "sessions at once; the next is refused",
            "max_active" => "statements at once; the next waits in front of the server, first come, first served",
            "bandwidth" => "MB a second or a size a second to its clients in all; for low pools only",
            _ => "",
        }
    }

    /// Reads one attribute of a pool. The name in any case.
    pub fn read(name: &str, literal: &Literal) -> Result<PoolOption, ValueError> {
        let known = Self::NAMES.iter().copied().find(|known| known.eq_ignore_ascii_case(name));
        let Some(known) = known else {
            return Err(ValueError::Unknown { name: name.to_owned(), known: Self::NAMES.join(", ") });
        };
        Ok(match known {
            "except_rule" => PoolOption::ExceptRules(rule_names(literal)?),
            "weight" => match literal.limit(known, 1, MOST_WEIGHT) {
                Ok(Some(weight)) => PoolOption::Weight(weight),
                _ => return Err(literal.refuse(known, format!("a whole number from 1 to {MOST_WEIGHT}"))),
            },
            "priority" => PoolOption::Priority(literal.word().ok_or_else(|| literal.refuse(known, "'high' or 'low'"))?),
            "max_connections" => PoolOption::MaxConnections(literal.limit(known, 1, MOST_COUNT)?),
            "max_active" => PoolOption::MaxActive(literal.limit(known, 1, MOST_COUNT)?),
            _ if literal.number() == Some(-1.0) => PoolOption::Bandwidth(None),
            _ => match literal.rate_bps() {
                Some(bps) => PoolOption::Bandwidth(Some(bps)),
                None => return Err(literal.refuse(known, format!("{RATE_WANTED}, or -1 for no limit"))),
            },
        })
    }

    /// The attribute's name.
    pub fn name(&self) -> &'static str {
        match self {
            PoolOption::ExceptRules(_) => "except_rule",
            PoolOption::Weight(_) => "weight",
            PoolOption::Priority(_) => "priority",
            PoolOption::MaxConnections(_) => "max_connections",
            PoolOption::MaxActive(_) => "max_active",
            PoolOption::Bandwidth(_) => "bandwidth",
        }
    }

    /// Its value as it is written.
    pub fn literal(&self) -> Literal {
        let count = |limit: &Option<u32>| Literal::Whole(limit.map_or(-1, i64::from));
        match self {
            PoolOption::ExceptRules(names) => Literal::Text(name::quote_list(names)),
            PoolOption::Weight(weight) => Literal::Whole(i64::from(*weight)),
            PoolOption::Priority(priority) => Literal::Text(priority.word().to_owned()),
            PoolOption::MaxConnections(limit) | PoolOption::MaxActive(limit) => count(limit),
            PoolOption::Bandwidth(None) => Literal::Whole(-1),
            PoolOption::Bandwidth(Some(bps)) => rate_literal(*bps),
        }
    }
}

fn rule_names(literal: &Literal) -> Result<Vec<String>, ValueError> {
    let refuse = |why: String| literal.refuse("except_rule", format!("names of rules separated by commas ({why})"));
    let names = literal.names().map_err(refuse)?;
    if names.len() > MOST_RULES {
        return Err(refuse(format!("a pool has at most {MOST_RULES} rules, these are {}", names.len())));
    }
    match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        Some((_, twice)) => Err(refuse(format!("{} stands there twice", name::quote(twice)))),
        None => Ok(names),
    }
}

impl Pool {
    /// Sets one attribute.
    pub fn set(&mut self, option: &PoolOption) {
        match option {
            PoolOption::ExceptRules(names) => self.except_rules.clone_from(names),
            PoolOption::Weight(weight) => self.weight = *weight,
            PoolOption::Priority(priority) => self.priority = *priority,
            PoolOption::MaxConnections(limit) => self.max_connections = *limit,
            PoolOption::MaxActive(limit) => self.max_active = *limit,
            PoolOption::Bandwidth(bps) => self.bandwidth_bps = *bps,
        }
    }

    /// The pool as the attributes that make it; limits that are not there are left out.
    pub fn options(&self) -> Vec<PoolOption> {
        let mut options = Vec::new();
        if !self.except_rules.is_empty() {
            options.push(PoolOption::ExceptRules(self.except_rules.clone()));
        }
        options.extend([PoolOption::Weight(self.weight), PoolOption::Priority(self.priority)]);
        options.extend(self.max_connections.map(|limit| PoolOption::MaxConnections(Some(limit))));
        options.extend(self.max_active.map(|limit| PoolOption::MaxActive(Some(limit))));
        options.extend(self.bandwidth_bps.map(|bps| PoolOption::Bandwidth(Some(bps))));
        options
    }
}

/// The largest count that can be set.
const MOST_COUNT: u32 = 1_000_000;
