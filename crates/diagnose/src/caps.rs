//! Ceilings that hold requests back before they reach the device, and the rate at which work passes them. A request
//! held so is in no queue of the device: only rate against limit shows it.

use crate::device::DeviceView;
use crate::grid::{Lane, episodes};
use crate::scene::Scene;
use backwater_model::{DeclaredVolume, Meta, Track, Window, catalogue as cat};
use std::ops::Range;

/// Who set a ceiling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CapOwner {
    /// A control group, by its name.
    Cgroup(String),
    /// A rating that was told.
    Declared,
}

/// What a ceiling counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapUnit {
    /// Operations a second.
    Operations,
    /// Bytes a second.
    Bytes,
}

/// Which requests a ceiling counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    /// Both together, as cloud volumes do.
    Any,
}

/// A ceiling on a device and the rate against it.
pub(crate) struct Cap {
    pub(crate) owner: CapOwner,
    pub(crate) op: Op,
    pub(crate) unit: CapUnit,
    /// The limit a second, while there is one.
    pub(crate) limit: Lane,
    /// Completions of the device a second.
    pub(crate) rate: Lane,
    /// What the group itself was counted for, a second, over five seconds (v1 counts when a request is handed in,
    /// in bursts far over the limit).
    pub(crate) group_rate: Lane,
    /// Whether it is of a group below the root, and so counts only some of what the device does.
    pub(crate) of_some: bool,
    /// Whether it holds back what the kernel writes from the page cache. In v1 that is done in the root group's name,
    /// so a limit of any other group passes it by (Linux `Documentation/admin-guide/cgroup-v1/blkio-controller.rst`).
    pub(crate) bounds_writeback: bool,
}

/// A rate within these shares of the limit has reached it.
const REACHED: (f64, f64) = (0.93, 1.1);

/// The same over a stretch of so many seconds, at whose ends a lump may be missing or too much.
const LUMPY: (f64, f64) = (0.7, 1.3);
const LUMPY_S: usize = 8;

/// Below this share of the limit, a second lies between two lumps.
const QUIET: f64 = 0.1;

/// Lumps tell a limit by themselves from so many of them on, over so many seconds, if at the end of each what has passed is
/// what the limit allows: to the second, which is as fine as the grid, and this share of it.
const LUMPS: usize = 3;
const LUMPS_S: usize = 12;
const OFF_THE_LINE: f64 = 0.05;

/// A control group's operations pass in slices of a tenth of a second, whole ones in each: of 69 a second 60 pass (Linux
/// `block/blk-throttle.c`, throtl_slice; seen on 6.18).
const SLICES_PER_S: f64 = 10.0;

/// A limit stands if it was read within so many seconds.
const STANDS_S: usize = 3;

impl Cap {
    /// Second by second, whether the rate is at the limit: the device's, or the root group's own where others use the device
    /// too. For any other group it is the group's own, where that is read: what the device does for others is not its.
    pub(crate) fn reached(&self) -> Vec<bool> {
        let at = |rate: f64, limit: f64| REACHED.0 * self.passes(limit) <= rate && rate <= REACHED.1 * limit;
        let near = |rate: &Lane| {
            rate.with(&self.limit, |rate, limit| f64::from(u8::from(at(rate, limit)))).flags(|at| at == 1.0)
        };
        let group = near(&self.group_rate.smooth(2));
        if self.own_rate_seen() {
            return group;
        }
        let device = near(&self.rate.smooth(1));
        device.iter().zip(&group).map(|(device, group)| *device || *group).collect()
    }

    /// Second by second, what passed as a share of what the limit lets pass: more than 1 in a second in which a lump passes.
    pub(crate) fn used(&self) -> Lane {
        self.passing().with(&self.limit, |rate, limit| rate / self.passes(limit))
    }

    /// Whether what passed over a whole stretch is what the limit allows, for whoever waits for it without pause. Large writes
    /// pass in lumps of several seconds' worth (a sync of 8 MiB at 2 MiB a second shows nothing for four seconds, then all of
    /// it), so that no second is at the limit though the stretch is. Only for stretches of eight seconds or longer.
    pub(crate) fn held_over(&self, range: &Range<usize>) -> bool {
        let Some(limit) = self.limit.median(range).filter(|_| range.len() >= LUMPY_S) else { return false };
        let stands = self.limit.values(range).len() * 2 >= range.len();
        let (least, most) = (LUMPY.0 * self.passes(limit), LUMPY.1 * limit);
        let near = |rate: &Lane| rate.mean(range).is_some_and(|rate| (least..=most).contains(&rate));
        stands && (near(&self.group_rate) || (!self.own_rate_seen() && near(&self.rate)))
    }

    /// The same where one lump takes longer than the stretch, or one that no limit held reaches into it: a stretch from the end
    /// of the lump at its start, or before it, to the end of the last, if what passed in that is what the limit allows. A
    /// request larger than the limit passes whole, after as many seconds as it is limits large (Linux `block/blk-throttle.c`,
    /// tg_within_bps_limit), so that exactly the limit passes from one lump's end to another's, however a stretch cuts them.
    /// Whoever waits must do so all the while: that is the caller's to ask.
    pub(crate) fn held_between_lumps(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let (limit, released) = (self.limit.median(range)?, self.released()?);
        let lumps = episodes(&released.flags(|rate| rate >= QUIET * limit), 1, 0);
        let before = lumps.iter().rev().find(|lump| lump.start <= range.start)?;
        let last = lumps.iter().rev().find(|lump| lump.start < range.end)?;
        let stretch = before.end..last.end;
        let known = |lane: &Lane| lane.values(&stretch).len() == stretch.len();
        let common = stretch.end.min(range.end).saturating_sub(stretch.start.max(range.start));
        if stretch.len() < LUMPY_S || 2 * common < range.len() || !known(&self.limit) || !known(released) {
            return None;
        }
        let (least, most) = (LUMPY.0 * self.passes(limit), LUMPY.1 * limit);
        released.mean(&stretch).filter(|rate| (least..=most).contains(rate)).map(|_| stretch)
    }

    /// The stretches of a range, the longest first, in which lumps pass just as the limit lets them, from one lump's end to
    /// another's: at each end between, what has passed is what the limit allows in that time. A load that comes to the limit on
    /// average, or stays below it, strays from that line. Whoever waits must do so all the while: that is the caller's to ask.
    pub(crate) fn held_in_lumps(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let limit = self.limit.median(range).filter(|_| self.unit == CapUnit::Bytes);
        let Some((limit, released)) = limit.zip(self.released()) else { return Vec::new() };
        let lumps = episodes(&released.flags(|rate| rate >= QUIET * limit), 1, 0);
        let ends: Vec<usize> =
            lumps.iter().map(|lump| lump.end).filter(|end| (range.start..=range.end).contains(end)).collect();
        // By each second: what had passed, and how many seconds were known.
        let (mut passed, mut known) = (0.0, 0);
        let mut by = vec![(passed, known)];
        for (rate, limit) in released.0.iter().zip(&self.limit.0) {
            if let (Some(rate), Some(_)) = (rate, limit) {
                (passed, known) = (passed + rate, known + 1);
            }
            by.push((passed, known));
        }
        let on_the_line = |stretch: &Range<usize>| {
            let ((before, known_before), (after, known_after)) = (by[stretch.start], by[stretch.end]);
            let seconds = stretch.len() as f64;
            let off_s: f64 = ((after - before) / limit - seconds).abs();
            known_after - known_before == stretch.len() && off_s <= 1.0 + OFF_THE_LINE * seconds
        };
        let from = |at: usize| {
            let stretches = ends[at + 1..].iter().map(|end| ends[at]..*end).take_while(on_the_line);
            let held: Vec<Range<usize>> = stretches.collect();
            held.last().filter(|longest| held.len() >= LUMPS && longest.len() >= LUMPS_S).cloned()
        };
        longest_apart((0..ends.len()).filter_map(from).collect())
    }

    /// What came out of the throttle, a second: not what was handed in, which a group of v1 counts.
    fn released(&self) -> Option<&Lane> {
        if self.own_rate_seen() { self.bounds_writeback.then_some(&self.group_rate) } else { Some(&self.rate) }
    }

    /// What passes of a limit at the least where somebody always waits.
    fn passes(&self, limit: f64) -> f64 {
        let in_slices = matches!(self.owner, CapOwner::Cgroup(_)) && self.unit == CapUnit::Operations;
        if in_slices && limit >= SLICES_PER_S { (limit / SLICES_PER_S).floor() * SLICES_PER_S } else { limit }
    }

    /// Whether it is judged by its group's own rate.
    pub(crate) fn own_rate_seen(&self) -> bool {
        self.of_some && self.group_rate.known()
    }

    /// The rate that is judged.
    pub(crate) fn passing(&self) -> &Lane {
        if self.own_rate_seen() { &self.group_rate } else { &self.rate }
    }
}

/// Of stretches that overlap the longest; the longest of all first.
fn longest_apart(mut all: Vec<Range<usize>>) -> Vec<Range<usize>> {
    all.sort_by_key(|stretch| std::cmp::Reverse(stretch.len()));
    let mut found: Vec<Range<usize>> = Vec::new();
    for stretch in all {
        if found.iter().all(|other| stretch.end <= other.start || other.end <= stretch.start) {
            found.push(stretch);
        }
    }
    found
}

/// Every ceiling known for a device.
pub(crate) fn of(scene: &Scene<'_>, device: &DeviceView) -> Vec<Cap> {
    let mut caps = cgroup(scene, device, cat::CGROUP_IOPS_LIMIT.name, CapUnit::Operations);
    caps.extend(cgroup(scene, device, cat::CGROUP_BPS_LIMIT.name, CapUnit::Bytes));
    caps.extend(declared(scene, device));
    caps
}

fn cgroup(scene: &Scene<'_>, device: &DeviceView, name: &str, unit: CapUnit) -> Vec<Cap> {
    let grid = &scene.grid;
    let on_device = |track: &Track<'_>| {
        let dev = track.series.labels.get("dev");
        !track.points.is_empty() && (dev == Some(&device.whole) || dev == Some(&device.dev))
    };
    let cap = |track: Track<'_>| {
        let labels = &track.series.labels;
        let (group, op) = (labels.get("cgroup")?, labels.get("op")?);
        let counted = match unit {
            CapUnit::Operations => cat::CGROUP_IOS.name,
            CapUnit::Bytes => cat::CGROUP_IO_BYTES.name,
        };
        let dev = labels.get("dev")?;
        let own = scene.window.track(counted, &[("cgroup", group), ("dev", dev), ("op", op)]);
        let op = if op == "read" { Op::Read } else { Op::Write };
        let of_some = !group.trim_matches('/').is_empty();
        let v2 = scene.window.meta.host.cgroup_version.as_deref() == Some("v2");
        Some(Cap {
            owner: CapOwner::Cgroup(group.to_owned()),
            op,
            unit,
            limit: grid.gauge(Some(track)).at_least(1.0),
            rate: completions(device, op, unit),
            group_rate: grid.rate(own),
            of_some,
            bounds_writeback: v2 || !of_some,
        })
    };
    scene.window.tracks(name, &[]).filter(on_device).filter_map(cap).collect()
}

/// What the device completes, a second.
pub(crate) fn completions(device: &DeviceView, op: Op, unit: CapUnit) -> Lane {
    let (read, write) = match unit {
        CapUnit::Operations => (&device.reads, &device.writes),
        CapUnit::Bytes => (&device.read_bytes, &device.written_bytes),
    };
    match op {
        Op::Read => read.clone(),
        Op::Write => write.clone(),
        Op::Any => read.with(write, |read, write| read + write),
    }
}

/// What was told of a device: operations, bytes, burst operations, each a second.
pub(crate) fn ratings(window: &Window, device: &DeviceView) -> [Option<f64>; 3] {
    // What a user says goes before what was recorded of it: it may be said of a recording in which another was.
    let concerned = || window.meta.declared_volumes.iter().filter(|volume| concerns(volume, device, &window.meta));
    let told = |figure: fn(&DeclaredVolume) -> Option<f64>| concerned().find_map(figure);
    let series =
        |name| window.track(name, &[("dev", &device.dev)]).or_else(|| window.track(name, &[("dev", &device.whole)]));
    let rating =
        |name, told: Option<f64>| told.or_else(|| series(name).and_then(Track::last)).filter(|rating| *rating > 0.0);
    [
        rating(cat::VOLUME_IOPS.name, told(|volume| volume.iops)),
        rating(cat::VOLUME_BPS.name, told(|volume| volume.bytes_per_s)),
        rating(cat::VOLUME_BURST_IOPS.name, told(|volume| volume.burst_iops)),
    ]
}

/// Whether a told rating is of this device: by number, path or mount point; an unnamed one is of every data device.
fn concerns(volume: &DeclaredVolume, device: &DeviceView, meta: &Meta) -> bool {
    let Some(name) = volume.device.as_deref() else { return device.holds_data };
    let mounted = |dev: &str| {
        meta.device(dev).is_some_and(|known| {
            known.mount_points.iter().any(|point| point == name) || format!("/dev/{}", known.name) == name
        })
    };
    name == device.dev || name == device.whole || mounted(&device.dev) || mounted(&device.whole)
}

fn declared(scene: &Scene<'_>, device: &DeviceView) -> Vec<Cap> {
    let [iops, bytes, burst] = ratings(scene.window, device);
    let cap = |limit: f64, unit| Cap {
        owner: CapOwner::Declared,
        op: Op::Any,
        unit,
        limit: scene.grid.lane(|_| Some(limit)),
        rate: completions(device, Op::Any, unit),
        group_rate: scene.grid.unknown(),
        of_some: false,
        bounds_writeback: true,
    };
    // Both ceilings of a bursting volume stand; whichever holds at the time is the one that is reached.
    let operations = [iops, burst].into_iter().flatten().map(|limit| cap(limit, CapUnit::Operations));
    operations.chain(bytes.map(|limit| cap(limit, CapUnit::Bytes))).collect()
}

/// The lowest ceiling on writes that stands at the end of the readings, in bytes a second, given the mean size of a write. This
/// is what the page cache can drain at most.
pub(crate) fn drain_ceiling(caps: &[Cap], write_bytes: f64) -> Option<f64> {
    let writes = caps.iter().filter(|cap| cap.op != Op::Read && cap.bounds_writeback);
    let bytes = writes.filter_map(|cap| {
        let count = cap.limit.0.len();
        // Limits may have been set or lifted a moment ago: only the newest reading counts, and only if it is new.
        let limit = *cap.limit.values(&(count.saturating_sub(STANDS_S)..count)).last()?;
        Some(if cap.unit == CapUnit::Operations { limit * write_bytes } else { limit })
    });
    bytes.reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cap(unit: CapUnit, limit: f64, rate: f64) -> Cap {
        let lane = |value: f64| Lane(vec![Some(value); 12]);
        Cap {
            owner: CapOwner::Cgroup("/".to_owned()),
            op: Op::Write,
            unit,
            limit: lane(limit),
            rate: lane(rate),
            group_rate: Lane(vec![None; 12]),
            of_some: false,
            bounds_writeback: true,
        }
    }

    #[test]
    fn whole_operations_pass_in_each_slice_of_a_groups_limit() {
        let reached = |unit, limit, rate| {
            let cap = cap(unit, limit, rate);
            (cap.reached().iter().all(|at| *at), cap.held_over(&(0..12)))
        };
        // As measured: 69 allowed, 60 passed, second by second; 15 would let 10 pass.
        assert_eq!(reached(CapUnit::Operations, 69.0, 60.0), (true, true));
        assert_eq!(reached(CapUnit::Operations, 15.0, 10.0), (true, true));
        assert_eq!(reached(CapUnit::Operations, 69.0, 50.0), (false, true));
        assert_eq!(reached(CapUnit::Operations, 69.0, 40.0), (false, false));
        // Bytes pass by their number, and a rating that was told knows no slices.
        assert_eq!(reached(CapUnit::Bytes, 69.0, 60.0), (false, true));
        let told = Cap { owner: CapOwner::Declared, ..cap(CapUnit::Operations, 69.0, 60.0) };
        assert!(!told.reached()[0]);
    }

    /// Lumps of so many limits' worth, each passing at its second, in 30 seconds.
    fn lumps(passed: &[(usize, f64)]) -> Cap {
        let mut rate = vec![Some(0.0); 30];
        passed.iter().for_each(|(at, seconds)| rate[*at] = Some(seconds * 1e6));
        let unknown = Lane(vec![None; 30]);
        Cap { limit: Lane(vec![Some(1e6); 30]), rate: Lane(rate), group_rate: unknown, ..cap(CapUnit::Bytes, 1e6, 0.0) }
    }

    #[test]
    fn a_lump_longer_than_the_stretch_is_judged_from_the_lump_before_it() {
        // As recorded: a sync of 14 limits passed after 14 seconds, in a stretch of the last eight of them.
        let cap = lumps(&[(6, 2.0), (20, 14.0)]);
        assert!(!cap.held_over(&(13..21)));
        assert_eq!(cap.held_between_lumps(&(13..21)), Some(7..21));
        // The stretch goes on, and what is under way has not passed.
        assert_eq!(cap.held_between_lumps(&(13..28)), Some(7..21));
        // What was written before there was a limit reaches into the stretch.
        let late = Cap {
            limit: Lane((0..30).map(|at| (at >= 3).then_some(1e6)).collect()),
            ..lumps(&[(2, 500.0), (3, 90.0), (16, 12.0)])
        };
        assert!(!late.held_over(&(3..20)));
        assert_eq!(late.held_between_lumps(&(3..20)), Some(4..17));
        // A trickle beside it is no lump.
        assert_eq!(lumps(&[(6, 2.0), (12, 0.05), (20, 14.0)]).held_between_lumps(&(13..21)), Some(7..21));
    }

    #[test]
    fn lumps_that_no_limit_made_are_not_held_by_it() {
        let range = 13..21;
        // More than the limit lets through, or far less, in the same time.
        assert_eq!(lumps(&[(6, 2.0), (20, 20.0)]).held_between_lumps(&range), None);
        assert_eq!(lumps(&[(6, 2.0), (20, 7.0)]).held_between_lumps(&range), None);
        // Nothing is known of when the first began; nothing passed at all; a hole in between; the limit is new.
        assert_eq!(lumps(&[(20, 14.0)]).held_between_lumps(&range), None);
        assert_eq!(lumps(&[]).held_between_lumps(&range), None);
        assert_eq!(lumps(&[(6, 2.0), (14, 8.0)]).held_between_lumps(&range), None, "it ends where the stretch begins");
        let mut hole = lumps(&[(6, 2.0), (20, 14.0)]);
        hole.rate.0[10] = None;
        assert_eq!(hole.held_between_lumps(&range), None);
        let mut new = lumps(&[(6, 2.0), (20, 14.0)]);
        new.limit.0[..12].fill(None);
        assert_eq!(new.held_between_lumps(&range), None);
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "it is one stretch")]
    fn lumps_that_pass_on_the_limits_line_tell_it() {
        // As recorded: requests of 3 to 5 limits pass whole, with seconds of nothing between.
        let held = [(2, 4.0), (5, 3.0), (8, 3.0), (11, 2.6), (13, 2.4), (16, 3.0), (20, 3.6), (23, 3.2)];
        assert_eq!(lumps(&held).held_in_lumps(&(0..30)), [3..24]);
        // One lump takes a second's end with it.
        let cut: Vec<_> = held.iter().flat_map(|(at, limits)| [(*at, 0.6 * limits), (at + 1, 0.4 * limits)]).collect();
        assert!(lumps(&cut).held_in_lumps(&(0..30)).first().is_some_and(|stretch| stretch.len() >= 20));
        // What was written before there was a limit, and what is written when it was lifted, are left out.
        let around: Vec<_> = held.iter().copied().chain([(0, 300.0), (26, 90.0)]).collect();
        assert_eq!(lumps(&around).held_in_lumps(&(0..30)), [3..24]);
        // What passes otherwise between two such stretches parts them; the longer one comes first.
        let apart: Vec<_> = [(0, 9.0)].into_iter().chain((1..5).map(|n| (3 * n, 3.0))).collect();
        let apart: Vec<_> = apart.into_iter().chain([(14, 9.0)]).chain((1..6).map(|n| (14 + 3 * n, 3.0))).collect();
        assert_eq!(lumps(&apart).held_in_lumps(&(0..30)), [15..30, 1..13]);
        // Of too few, or for too short, nothing is said; nor of operations, which pass in slices.
        assert_eq!(lumps(&held[..3]).held_in_lumps(&(0..30)), []);
        assert_eq!(lumps(&held).held_in_lumps(&(0..14)), []);
        assert_eq!(Cap { unit: CapUnit::Operations, ..lumps(&held) }.held_in_lumps(&(0..30)), []);
    }

    #[test]
    fn a_load_that_averages_below_or_at_the_limit_is_not_on_its_line() {
        let told = |passed: &[(usize, f64)]| lumps(passed).held_in_lumps(&(0..30));
        let each = |every: usize, limits: f64| {
            (0..10).map(|n| (1 + n * every, limits)).filter(|(at, _)| *at < 30).collect::<Vec<_>>()
        };
        assert_eq!(told(&each(3, 3.0)).len(), 1);
        assert_eq!(told(&each(3, 2.4)), [], "four fifths of it");
        assert_eq!(told(&each(3, 4.0)), [], "more than it lets through");
        // The limit on average, but ahead of it and behind it by more than a request.
        assert_eq!(told(&[(1, 1.0), (3, 5.0), (5, 5.0), (7, 5.0), (16, 2.0), (22, 2.0), (25, 1.0)]), []);
    }

    #[test]
    fn a_group_of_v1_counts_what_is_handed_in_which_tells_nothing_of_lumps() {
        let lumpy = lumps(&[(6, 2.0), (20, 14.0)]);
        let own = Cap { of_some: true, group_rate: lumpy.rate.clone(), ..lumpy };
        assert_eq!(own.held_between_lumps(&(13..21)), Some(7..21));
        assert_eq!(Cap { bounds_writeback: false, ..own }.held_between_lumps(&(13..21)), None);
    }
}
