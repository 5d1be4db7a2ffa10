//! What holds sessions back now, as a value for pages and recordings: the same that the console shows, in one piece.

use super::control::Control;
use super::live::{Doing, Live};
use super::low_class::Found;
use crate::clock;
use backwater_flow::{Allowance, LowPriorityBandwidth, Pool, Priority, SessionId, quote};
use backwater_model::{FlowHeld, FlowPool, FlowRule, FlowState, Moment, Span};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Held sessions that are told one by one.
const MOST_HELD: usize = 200;

/// Looks at a proxy again and again. Between two looks it sees what each session was sent.
pub struct Glance {
    control: Arc<Control>,
    by: String,
    /// When, and bytes sent so far.
    before: HashMap<SessionId, (Moment, u64)>,
    /// Bytes of each pool: sessions that end between two readings must not make them fewer.
    sent: HashMap<String, u64>,
}

impl Glance {
    pub(super) fn new(control: Arc<Control>, by: String) -> Glance {
        Glance { control, by, before: HashMap::new(), sent: HashMap::new() }
    }

    /// What there is now.
    pub fn look(&mut self) -> FlowState {
        let now = clock::now();
        let terms = self.control.terms();
        let sessions = self.control.sessions();
        let class = class_allowance(&self.control);
        let mut pools: Vec<FlowPool> =
            terms.state.pools().iter().map(|(name, pool)| self.pool(name, pool, &sessions, now)).collect();
        let mut held = Vec::new();
        let mut seen = HashMap::new();
        for live in sessions.iter() {
            let sent = live.glimpse(now).down_bytes;
            let before = self.before.get(&live.identity.id).copied();
            seen.insert(live.identity.id, (now, sent));
            if live.is_low() {
                let own = terms.state.pools().get(&live.pool.name);
                let binding =
                    Allowance::binding(own_allowance(&live.pool.name, own).into_iter().chain([class.clone()]));
                held.push(one(live, now, rate_between(before, (now, sent)), binding));
                pools.iter_mut().filter(|pool| pool.name == live.pool.name).for_each(|pool| pool.held += 1);
            }
        }
        self.before = seen;
        let held_in_all = held.len() as u64;
        held.sort_by(|a, b| b.rate_bps.unwrap_or(0.0).total_cmp(&a.rate_bps.unwrap_or(0.0)));
        held.truncate(MOST_HELD);
        let (_, waiting) = self.control.low_class.pressure();
        FlowState {
            at: now,
            by: self.by.clone(),
            rate_bps: Some(class.rate_bps as f64),
            rate_by: class.by,
            waiting: waiting as u64,
            queueing_us: self.control.low_class.found().and_then(|found| found.queueing).map(|queue| queue.0 as f64),
            pools,
            rules: self.rules(),
            held,
            held_in_all,
        }
    }

    fn pool(&mut self, name: &str, pool: &Pool, sessions: &[Arc<Live>], now: Moment) -> FlowPool {
        let live = self.control.pools.get(name);
        let (_, waiting) = live.turns.counts();
        let here = || sessions.iter().filter(|session| session.pool.name == name);
        let living: u64 = here().map(|session| session.glimpse(now).down_bytes).sum();
        let sent = self.sent.entry(name.to_owned()).or_default();
        *sent = (*sent).max(live.gone_bytes.load(Ordering::Relaxed) + living);
        FlowPool {
            name: name.to_owned(),
            priority: pool.priority.word().to_owned(),
            weight: pool.weight,
            rules: pool.except_rules.clone(),
            max_connections: pool.max_connections,
            max_active: pool.max_active,
            bandwidth_bps: pool.bandwidth_bps.map(|bps| bps as f64),
            sessions: here().count() as u64,
            running: here().filter(|session| session.doing() == Doing::Running).count() as u64,
            waiting: waiting as u64,
            held: 0,
            sent_bytes: *sent,
        }
    }

    fn rules(&self) -> Vec<FlowRule> {
        let terms = self.control.terms();
        let mut rules = terms.state.described(|name| self.control.acted(name));
        for (told, rule) in rules.iter_mut().zip(terms.state.rules().values()) {
            told.unseen = super::outside::names(&self.control.unseen(rule));
        }
        rules
    }
}

impl std::fmt::Debug for Glance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Glance").field("by", &self.by).finish_non_exhaustive()
    }
}

fn one(live: &Live, now: Moment, rate_bps: Option<f64>, binding: Option<Allowance>) -> FlowHeld {
    let (who, glimpse) = (&live.identity, live.glimpse(now));
    FlowHeld {
        session: who.id.0,
        user: who.user.clone(),
        database: who.database.clone(),
        application: who.application.clone(),
        client: who.peer.clone(),
        pool: live.pool.name.clone(),
        rule: live.held_by(),
        state: if glimpse.is_waiting { "waiting for its turn" } else { glimpse.doing.word() }.to_owned(),
        for_s: now.seconds_since(glimpse.since),
        sent_bytes: glimpse.down_bytes,
        rate_bps,
        allowed_bps: binding.as_ref().map(|allowance| allowance.rate_bps as f64),
        bound_by: binding.map(|allowance| allowance.by).unwrap_or_default(),
    }
}

fn rate_between(before: Option<(Moment, u64)>, (now, sent): (Moment, u64)) -> Option<f64> {
    let (then, had) = before?;
    let seconds = now.seconds_since(then);
    (seconds > 0.0).then(|| sent.saturating_sub(had) as f64 / seconds)
}

/// What the low class may send in all, and who grants it.
pub(super) fn class_allowance(control: &Control) -> Allowance {
    let name = LowPriorityBandwidth::NAME;
    let by = match control.low_class.found() {
        None => name.to_owned(),
        Some(found) => format!("{name} = 'auto', {}", found_from(found)),
    };
    Allowance { by, rate_bps: control.low_class.pressure().0 }
}

fn found_from(found: Found) -> String {
    let ms = |span: Span| span.seconds() * 1e3;
    match (found.urgent_slower_by, found.queueing) {
        (Some(slower), _) => format!("as urgent statements take {:.1} ms longer", ms(slower)),
        (None, Some(queue)) => format!("at a queue of {:.1} ms", ms(queue)),
        (None, None) => "which has seen nothing yet".to_owned(),
    }
}

/// What a pool grants its low sessions, where it has a bandwidth of its own.
pub(super) fn own_allowance(name: &str, pool: Option<&Pool>) -> Option<Allowance> {
    let rate_bps = pool?.bandwidth_bps?;
    Some(Allowance { by: format!("bandwidth of pool {}", quote(name)), rate_bps })
}

/// What binds each pool that is of the low class, or has a session there that a rule holds.
pub(super) fn binding(control: &Control) -> Vec<(String, Allowance)> {
    let (terms, class) = (control.terms(), class_allowance(control));
    let sessions = control.sessions();
    let has_held = |name: &str| sessions.iter().any(|live| live.pool.name == name && live.is_low());
    let low = terms.state.pools().iter().filter(|(name, pool)| pool.priority == Priority::Low || has_held(name));
    let row = |(name, pool): (&String, &Pool)| {
        let all = own_allowance(name, Some(pool)).into_iter().chain([class.clone()]);
        Some((name.clone(), Allowance::binding(all)?))
    };
    low.filter_map(row).collect()
}
