//! What is measured of an engine's queue of dirty pages: its room, its bursts, what comes in, and what the disk takes.

use crate::caps::Cap;
use crate::figures::Figures;
use crate::grid::{Lane, both, either, median, runs};
use crate::rules::device_below_rating::standstills;
use crate::rules::wt_evidence::{Engine, Limits, rate};
use crate::scene::Scene;
use backwater_model::{Figure, Point, Target, Unit, catalogue as cat};
use std::ops::Range;

/// A device this busy does all it can.
const BUSY: f64 = 0.9;
/// Up to this share of what the disk does, what is read into the cache is hardly anything.
const FEW_READS: f64 = 0.1;
/// A burst of this share of where eviction begins is as large as eviction lets it be; of this, eviction does not hold it.
const BY_EVICTION: f64 = 0.8;
const OVER: f64 = 1.2;
/// Dirty pages that come to this share of where application threads must evict stand near to it.
const CROWDED: f64 = 0.7;
/// Seconds at full rate, at least, from which a rate can be told. A device that serves several requests at once is as busy with few
/// of them, so that what it does in most of these seconds need not be all: of those under no cap this share does less.
const LEAST_S: usize = 3;
const MOST: f64 = 0.8;
/// A checkpoint that brings less than this share of what a large one does (larger than so many of all) is one of an idle hour.
const OF_THE_LARGEST: f64 = 0.1;
/// So is any that brings no more than this share of the cache.
const IDLE_BURST: f64 = 0.001;
/// What a device writes in the best of its seconds is no measure of it; but less than this share of that is not all that it can,
/// however busy it is with few requests.
const FEW_OF_BEST: f64 = 0.02;
const LARGE: f64 = 0.9;
/// How long a checkpoint must run, in seconds, to be seen by readings a second apart.
const SURELY_SEEN_S: f64 = 2.0;
/// Bytes of the cache in each that is written, from which pages are compressed; more than the second is no compression.
const PACKED: f64 = 1.25;
const MOST_PACKED: f64 = 20.0;

/// What was measured of one engine's queue of dirty pages; bytes, and bytes a second.
pub(super) struct Measured {
    pub(super) cache: f64,
    pub(super) target: f64,
    pub(super) trigger: f64,
    /// Dirty when a checkpoint begins; where none was seen to begin, the most.
    pub(super) burst: f64,
    /// From one checkpoint's beginning to the next, in seconds.
    pub(super) interval_s: Option<f64>,
    /// How long one takes, in seconds.
    pub(super) checkpoint_s: Option<f64>,
    /// What the disk takes of the cache when it does all it can, with the journal's part: see `packed`.
    pub(super) drain: Option<f64>,
    pub(super) inflow: Option<f64>,
    pub(super) inflow_peak: Option<f64>,
    /// What the journal writes to the same disk, on average.
    pub(super) journal: f64,
    /// Bytes of the cache in each that comes to the disk: more than one where pages are compressed, as MongoDB's are unless told
    /// otherwise. Drain and journal are so many times what the disk writes of them.
    pub(super) packed: f64,
    /// The most that would be dirty if nobody were held back.
    pub(super) unheld_peak: Option<f64>,
    /// Read into the cache, on average.
    pub(super) read: Option<f64>,
}

/// What settings leave of the queue, bytes.
#[derive(Clone, Copy)]
pub(super) struct Outlook {
    /// Left for a checkpoint.
    pub(super) burst: f64,
    /// Where background eviction begins.
    pub(super) target: f64,
    /// Where application threads must evict.
    pub(super) trigger: f64,
}

impl Measured {
    /// The queue as it was seen.
    pub(super) fn now(&self) -> Outlook {
        Outlook { burst: self.burst, target: self.target, trigger: self.trigger }
    }

    /// Burst, its drain, and how long from the level that eviction holds to the trigger at the highest inflow: after a change
    /// and before it.
    pub(super) fn predict(&self, before: Outlook, after: Outlook) -> Vec<Figure> {
        let mut figures = Figures::default();
        let drain_s = |burst: f64| self.drain.map(|drain| burst / drain);
        let to_trigger_s = |of: Outlook| self.to_trigger_s(of.target.min(of.burst), of.trigger);
        figures.add("burst_bytes", Some(after.burst), Unit::Bytes, "left for a checkpoint");
        figures.add("burst_now_bytes", Some(before.burst), Unit::Bytes, "the same as it is");
        figures.add("drain_s", drain_s(after.burst), Unit::Seconds, "its drain");
        figures.add("drain_now_s", drain_s(before.burst), Unit::Seconds, "the drain as it is");
        figures.add("to_trigger_s", to_trigger_s(after), Unit::Seconds, "until application threads evict");
        figures.add("to_trigger_now_s", to_trigger_s(before), Unit::Seconds, "the same as it is");
        figures.list()
    }

    /// What is left for a checkpoint at most, where it is held at this level and was at a lower one until now: no more than would
    /// stand if nobody were held and eviction began where it then does, and no less than was left.
    pub(super) fn at_most(&self, level: f64, target: f64) -> f64 {
        let later = (target - self.target).max(0.0);
        self.unheld_peak.map_or(level, |peak| peak + later).min(level).max(self.burst)
    }

    /// The queue in a cache of another size, whose limits are these. What holds the burst now holds it then: application threads
    /// where it is over what eviction begins at, eviction where it comes to that, else time alone.
    pub(super) fn in_cache(&self, limits: Limits, bytes: f64) -> Outlook {
        let (target, trigger) = (limits.dirty_target * bytes, limits.dirty_trigger * bytes);
        let holds = if self.burst > OVER * self.target { trigger } else { target };
        let by_time = self.burst < BY_EVICTION * self.target;
        let burst = if bytes < self.cache || by_time { self.burst.min(holds) } else { self.at_most(holds, target) };
        Outlook { burst, target, trigger }
    }

    pub(super) fn of(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Measured> {
        let all = 0..scene.grid.count;
        let cache = engine.max.median(&all)?;
        let runs = runs(&engine.checkpoint, 1);
        let before = |start: usize| engine.dirty.max(&(start.saturating_sub(2)..start + 1));
        let begins = runs.iter().map(|run| run.start).chain(unseen_checkpoints(scene, engine, &runs));
        let bursts: Vec<f64> = begins.filter(|begin| *begin > 0).filter_map(before).collect();
        let inflow = inflow(scene, engine);
        let packed = packed(scene, engine);
        let (drain, journal) = (drain(scene, engine).map(|drain| packed * drain), packed * journal(scene, engine));
        Some(Measured {
            cache,
            target: engine.limits.dirty_target * cache,
            trigger: engine.limits.dirty_trigger * cache,
            burst: usual_burst(bursts, IDLE_BURST * cache).or_else(|| engine.dirty.max(&all))?,
            interval_s: interval_s(scene, engine, &runs),
            checkpoint_s: median(runs.iter().map(|run| run.len() as f64).collect()),
            drain,
            // With its falls: where pages are dropped, less was made dirty than that.
            inflow: net_inflow(scene, engine).mean(&all).map(|mean| mean.max(0.0)),
            inflow_peak: inflow.smooth(2).max(&all),
            journal,
            packed,
            unheld_peak: unheld_peak(scene, engine, &inflow),
            read: rate(scene, &cat::WT_CACHE_READ, &engine.name, None).mean(&all),
        })
    }

    /// What the disk writes when it does all it can, in its own bytes.
    pub(super) fn disk(&self) -> Option<f64> {
        self.drain.map(|drain| drain / self.packed)
    }

    /// Whether dirty pages come near to where application threads must evict.
    pub(super) fn is_crowded(&self) -> bool {
        self.unheld_peak.is_some_and(|peak| peak > CROWDED * self.trigger)
    }

    /// What is read into the cache, where that is hardly anything beside what the disk does; none where it is more, or nobody counted.
    pub(super) fn few_reads(&self) -> Option<f64> {
        self.read.zip(self.drain).filter(|(read, drain)| *read <= FEW_READS * drain).map(|(read, _)| read)
    }

    /// Seconds until application threads must evict, from `level` with a trigger at `trigger`; none where the disk keeps up.
    pub(super) fn to_trigger_s(&self, level: f64, trigger: f64) -> Option<f64> {
        let fills = self.inflow_peak? - (self.drain? - self.journal);
        (fills > 0.0).then(|| (trigger - level).max(0.0) / fills)
    }
}

/// What a checkpoint brings where there is work: at night it brings next to nothing, and there are many of those.
fn usual_burst(bursts: Vec<f64>, idle: f64) -> Option<f64> {
    let at_work: Vec<f64> = bursts.iter().copied().filter(|burst| *burst > idle).collect();
    let bursts = if at_work.is_empty() { bursts } else { at_work };
    let mut sorted = bursts.clone();
    sorted.sort_by(f64::total_cmp);
    // One that a bulk load brought says nothing of the others.
    let large = *sorted.get((LARGE * sorted.len().saturating_sub(1) as f64).floor() as usize)?;
    median(bursts.into_iter().filter(|burst| *burst >= OF_THE_LARGEST * large).collect())
}

/// Seconds in which the server counted a checkpoint that no reading fell into: one that takes milliseconds is seldom seen to run.
fn unseen_checkpoints(scene: &Scene<'_>, engine: &Engine<'_>, runs: &[Range<usize>]) -> Vec<usize> {
    let seen = |second: usize| runs.iter().any(|run| run.start.saturating_sub(1) <= second && second <= run.end + 1);
    counted(scene, engine).into_iter().filter(|second| !seen(*second)).collect()
}

/// Seconds in which checkpoints ended, by the server's own count, as its readings show it.
fn counted(scene: &Scene<'_>, engine: &Engine<'_>) -> Vec<usize> {
    let Some(track) = scene.window.track(cat::WT_CHECKPOINTS.name, &[("target", &engine.name)]) else {
        return Vec::new();
    };
    let rises = |pair: &&[Point]| pair[0].epoch == pair[1].epoch && pair[1].value > pair[0].value;
    track.points.windows(2).filter(rises).filter_map(|pair| scene.grid.second(pair[1].at)).collect()
}

/// From one checkpoint's beginning to the next, in seconds: as the server counts them, else (since 8.0) as they are seen to run, where
/// they run for so long that none is missed.
fn interval_s(scene: &Scene<'_>, engine: &Engine<'_>, runs: &[Range<usize>]) -> Option<f64> {
    let apart = |list: Vec<usize>| median(list.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect());
    let by_count = apart(counted(scene, engine));
    if by_count.is_some() {
        return by_count;
    }
    let length_s = median(runs.iter().map(|run| engine.checkpoint.values(run).iter().sum()).collect())?;
    apart(runs.iter().map(|run| run.start).collect()).filter(|_| length_s >= SURELY_SEEN_S)
}

/// What is written from the cache ÷ what of it comes into the data files; where nobody counted that, ÷ what the disk writes beside
/// the journal. Others may write to the disk as well, and pages may be written anew in the page cache, so that a little more than one
/// is none, and less says nothing.
fn packed(scene: &Scene<'_>, engine: &Engine<'_>) -> f64 {
    let cached = rate(scene, &cat::WT_CACHE_WRITTEN, &engine.name, None);
    let over = |written: &Lane, beside: f64| {
        let all = 0..scene.grid.count;
        let (cached, written) = (cached.with(written, |cached, _| cached), written.with(&cached, |written, _| written));
        Some(cached.mean(&all)? / (written.mean(&all)? - beside))
    };
    let into_files = rate(scene, &cat::WT_BLOCK_WRITTEN, &engine.name, None);
    let by_disk = || over(&engine.device?.written_bytes, journal(scene, engine));
    let ratio = if into_files.known() { over(&into_files, 0.0) } else { by_disk() };
    ratio.filter(|ratio| (PACKED..MOST_PACKED).contains(ratio)).unwrap_or(1.0)
}

/// What the journal takes of the disk that the data lie on, bytes a second. It lies in a directory beside them, unless that was
/// seen to be on another disk: no flight recorder tells of it.
fn journal(scene: &Scene<'_>, engine: &Engine<'_>) -> f64 {
    let target = scene.window.meta.targets.iter().find(|target| target.name == engine.name);
    let elsewhere = |target: &Target| target.wal_device.is_some() && target.wal_device != target.data_device;
    let shared = target.is_some_and(|target| target.data_device.is_some() && !elsewhere(target));
    let written = rate(scene, &cat::WT_LOG_BYTES, &engine.name, None).mean(&(0..scene.grid.count));
    written.filter(|_| shared).unwrap_or(0.0)
}

/// The highest level that dirty pages would come to if nobody were held: in seconds in which threads are, the most that they make
/// dirty when they are not comes in, and what the cache wrote then goes out; in all others it goes as it went. Where background
/// eviction has come to its end, nothing of what was held is left.
fn unheld_peak(scene: &Scene<'_>, engine: &Engine<'_>, inflow: &Lane) -> Option<f64> {
    let free = inflow.smooth(2).max(&(0..scene.grid.count))?;
    let written = rate(scene, &cat::WT_CACHE_WRITTEN, &engine.name, None);
    let ends = engine.limits.dirty_target * engine.max.median(&(0..scene.grid.count))?;
    let (mut level, mut before, mut most) = (None, None, None);
    for second in 0..scene.grid.count {
        let Some(dirty) = engine.dirty.get(second) else { continue };
        let held = engine.waiting.get(second).is_some_and(|threads| threads >= super::HELD_THREADS);
        // Of a held second in which nobody counted what was written nothing is known but that it was held.
        let by = match held {
            true => Some(written.get(second).map_or(0.0, |written| free - written)),
            false => before.map(|before| dirty - before),
        };
        let unheld = level.zip(by).map_or(dirty, |(level, by): (f64, f64)| (level + by).max(dirty));
        level = Some(if !held && dirty <= ends { dirty } else { unheld });
        before = Some(dirty);
        most = level.into_iter().chain(most).reduce(f64::max);
    }
    most
}

/// What is made dirty, bytes a second.
fn inflow(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    net_inflow(scene, engine).map(|inflow| inflow.max(0.0))
}

/// The same; less than nothing where the level falls by more than was written, as of two readings that are not of one moment.
fn net_inflow(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    let written = rate(scene, &cat::WT_CACHE_WRITTEN, &engine.name, None);
    let rise = scene.grid.lane(|second| {
        let next = engine.dirty.get(second + 1).or_else(|| engine.dirty.get(second))?;
        Some(next - engine.dirty.get(second)?)
    });
    written.with(&rise, |written, rise| written + rise)
}

/// How fast the disk writes when it does all it can, which it does not while it stands still by itself.
fn drain(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<f64> {
    let device = engine.device?;
    let full = device.busy.smooth(1).flags(|busy| busy >= BUSY);
    let caps = engine.write_caps(scene);
    let none = vec![false; scene.grid.count];
    let capped = caps.iter().map(Cap::reached).fold(none, |all, capped| either(&all, &capped));
    let full = either(&full, &capped);
    let best = device.written_bytes.smooth(1).max(&(0..scene.grid.count)).unwrap_or_default();
    let writes = both(&full, &device.written_bytes.flags(|rate| rate > FEW_OF_BEST * best));
    let stands = standstills(device, scene.grid.count).map_or_else(Vec::new, |found| found.runs);
    // Busy with reads it writes what these leave.
    let reads = device.read_bytes.with(&device.written_bytes, |read, written| read - written).flags(|more| more > 0.0);
    let counts = |second: &usize| writes[*second] && !stands.iter().any(|run| run.contains(second));
    let rates = |only: &dyn Fn(usize) -> bool| -> Vec<f64> {
        let seconds = (0..scene.grid.count).filter(|second| counts(second) && only(*second));
        seconds.filter_map(|second| device.written_bytes.get(second)).collect()
    };
    let under_caps = rates(&|second| capped[second]);
    if under_caps.len() >= LEAST_S {
        return median(under_caps);
    }
    let mut busy = rates(&|second| !reads[second]);
    busy.sort_by(f64::total_cmp);
    if busy.len() >= LEAST_S {
        return busy.get((MOST * (busy.len() - 1) as f64).round() as usize).copied();
    }
    // Where it reads more than it writes all the while, what reads leave is all that writes get.
    let all = rates(&|_| true);
    if all.len() < LEAST_S { None } else { median(all) }
}

/// Application threads that wait for a page which another thread has, on average: the most in any second.
pub(super) fn page_waiters(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<f64> {
    rate(scene, &cat::WT_APP_PAGE_US, &engine.name, None).max(&(0..scene.grid.count)).map(|us| us / 1e6)
}

/// The longest that a sync of the journal took on average in a second in which some ended.
pub(super) fn journal_sync_s(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<f64> {
    let of = |def| rate(scene, def, &engine.name, None);
    let each = of(&cat::WT_LOG_SYNC_US)
        .with(&of(&cat::WT_LOG_SYNCS), |us, syncs| if syncs > 0.0 { us / syncs / 1e6 } else { 0.0 });
    each.max(&(0..scene.grid.count))
}
