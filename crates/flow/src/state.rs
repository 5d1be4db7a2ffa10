//! Rules, pools, users and settings as they stand, and what statements do to them. A statement does all of what it says
//! or, with an error, nothing.
//!
//! The state is written as TOML or JSON through serde, and read back through the same checks as statements:
//!
//! ```toml
//! low_priority_bandwidth = "auto"
//!
//! [rules.bandwidth_rule1]
//! bandwidth = 128
//! elapsedtime = 60
//! action = "penalty"
//!
//! [pools.rp1]
//! except_rule = "bandwidth_rule1"
//!
//! [users]
//! user1 = "rp1"
//! ```

use crate::LowPriorityBandwidth;
use crate::literal::{Literal, ValueError};
use crate::name::{self, quote};
use crate::pool::{DEFAULT_POOL, Pool, PoolOption, Priority};
use crate::rule::{Acted, Rule, RuleOption};
use crate::statement::{Setting, Statement};
use backwater_model::FlowRule;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that statements can change. The pool [`DEFAULT_POOL`] is always there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StateForm", into = "StateForm")]
pub struct State {
    rules: BTreeMap<String, Rule>,
    pools: BTreeMap<String, Pool>,
    users: BTreeMap<String, String>,
    low_priority_bandwidth: LowPriorityBandwidth,
}

/// Why a statement or a file cannot be taken. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// There is one already.
    #[error("{what} {} exists already: ALTER changes it", quote(.name))]
    Exists {
        /// `rule`, `resource pool`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// There is none.
    #[error("there is no {what} {}{}", quote(.name), listed(.known))]
    Missing {
        /// `rule`, `resource pool`, `user`.
        what: &'static str,
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// Something else refers to it.
    #[error("{what} {} is used by {}: change {} first", quote(.name), .users.iter().map(|user| quote(user)).collect::<Vec<_>>().join(", "), if .users.len() == 1 { "it" } else { "them" })]
    InUse {
        /// `rule`, `resource pool`.
        what: &'static str,
        /// Its name.
        name: String,
        /// What uses it.
        users: Vec<String>,
    },
    /// The default pool stays.
    #[error("the pool {DEFAULT_POOL} cannot be dropped: it is the pool of whoever is bound to none")]
    DefaultPool,
    /// A file has a name that cannot be one.
    #[error("'{name}' is no name: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A file has a value that cannot be.
    #[error("{what} {}: {error}", quote(.name))]
    Value {
        /// `rule`, `resource pool`.
        what: &'static str,
        /// Its name.
        name: String,
        /// What is wrong.
        error: ValueError,
    },
    /// A file has a setting that cannot be.
    #[error(transparent)]
    Setting(ValueError),
}

const RULE: &str = "rule";
const POOL: &str = "resource pool";
const USER: &str = "user";

fn listed(known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    format!(": there are {}", known.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", "))
}

impl Default for State {
    fn default() -> Self {
        State {
            rules: BTreeMap::new(),
            pools: BTreeMap::from([(DEFAULT_POOL.to_owned(), Pool::default())]),
            users: BTreeMap::new(),
            low_priority_bandwidth: LowPriorityBandwidth::default(),
        }
    }
}

impl State {
    /// These rules for everybody, and nothing else.
    pub fn of_rules(rules: impl IntoIterator<Item = (String, Rule)>) -> State {
        let rules: BTreeMap<String, Rule> = rules.into_iter().collect();
        let everybody = Pool { except_rules: rules.keys().cloned().collect(), ..Pool::default() };
        State { pools: [(DEFAULT_POOL.to_owned(), everybody)].into(), rules, ..State::default() }
    }

    /// All rules by name.
    pub fn rules(&self) -> &BTreeMap<String, Rule> {
        &self.rules
    }

    /// All pools by name.
    pub fn pools(&self) -> &BTreeMap<String, Pool> {
        &self.pools
    }

    /// The names of the pools that a rule is one of.
    pub fn pools_with<'a>(&'a self, rule: &'a str) -> impl Iterator<Item = &'a str> {
        let has = move |pool: &Pool| pool.except_rules.iter().any(|name| name == rule);
        self.pools.iter().filter(move |(_, pool)| has(pool)).map(|(name, _)| name.as_str())
    }

    /// The rules for pages and recordings, with how often each acted.
    pub fn described(&self, acted: impl Fn(&str) -> Acted) -> Vec<FlowRule> {
        let row = |(name, rule): (&String, &Rule)| {
            let Acted { began, escalated, lifted } = acted(name);
            FlowRule {
                name: name.clone(),
                action: rule.action.word().to_owned(),
                conditions: rule.conditions(),
                pools: self.pools_with(name).map(str::to_owned).collect(),
                began,
                escalated,
                lifted,
                unseen: String::new(),
            }
        };
        self.rules.iter().map(row).collect()
    }

    /// The pools of users that are bound to one.
    pub fn users(&self) -> &BTreeMap<String, String> {
        &self.users
    }

    /// What the low class may send.
    pub fn low_priority_bandwidth(&self) -> LowPriorityBandwidth {
        self.low_priority_bandwidth
    }

    /// The name of the pool of a user.
    pub fn pool_of(&self, user: &str) -> &str {
        self.users.get(user).map_or(DEFAULT_POOL, String::as_str)
    }

    /// Whether a user's pool is a low-priority one.
    pub fn is_low(&self, user: &str) -> bool {
        self.pools.get(self.pool_of(user)).is_some_and(|pool| pool.priority == Priority::Low)
    }

    /// The rules of a pool; none for a pool that is not there.
    pub fn rules_of(&self, pool: &str) -> impl Iterator<Item = (&str, &Rule)> {
        let names = self.pools.get(pool).map(|pool| pool.except_rules.as_slice()).unwrap_or_default();
        names.iter().filter_map(|name| Some((name.as_str(), self.rules.get(name)?)))
    }

    /// Does what a statement says. True if anything is different now; `SHOW` changes nothing.
    pub fn apply(&mut self, statement: &Statement) -> Result<bool, StateError> {
        let mut next = self.clone();
        next.change(statement)?;
        let changed = next != *self;
        *self = next;
        Ok(changed)
    }

    fn change(&mut self, statement: &Statement) -> Result<(), StateError> {
        match statement {
            Statement::CreateRule { name, options } => {
                let mut rule = Rule::default();
                options.iter().for_each(|option| rule.set(option));
                create(&mut self.rules, RULE, name, rule)
            }
            Statement::AlterRule { name, options } => {
                let rule = find(&mut self.rules, RULE, name)?;
                options.iter().for_each(|option| rule.set(option));
                Ok(())
            }
            Statement::DropRule { name } => {
                find(&mut self.rules, RULE, name)?;
                let uses = self.pools.iter().filter(|(_, pool)| pool.except_rules.contains(name));
                unused(RULE, name, uses.map(|(pool, _)| pool))?;
                self.rules.remove(name);
                Ok(())
            }
            Statement::CreatePool { name, options } => {
                let mut pool = Pool::default();
                options.iter().for_each(|option| pool.set(option));
                self.check_rules(&pool)?;
                create(&mut self.pools, POOL, name, pool)
            }
            Statement::AlterPool { name, options } => {
                let pool = find(&mut self.pools, POOL, name)?;
                options.iter().for_each(|option| pool.set(option));
                let pool = pool.clone();
                self.check_rules(&pool)
            }
            Statement::DropPool { name } => {
                find(&mut self.pools, POOL, name)?;
                if name == DEFAULT_POOL {
                    return Err(StateError::DefaultPool);
                }
                unused(POOL, name, self.users.iter().filter(|(_, pool)| *pool == name).map(|(user, _)| user))?;
                self.pools.remove(name);
                Ok(())
            }
            Statement::CreateUser { user, pool, .. } => {
                find(&mut self.pools, POOL, pool)?;
                create(&mut self.users, USER, user, pool.clone())
            }
            // A user that the server has need not have been named here before.
            Statement::AlterUser { user, pool, .. } => {
                find(&mut self.pools, POOL, pool)?;
                self.users.insert(user.clone(), pool.clone());
                Ok(())
            }
            Statement::DropUser { user } => {
                find(&mut self.users, USER, user)?;
                self.users.remove(user);
                Ok(())
            }
            Statement::Set(Setting::LowPriorityBandwidth(value)) => {
                self.low_priority_bandwidth = *value;
                Ok(())
            }
            Statement::Show(_) => Ok(()),
        }
    }

    fn check_rules(&self, pool: &Pool) -> Result<(), StateError> {
        match pool.except_rules.iter().find(|name| !self.rules.contains_key(*name)) {
            Some(name) => Err(missing(&self.rules, RULE, name)),
            None => Ok(()),
        }
    }
}

fn create<T>(all: &mut BTreeMap<String, T>, what: &'static str, name: &str, new: T) -> Result<(), StateError> {
    if all.contains_key(name) {
        return Err(StateError::Exists { what, name: name.to_owned() });
    }
    all.insert(name.to_owned(), new);
    Ok(())
}

fn find<'a, T>(all: &'a mut BTreeMap<String, T>, what: &'static str, name: &str) -> Result<&'a mut T, StateError> {
    if !all.contains_key(name) {
        return Err(missing(all, what, name));
    }
    all.get_mut(name).ok_or_else(|| StateError::Missing { what, name: name.to_owned(), known: Vec::new() })
}

fn missing<T>(all: &BTreeMap<String, T>, what: &'static str, name: &str) -> StateError {
    StateError::Missing { what, name: name.to_owned(), known: all.keys().cloned().collect() }
}

fn unused<'a>(what: &'static str, name: &str, uses: impl Iterator<Item = &'a String>) -> Result<(), StateError> {
    let users: Vec<String> = uses.cloned().collect();
    if users.is_empty() { Ok(()) } else { Err(StateError::InUse { what, name: name.to_owned(), users }) }
}

/// The state as it stands in a file, not yet checked. Public so that a file can hold it beside other settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateForm {
    /// `256` (MB/s), `"256MB"` or `"auto"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_priority_bandwidth: Option<Literal>,
    /// Attributes of rules by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, BTreeMap<String, Literal>>,
    /// Attributes of pools by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, BTreeMap<String, Literal>>,
    /// Pools of users.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<String, String>,
}

impl From<State> for StateForm {
    fn from(state: State) -> Self {
        let rules = state.rules.into_iter().map(|(name, rule)| {
            (name, rule.options().iter().map(|option| (option.name().to_owned(), option.literal())).collect())
        });
        let pools = state.pools.into_iter().map(|(name, pool)| {
            (name, pool.options().iter().map(|option| (option.name().to_owned(), option.literal())).collect())
        });
        StateForm {
            low_priority_bandwidth: Some(state.low_priority_bandwidth.literal()),
            rules: rules.collect(),
            pools: pools.collect(),
            users: state.users,
        }
    }
}

impl TryFrom<StateForm> for State {
    type Error = StateError;

    fn try_from(written: StateForm) -> Result<Self, StateError> {
        let mut state = State::default();
        if let Some(literal) = &written.low_priority_bandwidth {
            state.low_priority_bandwidth = LowPriorityBandwidth::read(literal).map_err(StateError::Setting)?;
        }
        for (name, attributes) in written.rules {
            let refuse = |error| StateError::Value { what: RULE, name: name.clone(), error };
            let mut rule = Rule::default();
            for (attribute, literal) in &attributes {
                rule.set(&RuleOption::read(attribute, literal).map_err(refuse)?);
            }
            state.rules.insert(named(name.clone())?, rule);
        }
        for (name, attributes) in written.pools {
            let refuse = |error| StateError::Value { what: POOL, name: name.clone(), error };
            let mut pool = Pool::default();
            for (attribute, literal) in &attributes {
                pool.set(&PoolOption::read(attribute, literal).map_err(refuse)?);
            }
            state.check_rules(&pool)?;
            state.pools.insert(named(name.clone())?, pool);
        }
        for (user, pool) in written.users {
            find(&mut state.pools, POOL, &pool)?;
            state.users.insert(named(user)?, pool);
        }
        Ok(state)
    }
}

fn named(name: String) -> Result<String, StateError> {
    name::check(&name).map_err(|why| StateError::Name { name: name.clone(), why })?;
    Ok(name)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
