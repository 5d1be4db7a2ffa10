//! The lab's metrics for people: their order, names and units.

use backwater_model::{ArmOutcome, ParamValue, Unit};

/// A metric with a fixed name, its label, in the order in which people ask.
const KNOWN: &[(&str, &str)] = &[
    ("tps_mean", "TPS, mean"),
    ("tps_peak", "TPS, peak"),
    ("tps_after", "TPS after the cliff"),
    ("tps_least", "TPS, least"),
    ("ops_per_s", "operations a second"),
    ("latency_mean_ms", "latency, mean"),
    ("latency_p50_ms", "latency p50"),
    ("latency_p99_ms", "latency p99"),
    ("latency_p999_ms", "latency p99.9"),
    ("latency_max_ms", "latency, longest"),
    ("stall_s", "stalled"),
    ("commit_latency_mean_ms", "latency until commit, mean"),
    ("commit_latency_p99_ms", "latency until commit, p99"),
    ("commit_latency_max_ms", "latency until commit, longest"),
    ("app_evict_share", "share of time evicting"),
    ("app_evictions", "pages evicted by application threads"),
    ("disk_cv", "disk, variation of seconds"),
    ("disk_written_bytes_per_s", "disk, written"),
    ("cache_dirty_peak_bytes", "dirty in the cache, peak"),
    ("cache_dirty_peak_ratio", "dirty share of the cache, peak"),
    ("checkpoint_max_s", "checkpoint, longest"),
    ("service_p99_ms", "service p99"),
    ("time_to_cliff_s", "time to the cliff"),
    ("predicted_time_to_cliff_s", "time to the cliff, predicted"),
    ("burst_bytes", "dirty in the cache when a checkpoint begins"),
    ("drain_s", "drain"),
    ("predicted_drain_s", "drain, predicted"),
    ("dirty_peak_bytes", "dirty, peak"),
    ("residual_bytes", "dirty after the drain"),
    ("checkpoint_sync_max_s", "checkpoint sync, longest"),
    ("checkpoint_unfinished_s", "checkpoint still running at the end, for"),
    ("elapsed_s", "elapsed"),
    ("predicted_elapsed_s", "elapsed, predicted from the other sizes"),
    ("rows_per_s", "rows a second"),
    ("commits", "commits"),
    ("rounds", "times the rows went in"),
    ("commit_latency_ms", "time of a commit"),
    ("predicted_commit_latency_ms", "wait of a commit, by Little's law"),
    ("commit_wait_share", "share of time in commits"),
    ("on_cpu_share", "share of time on CPU"),
    ("computed_share", "share of time computed, by the kernel's accounts"),
    ("in_kernel_share", "share of time asleep without a wait event"),
    ("contested_share", "commit waits in which the kernel sees it run"),
    ("with_client_share", "share of time with the client"),
    ("wal_per_commit_bytes", "WAL a commit"),
    ("wal_generated_kb_per_s", "WAL generated"),
    ("sent_delay_kb", "sent delay, peak"),
    ("sent_delay_last_kb", "sent delay, last"),
    ("write_delay_kb", "write delay, peak"),
    ("write_delay_last_kb", "write delay, last"),
    ("flush_delay_kb", "flush delay, peak"),
    ("flush_delay_last_kb", "flush delay, last"),
    ("replay_delay_kb", "replay delay, peak"),
    ("replay_delay_last_kb", "replay delay, last"),
    ("retention_left_s", "left until WAL may be removed"),
    ("predicted_retention_left_s", "left until WAL may be removed, predicted"),
    ("removal_left_s", "left until WAL is removed"),
    ("predicted_removal_left_s", "left until WAL is removed, predicted"),
    ("checkpoint_interval_s", "from one checkpoint to the next"),
    ("retention_prediction_error_ratio", "when WAL may be removed, most off by"),
    ("removal_off_checkpoints", "when WAL is removed, most checkpoints off by"),
    ("removal_off_completions", "when WAL is removed, most checkpoints as they came off by"),
    ("removal_off_s", "when WAL is removed, most seconds off by"),
    ("heartbeat_p99_ms", "heartbeat p99"),
    ("heartbeat_missed", "heartbeats missed"),
    ("heartbeat_unanswered", "heartbeats without an answer"),
    ("heartbeat_told_after_s", "heartbeat told to be at risk after"),
    ("heartbeat_missed_after_s", "first heartbeat missed after"),
    ("heartbeat_lost_after_s", "third heartbeat in a row missed after"),
    ("urgent_mean_ms", "urgent query, mean"),
    ("urgent_p50_ms", "urgent query, p50"),
    ("urgent_p99_ms", "urgent query, p99"),
    ("ratio_to_alone", "urgent query, times alone"),
    ("added_ms", "urgent query, added"),
    ("times_better", "times better than without control"),
    ("background_mb_per_s", "background"),
    ("link_mb_per_s", "on the wire"),
    ("link_used_ratio", "of the link"),
    ("left_used_ratio", "of what the urgent query leaves"),
    ("sendq_bytes", "in send queues, mean"),
    ("sendq_peak_bytes", "in send queues, peak"),
    ("statements_held", "statements a rule acted on"),
    ("failed", "failed"),
    ("idle_cpu_ratio", "idle CPU"),
];

/// How names end, and the unit that this means; the longer ends first.
const ENDS: [(&str, Unit); 9] = [
    ("_bytes_per_s", Unit::BytesPerSecond),
    ("_per_s", Unit::PerSecond),
    ("_bytes", Unit::Bytes),
    ("_ratio", Unit::Ratio),
    ("_share", Unit::Ratio),
    ("_ms", Unit::Milliseconds),
    ("_us", Unit::Microseconds),
    ("_s", Unit::Seconds),
    ("_iops", Unit::PerSecond),
];

/// What a predicted metric's name begins with.
pub(crate) const PREDICTED: &str = "predicted_";

/// Every known metric's name, in order.
pub(crate) fn known() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(name, _)| *name)
}

/// What people call a metric; its name with spaces where it is not a known one.
pub(crate) fn label(name: &str) -> String {
    let known = KNOWN.iter().find(|(known, _)| *known == name).map(|(_, label)| (*label).to_owned());
    let without_unit = || ENDS.iter().find_map(|(end, unit)| name.strip_suffix(end).filter(|_| *unit != Unit::Ratio));
    known.unwrap_or_else(|| without_unit().unwrap_or(name).replace('_', " "))
}

/// Names sorted: the known ones in their order, then the others by name.
pub(crate) fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let place = |name: &str| known().position(|known| known == name).unwrap_or(KNOWN.len());
    let mut list: Vec<&str> = names.collect();
    list.sort_by_key(|name| (place(name), *name));
    list.dedup();
    list
}

/// The unit that the end of a name says.
pub(crate) fn unit(name: &str) -> Unit {
    if name.starts_with("tps_") {
        return Unit::Count;
    }
    ENDS.iter().find(|(end, _)| name.ends_with(end)).map_or(Unit::Count, |(_, unit)| *unit)
}

/// A metric's value as a person reads it. Published KB stay KB: 1,000 bytes in rates, 1,024 in delays; MB of a link are
/// 1,000,000 bytes.
pub(crate) fn show(name: &str, value: f64) -> String {
    if name.ends_with("_kb_per_s") {
        format!("{} KB/s", Unit::Count.show(value.round()))
    } else if name.ends_with("_kb") {
        format!("{} KB", Unit::Count.show(value.round()))
    } else if name.ends_with("_mb_per_s") {
        format!("{value:.1} MB/s")
    } else if matches!(name, "ratio_to_alone" | "times_better") {
        format!("{value:.2}")
    } else {
        unit(name).show(value)
    }
}

/// The median of a metric with its spread over the repeats: `2,040 (1,990 – 2,101)`, and in how many it was measured
/// where not in all; none where it was in none.
pub(crate) fn shown(arm: &ArmOutcome, name: &str) -> Option<String> {
    let median = show(name, *arm.metrics.get(name)?);
    let runs = arm.measured_in.get(name).copied();
    let of = runs.map(|runs| format!("{runs} of {} runs", arm.repeats));
    let spread = arm.spread.get(name).filter(|_| runs.unwrap_or(arm.repeats) > 1);
    let spread = spread.map(|[least, most]| span(&median, &show(name, *least), &show(name, *most)));
    let told: Vec<String> = spread.into_iter().chain(of).collect();
    Some(if told.is_empty() { median } else { format!("{median} ({})", told.join("; ")) })
}

/// `11.0 – 13.0` where both have the median's unit, else `950 ms – 1.20 s`.
pub(crate) fn span(median: &str, least: &str, most: &str) -> String {
    // The number, and the unit behind it; a length in minutes and seconds has digits in what would be the unit.
    let of = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',' | '-'))?;
        let (number, unit) = text.split_at(end);
        (!unit.contains(|c: char| c.is_ascii_digit())).then(|| (number.to_owned(), unit.to_owned()))
    };
    match (of(median), of(least), of(most)) {
        (Some((_, unit)), Some((low, low_unit)), Some((high, high_unit))) if unit == low_unit && unit == high_unit => {
            format!("{low} – {high}")
        }
        _ => format!("{least} – {most}"),
    }
}

/// A parameter's value as a person reads it, by the unit that its name says.
pub(crate) fn param(name: &str, value: &ParamValue) -> String {
    match value {
        ParamValue::Flag(flag) => if *flag { "on" } else { "off" }.to_owned(),
        ParamValue::Number(number) if name.ends_with("_iops") => format!("{} IOPS", Unit::Count.show(*number)),
        ParamValue::Number(number) => unit(name).show(*number),
        ParamValue::Text(text) => text.clone(),
    }
}

/// How far `after` is from `before`: `+12.5 %`; none where `before` is zero.
pub(crate) fn change(before: f64, after: f64) -> Option<String> {
    let share = (after - before) / before.abs();
    let sign = if share >= 0.0 { "+" } else { "−" };
    share.is_finite().then(|| format!("{sign}{}", Unit::Ratio.show(share.abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_their_units() {
        assert_eq!(unit("latency_p99_ms"), Unit::Milliseconds);
        assert_eq!(unit("write_bytes_per_s"), Unit::BytesPerSecond);
        assert_eq!(unit("drain_s"), Unit::Seconds);
        assert_eq!(unit("tps_mean"), Unit::Count);
        assert_eq!(unit("failed"), Unit::Count);
    }

    #[test]
    fn known_metrics_come_first_and_in_order() {
        assert_eq!(
            sorted(["zeal", "drain_s", "tps_mean", "drain_s", "ardour"].into_iter()),
            ["tps_mean", "drain_s", "ardour", "zeal"]
        );
        assert_eq!(label("cache_hit_ratio"), "cache hit ratio");
        assert_eq!(label("dirty_limit_bytes"), "dirty limit");
        assert_eq!(param("write_iops", &ParamValue::Number(1_500.0)), "1500 IOPS");
    }

    #[test]
    fn spreads_name_their_unit_once() {
        assert_eq!(span("12.0 s", "11.0 s", "13.0 s"), "11.0 – 13.0");
        assert_eq!(span("3050/s", "2930/s", "3170/s"), "2930 – 3170");
        assert_eq!(span("1.00 s", "950 ms", "1.20 s"), "950 ms – 1.20 s");
        assert_eq!(span("2 min 05 s", "2 min 00 s", "2 min 09 s"), "2 min 00 s – 2 min 09 s");
    }

    #[test]
    fn changes_have_a_sign() {
        assert_eq!(change(10.0, 12.5).as_deref(), Some("+25.0 %"));
        assert_eq!(change(10.0, 7.5).as_deref(), Some("−25.0 %"));
        assert_eq!(change(0.0, 1.0), None);
    }
}
