//! A scenario's page, as the program itself prints it.

use crate::scenario::{Arm, DirtyLimit, Scenario};
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
        &format!("Arms ({} repeats each, in random order)", scenario.run.repeats),
        scenario.arms.iter().map(arm).collect(),
    );
    let quick = format!("{}; {} s of load", scenario.quick.arms.join(", "), scenario.quick.seconds);
    list("With --quick", vec![quick]);
    text
}

fn settings(scenario: &Scenario) -> Vec<String> {
    let all = scenario.server.settings.iter().map(|(name, value)| format!("{name} = {value}"));
    let disk = format!("data on a volume of {} ({}), pg_wal elsewhere", scenario.disk.size, scenario.disk.fs);
    std::iter::once(disk).chain(all).collect()
}

fn load(scenario: &Scenario) -> Vec<String> {
    let load = &scenario.load;
    let rate = load.rate_per_s.map_or("as many transactions as the server takes".to_owned(), |rate| {
        format!("{rate:.0} transactions a second asked for, latency from the intended start")
    });
    vec![
        format!("{} clients, {rate}", load.clients),
        format!("scale {} at fillfactor {}", load.scale, load.fillfactor),
        format!("{} s of warm-up without limits, {} s measured, then the drain", load.warmup_s, load.seconds),
    ]
}

fn arm(arm: &Arm) -> String {
    let limit = match arm.dirty_limit {
        DirtyLimit::Bytes(bytes) => format!("dirty limit {bytes}"),
        DirtyLimit::Advised => "the dirty limit that `advise` gives".to_owned(),
        DirtyLimit::System => "the system's own dirty limit".to_owned(),
    };
    let iops = arm.write_iops.map(|iops| format!(", {iops} writes a second"));
    let settings: String = arm.settings.iter().map(|(name, value)| format!(", {name} = {value}")).collect();
    let expected = match (arm.expected.rule.as_str(), &arm.expected.cause) {
        ("none", _) => "no finding".to_owned(),
        ("any", _) => "whatever is found".to_owned(),
        (rule, Some(cause)) => format!("{rule} ({cause})"),
        (rule, None) => rule.to_owned(),
    };
    let published = arm.published.as_ref().map(|row| format!(" [published: {row}]")).unwrap_or_default();
    format!("{}: {limit}{}{settings}; expects {expected}{published}", arm.name, iops.unwrap_or_default())
}
