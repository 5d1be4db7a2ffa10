//! A scenario: one TOML file that says what to start, what to limit, what to load it with, and which diagnosis
//! each arm must get.

use backwater_model::{Bytes, ParamValue};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Scenarios that come with the program: name and text.
pub const BUILT_IN: &[(&str, &str)] = &[("stampede", include_str!("../../../scenarios/stampede.toml"))];

/// Why a scenario cannot be run as it stands.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// No scenario of this name.
    #[error("there is no scenario '{name}'; there are: {known}. A path to a .toml file works too")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read the scenario {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The text is no scenario. The message names line and field.
    #[error("{path} is no scenario: {message}")]
    Parse {
        /// Which file.
        path: String,
        /// What is wrong, with the line.
        message: String,
    },
    /// The text is understood but asks for something impossible.
    #[error("{path}: {field} = {value}: {why}")]
    Impossible {
        /// Which file.
        path: String,
        /// Which field.
        field: String,
        /// Its value.
        value: String,
        /// What is wrong with it and what would do.
        why: &'static str,
    },
}

/// A whole scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Number of the field case it reproduces.
    pub case: u32,
    /// One line.
    pub title: String,
    /// What it shows.
    pub shows: Vec<String>,
    /// What it does not show.
    pub does_not_show: Vec<String>,
    /// The server.
    pub server: ServerPart,
    /// The volume of the data directory.
    pub disk: DiskPart,
    /// The load.
    pub load: LoadPart,
    /// How often, and to what end.
    pub run: RunPart,
    /// The short form.
    pub quick: QuickPart,
    /// How to tell that the fault happened.
    pub acceptance: Option<Acceptance>,
    /// The arms.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
    /// The file as it stands, for those who read it by program.
    #[serde(skip)]
    pub source: serde_json::Value,
}

/// The server to start.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerPart {
    /// `postgres`.
    pub kind: ServerKind,
    /// Major version; none for whatever is found.
    pub version: Option<u32>,
    /// Settings of every arm.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Settings while the data are made.
    #[serde(default)]
    pub init_settings: BTreeMap<String, String>,
}

/// Servers the lab can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// PostgreSQL.
    Postgres,
}

/// The volume under the data directory. pg_wal lies elsewhere.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskPart {
    /// Size.
    pub size: Bytes,
    /// File system.
    pub fs: String,
}

/// The load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPart {
    /// What each transaction does.
    pub kind: LoadKind,
    /// For `script`: the SQL file.
    pub script: Option<String>,
    /// Scale: 100,000 accounts each.
    pub scale: u32,
    /// How full pages are made, in percent.
    pub fillfactor: u32,
    /// Connections.
    pub clients: usize,
    /// Transactions a second asked for; none for as many as the server takes.
    pub rate_per_s: Option<f64>,
    /// Seconds of load before the arm begins, with no limit in force.
    pub warmup_s: f64,
    /// Seconds of load.
    pub seconds: f64,
    /// How long to wait for the drain at most.
    pub drain_limit_s: f64,
}

/// Loads the lab can drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadKind {
    /// TPC-B-like, as pgbench's default.
    Tpcb,
    /// An SQL file as pgbench understands it.
    Script,
    /// pgbench itself.
    Pgbench,
}

/// How often, and to what end.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPart {
    /// Repeats of every arm.
    pub repeats: usize,
    /// What the advised limit aims at, in seconds.
    pub drain_target_s: f64,
}

/// The short form.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuickPart {
    /// Arms that matter.
    pub arms: Vec<String>,
    /// Repeats of each.
    pub repeats: usize,
    /// Seconds of load.
    pub seconds: f64,
    /// How long to wait for a drain at most, in seconds.
    pub drain_limit_s: f64,
}

/// How to tell that the fault happened.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// In which arm.
    pub arm: String,
    /// There must be a cliff.
    #[serde(default)]
    pub cliff: bool,
    /// The drain must take at least this long, in seconds.
    #[serde(default)]
    pub least_drain_s: f64,
}

/// The dirty limit of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyLimit {
    /// So many bytes.
    Bytes(Bytes),
    /// What `advise` says after the arm named by `advised_from`.
    Advised,
    /// The system's own.
    System,
}

/// One arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// The published row it stands for.
    pub published: Option<String>,
    /// For the A/A arm: the arm it repeats, whose difference from it is the noise floor.
    pub same_as: Option<String>,
    /// Dirty limit of the volume: `384MiB`, `advised`, `system`.
    #[serde(deserialize_with = "dirty_limit")]
    pub dirty_limit: DirtyLimit,
    /// Which arm's recording the advice is made from.
    pub advised_from: Option<String>,
    /// Write operations a second the volume is held to.
    pub write_iops: Option<u64>,
    /// Bytes a second the volume is held to when writing.
    pub write_bytes_per_s: Option<Bytes>,
    /// Settings of the server in this arm.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What it must be diagnosed with.
    pub expected: ExpectedFinding,
}

/// What an arm must be diagnosed with. `rule` is a rule's name, `none` (no finding of warning or worse) or `any`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedFinding {
    /// The rule.
    pub rule: String,
    /// Its cause; any where it is left out.
    pub cause: Option<String>,
}

fn dirty_limit<'de, D: serde::Deserializer<'de>>(from: D) -> Result<DirtyLimit, D::Error> {
    let text = String::deserialize(from)?;
    match text.as_str() {
        "advised" => Ok(DirtyLimit::Advised),
        "system" => Ok(DirtyLimit::System),
        _ => text.parse().map(DirtyLimit::Bytes).map_err(|_| {
            serde::de::Error::custom(format!(
                "'{text}' is no dirty limit: give a size such as 384MiB, 'advised' or 'system'"
            ))
        }),
    }
}

impl Scenario {
    /// The scenario of this name, or in this file.
    pub fn load(name: &str) -> Result<Scenario, ScenarioError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(text, &format!("scenarios/{name}.toml"));
        }
        let is_path = name.contains('/') || Path::new(name).extension().is_some_and(|end| end == "toml");
        if !is_path {
            let known = BUILT_IN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            return Err(ScenarioError::Unknown { name: name.to_owned(), known });
        }
        let text =
            std::fs::read_to_string(name).map_err(|source| ScenarioError::Read { path: name.to_owned(), source })?;
        Self::parse(&text, name)
    }

    /// A scenario from its text; `path` is for messages.
    pub fn parse(text: &str, path: &str) -> Result<Scenario, ScenarioError> {
        let wrong = |error: toml::de::Error| ScenarioError::Parse { path: path.to_owned(), message: error.to_string() };
        let scenario: Scenario = toml::from_str(text).map_err(wrong)?;
        scenario.check(path)?;
        Ok(Scenario { source: toml::from_str(text).map_err(wrong)?, ..scenario })
    }

    /// The arm of this name.
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    /// The same load and nothing else, for a host where no limit may be set: one arm, nothing expected of it.
    pub fn without_limits(&self) -> Scenario {
        let arm = Arm {
            name: "no-limit".to_owned(),
            published: None,
            same_as: None,
            dirty_limit: DirtyLimit::System,
            advised_from: None,
            write_iops: None,
            write_bytes_per_s: None,
            settings: BTreeMap::new(),
            expected: ExpectedFinding { rule: "any".to_owned(), cause: None },
        };
        let quick = QuickPart { arms: vec![arm.name.clone()], ..self.quick.clone() };
        Scenario { arms: vec![arm], quick, acceptance: None, ..self.clone() }
    }

    fn check(&self, path: &str) -> Result<(), ScenarioError> {
        let fail = |field: &str, value: String, why| {
            Err(ScenarioError::Impossible { path: path.to_owned(), field: field.to_owned(), value, why })
        };
        if self.load.clients == 0 || self.load.clients > 1_000 {
            return fail("load.clients", self.load.clients.to_string(), "give 1 to 1000 connections");
        }
        if self.load.scale == 0 {
            return fail("load.scale", "0".into(), "give at least 1");
        }
        if !(10..=100).contains(&self.load.fillfactor) {
            return fail("load.fillfactor", self.load.fillfactor.to_string(), "PostgreSQL takes 10 to 100");
        }
        if !(1.0..=86_400.0).contains(&self.load.seconds) {
            return fail("load.seconds", self.load.seconds.to_string(), "give 1 second to a day");
        }
        if !(1.0..=86_400.0).contains(&self.quick.seconds) {
            return fail("quick.seconds", self.quick.seconds.to_string(), "give 1 second to a day");
        }
        let waits = [
            ("load.warmup_s", self.load.warmup_s),
            ("load.drain_limit_s", self.load.drain_limit_s),
            ("quick.drain_limit_s", self.quick.drain_limit_s),
        ];
        if let Some((field, value)) = waits.into_iter().find(|(_, value)| !(0.0..=86_400.0).contains(value)) {
            return fail(field, value.to_string(), "give 0 seconds to a day");
        }
        if !(0.1..=86_400.0).contains(&self.run.drain_target_s) {
            return fail("run.drain_target_s", self.run.drain_target_s.to_string(), "give 0.1 seconds to a day");
        }
        if self.load.rate_per_s.is_some_and(|rate| !(rate > 0.0 && rate <= 1e6)) {
            return fail(
                "load.rate_per_s",
                self.load.rate_per_s.unwrap_or_default().to_string(),
                "give more than 0 and at most 1000000",
            );
        }
        if self.run.repeats == 0 || self.quick.repeats == 0 {
            return fail("run.repeats", "0".into(), "an arm must run at least once");
        }
        if !matches!(self.disk.fs.as_str(), "ext4" | "xfs") {
            return fail("disk.fs", self.disk.fs.clone(), "the lab makes ext4 and xfs");
        }
        if self.load.kind == LoadKind::Script && self.load.script.is_none() {
            return fail("load.kind", "script".into(), "name the SQL file as load.script");
        }
        self.check_arms(path)
    }

    fn check_arms(&self, path: &str) -> Result<(), ScenarioError> {
        let fail = |field: String, value: String, why| {
            Err(ScenarioError::Impossible { path: path.to_owned(), field, value, why })
        };
        let mut names = BTreeSet::new();
        if self.arms.is_empty() {
            return fail("arm".into(), "none".into(), "a scenario needs at least one [[arm]]");
        }
        for arm in &self.arms {
            let field = |part: &str| format!("arm '{}': {part}", arm.name);
            if !names.insert(arm.name.as_str()) {
                return fail(field("name"), arm.name.clone(), "two arms have this name");
            }
            if let DirtyLimit::Bytes(limit) = arm.dirty_limit
                && (limit.0 < 16 << 20 || limit.0 > self.disk.size.0)
            {
                return fail(
                    field("dirty_limit"),
                    limit.to_string(),
                    "give at least 16 MiB and at most the disk's size",
                );
            }
            if arm.write_iops.is_some_and(|iops| iops < 10) {
                return fail(
                    field("write_iops"),
                    arm.write_iops.unwrap_or_default().to_string(),
                    "fewer than 10 a second would stop the server",
                );
            }
            let source = arm.advised_from.as_deref();
            if arm.dirty_limit == DirtyLimit::Advised && source.is_none_or(|name| self.arm(name).is_none()) {
                return fail(
                    field("advised_from"),
                    source.unwrap_or("nothing").to_owned(),
                    "name the arm whose recording the advice is made from",
                );
            }
        }
        let accepted = self.acceptance.iter().map(|acceptance| &acceptance.arm);
        let repeated = self.arms.iter().filter_map(|arm| arm.same_as.as_ref());
        let named = self.quick.arms.iter().chain(accepted).chain(repeated);
        for name in named {
            if !names.contains(name.as_str()) {
                return fail(
                    "quick.arms, acceptance.arm or same_as".into(),
                    name.clone(),
                    "there is no arm of this name",
                );
            }
        }
        Ok(())
    }
}

impl Arm {
    /// The cause that must be found, if any one in particular.
    pub fn expected_cause(&self, host_limit: bool) -> Option<&str> {
        match self.expected.cause.as_deref() {
            Some("device-limit") if host_limit => Some("host-limit"),
            other => other,
        }
    }

    /// What was set, for the outcome's `params`.
    pub fn params(&self, dirty_limit_bytes: Option<u64>) -> BTreeMap<String, ParamValue> {
        let mut params = BTreeMap::new();
        let mut number = |name: &str, value: Option<u64>| {
            if let Some(value) = value {
                params.insert(name.to_owned(), ParamValue::Number(value as f64));
            }
        };
        number("dirty_limit_bytes", dirty_limit_bytes);
        number("write_iops", self.write_iops);
        number("write_bytes_per_s", self.write_bytes_per_s.map(|bytes| bytes.0));
        for (name, value) in &self.settings {
            params.insert(name.clone(), ParamValue::Text(value.clone()));
        }
        params
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stampede() -> &'static str {
        BUILT_IN[0].1
    }

    #[test]
    fn built_in_scenarios_are_valid() {
        for (name, _) in BUILT_IN {
            assert_eq!(Scenario::load(name).unwrap().name, *name);
        }
    }

    #[test]
    fn a_typo_is_named_with_its_line() {
        let text = stampede().replace("fillfactor = 20", "filfactor = 20");
        let error = Scenario::parse(&text, "x.toml").unwrap_err().to_string();
        assert!(error.contains("filfactor") && error.contains("line"), "{error}");
    }

    #[test]
    fn an_impossible_limit_is_named_with_its_arm() {
        let text = stampede().replacen("384MiB", "384GiB", 1);
        let error = Scenario::parse(&text, "x.toml").unwrap_err().to_string();
        assert!(error.contains("arm 'default': dirty_limit") && error.contains("disk's size"), "{error}");
    }

    #[test]
    fn an_unknown_name_lists_what_there_is() {
        let error = Scenario::load("stampeed").unwrap_err().to_string();
        assert!(error.contains("stampede"), "{error}");
    }
}
