//! Changes of what is in force: statements of the console, and a configuration that is read again. One at a time, all or
//! nothing, kept before it is in force, and told.

use super::config::{enforceable, idle_rule, idle_weight, listeners_have_pools};
use super::control::Control;
use super::live::{Doing, Live};
use super::orders::Made;
use super::outside::{self, Unseen};
use super::server_view;
use super::state_file;
use super::terms::Terms;
use super::{Address, Admin, ProxyConfig};
use crate::GateError;
use backwater_flow::rule::{Attribute, Rule};
use backwater_flow::statement::Statement;
use backwater_flow::{State, StateError};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Why a change was not made. Nothing is different, but for roles that the server had made by then.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChangeError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error("the change cannot be kept in {path}: {source}{stays}")]
    Keep { path: PathBuf, source: io::Error, stays: String },
    #[error("the server refuses role {user}: {why}")]
    Role { user: String, why: String },
}

impl ChangeError {
    /// The server had made these roles by then.
    fn after(mut self, made: &[String]) -> ChangeError {
        if let ChangeError::Keep { stays, .. } = &mut self {
            *stays = what_stays(made);
        }
        self
    }
}

/// What the server has done of a change that is not made.
fn what_stays(made: &[String]) -> String {
    if made.is_empty() {
        return String::new();
    }
    format!(" (what the server did before stays: role {})", made.join(", role "))
}

/// What the server did for statements that say something of roles.
#[derive(Debug, Default)]
struct Roles {
    notices: Vec<String>,
    /// Those that it made or changed.
    made: Vec<String>,
    /// The state file holds a note of them.
    is_noted: bool,
}

impl Control {
    /// Does what these statements say, for everybody and at once. Returns notices.
    pub(super) async fn change(
        self: &Arc<Self>,
        who: &str,
        statements: &[Statement],
    ) -> Result<Vec<String>, ChangeError> {
        let mut seen = self.changing.lock().await;
        let terms = self.terms();
        let mut state = terms.state.clone();
        let mut changes = Vec::new();
        for statement in statements {
            // A password is the server's alone, and changed all the same.
            let is_for_server = terms.server_account.is_some() && password_of(statement).is_some();
            if state.apply(statement)? || is_for_server {
                changes.push(statement.to_string());
            }
        }
        self.enforceable(&state)?;
        let mut notices = self.notices_of(statements, &state);
        let mut roles = Roles::default();
        if terms.server_account.is_some() {
            roles = self.make_noted_roles(&terms, &mut seen, statements).await?;
            notices.append(&mut roles.notices);
        } else if statements.iter().any(|statement| password_of(statement).is_some()) {
            notices.push("the password was ignored: roles and their passwords are the server's".to_owned());
        }
        // A note is over when what it was for is kept, also where that is the server's alone.
        if changes.is_empty() && !roles.is_noted {
            return Ok(notices);
        }
        match &terms.state_file {
            Some(path) => {
                let kept = self.keep(path, &mut seen, &state, Vec::new()).await;
                kept.map_err(|error| error.after(&roles.made))?;
            }
            None => notices.push(format!(
                "this lasts until {} ends or reads its configuration again: that names no state_file",
                if self.outside.is_some() { "attach mode" } else { "the proxy" }
            )),
        }
        self.govern(state);
        for change in changes {
            self.changed(&format!("{who} changed: {change}"), &[("who", who), ("statement", &change)]);
        }
        Ok(notices)
    }

    /// Whether all of a state can be carried out here.
    fn enforceable(&self, state: &State) -> Result<(), GateError> {
        enforceable(state)?;
        match &self.outside {
            Some(outside) => outside.enforceable(state),
            None => listeners_have_pools(&self.terms().listeners, state),
        }
    }

    /// What whoever gave these statements should know.
    fn notices_of(&self, statements: &[Statement], state: &State) -> Vec<String> {
        let rule_of = |statement: &Statement| match statement {
            Statement::CreateRule { name, .. } | Statement::AlterRule { name, .. } => {
                let unseen = self.unseen(state.rules().get(name)?);
                let told =
                    |(attribute, why): &(Attribute, String)| format!("{attribute} cannot be measured here: {why}");
                let name_shown = backwater_flow::quote(name);
                let never = unseen.iter().map(told).collect::<Vec<_>>().join("; ");
                (!unseen.is_empty())
                    .then(|| format!("rule {name_shown} will not match: {never}"))
                    .or_else(|| idle_rule(state, name))
            }
            Statement::DropUser { user } => Some(format!(
                "user {} is bound to no pool any more; the role itself is the server's, and stays",
                backwater_flow::quote(user)
            )),
            _ => None,
        };
        let mut notices: Vec<String> = statements.iter().filter_map(rule_of).collect();
        match &self.outside {
            Some(_) => notices.extend(outside::notices(statements, state)),
            None => {
                notices.extend(statements.iter().filter_map(|statement| self.stays(statement, state)));
                let pools = pools_of(statements, state);
                notices.extend(pools.iter().filter_map(|pool| idle_weight(state, pool)));
                notices.extend(pools.iter().filter_map(|pool| self.hidden(state, pool)));
            }
        }
        notices
    }

    /// Sessions whose messages nobody sees, in a pool that asks for more than to hold bytes.
    fn hidden(&self, state: &State, pool: &str) -> Option<String> {
        let all = self.sessions();
        let in_pool = all.iter().filter(|live| live.pool.name == pool && live.doing() == Doing::Hidden);
        let hidden: Vec<&Arc<Live>> = in_pool.collect();
        // What those do that are encrypted through to it the server tells, but not what they send.
        let asked = self.server_view.version().is_some();
        let told = asked && hidden.iter().all(|live| live.is_encrypted_through());
        let rows = |rule: &Rule| rule.thresholds.get(&Attribute::Rows).is_some_and(Option::is_some);
        let blind = state.rules_of(pool).filter(|(_, rule)| !told || rows(rule));
        let limited = state.pools().get(pool).is_some_and(|pool| pool.max_active.is_some());
        let what = limited.then(|| "max_active".to_owned()).into_iter();
        let what: Vec<String> =
            what.chain(blind.map(|(name, _)| format!("rule {}", backwater_flow::quote(name)))).collect();
        if what.is_empty() || hidden.is_empty() {
            return None;
        }
        let (count, pool, what) = (hidden.len(), backwater_flow::quote(pool), what.join(", "));
        let instead = if asked { "" } else { "with [server_account] the server tells what they do; " };
        Some(format!(
            "{what} cannot reach {count} of pool {pool}'s sessions: they are encrypted through to the server, or cannot be followed for \
             another reason; {instead}with a certificate in [tls] encryption ends here"
        ))
    }

    /// Sessions that stay in the pool in which they began, though their user is of another from now on.
    fn stays(&self, statement: &Statement, state: &State) -> Option<String> {
        let (Statement::CreateUser { user, .. } | Statement::AlterUser { user, .. }) = statement else { return None };
        let pool = state.pool_of(user);
        let stays = |live: &&Arc<Live>| live.identity.user == *user && live.pool.name != pool;
        let count = self.sessions().iter().filter(stays).count();
        let user = backwater_flow::quote(user);
        (count > 0)
            .then(|| format!("{count} of {user}'s sessions stay in the pool they began in, until they connect anew"))
    }

    /// Attributes in force that cannot be measured here, each with why. As all attributes of a rule must be over, it never matches then.
    pub(super) fn unseen(&self, rule: &Rule) -> Unseen {
        match &self.outside {
            Some(outside) => outside.unseen(rule),
            None => {
                let terms = self.terms();
                let view = (terms.server_account.is_some(), self.server_view.version());
                unseen(rule, terms.server_is_here, view)
            }
        }
    }

    /// Makes on the server what statements say of roles, noted in the state file before: where the proxy falls in between, its next
    /// start tells of them.
    async fn make_noted_roles(
        &self,
        terms: &Terms,
        seen: &mut state_file::Text,
        statements: &[Statement],
    ) -> Result<Roles, ChangeError> {
        let roles: Vec<String> = statements.iter().filter_map(role_of).cloned().collect();
        let note = terms.state_file.as_ref().filter(|_| !roles.is_empty());
        if let Some(path) = note {
            self.keep(path, seen, &terms.state, roles).await?;
        }
        let made = self.make_roles(statements).await;
        // Whoever asked is told what became of it.
        if made.is_err()
            && let Some(path) = note
            && let Err(error) = self.keep(path, seen, &terms.state, Vec::new()).await
        {
            tracing::warn!("a note of roles stays: {error}");
        }
        Ok(Roles { is_noted: note.is_some(), ..made? })
    }

    /// Makes on the server what statements say of roles.
    async fn make_roles(&self, statements: &[Statement]) -> Result<Roles, ChangeError> {
        let mut roles = Roles::default();
        for statement in statements {
            let password = password_of(statement);
            let (user, made) = match (statement, password) {
                (Statement::CreateUser { user, .. }, _) => (user, self.server_view.make_role(user, password).await),
                (Statement::AlterUser { user, .. }, Some(password)) => {
                    (user, self.server_view.set_password(user, password).await)
                }
                // Who is not there may be a typing error, or come later.
                (Statement::AlterUser { user, .. }, None) => {
                    (user, self.server_view.find_role(user).await.or(Ok(Made::WasThere)))
                }
                _ => continue,
            };
            let is_asked = role_of(statement).is_some();
            let user = backwater_flow::quote(user);
            match made {
                Ok(Made::IsNot) => roles.notices.push(format!("the server has no role {user} yet")),
                Ok(Made::WasThere) if !is_asked => {}
                Ok(Made::Done) => roles.made.push(user),
                Ok(Made::WasThere) => {
                    roles.notices.push(format!("the server has a role {user} already: it stays as it is"));
                }
                Err(why) => {
                    let why = format!("{why}{}", what_stays(&roles.made));
                    return Err(ChangeError::Role { user, why });
                }
            }
        }
        Ok(roles)
    }

    /// Writing may take long on a disk that is busy: sessions and rules do not wait for it.
    async fn keep(
        &self,
        path: &Path,
        seen: &mut state_file::Text,
        state: &State,
        roles: Vec<String>,
    ) -> Result<(), ChangeError> {
        let (terms, path, mut now, state) = (self.terms(), path.to_owned(), seen.clone(), state.clone());
        let to = path.clone();
        let keep = move || (state_file::keep(&to, &mut now, &terms.configured, &state, &roles), now);
        let kept = match tokio::task::spawn_blocking(keep).await {
            Ok((kept, now)) => {
                *seen = now;
                kept
            }
            Err(error) => Err(io::Error::other(error)),
        };
        kept.map_err(|source| ChangeError::Keep { path, source, stays: String::new() })
    }

    /// Takes over a configuration that was read again. Returns what it changes only when the proxy is started again.
    pub(super) fn reload(self: &Arc<Self>, config: &ProxyConfig) -> Result<Vec<&'static str>, GateError> {
        let mut seen = self.changing.blocking_lock();
        // What the console changed since the file was read counts too.
        let config = config.restored()?;
        match self.outside {
            Some(_) => self.enforceable(&config.state)?,
            None => config.check()?,
        }
        *seen = config.renew_state_file()?;
        let (config, later) = self.until_next_start(config);
        self.configure(&config);
        self.counters.reloads.fetch_add(1, Ordering::Relaxed);
        self.changed("the configuration was read again", &[]);
        Ok(later)
    }

    /// The configuration with what counts only from the next start as it is in force until then, and what of it differs.
    fn until_next_start(&self, mut config: ProxyConfig) -> (ProxyConfig, Vec<&'static str>) {
        let (first, before) = (&self.first, self.terms());
        let mut later = Vec::new();
        if self.outside.is_none() {
            if first.listen != config.listen {
                later.push("listen");
                // What is listened on until then keeps its pool, where that is still there.
                let unnamed = first.listen.iter().filter(|address| !config.listen.contains(address));
                let pool_of = |address: &Address| Some((address.clone(), before.listeners.get(address)?.clone()));
                let is_there = |(_, pool): &(Address, String)| config.state.pools().contains_key(pool);
                let kept: Vec<_> = unnamed.filter_map(pool_of).filter(is_there).collect();
                config.listeners.extend(kept);
                config.listen.clone_from(&first.listen);
            }
            if first.limits.workers != config.limits.workers {
                later.push("workers");
                config.limits.workers = first.limits.workers;
            }
            // Process ids and cancel keys of sessions are those of one server, and so is what is told of them. How it is
            // spoken to goes with it.
            if before.server != config.server {
                later.push("server");
                if before.server_tls.is_some() || config.server_tls.is_some() {
                    later.push("server_tls");
                }
                if before.server_account != config.server_account {
                    later.push("server_account");
                }
                config.server.clone_from(&before.server);
                config.server_tls.clone_from(&before.server_tls);
                config.server_account.clone_from(&before.server_account);
            }
        }
        let console = own_addresses(first.admin.as_deref());
        if console != own_addresses(config.admin.as_ref()) {
            later.push("admin.listen");
            if let Some(admin) = &mut config.admin {
                admin.listen = console.to_vec();
            }
        }
        (config, later)
    }
}

/// Where the console listens by itself.
fn own_addresses(admin: Option<&Admin>) -> &[Address] {
    admin.map_or(&[], |admin| &admin.listen)
}

/// The pools that statements change, themselves or by a rule that they have.
fn pools_of<'s>(statements: &'s [Statement], state: &'s State) -> BTreeSet<&'s str> {
    let has = |pool: &str, rule: &str| state.rules_of(pool).any(|(name, _)| name == rule);
    let of = |statement: &'s Statement| -> Vec<&'s str> {
        match statement {
            Statement::CreatePool { name, .. } | Statement::AlterPool { name, .. } => vec![name.as_str()],
            Statement::CreateRule { name, .. } | Statement::AlterRule { name, .. } => {
                state.pools().keys().map(String::as_str).filter(|pool| has(pool, name)).collect()
            }
            _ => Vec::new(),
        }
    };
    statements.iter().flat_map(of).collect()
}

/// The role that the server is to make or change for a statement.
fn role_of(statement: &Statement) -> Option<&String> {
    match statement {
        Statement::CreateUser { user, .. } => Some(user),
        Statement::AlterUser { user, .. } => password_of(statement).map(|_| user),
        _ => None,
    }
}

/// The password that a statement gives to a role.
fn password_of(statement: &Statement) -> Option<&str> {
    match statement {
        Statement::CreateUser { password, .. } | Statement::AlterUser { password, .. } => {
            password.as_ref().map(backwater_flow::statement::Password::expose)
        }
        _ => None,
    }
}

/// Attributes in force that a proxy cannot measure, each with why. The version is that of a server that tells of its sessions to an
/// account, where there is one.
fn unseen(rule: &Rule, server_is_here: bool, (has_account, version): (bool, Option<i32>)) -> Unseen {
    let in_force = rule.thresholds.iter().filter(|(_, threshold)| threshold.is_some()).map(|(attribute, _)| *attribute);
    let why = |attribute| match attribute {
        Attribute::ElapsedTime | Attribute::BlockTime | Attribute::Bandwidth | Attribute::Rows => None,
        Attribute::CpuTime | Attribute::CpuAvgPercent | Attribute::MemSize => {
            (!server_is_here).then_some("the server's address is neither a Unix socket nor a loopback one")
        }
        of_server @ (Attribute::SpillSize | Attribute::WalRate | Attribute::WalSize) => {
            let is_told = server_view::tells(of_server, version);
            let why = match (has_account, version) {
                (false, _) => "[server_account] is needed for it",
                (true, None) => "the proxy has no connection with the server now",
                (true, Some(_)) => "PostgreSQL tells it from 18 on",
            };
            (!is_told).then_some(why)
        }
    };
    in_force.filter_map(|attribute| Some((attribute, why(attribute)?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;
    use tokio::sync::mpsc;

    #[test]
    fn what_cannot_be_kept_names_the_roles_that_the_server_made() {
        let error = || ChangeError::Keep {
            path: "state.toml".into(),
            source: io::Error::other("no room"),
            stays: String::new(),
        };
        assert_eq!(error().after(&[]).to_string(), "the change cannot be kept in state.toml: no room");
        let told = error().after(&["a".to_owned(), "b".to_owned()]).to_string();
        let stays = "(what the server did before stays: role a, role b)";
        assert_eq!(told, format!("the change cannot be kept in state.toml: no room {stays}"));
    }

    #[test]
    fn an_address_that_is_still_listened_on_keeps_its_pool_where_that_still_is() {
        let config =
            |text: &str| ProxyConfig::parse(&format!("server = 'b:2'\n{text}"), Path::new("proxy.toml")).unwrap();
        let first = "listen = ['a:1', 'a:2', 'a:3']\n[listeners]\n'a:1' = 'batch'\n'a:2' = 'gone'\n'a:3' = 'batch'\n\
                     [pools.batch]\n[pools.gone]\n";
        let (visits, _visited) = mpsc::unbounded_channel();
        let (view, _) = server_view::ServerView::new();
        let control = Control::new(&config(first), Arc::new(|_| ()), visits, view, None);
        let later = control.reload(&config("listen = ['a:3', 'a:4']\n[pools.batch]\n")).unwrap();
        assert_eq!(later, ["listen"]);
        let terms = control.terms();
        let pools: Vec<_> =
            terms.listeners.iter().map(|(address, pool)| (address.to_string(), pool.as_str())).collect();
        // The second one's pool is gone, and the third one is named without its own.
        assert_eq!(pools, [("a:1".to_owned(), "batch")]);
    }
}
