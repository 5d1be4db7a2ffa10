//! What `SHOW` shows.

use super::super::control::Control;
use super::super::glance::binding;
use super::super::live::Doing;
use super::super::outside::{OutsideSession, OutsideTold};
use super::answer::{Answer, Column, Kind, Value};
use crate::clock;
use backwater_flow::rule::Rule;
use backwater_flow::statement::Show;
use backwater_flow::{Allowance, LowPriorityBandwidth, MB, Priority, quote};
use jiff::{Timestamp, ToSpan};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind }
}
const fn text(name: &'static str) -> Column {
    column(name, Kind::Text)
}
const fn whole(name: &'static str) -> Column {
    column(name, Kind::Whole)
}
const fn real(name: &'static str) -> Column {
    column(name, Kind::Real)
}

const POOLS: &[Column] = &[
    text("name"),
    text("priority"),
    whole("weight"),
    text("except_rule"),
    whole("max_connections"),
    whole("max_active"),
    real("bandwidth_mb_per_s"),
    whole("connections"),
    whole("active"),
    whole("waiting"),
    whole("to_clients_bytes"),
];
const RULES: &[Column] = &[
    text("name"),
    text("action"),
    text("conditions"),
    real("cooldown_s"),
    text("pools"),
    whole("began"),
    whole("escalated"),
    whole("lifted"),
    text("not_measurable"),
];
const USERS: &[Column] = &[text("name"), text("pool")];
const SESSIONS: &[Column] = &[
    whole("session"),
    text("user"),
    text("database"),
    text("application"),
    text("client"),
    text("pool"),
    text("class"),
    text("held_by"),
    text("state"),
    whole("statement"),
    real("for_s"),
    real("waited_s"),
    whole("rows"),
    whole("to_client_bytes"),
    whole("to_server_bytes"),
    whole("server_pid"),
    real("age_s"),
    whole("snapshot_age_xids"),
];
const QUEUES: &[Column] =
    &[text("queue"), text("pool"), whole("waiting"), whole("in_service"), whole("limit"), text("limit_unit")];
const GOVERNOR: &[Column] = &[text("pool"), real("rate_mb_per_s"), text("by"), text("what")];
const EVENTS: &[Column] = &[column("at", Kind::Time), text("kind"), text("message")];
const NAMED: &[Column] = &[text("name"), whole("value")];
const SETTINGS: &[Column] = &[text("name"), text("value")];
const BANDWIDTH: &[Column] = &[text(LowPriorityBandwidth::NAME)];

/// The columns of something that can be shown.
pub(super) fn columns(what: Show) -> &'static [Column] {
    match what {
        Show::Pools => POOLS,
        Show::Rules => RULES,
        Show::Users => USERS,
        Show::Sessions => SESSIONS,
        Show::Queues => QUEUES,
        Show::Governor => GOVERNOR,
        Show::Events => EVENTS,
        Show::Stats => NAMED,
        Show::Config => SETTINGS,
        Show::LowPriorityBandwidth => BANDWIDTH,
    }
}

/// What there is now.
pub(super) fn show(control: &Control, what: Show) -> Answer {
    let outside = control.outside.as_ref().map(super::super::outside::Outside::told);
    let rows = match (what, &outside) {
        (Show::Rules, _) => rules(control),
        (Show::Users, _) => users(control),
        (Show::Events, _) => events(control),
        (Show::Pools, None) => pools(control),
        (Show::Pools, Some(told)) => outside_pools(control, told),
        (Show::Sessions, None) => sessions(control),
        (Show::Sessions, Some(told)) => told.sessions.iter().map(|session| outside_session(control, session)).collect(),
        (Show::Queues, None) => queues(control),
        (Show::Queues, Some(told)) => outside_queues(told),
        (Show::Governor, None) => governor(control),
        (Show::Governor, Some(told)) => outside_governor(control, told),
        (Show::Stats, None) => stats(control),
        (Show::Stats, Some(told)) => outside_stats(control, told),
        (Show::Config, _) => config(control),
        (Show::LowPriorityBandwidth, _) => {
            vec![vec![literal(&control.terms().state.low_priority_bandwidth().literal())]]
        }
    };
    Answer { columns: columns(what), rows, tag: "SHOW".to_owned(), notices: Vec::new() }
}

fn mb(bps: u64) -> f64 {
    bps as f64 / MB as f64
}

/// A value as people write it, without quotes.
fn literal(literal: &backwater_flow::Literal) -> Value {
    match literal {
        backwater_flow::Literal::Text(text) => Value::text(text),
        other => Value::text(other.to_string()),
    }
}

fn pools(control: &Control) -> Vec<Vec<Value>> {
    let terms = control.terms();
    let mut sent: BTreeMap<&str, u64> = BTreeMap::new();
    let (sessions, now) = (control.sessions(), clock::now());
    for live in sessions.iter() {
        *sent.entry(&live.pool.name).or_default() += live.glimpse(now).down_bytes;
    }
    let row = |(name, pool): (&String, &backwater_flow::Pool)| {
        let live = control.pools.get(name);
        let (active, waiting) = live.turns.counts();
        let to_clients = live.gone_bytes.load(Ordering::Relaxed) + sent.get(name.as_str()).copied().unwrap_or(0);
        let here = sessions.iter().filter(|live| live.pool.name == *name);
        let running = || here.clone().filter(|live| live.doing() == Doing::Running).count();
        // Turns are counted only where they are limited.
        let active = if pool.max_active.is_some() { Value::count(active) } else { Value::count(running()) };
        let connections = Value::count(terms.admission.count(name));
        pool_row(name, pool, [connections, active, Value::count(waiting), Value::count(to_clients)])
    };
    terms.state.pools().iter().map(row).collect()
}

/// What a pool is, and then how many connections it has, how many are active and wait, and the bytes to its clients.
fn pool_row(name: &str, pool: &backwater_flow::Pool, counts: [Value; 4]) -> Vec<Value> {
    let asked = [
        Value::text(name),
        Value::text(pool.priority.word()),
        Value::count(pool.weight),
        Value::text(pool.except_rules.iter().map(|rule| quote(rule)).collect::<Vec<_>>().join(",")),
        Value::from(pool.max_connections),
        Value::from(pool.max_active),
        Value::real(pool.bandwidth_bps.map(mb)),
    ];
    asked.into_iter().chain(counts).collect()
}

fn rules(control: &Control) -> Vec<Vec<Value>> {
    let terms = control.terms();
    let row = |(name, rule): (&String, &Rule)| {
        let acted = control.acted(name);
        vec![
            Value::text(name),
            Value::text(rule.action.word()),
            Value::text(rule.conditions()),
            Value::real(Some(rule.cooldown_s)),
            Value::text(terms.state.pools_with(name).map(quote).collect::<Vec<_>>().join(",")),
            Value::count(acted.began),
            Value::count(acted.escalated),
            Value::count(acted.lifted),
            Value::text(super::super::outside::names(&control.unseen(rule))),
        ]
    };
    terms.state.rules().iter().map(row).collect()
}

fn users(control: &Control) -> Vec<Vec<Value>> {
    control.terms().state.users().iter().map(|(user, pool)| vec![Value::text(user), Value::text(pool)]).collect()
}

fn sessions(control: &Control) -> Vec<Vec<Value>> {
    let now = clock::now();
    let row = |live: &std::sync::Arc<super::super::live::Live>| {
        let (who, glimpse) = (&live.identity, live.glimpse(now));
        vec![
            Value::count(who.id.0),
            Value::text(&who.user),
            Value::text(&who.database),
            Value::text(&who.application),
            Value::text(&who.peer),
            Value::text(&live.pool.name),
            Value::text(if live.is_low() { Priority::Low } else { Priority::High }.word()),
            live.held_by().map_or(Value::Null, Value::Text),
            Value::text(if glimpse.is_waiting { "waiting for its turn" } else { glimpse.doing.word() }),
            Value::count(glimpse.statements),
            Value::real(Some(now.seconds_since(glimpse.since))),
            Value::real(Some(glimpse.waited.seconds())),
            Value::count(glimpse.rows),
            Value::count(glimpse.down_bytes),
            Value::count(glimpse.up_bytes),
            Value::from(live.server_pid()),
            Value::real(Some(now.seconds_since(who.began))),
            Value::Null,
        ]
    };
    control.sessions().iter().map(row).collect()
}

fn queues(control: &Control) -> Vec<Vec<Value>> {
    let terms = control.terms();
    let (rate_bps, waiting) = control.low_class.pressure();
    let in_low = control.sessions().iter().filter(|live| live.is_low()).count();
    let low = vec![
        Value::text("low class"),
        Value::Null,
        Value::count(waiting),
        Value::count(in_low),
        Value::count(rate_bps),
        Value::text("bytes/s"),
    ];
    let limited = terms.state.pools().iter().filter_map(|(name, pool)| Some((name, pool.max_active?)));
    let turns = limited.map(|(name, most)| {
        let (active, waiting) = control.pools.get(name).turns.counts();
        vec![
            Value::text("turns"),
            Value::text(name),
            Value::count(waiting),
            Value::count(active),
            Value::count(most),
            Value::text("statements"),
        ]
    });
    turns.chain([low]).collect()
}

/// Which allowance binds each pool of the low class. (A governor that watches a queue will add its own to these.)
fn governor(control: &Control) -> Vec<Vec<Value>> {
    let row = |(name, binding): (String, Allowance)| {
        let what = binding.told_of(&name);
        vec![Value::text(&name), Value::real(Some(mb(binding.rate_bps))), Value::text(binding.by), Value::text(what)]
    };
    binding(control).into_iter().map(row).collect()
}

fn events(control: &Control) -> Vec<Vec<Value>> {
    let (now, wall) = (clock::now(), Timestamp::now());
    let row = |event: backwater_model::Event| {
        let at = wall.checked_sub((now - event.at).0.microseconds());
        let kind = format!("{:?}", event.kind).to_lowercase();
        vec![at.map_or(Value::Null, Value::Time), Value::text(kind), Value::text(event.message)]
    };
    control.events().into_iter().map(row).collect()
}

fn stats(control: &Control) -> Vec<Vec<Value>> {
    let counters = &control.counters;
    let (sessions, now) = (control.sessions(), clock::now());
    let sum =
        |of: fn(&super::super::live::Glimpse) -> u64| sessions.iter().map(|live| of(&live.glimpse(now))).sum::<u64>();
    let rows = [
        ("sessions", sessions.len() as u64),
        ("sessions_low", sessions.iter().filter(|live| live.is_low()).count() as u64),
        ("sessions_since_start", counters.connections.load(Ordering::Relaxed)),
        ("refused_since_start", counters.refused.load(Ordering::Relaxed)),
        ("cancels_since_start", counters.cancels.load(Ordering::Relaxed)),
        ("moves_since_start", counters.moves.load(Ordering::Relaxed)),
        ("reloads_since_start", counters.reloads.load(Ordering::Relaxed)),
        ("statements_of_living_sessions", sum(|glimpse| glimpse.statements)),
        ("to_clients_bytes_of_living_sessions", sum(|glimpse| glimpse.down_bytes)),
        ("to_servers_bytes_of_living_sessions", sum(|glimpse| glimpse.up_bytes)),
    ];
    rows.into_iter().map(|(name, value)| vec![Value::text(name), Value::count(value)]).collect()
}

/// Pools from outside: what only a proxy counts is null.
fn outside_pools(control: &Control, told: &OutsideTold) -> Vec<Vec<Value>> {
    let terms = control.terms();
    let row = |(name, pool): (&String, &backwater_flow::Pool)| {
        let here = || told.sessions.iter().filter(|session| terms.state.pool_of(&session.user) == name);
        let active = here().filter(|session| session.active).count();
        pool_row(name, pool, [Value::count(here().count()), Value::count(active), Value::Null, Value::Null])
    };
    terms.state.pools().iter().map(row).collect()
}

/// A session from outside, named by its process id.
fn outside_session(control: &Control, session: &OutsideSession) -> Vec<Value> {
    let class = if session.held_by.is_some() { Priority::Low } else { Priority::High };
    let pid = || Value::Whole(i64::from(session.pid));
    vec![
        pid(),
        Value::text(&session.user),
        Value::Null,
        Value::text(&session.application),
        Value::text(&session.client),
        Value::text(control.terms().state.pool_of(&session.user)),
        Value::text(class.word()),
        session.held_by.clone().map_or(Value::Null, Value::Text),
        Value::text(if session.active { Doing::Running } else { Doing::Idle }.word()),
        Value::Null,
        Value::real(session.for_s),
        Value::Null,
        Value::from(session.rows),
        Value::from(session.sent_bytes),
        Value::Null,
        pid(),
        Value::Null,
        Value::from(session.snapshot_age_xids),
    ]
}

/// How many may send what they may send together. Who of them waits only the kernel knows.
fn outside_queues(told: &OutsideTold) -> Vec<Vec<Value>> {
    vec![vec![
        Value::text("low class"),
        Value::Null,
        Value::Null,
        Value::count(told.held()),
        Value::from(told.class_bps),
        Value::text("bytes/s"),
    ]]
}

fn outside_governor(control: &Control, told: &OutsideTold) -> Vec<Vec<Value>> {
    let Some(rate_bps) = told.class_bps else { return Vec::new() };
    let terms = control.terms();
    let low = terms.state.pools().iter().filter(|(_, pool)| pool.priority == Priority::Low);
    let row = |(name, _): (&String, _)| {
        let binding = Allowance { by: LowPriorityBandwidth::NAME.to_owned(), rate_bps };
        let what = binding.told_of(name);
        vec![Value::text(name), Value::real(Some(mb(rate_bps))), Value::text(binding.by), Value::text(what)]
    };
    low.map(row).collect()
}

fn outside_stats(control: &Control, told: &OutsideTold) -> Vec<Vec<Value>> {
    let rows = [
        ("sessions", told.sessions.len() as u64),
        ("sessions_low", told.held() as u64),
        ("reloads_since_start", control.counters.reloads.load(Ordering::Relaxed)),
    ];
    rows.into_iter().map(|(name, value)| vec![Value::text(name), Value::count(value)]).collect()
}

fn joined(all: &[impl ToString]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn config(control: &Control) -> Vec<Vec<Value>> {
    let terms = control.terms();
    let limits = &terms.limits;
    let mut rows = Vec::new();
    if control.outside.is_none() {
        rows.extend([
            ("listen", joined(&terms.listen)),
            ("server", terms.server.to_string()),
            ("max_connections", limits.max_connections.to_string()),
            ("login_timeout_s", limits.login_timeout_s.to_string()),
            ("connect_timeout_s", limits.connect_timeout_s.to_string()),
            ("drain_timeout_s", limits.drain_timeout_s.to_string()),
            ("idle_timeout_s", limits.idle_timeout_s.to_string()),
            ("workers", limits.workers.to_string()),
        ]);
        let listeners: BTreeMap<String, &String> =
            terms.listeners.iter().map(|(address, pool)| (address.to_string(), pool)).collect();
        let listeners = listeners.iter().map(|(address, pool)| format!("{address} = {}", quote(pool)));
        let word = |is_set: bool| if is_set { "on" } else { "off" };
        rows.extend([
            ("listeners", listeners.collect::<Vec<_>>().join(", ")),
            ("proxy_protocol_from", joined(&terms.announcing)),
            ("tls", word(terms.tls.is_some()).to_owned()),
            ("tls.required", word(terms.tls.as_ref().is_some_and(|tls| tls.required)).to_owned()),
            ("server_tls", terms.server_tls.as_ref().map_or("disable", |tls| tls.mode).to_owned()),
            ("server_account.user", terms.server_account.as_ref().map_or_else(String::new, |own| own.user.clone())),
        ]);
    }
    let state_file = terms.state_file.as_ref().map(|path| path.display().to_string());
    rows.push(("state_file", state_file.unwrap_or_default()));
    if let Some(admin) = &terms.admin {
        rows.push(("admin.database", admin.database.clone()));
        rows.push(("admin.listen", joined(&admin.listen)));
        rows.push(("admin.from", joined(&admin.from)));
        rows.push(("admin.users", admin.users.keys().cloned().collect::<Vec<_>>().join(", ")));
    }
    let bandwidth = literal(&terms.state.low_priority_bandwidth().literal());
    let rows = rows.into_iter().map(|(name, value)| vec![Value::text(name), Value::Text(value)]);
    rows.chain([vec![Value::text(LowPriorityBandwidth::NAME), bandwidth]]).collect()
}
