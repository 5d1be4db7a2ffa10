//! Commands that set a dirty limit: on the device where the kernel can (Linux 6.2), else on the host.
//!
//! Sources: `Documentation/ABI/testing/sysfs-class-bdi` (max_bytes, strict_limit), `Documentation/admin-guide/sysctl/vm.rst`.
//! The kernel keeps max_bytes as a share of the host's threshold, so it reads back a little different, and moves when
//! that threshold moves. The share is written back exactly through max_ratio_fine (parts per million).

use crate::device;
use backwater_model::catalogue as cat;
use backwater_model::{Activation, Bytes, Figure, Remedy, Track, Window};

/// How a dirty limit can be set here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// `/sys/class/bdi/DEV/max_bytes` with `strict_limit`: only this device.
    PerDevice,
    /// `vm.dirty_bytes` with a quarter of it for background: everything on the host.
    WholeHost,
}

impl Mechanism {
    /// Background ÷ limit that this way of setting it leads to.
    pub(crate) fn background_share(self, now: f64) -> f64 {
        match self {
            // The device's background limit is the host's share, whatever it is.
            Mechanism::PerDevice => now,
            Mechanism::WholeHost => 0.25,
        }
    }
}

/// How the limit of a device can be set, by what the kernel shows of it.
pub(crate) fn mechanism(window: &Window, dev: &str) -> Mechanism {
    let has = |def| device::track(window, def, dev).is_some();
    if has(&cat::BDI_MAX_BYTES) && has(&cat::BDI_STRICT_LIMIT) { Mechanism::PerDevice } else { Mechanism::WholeHost }
}

/// The commands for a limit of so many bytes.
pub(crate) fn set_limit(window: &Window, dev: &str, bytes: f64, predicted: Vec<Figure>) -> Remedy {
    match mechanism(window, dev) {
        Mechanism::PerDevice => on_device(window, dev, bytes, predicted),
        Mechanism::WholeHost => on_host(|name| in_force(window, name), bytes, predicted),
    }
}

fn on_device(window: &Window, dev: &str, bytes: f64, predicted: Vec<Figure>) -> Remedy {
    let whole = device::whole(&window.meta, dev);
    let name = window.meta.device(whole).map_or("", |device| device.name.as_str());
    let at = format!("/sys/class/bdi/{whole}");
    let shown = Bytes(bytes as u64);
    let bytes = bytes as u64;
    let rule = format!(
        "ACTION==\"add|change\", SUBSYSTEM==\"block\", KERNEL==\"{}\", RUN+=\"/bin/sh -c 'echo 1 > \
         /sys/class/bdi/%M:%m/strict_limit; echo {bytes} > /sys/class/bdi/%M:%m/max_bytes'\"",
        if name.is_empty() { "NAME-OF-THE-DEVICE" } else { name }
    );
    let last = |def| device::track(window, def, dev).and_then(Track::last);
    let fine = last(&cat::BDI_MAX_RATIO).map_or(1_000_000, |ratio| (ratio * 1e6).round() as u64).clamp(1, 1_000_000);
    let strict = u8::from(last(&cat::BDI_STRICT_LIMIT).is_some_and(|flag| flag > 0.0));
    Remedy {
        title: format!("Let at most {shown} of the device's pages be dirty"),
        runtime: vec![
            format!("echo 1 > {at}/strict_limit"),
            format!("echo {bytes} > {at}/max_bytes"),
            format!("cat {at}/max_bytes   # reads back a little less: kept as a share of the host's limit"),
        ],
        persistent: vec![
            format!("echo '{}' > /etc/udev/rules.d/60-backwater-dirty.rules", rule.replace('\'', "'\\''")),
            "udevadm control --reload".to_owned(),
        ],
        activation: Activation::Immediate,
        undo: vec![
            format!("echo {fine} > {at}/max_ratio_fine"),
            format!("echo {strict} > {at}/strict_limit"),
            "rm -f /etc/udev/rules.d/60-backwater-dirty.rules".to_owned(),
        ],
        predicted,
        risk: "Writers are held earlier and for shorter; bursts that fitted under the old limit will feel it. Everything on \
               the device shares the limit, and it moves with the host's memory: read it back now and then."
            .to_owned(),
    }
}

/// A kernel setting as the window last showed it; in a recording that did not follow it, as it was when that began.
fn in_force(window: &Window, name: &str) -> Option<String> {
    let seen = window.track(cat::SYSCTL.name, &[("name", name)]).and_then(Track::last);
    let begun = || window.meta.host.sysctls.get(name).map(|text| text.trim().to_owned());
    seen.map(|value| format!("{value:.0}")).or_else(begun)
}

fn on_host(before: impl Fn(&str) -> Option<String>, bytes: f64, predicted: Vec<Figure>) -> Remedy {
    let shown = Bytes(bytes as u64);
    let (limit, background) = (bytes as u64, (bytes / 4.0) as u64);
    let set = |name: &str| before(name).filter(|text| text != "0");
    // Each of the two is either bytes or a ratio; writing the one that was in force clears its twin.
    let back = |bytes: &str, ratio: &str, default: &str| match set(bytes) {
        Some(value) => format!("{bytes}={value}"),
        None => format!("{ratio}={}", set(ratio).unwrap_or_else(|| default.to_owned())),
    };
    let undo = format!(
        "sysctl -w {} {}",
        back("vm.dirty_bytes", "vm.dirty_ratio", "20"),
        back("vm.dirty_background_bytes", "vm.dirty_background_ratio", "10")
    );
    Remedy {
        title: format!("Let at most {shown} of the host's page cache be dirty, and start writing at a quarter of it"),
        runtime: vec![format!("sysctl -w vm.dirty_background_bytes={background} vm.dirty_bytes={limit}")],
        persistent: vec![format!(
            "printf 'vm.dirty_background_bytes = {background}\\nvm.dirty_bytes = {limit}\\n' > /etc/sysctl.d/60-backwater-dirty.conf"
        )],
        activation: Activation::Immediate,
        undo: vec![undo, "rm -f /etc/sysctl.d/60-backwater-dirty.conf".to_owned()],
        predicted,
        risk:
            "It holds for every device and every program of the host: a fast disk and a file copy get the same limit."
                .to_owned(),
    }
}

/// Commands for a limit that comes from a memory cgroup: its memory is what the share is taken of. `was` is its size now.
pub(crate) fn widen_group(group: &str, version: Option<&str>, was: f64, bytes: f64, predicted: Vec<Figure>) -> Remedy {
    let path = group.trim_start_matches('/');
    let v2 = version != Some("v1");
    let file = if v2 {
        format!("/sys/fs/cgroup/{path}/memory.max")
    } else {
        format!("/sys/fs/cgroup/memory/{path}/memory.limit_in_bytes")
    };
    let unit = path.rsplit('/').next().filter(|unit| unit.ends_with(".service") || unit.ends_with(".slice"));
    let persistent = unit.map(|unit| format!("systemctl set-property {unit} MemoryMax={}", bytes as u64));
    Remedy {
        title: format!(
            "Give the control group {} of memory, so that its share for dirty pages grows",
            Bytes(bytes as u64)
        ),
        runtime: vec![format!("echo {} > {file}", bytes as u64)],
        persistent: persistent.into_iter().collect(),
        activation: Activation::Immediate,
        undo: vec![format!("echo {} > {file}", was as u64)],
        predicted,
        risk: "It puts the cliff further away and makes the drain longer; if the device stays slower than the load, \
               the cliff still comes."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undo(sysctls: &[(&str, &str)]) -> String {
        let value = |name: &str| sysctls.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        on_host(value, 1e9, Vec::new()).undo.remove(0)
    }

    #[test]
    fn what_was_in_force_comes_back_bytes_or_ratio() {
        let mixed = [("vm.dirty_bytes", "2000000000"), ("vm.dirty_ratio", "0"), ("vm.dirty_background_ratio", "7")];
        assert_eq!(undo(&mixed), "sysctl -w vm.dirty_bytes=2000000000 vm.dirty_background_ratio=7");
        assert_eq!(undo(&[]), "sysctl -w vm.dirty_ratio=20 vm.dirty_background_ratio=10");
    }
}
