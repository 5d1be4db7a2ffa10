//! What operations on the WiredTiger engine do: of a scenario, and of one arm.

use serde::Deserialize;

/// What each operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// A document and an index entry at a random place, in one transaction.
    WriteHeavy,
    /// Documents that expire, while one thread deletes those that have.
    TtlDelete,
    /// Reads and rewrites of random documents.
    ReadMixed,
}

impl EngineKind {
    /// As the driver spells it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            EngineKind::WriteHeavy => "write-heavy",
            EngineKind::TtlDelete => "ttl-delete",
            EngineKind::ReadMixed => "read-mixed",
        }
    }
}

/// Operations on the engine.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnginePart {
    /// What each does.
    pub kind: EngineKind,
    /// Size of a document.
    pub document_bytes: u32,
    /// Documents put into the database before each load.
    pub documents: u64,
    /// When those expire, in seconds from the beginning of the load: scattered from the first to the second; none for never.
    pub expire_s: Option<[f64; 2]>,
    /// Of `read-mixed`: the share of reads.
    pub read_share: f64,
    /// Of `ttl-delete`: seconds between looks for what has expired.
    pub ttl_period_s: f64,
    /// A thread and a session made for each operation and ended after it, instead of a fixed pool.
    pub thread_per_operation: bool,
    /// A snapshot held open from the beginning of the load to its end: history is pinned.
    pub hold_snapshot: bool,
    /// As a member of a replica set has it: operations have timestamps and an oplog, which alone is journalled.
    pub replicated: bool,
    /// There: from when to when no majority confirms anything, in seconds from the beginning of the load.
    pub majority_stands_s: Option<[f64; 2]>,
    /// Whether an operation is done when the journal's sync covers it (`j: true`), not when its commit returns (`w: 1`).
    pub journalled: bool,
}

impl Default for EnginePart {
    fn default() -> Self {
        EnginePart {
            kind: EngineKind::WriteHeavy,
            document_bytes: 1_024,
            documents: 0,
            expire_s: None,
            read_share: 0.5,
            ttl_period_s: 1.0,
            thread_per_operation: false,
            hold_snapshot: false,
            replicated: false,
            majority_stands_s: None,
            journalled: true,
        }
    }
}

impl EnginePart {
    /// The first thing that is wrong with it.
    pub(super) fn check(&self) -> Result<(), (String, String, &'static str)> {
        let wrong = |field: &str, value: String, why| Err((format!("load.engine.{field}"), value, why));
        if !(1..=1 << 20).contains(&self.document_bytes) {
            return wrong("document_bytes", self.document_bytes.to_string(), "give 1 byte to 1 MiB");
        }
        if self.documents > 1_000_000_000 {
            return wrong("documents", self.documents.to_string(), "give at most 1000000000");
        }
        if self.kind == EngineKind::ReadMixed && self.documents == 0 {
            return wrong("documents", "0".to_owned(), "there must be documents to read");
        }
        if !(0.0..=1.0).contains(&self.read_share) {
            return wrong("read_share", self.read_share.to_string(), "give 0 to 1");
        }
        if !(0.01..=3_600.0).contains(&self.ttl_period_s) {
            return wrong("ttl_period_s", self.ttl_period_s.to_string(), "give 0.01 seconds to an hour");
        }
        for (field, between) in [("expire_s", self.expire_s), ("majority_stands_s", self.majority_stands_s)] {
            if let Some([from, to]) = between.filter(|[from, to]| !(0.0 <= *from && from <= to && *to <= 1e9)) {
                return wrong(field, format!("[{from}, {to}]"), "give two moments in order, at least 0");
            }
        }
        match self.majority_stands_s {
            Some([from, to]) if !self.replicated => {
                wrong("majority_stands_s", format!("[{from}, {to}]"), "there is no majority without replicated = true")
            }
            _ => Ok(()),
        }
    }
}

/// What of the operations is other in one arm. What is not named stays as it is in the scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineArm {
    /// What each does.
    pub kind: Option<EngineKind>,
    /// Documents put into the database before each load.
    pub documents: Option<u64>,
    /// When those expire.
    pub expire_s: Option<[f64; 2]>,
    /// A thread and a session for each operation.
    pub thread_per_operation: Option<bool>,
    /// A snapshot held open.
    pub hold_snapshot: Option<bool>,
    /// As a member of a replica set has it.
    pub replicated: Option<bool>,
    /// From when to when no majority confirms anything.
    pub majority_stands_s: Option<[f64; 2]>,
    /// Whether an operation waits for the journal.
    pub journalled: Option<bool>,
}

impl EngineArm {
    /// The arm's operations.
    pub(super) fn of(&self, part: EnginePart) -> EnginePart {
        EnginePart {
            kind: self.kind.unwrap_or(part.kind),
            documents: self.documents.unwrap_or(part.documents),
            expire_s: self.expire_s.or(part.expire_s),
            thread_per_operation: self.thread_per_operation.unwrap_or(part.thread_per_operation),
            hold_snapshot: self.hold_snapshot.unwrap_or(part.hold_snapshot),
            replicated: self.replicated.unwrap_or(part.replicated),
            majority_stands_s: self.majority_stands_s.or(part.majority_stands_s),
            journalled: self.journalled.unwrap_or(part.journalled),
            ..part
        }
    }

    /// In words for people.
    pub(super) fn words(&self) -> Vec<String> {
        let yes = |set: Option<bool>, words: &str| (set == Some(true)).then(|| words.to_owned());
        let expire = self
            .expire_s
            .zip(self.documents)
            .map(|([from, to], documents)| format!("{documents} documents expire from {from} s to {to} s"));
        let there = self.documents.filter(|_| expire.is_none());
        [
            self.kind.map(|kind| kind.word().to_owned()),
            there.map(|documents| format!("{documents} documents beforehand")),
            expire,
            yes(self.thread_per_operation, "a thread and session for each operation"),
            yes(self.hold_snapshot, "a snapshot held open throughout"),
            yes(self.replicated, "as in a replica set"),
            self.majority_stands_s.map(|[from, to]| format!("no majority confirms from {from} s to {to} s")),
            (self.journalled == Some(false)).then(|| "done when the commit returns".to_owned()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// For the outcome's `params`.
    pub(super) fn params(&self) -> Vec<(&'static str, String)> {
        let flag = |set: Option<bool>| set.map(|set| if set { "yes" } else { "no" }.to_owned());
        let all = [
            ("operations", self.kind.map(|kind| kind.word().to_owned())),
            ("documents", self.documents.map(|documents| documents.to_string())),
            ("expire_s", self.expire_s.map(|[from, to]| format!("{from} to {to}"))),
            ("thread per operation", flag(self.thread_per_operation)),
            ("snapshot held", flag(self.hold_snapshot)),
            ("replicated", flag(self.replicated)),
            ("majority_stands_s", self.majority_stands_s.map(|[from, to]| format!("{from} to {to}"))),
            ("journalled", flag(self.journalled)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn an_arm_changes_what_it_names_and_no_more() {
        let arm = EngineArm { hold_snapshot: Some(true), ..EngineArm::default() };
        let part = arm.of(EnginePart { documents: 7, ..EnginePart::default() });
        assert_eq!((part.documents, part.hold_snapshot, part.thread_per_operation), (7, true, false));
        assert_eq!(arm.words(), ["a snapshot held open throughout"]);
        assert_eq!(arm.params(), [("snapshot held", "yes".to_owned())]);
    }

    #[test]
    fn what_is_read_is_larger_than_the_cache_and_fits_the_volume_three_times() {
        let scenario = Scenario::load("wt-stall").unwrap();
        let size = scenario.disk.as_ref().unwrap().size.0;
        for name in ["read-mixed", "direct-read-mixed"] {
            let arm = scenario.arm(name).unwrap();
            let part = arm.load_of(&scenario, None).engine;
            let data = part.documents * u64::from(part.document_bytes);
            assert_eq!((part.kind, arm.settings["cache_size"].as_str()), (EngineKind::ReadMixed, "512MB"), "{name}");
            // Filling it takes its journal beside it, and checkpoints of what was there before.
            assert!(data > 2 * (512 << 20) && 3 * data < size, "{name}: {data} bytes on {size}");
        }
        let advised = scenario.arm("read-mixed-advised").unwrap();
        let read = scenario.arm("read-mixed").unwrap();
        assert_eq!(advised.load_of(&scenario, None), read.load_of(&scenario, None), "compared under one load");
        assert!(
            !read.settings.contains_key("direct_io")
                && read.words().contains(&"1200000 documents beforehand".to_owned())
        );
    }

    #[test]
    fn the_engine_has_its_own_load_and_its_own_advice() {
        let text = crate::scenario::BUILT_IN.iter().find(|(name, _)| *name == "wt-stall").unwrap().1;
        for (from, to, word) in [
            ("kind = \"wiredtiger\"", "kind = \"postgres\"", "go together"),
            ("dirty_limit = \"16MiB\"", "dirty_limit = \"advised\"", "advised_from alone"),
            ("advised_from = \"defaults\"", "advised_from = \"defalts\"", "advised_from = defalts"),
            ("advised_from = \"defaults\"", "advised_from = \"advised\"", "its own recording"),
            ("against = \"last-round\"", "against = \"lost-round\"", "no arm of this name"),
            ("kind = \"ttl-delete\"", "kind = \"read-mixed\", read_share = 2", "read_share"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Scenario::parse(&text.replacen(from, to, 1), "x.toml").unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
