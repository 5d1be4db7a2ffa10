//! What the rules about the device of the primary's own WAL have in common: which device it is, and when WAL waits for it.

use super::wal_evidence::Behind;
use crate::device::DeviceView;
use crate::grid::Lane;
use crate::replication::known;
use crate::scene::Scene;
use crate::waits::{foreground, on_wal};
use backwater_model::{Sample, catalogue as cat};
use std::ops::Range;

/// Share of the active sessions, or of the walwriter's samples, that must wait for WAL.
const SESSIONS: f64 = 0.2;
const WALWRITER: f64 = 0.5;
/// Or so many bytes of WAL, not yet on disk, that take so many seconds to get there.
const STANDING: f64 = 1_048_576.0;
const LONG_S: f64 = 0.5;

/// A server whose WAL is worth a look: one that others copy, or one that keeps it on a device of its own. On a device that
/// holds data as well and that nobody copies, `io-capped` and `device-saturated` say the same already.
pub(super) struct WalDevice<'a> {
    pub(super) target: String,
    pub(super) device: &'a DeviceView,
    /// WAL made, bytes a second.
    pub(super) generated: Lane,
    /// WAL on disk, bytes a second.
    pub(super) flushed: Lane,
    /// Inserted, not yet on disk.
    pub(super) level: Lane,
    /// Names of its standbys.
    pub(super) standbys: Vec<String>,
}

/// Every such server with its device.
pub(super) fn all<'a>(scene: &'a Scene<'_>, behinds: &[Behind]) -> Vec<WalDevice<'a>> {
    scene.window.meta.targets.iter().filter_map(|known| of_target(scene, behinds, &known.name)).collect()
}

fn of_target<'a>(scene: &'a Scene<'_>, behinds: &[Behind], name: &str) -> Option<WalDevice<'a>> {
    let known = known(scene.window, name)?;
    let own = known.wal_device.as_ref().filter(|dev| known.data_device.as_ref() != Some(*dev));
    let dev = known.wal_device.as_ref().or(known.data_device.as_ref())?;
    let ours = behinds.iter().filter(|behind| behind.standby.primary.as_deref() == Some(name));
    let standbys: Vec<String> = ours.map(|behind| behind.standby.name.clone()).collect();
    if own.is_none() && standbys.is_empty() {
        return None;
    }
    let device = scene.devices.iter().find(|device| device.dev == *dev)?;
    let track = |series: &str| scene.window.track(series, &[("target", name)]);
    let (head, flushed) = (track(cat::PG_WAL_INSERT.name), track(cat::PG_WAL_FLUSH.name));
    let level = scene.grid.gauge(head).with(&scene.grid.gauge(flushed), |head, flushed| (head - flushed).max(0.0));
    let (generated, flushed) = (scene.grid.rate(head), scene.grid.rate(flushed));
    Some(WalDevice { target: name.to_owned(), device, generated, flushed, level, standbys })
}

impl WalDevice<'_> {
    /// Second by second, whether WAL waits to get to disk: by what stands, or by who waits.
    pub(super) fn waiting(&self, scene: &Scene<'_>) -> Vec<bool> {
        let long = self.level.with(&self.flushed.smooth(1), |bytes, rate| {
            if bytes >= STANDING && bytes >= LONG_S * rate { 1.0 } else { 0.0 }
        });
        let sessions = self.share(scene, foreground, SESSIONS);
        let walwriter = self.share(scene, |sample| sample.backend_type.as_deref() == Some("walwriter"), WALWRITER);
        let stands = long.smooth(1).flags(|share| share >= 0.5);
        (0..scene.grid.count).map(|second| stands[second] || sessions[second] || walwriter[second]).collect()
    }

    fn share(&self, scene: &Scene<'_>, ours: fn(&Sample) -> bool, least: f64) -> Vec<bool> {
        let mut counts = vec![(0_u32, 0_u32); scene.grid.count];
        let samples = scene.window.samples().iter();
        for sample in samples.filter(|sample| *sample.target == *self.target && ours(sample)) {
            let Some(count) = scene.grid.second(sample.at).and_then(|second| counts.get_mut(second)) else { continue };
            count.0 += 1;
            count.1 += u32::from(on_wal(sample));
        }
        let lane =
            Lane(counts.iter().map(|(all, those)| (*all > 0).then(|| f64::from(*those) / f64::from(*all))).collect());
        lane.smooth(1).flags(|share| share >= least)
    }

    /// Who suffers: whoever commits or makes WAL, and the standbys, to which nothing is sent before it is flushed.
    pub(super) fn victims(&self) -> Vec<String> {
        let own = ["pg.commit", "pg.wal.buffers"].map(str::to_owned);
        own.into_iter().chain(self.standbys.iter().map(|standby| format!("pg.wal.send@{standby}"))).collect()
    }

    /// Share of the active sessions that wait for WAL over a stretch.
    pub(super) fn lost(&self, scene: &Scene<'_>, range: &Range<usize>) -> Option<f64> {
        scene.share(std::slice::from_ref(&self.target), range, on_wal)
    }
}
