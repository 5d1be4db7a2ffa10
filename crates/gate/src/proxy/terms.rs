//! The terms in force: what the configuration and the console say. A change puts others in their place; whoever holds the old ones sees
//! nothing of it.

use super::admission::Admission;
use super::console::Admin;
use super::server_view::ServerAccount;
use super::sources::Network;
use super::tls::{ClientTls, ServerTls};
use super::{Address, Limits, ProxyConfig};
use backwater_flow::{State, StateForm};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// What is in force.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) server: Address,
    /// The server runs on this host.
    pub(super) server_is_here: bool,
    pub(super) limits: Limits,
    pub(super) state: State,
    pub(super) admission: Admission,
    pub(super) admin: Option<Arc<Admin>>,
    pub(super) listen: Vec<Address>,
    pub(super) listeners: HashMap<Address, String>,
    pub(super) tls: Option<ClientTls>,
    pub(super) server_tls: Option<ServerTls>,
    pub(super) server_account: Option<ServerAccount>,
    /// Who says whose connections he passes on.
    pub(super) announcing: Vec<Network>,
    pub(super) state_file: Option<PathBuf>,
    /// The rules, pools and users of the configuration itself.
    pub(super) configured: StateForm,
}

impl Terms {
    /// The terms of a configuration. Places that are taken stay taken.
    pub(super) fn new(config: &ProxyConfig, before: Option<&Admission>) -> Arc<Terms> {
        let most = config.limits.max_connections;
        let admission = before.map_or_else(|| Admission::new(most), Admission::clone);
        admission.limit(most);
        Arc::new(Terms {
            server: config.server.clone(),
            server_is_here: config.server.is_here(),
            limits: config.limits.clone(),
            state: config.state.clone(),
            admission,
            admin: config.admin.clone().map(Arc::new),
            listen: config.listen.clone(),
            listeners: config.listeners.clone(),
            tls: config.tls.clone(),
            server_tls: config.server_tls.clone(),
            server_account: config.server_account.clone(),
            announcing: config.proxy_protocol_from.clone(),
            state_file: config.state_file.clone(),
            configured: config.configured.clone(),
        })
    }
}
