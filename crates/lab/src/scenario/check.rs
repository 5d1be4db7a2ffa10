//! What keeps a scenario from being run as it stands, told with the field and what would do.

use super::{Arm, DirtyLimit, LoadKind, LoadPart, Scenario, ScenarioError, ServerKind};
use crate::limits::Narrow;
use std::collections::BTreeSet;

/// The name of a field, its value, and what is wrong with it.
pub(super) type Wrong = (String, String, &'static str);

impl Scenario {
    /// The first thing that is wrong with it.
    pub(super) fn check(&self, path: &str) -> Result<(), ScenarioError> {
        let wrong = |(field, value, why): Wrong| ScenarioError::Impossible { path: path.to_owned(), field, value, why };
        self.check_load().and_then(|()| self.check_run()).and_then(|()| self.check_arms()).map_err(wrong)
    }

    fn check_load(&self) -> Result<(), Wrong> {
        let LoadPart { kind, scale, clients, seconds, rate_per_s, storm, .. } = &self.load;
        let wrong = |part: &str, value: String, why| Err((format!("load.{part}"), value, why));
        if !(1..=1_000).contains(clients) {
            return wrong("clients", clients.to_string(), "give 1 to 1000 connections");
        }
        if *scale == Some(0) || (kind.needs_scale() && scale.is_none()) {
            return wrong("scale", scale.map_or("nothing".to_owned(), |scale| scale.to_string()), "give at least 1");
        }
        if !(10..=100).contains(&self.load.fillfactor) {
            return wrong("fillfactor", self.load.fillfactor.to_string(), "PostgreSQL takes 10 to 100");
        }
        if !(1.0..=86_400.0).contains(seconds) {
            return wrong("seconds", seconds.to_string(), "give 1 second to a day");
        }
        if rate_per_s.is_some_and(|rate| !(rate > 0.0 && rate <= 1e6)) {
            return wrong(
                "rate_per_s",
                rate_per_s.unwrap_or_default().to_string(),
                "give more than 0 and at most 1000000",
            );
        }
        self.check_engine()?;
        self.check_overload()?;
        if *kind == LoadKind::Script && self.load.script.is_none() {
            return wrong("kind", "script".into(), "name the SQL file as load.script");
        }
        if self.load.kind == LoadKind::CommitBatches && self.load.batches.rows == 0 {
            return wrong("batches.rows", "0".into(), "give at least 1");
        }
        let least_s = self.load.batches.least_s;
        if !(0.0..=MOST_LEAST_S).contains(&least_s) {
            return wrong("batches.least_s", least_s.to_string(), "give 0 to 600 seconds");
        }
        if !(1..=1_600).contains(&storm.columns) {
            return wrong("storm.columns", storm.columns.to_string(), "PostgreSQL takes 1 to 1600");
        }
        if !(0.0..=60_000.0).contains(&storm.pause_ms) {
            return wrong("storm.pause_ms", storm.pause_ms.to_string(), "give 0 milliseconds to a minute");
        }
        Ok(())
    }

    /// A load of the engine goes with its server, and with nothing that PostgreSQL alone has.
    fn check_engine(&self) -> Result<(), Wrong> {
        let wrong = |field: &str, value: &str, why| Err((field.to_owned(), value.to_owned(), why));
        let (server, load) = (self.server.kind == ServerKind::WiredTiger, self.load.kind == LoadKind::WiredTiger);
        if server != load {
            return wrong(
                "load.kind",
                "another engine's",
                "the load 'wiredtiger' and the server 'wiredtiger' go together",
            );
        }
        if !server {
            return Ok(());
        }
        if self.load.rate_per_s.is_none() || self.arms.iter().any(|arm| arm.load.closed_loop) {
            return wrong("load.rate_per_s", "nothing", "the engine's driver needs a rate");
        }
        let beneath = self.disk.as_ref().is_some_and(|disk| disk.beneath);
        if let Some(arm) = self.arms.iter().find(|arm| arm.read_bytes_per_s.is_some()) {
            let field = format!("arm '{}': read_bytes_per_s", arm.name);
            return Err((field, "set".to_owned(), "the engine's volume is held when writing alone"));
        }
        if self.standby.is_some() || self.network.is_some() || self.run.heartbeat || beneath {
            return wrong(
                "standby, network, run.heartbeat or disk.beneath",
                "set",
                "the engine alone has none of these",
            );
        }
        if self.arms.iter().any(|arm| arm.dirty_limit == DirtyLimit::Advised) {
            return wrong(
                "dirty_limit",
                "advised",
                "what is advised for the engine may be another setting: give advised_from alone",
            );
        }
        let engines = std::iter::once(&self.load.engine).map(|part| part.check());
        engines.chain(self.arms.iter().map(|arm| arm.load_of(self, None).engine.check())).collect::<Result<(), _>>()
    }

    /// Urgent and large results meet on a network of the lab's own, and nothing else is in it.
    fn check_overload(&self) -> Result<(), Wrong> {
        if self.load.kind != LoadKind::NetOverload {
            return Ok(());
        }
        let wrong = |field: &str, value: &str, why| Err((field.to_owned(), value.to_owned(), why));
        if self.network.is_none() {
            return wrong("network", "nothing", "the load 'net-overload' needs a [network] between server and clients");
        }
        if self.standby.is_some() {
            return wrong("standby", "set", "the clients of 'net-overload' are where a standby would be");
        }
        let parts = std::iter::once(self.load.overload.check());
        parts.chain(self.arms.iter().map(|arm| arm.load_of(self, None).overload.check())).collect()
    }

    fn check_run(&self) -> Result<(), Wrong> {
        let wrong = |field: &str, value: String, why| Err((field.to_owned(), value, why));
        if !(1.0..=86_400.0).contains(&self.quick.seconds) {
            return wrong("quick.seconds", self.quick.seconds.to_string(), "give 1 second to a day");
        }
        let waits = [
            ("load.warmup_s", self.load.warmup_s),
            ("load.drain_limit_s", self.load.drain_limit_s),
            ("quick.drain_limit_s", self.quick.drain_limit_s),
        ];
        if let Some((field, value)) = waits.into_iter().find(|(_, value)| !(0.0..=86_400.0).contains(value)) {
            return wrong(field, value.to_string(), "give 0 seconds to a day");
        }
        if !(0.1..=86_400.0).contains(&self.run.drain_target_s) {
            return wrong("run.drain_target_s", self.run.drain_target_s.to_string(), "give 0.1 seconds to a day");
        }
        if self.run.repeats == 0 || self.quick.repeats == 0 {
            return wrong("run.repeats", "0".into(), "an arm must run at least once");
        }
        let standby = self.standby.as_ref().and_then(|standby| standby.disk.as_ref());
        for (field, disk) in [("disk.fs", self.disk.as_ref()), ("standby.disk.fs", standby)] {
            if let Some(disk) = disk.filter(|disk| !matches!(disk.fs.as_str(), "ext4" | "xfs")) {
                return wrong(field, disk.fs.clone(), "the lab makes ext4 and xfs");
            }
        }
        Ok(())
    }

    fn check_arms(&self) -> Result<(), Wrong> {
        let mut names = BTreeSet::new();
        if self.arms.is_empty() {
            return Err(("arm".into(), "none".into(), "a scenario needs at least one [[arm]]"));
        }
        for arm in &self.arms {
            if !names.insert(arm.name.as_str()) {
                return Err((format!("arm '{}': name", arm.name), arm.name.clone(), "two arms have this name"));
            }
            self.check_limits(arm)?;
            check_expected(arm)?;
            self.check_parts(arm)?;
        }
        let accepted = self.acceptance.iter().map(|acceptance| &acceptance.arm);
        let repeated = self.arms.iter().flat_map(|arm| arm.same_as.iter().chain(&arm.beside));
        let mut named = self.quick.arms.iter().chain(accepted).chain(repeated);
        if let Some(name) = named.find(|name| !names.contains(name.as_str())) {
            let field = "quick.arms, acceptance.arm, same_as or beside".into();
            return Err((field, name.clone(), "there is no arm of this name"));
        }
        if let Some(arm) = self.arms.iter().find(|arm| arm.beside.as_ref() == Some(&arm.name)) {
            let field = format!("arm '{}': beside", arm.name);
            return Err((field, arm.name.clone(), "an arm is compared with another one"));
        }
        self.search.as_ref().map_or(Ok(()), |search| search.check(self))
    }

    fn check_limits(&self, arm: &Arm) -> Result<(), Wrong> {
        let wrong = |part: &str, value: String, why| Err((format!("arm '{}': {part}", arm.name), value, why));
        let size = self.disk.as_ref().map_or(0, |disk| disk.size.0);
        if let DirtyLimit::Bytes(limit) = arm.dirty_limit
            && (limit.0 < 16 << 20 || limit.0 > size)
        {
            return wrong("dirty_limit", limit.to_string(), "give at least 16 MiB and at most the disk's size");
        }
        for (part, iops) in [("write_iops", arm.write_iops), ("standby.write_iops", arm.standby.write_iops)] {
            if let Some(iops) = iops.filter(|iops| *iops < 10) {
                return wrong(part, iops.to_string(), "fewer than 10 a second would stop the server");
            }
        }
        let bytes = [
            ("write_bytes_per_s", arm.write_bytes_per_s),
            ("standby.write_bytes_per_s", arm.standby.write_bytes_per_s),
            ("read_bytes_per_s", arm.read_bytes_per_s),
            ("device_bytes_per_s", arm.device_bytes_per_s),
        ];
        for (part, rate) in bytes {
            if let Some(rate) = rate.filter(|rate| rate.0 < LEAST_BYTES_PER_S) {
                return wrong(part, rate.to_string(), "less than 64 KiB a second would stop the server");
            }
        }
        if let Some(share) = arm.standby.replay_processor.filter(|share| !(0.01..=1.0).contains(share)) {
            return wrong("standby.replay_processor", share.to_string(), "give 0.01 to 1 of a processor");
        }
        if let Some(made) = arm.standby.returns_after.filter(|made| made.0 > size / 2) {
            return wrong("standby.returns_after", made.to_string(), "give at most half of the disk's size");
        }
        self.check_advised(arm)
    }

    fn check_advised(&self, arm: &Arm) -> Result<(), Wrong> {
        let wrong = |part: &str, value: &str, why| Err((format!("arm '{}': {part}", arm.name), value.to_owned(), why));
        let (source, advised) = (arm.advised_from.as_deref(), arm.dirty_limit == DirtyLimit::Advised);
        let known = source.is_some_and(|name| self.arm(name).is_some());
        if (advised || source.is_some()) && !known {
            let value = source.unwrap_or("nothing");
            return wrong("advised_from", value, "name the arm whose recording the advice is made from");
        }
        if source.is_some() && !advised && self.server.kind == ServerKind::Postgres {
            return wrong("dirty_limit", "not advised", "what advised_from leads to is dirty_limit = \"advised\"");
        }
        if self.sources(arm).any(|source| source.name == arm.name) {
            return wrong(
                "advised_from",
                source.unwrap_or_default(),
                "an arm cannot be advised from its own recording",
            );
        }
        match &arm.aim {
            Some(aim) if self.arm(&aim.against).is_none() => {
                wrong("aim.against", &aim.against, "there is no arm of this name")
            }
            Some(aim) if !(aim.latency_p99_ratio > 0.0 && aim.stall_s >= 0.0) => {
                wrong("aim", &aim.latency_p99_ratio.to_string(), "give a ratio over 0, and 0 seconds or more")
            }
            _ => Ok(()),
        }
    }

    /// What an arm says of something that the scenario does not have would silently do nothing.
    fn check_parts(&self, arm: &Arm) -> Result<(), Wrong> {
        let wrong = |part: &str, value: &str, why| Err((format!("arm '{}': {part}", arm.name), value.to_owned(), why));
        let own = &arm.standby;
        let capped = own.write_iops.is_some() || own.write_bytes_per_s.is_some();
        let says = capped || own.slot.is_some() || own.replay.is_some() || own.away || !own.settings.is_empty();
        let says = says || own.delay_ms.is_some() || own.returns_after.is_some() || own.replay_processor.is_some();
        if says && self.standby.is_none() {
            return wrong("standby", "set", "the scenario has no [standby]");
        }
        if capped && self.standby.as_ref().is_some_and(|standby| standby.disk.is_none()) {
            return wrong("standby.write_iops", "set", "the standby has no volume of its own: give standby.disk");
        }
        let held =
            [arm.write_bytes_per_s, arm.read_bytes_per_s].iter().any(Option::is_some) || arm.write_iops.is_some();
        if held && self.disk.is_none() {
            return wrong("write_iops", "set", "the server has no volume of its own: give [disk]");
        }
        if arm.device_bytes_per_s.is_some() && !self.disk.as_ref().is_some_and(|disk| disk.beneath) {
            return wrong(
                "device_bytes_per_s",
                "set",
                "nothing lies beneath the server's volume: give disk.beneath = true",
            );
        }
        if let Some(delay_ms) = own.delay_ms {
            if !(0.0..=10_000.0).contains(&delay_ms) {
                return wrong("standby.delay_ms", &delay_ms.to_string(), "give 0 milliseconds to 10 seconds");
            }
            if self.network.is_some() {
                return wrong(
                    "standby.delay_ms",
                    &delay_ms.to_string(),
                    "servers in a [network] are joined by that alone",
                );
            }
        }
        self.check_hindrances(arm)?;
        if arm.network.bytes_per_s.is_some() && self.network.is_none() {
            return wrong("network", "set", "the scenario has no [network]");
        }
        if arm.network.at == Narrow::Switch && !self.network.as_ref().is_some_and(|network| network.switch) {
            return wrong("network.at", "switch", "the scenario's [network] has none: give network.switch = true");
        }
        Ok(())
    }
}

impl Scenario {
    /// What hinders a standby and would be undone, or made worse, by something else of the same arm.
    fn check_hindrances(&self, arm: &Arm) -> Result<(), Wrong> {
        let wrong = |part: &str, why| Err((format!("arm '{}': standby.{part}", arm.name), "set".to_owned(), why));
        let own = &arm.standby;
        let capped = own.write_iops.is_some() || own.write_bytes_per_s.is_some();
        let restarts = own.away || own.returns_after.is_some();
        if own.replay_processor.is_some() && (restarts || capped) {
            let why = "a process that is started anew, or held by a cap, is in another group: give one of them";
            return wrong("replay_processor", why);
        }
        if own.returns_after.is_some() && (own.away || own.replay.is_some()) {
            return wrong("returns_after", "it is started anew, which ends what else hinders it: give one of them");
        }
        let slot = own.slot.or(self.standby.as_ref().map(|standby| standby.slot));
        if own.returns_after.is_some() && slot != Some(true) {
            return wrong("returns_after", "without a slot what it comes back for may be removed");
        }
        Ok(())
    }
}

/// The longest that rows are inserted again and again.
const MOST_LEAST_S: f64 = 600.0;
/// A server that writes less than this does nothing else than wait.
const LEAST_BYTES_PER_S: u64 = 64 << 10;

/// A rule that does not exist could never be found, which a run would tell only at its end.
fn check_expected(arm: &Arm) -> Result<(), Wrong> {
    let rule = arm.expected.rule.as_str();
    if matches!(rule, "any" | "none") || backwater_diagnose::RULES.iter().any(|known| known.name == rule) {
        return Ok(());
    }
    let why = "there is no such rule; `backwater diagnose --explain x` lists them, 'none' and 'any' will do too";
    Err((format!("arm '{}': expected.rule", arm.name), rule.to_owned(), why))
}
