//! A server that is to be watched, and the way to it.

use super::{HEARTBEAT_TIMEOUT, SHORTEST_SESSION_PERIOD, Setup};
use crate::host::Roots;
use crate::mongodb::{self, MongoProbe, MongoServer};
use crate::postgres::{ConnInfo, Heartbeat, PostgresOptions, PostgresProbe};
use crate::{Probe, ProbeError};
use backwater_model::Target;
use std::panic::resume_unwind;
use std::time::Duration;

/// How many servers are reached for at the same time.
const REACHED_AT_ONCE: usize = 16;

/// Reaches for a server: under the name of that which answers, or under this one.
pub(super) type Reach = Box<dyn FnMut(Option<&str>) -> Result<Met, ProbeError> + Send>;

/// A server that is to be watched.
pub(super) struct Wanted {
    /// What is known of it before it is met: its kind, and a name.
    pub(super) target: Target,
    pub(super) period: Duration,
    pub(super) reach: Reach,
    /// Where a heartbeat is to beat, should the server be away.
    pub(super) beats: BeatsAway,
}

/// What beats on a server that is away.
pub(super) enum BeatsAway {
    /// No heartbeat is wanted.
    Unwanted,
    On(Box<ConnInfo>, Beats),
    /// One is wanted, but the address does not say which of several servers it would be on.
    Nowhere,
}

/// A server that answered.
pub(super) struct Met {
    pub(super) probe: Box<dyn Probe>,
    pub(super) target: Target,
    pub(super) heartbeat: Option<Heartbeat>,
    /// Of a router: the members of the shards behind it.
    pub(super) behind: Vec<MongoServer>,
}

/// How a heartbeat beats.
#[derive(Clone, Debug)]
pub(super) struct Beats {
    pub(super) limit: Duration,
    /// The recorder's.
    pub(super) hostname: Option<String>,
}

/// The servers of a connection string. Reads no more than that, and the environment.
pub(super) fn servers(text: &str, setup: &Setup, hostname: Option<&str>) -> Result<Vec<Wanted>, ProbeError> {
    let limit = setup.heartbeat.then(|| setup.heartbeat_timeout.unwrap_or(HEARTBEAT_TIMEOUT));
    if !mongodb::is_uri(text) {
        let info = ConnInfo::parse(text, &|name| std::env::var(name).ok())?;
        for warning in info.warnings() {
            tracing::warn!("{warning}");
        }
        let beats = limit.map(|limit| Beats { limit, hostname: hostname.map(str::to_owned) });
        return Ok(vec![postgres(info, options(setup), beats)]);
    }
    if limit.is_some() {
        let why = "heartbeats are for PostgreSQL: leave out --heartbeat, or the MongoDB target";
        return Err(ProbeError::Connect(why.to_owned()));
    }
    let servers = mongodb::servers(text, &|name| std::env::var(name).ok())?;
    Ok(servers.into_iter().map(|server| mongodb(server, &setup.roots)).collect())
}

fn options(setup: &Setup) -> PostgresOptions {
    let mut options = PostgresOptions {
        keep_query_text: setup.keep_query_text,
        read_memory: !setup.no_shared_memory,
        roots: setup.roots.clone(),
        ..PostgresOptions::default()
    };
    if let Some(period) = setup.session_period {
        options.session_period = period.max(SHORTEST_SESSION_PERIOD);
    }
    options
}

fn postgres(info: ConnInfo, options: PostgresOptions, beats: Option<Beats>) -> Wanted {
    let target = named("postgres", info.labels());
    let beats_away = match &beats {
        None => BeatsAway::Unwanted,
        Some(beats) if info.is_of_one_server() => BeatsAway::On(Box::new(info.clone()), beats.clone()),
        Some(_) => BeatsAway::Nowhere,
    };
    let period = options.session_period;
    let reach = move |name: Option<&str>| {
        let options = PostgresOptions { name: name.map(str::to_owned), ..options.clone() };
        let (probe, target) = PostgresProbe::connect(info.clone(), options)?;
        // On one that was away they beat already, or not in this run.
        let beats = beats.as_ref().filter(|_| name.is_none());
        let heartbeat = beats.map(|beats| probe.heartbeat(beats.limit, beats.hostname.as_deref())).transpose()?;
        Ok(Met { probe: Box::new(probe), target, heartbeat, behind: Vec::new() })
    };
    Wanted { target, period, reach: Box::new(reach), beats: beats_away }
}

pub(super) fn mongodb(server: MongoServer, roots: &Roots) -> Wanted {
    let (target, roots) = (named("mongodb", server.name.clone()), roots.clone());
    let reach = move |_: Option<&str>| {
        let (probe, target) = MongoProbe::connect(server.clone(), &roots)?;
        let behind = probe.behind();
        Ok(Met { probe: Box::new(probe), target, heartbeat: None, behind })
    };
    Wanted { target, period: MongoProbe::PERIOD, reach: Box::new(reach), beats: BeatsAway::Unwanted }
}

fn named(kind: &str, name: String) -> Target {
    Target { name, kind: kind.to_owned(), ..Target::default() }
}

/// Each with what reaching for it came to, in their order. At once: one that is gone without a word takes seconds, and a
/// cluster has dozens.
pub(super) fn reach_all(wanted: Vec<Wanted>) -> Vec<(Wanted, Result<Met, ProbeError>)> {
    let mut reached = Vec::with_capacity(wanted.len());
    let mut wanted = wanted.into_iter().peekable();
    while wanted.peek().is_some() {
        std::thread::scope(|scope| {
            let reach = |mut one: Wanted| {
                let met = (one.reach)(None);
                (one, met)
            };
            let some = wanted.by_ref().take(REACHED_AT_ONCE);
            let begun: Vec<_> = some.map(|one| scope.spawn(move || reach(one))).collect();
            let ended = begun.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            reached.extend(ended);
        });
    }
    reached
}
