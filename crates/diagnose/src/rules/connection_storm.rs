//! connection-storm: connections are opened and thrown away by the hundred, and each costs the server a thread.

use super::draft::draft;
use super::wt_evidence::{
    Contrast, Engine, contrast, flags_of, gauge, idle_processors, processors, rate, servers, slower,
};
use crate::figures::Figures;
use crate::grid::{Lane, both, episodes, longest};
use crate::scene::Scene;
use backwater_model::{Confidence, Figure, Finding, Severity, Unit, catalogue as cat};
use std::ops::Range;

/// Connections opened a second from which it can be a storm.
const STORM_PER_S: f64 = 50.0;
/// A connection that lives no longer than this, in seconds, is not pooled: standing ÷ opened a second (Little's law).
const SHORT_LIFE_S: f64 = 60.0;
/// Free share of the limit below which new clients are nearly turned away.
const NEARLY_FULL: f64 = 0.05;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 10;
const BRIDGE_S: usize = 3;
/// Latency inside ÷ outside, from which the storm is felt; and how much more it must be in milliseconds.
const SUFFERS: f64 = 1.5;
const SUFFERS_MS: f64 = 5.0;
/// Share of the seconds that are known from which a storm lasts all the time, with nothing to compare it with; how long one of its
/// connections lives at most, in seconds; and what it then costs: less than this share of the processors is idle, or there are so
/// many threads for each.
const ALWAYS: f64 = 0.9;
const LASTING_LIFE_S: f64 = 2.0;
const FEW_IDLE: f64 = 0.2;
const CROWD: f64 = 50.0;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    servers(scene).iter().filter_map(|engine| full(scene, engine).or_else(|| churn(scene, engine))).collect()
}

/// Connections near the limit.
fn full(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let (current, free) = (
        gauge(scene, &cat::MONGO_CONNECTIONS, &engine.name, None),
        gauge(scene, &cat::MONGO_CONNECTIONS_FREE, &engine.name, None),
    );
    let shares = free.with(&current, |free, current| if free + current > 0.0 { free / (free + current) } else { 1.0 });
    let (range, seconds) = longest(&episodes(&shares.flags(|share| share <= NEARLY_FULL), LEAST_S, BRIDGE_S))?;
    let queue = format!("mongo.connections@{}", engine.name);
    let mut finding = draft("connection-storm", "limit", queue, scene.grid.span(&range));
    let rejected = rate(scene, &cat::MONGO_CONNECTIONS_REJECTED, &engine.name, None).mean(&range);
    let turned_away = rejected.is_some_and(|rejected| rejected > 0.0);
    finding.severity = if turned_away { Severity::Critical } else { Severity::Warning };
    finding.confidence = Confidence::High;
    let most = current.max(&range).unwrap_or_default();
    let left = free.mean(&range).unwrap_or_default();
    finding.summary = format!(
        "{} connections are open and {} more may be; {}.",
        Unit::Count.show(most),
        Unit::Count.show(left),
        if turned_away { "clients were turned away" } else { "beyond that clients are turned away" }
    );
    let mut figures = Figures::default();
    figures.add("connections_count", Some(most), Unit::Count, "connections, at most");
    figures.add("connections_left_count", Some(left), Unit::Count, "connections that may still be opened");
    figures.add("rejected_per_s", rejected, Unit::PerSecond, "connections turned away");
    figures.add("full_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    Some(finding)
}

/// Connections that live too short.
fn churn(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let storm = Storm::of(scene, engine)?;
    let slower = storm.slower;
    // A storm that passes and that nobody feels is somebody's batch job.
    if slower.is_none() && !storm.always {
        return None;
    }
    // What was compared and is no slower is no cost.
    let lasting = storm.always && storm.latency.is_none() && storm.life_s <= LASTING_LIFE_S;
    let cost = Cost::of(scene, engine, &storm.inside);
    let costs = lasting && cost.is_high();
    let queue = format!("mongo.connections@{}", engine.name);
    let mut finding = draft("connection-storm", "churn", queue, scene.grid.span(&storm.range));
    finding.severity = if slower.is_some() || costs { Severity::Warning } else { Severity::Info };
    finding.confidence = if slower.is_some() { Confidence::Medium } else { Confidence::Low };
    finding.summary = format!(
        "{} connections were opened, each for about {}: every one costs a thread, a handshake and a login.",
        Unit::PerSecond.show(storm.opened_per_s),
        Unit::Seconds.show(storm.life_s),
    );
    if let Some(slower) = slower {
        let (inside, outside) = (Unit::Milliseconds.show(slower.inside), Unit::Milliseconds.show(slower.outside));
        finding.summary.push_str(&format!(" A write took {inside} instead of {outside}."));
    }
    if costs {
        finding.summary.push_str(&cost.words());
    }
    finding.evidence = figures(&storm, &cost);
    finding.victims = vec![format!("mongo.writes@{}", engine.name)];
    Some(finding)
}

fn figures(storm: &Storm, cost: &Cost) -> Vec<Figure> {
    let mut figures = Figures::default();
    figures.add("opened_per_s", Some(storm.opened_per_s), Unit::PerSecond, "connections opened");
    figures.add("connections_count", Some(storm.standing), Unit::Count, "connections, on average");
    figures.add("life_s", Some(storm.life_s), Unit::Seconds, "life of a connection (standing ÷ opened a second)");
    figures.add("threads_count", cost.threads, Unit::Count, "threads, on average");
    figures.add("processors_count", cost.processors, Unit::Count, "processors of the server's host");
    figures.add("idle_processors_ratio", cost.idle, Unit::Ratio, "of them idle meanwhile");
    let latency = storm.latency;
    figures.add("write_inside_ms", latency.map(|l| l.inside), Unit::Milliseconds, "latency of a write meanwhile");
    figures.add("write_outside_ms", latency.map(|l| l.outside), Unit::Milliseconds, "latency of a write otherwise");
    figures.add("storm_s", Some(storm.seconds as f64), Unit::Seconds, "seconds of it in this window");
    figures.list()
}

/// Seconds in which connections are opened by the hundred and live too short.
struct Storm {
    /// The longest stretch of them; all of them; and how many there are.
    range: Range<usize>,
    inside: Vec<bool>,
    seconds: usize,
    /// On average in the longest stretch: opened a second, standing, and how long one lives.
    opened_per_s: f64,
    standing: f64,
    life_s: f64,
    /// Whether there is hardly anything else in the window.
    always: bool,
    /// Of writes, where enough is seen of the other seconds; and the same where it is felt.
    latency: Option<Contrast>,
    slower: Option<Contrast>,
}

impl Storm {
    fn of(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Storm> {
        let opened = rate(scene, &cat::MONGO_CONNECTIONS_CREATED, &engine.name, None).smooth(1);
        let current = gauge(scene, &cat::MONGO_CONNECTIONS, &engine.name, None);
        let lives_s = current.with(&opened, |standing, opened| standing / opened.max(1e-9));
        let flags = both(&opened.flags(|per_s| per_s >= STORM_PER_S), &lives_s.flags(|life| life <= SHORT_LIFE_S));
        let found = episodes(&flags, LEAST_S, BRIDGE_S);
        let (range, seconds) = longest(&found)?;
        let inside = flags_of(&found, scene.grid.count);
        let (opened_per_s, standing) = opened.mean(&range).zip(current.mean(&range))?;
        // A second of which nothing is known is no other second.
        let felt_ms = engine.felt_ms().with(&lives_s, |ms, _| ms);
        Some(Storm {
            always: always(&lives_s, &inside),
            latency: contrast(&felt_ms, &inside),
            slower: slower(&felt_ms, &inside, SUFFERS, SUFFERS_MS),
            // Not the mean of the lives: in a second in which none is opened one would live for ever.
            life_s: standing / opened_per_s,
            range,
            inside,
            seconds,
            opened_per_s,
            standing,
        })
    }
}

/// Whether nearly all seconds of which anything is known are among these. What is known of less than half a window says nothing
/// of the rest.
fn always(known: &Lane, inside: &[bool]) -> bool {
    let known: Vec<bool> = known.0.iter().map(Option::is_some).collect();
    let count = |flags: &[bool]| flags.iter().filter(|flag| **flag).count() as f64;
    2.0 * count(&known) >= known.len() as f64 && count(&both(&known, inside)) >= ALWAYS * count(&known)
}

/// What a storm that lasts visibly costs.
struct Cost {
    /// Share of the processors' time that is left, disk waits included, where they are the server's own.
    idle: Option<f64>,
    processors: Option<f64>,
    threads: Option<f64>,
}

impl Cost {
    fn of(scene: &Scene<'_>, engine: &Engine<'_>, inside: &[bool]) -> Cost {
        let threads = gauge(scene, &cat::MONGO_THREADS, &engine.name, None);
        Cost {
            idle: mean_within(&idle_processors(scene, engine), inside),
            processors: processors(scene, engine),
            threads: mean_within(&threads, inside),
        }
    }

    fn busy(&self) -> Option<f64> {
        self.idle.filter(|idle| *idle < FEW_IDLE)
    }

    /// Threads and processors, where there are far more of the first.
    fn crowded(&self) -> Option<(f64, f64)> {
        self.threads.zip(self.processors).filter(|(threads, processors)| *threads >= CROWD * processors)
    }

    fn is_high(&self) -> bool {
        self.busy().is_some() || self.crowded().is_some()
    }

    fn words(&self) -> String {
        let busy = self.busy().map(|idle| format!("the processors were idle only {} of it", Unit::Ratio.show(idle)));
        let crowded = self.crowded().map(|(threads, processors)| {
            format!("{} threads shared {} processors", Unit::Count.show(threads), Unit::Count.show(processors))
        });
        let told: Vec<String> = busy.into_iter().chain(crowded).collect();
        format!(" It was so all the time, and {}.", told.join(", and "))
    }
}

fn mean_within(lane: &Lane, inside: &[bool]) -> Option<f64> {
    let values: Vec<f64> =
        lane.0.iter().zip(inside).filter(|(_, flag)| **flag).filter_map(|(value, _)| *value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
