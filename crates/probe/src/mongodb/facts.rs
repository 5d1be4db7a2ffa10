//! What a server says of itself and of its host: buildInfo, getCmdLineOpts and hostInfo, live or from the flight
//! recorder's metadata.

use backwater_model::{Device, HostFacts, Role, Target};
use ftdc::Element;
use std::collections::BTreeMap;

/// Where documents are found: by the name of the command and the keys below it.
pub(crate) trait Told {
    /// The element at this path; its first part is the command.
    fn find(&self, path: &[&str]) -> Option<Element<'_>>;

    /// The text at this path.
    fn text(&self, path: &[&str]) -> Option<String> {
        self.find(path)?.text().map(|text| text.into_owned())
    }
}

impl Told for ftdc::Metadata {
    fn find(&self, path: &[&str]) -> Option<Element<'_>> {
        ftdc::Metadata::find(self, path)
    }
}

/// Something that a server, or its user's rights, keep from being told.
#[derive(Clone, Debug)]
pub(crate) struct Unseen {
    pub(crate) what: &'static str,
    pub(crate) why: String,
    pub(crate) remedy: Option<String>,
}

/// Sections of the configuration that rules and advice read; nothing of `security`.
const SECTIONS: [&str; 6] = ["storage.", "replication.", "sharding.", "setParameter.", "operationProfiling.", "net."];
const DEFAULT_PORT: i64 = 27_017;
/// Where mongod keeps its data unless it is told otherwise (storage.dbPath).
pub(crate) const DATA_DIRECTORY: &str = "/data/db";

/// The server as a target.
pub(crate) fn target(told: &impl Told, name: Option<&str>) -> Target {
    let settings = settings(told);
    let host = told.text(&["hostInfo", "system", "hostname"]).unwrap_or_else(|| "mongod".to_owned());
    let port = settings.get("net.port").and_then(|port| port.parse().ok()).unwrap_or(DEFAULT_PORT);
    let own = if host.contains(':') { host } else { format!("{host}:{port}") };
    Target {
        name: name.map_or(own, str::to_owned),
        kind: "mongodb".to_owned(),
        version_num: told.text(&["buildInfo", "version"]).and_then(|version| version_num(&version)),
        data_directory: settings.get("storage.dbPath").cloned(),
        settings,
        ..Target::default()
    }
}

/// 7.0.12 as 70012; what follows the third number is passed over.
pub(crate) fn version_num(version: &str) -> Option<i32> {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<i32>().ok().filter(|n| (0..1_000).contains(n)));
    let (major, minor) = (parts.next()??, parts.next()??);
    Some(major * 10_000 + minor.min(99) * 100 + parts.next().flatten().unwrap_or(0).min(99))
}

/// Parameters that can be changed while the server runs, of those that rules and advice read.
pub(crate) const PARAMETERS: [&str; 10] = [
    "wiredTigerEngineRuntimeConfig",
    "syncdelay",
    "ttlMonitorEnabled",
    "ttlMonitorSleepSecs",
    "enableMajorityReadConcern",
    "enableFlowControl",
    "flowControlTargetLagSeconds",
    "wiredTigerConcurrentReadTransactions",
    "wiredTigerConcurrentWriteTransactions",
    "storageEngineConcurrentWriteTransactions",
];

/// The configuration in force when the server was started, by its dotted names; and parameters as they are now, where they are
/// told beside it, as flight recorders of newer releases do.
fn settings(told: &impl Told) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    if let Some(parsed) = told.find(&["getCmdLineOpts", "parsed"]) {
        flatten(&parsed, "", 0, &mut NAME_BYTES.clone(), &mut settings);
    }
    settings.retain(|name, _| SECTIONS.iter().any(|section| name.starts_with(section)));
    add_parameters(told, &mut settings);
    settings
}

/// Parameters go before the command line and the configuration file, for they can be changed while the server runs. An empty one
/// is told, too: that it is set later is then a change.
pub(crate) fn add_parameters(told: &impl Told, settings: &mut BTreeMap<String, String>) {
    for name in PARAMETERS {
        if let Some(value) = told.find(&["getParameter", name]).and_then(|element| plain(&element)) {
            settings.insert(format!("setParameter.{name}"), value);
        }
    }
}

/// Nothing that a server sends is nested as deep as this.
const DEEPEST: usize = 16;
/// Bytes of names that are made of one configuration, at most; a long one's come to some thousands.
const NAME_BYTES: usize = 1 << 20;

fn flatten(
    element: &Element<'_>,
    prefix: &str,
    depth: usize,
    left_bytes: &mut usize,
    into: &mut BTreeMap<String, String>,
) {
    for inner in element.elements().into_iter().flatten().map_while(Result::ok) {
        let Some(left) = left_bytes.checked_sub(prefix.len() + 1 + inner.key.len()) else { return };
        *left_bytes = left;
        let key = String::from_utf8_lossy(inner.key);
        let name = if prefix.is_empty() { key.into_owned() } else { format!("{prefix}.{key}") };
        if inner.elements().is_some() {
            if depth < DEEPEST {
                flatten(&inner, &name, depth + 1, left_bytes, into);
            }
        } else if let Some(text) = plain(&inner) {
            into.insert(name, text);
        }
    }
}

/// A text, a truth value or a number as it would stand in the configuration file.
fn plain(element: &Element<'_>) -> Option<String> {
    match (element.kind, element.value) {
        (0x01, bytes) => Some(f64::from_le_bytes(bytes.try_into().ok()?).to_string()),
        (0x08, bytes) => Some((bytes.first() != Some(&0)).to_string()),
        _ => element.text().map(|text| text.into_owned()).or_else(|| element.integer().map(|n| n.to_string())),
    }
}

/// The newest release that the table of figures was made from.
const NEWEST: i32 = 80_300;

/// What a release or an engine that is not known keeps from being understood.
pub(crate) fn not_understood(told: &impl Told, engine: Option<&str>) -> Vec<Unseen> {
    let mut unseen = Vec::new();
    let spelled = told.text(&["buildInfo", "version"]);
    let why = match (spelled.as_deref().and_then(version_num), spelled) {
        (None, Some(spelled)) => Some(format!("it calls its version '{spelled}'")),
        (Some(version), Some(spelled)) if version >= NEWEST => {
            Some(format!("it runs {spelled}, newer than the releases known here (3.6 to 8.2)"))
        }
        _ => None,
    };
    if let Some(why) = why {
        let remedy = Some("look for a newer Backwater; what kept its name is read as before".to_owned());
        unseen.push(Unseen { what: "figures that this release renamed", why, remedy });
    }
    if let Some(engine) = engine.filter(|engine| *engine != "wiredTiger") {
        let why = format!("its storage engine is {engine}, not WiredTiger");
        unseen.push(Unseen { what: "the engine's cache and checkpoints", why, remedy: None });
    }
    unseen
}

/// The host that the server runs on.
pub(crate) fn host(told: &impl Told) -> HostFacts {
    let number = |path: &[&str]| told.find(path).and_then(|element| element.integer()).filter(|n| *n > 0);
    HostFacts {
        hostname: told.text(&["hostInfo", "system", "hostname"]),
        kernel: told.text(&["hostInfo", "extra", "kernelVersion"]),
        cpus: number(&["hostInfo", "system", "numCores"]).and_then(|cores| u32::try_from(cores).ok()),
        memory_bytes: number(&["hostInfo", "system", "memSizeMB"]).map(|mib| (mib as u64).saturating_mul(1 << 20)),
        page_bytes: number(&["hostInfo", "extra", "pageSize"]).map(|bytes| bytes as u64),
        ..HostFacts::default()
    }
}

/// The disk that holds the data directory, among disks known by name: by the longest mount point above it, or the only
/// disk there is. None where a volume manager lies between.
pub(crate) fn data_device(told: &impl Told, target: &Target, disks: &[String]) -> Option<Device> {
    let directory = target.data_directory.as_deref().unwrap_or(DATA_DIRECTORY);
    let (point, source, fs_type) = mount_of(told, directory).unwrap_or_default();
    let volume = source.rsplit('/').next().unwrap_or_default();
    let by_name = disks.iter().filter(|disk| is_part_of(volume, disk)).max_by_key(|disk| disk.len());
    let disk = match (by_name, disks) {
        (Some(disk), _) => disk,
        (None, [only]) => only,
        _ => return None,
    };
    Some(Device {
        dev: disk.clone(),
        name: disk.clone(),
        mount_points: if point.is_empty() { Vec::new() } else { vec![point] },
        fs_type: (!fs_type.is_empty()).then_some(fs_type),
        roles: vec![(Role::Data, target.name.clone())],
        ..Device::default()
    })
}

/// Whether a volume is a disk or a partition of it: sda2 of sda, nvme0n1p1 of nvme0n1.
fn is_part_of(volume: &str, disk: &str) -> bool {
    let Some(rest) = volume.strip_prefix(disk) else { return false };
    let digits = if disk.ends_with(|c: char| c.is_ascii_digit()) { rest.strip_prefix('p') } else { Some(rest) };
    rest.is_empty() || digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Mount point, source and file system type of the mount that a directory lies on.
fn mount_of(told: &impl Told, directory: &str) -> Option<(String, String, String)> {
    let mounts = told.find(&["hostInfo", "extra", "mountInfo"])?;
    let mut best: Option<(String, String, String)> = None;
    for mount in mounts.elements()?.map_while(Result::ok) {
        let text = |key| ftdc::find(mount.value, key).and_then(|e| e.text()).map(|text| text.into_owned());
        let Some(point) = text("mountPoint") else { continue };
        let above = directory
            .strip_prefix(point.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if above && best.as_ref().is_none_or(|(known, ..)| point.len() >= known.len()) {
            best = Some((point, text("source").unwrap_or_default(), text("type").unwrap_or_default()));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftdc::Builder;

    struct Document(Vec<u8>);

    impl Told for Document {
        fn find(&self, path: &[&str]) -> Option<Element<'_>> {
            ftdc::find_path(&self.0, path)
        }
    }

    fn server() -> Document {
        let mount = |b: Builder, at: &str, point: &str, source: &str| {
            b.document(at, |m| m.string("mountPoint", point).string("source", source).string("type", "xfs"))
        };
        let document = Builder::new()
            .document("buildInfo", |b| b.string("version", "7.0.12-rc1"))
            .document("getCmdLineOpts", |b| {
                b.document("parsed", |p| {
                    p.document("storage", |s| {
                        s.string("dbPath", "/data/db")
                            .document("wiredTiger", |w| w.document("engineConfig", |e| e.double("cacheSizeGB", 1.5)))
                    })
                    .document("security", |s| s.string("keyFile", "/etc/key"))
                    .document("net", |n| n.int32("port", 27_018))
                })
            })
            .document("hostInfo", |h| {
                h.document("system", |s| s.string("hostname", "db1").int32("numCores", 8).int32("memSizeMB", 1_024))
                    .document("extra", |e| {
                        e.array("mountInfo", |m| {
                            let m = mount(m, "0", "/", "/dev/sda2");
                            let m = mount(m, "1", "/data", "/dev/nvme0n1p1");
                            mount(m, "2", "/database", "/dev/sdb")
                        })
                    })
            })
            .finish();
        Document(document)
    }

    #[test]
    fn a_server_is_told_by_its_own_words() {
        let target = target(&server(), None);
        assert_eq!((target.name.as_str(), target.version_num), ("db1:27018", Some(70_012)));
        assert_eq!(target.settings["storage.wiredTiger.engineConfig.cacheSizeGB"], "1.5");
        assert!(!target.settings.keys().any(|name| name.starts_with("security")));
        let host = host(&server());
        assert_eq!((host.cpus, host.memory_bytes), (Some(8), Some(1 << 30)));
    }

    #[test]
    fn the_data_lie_on_the_disk_of_the_longest_mount_above_them() {
        let disks = ["nvme0n1", "nvme0n10", "sda", "sdb"].map(str::to_owned);
        let told = server();
        let target = target(&told, None);
        assert_eq!(data_device(&told, &target, &disks).unwrap().name, "nvme0n1");
        let nowhere = Document(Builder::new().finish());
        assert!(data_device(&nowhere, &target, &disks).is_none());
        assert_eq!(data_device(&nowhere, &target, &disks[2..3]).unwrap().name, "sda");
    }

    #[test]
    fn versions_that_are_none_are_none() {
        for (text, number) in [("3.6.23", Some(30_623)), ("8.1", Some(80_100)), ("x", None), ("", None), ("8", None)] {
            assert_eq!(version_num(text), number, "{text}");
        }
    }
}
