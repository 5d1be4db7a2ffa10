//! A scenario: one TOML file that says what to start, what to limit, what to load it with, and which diagnosis
//! each arm must get.

mod arm;
mod check;
mod engine;
mod overload;
mod parts;
mod search;
mod sweep;

use serde::Deserialize;
use std::path::Path;

pub use arm::{Aim, Arm, BatchesArm, DirtyLimit, ExpectedFinding, Hindrance, LoadArm, Need, NetworkArm, StandbyArm};
pub use engine::{EngineArm, EngineKind, EnginePart};
pub use overload::{Congestion, OverloadArm, OverloadMode, OverloadPart};
pub use parts::{
    Acceptance, BatchesPart, DiskPart, LoadKind, LoadPart, NetworkPart, QuickPart, RunPart, ServerKind, ServerPart,
    StandbyPart, StormPart,
};
pub use search::{Knob, SearchPart};
pub use sweep::Sweep;

/// Scenarios that come with the program: name and text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("wal-lag", include_str!("../../../../scenarios/wal-lag.toml")),
    ("stampede", include_str!("../../../../scenarios/stampede.toml")),
    ("commit-wait", include_str!("../../../../scenarios/commit-wait.toml")),
    ("commit-standby", include_str!("../../../../scenarios/commit-standby.toml")),
    ("net-overload", include_str!("../../../../scenarios/net-overload.toml")),
    ("wt-stall", include_str!("../../../../scenarios/wt-stall.toml")),
];

/// The one arm of a scenario none of whose own can run.
const STAND_IN: &str = "no-limit";

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
    /// The volume of its data directory; none for the work directory.
    pub disk: Option<DiskPart>,
    /// Its standby, where it has one.
    pub standby: Option<StandbyPart>,
    /// What joins the two, where it is to be the lab's own.
    pub network: Option<NetworkPart>,
    /// The load.
    pub load: LoadPart,
    /// How often, and to what end.
    pub run: RunPart,
    /// The short form.
    pub quick: QuickPart,
    /// How to tell that the fault happened.
    pub acceptance: Option<Acceptance>,
    /// What `lab search` may turn; none where it has nothing to search for.
    pub search: Option<SearchPart>,
    /// The arms.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
    /// The file as it stands, for those who read it by program.
    #[serde(skip)]
    pub source: serde_json::Value,
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

    /// The arms whose recordings an arm's advice needs, the nearest first.
    pub fn sources<'a>(&'a self, arm: &'a Arm) -> impl Iterator<Item = &'a Arm> {
        let next = |arm: &&'a Arm| arm.advised_from.as_deref().and_then(|name| self.arm(name));
        // As many as there are arms: one more is a circle.
        std::iter::successors(next(&arm), next).take(self.arms.len())
    }

    /// Whether some of its arms run on a host where no limit may be set.
    pub fn runs_without_limits(&self) -> bool {
        self.arms.iter().any(|arm| arm.needs().is_empty())
    }

    /// Whether it is what [`without_limits`](Self::without_limits) left of another.
    pub(crate) fn is_stand_in(&self) -> bool {
        self.arms.iter().all(|arm| arm.name == STAND_IN)
    }

    /// The same load and nothing else, for a host where no limit may be set: one arm, nothing expected of it.
    pub fn without_limits(&self) -> Scenario {
        let arm = Arm { name: STAND_IN.to_owned(), ..Arm::default() };
        let quick = QuickPart { arms: vec![arm.name.clone()], ..self.quick.clone() };
        Scenario { arms: vec![arm], quick, acceptance: None, search: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stampede() -> &'static str {
        BUILT_IN.iter().find(|(name, _)| *name == "stampede").unwrap().1
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
    fn a_rule_that_does_not_exist_cannot_be_expected() {
        let text = stampede().replacen("dirty-throttle", "dirty-throtle", 1);
        let error = Scenario::parse(&text, "x.toml").unwrap_err().to_string();
        assert!(error.contains("arm 'default': expected.rule = dirty-throtle: there is no such rule"), "{error}");
        let text = stampede().replacen("write_iops = 1500", "write_bytes_per_s = \"0B\"", 1);
        let error = Scenario::parse(&text, "x.toml").unwrap_err().to_string();
        assert!(error.contains("arm 'default': write_bytes_per_s") && error.contains("64 KiB"), "{error}");
    }

    #[test]
    fn what_would_undo_itself_is_refused() {
        let text = BUILT_IN.iter().find(|(name, _)| *name == "wal-lag").unwrap().1;
        let error = |from: &str, to: &str| {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            Scenario::parse(&text.replace(from, to), "x.toml").unwrap_err().to_string()
        };
        let starved = "standby = { replay_processor = 0.02 }";
        let returns = "standby = { returns_after = \"256MiB\" }";
        for (from, to, says) in [
            (starved, "standby = { replay_processor = 2.0 }", "0.01 to 1 of a processor"),
            (starved, "standby = { replay_processor = 0.02, away = true }", "started anew"),
            (starved, "standby = { replay_processor = 0.02, write_iops = 200 }", "another group"),
            (returns, "standby = { returns_after = \"256MiB\", slot = false }", "without a slot"),
            (returns, "standby = { returns_after = \"256MiB\", replay = \"paused\" }", "ends what else hinders it"),
            (returns, "standby = { returns_after = \"2GiB\" }", "half of the disk's size"),
            ("beneath = true", "beneath = false", "nothing lies beneath"),
        ] {
            let error = error(from, to);
            assert!(error.contains(says), "{to}: {error}");
        }
    }

    #[test]
    fn an_arm_is_compared_with_another_that_there_is() {
        let text = BUILT_IN.iter().find(|(name, _)| *name == "wt-stall").unwrap().1;
        let error = |other: &str| {
            let text = text.replacen("name = \"cache\"\nbeside = \"defaults\"", other, 1);
            Scenario::parse(&text, "x.toml").unwrap_err().to_string()
        };
        let unknown = error("name = \"cache\"\nbeside = \"default\"");
        assert!(unknown.contains("beside = default: there is no arm of this name"), "{unknown}");
        let itself = error("name = \"cache\"\nbeside = \"cache\"");
        assert!(itself.contains("arm 'cache': beside = cache: an arm is compared with another one"), "{itself}");
    }

    #[test]
    fn an_unknown_name_lists_what_there_is() {
        let error = Scenario::load("stampeed").unwrap_err().to_string();
        assert!(error.contains("stampede"), "{error}");
    }
}
