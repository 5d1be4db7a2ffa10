//! What governs the sessions and what they are governed by: the configuration in force, the living sessions and their
//! pools, the low class, and whoever is told of decisions. One for a proxy; everything that changes goes through it.

use super::config::{idle_rule, idle_weight};
use super::console::Visit;
use super::live::{Doing, Identity, Live};
use super::low_class::LowClass;
use super::outside::Outside;
use super::pools::{LivePool, LivePools};
use super::server_view::ServerView;
use super::state_file;
use super::terms::Terms;
use super::{ProxyConfig, Tell};
use crate::clock;
use backwater_flow::rule::Acted;
use backwater_flow::{SessionId, State, quote};
use backwater_model::{Event, EventKind};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Events that are kept for the console.
const KEPT_EVENTS: usize = 1_000;

/// The proxy's middle.
pub(crate) struct Control {
    terms: Mutex<Arc<Terms>>,
    /// The terms that it began with: what counts only from a start is as it was then.
    pub(super) first: Arc<Terms>,
    pub(super) pools: LivePools,
    pub(super) low_class: LowClass,
    pub(super) server_view: ServerView,
    /// What is held is held from outside, by somebody else; None: by this proxy.
    pub(super) outside: Option<Outside>,
    sessions: Mutex<Sessions>,
    next_session: AtomicU64,
    visits: mpsc::UnboundedSender<Visit>,
    tell: Tell,
    told: Mutex<VecDeque<Event>>,
    /// How often each rule acted since this began.
    acted: Mutex<BTreeMap<String, Acted>>,
    pub(super) counters: Counters,
    /// One change at a time; held while the state is written down, and what its file said when it was last read or written.
    pub(super) changing: tokio::sync::Mutex<state_file::Text>,
    /// Whether it was said that there are sessions of which nothing can be seen.
    told_hidden: AtomicBool,
    told_not_found: AtomicBool,
    told_in_vain: AtomicBool,
}

/// The living sessions, by number, and the list that was made of them last, if it still holds: those who judge them look at
/// all of them fifty times a second.
#[derive(Default)]
struct Sessions {
    by_number: BTreeMap<SessionId, Arc<Live>>,
    listed: Option<Arc<[Arc<Live>]>>,
}

/// What happened since the proxy began.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) cancels: AtomicU64,
    pub(super) moves: AtomicU64,
    pub(super) reloads: AtomicU64,
}

/// A session's entry in the list of the living. Dropping it takes it out.
pub(super) struct Entry {
    control: Arc<Control>,
    live: Arc<Live>,
}

impl Control {
    pub(super) fn new(
        config: &ProxyConfig,
        tell: Tell,
        visits: mpsc::UnboundedSender<Visit>,
        server_view: ServerView,
        outside: Option<Outside>,
    ) -> Arc<Control> {
        let first = Terms::new(config, None);
        // No reason to stay away: at worst what the console once said counts again where the file is edited back.
        let seen = config.renew_state_file().unwrap_or_else(|error| {
            tracing::warn!("the state file stays as it is: {error}");
            config.state_seen.clone()
        });
        let roles = config.roles_under_way();
        if !roles.is_empty() {
            tracing::warn!(
                "a change on the console was begun and not kept: the server may have made these roles, or changed their passwords, all the \
                 same: {}; say it again on the console, or take it back on the server",
                roles.join(", ")
            );
        }
        let control = Control {
            terms: Mutex::new(Arc::clone(&first)),
            first,
            pools: LivePools::default(),
            low_class: LowClass::new(config.state.low_priority_bandwidth(), []),
            server_view,
            outside,
            sessions: Mutex::default(),
            next_session: AtomicU64::new(1),
            visits,
            tell,
            told: Mutex::default(),
            acted: Mutex::default(),
            counters: Counters::default(),
            changing: tokio::sync::Mutex::new(seen),
            told_hidden: AtomicBool::new(false),
            told_not_found: AtomicBool::new(false),
            told_in_vain: AtomicBool::new(false),
        };
        control.pools.apply(&config.state, &control.low_class);
        control.warn_of(config);
        Arc::new(control)
    }

    /// Who speaks, in events.
    pub(super) fn source(&self) -> &'static str {
        if self.outside.is_some() { "attach" } else { "proxy" }
    }

    /// The terms in force. Whoever holds them sees no change.
    pub(super) fn terms(&self) -> Arc<Terms> {
        Arc::clone(&lock(&self.terms))
    }

    /// Other rules, pools and users, for everybody and at once.
    pub(super) fn govern(&self, state: State) {
        let mut terms = lock(&self.terms);
        let next = Terms { state, ..Terms::clone(&terms) };
        self.pools.apply(&next.state, &self.low_class);
        *terms = Arc::new(next);
    }

    /// Another configuration, for everybody and at once.
    pub(super) fn configure(&self, config: &ProxyConfig) {
        let mut terms = lock(&self.terms);
        let next = Terms::new(config, Some(&terms.admission));
        self.pools.apply(&next.state, &self.low_class);
        *terms = next;
        self.warn_of(config);
    }

    /// Logs what a configuration asks for in vain. In attach mode its own notices say so.
    fn warn_of(&self, config: &ProxyConfig) {
        let state = &config.state;
        if self.outside.is_none() && config.limits.max_connections == 0 {
            tracing::warn!("limits.max_connections is 0: whoever comes is refused");
        }
        state.rules().keys().filter_map(|rule| idle_rule(state, rule)).for_each(|told| tracing::warn!("{told}"));
        if self.outside.is_some() {
            return;
        }
        let told = state.pools().keys().filter_map(|pool| idle_weight(state, pool));
        told.for_each(|told| tracing::warn!("{told}"));
        if config.tls.is_some() && config.server_tls.is_some() {
            tracing::info!(
                "[tls] and [server_tls]: who logs in by SCRAM must not bind it to the channel, which ends here (channel_binding=disable \
                 with libpq)"
            );
        }
    }

    /// Somebody wants to speak to the console.
    pub(super) fn visit(&self, visit: Visit) {
        // An error means that the proxy is ending.
        let _ = self.visits.send(visit);
    }

    /// A number for a new session.
    pub(super) fn number(&self) -> SessionId {
        SessionId(self.next_session.fetch_add(1, Ordering::Relaxed))
    }

    /// A session of which nothing can be seen begins: that is said once.
    pub(super) fn enter_hidden(self: &Arc<Self>, identity: Identity, pool: Arc<LivePool>) -> Entry {
        if !self.told_hidden.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                peer = %identity.peer,
                "a client encrypts through to the server: no user's pool, max_active, idle or login time-out reaches such sessions, \
                 which are all of their listener's pool, and rules only by what the server tells of them, if [server_account] lets it, \
                 and not by their rows; with a certificate in [tls] encryption ends here (this is said once)"
            );
        }
        self.begin(identity, pool, true)
    }

    /// The server tells, but not of a session that is encrypted through to it: that is said once.
    pub(super) fn not_found(&self, live: &Live) {
        if !self.told_not_found.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                session = %live.identity.id,
                "the server tells nothing of a session that is encrypted through to it, so that no rule reaches it: the account of \
                 [server_account] may lack pg_read_all_stats, the server may not keep track_activities, or see another address than \
                 this proxy's (this is said once)"
            );
        }
    }

    /// A connection names a pool in vain: that is said once.
    pub(super) fn named_in_vain(&self, user: &str, own: &str, named: &str) {
        if !self.told_in_vain.swap(true, Ordering::Relaxed) {
            let [user, own, named] = [user, own, named].map(quote);
            tracing::warn!(
                "user {user} names pool {named} and stays in {own}: who is bound to a pool goes to a low one only (this is said once)"
            );
        }
    }

    /// A session begins.
    pub(super) fn enter(self: &Arc<Self>, identity: Identity, pool: Arc<LivePool>) -> Entry {
        self.begin(identity, pool, false)
    }

    fn begin(self: &Arc<Self>, identity: Identity, pool: Arc<LivePool>, hidden: bool) -> Entry {
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        let live = Live::new(identity, pool, hidden);
        let mut sessions = lock(&self.sessions);
        sessions.by_number.insert(live.identity.id, Arc::clone(&live));
        sessions.listed = None;
        drop(sessions);
        Entry { control: Arc::clone(self), live }
    }

    /// The living sessions, by number. Made anew only where one came or went.
    pub(super) fn sessions(&self) -> Arc<[Arc<Live>]> {
        let mut sessions = lock(&self.sessions);
        let Sessions { by_number, listed } = &mut *sessions;
        Arc::clone(listed.get_or_insert_with(|| by_number.values().cloned().collect()))
    }

    /// The session to whose client the server gave this cancel key.
    pub(super) fn by_cancel_key(&self, key: &[u8]) -> Option<Arc<Live>> {
        self.sessions().iter().find(|live| live.cancel_key() == Some(key)).cloned()
    }

    /// A decision was made: it is logged, kept and told.
    pub(super) fn decided(&self, decision: &backwater_flow::rule::Decision) {
        lock(&self.acted).entry(decision.rule.clone()).or_default().count(decision.step);
        self.tell(decision.event(self.source()));
    }

    /// A session of a low pool was let go, or is held again.
    pub(super) fn freed(&self, live: &Live, let_go: bool) {
        // The end of a transaction is seen in messages alone.
        let (until, over) = match live.doing() {
            Doing::Hidden => ("for as long as it does", "it is not known to block urgent work any more"),
            _ => ("until its transaction ends", "its transaction has ended"),
        };
        let id = live.identity.id.to_string();
        let let_go_until = format!("let go {until}");
        let told = match let_go {
            true => ("freed", let_go_until.as_str(), "it blocked urgent work"),
            false => ("held", "held again", over),
        };
        self.pooled(&id, &live.identity.user, &live.pool.name, told);
    }

    /// What became of a session because of its pool's priority: the step, the same for people, and why.
    pub(super) fn pooled(&self, id: &str, user: &str, pool: &str, (step, what, why): (&str, &str, &str)) {
        let message = format!("session {id} (user {user}, pool {pool}) is {what}: {why}");
        let fields = [("session", id), ("user", user), ("pool", pool), ("step", step), ("why", why)];
        self.tell(Event::new(clock::now(), self.source(), EventKind::Decision, message, &fields));
    }

    /// A setting changed.
    pub(super) fn changed(&self, message: &str, fields: &[(&str, &str)]) {
        self.tell(Event::new(clock::now(), self.source(), EventKind::Setting, message, fields));
    }

    /// A setting was to change, and did not.
    pub(super) fn refused_change(&self, message: &str) {
        tracing::warn!("{message}");
        self.remember(Event::new(clock::now(), self.source(), EventKind::Setting, message, &[]));
    }

    fn tell(&self, event: Event) {
        // What rules of attach mode decide is printed where they are judged.
        if self.outside.is_none() || event.kind == EventKind::Setting {
            tracing::info!(kind = ?event.kind, "{}", event.message);
        }
        self.remember(event);
    }

    fn remember(&self, event: Event) {
        let mut told = lock(&self.told);
        if told.len() == KEPT_EVENTS {
            told.pop_front();
        }
        told.push_back(event.clone());
        drop(told);
        (self.tell)(event);
    }

    /// What was told last, oldest first.
    pub(super) fn events(&self) -> Vec<Event> {
        lock(&self.told).iter().cloned().collect()
    }

    /// What a rule has done.
    pub(super) fn acted(&self, rule: &str) -> Acted {
        lock(&self.acted).get(rule).copied().unwrap_or_default()
    }
}

impl Entry {
    pub(super) fn live(&self) -> &Arc<Live> {
        &self.live
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut sessions = lock(&self.control.sessions);
        sessions.by_number.remove(&self.live.identity.id);
        sessions.listed = None;
        drop(sessions);
        let bytes = self.live.glimpse(clock::now()).down_bytes;
        self.live.pool.gone_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.live.fmt(f)
    }
}

/// A panic elsewhere leaves these whole: they are changed in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn enter(control: &Arc<Control>) -> Entry {
        let identity = Identity::of_test(control.number());
        control.enter(identity, control.pools.get("p"))
    }

    #[test]
    fn sessions_are_listed_anew_only_when_one_comes_or_goes() {
        let config = ProxyConfig::plain("127.0.0.1:0".parse().unwrap(), "127.0.0.1:1".parse().unwrap());
        let (visits, _visited) = mpsc::unbounded_channel();
        let control = Control::new(&config, Arc::new(|_| ()), visits, ServerView::new().0, None);
        let listed = || control.sessions().iter().map(|live| live.identity.id.0).collect::<Vec<_>>();
        let (first, second) = (enter(&control), enter(&control));
        assert_eq!(listed(), [1, 2]);
        assert!(Arc::ptr_eq(&control.sessions(), &control.sessions()));
        drop(first);
        assert_eq!(listed(), [2]);
        let third = enter(&control);
        assert_eq!(listed(), [2, 3]);
        drop((second, third));
        assert!(listed().is_empty());
    }
}
