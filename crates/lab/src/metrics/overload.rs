//! What an urgent query beside large results came to, and over the whole run how much worse it was than alone and how
//! much better than without control.
//!
//! MB are 1,000,000 bytes here, as links are told; the link's are those on the wire, the background's those of its rows.

use crate::overload::Watched;
use crate::scenario::OverloadPart;
use crate::workloads::LoadResult;
use backwater_model::{ArmOutcome, Outcome, ParamValue};
use std::collections::BTreeMap;

const MB: f64 = 1e6;

/// The figures of one repeat by their fixed names.
pub(crate) fn figures(
    part: &OverloadPart,
    urgent: &LoadResult,
    watched: &Watched,
    acted: u64,
) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            figures.insert(name.to_owned(), value);
        }
    };
    if urgent.latency.count() > 0 {
        put("urgent_mean_ms", Some(urgent.latency.mean_ms()));
        put("urgent_p50_ms", Some(urgent.latency_ms(0.50)));
        put("urgent_p99_ms", Some(urgent.latency_ms(0.99)));
    }
    let per_s = |bytes: f64| (watched.seconds > 0.0).then(|| bytes / watched.seconds / MB);
    put("background_mb_per_s", per_s(watched.background_bytes as f64));
    put("link_mb_per_s", watched.link_bytes.and_then(|bytes| per_s(bytes as f64)));
    put("sendq_bytes", watched.queues.mean_bytes());
    put("sendq_peak_bytes", watched.queues.peak_bytes());
    if part.mode.is_proxied() || part.mode.is_attached() {
        put("statements_held", Some(acted as f64));
    }
    figures
}

/// What an arm is beside the others.
fn mode(arm: &ArmOutcome) -> Option<&str> {
    match arm.params.get("mode") {
        Some(ParamValue::Text(mode)) => Some(mode),
        _ => None,
    }
}

fn number(arm: &ArmOutcome, name: &str) -> Option<f64> {
    match arm.params.get(name) {
        Some(ParamValue::Number(value)) => Some(*value),
        _ => None,
    }
}

/// MB a second that the link was seen to carry, and that it can.
fn link(arm: &ArmOutcome) -> Option<f64> {
    arm.metrics.get("link_mb_per_s").copied()
}

fn limit(arm: &ArmOutcome) -> Option<f64> {
    number(arm, "network_bytes_per_s").map(|limit| limit / MB)
}

/// What is set of a control.
const CONTROL: [&str; 4] = ["mode", "low_bytes_per_s", "rule_mb_per_s", "bursts"];

/// What arms have in common that are compared with one without control: all that is set but the control.
fn setting(arm: &ArmOutcome) -> BTreeMap<String, ParamValue> {
    let others = arm.params.iter().filter(|(name, _)| !CONTROL.contains(&name.as_str()));
    others.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The arm without a background on a link of this speed: its mean, and what it takes of the link.
#[derive(Clone, Copy)]
struct Alone {
    limit: Option<f64>,
    mean: f64,
    link: Option<f64>,
}

/// Adds to each arm how it compares with the urgent query alone on such a link (`ratio_to_alone`, `added_ms`), with as many streams
/// and no control (`times_better`), how much of the link was used (`link_used_ratio`), and of what the urgent query alone leaves of
/// it (`left_used_ratio`).
pub(crate) fn conclude(outcome: &mut Outcome) {
    let mean = |arm: &ArmOutcome| arm.metrics.get("urgent_mean_ms").copied();
    let plain: Vec<_> = outcome
        .arms
        .iter()
        .filter(|arm| mode(arm) == Some("none"))
        .filter_map(|arm| Some((setting(arm), mean(arm)?)))
        .collect();
    let alones: Vec<Alone> = outcome
        .arms
        .iter()
        .filter(|arm| mode(arm) == Some("none") && number(arm, "background_streams") == Some(0.0))
        .filter_map(|arm| Some(Alone { limit: limit(arm), mean: mean(arm)?, link: link(arm) }))
        .collect();
    for arm in &mut outcome.arms {
        let own = mean(arm);
        let own_setting = setting(arm);
        let without = plain.iter().find(|(other, _)| *other == own_setting).map(|(_, mean)| *mean);
        let (link, limit) = (link(arm), limit(arm));
        let alone = alones.iter().find(|alone| alone.limit == limit).copied();
        let is_held = mode(arm) != Some("none");
        let compared = |with: fn(f64, f64) -> f64| Some(with(own?, alone?.mean));
        let left = alone.and_then(|alone| Some((link? - alone.link?) / (limit? - alone.link?)));
        let streams = number(arm, "background_streams").unwrap_or_default();
        let figures = [
            ("ratio_to_alone", compared(|own, alone| own / alone)),
            ("added_ms", compared(|own, alone| own - alone)),
            ("times_better", own.zip(without).filter(|_| is_held).map(|(own, without)| without / own)),
            ("link_used_ratio", link.zip(limit).map(|(link, limit)| link / limit)),
            ("left_used_ratio", left.filter(|_| streams > 0.0)),
        ];
        for (name, value) in figures {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                // Without a range: it is of medians, not of single runs.
                arm.metrics.insert(name.to_owned(), value);
            }
        }
    }
}

/// What makes an arm's figures doubtful: streams that the rule did not reach.
pub(crate) fn doubt(part: &OverloadPart, numbers: &BTreeMap<String, f64>) -> Option<String> {
    let held = numbers.get("statements_held")?;
    (*held < f64::from(part.background_streams)).then(|| {
        format!(
            "the rule reached {held:.0} of {} large results; a longer load.overload.settle_s gives it time",
            part.background_streams
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(mode: &str, streams: f64, mean: f64) -> ArmOutcome {
        let mut arm = ArmOutcome { name: format!("{mode}-{streams}"), ..ArmOutcome::default() };
        arm.params.insert("mode".to_owned(), ParamValue::Text(mode.to_owned()));
        arm.params.insert("background_streams".to_owned(), ParamValue::Number(streams));
        arm.params.insert("network_bytes_per_s".to_owned(), ParamValue::Number(25e6));
        arm.metrics.insert("urgent_mean_ms".to_owned(), mean);
        arm.metrics.insert("link_mb_per_s".to_owned(), 20.0);
        arm
    }

    #[test]
    fn arms_are_held_beside_alone_and_beside_no_control() {
        let mut alone = arm("none", 0.0, 5.0);
        alone.metrics.insert("link_mb_per_s".to_owned(), 1.0);
        let mut fast = arm("none", 0.0, 2.0);
        fast.params.insert("network_bytes_per_s".to_owned(), ParamValue::Number(125e6));
        let mut held = arm("proxy-fixed", 10.0, 3.0);
        held.params.insert("network_bytes_per_s".to_owned(), ParamValue::Number(125e6));
        let arms = vec![alone, arm("none", 10.0, 280.0), arm("proxy-fixed", 10.0, 7.0), fast, held];
        let mut outcome = Outcome { arms, ..Outcome::default() };
        conclude(&mut outcome);
        let of = |place: usize, name: &str| outcome.arms[place].metrics.get(name).copied();
        assert_eq!((of(0, "ratio_to_alone"), of(1, "ratio_to_alone")), (Some(1.0), Some(56.0)));
        assert_eq!((of(2, "times_better"), of(1, "times_better")), (Some(40.0), None));
        assert_eq!((of(2, "added_ms"), of(2, "link_used_ratio")), (Some(2.0), Some(0.8)));
        assert_eq!((of(0, "left_used_ratio"), of(2, "left_used_ratio")), (None, Some(19.0 / 24.0)));
        assert_eq!(of(4, "ratio_to_alone"), Some(1.5), "beside the one on a link of its own speed");
    }

    #[test]
    fn a_rule_that_did_not_reach_all_is_a_doubt() {
        let part = OverloadPart { background_streams: 10, ..OverloadPart::default() };
        let held = |count: f64| BTreeMap::from([("statements_held".to_owned(), count)]);
        assert!(doubt(&part, &held(9.0)).is_some_and(|text| text.contains("9 of 10")));
        assert!(doubt(&part, &held(10.0)).is_none() && doubt(&part, &BTreeMap::new()).is_none());
    }
}
