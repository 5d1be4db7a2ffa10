//! One arm of a scenario: what is set for it, and what it must be diagnosed with.

use super::{EngineArm, LoadPart, OverloadArm, QuickPart, Scenario};
use crate::limits::Narrow;
use crate::workloads::commit_batches::Side;
use backwater_model::{Bytes, Finding, ParamValue, Severity};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The dirty limit of an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirtyLimit {
    /// So many bytes.
    Bytes(Bytes),
    /// What `advise` says after the arm named by `advised_from`.
    Advised,
    /// The system's own.
    #[default]
    System,
}

impl DirtyLimit {
    /// Its size, where it is given.
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            DirtyLimit::Bytes(bytes) => Some(bytes.0),
            DirtyLimit::System | DirtyLimit::Advised => None,
        }
    }
}

/// One arm.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// The published row it stands for.
    pub published: Option<String>,
    /// For the A/A arm: the arm it repeats, whose difference from it is the noise floor.
    pub same_as: Option<String>,
    /// The arm with which its queues are compared: as it, without its setting. For an advised arm the one that it follows.
    pub beside: Option<String>,
    /// Dirty limit of the volume: `384MiB`, `advised`, `system`.
    #[serde(default, deserialize_with = "dirty_limit")]
    pub dirty_limit: DirtyLimit,
    /// Which arm's recording the advice is made from. On the WiredTiger engine what is ranked first is set over that arm's own
    /// settings, whichever it is.
    pub advised_from: Option<String>,
    /// What it is to reach beside another arm.
    pub aim: Option<Aim>,
    /// Write operations a second the volume is held to.
    pub write_iops: Option<u64>,
    /// Bytes a second the volume is held to when writing.
    pub write_bytes_per_s: Option<Bytes>,
    /// Bytes a second the volume is held to when reading.
    pub read_bytes_per_s: Option<Bytes>,
    /// Bytes a second that the volume's device itself can write: held beneath it, where its server sees no cap.
    pub device_bytes_per_s: Option<Bytes>,
    /// Settings of the server in this arm.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What the standby has of its own in this arm.
    #[serde(default)]
    pub standby: StandbyArm,
    /// What the network has of its own in this arm.
    #[serde(default)]
    pub network: NetworkArm,
    /// What the load has of its own in this arm.
    #[serde(default)]
    pub load: LoadArm,
    /// What it must be diagnosed with.
    pub expected: ExpectedFinding,
}

/// What an arm is to reach beside another.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aim {
    /// The other arm.
    pub against: String,
    /// Latency p99 ÷ the other's, at most.
    pub latency_p99_ratio: f64,
    /// Seconds in stalls, at most, in every repeat.
    pub stall_s: f64,
}

/// What is set for the standby in one arm.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StandbyArm {
    /// Write operations a second its volume is held to.
    pub write_iops: Option<u64>,
    /// Bytes a second its volume is held to when writing.
    pub write_bytes_per_s: Option<Bytes>,
    /// Its settings in this arm.
    pub settings: BTreeMap<String, String>,
    /// Whether the primary keeps WAL for it in a slot, where other than in the scenario.
    pub slot: Option<bool>,
    /// What hinders it from replaying while the load runs.
    pub replay: Option<Hindrance>,
    /// How far it is from its primary: one way, in milliseconds. Not where both are joined by a network of their own.
    pub delay_ms: Option<f64>,
    /// It is down from the beginning of the load until the primary has removed WAL that it needs, and then comes back.
    pub away: bool,
    /// It comes back as the load begins, after so much WAL was made without it that has left the page cache of its primary.
    pub returns_after: Option<Bytes>,
    /// The share of one processor that its startup process is given.
    pub replay_processor: Option<f64>,
}

/// What hinders a standby from replaying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hindrance {
    /// Somebody has paused it.
    Paused,
    /// A query that reads what the primary has cleaned away.
    Conflicting,
}

/// What is set for the network in one arm.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkArm {
    /// Bytes a second each way.
    pub bytes_per_s: Option<Bytes>,
    /// Where: `ends` (each server's own way out) or `switch` (between them).
    pub at: Narrow,
}

/// What of the load is other than in the scenario. What is not named stays as it is there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadArm {
    /// Connections.
    pub clients: Option<usize>,
    /// Transactions a second asked for.
    pub rate_per_s: Option<f64>,
    /// As many transactions as the server takes, whatever rate the scenario asks for.
    pub closed_loop: bool,
    /// Seconds of load; the short form's own length goes before it.
    pub seconds: Option<f64>,
    /// Seconds of load in the short form, where other than its own.
    pub quick_seconds: Option<f64>,
    /// For `commit-batches`: what of them is other.
    pub batches: BatchesArm,
    /// For `wiredtiger`: what of its operations is other.
    pub engine: EngineArm,
    /// For `net-overload`: what runs beside the urgent query, and what is done about it.
    pub overload: OverloadArm,
}

/// What of a load of commits in batches is other than in the scenario.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchesArm {
    /// Rows in all.
    pub rows: Option<u64>,
    /// The most of them in the short form.
    pub quick_rows: Option<u64>,
    /// Rows of each transaction.
    pub rows_per_commit: Option<u64>,
    /// Where transactions are put together.
    pub side: Option<Side>,
}

/// What an arm must be diagnosed with. `rule` is a rule's name, `none` (no finding of warning or worse) or `any`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedFinding {
    /// The rule.
    pub rule: String,
    /// Its cause; any where it is left out.
    pub cause: Option<String>,
    /// It may be any of the arm's findings, not the first alone: a symptom is told below its reason.
    #[serde(default)]
    pub anywhere: bool,
    /// Only of an engine before this major version: what a later one does is shown, and nothing is expected of it.
    pub engine_before: Option<u32>,
}

impl ExpectedFinding {
    /// Whether findings are what was expected: the first of warning or worse, unless any will do.
    pub(crate) fn met_by(&self, findings: &[Finding]) -> bool {
        let is_it = |finding: &Finding| {
            finding.rule == self.rule && self.cause.as_ref().is_none_or(|cause| *cause == finding.cause)
        };
        let mut serious = findings.iter().filter(|finding| finding.severity >= Severity::Warning);
        match self.rule.as_str() {
            "any" => true,
            "none" => serious.next().is_none(),
            _ if self.anywhere => serious.any(is_it),
            _ => serious.next().is_some_and(is_it),
        }
    }
}

impl Default for ExpectedFinding {
    fn default() -> Self {
        ExpectedFinding { rule: "any".to_owned(), cause: None, anywhere: false, engine_before: None }
    }
}

/// What an arm needs of the host before it can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A volume of its own, with a cap or a dirty limit.
    Volume,
    /// A network that can be made narrow.
    Network,
    /// A bound on a process's share of a processor.
    Processor,
}

impl std::str::FromStr for DirtyLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "advised" => Ok(DirtyLimit::Advised),
            "system" => Ok(DirtyLimit::System),
            _ => text
                .parse()
                .map(DirtyLimit::Bytes)
                .map_err(|_| format!("'{text}' is no dirty limit: give a size such as 384MiB, 'advised' or 'system'")),
        }
    }
}

fn dirty_limit<'de, D: serde::Deserializer<'de>>(from: D) -> Result<DirtyLimit, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

impl Arm {
    /// What it needs of the host.
    pub fn needs(&self) -> Vec<Need> {
        let capped = [self.write_iops, self.standby.write_iops].iter().any(Option::is_some)
            || [self.write_bytes_per_s, self.standby.write_bytes_per_s].iter().any(Option::is_some)
            || [self.read_bytes_per_s, self.device_bytes_per_s].iter().any(Option::is_some);
        let volume = capped || self.dirty_limit != DirtyLimit::System;
        let network = self.network.bytes_per_s.is_some();
        let processor = self.standby.replay_processor.is_some();
        let needs = [(volume, Need::Volume), (network, Need::Network), (processor, Need::Processor)];
        needs.into_iter().filter(|(needed, _)| *needed).map(|(_, need)| need).collect()
    }

    /// What is expected of a run: where the limit is set on the host, a device's is to be named so, and of a later engine than the
    /// arm was made for nothing is expected.
    pub(crate) fn expected_of(&self, host_limit: bool, engine_major: Option<u32>) -> ExpectedFinding {
        let mut expected = self.expected.clone();
        if expected.engine_before.zip(engine_major).is_some_and(|(before, major)| major >= before) {
            return ExpectedFinding::default();
        }
        if host_limit && expected.cause.as_deref() == Some("device-limit") {
            expected.cause = Some("host-limit".to_owned());
        }
        expected
    }

    /// Whether it varies nothing but the load: no setting, no limit, nothing of a standby.
    pub fn is_plain(&self) -> bool {
        self.settings.is_empty()
            && self.standby.settings.is_empty()
            && self.standby.delay_ms.is_none()
            && self.needs().is_empty()
    }

    /// The load of this arm: the scenario's with what the arm has of its own, shortened where it is to be quick.
    pub fn load_of(&self, scenario: &Scenario, quick: Option<&QuickPart>) -> LoadPart {
        let mut part = scenario.load.clone();
        part.clients = self.load.clients.unwrap_or(part.clients);
        part.rate_per_s = if self.load.closed_loop { None } else { self.load.rate_per_s.or(part.rate_per_s) };
        part.seconds = self.load.seconds.unwrap_or(part.seconds);
        let (batches, own) = (&mut part.batches, &self.load.batches);
        batches.rows = own.rows.unwrap_or(batches.rows);
        batches.quick_rows = own.quick_rows.unwrap_or(batches.quick_rows);
        batches.rows_per_commit = own.rows_per_commit.unwrap_or(batches.rows_per_commit);
        batches.side = own.side.unwrap_or(batches.side);
        part.engine = self.load.engine.of(part.engine);
        part.overload = self.load.overload.of(part.overload);
        let batches = &mut part.batches;
        if let Some(quick) = quick {
            batches.rows = batches.rows.min(batches.quick_rows);
            part.seconds = self.load.quick_seconds.unwrap_or(quick.seconds);
            part.drain_limit_s = quick.drain_limit_s;
        }
        part
    }

    /// What is set for it, the dirty limit apart, in words for people.
    pub fn words(&self) -> Vec<String> {
        let cap = |whose: &str, iops: Option<u64>, rate: Option<Bytes>| {
            let iops = iops.map(|iops| format!("{whose}{iops} writes a second"));
            [iops, rate.map(|rate| format!("{whose}{rate} written a second"))]
        };
        let own = &self.standby;
        let replay = own.replay.map(|replay| match replay {
            Hindrance::Paused => "replay paused",
            Hindrance::Conflicting => "a query on the standby that replay conflicts with",
        });
        let away = own.away.then_some("the standby away until WAL that it needs is removed");
        let returns =
            own.returns_after.map(|made| format!("the standby back after {made} of WAL that must be read from disk"));
        let replay_cpu = own.replay_processor.map(|share| format!("{:.1} % of a processor for replay", share * 100.0));
        let slot = own.slot.map(|slot| if slot { "a slot for the standby" } else { "no slot for the standby" });
        let delay = own.delay_ms.map(|ms| format!("the standby {ms} ms away"));
        let clients = self
            .load
            .clients
            .map(|clients| if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") });
        let batches = self.load.batches;
        let batch = batches.rows_per_commit.map(|rows| format!("{rows} rows a commit"));
        let side = (batches.side == Some(Side::Client)).then(|| "from the client".to_owned());
        let closed = self.load.closed_loop.then(|| "as fast as the server answers".to_owned());
        let both = cap("", self.write_iops, self.write_bytes_per_s)
            .into_iter()
            .chain([self.read_bytes_per_s.map(|rate| format!("{rate} read a second"))])
            .chain([self.device_bytes_per_s.map(|rate| format!("a device that writes {rate} a second"))])
            .chain(cap("standby: ", own.write_iops, own.write_bytes_per_s))
            .chain([returns, replay_cpu])
            .chain([self.network.bytes_per_s.map(|rate| format!("network {rate} a second"))])
            .chain([(self.network.at == Narrow::Switch).then(|| "narrow beyond the server's host".to_owned())]);
        let setting = |whose: &'static str| move |(name, value): (&String, &String)| format!("{whose}{name} = {value}");
        both.flatten()
            .chain([replay, away, slot].into_iter().flatten().map(str::to_owned))
            .chain([delay, clients, closed, batch, side].into_iter().flatten())
            .chain(self.load.rate_per_s.map(|rate| format!("{rate} a second asked for")))
            .chain(self.load.engine.words())
            .chain(self.load.overload.words())
            .chain(self.settings.iter().map(setting("")))
            .chain(own.settings.iter().map(setting("standby: ")))
            .collect()
    }

    /// What was set, for the outcome's `params`.
    pub fn params(&self, dirty_limit_bytes: Option<u64>) -> BTreeMap<String, ParamValue> {
        let mut params = BTreeMap::new();
        let mut number = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                params.insert(name.to_owned(), ParamValue::Number(value));
            }
        };
        let rate = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 as f64);
        number("dirty_limit_bytes", dirty_limit_bytes.map(|bytes| bytes as f64));
        number("write_iops", self.write_iops.map(|iops| iops as f64));
        number("write_bytes_per_s", rate(self.write_bytes_per_s));
        number("read_bytes_per_s", rate(self.read_bytes_per_s));
        number("device_bytes_per_s", rate(self.device_bytes_per_s));
        number("standby_write_iops", self.standby.write_iops.map(|iops| iops as f64));
        number("standby_write_bytes_per_s", rate(self.standby.write_bytes_per_s));
        number("standby_returns_after_bytes", rate(self.standby.returns_after));
        number("standby_replay_processor", self.standby.replay_processor);
        number("standby_delay_ms", self.standby.delay_ms);
        number("network_bytes_per_s", rate(self.network.bytes_per_s));
        number("rate_per_s", self.load.rate_per_s);
        number("clients", self.load.clients.map(|clients| clients as f64));
        number("rows_per_commit", self.load.batches.rows_per_commit.map(|rows| rows as f64));
        let mut text = |name: String, value: &str| params.insert(name, ParamValue::Text(value.to_owned()));
        for (name, value) in &self.settings {
            text(name.clone(), value);
        }
        for (name, value) in &self.standby.settings {
            text(format!("standby {name}"), value);
        }
        if self.load.batches.side == Some(Side::Client) {
            text("side".to_owned(), "client");
        }
        for (name, value) in self.load.engine.params() {
            text(name.to_owned(), &value);
        }
        params.extend(self.load.overload.params().into_iter().map(|(name, value)| (name.to_owned(), value)));
        let mut text = |name: String, value: &str| params.insert(name, ParamValue::Text(value.to_owned()));
        match self.standby.replay {
            Some(Hindrance::Paused) => drop(text("standby replay".to_owned(), "paused")),
            Some(Hindrance::Conflicting) => drop(text("standby replay".to_owned(), "conflicting")),
            None => {}
        }
        if self.standby.away {
            text("standby".to_owned(), "away");
        }
        if self.network.at == Narrow::Switch {
            text("narrow".to_owned(), "switch");
        }
        params
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Confidence, Moment};

    fn finding(rule: &str, severity: Severity) -> Finding {
        Finding {
            rule: rule.to_owned(),
            cause: "a".to_owned(),
            severity,
            queue: "q".to_owned(),
            server: None,
            from: Moment(0),
            to: Moment(1),
            foreground_lost: None,
            summary: String::new(),
            evidence: Vec::new(),
            ruled_out: Vec::new(),
            unseen: Vec::new(),
            confidence: Confidence::High,
            victims: Vec::new(),
            remedies: Vec::new(),
        }
    }

    #[test]
    fn the_first_finding_counts_unless_any_will_do() {
        let expected = |rule: &str, cause: Option<&str>, anywhere| ExpectedFinding {
            rule: rule.to_owned(),
            cause: cause.map(str::to_owned),
            anywhere,
            ..ExpectedFinding::default()
        };
        let findings = [
            finding("hint", Severity::Info),
            finding("reason", Severity::Critical),
            finding("symptom", Severity::Warning),
        ];
        assert!(expected("reason", Some("a"), false).met_by(&findings));
        assert!(!expected("reason", Some("b"), false).met_by(&findings));
        assert!(!expected("symptom", None, false).met_by(&findings));
        assert!(expected("symptom", None, true).met_by(&findings));
        assert!(!expected("hint", None, true).met_by(&findings));
        assert!(!expected("none", None, false).met_by(&findings));
        assert!(expected("none", None, false).met_by(&findings[..1]));
        assert!(expected("any", None, false).met_by(&[]));
    }

    #[test]
    fn what_is_expected_depends_on_where_the_limit_is_and_on_the_engine() {
        let of = |text: &str| toml::from_str::<Arm>(text).unwrap();
        let limited = of("name = 'a'\nexpected = { rule = 'dirty-throttle', cause = 'device-limit' }");
        assert_eq!(limited.expected_of(false, None).cause.as_deref(), Some("device-limit"));
        assert_eq!(limited.expected_of(true, None).cause.as_deref(), Some("host-limit"));
        let pinned = of("name = 'b'\nexpected = { rule = 'history-pinned', engine_before = 10 }");
        assert_eq!(pinned.expected_of(false, Some(3)).rule, "history-pinned");
        assert_eq!(pinned.expected_of(false, None).rule, "history-pinned");
        assert_eq!(pinned.expected_of(false, Some(11)).rule, "any");
    }
}
