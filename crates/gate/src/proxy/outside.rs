//! The console over sessions that are held from outside, as attach mode does: rules, pools and users are kept, changed and told
//! as a proxy's are; who the sessions are and how they are held is told by whoever holds them.

use super::acceptor::Reception;
use super::control::Control;
use super::negotiate::Door;
use super::server_view::ServerView;
use super::worker::Phase;
use super::{Address, Front, ProxyConfig, Tell, addresses_of, bind, console};
use crate::GateError;
use backwater_flow::rule::{Attribute, Decision, Rule, Why};
use backwater_flow::statement::Statement;
use backwater_flow::{Pool, State};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};

/// A session as its server, its socket and whoever holds it showed it at one look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutsideSession {
    /// Its process id, as the server knows it.
    pub pid: i32,
    /// Whose.
    pub user: String,
    /// Its application_name.
    pub application: String,
    /// Its client's address and port; empty where nobody can see it.
    pub client: String,
    /// Whether a statement runs.
    pub active: bool,
    /// Seconds since that began.
    pub for_s: Option<f64>,
    /// Rows that it has sent, where they are counted.
    pub rows: Option<u64>,
    /// Bytes that it was sent since it was held.
    pub sent_bytes: Option<u64>,
    /// How many transactions old its snapshot is: for as long as it has one, vacuum removes nothing that died later.
    pub snapshot_age_xids: Option<i64>,
    /// What holds it: a rule, or its pool.
    pub held_by: Option<String>,
}

/// What becomes of a session because of its pool's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolStep {
    /// It is held.
    Held,
    /// It is let go, since somebody waits for its lock who is not held.
    Freed,
    /// It was let go for that, and is held again.
    HeldAgain,
    /// It is let go: its pool's priority is not low any more, or it has another pool.
    Left,
    /// It is let go, as all are while the server does not answer.
    Unseen,
    /// It is let go, as all are in the end.
    Ended,
}

impl PoolStep {
    /// The step, the same for people, and why.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            PoolStep::Held => ("held", "held", "its pool has low priority"),
            PoolStep::Freed => ("freed", "let go for as long as it does", "it blocked urgent work"),
            PoolStep::HeldAgain => ("held", "held again", "it is not known to block urgent work any more"),
            PoolStep::Left => ("freed", "let go", "its pool has no low priority"),
            PoolStep::Unseen => ("freed", "let go", Why::Unseen.word()),
            PoolStep::Ended => ("freed", "let go", Why::Ended.word()),
        }
    }
}

/// Attributes that no rule can look at, each with why.
pub type Unseen = Vec<(Attribute, String)>;

/// What is told of the sessions, and what can be asked of them.
#[derive(Debug)]
pub(super) struct Outside {
    told: Mutex<OutsideTold>,
}

/// What the last look told.
#[derive(Clone, Debug, Default)]
pub(super) struct OutsideTold {
    unseen: Unseen,
    pub(super) sessions: Vec<OutsideSession>,
    /// What all that are held may be sent together, in bytes a second.
    pub(super) class_bps: Option<u64>,
}

impl OutsideTold {
    /// How many are held.
    pub(super) fn held(&self) -> usize {
        self.sessions.iter().filter(|session| session.held_by.is_some()).count()
    }
}

impl Outside {
    /// Whether all rules that pools have can be judged. One that nobody has does no harm.
    pub(super) fn enforceable(&self, state: &State) -> Result<(), GateError> {
        let used = || state.pools().keys().flat_map(|pool| state.rules_of(pool)).map(|(_, rule)| rule);
        let told = self.lock();
        let unseen = told.unseen.iter().find(|(attribute, _)| used().any(|rule| in_force(rule, *attribute)));
        match unseen {
            Some((attribute, why)) => Err(GateError::Unseen { attribute: attribute.word(), why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Attributes of a rule that cannot be looked at, each with why.
    pub(super) fn unseen(&self, rule: &Rule) -> Unseen {
        self.lock().unseen.iter().filter(|(attribute, _)| in_force(rule, *attribute)).cloned().collect()
    }

    pub(super) fn told(&self) -> OutsideTold {
        self.lock().clone()
    }

    /// A panic elsewhere leaves it whole: it is replaced in one step.
    fn lock(&self) -> MutexGuard<'_, OutsideTold> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Their names.
pub(super) fn names(unseen: &Unseen) -> String {
    unseen.iter().map(|(attribute, _)| attribute.word()).collect::<Vec<_>>().join(",")
}

fn in_force(rule: &Rule, attribute: Attribute) -> bool {
    rule.thresholds.get(&attribute).is_some_and(Option::is_some)
}

/// What these statements ask of pools that cannot be enforced from outside.
pub(super) fn notices(statements: &[Statement], state: &State) -> Vec<String> {
    let pool_of = |statement: &Statement| match statement {
        Statement::CreatePool { name, .. } | Statement::AlterPool { name, .. } => {
            state.pools().get_key_value(name).and_then(|(name, pool)| asked_in_vain(name, pool))
        }
        _ => None,
    };
    let words = statements.iter().filter_map(pool_of);
    words.map(|words| format!("{words}: not enforced from outside, only by backwater proxy")).collect()
}

/// What a state asks for that cannot be enforced from outside, in words. The proxy can.
pub fn not_enforced(state: &State) -> Vec<String> {
    state.pools().iter().filter_map(|(name, pool)| asked_in_vain(name, pool)).collect()
}

fn asked_in_vain(name: &str, pool: &Pool) -> Option<String> {
    let asked = [
        ("max_connections", pool.max_connections.is_some()),
        ("max_active", pool.max_active.is_some()),
        ("bandwidth", pool.bandwidth_bps.is_some()),
        ("weight", pool.weight != Pool::default().weight),
    ];
    let words: Vec<&str> = asked.into_iter().filter(|(_, asked)| *asked).map(|(word, _)| word).collect();
    (!words.is_empty()).then(|| format!("{} of pool {name}", words.join(", ")))
}

/// Keeps what governs sessions that are held from outside; where the configuration gives the console an address, SQL there
/// reaches it. Dropping it ends the console.
pub struct Console {
    control: Arc<Control>,
    addresses: Vec<Address>,
    _front: Option<Front>,
}

impl Console {
    /// Begins with this configuration. `unseen` is what no rule can look at; `tell` hears every change and every decision, and
    /// must not block.
    ///
    /// # Errors
    /// A pool of the configuration has a rule that cannot be judged, or an address cannot be listened on.
    pub fn start(config: &ProxyConfig, unseen: Unseen, tell: Tell) -> Result<Console, GateError> {
        let outside = Outside { told: Mutex::new(OutsideTold { unseen, ..OutsideTold::default() }) };
        outside.enforceable(&config.state)?;
        config.may_be_kept()?;
        let (bound, _) = bind(config.admin.as_ref().map_or(&[], |admin| &admin.listen))?;
        let addresses = addresses_of(&bound)?;
        let (visits, visited) = mpsc::unbounded_channel();
        let (view, _) = ServerView::new();
        let control = Control::new(config, tell, visits, view, Some(outside));
        if addresses.is_empty() {
            return Ok(Console { control, addresses, _front: None });
        }
        let (phase, seen) = watch::channel(Phase::Running);
        console::start(Arc::clone(&control), visited, seen)?;
        let doors = bound.into_iter().map(|bound| (bound, Door::Console)).collect();
        // Who comes by the console's door becomes no session.
        let reception = Reception { control: Arc::clone(&control), hand: Arc::new(|_| ()) };
        let front = Front::open(doors, reception, phase, &addresses)?;
        Ok(Console { control, addresses, _front: Some(front) })
    }

    /// Where it listens, with the ports that it got.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Rules, pools and users in force.
    pub fn state(&self) -> State {
        self.control.terms().state.clone()
    }

    /// Takes over a configuration that was read again. After an error everything is as it was. Returns what it changes only
    /// when it is started again.
    ///
    /// # Errors
    /// It has a rule that cannot be judged.
    pub fn reload(&self, config: &ProxyConfig) -> Result<Vec<&'static str>, GateError> {
        self.control.reload(config)
    }

    /// A rule decided: it is kept for `SHOW EVENTS`, and counted.
    pub fn decided(&self, decision: &Decision) {
        self.control.decided(decision);
    }

    /// A session, named by its process id, is held or let go because of its pool: it is kept for `SHOW EVENTS`, and told.
    pub fn pooled(&self, pid: i32, user: &str, pool: &str, step: PoolStep) {
        self.control.pooled(&pid.to_string(), user, pool, step.words());
    }

    /// What the last look showed, what no rule can look at on this server, and what all that are held may be sent together, in bytes
    /// a second.
    pub fn see(&self, sessions: Vec<OutsideSession>, unseen: Unseen, class_bps: Option<u64>) {
        if let Some(outside) = &self.control.outside {
            *outside.lock() = OutsideTold { unseen, sessions, class_bps };
        }
    }
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
