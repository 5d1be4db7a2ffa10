//! A device that has written nothing for a while has a low dirty threshold, which climbs once it is written to.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::time_to_cliff;
use backwater_model::{Moment, Window, catalogue as cat};
use common::{Readings, meta};

const MIB: f64 = 1_048_576.0;
const INFLOW: f64 = 32.0 * MIB;
const HOST_THRESHOLD: f64 = 4_800.0 * MIB;

/// Three seconds in which the device is dirtied at 32 MiB/s and shows a threshold of 240 MiB, with a limit of its own of
/// 1 GiB; everybody on the host together dirties `everybody` bytes a second.
fn three_seconds(everybody: f64) -> Window {
    let mut readings = Readings::default();
    let dev = [("dev", "7:0")];
    for tick in 0..=30 {
        let at = 100.0 + f64::from(tick) / 10.0;
        let dirtied = INFLOW * (at - 100.0);
        for (def, value) in [
            (&cat::BDI_RECLAIMABLE, dirtied),
            (&cat::BDI_WRITEBACK, 0.0),
            (&cat::BDI_DIRTIED, dirtied),
            (&cat::BDI_WRITTEN, 0.0),
            (&cat::BDI_DIRTY_THRESH, 240.0 * MIB),
            (&cat::BDI_GLOBAL_DIRTY_THRESH, HOST_THRESHOLD),
            (&cat::BDI_BACKGROUND_THRESH, HOST_THRESHOLD / 2.0),
            (&cat::BDI_MAX_BYTES, 1024.0 * MIB),
            (&cat::BDI_STRICT_LIMIT, 1.0),
        ] {
            readings.put(def, &dev, at, value);
        }
        readings.put(&cat::VM_DIRTIED, &[], at, everybody * (at - 100.0));
    }
    readings.window(meta(), 100.0, 103.0)
}

/// Where writers begin to be paused, in MiB.
fn target_mib(everybody: f64) -> f64 {
    let window = three_seconds(everybody);
    time_to_cliff(&window, "7:0", Moment::from_seconds(100.0), 3.0).unwrap().target_bytes / MIB
}

#[test]
fn a_device_that_is_dirtied_alone_will_have_all_of_its_own_limit() {
    assert!((target_mib(INFLOW) - 0.75 * 1024.0).abs() < 1.0);
}

#[test]
fn among_busier_devices_it_will_have_its_part_of_the_hosts() {
    assert!((target_mib(10.0 * INFLOW) - 0.75 * 480.0).abs() < 5.0);
}

#[test]
fn a_threshold_is_not_expected_to_fall() {
    assert!((target_mib(100.0 * INFLOW) - 0.75 * 240.0).abs() < 1.0);
}
