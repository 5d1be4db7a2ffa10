//! Two windows side by side: what a remedy changed, and whether the change is larger than the noise.
//!
//! The interval of a mean is that of batch means: seconds are averaged in blocks of five, because neighbouring seconds are
//! alike, and the interval is mean ± 2 standard errors of the blocks (Law, Simulation Modeling and Analysis, ch. 9).

use crate::blind::blind;
use crate::cliff;
use crate::drain::levels;
use crate::grid::{Grid, Lane};
use crate::rules::diagnose;
use crate::rules::wt_evidence::{self, Engine, SERVERS, servers, targets_with};
use crate::scene::Scene;
use crate::{Options, throughput};
use backwater_model::{Finding, Unit, Window, catalogue as cat};
use serde::Serialize;
use std::collections::BTreeSet;

/// Seconds in a block.
const BLOCK: usize = 5;

/// One figure of one window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measure {
    /// The value.
    pub value: f64,
    /// Where the true value lies, about 19 times in 20; none for figures that are one reading.
    pub interval: Option<[f64; 2]>,
}

/// One figure in both windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Name that ends in its unit.
    pub name: String,
    /// What it is.
    pub label: String,
    /// Its unit.
    pub unit: Unit,
    /// Before.
    pub before: Option<Measure>,
    /// After.
    pub after: Option<Measure>,
    /// (after − before) ÷ before.
    pub change_ratio: Option<f64>,
    /// Whether the intervals are apart; none where one has none.
    pub clear: Option<bool>,
}

/// Two windows compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Length of each window in seconds.
    pub seconds: [f64; 2],
    /// Figures.
    pub changes: Vec<Change>,
    /// What was found before.
    pub findings_before: Vec<Finding>,
    /// What was found after.
    pub findings_after: Vec<Finding>,
    /// The servers that were not seen in each window: what is not found on them may be there all the same.
    pub unseen: [Vec<String>; 2],
    /// What makes the comparison doubtful.
    pub doubts: Vec<String>,
}

/// What changed from one window to the other.
pub fn compare(before: &Window, after: &Window) -> Comparison {
    let (first, second) = (figures(before), figures(after));
    let mut changes: Vec<Change> = first.into_iter().zip(second).map(|(a, b)| change(a, &b)).collect();
    if [before, after].iter().any(|window| !targets_with(window, &SERVERS).is_empty()) {
        let (first, second) = (of_mongodb(before), of_mongodb(after));
        changes.extend(first.into_iter().zip(second).map(|(a, b)| change(a, &b)));
    }
    let findings = |window| diagnose(window, &Options::default());
    let mut doubts = Vec::new();
    let seconds = [before.seconds(), after.seconds()];
    if seconds.iter().any(|seconds| *seconds < 30.0) {
        doubts.push("A window of less than half a minute says little: take longer ones.".to_owned());
    }
    let unseen = [blind(before), blind(after)];
    for (place, spots) in ["first", "second"].iter().zip(&unseen) {
        doubts.extend(
            spots
                .iter()
                .map(|spot| format!("In the {place} window {}: what is not found there may be there.", spot.why)),
        );
    }
    if seconds[0] > 2.0 * seconds[1] || seconds[1] > 2.0 * seconds[0] {
        doubts.push(
            "The windows differ in length by more than twice: what grows with time is not comparable.".to_owned(),
        );
    }
    let names = |window: &Window| window.meta.targets.iter().map(|target| target.name.clone()).collect::<BTreeSet<_>>();
    let (first, second) = (names(before), names(after));
    if !first.is_empty() && !second.is_empty() && first.is_disjoint(&second) {
        doubts.push("The windows are of different servers.".to_owned());
    }
    let counted = |window| throughput::lane(window, &Grid::of(window)).1;
    if counted(before) != counted(after) {
        doubts.push("Throughput is counted in transactions in one window and in commits in the other.".to_owned());
    }
    let unseen = unseen.map(|spots| spots.into_iter().map(|spot| spot.server).collect());
    Comparison { seconds, changes, findings_before: findings(before), findings_after: findings(after), unseen, doubts }
}

struct Figure {
    name: &'static str,
    label: String,
    unit: Unit,
    measure: Option<Measure>,
}

fn change(before: Figure, after: &Figure) -> Change {
    let both = before.measure.zip(after.measure);
    let apart = |a: [f64; 2], b: [f64; 2]| a[1] < b[0] || b[1] < a[0];
    Change {
        name: before.name.to_owned(),
        label: before.label,
        unit: before.unit,
        change_ratio: both.filter(|(a, _)| a.value != 0.0).map(|(a, b)| (b.value - a.value) / a.value),
        clear: both.and_then(|(a, b)| Some(apart(a.interval?, b.interval?))),
        before: before.measure,
        after: after.measure,
    }
}

fn figures(window: &Window) -> Vec<Figure> {
    let scene = Scene::of(window);
    let series = working(throughput::throughput(window));
    let single = |value: Option<f64>| value.map(|value| Measure { value, interval: None });
    let latency = throughput::latency_ms(window, &scene.grid);
    let values: Vec<f64> = scene.throughput.0.iter().flatten().copied().collect();
    let device = scene.devices.iter().find(|device| device.holds_data);
    let dirty = device.map(|device| peak(&levels(window, &device.dev))).unwrap_or_default();
    let written = device.map(|device| device.drained().clone()).unwrap_or_else(|| scene.grid.unknown());
    let lane =
        |name, label: &str, unit, lane: &Lane| Figure { name, label: label.to_owned(), unit, measure: mean(lane) };
    let one = |name, label: &str, unit, value| Figure { name, label: label.to_owned(), unit, measure: single(value) };
    vec![
        lane("throughput_mean_per_s", scene.counted.label(), Unit::PerSecond, &scene.throughput),
        one("throughput_peak_per_s", "the best second", Unit::PerSecond, values.iter().copied().reduce(f64::max)),
        one("throughput_low_per_s", "the worst second but 5 %", Unit::PerSecond, low(&values)),
        one("throughput_spread_ratio", "standard deviation ÷ mean of the seconds", Unit::Ratio, spread(&values)),
        one("time_to_cliff_s", "first lasting fall of throughput", Unit::Seconds, cliff::find(&series).map(|c| c.at_s)),
        lane("latency_mean_ms", "mean latency from the intended start", Unit::Milliseconds, &latency),
        one("dirty_peak_bytes", "dirty and under writeback, at most", Unit::Bytes, dirty),
        lane("written_bytes_per_s", "written to the data device", Unit::BytesPerSecond, &written),
        one("drain_s", "drain if the load had ended with the window", Unit::Seconds, drain(window, &scene)),
        lane("psi_io_some_ratio", "time in which some task waited on I/O", Unit::Ratio, &scene.psi_io),
    ]
}

/// What a MongoDB server's clients feel, and the queues of its engine: of the first server where there are several.
fn of_mongodb(window: &Window) -> Vec<Figure> {
    let scene = Scene::of(window);
    let engine = servers(&scene).into_iter().next();
    let lane_of = |of: &dyn Fn(&Engine<'_>) -> Lane| engine.as_ref().map_or_else(|| scene.grid.unknown(), of);
    let felt = lane_of(&|engine| engine.felt_ms());
    let name =
        |what: &str| engine.as_ref().map_or_else(|| what.to_owned(), |engine| format!("{what} ({})", engine.name));
    let single = |value: Option<f64>| value.map(|value| Measure { value, interval: None });
    let lane = |name, label: String, unit, lane: Lane| Figure { name, label, unit, measure: mean(&lane) };
    let one = |name, label: String, unit, value| Figure { name, label, unit, measure: single(value) };
    let all = 0..scene.grid.count;
    // Of all writes, also of those that come one by one: the slowest may be among them.
    let counted = |def| lane_of(&|engine| wt_evidence::rate(&scene, def, &engine.name, Some("writes")));
    let ops = counted(&cat::MONGO_OPS).mean(&all).filter(|ops| *ops > 0.0);
    let weighed = |ops: f64| counted(&cat::MONGO_LATENCY).map(|us| us / ops / 1e3);
    let latency_ms = ops.map_or_else(|| scene.grid.unknown(), weighed);
    let syncs = |def| lane_of(&|engine| wt_evidence::rate(&scene, def, &engine.name, None));
    let sync_ms = syncs(&cat::WT_LOG_SYNC_US).with(&syncs(&cat::WT_LOG_SYNCS), |us, syncs| us / syncs / 1e3);
    let sync_ms = Lane(sync_ms.0.into_iter().map(|ms| ms.filter(|ms| ms.is_finite())).collect());
    vec![
        lane("writes_per_s", name("writes answered"), Unit::PerSecond, lane_of(&|engine| engine.writes.clone())),
        lane("write_mean_ms", "latency of a write".to_owned(), Unit::Milliseconds, latency_ms),
        one(
            "write_high_ms",
            "the same in all seconds with five writes or more but 1 %".to_owned(),
            Unit::Milliseconds,
            high(&felt.values(&all)),
        ),
        lane(
            "dirty_mean_ratio",
            "dirty share of the cache".to_owned(),
            Unit::Ratio,
            lane_of(&|engine| engine.dirty_share()),
        ),
        one(
            "dirty_peak_ratio",
            "the same at most".to_owned(),
            Unit::Ratio,
            lane_of(&|engine| engine.dirty_share()).max(&all),
        ),
        lane(
            "cache_waiting_count",
            "threads that wait for the cache".to_owned(),
            Unit::Count,
            lane_of(&|engine| engine.waiting.clone()),
        ),
        lane(
            "checkpoint_ratio",
            "share of time in checkpoints".to_owned(),
            Unit::Ratio,
            lane_of(&|engine| engine.checkpoint.clone()),
        ),
        lane("journal_sync_ms", "a sync of the journal".to_owned(), Unit::Milliseconds, sync_ms),
    ]
}

/// The value over which 1 % of the seconds lie.
fn high(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * 99 / 100).min(sorted.len().saturating_sub(1))).copied()
}

/// Throughput until the last second with any work: the end of a load is no cliff.
fn working(mut series: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let peak = series.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let last = series.iter().rposition(|(_, rate)| *rate > 0.01 * peak);
    series.truncate(last.map_or(0, |last| last + 1));
    series
}

fn peak(levels: &[(backwater_model::Moment, f64)]) -> Option<f64> {
    levels.iter().map(|(_, level)| *level).reduce(f64::max)
}

/// The drain as it was when the level stood highest: that is the one that matters.
fn drain(window: &Window, scene: &Scene<'_>) -> Option<f64> {
    let device = scene.devices.iter().find(|device| device.holds_data)?;
    let levels = levels(window, &device.dev);
    let (at, _) = levels.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    crate::predict::drain_time(window, &device.dev, at).filter(|drain| drain.outflow_seen).map(|drain| drain.drain_s)
}

fn mean(lane: &Lane) -> Option<Measure> {
    let values: Vec<f64> = lane.0.iter().flatten().copied().collect();
    let average = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let value = average(&values);
    let blocks: Vec<f64> = values.chunks_exact(BLOCK).map(average).collect();
    let interval = (blocks.len() >= 4).then(|| {
        let middle = average(&blocks);
        let variance = blocks.iter().map(|block| (block - middle).powi(2)).sum::<f64>() / (blocks.len() - 1) as f64;
        let error = (variance / blocks.len() as f64).sqrt();
        [value - 2.0 * error, value + 2.0 * error]
    });
    Some(Measure { value, interval })
}

/// The value under which 5 % of the seconds lie.
fn low(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 20).copied()
}

fn spread(values: &[f64]) -> Option<f64> {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64;
    (mean > 0.0 && values.len() >= 2).then(|| variance.sqrt() / mean)
}
