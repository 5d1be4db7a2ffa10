//! Settings of the engine as exact lines for the release of the server or of the engine by itself. What no setting of it reaches is in
//! [`mongod`](super::mongod).
//!
//! Sources: MongoDB's manual (wiredTigerEngineRuntimeConfig, storage.syncPeriodSecs), WiredTiger's `api_data.py` (limits in bytes
//! since 3.1, which MongoDB 4.2 brought).

use backwater_model::{Activation, Figure, Remedy, Target};

/// Since here limits of eviction may be told in bytes; before, in whole percents alone. MongoDB's releases, and the engine's.
const BYTES_SINCE: i32 = 40_200;
const ENGINE_BYTES_SINCE: i32 = 30_100;
/// Up to here data files can pass by the page cache (WT-12501 took it out of the engine after 11.2).
const DIRECT_IO_BEFORE: i32 = 80_000;
const ENGINE_DIRECT_IO_BEFORE: i32 = 110_300;
const CONFIG_STRING: &str = "storage.wiredTiger.engineConfig.configString";
const RUNTIME_CONFIG: &str = "setParameter.wiredTigerEngineRuntimeConfig";
pub(super) const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;

/// The release of the server, or of the engine by itself; none where it is not known.
pub(super) fn version(target: Option<&Target>) -> Option<i32> {
    target.and_then(|target| target.version_num)
}

/// Whether the release is known, and this one or a later.
pub(super) fn known_since(target: Option<&Target>, since: i32) -> bool {
    version(target).is_some_and(|version| version >= since)
}

/// Whether the release is known, and older than this one.
pub(super) fn known_before(target: Option<&Target>, before: i32) -> bool {
    version(target).is_some_and(|version| version < before)
}

pub(super) fn setting<'t>(target: Option<&'t Target>, name: &str) -> Option<&'t str> {
    target.and_then(|target| target.settings.get(name)).map(String::as_str).filter(|value| !value.is_empty())
}

/// Whether the engine runs by itself, under a program that is no MongoDB.
pub(super) fn bare(target: Option<&Target>) -> bool {
    target.is_some_and(|target| target.kind == "wiredtiger")
}

/// A share of the cache as this release's engine takes it: in bytes, or in whole percents, at least one, which every release takes.
pub(crate) fn level(target: Option<&Target>, bytes: f64, cache_bytes: f64) -> (String, f64) {
    if known_since(target, if bare(target) { ENGINE_BYTES_SINCE } else { BYTES_SINCE }) {
        let mib = (bytes / MIB).floor().max(1.0);
        return (format!("{mib:.0}MB"), mib * MIB);
    }
    let percent = (bytes / cache_bytes * 100.0).floor().clamp(1.0, 99.0);
    (format!("{percent:.0}"), percent / 100.0 * cache_bytes)
}

/// A change of the engine's own configuration: each name with its value, and the value that takes it back.
pub(crate) fn engine(
    target: Option<&Target>,
    title: String,
    changes: &[(&str, String, String)],
    predicted: Vec<Figure>,
    risk: &str,
) -> Remedy {
    let text = |value: fn(&(&str, String, String)) -> String| {
        changes.iter().map(|change| format!("{}={}", change.0, value(change))).collect::<Vec<_>>().join(",")
    };
    let (set, back) = (text(|change| change.1.clone()), text(|change| change.2.clone()));
    let run = |config: &str| {
        if bare(target) {
            format!("connection->reconfigure(connection, \"{config}\")")
        } else {
            format!("db.adminCommand({{setParameter: 1, wiredTigerEngineRuntimeConfig: \"{config}\"}})")
        }
    };
    // What stands there already stays. A server tells only the last of the configurations that it was given while it runs, though all
    // of them hold: one that leaves out the others hides them.
    // What is set anew is left out of it, but for what holds others in brackets: of those only what is told again is.
    let anew = |part: &str| {
        part.split_once('=').is_some_and(|(name, value)| {
            !value.starts_with('(') && changes.iter().any(|change| change.0 == name.trim())
        })
    };
    let after = |name: &str, change: &str| {
        let before = parts(setting(target, name).unwrap_or_default());
        before.into_iter().filter(|part| !anew(part)).chain([change]).collect::<Vec<_>>().join(",")
    };
    let whole = after(CONFIG_STRING, &set);
    let persistent = if bare(target) {
        format!("wiredtiger_open(…, \"…,{set}\")")
    } else {
        format!("mongod.conf:  storage: {{wiredTiger: {{engineConfig: {{configString: \"{whole}\"}}}}}}")
    };
    Remedy {
        title,
        runtime: vec![run(&after(RUNTIME_CONFIG, &set))],
        persistent: vec![persistent],
        activation: Activation::Immediate,
        undo: vec![run(&after(RUNTIME_CONFIG, &back))],
        predicted,
        risk: risk.to_owned(),
    }
}

/// The settings of a configuration, each with its value, which may hold others in brackets.
fn parts(config: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let ends = |c: char| {
        depth += match c {
            '(' | '[' => 1,
            ')' | ']' => -1,
            _ => 0,
        };
        c == ',' && depth <= 0
    };
    config.split(ends).filter(|part| !part.trim().is_empty()).collect()
}

/// What checkpoints closer together relieve and risk, and what farther apart.
const CLOSER: [&str; 2] = [
    "what a checkpoint brings at once",
    "Pages that are changed again and again are written once in each checkpoint: the disk writes more in all. Recovery after a crash \
     becomes shorter.",
];
const FARTHER: [&str; 2] = [
    "the disk, which comes to rest in between",
    "More is written in one checkpoint, though less in all where the same pages are changed again and again. Recovery after a crash \
     takes longer, and more of the journal is kept for it. Where checkpoints grow with their pause, it takes a faster disk or fewer \
     writes.",
];

/// mongod's own syncdelay, and how far from it a pause that was seen may lie.
const SYNC_DELAY_S: f64 = 60.0;
const ABOUT_S: f64 = 5.0;

/// Checkpoints every so many seconds.
pub(crate) fn sync_period(target: Option<&Target>, seconds: f64, now_s: f64, predicted: Vec<Figure>) -> Remedy {
    let run = |seconds: f64| {
        if bare(target) {
            format!("session->checkpoint() every {seconds:.0} s")
        } else {
            format!("db.adminCommand({{setParameter: 1, syncdelay: {seconds:.0}}})")
        }
    };
    // What is set while it runs wins.
    let set = setting(target, "setParameter.syncdelay").or(setting(target, "storage.syncPeriodSecs"));
    // Where nothing is set it is the default, unless something else was seen.
    let default = !bare(target) && (now_s - SYNC_DELAY_S).abs() <= ABOUT_S;
    let seen = if default { SYNC_DELAY_S } else { now_s.round().max(1.0) };
    let before = set.and_then(|text| text.parse::<f64>().ok()).unwrap_or(seen);
    let [relieves, risk] = if seconds > before { FARTHER } else { CLOSER };
    Remedy {
        title: format!("Begin a checkpoint {seconds:.0} s after the last, not {before:.0} s (relieves {relieves})"),
        runtime: vec![run(seconds)],
        persistent: vec![if bare(target) {
            format!("wiredtiger_open(…, \"…,checkpoint=(wait={seconds:.0})\")")
        } else {
            format!("mongod.conf:  storage: {{syncPeriodSecs: {seconds:.0}}}")
        }],
        activation: Activation::Immediate,
        undo: vec![run(before)],
        predicted,
        risk: format!(
            "{risk} mongod has a thread of its own for checkpoints: the engine's checkpoint=(wait=…) is not the way there."
        ),
    }
}

/// The engine's own setting for a checkpoint each so many seconds; what else is set of checkpoints stays.
pub(crate) fn checkpoint_setting(target: Option<&Target>, seconds: f64) -> String {
    let now = setting(target, "checkpoint").unwrap_or_default();
    let others =
        now.trim_matches(['(', ')']).split(',').filter(|part| !part.is_empty() && !part.trim().starts_with("wait="));
    let parts: Vec<String> = std::iter::once(format!("wait={seconds:.0}")).chain(others.map(str::to_owned)).collect();
    format!("({})", parts.join(","))
}

/// A size as the engine takes it.
pub(crate) fn mebibytes(bytes: f64) -> String {
    format!("{:.0}MB", (bytes / MIB).floor())
}

/// A cache that keeps what it would have to read back, and has room for what stands.
pub(crate) fn larger_cache(target: Option<&Target>, bytes: f64, now_bytes: f64, predicted: Vec<Figure>) -> Remedy {
    let mut remedy = cache_size(target, bytes, now_bytes, predicted);
    remedy.title = format!(
        "Let the cache take {} instead of {} (relieves the cache's dirty pages, for which it is too small)",
        mebibytes(bytes),
        mebibytes(now_bytes)
    );
    remedy.risk =
        "The page cache and other programs lose that memory. Limits that are shares of the cache grow with it: a \
                   checkpoint may bring more at once."
            .to_owned();
    remedy
}

/// A smaller cache.
pub(crate) fn cache_size(target: Option<&Target>, bytes: f64, now_bytes: f64, predicted: Vec<Figure>) -> Remedy {
    let mib = mebibytes;
    let changes = [("cache_size", mib(bytes), mib(now_bytes))];
    let title = format!("Let the cache take {} instead of {} (relieves the page cache)", mib(bytes), mib(now_bytes));
    let risk = "What no longer fits is read again: from the page cache as long as it is there, else from the disk. Until the cache has \
                shrunk, application threads may evict.";
    let mut remedy = engine(target, title, &changes, predicted, risk);
    if !bare(target) {
        let gib = bytes / GIB;
        remedy.persistent =
            vec![format!("mongod.conf:  storage: {{wiredTiger: {{engineConfig: {{cacheSizeGB: {gib:.2}}}}}}}")];
    }
    remedy
}

/// Whether this release is known to let no data files pass by the page cache any more.
pub(crate) fn direct_io_is_gone(target: Option<&Target>) -> bool {
    known_since(target, if bare(target) { ENGINE_DIRECT_IO_BEFORE } else { DIRECT_IO_BEFORE })
}

/// Data files that pass by the page cache; none where this release is not known to let them, or they do already.
pub(crate) fn direct_io(target: Option<&Target>, predicted: Vec<Figure>) -> Option<Remedy> {
    let before = if bare(target) { ENGINE_DIRECT_IO_BEFORE } else { DIRECT_IO_BEFORE };
    let configured = setting(target, CONFIG_STRING).unwrap_or_default();
    let already =
        setting(target, "direct_io").is_some_and(|files| files.contains("data")) || configured.contains("direct_io");
    if !known_before(target, before) || already {
        return None;
    }
    let set = "direct_io=[data]";
    let whole = if configured.is_empty() { set.to_owned() } else { format!("{configured},{set}") };
    let conf = |text: &str| {
        format!(
            "mongod.conf:  storage: {{wiredTiger: {{engineConfig: {{configString: \"{text}\"}}}}}}   # then restart"
        )
    };
    let (persistent, undo) = if bare(target) {
        (format!("wiredtiger_open(…, \"…,{set}\")"), format!("wiredtiger_open(…) without {set}"))
    } else {
        (conf(&whole), conf(configured))
    };
    Some(Remedy {
        title: "Let data files pass by the page cache (relieves it: a checkpoint's sync then finds nothing to write before the \
                journal)"
            .to_owned(),
        runtime: Vec::new(),
        persistent: vec![persistent],
        activation: Activation::Restart,
        undo: vec![undo],
        predicted,
        risk: "What the cache does not hold is read from the disk each time: it pays only while hardly anything is read back. The \
               engine's manual warns that whoever writes a page waits for it, so where application threads evict they wait longer; \
               and files must not be copied through the page cache for a backup meanwhile. Try it on a secondary first. It is gone \
               from MongoDB 8.0 and newer."
            .to_owned(),
    })
}

/// How large a page may become in memory (memory_page_max): as MongoDB makes collections, or as an engine by itself is told to, whose own
/// default is 5 MB.
pub(crate) fn page_in_memory_bytes(target: Option<&Target>) -> f64 {
    let told = setting(target, "memory_page_max").and_then(|text| text.to_lowercase().strip_suffix('m')?.parse().ok());
    told.unwrap_or(if bare(target) { 5.0 } else { 10.0 }) * MIB
}

/// The least and the most eviction threads, as set, or as MongoDB and the engine have them by themselves; none where what is set
/// cannot be read.
pub(crate) fn eviction_threads(target: Option<&Target>) -> Option<[u32; 2]> {
    // What is set while it runs wins.
    let texts = if bare(target) { ["eviction", ""] } else { [CONFIG_STRING, RUNTIME_CONFIG] };
    let own = if bare(target) { [1, 8] } else { [4, 4] };
    let last = |name: &str| texts.iter().rev().find_map(|text| setting(target, text)?.rsplit_once(name));
    let read = |name: &str, unset: u32| match last(name) {
        Some((_, rest)) => rest.split([',', ')']).next()?.trim().parse().ok(),
        None => Some(unset),
    };
    Some([read("threads_min=", own[0])?, read("threads_max=", own[1])?])
}

/// Fewer eviction threads.
pub(crate) fn fewer_threads(target: Option<&Target>, threads: f64, value: String, predicted: Vec<Figure>) -> Remedy {
    let [least, now] = eviction_threads(target).unwrap_or_default();
    let back = format!("(threads_min={least},threads_max={now})");
    let title = format!(
        "Evict with at most {threads:.0} threads instead of {now} (relieves pages that are waited for while they are evicted)"
    );
    let risk = "It is the disk that bounds how much is evicted, and it does not write more for more threads. Where something else \
                bounds it (compression, a faster disk), fewer threads evict less: see that application threads do not begin to.";
    engine(target, title, &[("eviction", value, back)], predicted, risk)
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A MongoDB server of this release with these settings.
    pub(in crate::remedy) fn target(version_num: i32, settings: &[(&str, &str)]) -> Target {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Target { kind: "mongodb".to_owned(), version_num: Some(version_num), settings, ..Target::default() }
    }

    #[test]
    fn a_level_is_told_as_the_release_takes_it() {
        let (old, new) = (target(30_623, &[]), target(70_012, &[]));
        assert_eq!(level(Some(&new), 300.5 * MIB, 10.0 * GIB), ("300MB".to_owned(), 300.0 * MIB));
        assert_eq!(level(Some(&old), 307.2 * MIB, 10.0 * GIB).0, "3");
        assert_eq!(level(Some(&old), 1.0 * MIB, 10.0 * GIB).0, "1", "no less than a percent");
        let engine = Target { kind: "wiredtiger".to_owned(), ..target(30_201, &[]) };
        assert_eq!(level(Some(&engine), 20.0 * MIB, GIB).0, "20MB", "the engine's own release");
        for kind in ["mongodb", "wiredtiger"] {
            let unknown = Target { kind: kind.to_owned(), ..Target::default() };
            assert_eq!(level(Some(&unknown), 307.2 * MIB, 10.0 * GIB).0, "3", "{kind}: what every release takes");
        }
    }

    #[test]
    fn data_files_pass_by_the_page_cache_where_the_release_can() {
        let set = target(70_012, &[(CONFIG_STRING, "eviction=(threads_min=8)")]);
        let remedy = direct_io(Some(&set), Vec::new()).unwrap();
        assert!(remedy.persistent[0].contains("configString: \"eviction=(threads_min=8),direct_io=[data]\""));
        assert!(remedy.undo[0].contains("configString: \"eviction=(threads_min=8)\"") && remedy.runtime.is_empty());
        assert_eq!(direct_io(Some(&target(80_000, &[])), Vec::new()), None, "taken out");
        assert!(
            direct_io_is_gone(Some(&target(80_000, &[]))) && !direct_io_is_gone(Some(&set)) && !direct_io_is_gone(None)
        );
        assert_eq!(direct_io(None, Vec::new()), None, "which release it is, is not known");
        assert_eq!(direct_io(Some(&target(70_012, &[(CONFIG_STRING, "direct_io=[data]")])), Vec::new()), None);
        let engine = |direct| Target { kind: "wiredtiger".to_owned(), ..target(30_201, &[("direct_io", direct)]) };
        assert!(direct_io(Some(&engine("[]")), Vec::new()).is_some());
        assert_eq!(direct_io(Some(&engine("[data]")), Vec::new()), None);
    }

    #[test]
    fn eviction_threads_are_as_set_or_as_the_release_has_them() {
        let engine = |set| Target { kind: "wiredtiger".to_owned(), ..target(30_201, set) };
        assert_eq!(eviction_threads(Some(&engine(&[("eviction", "(threads_min=14,threads_max=18)")]))), Some([14, 18]));
        assert_eq!(eviction_threads(Some(&engine(&[]))), Some([1, 8]));
        assert_eq!(eviction_threads(Some(&target(70_012, &[]))), Some([4, 4]));
        let set = target(70_012, &[(CONFIG_STRING, "eviction=(threads_max=12,threads_min=8),x=1")]);
        assert_eq!(eviction_threads(Some(&set)), Some([8, 12]));
        let while_it_runs = (RUNTIME_CONFIG, "eviction=(threads_min=14,threads_max=18)");
        let running = target(70_012, &[(CONFIG_STRING, "eviction=(threads_max=12)"), while_it_runs]);
        assert_eq!(eviction_threads(Some(&running)), Some([14, 18]), "what is set while it runs wins");
        let fewer = fewer_threads(Some(&set), 2.0, "(threads_min=1,threads_max=2)".to_owned(), Vec::new());
        assert!(
            fewer.title.contains("at most 2 threads instead of 12")
                && fewer.undo[0].contains("eviction=(threads_min=8,threads_max=12)")
        );
    }

    #[test]
    fn a_page_is_as_large_as_the_engine_was_told() {
        let engine = |set| Target { kind: "wiredtiger".to_owned(), ..target(30_201, set) };
        let mib = |target: &Target| page_in_memory_bytes(Some(target)) / MIB;
        assert_eq!(mib(&engine(&[])), 5.0);
        assert_eq!((mib(&engine(&[("memory_page_max", "10m")])), mib(&target(70_012, &[]))), (10.0, 10.0));
    }

    #[test]
    fn what_is_configured_stays_and_the_way_back_is_told() {
        let known = target(70_012, &[(CONFIG_STRING, "eviction=(threads_min=8)")]);
        let changes = [("eviction_dirty_target", "300MB".to_owned(), "5".to_owned())];
        let remedy = engine(Some(&known), "t".to_owned(), &changes, Vec::new(), "r");
        let run = "db.adminCommand({setParameter: 1, wiredTigerEngineRuntimeConfig: \"eviction_dirty_target=300MB\"})";
        assert_eq!(remedy.runtime, [run]);
        assert!(
            remedy.persistent[0].contains("configString: \"eviction=(threads_min=8),eviction_dirty_target=300MB\"")
        );
        assert!(remedy.undo[0].contains("eviction_dirty_target=5"));
        // The second step of two: what the first one set stays, and what is set anew is told once.
        let changed = |config| target(70_012, &[(RUNTIME_CONFIG, config)]);
        let second = engine(
            Some(&changed("eviction=(threads_min=1,threads_max=2), eviction_dirty_target=4")),
            "t".to_owned(),
            &changes,
            Vec::new(),
            "r",
        );
        assert!(
            second.runtime[0].contains("\"eviction=(threads_min=1,threads_max=2),eviction_dirty_target=300MB\""),
            "{second:?}"
        );
        assert!(
            second.undo[0].contains("\"eviction=(threads_min=1,threads_max=2),eviction_dirty_target=5\""),
            "{second:?}"
        );
        let alone = Target { kind: "wiredtiger".to_owned(), ..Target::default() };
        assert!(engine(Some(&alone), "t".to_owned(), &changes, Vec::new(), "r").runtime[0].starts_with("connection->"));
    }

    #[test]
    fn what_else_is_set_of_checkpoints_stays() {
        let set = |text: &str| checkpoint_setting(Some(&target(30_201, &[("checkpoint", text)])), 5.0);
        assert_eq!(set("(wait=12,log_size=2GB)"), "(wait=5,log_size=2GB)");
        assert_eq!((set(""), set("(wait=60)")), ("(wait=5)".to_owned(), "(wait=5)".to_owned()));
    }

    #[test]
    fn the_interval_before_is_the_configured_one() {
        let set = target(70_012, &[("storage.syncPeriodSecs", "90")]);
        let remedy = sync_period(Some(&set), 20.0, 64.0, Vec::new());
        assert_eq!(remedy.undo, ["db.adminCommand({setParameter: 1, syncdelay: 90})"]);
        assert!(remedy.title.contains("20 s after the last, not 90 s"));
        let farther = sync_period(Some(&set), 200.0, 64.0, Vec::new());
        assert!(remedy.risk.contains("becomes shorter") && farther.risk.contains("takes longer"));
    }
}
