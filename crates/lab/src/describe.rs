//! A scenario's page, as the program itself prints it.

use crate::scenario::{Arm, DirtyLimit, DiskPart, LoadKind, Scenario, ServerKind};
use std::fmt::Write;

/// What a scenario does, shows and does not show, as text.
pub fn describe(scenario: &Scenario) -> String {
    let mut text = format!("{} (case {}): {}\n", scenario.name, scenario.case, scenario.title);
    let mut list = |title: &str, lines: Vec<String>| {
        // Writing into a String cannot fail.
        let _infallible = write!(text, "\n{title}\n");
        for line in lines {
            let _infallible = writeln!(text, "  - {line}");
        }
    };
    list("It shows", scenario.shows.clone());
    list("It does not show", scenario.does_not_show.clone());
    list("Server", settings(scenario));
    list("Load", load(scenario));
    list(
        &format!("Arms ({} repeats each, in random order{})", scenario.run.repeats, last(scenario)),
        scenario.arms.iter().map(arm).collect(),
    );
    let much = match scenario.load.kind {
        LoadKind::CommitBatches => format!("at most {} rows", most_rows(scenario)),
        _ => format!("{} s of load", scenario.quick.seconds),
    };
    let quick = format!("{}; {much}", scenario.quick.arms.join(", "));
    list("With --quick", vec![quick]);
    if let Some(search) = &scenario.search {
        let title = format!("Knobs that `lab search` turns from {}, beside {}", search.from, search.against);
        list(&title, search.knobs.iter().map(|knob| format!("{}: {}", knob.name, knob.values.join(", "))).collect());
    }
    text
}

/// What is said of the order where some arms wait for others' recordings.
fn last(scenario: &Scenario) -> &'static str {
    let advised = scenario.arms.iter().any(|arm| arm.advised_from.is_some());
    if advised { ", those that are advised after those that they follow" } else { "" }
}

/// Rows of the longest arm of the short form.
fn most_rows(scenario: &Scenario) -> u64 {
    let quick = scenario.arms.iter().filter(|arm| scenario.quick.arms.contains(&arm.name));
    quick.map(|arm| arm.load_of(scenario, Some(&scenario.quick)).batches.rows).max().unwrap_or_default()
}

fn settings(scenario: &Scenario) -> Vec<String> {
    let all = scenario.server.settings.iter().map(|(name, value)| format!("{name} = {value}"));
    // The engine's own word for what PostgreSQL calls WAL.
    let log = if scenario.server.kind == ServerKind::WiredTiger { "journal" } else { "pg_wal" };
    let own = scenario.disk.as_ref().map(|part| disk(part).replace("pg_wal", log));
    let standby = scenario.standby.iter().flat_map(|standby| {
        let slot = if standby.slot { "with a slot on the server" } else { "without a slot" };
        let disk = standby.disk.as_ref().map(disk).map(|disk| format!("; {disk}")).unwrap_or_default();
        let settings = standby.settings.iter().map(|(name, value)| format!("standby: {name} = {value}"));
        std::iter::once(format!("a standby {slot}{disk}")).chain(settings)
    });
    let network =
        scenario.network.is_some().then(|| "each in a network namespace of its own, joined by a cable".to_owned());
    own.into_iter().chain(all).chain(standby).chain(network).collect()
}

fn disk(disk: &DiskPart) -> String {
    let wal = if disk.with_wal { "data and pg_wal" } else { "data" };
    let elsewhere = if disk.with_wal { "" } else { ", pg_wal elsewhere" };
    format!("{wal} on a volume of {} ({}){elsewhere}", disk.size, disk.fs)
}

fn load(scenario: &Scenario) -> Vec<String> {
    let load = &scenario.load;
    if load.kind == LoadKind::CommitBatches {
        let rows = load.batches.rows;
        return vec![format!(
            "{rows} rows inserted one by one, with a commit after every so many; it ends when they are in"
        )];
    }
    if load.kind == LoadKind::WiredTiger {
        return engine(scenario);
    }
    if load.kind == LoadKind::NetOverload {
        return overload(scenario);
    }
    let rate = load.rate_per_s.map_or("as many transactions as the server takes".to_owned(), |rate| {
        let plural = if rate == 1.0 { "" } else { "s" };
        format!("{rate} transaction{plural} a second asked for, latency from the intended start")
    });
    let clients = if load.clients == 1 { "1 client".to_owned() } else { format!("{} clients", load.clients) };
    let scale = load.scale.map(|scale| format!("scale {scale} at fillfactor {}", load.fillfactor));
    let storm = (load.kind == LoadKind::WalStorm).then(|| {
        let (columns, rows) = (load.storm.columns, load.storm.rows);
        format!("each makes a table of {columns} columns, puts {rows} rows into it and drops it, with synchronous_commit off")
    });
    let then = if load.drain_limit_s > 0.0 { ", then the drain" } else { "" };
    let times = format!("{} s of warm-up without limits, {} s measured{then}", load.warmup_s, load.seconds);
    [Some(format!("{clients}, {rate}")), scale, storm, Some(times)].into_iter().flatten().collect()
}

fn overload(scenario: &Scenario) -> Vec<String> {
    let (load, part) = (&scenario.load, &scenario.load.overload);
    vec![
        format!(
            "an urgent query that takes {} ms alone, {} a second from {} clients, latency from the intended start",
            part.urgent_ms,
            load.rate_per_s.unwrap_or_default(),
            load.clients
        ),
        "large results beside it, each a join of some 200 GB that is read as fast as it comes".to_owned(),
        format!(
            "a rule that acts on statements of over {} s that send over {} MB/s; a fixed rate is {} a second",
            part.rule_elapsed_s, part.rule_mb_per_s, part.low_bytes_per_s
        ),
        format!("{} s until rules and rates have settled, {} s measured", part.settle_s, load.seconds),
    ]
}

fn engine(scenario: &Scenario) -> Vec<String> {
    let (load, engine) = (&scenario.load, &scenario.load.engine);
    let done = if engine.journalled { "done when the journal is synced" } else { "done when the commit returns" };
    let (rate, clients) = (load.rate_per_s.unwrap_or_default(), load.clients);
    vec![
        format!("{}, documents of {} bytes, {done}", engine.kind.word(), engine.document_bytes),
        format!("{rate} operations a second asked for on {clients} threads, latency from the intended start"),
        format!("{} s of warm-up without limits, {} s measured, then the drain", load.warmup_s, load.seconds),
    ]
}

fn arm(arm: &Arm) -> String {
    let limit = match arm.dirty_limit {
        DirtyLimit::Bytes(bytes) => Some(format!("dirty limit {bytes}")),
        DirtyLimit::Advised => Some("the dirty limit that `advise` gives".to_owned()),
        DirtyLimit::System => None,
    };
    let advised = arm.advised_from.as_ref().filter(|_| limit.is_none());
    let advised = advised.map(|source| format!("what `advise` ranks first for {source}, set over that arm's settings"));
    let set: Vec<String> = limit.into_iter().chain(advised).chain(arm.words()).collect();
    let set = if set.is_empty() { "no limit".to_owned() } else { set.join(", ") };
    let expected = match (arm.expected.rule.as_str(), &arm.expected.cause) {
        ("none", _) => "no finding".to_owned(),
        ("any", _) => "whatever is found".to_owned(),
        (rule, Some(cause)) => format!("{rule} ({cause})"),
        (rule, None) => rule.to_owned(),
    };
    let among = if arm.expected.anywhere { " among what is found" } else { "" };
    let engine = arm.expected.engine_before.map(|major| format!(" of an engine before {major}")).unwrap_or_default();
    let published = arm.published.as_ref().map(|row| format!(" [published: {row}]")).unwrap_or_default();
    let aim = arm.aim.as_ref().map(|aim| {
        let ratio = aim.latency_p99_ratio * 100.0;
        format!("; aims at {ratio:.0} % of the latency p99 of {}, at most {} s stalled", aim.against, aim.stall_s)
    });
    let aim = aim.unwrap_or_default();
    format!("{}: {set}; expects {expected}{among}{engine}{aim}{published}", arm.name)
}
