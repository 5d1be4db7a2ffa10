//! What every rule looks at: the window, its grid, its devices, its sessions. Made once for all rules.

use crate::device::{self, DeviceView};
use crate::grid::{Grid, Lane};
use crate::throughput::{self, Counted};
use crate::waits::{self, Waits};
use backwater_model::{Sample, Target, Window, catalogue as cat};
use std::ops::Range;

/// A window prepared for rules.
pub(crate) struct Scene<'a> {
    pub(crate) window: &'a Window,
    pub(crate) grid: Grid,
    pub(crate) devices: Vec<DeviceView>,
    /// Work done for clients, a second.
    pub(crate) throughput: Lane,
    pub(crate) counted: Counted,
    /// Share of time in which some task of the host waited on I/O.
    pub(crate) psi_io: Lane,
    /// Dirty and under writeback on the whole host, in bytes.
    pub(crate) host_level: Lane,
}

impl<'a> Scene<'a> {
    /// Prepares a window.
    pub(crate) fn of(window: &'a Window) -> Self {
        let bare = Scene::bare(window);
        let devices = device::watched(window).iter().map(|dev| DeviceView::of(window, &bare.grid, dev)).collect();
        Scene { devices, ..bare }
    }

    /// Prepares a window without its devices, for questions about a single one.
    pub(crate) fn bare(window: &'a Window) -> Self {
        let grid = Grid::of(window);
        let (throughput, counted) = throughput::lane(window, &grid);
        let gauge = |name| grid.gauge(window.track(name, &[]));
        let psi = window.track(cat::PSI_IO_SOME.name, &[("cgroup", "host")]);
        let host_level =
            gauge(cat::VM_DIRTY.name).with(&gauge(cat::VM_WRITEBACK.name), |dirty, writing| dirty + writing);
        let psi_io = grid.rate(psi).map(|us| (us / 1e6).min(1.0));
        Scene { window, grid, devices: Vec::new(), throughput, counted, psi_io, host_level }
    }

    /// Waits of the sessions that use a device.
    pub(crate) fn waits(&self, device: &DeviceView) -> Waits {
        waits::lanes(self.window, &self.grid, &device.targets)
    }

    /// The first server that uses a device; the first of all where its users are unknown.
    pub(crate) fn target(&self, device: Option<&DeviceView>) -> Option<&Target> {
        let names = device.map(|device| device.targets.as_slice()).unwrap_or_default();
        self.window.meta.targets.iter().find(|target| names.is_empty() || names.contains(&target.name))
    }

    /// Share of the active client samples in a stretch for which the test holds.
    pub(crate) fn share(
        &self,
        targets: &[String],
        range: &Range<usize>,
        test: impl Fn(&Sample) -> bool,
    ) -> Option<f64> {
        waits::share(self.window, &self.grid, targets, range, test)
    }

    /// The same of a device's users as a share of their clients' time: none for an engine, of whose threads those that sleep are
    /// not seen, for want of work or otherwise.
    pub(crate) fn lost(
        &self,
        device: &DeviceView,
        range: &Range<usize>,
        test: impl Fn(&Sample) -> bool,
    ) -> Option<f64> {
        let sessions = !self.target(Some(device)).is_some_and(Target::is_engine);
        self.share(&device.targets, range, test).filter(|_| sessions)
    }

    /// The best three seconds of throughput in the minute before a stretch, and the mean within it.
    pub(crate) fn throughput_around(&self, range: &Range<usize>) -> (Option<f64>, Option<f64>) {
        let before = range.start.saturating_sub(60)..range.start;
        let best = (before.len() >= 2).then(|| self.throughput.smooth(1).max(&before)).flatten();
        (best, self.throughput.mean(range))
    }

    /// Where sessions visibly wait on storage: by pressure, else by the share of sessions in storage waits.
    pub(crate) fn waiting(&self, waits: &Waits, least: f64) -> Vec<bool> {
        self.psi_io.smooth(1).or(&waits.storage.smooth(1)).flags(|share| share >= least)
    }
}
