//! Commands that raise a ceiling on I/O.

use crate::caps::{Cap, CapOwner, CapUnit, Op};
use crate::device::DeviceView;
use backwater_model::{Activation, Figure, Remedy};

/// Raises a control group's limit to so many operations or bytes a second.
pub(crate) fn raise_group(
    cap: &Cap,
    device: &DeviceView,
    group: &str,
    version: Option<&str>,
    was: f64,
    to: f64,
    predicted: Vec<Figure>,
) -> Remedy {
    let path = group.trim_matches('/');
    let dev = &device.whole;
    let sep = if path.is_empty() { "" } else { "/" };
    let (runtime, undo) = if version == Some("v2") {
        let key = match (cap.op, cap.unit) {
            (Op::Read, CapUnit::Operations) => "riops",
            (Op::Read, CapUnit::Bytes) => "rbps",
            (_, CapUnit::Operations) => "wiops",
            (_, CapUnit::Bytes) => "wbps",
        };
        let set = |value: f64| format!("echo '{dev} {key}={value:.0}' > /sys/fs/cgroup/{path}{sep}io.max");
        (set(to), set(was))
    } else {
        let op = if cap.op == Op::Read { "read" } else { "write" };
        let what = if cap.unit == CapUnit::Operations { "iops" } else { "bps" };
        let file = format!("/sys/fs/cgroup/blkio/{path}{sep}blkio.throttle.{op}_{what}_device");
        let set = |value: f64| format!("echo '{dev} {value:.0}' > {file}");
        (set(to), set(was))
    };
    Remedy {
        title: format!("Raise the control group's limit from {was:.0} to {to:.0} {} a second", noun(cap.unit)),
        runtime: vec![runtime],
        persistent: persistent(cap, device, path, to),
        activation: Activation::Immediate,
        undo: vec![undo],
        predicted,
        risk: "Whoever shares the device gets less of it.".to_owned(),
    }
}

fn noun(unit: CapUnit) -> &'static str {
    match unit {
        CapUnit::Operations => "operations",
        CapUnit::Bytes => "bytes",
    }
}

/// systemd keeps such limits for its own units; for other groups whoever made the group must.
fn persistent(cap: &Cap, device: &DeviceView, path: &str, to: f64) -> Vec<String> {
    let unit = path.rsplit('/').next().filter(|unit| unit.ends_with(".service") || unit.ends_with(".slice"));
    let property = match (cap.op, cap.unit) {
        (Op::Read, CapUnit::Operations) => "IOReadIOPSMax",
        (Op::Read, CapUnit::Bytes) => "IOReadBandwidthMax",
        (_, CapUnit::Operations) => "IOWriteIOPSMax",
        (_, CapUnit::Bytes) => "IOWriteBandwidthMax",
    };
    let set = |unit: &str| format!("systemctl set-property {unit} '{property}=/dev/{} {to:.0}'", device.name);
    unit.map(set).into_iter().collect()
}

/// Asks for a faster volume: no command of this host can do that.
pub(crate) fn faster_volume(owner: &CapOwner, was: f64, to: f64, unit: CapUnit, predicted: Vec<Figure>) -> Remedy {
    let whose = if *owner == CapOwner::Declared { "volume" } else { "device" };
    Remedy {
        title: format!("Move to a {whose} of {to:.0} {} a second (now {was:.0})", noun(unit)),
        runtime: Vec::new(),
        persistent: vec![format!(
            "in the provider's console or API: set the {whose} to {to:.0} {} a second",
            noun(unit)
        )],
        activation: Activation::Immediate,
        undo: vec![format!("set the {whose} back to {was:.0} (providers limit how often it may be changed)")],
        predicted,
        risk: "It costs money every month, and the instance may have a lower ceiling of its own.".to_owned(),
    }
}
