//! What else could look like a checkpoint's burst, and the readings that speak against it: a dirty limit that holds
//! writers, and a device that is full. Where a reading is missing, or does not speak against it, nothing is said.

use crate::device::DeviceView;
use crate::limits;
use crate::scene::Scene;
use backwater_model::{RuledOut, Unit};

/// Below this share of the point where writers pause, readings a moment old cannot hide a pause.
const BELOW_PAUSE: f64 = 0.9;
/// A device busy for less than this share of the time has room.
const NOT_BUSY: f64 = 0.6;

/// The causes that the readings of these seconds speak against.
pub(super) fn ruled_out(scene: &Scene<'_>, seconds: &[usize]) -> Vec<RuledOut> {
    dirty_throttle(scene, seconds).into_iter().chain(device_saturated(scene, seconds)).collect()
}

/// Writers pause nowhere: the fullest of all limits of all devices stays below its pausing point in every second.
fn dirty_throttle(scene: &Scene<'_>, seconds: &[usize]) -> Option<RuledOut> {
    let limits = scene.devices.iter().flat_map(|device| limits::of(scene, device));
    let mut fullest: Option<(f64, f64)> = None;
    for limit in limits {
        let pause = limit.pause();
        let readings = seconds.iter().filter_map(|second| limit.level.get(*second).zip(pause.get(*second)));
        // A limit of which nothing was read in these seconds may be the one that held.
        let highest = readings.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))?;
        if fullest.is_none_or(|before| highest.0 / highest.1 > before.0 / before.1) {
            fullest = Some(highest);
        }
    }
    let (level, pause) = fullest.filter(|(level, pause)| *level < BELOW_PAUSE * pause)?;
    let (level, pause) = (Unit::Bytes.show(level), Unit::Bytes.show(pause));
    let because = format!("at most {level} were dirty meanwhile, and writers pause from {pause} on");
    Some(RuledOut { cause: "dirty-throttle".to_owned(), because })
}

/// No device of the servers is busy for most of the time.
fn device_saturated(scene: &Scene<'_>, seconds: &[usize]) -> Option<RuledOut> {
    let busy = |device: &DeviceView| {
        let values: Vec<f64> = seconds.iter().filter_map(|second| device.busy.get(*second)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let shares: Option<Vec<(f64, &DeviceView)>> =
        scene.devices.iter().map(|device| Some((busy(device)?, device))).collect();
    let (share, device) = shares?.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let because = format!("device {} was busy {} of the time meanwhile", device.name, Unit::Ratio.show(share));
    (share < NOT_BUSY).then(|| RuledOut { cause: "device-saturated".to_owned(), because })
}
