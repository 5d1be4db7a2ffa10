//! The queues of a MongoDB server, or of its engine alone: operations and tickets before the engine, what stands in its cache,
//! its checkpoints and its journal, and how far the members of a replica set are behind.
//!
//! Nothing counts what arrives before the engine, what a checkpoint has before it, or what waits for the journal: those parts
//! stay unknown. Lags are seconds between optimes, as `replSetGetStatus` and the oplog's own ends tell them.

use super::in_force;
use crate::rules::wt_evidence::{Limits, SERVERS, targets_with};
use backwater_model::{QueueSpec, Source, Target, Term, Track, Unit, Window, catalogue as cat};

/// A lag of more is that of a member whose optime is nothing, counted from 1970: it has none, or does not answer.
const LONGEST_LAG_S: f64 = 1e9;
/// `flowControlTargetLagSeconds`, and the share of it at which flow control begins (`flowControlThresholdLagPercentage`), unless
/// set otherwise (flow_control_parameters.idl, 4.2 and later).
const TARGET_LAG_S: f64 = 10.0;
const THRESHOLD: f64 = 0.5;

type Labels<'a> = &'a [(&'static str, &'a str)];

fn term(name: &'static str, labels: Labels<'_>, factor: f64) -> Term {
    (name, labels.iter().map(|(label, value)| (*label, (*value).to_owned())).collect(), factor)
}

/// One series times a factor.
fn times(name: &'static str, labels: Labels<'_>, factor: f64) -> Source {
    Source::Sum(vec![term(name, labels, factor)])
}

/// One series less another, each with its labels.
fn less(more: &'static str, of: Labels<'_>, fewer: &'static str, other: Labels<'_>) -> Source {
    Source::Sum(vec![term(more, of, 1.0), term(fewer, other, -1.0)])
}

/// The queues of every server with an engine that a window knows of.
pub(super) fn engines(window: &Window) -> Vec<QueueSpec> {
    let told = [&SERVERS[..], &[&cat::MONGO_UPTIME, &cat::MONGO_OPS]].concat();
    let mut names = targets_with(window, &told);
    names.extend(window.meta.targets.iter().filter(|target| target.is_engine()).map(|target| target.name.clone()));
    names.iter().flat_map(|name| in_force(window, name, |target| of(window, target, name))).collect()
}

fn of(window: &Window, target: Option<&Target>, name: &str) -> Vec<QueueSpec> {
    let alone = target.is_some_and(|target| target.kind == "wiredtiger");
    let mut list = if alone { vec![load(name)] } else { clients(name) };
    list.extend([connections(name), expiry(name)]);
    list.extend(cache(window, target, name));
    if !alone {
        list.extend(members(window, target, name));
    }
    list
}

/// The engine alone has no clients but the lab's load.
fn load(name: &str) -> QueueSpec {
    QueueSpec {
        outflow: Source::series(cat::LOAD_COMPLETED.name, &[]),
        level: Source::series(cat::LOAD_WAITING.name, &[]),
        ..QueueSpec::new(format!("mongo.writes@{name}"), Unit::Count)
    }
}

/// Of the engine alone, threads of the lab's load, each with a session.
fn connections(name: &str) -> QueueSpec {
    let own = [("target", name)];
    QueueSpec {
        inflow: Source::series(cat::MONGO_CONNECTIONS_CREATED.name, &own),
        level: Source::series(cat::MONGO_CONNECTIONS.name, &own),
        hard_limit: Source::sum(&[cat::MONGO_CONNECTIONS.name, cat::MONGO_CONNECTIONS_FREE.name], &own),
        ..QueueSpec::new(format!("mongo.connections@{name}"), Unit::Count)
    }
}

/// Documents that expired, which the server, or the lab's load, deletes.
fn expiry(name: &str) -> QueueSpec {
    QueueSpec {
        outflow: Source::series(cat::MONGO_TTL_DELETED.name, &[("target", name)]),
        ..QueueSpec::new(format!("mongo.ttl@{name}"), Unit::Count)
    }
}

/// Operations by sort, tickets. Operations inside the engine and those in line before it are told apart by
/// `globalLock.activeClients` and `globalLock.currentQueue`, which count no operation twice.
fn clients(name: &str) -> Vec<QueueSpec> {
    let each = |def: &cat::Def, ops: &[&str]| -> Vec<Term> {
        ops.iter().map(|op| term(def.name, &[("target", name), ("op", *op)], 1.0)).collect()
    };
    let operations = |title: &str, inside: &[&str], answered: &[&str]| QueueSpec {
        outflow: Source::Sum(each(&cat::MONGO_OPS, answered)),
        level: Source::FirstOf(vec![
            Source::Sum([each(&cat::MONGO_CLIENTS, inside), each(&cat::MONGO_LOCK_QUEUE, inside)].concat()),
            Source::Sum(each(&cat::MONGO_CLIENTS, inside)),
        ]),
        waiters: Source::Sum(each(&cat::MONGO_LOCK_QUEUE, inside)),
        ..QueueSpec::new(format!("mongo.{title}@{name}"), Unit::Count)
    };
    let tickets = |op: &str| {
        let of = |def: &cat::Def| each(def, &[op]);
        let both = [of(&cat::MONGO_TICKETS_OUT), of(&cat::MONGO_TICKETS_FREE)].concat();
        QueueSpec {
            level: Source::Sum(of(&cat::MONGO_TICKETS_OUT)),
            hard_limit: Source::FirstOf(vec![Source::Sum(both), Source::Sum(of(&cat::MONGO_TICKETS_TOTAL))]),
            waiters: Source::FirstOf(vec![
                Source::Sum(of(&cat::MONGO_TICKETS_QUEUED)),
                Source::Sum(of(&cat::MONGO_LOCK_QUEUE)),
            ]),
            ..QueueSpec::new(format!("mongo.tickets.{op}@{name}"), Unit::Count)
        }
    };
    vec![
        operations("clients", &["read", "write"], &["reads", "writes"]),
        operations("writes", &["write"], &["writes"]),
        tickets("write"),
        operations("reads", &["read"], &["reads"]),
        tickets("read"),
    ]
}

/// What stands in the cache against where eviction begins and where application threads must help, and what is written of it.
fn cache(window: &Window, target: Option<&Target>, name: &str) -> Vec<QueueSpec> {
    let own = [("target", name)];
    let size = window.track(cat::WT_CACHE_MAX.name, &own).and_then(Track::last);
    let limits = Limits::of(target, size);
    let of_cache = |share: f64| times(cat::WT_CACHE_MAX.name, &own, share);
    let history = [cat::WT_PINNED, cat::WT_PINNED_OLDEST];
    vec![
        QueueSpec {
            level: Source::series(cat::WT_CACHE_USED.name, &own),
            soft_limit: of_cache(limits.cache_target),
            hard_limit: of_cache(limits.cache_trigger),
            ..QueueSpec::new(format!("wt.cache@{name}"), Unit::Bytes)
        },
        QueueSpec {
            outflow: Source::series(cat::WT_CACHE_WRITTEN.name, &own),
            level: Source::series(cat::WT_CACHE_DIRTY.name, &own),
            soft_limit: of_cache(limits.dirty_target),
            hard_limit: of_cache(limits.dirty_trigger),
            ..QueueSpec::new(format!("wt.dirty@{name}"), Unit::Bytes)
        },
        QueueSpec {
            level: Source::series(cat::WT_CHECKPOINT_MS.name, &own),
            ..QueueSpec::new(format!("wt.checkpoint@{name}"), Unit::Milliseconds)
        },
        QueueSpec {
            outflow: Source::series(cat::WT_LOG_BYTES.name, &own),
            ..QueueSpec::new(format!("wt.journal@{name}"), Unit::Bytes)
        },
        QueueSpec {
            level: Source::FirstOf(history.iter().map(|def| Source::series(def.name, &own)).collect()),
            ..QueueSpec::new(format!("wt.history@{name}"), Unit::Seconds)
        },
    ]
}

/// How far the majority is behind this server's own writes, and each member behind the oplog of the primary.
fn members(window: &Window, target: Option<&Target>, name: &str) -> Vec<QueueSpec> {
    let own = [("target", name)];
    let known = |def: &cat::Def, labels: Labels<'_>| window.track(def.name, labels).is_some();
    let each = || window.tracks(cat::MONGO_MEMBER_SELF.name, &own);
    let member_of = |track: &Track<'_>| track.series.labels.get("member").map(str::to_owned);
    let it = each().filter(|track| track.last() == Some(1.0)).find_map(|track| member_of(&track));
    let newest = (cat::MONGO_OPLOG_LAST.name, own.to_vec());
    let head = match &it {
        Some(it) => (cat::MONGO_MEMBER_OPTIME.name, vec![("target", name), ("member", it.as_str())]),
        None => newest.clone(),
    };
    let mut list = Vec::new();
    let majority = Source::Below(Box::new(less(head.0, &head.1, cat::MONGO_COMMITTED.name, &own)), LONGEST_LAG_S);
    // Flow control holds writers only where there is flow control.
    let (soft_limit, hard_limit) = if known(&cat::MONGO_FLOW_LAGGED, &own) {
        let setting = |name: &str, default: f64| {
            let text = target.and_then(|target| target.settings.get(&format!("setParameter.{name}")));
            text.and_then(|text| text.parse().ok()).unwrap_or(default)
        };
        let lag_s = setting("flowControlTargetLagSeconds", TARGET_LAG_S);
        (Source::Fixed(lag_s * setting("flowControlThresholdLagPercentage", THRESHOLD)), Source::Fixed(lag_s))
    } else {
        (Source::Unknown, Source::Unknown)
    };
    list.push(QueueSpec {
        level: majority,
        soft_limit,
        hard_limit,
        ..QueueSpec::new(format!("mongo.majority@{name}"), Unit::Seconds)
    });
    // Only the primary's oplog is the one that the others copy.
    let states = window.track(cat::MONGO_STATE.name, &own);
    if !states.is_some_and(|track| track.points.iter().any(|point| point.value == 1.0)) {
        return list;
    }
    let covered = || less(cat::MONGO_OPLOG_LAST.name, &own, cat::MONGO_OPLOG_FIRST.name, &own);
    let front = if known(&cat::MONGO_OPLOG_LAST, &own) { newest } else { head };
    let others: Vec<String> = window
        .tracks(cat::MONGO_MEMBER_OPTIME.name, &own)
        .filter_map(|track| member_of(&track))
        .filter(|member| Some(member) != it.as_ref())
        .collect();
    let lag = |member: &String| {
        let labels = [("target", name), ("member", member.as_str())];
        Source::Below(Box::new(less(front.0, &front.1, cat::MONGO_MEMBER_OPTIME.name, &labels)), LONGEST_LAG_S)
    };
    list.push(QueueSpec {
        level: Source::Most(others.iter().map(lag).collect()),
        hard_limit: covered(),
        ..QueueSpec::new(format!("mongo.oplog@{name}"), Unit::Seconds)
    });
    list.extend(others.iter().map(|member| QueueSpec {
        level: lag(member),
        hard_limit: covered(),
        ..QueueSpec::new(format!("mongo.member@{member}"), Unit::Seconds)
    }));
    list
}
