//! What more I/O operations a second would buy: throughput and drain time for a table of ratings, and the remedies.
//!
//! Model: a transaction dirties so many bytes; what is dirtied must be written in writes of the size seen, so
//! throughput = operations × write size ÷ bytes a transaction, and never more than was seen before the limit held it.

use crate::Options;
use crate::caps::{self, Cap, CapOwner, CapUnit, Op};
use crate::device::DeviceView;
use crate::remedy;
use crate::scene::Scene;
use backwater_model::{Figure, Remedy, Unit};
use serde::Serialize;
use std::ops::Range;

/// What a rating would lead to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IopsRow {
    /// Write operations a second.
    pub iops: f64,
    /// Whether this is the ceiling that holds now.
    pub now: bool,
    /// Throughput it can sustain, in transactions (or commits) a second.
    pub throughput_per_s: Option<f64>,
    /// Seconds from the end of a load that filled the queue until the background limit, at this rate.
    pub drain_s: Option<f64>,
    /// Whether writers would still be held: more is dirtied at full speed than this rate writes.
    pub still_held: bool,
    /// Cost a month at the price given.
    pub cost_per_month: Option<f64>,
}

/// How the load and the device go together, over a stretch in which writers were held or a ceiling reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Economy {
    /// Bytes dirtied a second at full speed.
    pub(crate) demand_bytes_per_s: f64,
    /// Mean size of a write.
    pub(crate) write_bytes: f64,
    /// Bytes dirtied for each transaction.
    pub(crate) transaction_bytes: Option<f64>,
    /// Full-speed throughput.
    pub(crate) peak_per_s: Option<f64>,
}

/// The figures of a stretch; none where demand or write size was not seen.
pub(crate) fn economy(scene: &Scene<'_>, device: &DeviceView, range: &Range<usize>) -> Option<Economy> {
    let before = range.start.saturating_sub(60)..range.end;
    let demand = device.inflow.smooth(1).max(&before)?;
    let write_bytes = device.write_size(range)?;
    let per_transaction = device.inflow.mean(range).zip(scene.throughput.mean(range));
    Some(Economy {
        demand_bytes_per_s: demand,
        write_bytes,
        transaction_bytes: per_transaction.filter(|(_, tps)| *tps > 0.0).map(|(bytes, tps)| bytes / tps),
        peak_per_s: scene.throughput.smooth(1).max(&before),
    })
}

impl Economy {
    /// Operations a second that would keep up with full speed.
    pub(crate) fn needed(&self) -> f64 {
        self.demand_bytes_per_s / self.write_bytes
    }

    /// Throughput that so many operations a second sustain.
    pub(crate) fn throughput(&self, iops: f64) -> Option<f64> {
        let sustained = iops * self.write_bytes / self.transaction_bytes.filter(|bytes| *bytes > 0.0)?;
        Some(self.peak_per_s.map_or(sustained, |peak| sustained.min(peak)))
    }

    /// One row of the table, for a queue with so many bytes over the background limit.
    pub(crate) fn row(&self, iops: f64, now: bool, excess: Option<f64>, price: Option<f64>) -> IopsRow {
        let still_held = iops < self.needed();
        IopsRow {
            iops,
            now,
            throughput_per_s: self.throughput(iops),
            drain_s: excess.map(|excess| excess / (iops * self.write_bytes)),
            still_held,
            cost_per_month: price.map(|price| price * iops),
        }
    }
}

/// Rounds a rating up to what people order.
pub(crate) fn orderly(iops: f64) -> f64 {
    let step = if iops > 10_000.0 { 1_000.0 } else { 100.0 };
    (iops / step).ceil() * step
}

/// Figures for a change of the ceiling.
fn predicted(economy: &Economy, iops: f64, price: Option<(f64, f64)>) -> Vec<Figure> {
    let mut figures = vec![Figure::new("iops", iops, Unit::PerSecond, "write operations a second")];
    let throughput = economy.throughput(iops);
    figures
        .extend(throughput.map(|tps| Figure::new("throughput_per_s", tps, Unit::PerSecond, "throughput it sustains")));
    if let Some((price, was)) = price {
        let cost = price * (iops - was).max(0.0);
        figures.push(Figure::new("extra_cost_per_month", cost, Unit::Count, "extra cost a month, at the price given"));
    }
    figures
}

/// Raises a ceiling of operations to what full speed needs.
pub(crate) fn raise(scene: &Scene<'_>, device: &DeviceView, cap: &Cap, range: &Range<usize>) -> Option<Remedy> {
    let economy = economy(scene, device, range)?;
    raise_to(scene, device, cap, range, &economy, None)
}

fn raise_to(
    scene: &Scene<'_>,
    device: &DeviceView,
    cap: &Cap,
    range: &Range<usize>,
    economy: &Economy,
    price: Option<f64>,
) -> Option<Remedy> {
    let was = cap.limit.median(range)?;
    let needed = match cap.unit {
        CapUnit::Operations => orderly(economy.needed() * 1.1),
        CapUnit::Bytes => (economy.demand_bytes_per_s * 1.1).ceil(),
    };
    let iops = if cap.unit == CapUnit::Operations { needed } else { needed / economy.write_bytes };
    if needed <= was {
        return None;
    }
    let price = price.filter(|_| cap.unit == CapUnit::Operations).map(|price| (price, was));
    let predicted = predicted(economy, iops, price);
    let version = scene.window.meta.host.cgroup_version.as_deref();
    Some(match &cap.owner {
        CapOwner::Cgroup(group) => remedy::iops::raise_group(cap, device, group, version, was, needed, predicted),
        CapOwner::Declared => remedy::iops::faster_volume(&cap.owner, was, needed, cap.unit, predicted),
    })
}

/// What can be done about a ceiling that was reached.
pub(crate) fn remedies(
    scene: &Scene<'_>,
    device: &DeviceView,
    cap: &Cap,
    range: &Range<usize>,
    options: &Options,
) -> Vec<Remedy> {
    let economy = economy(scene, device, range).filter(|_| cap.op != Op::Read);
    let by_demand = economy.and_then(|economy| raise_to(scene, device, cap, range, &economy, options.price_per_iops));
    // Without the page cache's inflow (reads, direct I/O, no debugfs) the need is unknown: twice as much is the next step.
    let twice = || {
        let was = cap.limit.median(range)?;
        let version = scene.window.meta.host.cgroup_version.as_deref();
        Some(match &cap.owner {
            CapOwner::Cgroup(group) => {
                remedy::iops::raise_group(cap, device, group, version, was, was * 2.0, Vec::new())
            }
            CapOwner::Declared => remedy::iops::faster_volume(&cap.owner, was, was * 2.0, cap.unit, Vec::new()),
        })
    };
    by_demand.or_else(twice).into_iter().collect()
}

/// The table for a device: the ceiling that stands (or the rate seen while it was flushing), multiples of it, and what
/// full speed needs.
pub(crate) fn table(
    scene: &Scene<'_>,
    device: &DeviceView,
    range: &Range<usize>,
    excess: Option<f64>,
    price: Option<f64>,
) -> Vec<IopsRow> {
    let Some(economy) = economy(scene, device, range) else { return Vec::new() };
    let operations = |cap: &Cap| cap.unit == CapUnit::Operations && cap.op != Op::Read && cap.bounds_writeback;
    let caps = caps::of(scene, device);
    let limit = caps.iter().filter(|cap| operations(cap)).filter_map(|cap| cap.limit.median(range)).reduce(f64::min);
    let Some(now) = limit.or_else(|| device.writes.mean(range)).filter(|now| *now > 1.0) else { return Vec::new() };
    let needed = orderly(economy.needed());
    let mut ratings = vec![now, now * 1.5, now * 2.0, now * 3.0, now * 5.0];
    if needed > now {
        ratings.push(needed);
    }
    ratings.sort_by(f64::total_cmp);
    ratings.dedup_by(|a, b| (*a - *b).abs() < 1.0);
    let enough = ratings.iter().position(|iops| *iops >= economy.needed()).unwrap_or(ratings.len());
    // One row past what is needed shows that more buys nothing.
    ratings.truncate(enough + 2);
    ratings.into_iter().map(|iops| economy.row(iops, iops == now, excess, price)).collect()
}
