//! What the proxy is told: a TOML file, or just two addresses.
//!
//! ```toml
//! listen = ["127.0.0.1:6432"]
//! server = "127.0.0.1:5432"
//! low_priority_bandwidth = "64MB"
//!
//! [limits]
//! max_connections = 500
//!
//! [pools.batch]
//! priority = "low"
//!
//! [users]
//! etl = "batch"
//!
//! [admin]                          # the console: psql -h 127.0.0.1 -p 6432 backwater
//! users = { dba = "a password, or SCRAM-SHA-256$…" }
//! ```

use super::Address;
use super::address::Addresses;
use super::console::Admin;
use super::console::scram::Verifier;
use super::limits::Limits;
use super::server_view::ServerAccount;
use super::sources::Network;
use super::state_file;
use super::tls::{ClientTls, ServerTls, WrittenClientTls, WrittenServerTls};
use crate::GateError;
use backwater_flow::rule::Action;
use backwater_flow::{Pool, Priority, State, StateError, StateForm};
use serde::{Deserialize, de};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Everything that the proxy is told.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Where clients come.
    pub listen: Vec<Address>,
    /// Pools of sessions that come by some of these, where neither their user nor their connection names one.
    pub listeners: HashMap<Address, String>,
    /// The server that they all get to.
    pub server: Address,
    /// Load balancers: connections from there begin with a PROXY header, which says whose they are. From elsewhere such a
    /// header is refused.
    pub proxy_protocol_from: Vec<Network>,
    /// Encryption of clients that is ended here; None: it is passed through to the server.
    pub tls: Option<ClientTls>,
    /// Encryption of the way to the server, where it is not the client's own that is passed through; None: none.
    pub server_tls: Option<ServerTls>,
    /// Who the proxy is to the server; None: nobody, and what only the server can tell is not known.
    pub server_account: Option<ServerAccount>,
    /// Bounds.
    pub limits: Limits,
    /// Rules, pools and users: the configuration's own, and what the console changed since.
    pub state: State,
    /// The configuration's own.
    pub configured: StateForm,
    /// Where the console's changes are kept; None: until the proxy ends.
    pub state_file: Option<PathBuf>,
    /// What stood there when it was read.
    pub(super) state_seen: state_file::Text,
    /// The console; None where there is none.
    pub admin: Option<Admin>,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    listen: Addresses,
    #[serde(default)]
    listeners: HashMap<Address, String>,
    server: Option<Address>,
    #[serde(default)]
    proxy_protocol_from: Vec<Network>,
    #[serde(default)]
    tls: Option<WrittenClientTls>,
    #[serde(default)]
    server_tls: Option<WrittenServerTls>,
    #[serde(default)]
    server_account: Option<ServerAccount>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    state_file: Option<PathBuf>,
    #[serde(default)]
    admin: Option<WrittenAdmin>,
    #[serde(default)]
    low_priority_bandwidth: Option<backwater_flow::Literal>,
    #[serde(default)]
    rules: Attributes,
    #[serde(default)]
    pools: Attributes,
    #[serde(default)]
    users: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAdmin {
    #[serde(default = "console_database")]
    database: String,
    #[serde(default)]
    listen: Addresses,
    #[serde(default = "Network::loopback")]
    from: Vec<Network>,
    /// Names with passwords, plain or as verifiers.
    users: std::collections::BTreeMap<String, String>,
}

fn console_database() -> String {
    "backwater".to_owned()
}

impl TryFrom<WrittenAdmin> for Admin {
    type Error = GateError;

    fn try_from(written: WrittenAdmin) -> Result<Self, GateError> {
        let verified = |(user, password): (String, String)| {
            let verifier = Some(password).filter(|password| !password.is_empty()).and_then(|it| Verifier::of(&it));
            verifier.map(|verifier| (user.clone(), verifier)).ok_or(GateError::Password(user))
        };
        if written.users.is_empty() {
            return Err(GateError::NobodysConsole);
        }
        let users = written.users.into_iter().map(verified).collect::<Result<_, _>>()?;
        let WrittenAdmin { database, listen, from, .. } = written;
        Ok(Admin { database, listen: listen.0, from, users })
    }
}

type Attributes = std::collections::BTreeMap<String, std::collections::BTreeMap<String, backwater_flow::Literal>>;

impl Written {
    fn parse(text: &str, path: &Path) -> Result<Written, GateError> {
        toml::from_str(text).map_err(GateError::parse(path, text))
    }

    /// What both ways of enforcing need: rules, pools and users with what the console changed, and the console.
    fn governing(self, server: Address, path: &Path) -> Result<ProxyConfig, GateError> {
        let Written { listen, listeners, proxy_protocol_from, server_account, limits, state_file, admin, .. } = self;
        let Written { low_priority_bandwidth, rules, pools, users, .. } = self;
        let configured = StateForm { low_priority_bandwidth, rules, pools, users };
        // By itself first: what is wrong there is not the state file's fault.
        let wrong = |source| GateError::State { path: path.to_owned(), source: Box::new(source) };
        let state = State::try_from(configured.clone()).map_err(wrong)?;
        let state_file = state_file.map(|file| path.parent().map_or(file.clone(), |dir| dir.join(&file)));
        let config = ProxyConfig {
            listen: listen.0,
            listeners,
            server,
            proxy_protocol_from,
            tls: None,
            server_tls: None,
            server_account,
            limits,
            state,
            configured,
            state_file,
            state_seen: None,
            admin: admin.map(Admin::try_from).transpose().map_err(|error| error.of(path))?,
        };
        config.restored()
    }
}

impl ProxyConfig {
    /// A proxy from one address to another, with nothing held.
    pub fn plain(listen: Address, server: Address) -> Self {
        let (limits, state, configured) = (Limits::default(), State::default(), StateForm::default());
        let (listen, proxy_protocol_from) = (vec![listen], Vec::new());
        ProxyConfig {
            listen,
            listeners: HashMap::new(),
            server,
            proxy_protocol_from,
            tls: None,
            server_tls: None,
            server_account: None,
            limits,
            state,
            configured,
            state_file: None,
            state_seen: None,
            admin: None,
        }
    }

    /// Whether what the console changes can be kept: told at the start, and not when somebody changes something.
    ///
    /// # Errors
    /// It cannot be.
    pub(super) fn may_be_kept(&self) -> Result<(), GateError> {
        match (&self.state_file, &self.admin) {
            (Some(file), Some(_)) => state_file::may_be_kept(file),
            _ => Ok(()),
        }
    }

    /// Reads a file, and what the console changed and kept beside it.
    pub fn load(path: &Path) -> Result<Self, GateError> {
        let text = std::fs::read_to_string(path).map_err(|source| GateError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file; its path is for messages, and where a relative `state_file` is.
    pub fn parse(text: &str, path: &Path) -> Result<Self, GateError> {
        let mut written = Written::parse(text, path)?;
        let missing =
            || GateError::Parse { path: path.to_owned(), source: Box::new(de::Error::missing_field("server")) };
        let server = written.server.take().ok_or_else(missing)?;
        let tls = written.tls.take().map(|tls| ClientTls::read(&tls, path)).transpose()?;
        let server_tls = written.server_tls.take();
        let server_tls = server_tls.map(|tls| ServerTls::read(&tls, &server, path)).transpose()?.flatten();
        let config = ProxyConfig { tls, server_tls, ..written.governing(server, path)? };
        config.check().map_err(|error| error.of(path))?;
        Ok(config)
    }

    /// Reads a file for attach mode, which enforces its rules, pools and users from outside: what only a proxy needs may stand
    /// in it, is the proxy's to check, and has no effect.
    ///
    /// # Errors
    /// It cannot be read, or says what cannot be.
    pub fn load_outside(path: &Path) -> Result<Self, GateError> {
        let text = std::fs::read_to_string(path).map_err(|source| GateError::Read { path: path.to_owned(), source })?;
        Self::parse_outside(&text, path)
    }

    /// The same of a text.
    ///
    /// # Errors
    /// It says what cannot be.
    pub fn parse_outside(text: &str, path: &Path) -> Result<Self, GateError> {
        let written = Written::parse(text, path)?;
        // Attach mode runs where the server runs, and never connects to it by this address.
        let config = written.governing(Address::Unix(PathBuf::new()), path)?;
        let config = ProxyConfig { server_account: None, limits: Limits::default(), ..config };
        enforceable(&config.state).map_err(|error| error.of(path))?;
        Ok(config)
    }

    /// The same with what the console changed, as its file says now.
    pub(super) fn restored(&self) -> Result<ProxyConfig, GateError> {
        let mut config = self.clone();
        if let Some(file) = &self.state_file {
            let wrong = |source: StateError| {
                let (path, is_gone) = (file.clone(), matches!(source, StateError::Missing { .. }));
                let source = Box::new(source);
                if is_gone { GateError::Kept { path, source } } else { GateError::State { path, source } }
            };
            let (form, seen) = state_file::restored(file, &self.configured)?;
            config.state = State::try_from(form).map_err(wrong)?;
            config.state_seen = seen;
        }
        Ok(config)
    }

    /// Has the state file tell of this configuration ([`state_file::renew`]). Returns what stands there then.
    pub(super) fn renew_state_file(&self) -> Result<state_file::Text, GateError> {
        let mut seen = self.state_seen.clone();
        if let Some(file) = &self.state_file {
            state_file::renew(file, &mut seen, &self.configured, &self.state)?;
        }
        Ok(seen)
    }

    /// Roles that a change was about which nobody kept ([`state_file::under_way`]).
    pub(super) fn roles_under_way(&self) -> Vec<String> {
        self.state_file.as_ref().map(|file| state_file::under_way(file, &self.state_seen)).unwrap_or_default()
    }

    /// What is asked for and cannot be done is refused, not ignored.
    pub(super) fn check(&self) -> Result<(), GateError> {
        if self.listen.is_empty() {
            return Err(GateError::NoListener);
        }
        self.limits.check()?;
        self.check_addresses()?;
        if let Some((address, pool)) = self.listeners.iter().find(|(address, _)| !self.listen.contains(address)) {
            let (address, pool) = (address.to_string(), pool.clone());
            return Err(GateError::Listener { address, pool, why: "it is not among those of `listen`" });
        }
        listeners_have_pools(&self.listeners, &self.state)?;
        enforceable(&self.state)
    }

    /// No address can be had twice, and who relays to himself does so for ever.
    fn check_addresses(&self) -> Result<(), GateError> {
        let consoles = self.admin.iter().flat_map(|admin| &admin.listen);
        let mut all: Vec<&Address> =
            self.listen.iter().chain(consoles).filter(|address| !address.is_any_port()).collect();
        if all.contains(&&self.server) {
            return Err(GateError::OwnServer(self.server.to_string()));
        }
        all.sort();
        match all.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(GateError::ListenedTwice(pair[0].to_string())),
            None => Ok(()),
        }
    }
}

/// Whether all of a state can be carried out. The console asks too, before it changes anything.
pub(super) fn enforceable(state: &State) -> Result<(), GateError> {
    let held = |pool: &Pool| pool.priority == Priority::High && pool.bandwidth_bps.is_some();
    match state.pools().iter().find(|(_, pool)| held(pool)) {
        Some((pool, _)) => Err(GateError::UrgentBandwidth(pool.clone())),
        None => Ok(()),
    }
}

/// Whether the pools of listeners are there. The console asks too, before it drops one.
pub(super) fn listeners_have_pools(listeners: &HashMap<Address, String>, state: &State) -> Result<(), GateError> {
    match listeners.iter().find(|(_, pool)| !state.pools().contains_key(*pool)) {
        None => Ok(()),
        Some((address, pool)) => {
            let (address, pool) = (address.to_string(), pool.clone());
            Err(GateError::Listener { address, pool, why: "there is no such resource pool" })
        }
    }
}

/// What is to be said of a rule that nothing can be over.
pub(super) fn idle_rule(state: &State, rule: &str) -> Option<String> {
    let is_idle = !state.rules().get(rule)?.thresholds.values().any(Option::is_some);
    let name = backwater_flow::quote(rule);
    is_idle.then(|| format!("rule {name} never acts: no attribute of it is set, so that nothing is over it"))
}

/// What is to be said of a pool's weight that shares nothing: only what is of the low class is shared.
pub(super) fn idle_weight(state: &State, pool: &str) -> Option<String> {
    let of_pool = state.pools().get(pool)?;
    let holds = state.rules_of(pool).any(|(_, rule)| rule.action == Action::Penalty);
    let is_idle = of_pool.weight != Pool::default().weight && of_pool.priority == Priority::High && !holds;
    let name = backwater_flow::quote(pool);
    is_idle.then(|| {
        format!("weight of pool {name} shares nothing: its priority is high, and no rule of it has the action penalty")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> Result<ProxyConfig, GateError> {
        ProxyConfig::parse(text, Path::new("proxy.toml"))
    }

    #[test]
    fn a_file_says_where_and_who() {
        let config = parse(
            "listen = '127.0.0.1:6432'\nserver = '127.0.0.1:5432'\nlow_priority_bandwidth = '64MB'\n\
             [limits]\nmax_connections = 5\n[pools.batch]\npriority = 'low'\n[users]\netl = 'batch'\n",
        )
        .unwrap();
        assert_eq!(config.limits.max_connections, 5);
        assert_eq!(config.state.pool_of("etl"), "batch");
    }

    #[test]
    fn a_typo_is_an_error_with_its_place() {
        let wrong = |text: &str| parse(&format!("listen = 'a:1'\nserver = 'b:2'\n{text}")).unwrap_err().to_string();
        let typo = wrong("[limits]\nmax_conections = 5");
        assert!(typo.contains("proxy.toml") && typo.contains("max_conections") && typo.contains("line 4"), "{typo}");
        assert!(wrong("[users]\nu = 'nowhere'").contains("there is no resource pool nowhere"));
        assert!(wrong("low_priority_bandwidth = 'much'").contains("'auto'"));
        assert!(parse("listen = 'a:1'\nserver = 'b:2'\nlow_priority_bandwidth = 'auto'").is_ok());
        assert!(wrong("[pools.p]\nbandwidth = 5").contains("proxy.toml: resource pool p: "));
        assert!(wrong("[pools.p]\nexcept_rule = 'r'").contains("there is no rule r"));
        assert!(parse("listen = 'a'\nserver = 'b:2'").is_err());
        assert!(parse("listen = 'a:1'").unwrap_err().to_string().contains("missing field `server`"));
        assert!(
            parse("listen = []\nserver = 'b:2'").unwrap_err().to_string().contains("proxy.toml: there is no address")
        );
        let listening = |listen: &str| parse(&format!("listen = {listen}\nserver = 'b:2'")).unwrap_err().to_string();
        assert!(listening("'rel.sock'").contains("line 1, column 10: no address: it must be HOST:PORT"));
        assert!(listening("5").contains("expected an address or a list of addresses"));
        assert!(listening("['a:1', 'a:1']").contains("a:1 stands there twice"));
        assert!(listening("'b:2'").contains("b:2 is the proxy's own address"));
        assert!(wrong("[admin]\nlisten = 'a:1'\nusers = { dba = 'x' }").contains("a:1 stands there twice"));
        assert!(wrong("[admin]\nusers = {}").contains("nobody could log in"));
        assert!(wrong("[limits]\nlogin_timeout_s = 0.0").contains("proxy.toml: limits.login_timeout_s: "));
        assert!(wrong("[limits]\nmax_connections = -5").contains("expected a whole number from 0 to 4294967295"));
        let kept = |file: &str| {
            let admin = "[admin]\nusers = { dba = 'x' }";
            let config = parse(&format!("listen = 'a:1'\nserver = 'b:2'\nstate_file = '{file}'\n{admin}")).unwrap();
            config.may_be_kept().map_err(|error| error.to_string())
        };
        assert!(kept("/nonexistent/state").unwrap_err().contains("/nonexistent/state"));
        assert!(kept("").unwrap_err().contains("names no file"));
        assert_eq!(kept("/tmp/state.toml"), Ok(()));
    }

    #[test]
    fn an_error_says_where_and_what_and_repeats_no_password() {
        let places = [
            ("[server_account]\nuser = 'u'\npasword = \"s3cret\"", "line 5, column 1: unknown field `pasword`"),
            ("[admin]\nuser = { dba = \"s3cret\" }", "line 4, column 1: unknown field `user`"),
            ("[admin]\nusers = \"s3cret, expected x\"", "line 4, column 9: invalid type: string, expected a table"),
            ("[server_account]\nuser = 'u'\npassword = s3cret", "line 5"),
            ("[server_account]\nuser = 'u'\npassword = 's3cret", "line 5"),
            ("[server_account]\nuser = 'u'\npassword: 's3cret'", "line 5"),
            ("[server_account]\nuser = 'u'\npassword = 5318008", "line 5, column 12: invalid type: integer"),
            ("[admin]\nusers = { 'é' = 5318008 }", "line 4, column 17: invalid type: integer, expected a string"),
            ("server_account = 'password=s3cret'", "line 3, column 18: invalid type: string"),
            ("server = 'postgres://u:s3cret@db/x'", "line 2, column 10: no address: it must be HOST:PORT"),
            ("[listeners]\n'postgres://u:s3cret@db/x' = 'p'", "no address: it must be HOST:PORT"),
            ("proxy_protocol_from = ['u:s3cret@db']", "line 3, column 23: no network: it must be"),
        ];
        for (text, why) in places {
            let server = if text.starts_with("server = ") { "" } else { "server = 'b:2'\n" };
            let text = format!("listen = 'a:1'\n{server}{text}\n");
            for parse in [ProxyConfig::parse, ProxyConfig::parse_outside] {
                let error = parse(&text, Path::new("proxy.toml")).unwrap_err();
                let told = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
                assert!(!told.contains("s3cret") && !told.contains("5318008"), "{told}");
                assert!(told.contains("proxy.toml") && told.contains(why), "{told}");
            }
        }
    }

    #[test]
    fn a_weight_that_shares_nothing_is_told() {
        let told = |text: &str| {
            let config = parse(&format!("listen = 'a:1'\nserver = 'b:2'\n{text}")).unwrap();
            idle_weight(&config.state, "p")
        };
        assert!(told("[pools.p]\nweight = 5").unwrap().contains("weight of pool p shares nothing"));
        assert_eq!(told("[pools.p]\nmax_active = 5"), None);
        assert_eq!(told("[pools.p]\nweight = 5\npriority = 'low'"), None);
        let with_rule = |action: &str| {
            told(&format!("[rules.r]\nelapsedtime = 5\naction = '{action}'\n[pools.p]\nweight = 5\nexcept_rule = 'r'"))
        };
        assert_eq!(with_rule("penalty"), None, "the sessions that it holds are shared with");
        assert!(with_rule("abort").is_some());
    }

    #[test]
    fn attach_mode_takes_a_proxys_file_and_what_it_leaves_out() {
        let dir = tempfile::tempdir().unwrap();
        let text = "listen = ['127.0.0.1:6432']\nserver = '127.0.0.1:5432'\nproxy_protocol_from = ['10.0.0.0/8']\n\
                    state_file = 'state.json'\n[limits]\nworkers = 2\n[admin]\nusers = { dba = 'x' }\n[server_tls]\n\
                    mode = 'disable'\n[pools.batch]\npriority = 'low'\n[users]\netl = 'batch'\n";
        let path = dir.path().join("proxy.toml");
        let proxys = ProxyConfig::parse(text, &path).unwrap();
        assert_eq!(ProxyConfig::parse_outside(text, &path).unwrap().state, proxys.state);
        let outside = |text: &str| ProxyConfig::parse_outside(text, Path::new("flow.toml"));
        // Or nobody could log in to its console.
        let limits = outside("[limits]\nlogin_timeout_s = 0.0\n").unwrap().limits;
        assert_eq!(limits, Limits::default(), "those are the proxy's");
        let state = outside(
            "low_priority_bandwidth = '20MB'\n[tls]\ncertificate = 'nowhere'\nkey = 'nowhere'\n[rules.r]\n\
             elapsedtime = 60\naction = 'penalty'\n[pools.reports]\nexcept_rule = 'r'\nmax_active = 4\n[users]\n\
             bi = 'reports'\n",
        );
        let state = state.unwrap().state;
        assert_eq!((state.pool_of("bi"), state.rules_of("reports").count()), ("reports", 1));
        assert_eq!(super::super::not_enforced(&state), ["max_active of pool reports"]);
        let wrong = |text: &str| outside(text).unwrap_err().to_string();
        let typo = wrong("[rule.r]\nelapsedtime = 60\n");
        assert!(typo.contains("flow.toml") && typo.contains("rule") && typo.contains("line 1"), "{typo}");
        assert!(wrong("[users]\nu = 'nowhere'").contains("there is no resource pool nowhere"));
    }
}
