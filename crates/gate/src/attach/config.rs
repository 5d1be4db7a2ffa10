//! Rules, pools and users from a file: the proxy's own form, so that one file serves both ways of enforcing it.

use crate::GateError;
use backwater_flow::{Literal, Pool, State, StateForm};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::Path;

type Attributes = BTreeMap<String, BTreeMap<String, Literal>>;

/// The file as it is written. What only a proxy needs may stand in it, and is the proxy's to check.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    low_priority_bandwidth: Option<Literal>,
    #[serde(default)]
    rules: Attributes,
    #[serde(default)]
    pools: Attributes,
    #[serde(default)]
    users: BTreeMap<String, String>,
    #[serde(rename = "listen")]
    _listen: Option<IgnoredAny>,
    #[serde(rename = "server")]
    _server: Option<IgnoredAny>,
    #[serde(rename = "proxy_protocol_from")]
    _proxy_protocol_from: Option<IgnoredAny>,
    #[serde(rename = "tls")]
    _tls: Option<IgnoredAny>,
    #[serde(rename = "server_tls")]
    _server_tls: Option<IgnoredAny>,
    #[serde(rename = "server_account")]
    _server_account: Option<IgnoredAny>,
    #[serde(rename = "limits")]
    _limits: Option<IgnoredAny>,
    #[serde(rename = "state_file")]
    _state_file: Option<IgnoredAny>,
    #[serde(rename = "admin")]
    _admin: Option<IgnoredAny>,
}

/// Reads the rules, pools and users of a file. `path` is for messages.
///
/// # Errors
/// The text is no such file, or says what cannot be.
pub fn parse_state(text: &str, path: &Path) -> Result<State, GateError> {
    let refuse = |source| GateError::Parse { path: path.to_owned(), source: Box::new(source) };
    let Written { low_priority_bandwidth, rules, pools, users, .. } = toml::from_str(text).map_err(refuse)?;
    let form = StateForm { low_priority_bandwidth, rules, pools, users };
    State::try_from(form).map_err(|source| GateError::State { path: path.to_owned(), source: Box::new(source) })
}

/// The same of a file.
///
/// # Errors
/// It cannot be read either.
pub fn load_state(path: &Path) -> Result<State, GateError> {
    let text = std::fs::read_to_string(path).map_err(|source| GateError::Read { path: path.to_owned(), source })?;
    parse_state(&text, path)
}

/// What a state asks for that cannot be enforced from outside, in words. The proxy can.
pub fn not_enforced(state: &State) -> Vec<String> {
    let of = |(name, pool): (&String, &Pool)| {
        let asked = [
            ("max_connections", pool.max_connections.is_some()),
            ("max_active", pool.max_active.is_some()),
            ("bandwidth", pool.bandwidth_bps.is_some()),
            ("weight", pool.weight != Pool::default().weight),
        ];
        let words: Vec<&str> = asked.into_iter().filter(|(_, asked)| *asked).map(|(word, _)| word).collect();
        (!words.is_empty()).then(|| format!("{} of pool {name}", words.join(", ")))
    };
    state.pools().iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_take_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let text = "listen = ['127.0.0.1:6432']\nserver = '127.0.0.1:5432'\nproxy_protocol_from = ['10.0.0.0/8']\n\
                    state_file = 'state.json'\n[limits]\nworkers = 2\n[admin]\nusers = { dba = 'x' }\n[server_tls]\n\
                    mode = 'disable'\n[pools.batch]\npriority = 'low'\n[users]\netl = 'batch'\n";
        let path = dir.path().join("proxy.toml");
        let proxys = crate::proxy::ProxyConfig::parse(text, &path).unwrap();
        assert_eq!(parse_state(text, &path).unwrap(), proxys.state);
    }

    #[test]
    fn a_proxys_file_serves_and_a_typo_is_named() {
        let text = "listen = 'a:1'\nserver = 'b:2'\nlow_priority_bandwidth = '20MB'\n[limits]\nmax_connections = 5\n\
                    [rules.r]\nelapsedtime = 60\naction = 'penalty'\n[pools.reports]\nexcept_rule = 'r'\nmax_active = 4\n\
                    [users]\nbi = 'reports'\n";
        let state = parse_state(text, Path::new("flow.toml")).unwrap();
        assert_eq!((state.pool_of("bi"), state.rules_of("reports").count()), ("reports", 1));
        assert_eq!(not_enforced(&state), ["max_active of pool reports"]);
        let wrong = |text: &str| parse_state(text, Path::new("flow.toml")).unwrap_err().to_string();
        let typo = wrong("[rule.r]\nelapsedtime = 60\n");
        assert!(typo.contains("flow.toml") && typo.contains("rule") && typo.contains("line 1"), "{typo}");
        assert!(wrong("[users]\nu = 'nowhere'").contains("there is no resource pool nowhere"));
    }
}
