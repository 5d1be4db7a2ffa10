//! A MongoDB server with its engine as rules see it: the cache, its limits, who evicts, checkpoints, what clients feel.

use crate::caps::{self, Cap, CapOwner, Op};
use crate::device::DeviceView;
use crate::grid::{Lane, both};
use crate::scene::Scene;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Finding, Role, Target, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One server, a value a second.
pub(crate) struct Engine<'a> {
    pub(crate) name: String,
    pub(crate) limits: Limits,
    /// Where the data lie, if that is known.
    pub(crate) device: Option<&'a DeviceView>,
    /// Bytes.
    pub(crate) dirty: Lane,
    pub(crate) updates: Lane,
    pub(crate) used: Lane,
    pub(crate) max: Lane,
    /// Application threads that wait for the cache, evicting included, on average.
    pub(crate) waiting: Lane,
    /// Application threads at work, and those in line before the engine.
    pub(crate) active: Lane,
    /// Whether a checkpoint runs.
    pub(crate) checkpoint: Lane,
    /// Mean latency of a write, in milliseconds, and writes a second.
    pub(crate) write_ms: Lane,
    pub(crate) writes: Lane,
}

/// Every server with readings of an engine.
pub(crate) fn engines<'a>(scene: &'a Scene<'_>) -> Vec<Engine<'a>> {
    with_readings(scene, &[&cat::WT_CACHE_MAX])
}

/// What tells that there is a server that clients connect with: those with an engine, and routers (mongos), which have none.
pub(crate) const SERVERS: [&Def; 2] = [&cat::WT_CACHE_MAX, &cat::MONGO_CONNECTIONS];

pub(crate) fn servers<'a>(scene: &'a Scene<'_>) -> Vec<Engine<'a>> {
    with_readings(scene, &SERVERS)
}

fn with_readings<'a>(scene: &'a Scene<'_>, any_of: &[&Def]) -> Vec<Engine<'a>> {
    targets_with(scene.window, any_of).into_iter().map(|name| engine(scene, name)).collect()
}

/// The targets with a reading of any of these.
pub(crate) fn targets_with(window: &Window, any_of: &[&Def]) -> BTreeSet<String> {
    let tracks = any_of.iter().flat_map(|def| window.tracks(def.name, &[]));
    let tracks = tracks.filter(|track| !track.points.is_empty());
    tracks.filter_map(|track| track.series.labels.get("target").map(str::to_owned)).collect()
}

fn engine<'a>(scene: &'a Scene<'_>, name: String) -> Engine<'a> {
    let gauge = |def| gauge(scene, def, &name, None);
    let target = scene.window.meta.targets.iter().find(|target| target.name == name);
    let clients = clients(scene, target, &name);
    let max = gauge(&cat::WT_CACHE_MAX);
    Engine {
        limits: Limits::of(target, max.median(&(0..scene.grid.count))),
        device: device_of(scene, target, &name),
        dirty: gauge(&cat::WT_CACHE_DIRTY),
        updates: gauge(&cat::WT_CACHE_UPDATES),
        used: gauge(&cat::WT_CACHE_USED),
        max,
        waiting: rate(scene, &cat::WT_APP_WAIT_US, &name, None).map(|us| us / 1e6),
        active: clients.active,
        checkpoint: gauge(&cat::WT_CHECKPOINT_RUNNING),
        write_ms: clients.write_ms,
        writes: clients.writes,
        name,
    }
}

/// The device of a server's data, which may be another than its journal's.
fn device_of<'a>(scene: &'a Scene<'_>, target: Option<&Target>, name: &str) -> Option<&'a DeviceView> {
    let find = |is_it: &dyn Fn(&DeviceView) -> bool| scene.devices.iter().find(|device| is_it(device));
    if let Some(dev) = target.and_then(|target| target.data_device.as_deref()) {
        return find(&|device| device.dev == dev);
    }
    let of_data = |(role, user): &(Role, String)| user == name && !matches!(role, Role::Wal | Role::Recording);
    let has_data = |dev: &str| scene.window.meta.device(dev).is_some_and(|device| device.roles.iter().any(of_data));
    find(&|device| has_data(&device.dev)).or_else(|| find(&|device| device.targets.iter().any(|user| user == name)))
}

/// What clients ask and feel.
struct Clients {
    active: Lane,
    writes: Lane,
    write_ms: Lane,
}

/// Of a server, by its own counts; of the engine alone, which has no clients but the load, by the load's.
fn clients(scene: &Scene<'_>, target: Option<&Target>, name: &str) -> Clients {
    if target.is_some_and(|target| target.kind == "wiredtiger") {
        let (window, grid) = (scene.window, &scene.grid);
        let under_way = grid.gauge(window.track(cat::LOAD_WAITING.name, &[]));
        // What waits for the journal alone has left its thread: no more are at work than there are threads.
        let threads = gauge(scene, &cat::MONGO_CONNECTIONS, name, None);
        return Clients {
            active: under_way.with(&threads, f64::min).or(&under_way),
            writes: grid.rate(window.track(cat::LOAD_COMPLETED.name, &[])),
            write_ms: crate::throughput::latency_ms(window, grid),
        };
    }
    let writes = rate(scene, &cat::MONGO_OPS, name, Some("writes"));
    let latency = rate(scene, &cat::MONGO_LATENCY, name, Some("writes"));
    let active = |op| gauge(scene, &cat::MONGO_CLIENTS, name, Some(op));
    Clients {
        active: active("read").with(&active("write"), |read, write| read + write),
        write_ms: Lane(latency.with(&writes, |us, ops| us / ops / 1e3).0.into_iter().map(finite).collect()),
        writes,
    }
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// A gauge of a server.
pub(crate) fn gauge(scene: &Scene<'_>, def: &Def, target: &str, op: Option<&str>) -> Lane {
    scene.grid.gauge(scene.window.track(def.name, &labels(target, op)))
}

/// A counter of a server, a second.
pub(crate) fn rate(scene: &Scene<'_>, def: &Def, target: &str, op: Option<&str>) -> Lane {
    scene.grid.rate(scene.window.track(def.name, &labels(target, op)))
}

fn labels<'a>(target: &'a str, op: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    [("target", target)].into_iter().chain(op.map(|op| ("op", op))).collect()
}

/// A figure inside some seconds against the seconds around them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Contrast {
    pub(crate) inside: f64,
    pub(crate) outside: f64,
}

impl Contrast {
    /// How many times what it is outside.
    pub(crate) fn times(self) -> f64 {
        if self.outside > 0.0 { self.inside / self.outside } else { f64::NAN }
    }
}

/// A cap is what holds a server back if it is reached for this share of the seconds.
const REACHED: f64 = 0.5;
/// Seconds outside, at least, for a comparison to mean something.
const OUTSIDE_S: usize = 10;
/// Writes a second below which their mean latency is an anecdote.
const FEW_WRITES: f64 = 5.0;

/// The mean of a lane inside a set of seconds against its median in all others.
pub(crate) fn contrast(lane: &Lane, inside: &[bool]) -> Option<Contrast> {
    let (within, without) = sides(lane, inside)?;
    Some(Contrast { inside: mean(&within), outside: crate::grid::median(without)? })
}

/// The mean inside against the mean in all others: of what is there or not, and of what comes and goes in both, whose median is
/// one of the two.
pub(crate) fn means(lane: &Lane, inside: &[bool]) -> Option<Contrast> {
    let (within, without) = sides(lane, inside)?;
    Some(Contrast { inside: mean(&within), outside: mean(&without) })
}

/// Of the seconds inside this share must be slow, and so many times the share of the others that are.
const SLOW_SHARE: f64 = 0.2;
const SLOW_TIMES: f64 = 2.0;

/// A latency in milliseconds inside some seconds where it is so many times, and so much, above what it usually is in the others: on
/// average, and in more of its seconds than of the others, since spikes that come in both are of neither.
pub(crate) fn slower(ms: &Lane, inside: &[bool], times: f64, by_ms: f64) -> Option<Contrast> {
    let latency = contrast(ms, inside)?;
    let above = |ms: f64| ms >= times * latency.outside && ms >= latency.outside + by_ms;
    let slow = means(&ms.map(|ms| f64::from(u8::from(above(ms)))), inside)?;
    let more = slow.inside >= SLOW_SHARE && slow.inside >= SLOW_TIMES * slow.outside;
    (above(latency.inside) && more).then_some(latency)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// What is known inside and outside, where that is enough to be compared.
fn sides(lane: &Lane, inside: &[bool]) -> Option<(Vec<f64>, Vec<f64>)> {
    let of = |wanted: bool| -> Vec<f64> {
        lane.0.iter().zip(inside).filter(|(_, flag)| **flag == wanted).filter_map(|(value, _)| *value).collect()
    };
    let (within, without) = (of(true), of(false));
    (!within.is_empty() && without.len() >= OUTSIDE_S).then_some((within, without))
}

impl Engine<'_> {
    /// The queue of its dirty pages.
    pub(crate) fn queue(&self) -> String {
        format!("wt.dirty@{}", self.name)
    }

    /// Dirty bytes as a share of the cache.
    pub(crate) fn dirty_share(&self) -> Lane {
        share(&self.dirty, &self.max)
    }

    /// Write latency in milliseconds, where there are enough writes to speak of.
    pub(crate) fn felt_ms(&self) -> Lane {
        self.write_ms.with(&self.writes.at_least(FEW_WRITES), |ms, _| ms)
    }

    /// The same inside some seconds against the others.
    pub(crate) fn latency(&self, inside: &[bool]) -> Option<Contrast> {
        contrast(&self.felt_ms(), inside)
    }

    /// Writes a second inside some seconds against the others. What is caught up when something lets go makes no stall before it
    /// smaller: a second counts for at most what is usual.
    pub(crate) fn work(&self, inside: &[bool]) -> Option<Contrast> {
        means(&self.writes_up_to(self.usual_writes(inside)?), inside)
    }

    /// Writes a second outside some seconds, usually.
    pub(crate) fn usual_writes(&self, inside: &[bool]) -> Option<f64> {
        contrast(&self.writes, inside).map(|writes| writes.outside)
    }

    /// Writes a second, of which more than so many count as so many.
    pub(crate) fn writes_up_to(&self, usual: f64) -> Lane {
        self.writes.map(|writes| writes.min(usual))
    }

    /// Ceilings on what is written to its device that hold this server.
    pub(crate) fn write_caps(&self, scene: &Scene<'_>) -> Vec<Cap> {
        let target = scene.window.meta.targets.iter().find(|target| target.name == self.name);
        let group = target.and_then(|target| target.io_cgroup.as_deref());
        let within = |name: &str| group.is_none_or(|own| own == name || own.starts_with(&format!("{name}/")));
        // A group that the server is not in may be at its own limit all day.
        let binds = |cap: &Cap| match &cap.owner {
            CapOwner::Cgroup(name) => !cap.of_some || within(name),
            CapOwner::Declared => true,
        };
        let caps = self.device.map_or_else(Vec::new, |device| caps::of(scene, device));
        caps.into_iter().filter(|cap| cap.op != Op::Read && binds(cap)).collect()
    }

    /// What of the engine's settings cannot be known where a server's parameters are not read: they may be changed while it runs.
    pub(crate) fn unseen(&self, scene: &Scene<'_>) -> Option<backwater_model::Unseen> {
        let target = scene.window.meta.targets.iter().find(|target| target.name == self.name);
        // Every server has this parameter, and hardly anybody sets it on the command line.
        let read = target
            .is_some_and(|target| is_alone(Some(target)) || target.settings.contains_key("setParameter.syncdelay"));
        (!read).then(|| backwater_model::Unseen {
            what: "eviction settings that were changed while the server ran".to_owned(),
            why: "the server tells only those it was started with".to_owned(),
            remedy: Some("db.adminCommand({getParameter: 1, wiredTigerEngineRuntimeConfig: 1})".to_owned()),
        })
    }
}

/// Whether a server runs on the host whose processors and memory were read beside it.
pub(crate) fn is_here(scene: &Scene<'_>, engine: &Engine<'_>) -> bool {
    scene.window.meta.targets.iter().any(|target| target.local && target.name == engine.name)
}

/// Memory of the host that a server runs on, and what of it is available, in bytes; unknown where another host's was read.
pub(crate) fn host_memory(scene: &Scene<'_>, engine: &Engine<'_>) -> (Lane, Lane) {
    let here = is_here(scene, engine);
    let of = |def: &Def| scene.grid.gauge(scene.window.track(def.name, &[]).filter(|_| here));
    (of(&cat::MEM_TOTAL), of(&cat::MEM_AVAILABLE))
}

/// Processors of the host that a server runs on.
pub(crate) fn processors(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<f64> {
    let meta = &scene.window.meta;
    let elsewhere = || {
        let target = meta.targets.iter().find(|target| target.name == engine.name)?;
        target.settings.get("hostInfo.system.numCores")?.parse().ok()
    };
    if is_here(scene, engine) { meta.host.cpus.map(f64::from) } else { elsewhere() }.filter(|count| *count > 0.0)
}

/// Share of the time in which that host's processors have nothing to run, be it for the disk; unknown where another host's were read.
pub(crate) fn idle_processors(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    let here = is_here(scene, engine);
    let of = |def: &Def| scene.grid.rate(scene.window.track(def.name, &[]).filter(|_| here));
    let (user, system) = (of(&cat::CPU_USER), of(&cat::CPU_SYSTEM));
    // Not every kernel, and not every release of a flight recorder, tells of these.
    let told = |def| {
        let lane = of(def);
        if lane.known() { lane } else { user.map(|_| 0.0) }
    };
    let sum = |a: f64, b: f64| a + b;
    let idle = of(&cat::CPU_IDLE).with(&told(&cat::CPU_IOWAIT), sum);
    let taken = user.with(&system, sum).with(&told(&cat::CPU_STEAL), sum);
    share(&idle, &idle.with(&taken, sum))
}

/// Of the caps on a device those to which its server comes in half of some seconds, each as what is used of it, second by second.
/// Whoever is held at a cap hardly makes the device busy.
pub(crate) fn caps_reached(scene: &Scene<'_>, engine: &Engine<'_>, seconds: &[bool]) -> impl Iterator<Item = Lane> {
    let count = |flags: &[bool]| flags.iter().filter(|flag| **flag).count() as f64;
    let comes_to = move |cap: &Cap| count(&both(&cap.reached(), seconds)) >= REACHED * count(seconds);
    engine.write_caps(scene).into_iter().filter(comes_to).map(|cap| cap.used())
}

/// What this server is called among the members of its set, where it said which of them it is.
pub(crate) fn own_member(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<String> {
    let label = [("target", engine.name.as_str())];
    let selves = scene.window.tracks(cat::MONGO_MEMBER_SELF.name, &label).filter(|track| track.last() == Some(1.0));
    selves.filter_map(|track| track.series.labels.get("member").map(str::to_owned)).next()
}

/// Where only MongoDB was watched, remedies that speak to PostgreSQL are left out, and who suffers goes by its name here.
pub(crate) fn in_its_words(scene: &Scene<'_>, findings: &mut [Finding]) {
    let targets = &scene.window.meta.targets;
    if targets.is_empty() || !targets.iter().all(Target::is_engine) {
        return;
    }
    let all = engines(scene);
    for finding in findings {
        finding.remedies.retain(|remedy| {
            let lines = remedy.runtime.iter().chain(&remedy.persistent);
            !remedy.title.contains("PostgreSQL") && !lines.into_iter().any(|line| line.contains("ALTER SYSTEM"))
        });
        for victim in finding.victims.iter_mut().filter(|victim| victim.starts_with("pg.")) {
            *victim = format!("mongo.writes@{}", targets[0].name);
        }
        finding.victims.dedup();
        // Nor has MongoDB what PostgreSQL tells of its sessions.
        finding.unseen.retain(|unseen| !unseen.what.contains("session"));
        // Nobody is held up who does not write: nothing is answered, and nobody is at work or waits for it.
        let within = |from| scene.grid.second(from);
        let range = within(finding.from).unwrap_or(0)..within(finding.to).unwrap_or(scene.grid.count);
        let idle = |name: &str| {
            let engine = all.iter().find(|engine| engine.name == name);
            let none = |lane: &Lane| lane.max(&range).is_some_and(|most| most <= 0.0);
            engine.is_some_and(|engine| [&engine.writes, &engine.active, &engine.waiting].into_iter().all(none))
        };
        finding.victims.retain(|victim| victim.strip_prefix("mongo.writes@").is_none_or(|name| !idle(name)));
    }
}

/// One lane as a share of another.
pub(crate) fn share(part: &Lane, whole: &Lane) -> Lane {
    Lane(part.with(whole, |part, whole| part / whole).0.into_iter().map(finite).collect())
}

/// Seconds as flags.
pub(crate) fn flags_of(ranges: &[Range<usize>], count: usize) -> Vec<bool> {
    (0..count).map(|second| ranges.iter().any(|range| range.contains(&second))).collect()
}

/// Where eviction begins, and where application threads must help, as shares of the cache. Defaults are those of every
/// release from 3.4 to 8.0; of updates (4.4+) half of what holds for dirty bytes (WiredTiger's `conn_cache.c`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) dirty_target: f64,
    pub(crate) dirty_trigger: f64,
    pub(crate) updates_target: f64,
    pub(crate) updates_trigger: f64,
    pub(crate) cache_target: f64,
    pub(crate) cache_trigger: f64,
}

impl Limits {
    /// What is configured, else the defaults; a limit in bytes needs the cache's size, and is the default where that is unknown.
    pub(crate) fn of(target: Option<&Target>, cache_bytes: Option<f64>) -> Self {
        let empty = BTreeMap::new();
        let settings = target.map_or(&empty, |target| &target.settings);
        let texts: Vec<&str> = CONFIGS.iter().filter_map(|name| settings.get(*name)).map(String::as_str).collect();
        let alone = is_alone(target);
        let own = |name: &str| settings.get(name).filter(|_| alone).and_then(|text| level(text));
        // What is set later in a text, and in a later text, wins, as in the engine.
        let value = |name: &str| texts.iter().rev().find_map(|text| number(text, name)).or_else(|| own(name));
        let share = |name: &str, default: f64| {
            let share = value(name).filter(|value| *value > 0.0).and_then(|value| {
                if value <= 100.0 {
                    Some(value / 100.0)
                } else {
                    Some(value / cache_bytes.filter(|bytes| *bytes > 0.0)?)
                }
            });
            share.filter(|share| *share <= 1.0).unwrap_or(default / 100.0)
        };
        let dirty_target = share("eviction_dirty_target", 5.0);
        let dirty_trigger = share("eviction_dirty_trigger", 20.0);
        Limits {
            dirty_target,
            dirty_trigger,
            updates_target: share("eviction_updates_target", dirty_target * 50.0),
            updates_trigger: share("eviction_updates_trigger", dirty_trigger * 50.0),
            cache_target: share("eviction_target", 80.0),
            cache_trigger: share("eviction_trigger", 95.0),
        }
    }
}

/// Whether it is the engine by itself, which has its settings by name.
fn is_alone(target: Option<&Target>) -> bool {
    target.is_some_and(|target| target.kind == "wiredtiger")
}

/// One of the engine's settings as it is written where it is configured; none where it is not.
pub(crate) fn configured(target: Option<&Target>, name: &str) -> Option<String> {
    let settings = &target?.settings;
    let own = settings.get(name).filter(|_| is_alone(target)).cloned();
    own.or_else(|| {
        CONFIGS.iter().rev().find_map(|text| words(settings.get(*text)?, name).next_back().map(str::to_owned))
    })
}

/// Where the engine's configuration stands, the one that wins last.
const CONFIGS: [&str; 2] =
    ["storage.wiredTiger.engineConfig.configString", "setParameter.wiredTigerEngineRuntimeConfig"];

/// The last value of a name in a configuration text such as `eviction=(threads_min=8),eviction_dirty_trigger=25`.
fn number(text: &str, name: &str) -> Option<f64> {
    words(text, name).filter_map(level).next_back()
}

/// All values of a name in such a text.
fn words<'t>(text: &'t str, name: &str) -> impl DoubleEndedIterator<Item = &'t str> {
    let parts = text.split([',', '(', ')']).filter_map(|part| part.split_once('='));
    parts.filter(move |(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// A value as the engine reads it: a plain number, or one with a unit of 2¹⁰, 2²⁰, 2³⁰ or 2⁴⁰ bytes (`config.c`).
fn level(text: &str) -> Option<f64> {
    let text = text.trim().trim_end_matches(['B', 'b']);
    let (digits, power) = match text.char_indices().next_back()? {
        (at, 'K' | 'k') => (&text[..at], 1),
        (at, 'M' | 'm') => (&text[..at], 2),
        (at, 'G' | 'g') => (&text[..at], 3),
        (at, 'T' | 't') => (&text[..at], 4),
        _ => (text, 0),
    };
    digits.parse::<f64>().ok().map(|value| value * 1_024_f64.powi(power)).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(pairs: &[(&str, &str)]) -> Target {
        let settings = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Target { settings, ..Target::default() }
    }

    fn limits(pairs: &[(&str, &str)]) -> Limits {
        Limits::of(Some(&target(pairs)), None)
    }

    #[test]
    fn limits_are_the_configured_ones_else_the_engines_defaults() {
        let none = Limits::of(None, None);
        assert_eq!((none.dirty_target, none.dirty_trigger, none.updates_trigger), (0.05, 0.2, 0.1));
        let set = limits(&[
            (CONFIGS[0], "eviction_dirty_trigger=25,eviction=(threads_min=8),eviction_dirty_target = 3"),
            (CONFIGS[1], "eviction_dirty_trigger=30"),
        ]);
        assert_eq!((set.dirty_target, set.dirty_trigger), (0.03, 0.3));
        assert_eq!((set.updates_target, set.updates_trigger), (0.015, 0.15));
        let bytes = limits(&[(CONFIGS[1], "eviction_dirty_trigger=2147483648,eviction_dirty_target=x,,=(")]);
        assert_eq!(bytes.dirty_trigger, 0.2);
    }

    #[test]
    fn limits_in_bytes_are_shares_of_the_cache() {
        let set = target(&[(CONFIGS[1], "eviction_dirty_target=256MB,eviction_dirty_trigger=2147483648")]);
        let limits = Limits::of(Some(&set), Some(4.0 * 1_073_741_824.0));
        assert_eq!((limits.dirty_target, limits.dirty_trigger), (0.0625, 0.5));
        let more_than_all = Limits::of(Some(&set), Some(1_048_576.0));
        assert_eq!((more_than_all.dirty_target, more_than_all.dirty_trigger), (0.05, 0.2));
        assert_eq!((level("1T"), level("é"), level(""), level("B")), (Some(1_024_f64.powi(4)), None, None, None));
    }

    #[test]
    fn the_engine_by_itself_has_its_settings_by_name() {
        let own = Target { kind: "wiredtiger".to_owned(), ..target(&[("eviction_dirty_trigger", "30")]) };
        assert_eq!(Limits::of(Some(&own), None).dirty_trigger, 0.3);
    }
}
