//! What a search may turn.

use super::{Arm, DirtyLimit, Scenario, check::Wrong};
use serde::Deserialize;

/// The knob that is no setting of the server.
const DIRTY_LIMIT: &str = "dirty_limit";

/// Where a search begins, what it is compared with, and what it may turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchPart {
    /// The arm it begins with.
    pub from: String,
    /// The arm that what is found is measured beside.
    pub against: String,
    /// What it turns, in this order.
    #[serde(rename = "knob")]
    pub knobs: Vec<Knob>,
}

/// Something that can be turned.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knob {
    /// The server's setting, or `dirty_limit` of the volume.
    pub name: String,
    /// Its values, in order of size. Where an arm does not say, it has the first.
    pub values: Vec<String>,
}

impl Knob {
    /// Where an arm stands on it; none where its value is none of these.
    pub(crate) fn place(&self, scenario: &Scenario, arm: &Arm) -> Option<usize> {
        let own = match self.name.as_str() {
            DIRTY_LIMIT => return self.values.iter().position(|value| limit(value) == Some(arm.dirty_limit)),
            name => arm.settings.get(name).or_else(|| scenario.server.settings.get(name)),
        };
        own.map_or(Some(0), |own| self.values.iter().position(|value| value == own))
    }

    /// Sets it.
    pub(crate) fn set(&self, arm: &mut Arm, place: usize) {
        let Some(value) = self.values.get(place) else { return };
        match self.name.as_str() {
            DIRTY_LIMIT => arm.dirty_limit = limit(value).unwrap_or_default(),
            name => drop(arm.settings.insert(name.to_owned(), value.clone())),
        }
    }
}

fn limit(value: &str) -> Option<DirtyLimit> {
    value.parse().ok().filter(|limit| *limit != DirtyLimit::Advised)
}

impl SearchPart {
    /// The first thing that is wrong with it.
    pub(super) fn check(&self, scenario: &Scenario) -> Result<(), Wrong> {
        let wrong = |field: &str, value: &str, why| Err((format!("search.{field}"), value.to_owned(), why));
        for (field, name) in [("from", &self.from), ("against", &self.against)] {
            match scenario.arm(name) {
                None => return wrong(field, name, "there is no arm of this name"),
                Some(arm) if arm.advised_from.is_some() => {
                    return wrong(
                        field,
                        name,
                        "an arm that is advised depends on others: name one with settings of its own",
                    );
                }
                Some(_) => {}
            }
        }
        if self.knobs.is_empty() {
            return wrong("knob", "none", "give at least one [[search.knob]]");
        }
        for knob in &self.knobs {
            let field = format!("knob '{}': values", knob.name);
            if knob.values.len() < 2 {
                return wrong(&field, &knob.values.join(", "), "give at least two: one could not be turned");
            }
            if let Some(value) = knob.values.iter().find(|value| knob.name == DIRTY_LIMIT && limit(value).is_none()) {
                return wrong(&field, value, "give sizes such as 64MiB, or 'system'");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::Bytes;

    #[test]
    fn a_knob_knows_where_an_arm_stands_and_turns_it() {
        let scenario = Scenario::load("wt-stall").unwrap();
        let part = scenario.search.clone().unwrap();
        let knob = |name: &str| part.knobs.iter().find(|knob| knob.name == name).unwrap();
        let arm = scenario.arm("last-round").unwrap();
        let (cache, limit) = (knob("cache_size"), knob(DIRTY_LIMIT));
        assert_eq!(cache.values[cache.place(&scenario, arm).unwrap()], "1GB");
        assert_eq!(
            cache.values[cache.place(&scenario, scenario.arm("defaults").unwrap()).unwrap()],
            "6GB",
            "the server's own"
        );
        assert_eq!(limit.values[limit.place(&scenario, arm).unwrap()], "system");
        let mut turned = arm.clone();
        cache.set(&mut turned, cache.values.iter().position(|value| value == "2GB").unwrap());
        limit.set(&mut turned, limit.values.iter().position(|value| value == "16MiB").unwrap());
        assert_eq!(turned.settings["cache_size"], "2GB");
        assert_eq!(turned.dirty_limit, DirtyLimit::Bytes(Bytes(16 << 20)));
        assert_eq!(limit.values[limit.place(&scenario, &turned).unwrap()], "16MiB");
    }

    #[test]
    fn what_cannot_be_searched_is_named() {
        let text = super::super::BUILT_IN.iter().find(|(name, _)| *name == "wt-stall").unwrap().1;
        let error = |from: &str, to: &str| Scenario::parse(&text.replace(from, to), "x.toml").unwrap_err().to_string();
        let missing = error("against = \"last-round\"\n", "against = \"lost-round\"\n");
        assert!(missing.contains("search.against = lost-round: there is no arm"), "{missing}");
        let size = error("values = [\"system\", ", "values = [\"sistem\", ");
        assert!(size.contains("knob 'dirty_limit': values = sistem"), "{size}");
    }
}
