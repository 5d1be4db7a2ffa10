//! What is asked of a server when it is met: version, settings, host, what it is in its deployment, and what its user may not see.

use super::link::{AskError, Link};
use super::local::{self, Uptime};
use crate::ProbeError;
use crate::host::{self, Roots};
pub(super) use crate::mongodb::facts::Unseen;
use crate::mongodb::facts::{self, Told};
use backwater_model::{ClockAnchor, Target};
use ftdc::Element;
use mongodb::bson::{Document, doc};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// What a server tells of itself when it is met, as it is called where it is not seen.
pub(super) const VERSION: &str = "version";
pub(super) const SETTINGS: &str = "settings and data directory";
pub(super) const HOST: &str = "memory and processors of the server's host";
pub(super) const PARAMETERS: &str = "parameters that are changed while the server runs";

const NO_DATA: &str = "this is a router (mongos), which holds no data";

/// What is asked for first, and without which nothing is seen.
pub(super) const STATUS: &str = "serverStatus";

/// What a server is in its deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A server alone.
    Standalone,
    /// A member of a replica set.
    Member,
    /// A router (mongos), which has no engine.
    Router,
}

/// Answers to commands, by the command.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers(BTreeMap<&'static str, Vec<u8>>);

impl Told for Answers {
    fn find(&self, path: &[&str]) -> Option<Element<'_>> {
        let (command, rest) = path.split_first()?;
        ftdc::find_path(self.0.get::<str>(*command)?, rest)
    }
}

/// A server as it was met.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) target: Target,
    pub(super) part: Part,
    pub(super) told: Answers,
    /// Its process, where it runs on this host.
    pub(super) pid: Option<i32>,
    pub(super) unseen: Vec<Unseen>,
    /// Of a router: the shards behind it, each with the addresses of its members.
    pub(super) shards: Vec<(String, Vec<String>)>,
}

/// Asks the server and this host.
///
/// # Errors
/// Where it cannot be reached, lets nobody in, or does not answer serverStatus, without which there is nothing to read.
pub(super) async fn meet(link: &Link, name: &str, roots: &Roots) -> Result<Facts, ProbeError> {
    let mut told = Answers::default();
    let begun = Instant::now();
    let status = match link.ask(STATUS, "admin", server_status()).await {
        Err(AskError::Denied(error)) => {
            return Err(ProbeError::Connect(format!("{error}. Without serverStatus nothing is seen; {}", grant(link))));
        }
        answer => answer?,
    };
    let (heard, took_s) = (crate::anchor(), begun.elapsed().as_secs_f64());
    let part = part_of(&status);
    told.0.insert("serverStatus", status);
    let mut unseen = Vec::new();
    let asked: [(&'static str, &'static str, Document); 3] = [
        ("buildInfo", VERSION, doc! {"buildInfo": 1}),
        ("getCmdLineOpts", SETTINGS, doc! {"getCmdLineOpts": 1}),
        ("hostInfo", HOST, doc! {"hostInfo": 1}),
    ];
    // A router has none of those that are read here.
    let parameters = (part != Part::Router).then(|| ("getParameter", PARAMETERS, get_parameters()));
    for (command, what, document) in asked.into_iter().chain(parameters) {
        match link.ask(command, "admin", document).await {
            Ok(answer) => drop(told.0.insert(command, answer)),
            Err(AskError::Lost(error)) => return Err(error),
            Err(error) => unseen.push(refused(what, error, link)),
        }
    }
    let mut target = facts::target(&told, Some(name));
    let pid = add_host(&mut target, &told, part, roots, (heard, took_s));
    let engine = told.text(&["serverStatus", "storageEngine", "name"]);
    unseen.extend(facts::not_understood(&told, engine.as_deref()));
    let mut shards = Vec::new();
    if part == Part::Router {
        let (told, list) = behind(link).await?;
        unseen.push(told);
        shards = list;
    }
    Ok(Facts { target, part, told, pid, unseen, shards })
}

/// serverStatus with what it leaves out unless asked, and without what is long and never read.
pub(super) fn server_status() -> Document {
    doc! {"serverStatus": 1, "oplog": 1, "locks": 0, "tcmalloc": 0, "transportSecurity": 0, "mirroredReads": 0}
}

fn part_of(status: &[u8]) -> Part {
    let text = |key| ftdc::find(status, key).and_then(|element| element.text().map(|text| text.into_owned()));
    if text("process").is_some_and(|process| process.starts_with("mongos")) {
        Part::Router
    } else if ftdc::find(status, "repl").is_some() {
        Part::Member
    } else {
        Part::Standalone
    }
}

/// What lets a user see all that is read here; nothing of anybody's data.
pub(super) fn grant(link: &Link) -> String {
    match link.user() {
        Some(user) => format!(
            "db.grantRolesToUser(\"{user}\", [{{role: \"clusterMonitor\", db: \"admin\"}}]) in the database the user was made in"
        ),
        None => "db.getSiblingDB(\"admin\").createUser({user: \"backwater\", pwd: passwordPrompt(), roles: [{role: \
                 \"clusterMonitor\", db: \"admin\"}]}), then mongodb://backwater@HOST/?authSource=admin with \
                 MONGODB_PASSWORD set"
            .to_owned(),
    }
}

/// Why something is not seen: for want of a right, with what grants it, or because the server does not know it.
pub(super) fn refused(what: &'static str, error: AskError, link: &Link) -> Unseen {
    let remedy = matches!(error, AskError::Denied(_)).then(|| grant(link));
    Unseen { what, why: ProbeError::from(error).to_string(), remedy }
}

/// What asks for the parameters that can be changed while the server runs.
pub(super) fn get_parameters() -> Document {
    let mut asked = doc! {"getParameter": 1};
    asked.extend(facts::PARAMETERS.map(|name| (name.to_owned(), mongodb::bson::Bson::from(1))));
    asked
}

/// The settings of a server as it was met, with its parameters as they are in a later answer.
pub(super) fn with_parameters(facts: &Facts, answer: Vec<u8>) -> BTreeMap<String, String> {
    let mut settings = facts.target.settings.clone();
    facts::add_parameters(&Answers([("getParameter", answer)].into()), &mut settings);
    settings
}

/// Devices and control groups of a server on this host, with its process; of another host, its memory and processors.
fn add_host(
    target: &mut Target,
    told: &Answers,
    part: Part,
    roots: &Roots,
    (heard, took_s): (ClockAnchor, f64),
) -> Option<i32> {
    let number = |path: &[&str]| told.find(path).and_then(|element| element.integer());
    let (pid, uptime_ms) = (number(&["serverStatus", "pid"]), number(&["serverStatus", "uptimeMillis"]));
    let uptime = Uptime { seconds: uptime_ms.unwrap_or_default() as f64 / 1e3, heard, took_s };
    let ticks = rustix::param::clock_ticks_per_second();
    let pid = pid.filter(|pid| local::is_here(roots, *pid, uptime, ticks));
    let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) else {
        for key in ["memSizeMB", "numCores"] {
            if let Some(value) = number(&["hostInfo", "system", key]) {
                target.settings.insert(format!("hostInfo.system.{key}"), value.to_string());
            }
        }
        return None;
    };
    target.local = true;
    if let Ok(directory) = data_directory(target.data_directory.as_deref(), told, part).map(Path::new) {
        let device = |path: &Path| host::locate_in(roots, pid, path).ok().map(|device| device.dev);
        target.data_device = device(directory);
        target.wal_device = device(&directory.join("journal"));
    }
    if let Ok(groups) = host::cgroups_of(roots, pid) {
        target.memory_cgroup = groups.memory.filter(|group| !group.is_root()).map(|group| group.path);
        target.io_cgroup = groups.io.map(|group| group.path);
    }
    Some(pid)
}

/// Where a server keeps its data: where it was told to, else where mongod does by itself; or why nobody knows.
pub(super) fn data_directory<'n>(named: Option<&'n str>, told: &Answers, part: Part) -> Result<&'n str, &'static str> {
    match named {
        _ if part == Part::Router => Err(NO_DATA),
        Some(named) => Ok(named),
        None if told.find(&["getCmdLineOpts", "parsed"]).is_some() => Ok(facts::DATA_DIRECTORY),
        None => Err("the server does not tell where it is"),
    }
}

/// A router has no engine: the shards behind it have, and it knows their members' addresses.
async fn behind(link: &Link) -> Result<(Unseen, Vec<(String, Vec<String>)>), ProbeError> {
    let what = "engines of the shards";
    let why = NO_DATA.to_owned();
    let answer = match link.ask("listShards", "admin", doc! {"listShards": 1}).await {
        Ok(answer) => answer,
        Err(AskError::Lost(error)) => return Err(error),
        Err(_) => {
            let remedy = Some("name the shards' members as targets".to_owned());
            return Ok((Unseen { what, why, remedy }, Vec::new()));
        }
    };
    let list = ftdc::find(&answer, "shards");
    let list = list.iter().filter_map(Element::elements).flatten().map_while(Result::ok);
    let shards: Vec<(String, Vec<String>)> = list.filter_map(|shard| members_of(shard.value)).collect();
    let uris: Vec<String> = shards.iter().map(|(_, hosts)| format!("mongodb://{}/", hosts.join(","))).collect();
    let remedy = format!(
        "the shards' members are watched too where the same user is let in; name those that are not as targets, with a user \
         of their own: {}",
        uris.join(" ")
    );
    Ok((Unseen { what, why, remedy: Some(remedy) }, shards))
}

/// The shard's replica set and its members' addresses, of one that says `name/a:1,b:2`.
fn members_of(shard: &[u8]) -> Option<(String, Vec<String>)> {
    let host = ftdc::find(shard, "host")?.text()?.into_owned();
    let (set, hosts) = host.split_once('/').unwrap_or((&host, &host));
    Some((set.to_owned(), hosts.split(',').map(str::to_owned).collect()))
}

/// What a router told of a server goes where the server's own configuration is not seen.
pub(super) fn adopt_shard(target: &mut Target, shard: &str) {
    let mut say = |name: &str, value: &str| {
        target.settings.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    };
    say("sharding.clusterRole", "shardsvr");
    say("replication.replSetName", shard);
}
