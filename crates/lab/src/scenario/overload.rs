//! What fills a link with low-priority results, and what holds them back: of a scenario, and of one arm.

use backwater_model::{Bytes, ParamValue};
use serde::Deserialize;

/// What is done about the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadMode {
    /// Nothing.
    #[default]
    None,
    /// The proxy demotes it, and nothing bounds what the low class has on its way.
    DemotedOnly,
    /// The proxy demotes it, and holds the low class to a rate.
    ProxyFixed,
    /// The proxy demotes it, and finds the rate itself.
    ProxyAuto,
    /// Attach mode paces its sockets, together at a rate.
    AttachFixed,
    /// Attach mode paces its sockets, at the rate that it finds itself.
    AttachAuto,
    /// The proxy cancels it.
    Abort,
}

impl OverloadMode {
    /// As the outcome's `mode` and the scenario spell it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            OverloadMode::None => "none",
            OverloadMode::DemotedOnly => "demoted-only",
            OverloadMode::ProxyFixed => "proxy-fixed",
            OverloadMode::ProxyAuto => "proxy-auto",
            OverloadMode::AttachFixed => "attach-fixed",
            OverloadMode::AttachAuto => "attach-auto",
            OverloadMode::Abort => "abort",
        }
    }

    /// In words for people.
    fn words(self) -> &'static str {
        match self {
            OverloadMode::None => "no control",
            OverloadMode::DemotedOnly => "demoted by the proxy, without a bucket",
            OverloadMode::ProxyFixed => "demoted by the proxy, at a fixed rate",
            OverloadMode::ProxyAuto => "demoted by the proxy, at the rate that it finds",
            OverloadMode::AttachFixed => "paced from outside, at a fixed rate",
            OverloadMode::AttachAuto => "paced from outside, at the rate that it finds",
            OverloadMode::Abort => "cancelled by the proxy",
        }
    }

    /// Whether clients come by the proxy.
    pub(crate) fn is_proxied(self) -> bool {
        matches!(
            self,
            OverloadMode::DemotedOnly | OverloadMode::ProxyFixed | OverloadMode::ProxyAuto | OverloadMode::Abort
        )
    }

    /// Whether the server's own sockets are paced.
    pub(crate) fn is_attached(self) -> bool {
        matches!(self, OverloadMode::AttachFixed | OverloadMode::AttachAuto)
    }
}

/// An urgent query beside large results, on a link that is narrow.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OverloadPart {
    /// What is done about the background.
    pub mode: OverloadMode,
    /// Large results at once.
    pub background_streams: u32,
    /// How long the urgent query takes alone, on the server; it is made to.
    pub urgent_ms: f64,
    /// What the low class may send a second where its rate is fixed.
    pub low_bytes_per_s: Bytes,
    /// The rule: a statement that has run for so many seconds,
    pub rule_elapsed_s: f64,
    /// and sends more than so many MB a second (1,048,576 bytes; mean of five seconds), is low.
    pub rule_mb_per_s: f64,
    /// Seconds of everything before figures are taken: rules need time to see, and rates to settle.
    pub settle_s: f64,
    /// How TCP answers a full link, in the network's own namespaces.
    pub congestion: Congestion,
    /// The most that may stand in a socket's send buffer; none for the host's own bounds.
    pub send_buffer: Option<Bytes>,
    /// Whether attach mode may let what it paces send in small bursts.
    pub small_bursts: bool,
}

impl Default for OverloadPart {
    fn default() -> Self {
        OverloadPart {
            mode: OverloadMode::None,
            background_streams: 0,
            urgent_ms: 5.0,
            low_bytes_per_s: Bytes(21 << 20),
            rule_elapsed_s: 1.0,
            rule_mb_per_s: 0.25,
            settle_s: 4.0,
            congestion: Congestion::Host,
            send_buffer: None,
            small_bursts: false,
        }
    }
}

impl OverloadPart {
    /// The first thing that is wrong with it.
    pub(super) fn check(&self) -> Result<(), (String, String, &'static str)> {
        let wrong = |field: &str, value: String, why| Err((format!("load.overload.{field}"), value, why));
        if self.background_streams > 100 {
            return wrong("background_streams", self.background_streams.to_string(), "give at most 100");
        }
        if !(0.5..=1_000.0).contains(&self.urgent_ms) {
            return wrong("urgent_ms", self.urgent_ms.to_string(), "give half a millisecond to a second");
        }
        if self.low_bytes_per_s.0 < 64 << 10 {
            return wrong("low_bytes_per_s", self.low_bytes_per_s.to_string(), "give at least 64KB");
        }
        if !(0.001..=3_600.0).contains(&self.rule_elapsed_s) {
            return wrong("rule_elapsed_s", self.rule_elapsed_s.to_string(), "give a millisecond to an hour");
        }
        if !(0.001..=1e6).contains(&self.rule_mb_per_s) {
            return wrong("rule_mb_per_s", self.rule_mb_per_s.to_string(), "give 0.001 to a million");
        }
        if !(0.0..=600.0).contains(&self.settle_s) {
            return wrong("settle_s", self.settle_s.to_string(), "give 0 seconds to ten minutes");
        }
        if self.small_bursts && !self.mode.is_attached() {
            return wrong("small_bursts", "true".to_owned(), "give it with mode attach-fixed or attach-auto");
        }
        Ok(())
    }
}

/// How TCP answers a full link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// As the host does.
    #[default]
    Host,
    /// It fills the link's queue until packets are lost, as most hosts' does. Of those that do, the one that any network
    /// namespace may use.
    Reno,
}

impl Congestion {
    /// As the kernel spells it; none for the host's own.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Congestion::Host => None,
            Congestion::Reno => Some("reno"),
        }
    }
}

/// What of it is other in one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OverloadArm {
    /// What is done about the background.
    pub mode: Option<OverloadMode>,
    /// Large results at once.
    pub background_streams: Option<u32>,
    /// The most that may stand in a socket's send buffer (`net.ipv4.tcp_wmem` of the network's own namespaces, all three
    /// values); the host's own where it is left out.
    pub send_buffer: Option<Bytes>,
    /// How TCP answers a full link (`net.ipv4.tcp_congestion_control` there); the scenario's where it is left out.
    pub congestion: Option<Congestion>,
    /// What the low class may send a second where its rate is fixed; the scenario's where it is left out. A link of another speed
    /// needs another.
    pub low_bytes_per_s: Option<Bytes>,
    /// How many MB a second a statement must send for the rule, likewise.
    pub rule_mb_per_s: Option<f64>,
    /// Whether attach mode may let what it paces send in small bursts (`net.ipv4.tcp_tso_rtt_log` of the server's namespace).
    pub small_bursts: Option<bool>,
}

impl OverloadArm {
    /// The arm's.
    pub(super) fn of(&self, part: OverloadPart) -> OverloadPart {
        OverloadPart {
            mode: self.mode.unwrap_or(part.mode),
            background_streams: self.background_streams.unwrap_or(part.background_streams),
            congestion: self.congestion.unwrap_or(part.congestion),
            send_buffer: self.send_buffer.or(part.send_buffer),
            low_bytes_per_s: self.low_bytes_per_s.unwrap_or(part.low_bytes_per_s),
            rule_mb_per_s: self.rule_mb_per_s.unwrap_or(part.rule_mb_per_s),
            small_bursts: self.small_bursts.unwrap_or(part.small_bursts),
            ..part
        }
    }

    /// In words for people.
    pub(super) fn words(&self) -> Vec<String> {
        let streams = self.background_streams.map(|streams| match streams {
            0 => "no background".to_owned(),
            1 => "1 large result beside it".to_owned(),
            many => format!("{many} large results beside it"),
        });
        let buffer = self.send_buffer.map(|bytes| format!("send buffers of {bytes}"));
        let word = |congestion: Congestion| format!("TCP by {}", congestion.word().unwrap_or("the host's own control"));
        let congestion = self.congestion.map(word);
        let mode = self.mode.map(|mode| mode.words().to_owned());
        let low = self.low_bytes_per_s.map(|bytes| format!("{bytes} a second for the low class"));
        let rule = self.rule_mb_per_s.map(|rate| format!("the rule at {rate} MB/s"));
        let bursts = self.small_bursts.filter(|small| *small).map(|_| "in small bursts".to_owned());
        [streams, mode, bursts, buffer, congestion, low, rule].into_iter().flatten().collect()
    }

    /// For the outcome's `params`.
    pub(super) fn params(&self) -> Vec<(&'static str, ParamValue)> {
        let number = |value: f64| ParamValue::Number(value);
        let all = [
            ("mode", self.mode.map(|mode| ParamValue::Text(mode.word().to_owned()))),
            ("background_streams", self.background_streams.map(|streams| number(f64::from(streams)))),
            (
                "congestion",
                self.congestion.map(|congestion| ParamValue::Text(congestion.word().unwrap_or("host").to_owned())),
            ),
            ("send_buffer_bytes", self.send_buffer.map(|bytes| number(bytes.0 as f64))),
            ("low_bytes_per_s", self.low_bytes_per_s.map(|bytes| number(bytes.0 as f64))),
            ("rule_mb_per_s", self.rule_mb_per_s.map(number)),
            ("bursts", self.small_bursts.filter(|small| *small).map(|_| ParamValue::Text("small".to_owned()))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::OverloadMode;
    use crate::scenario::{BUILT_IN, Scenario};

    #[test]
    fn every_arm_says_its_mode_and_its_streams() {
        let scenario = Scenario::load("net-overload").unwrap();
        for arm in &scenario.arms {
            let params = arm.params(None);
            assert!(params.contains_key("mode") && params.contains_key("background_streams"), "{}", arm.name);
            assert!(arm.network.bytes_per_s.is_some(), "{}", arm.name);
            // What the low class may have is given by the link: nearly all of it, and the same share of each.
            let part = arm.load.overload.of(scenario.load.overload);
            let share = part.low_bytes_per_s.0 as f64 / arm.network.bytes_per_s.unwrap().0 as f64;
            let fixed = matches!(part.mode, OverloadMode::ProxyFixed | OverloadMode::AttachFixed);
            assert!(!fixed || (0.85..0.9).contains(&share), "{}: {share}", arm.name);
        }
    }

    #[test]
    fn the_load_needs_its_network_and_sane_values() {
        let text = BUILT_IN.iter().find(|(name, _)| *name == "net-overload").unwrap().1;
        for (from, to, word) in [
            ("background_streams = 10", "background_streams = 1000", "at most 100"),
            ("urgent_ms = 5", "urgent_ms = 0", "half a millisecond"),
            ("\n[network]", "\n[other]", "unknown field"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Scenario::parse(&text.replacen(from, to, 1), "x.toml").unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
