//! What this user may see on a MongoDB server, for `backwater check`: each with why not, and the command that would change it.

use super::link::{AskError, Link};
use super::runtime::Background;
use super::server::{self, Facts, Part, Unseen};
use super::uri::MongoServer;
use crate::ProbeError;
use crate::host::{self, Capability, Roots};
use mongodb::bson::{Document, doc};
use std::path::Path;

const NOT_HERE: &str = "the server's process is not among those of this host, or may not be looked at";
const DEVICE: &str = "device of the data directory";
const RUN_THERE: &str = "run backwater on the server's host, as root or as the server's own user";

/// Connects, and judges each thing the probe would like to read. Blocks; not to be called from inside an async runtime.
///
/// # Errors
/// [`ProbeError::Connect`] where there is no server to ask.
pub fn capabilities(server: &MongoServer, roots: &Roots) -> Result<Vec<Capability>, ProbeError> {
    Background::start()?.block_on(async {
        let link = Link::new(server)?;
        let facts = server::meet(&link, &server.name, roots).await?;
        judge(&link, &facts, roots).await
    })
}

async fn judge(link: &Link, facts: &Facts, roots: &Roots) -> Result<Vec<Capability>, ProbeError> {
    let mut list = vec![item("figures of the server (serverStatus)", None)];
    let parameters = (facts.part != Part::Router).then_some(server::PARAMETERS);
    for what in [server::VERSION, server::SETTINGS, server::HOST].into_iter().chain(parameters) {
        list.push(item(what, facts.unseen.iter().find(|unseen| unseen.what == what).cloned()));
    }
    if facts.part == Part::Member {
        let asked = doc! {"replSetGetStatus": 1};
        list.push(asking(link, "members of the replica set", "replSetGetStatus", "admin", asked).await?);
        let asked = doc! {"collStats": "oplog.rs"};
        list.push(asking(link, "size of the oplog", "collStats of the oplog", "local", asked).await?);
    }
    let others = ["engines of the shards", "figures that this release renamed", "the engine's cache and checkpoints"];
    let others = facts.unseen.iter().filter(|unseen| others.contains(&unseen.what));
    list.extend(others.map(|unseen| item(unseen.what, Some(unseen.clone()))));
    let process = "the server's process on this host";
    list.push(item(process, (!facts.target.local).then(|| elsewhere(process))));
    list.push(item(DEVICE, facts.target.data_device.is_none().then(|| no_device(facts, roots))));
    Ok(list)
}

fn elsewhere(what: &'static str) -> Unseen {
    Unseen { what, why: NOT_HERE.to_owned(), remedy: Some(RUN_THERE.to_owned()) }
}

/// Why nobody knows on which device the server's data lie.
fn no_device(facts: &Facts, roots: &Roots) -> Unseen {
    let Some(pid) = facts.pid else { return elsewhere(DEVICE) };
    let directory = server::data_directory(facts.target.data_directory.as_deref(), &facts.told, facts.part);
    let why = match directory.map(|directory| (directory, host::locate_in(roots, pid, Path::new(directory)))) {
        Ok((_, Err(error))) => error.to_string(),
        Ok((directory, Ok(_))) => format!("{directory} could not be looked at when the server was met"),
        Err(why) => why.to_owned(),
    };
    Unseen { what: DEVICE, why, remedy: None }
}

async fn asking(
    link: &Link,
    what: &'static str,
    command: &'static str,
    database: &str,
    asked: Document,
) -> Result<Capability, ProbeError> {
    match link.ask(command, database, asked).await {
        Ok(_) => Ok(item(what, None)),
        Err(AskError::Lost(error)) => Err(error),
        Err(error) => Ok(item(what, Some(server::refused(what, error, link)))),
    }
}

fn item(what: &'static str, unseen: Option<Unseen>) -> Capability {
    let (missing, remedy) = unseen.map_or((None, None), |unseen| (Some(unseen.why), unseen.remedy));
    Capability { what, costs: costs_of(what), missing, remedy }
}

/// What is lost without it, where its name does not say so.
fn costs_of(what: &str) -> &'static str {
    match what {
        server::SETTINGS | server::PARAMETERS => "limits that are set: those of the release are taken for them",
        server::HOST => "how much memory and how many processors the server has",
        "members of the replica set" => {
            "lag by member, and who holds the majority up: history-pinned, flow-control-engaged"
        }
        "size of the oplog" => "how long a member may be away: oplog-window",
        "the server's process on this host" => "threads that the kernel holds, and what they wait for",
        DEVICE => "which device is the server's: device-saturated and device-below-rating name it",
        _ => "",
    }
}
