//! Made-up input that several tests share.
#![allow(clippy::unwrap_used)]

use crate::{Curve, Panel, Style};
use backwater_model::{
    Activation, ArmOutcome, ArmTable, ClockAnchor, Confidence, Device, Expected, ExpectedAll, Figure, Finding,
    HostFacts, Meta, Moment, Outcome, ParamValue, Remedy, Role, RuledOut, Severity, Target, Unit, Unseen,
};

pub(crate) const MIB: f64 = 1_048_576.0;

/// Every width, with and without colour, with and without Unicode.
pub(crate) const STYLES: [(&str, Style); 4] = [
    ("120", Style { color: false, width: 120, unicode: true }),
    ("80_color", Style { color: true, width: 80, unicode: true }),
    ("80_ascii", Style { color: false, width: 80, unicode: false }),
    ("40", Style { color: false, width: 40, unicode: true }),
];

/// A stampede of 36 s: load from 2 to 26 s, the cliff at 14 s.
pub(crate) fn stampede_panels() -> Vec<Panel> {
    let tps = |at: f64| match at {
        at if !(2.0..26.0).contains(&at) => 0.0,
        at if at < 14.0 => 4_000.0 + 60.0 * (at * 3.0).sin(),
        at => 2_000.0 + 300.0 * (at * 2.0).sin(),
    };
    let level = |at: f64| match at {
        at if at < 2.0 => 0.0,
        at if at < 14.0 => (at - 2.0) * 24.0 * MIB,
        at if at < 26.0 => 290.0 * MIB,
        at => (290.0 - (at - 26.0) * 14.0).max(190.0) * MIB,
    };
    let over =
        |value: &dyn Fn(f64) -> f64| (0..360).map(|step| f64::from(step) / 10.0).map(|at| (at, value(at))).collect();
    let curve = |label: &str, unit, points| Curve { label: label.to_owned(), unit, points };
    let limits = [("background limit", 192.0), ("pauses begin", 288.0), ("hard limit", 384.0)];
    vec![
        Panel {
            title: "Transactions a second".to_owned(),
            curves: vec![curve("Transactions a second", Unit::PerSecond, over(&tps))],
            limits: vec![],
        },
        Panel {
            title: "Dirty page cache of 7:0".to_owned(),
            curves: vec![curve("dirty + under writeback", Unit::Bytes, over(&level))],
            limits: limits.iter().map(|(name, mib)| ((*name).to_owned(), mib * MIB)).collect(),
        },
    ]
}

pub(crate) fn stampede_marks() -> Vec<(f64, String)> {
    [(2.0, "load start"), (13.2, "predicted cliff"), (14.0, "cliff"), (26.0, "load end")]
        .map(|(at, name)| (at, name.to_owned()))
        .to_vec()
}

/// A machine with one volume and one server. The clock says 2026-11-21 12:00:00 UTC at 1,000 s after boot.
pub(crate) fn meta() -> Meta {
    let device = Device {
        dev: "7:0".to_owned(),
        name: "loop0".to_owned(),
        mount_points: vec!["/srv/data".to_owned()],
        fs_type: Some("ext4".to_owned()),
        roles: vec![(Role::Data, "primary".to_owned())],
        ..Device::default()
    };
    let target = Target {
        name: "primary".to_owned(),
        kind: "postgres".to_owned(),
        version_num: Some(150_018),
        data_device: Some("7:0".to_owned()),
        ..Target::default()
    };
    Meta {
        host: machine(),
        anchors: vec![ClockAnchor { boot: Moment::from_seconds(1_000.0), unix_us: 1_795_262_400_000_000 }],
        devices: vec![device],
        targets: vec![target],
        ..Meta::default()
    }
}

pub(crate) fn machine() -> HostFacts {
    HostFacts {
        hostname: Some("db1".to_owned()),
        kernel: Some("6.18.5".to_owned()),
        cpus: Some(2),
        memory_bytes: Some(25_769_803_776),
        congestion_control: Some("bbr".to_owned()),
        cgroup_version: Some("hybrid".to_owned()),
        ..HostFacts::default()
    }
}

/// A dirty-throttle as a rule would say it, with a hostile name in it.
pub(crate) fn finding() -> Finding {
    Finding {
        rule: "dirty-throttle".to_owned(),
        cause: "device-limit".to_owned(),
        severity: Severity::Critical,
        queue: "host.dirty@7:0".to_owned(),
        server: None,
        from: Moment::from_seconds(1_012.0),
        to: Moment::from_seconds(1_024.5),
        foreground_lost: Some(0.63),
        summary:
            "Writers are paused by the kernel because the dirty page cache of loop0 stands at its limit: 30 MiB/s \
                  arrive, 14 MiB/s leave."
                .to_owned(),
        evidence: vec![
            Figure::new("dirty_peak_bytes", 290.0 * MIB, Unit::Bytes, "dirty page cache, peak"),
            Figure::new("inflow_bytes_per_s", 30.0 * MIB, Unit::BytesPerSecond, "dirtied"),
            Figure::new("outflow_bytes_per_s", 14.2 * MIB, Unit::BytesPerSecond, "written"),
            Figure::new("kernel_wait_ratio", 0.63, Unit::Ratio, "sessions inside the kernel's write path \u{1b}[2J"),
        ],
        ruled_out: vec![RuledOut {
            cause: "checkpoint-burst".to_owned(),
            because: "no checkpoint ran in the window".to_owned(),
        }],
        unseen: vec![Unseen {
            what: "log lines".to_owned(),
            why: "the role may not read the server's log".to_owned(),
            remedy: Some("GRANT pg_read_server_files TO backwater;".to_owned()),
        }],
        confidence: Confidence::High,
        victims: vec!["pg.commit".to_owned()],
        remedies: vec![remedy()],
    }
}

pub(crate) fn remedy() -> Remedy {
    Remedy {
        title: "Cap the dirty page cache of this volume at 64 MiB, so that it drains in about 3 s".to_owned(),
        runtime: vec![
            "echo 1 > /sys/class/bdi/7:0/strict_limit".to_owned(),
            "echo 67108864 > /sys/class/bdi/7:0/max_bytes".to_owned(),
        ],
        persistent: vec![
            "# /etc/udev/rules.d/60-backwater.rules\nACTION==\"add\", SUBSYSTEM==\"bdi\", KERNEL==\"7:0\", ATTR{max_bytes}=\"67108864\""
                .to_owned(),
        ],
        activation: Activation::Immediate,
        undo: vec!["echo 0 > /sys/class/bdi/7:0/strict_limit".to_owned()],
        predicted: vec![Figure::new("drain_s", 3.0, Unit::Seconds, "drain after the load")],
        risk: "The cliff comes sooner: after about 3 s of full load instead of 12 s.".to_owned(),
    }
}

/// A run of two arms, the default limit and a small one.
pub(crate) fn stampede_outcome() -> Outcome {
    let default = [
        ("tps_mean", 3_050.0, 0.03),
        ("tps_peak", 4_037.0, 0.01),
        ("tps_after", 2_040.0, 0.05),
        ("time_to_cliff_s", 12.0, 0.08),
        ("predicted_time_to_cliff_s", 11.2, 0.1),
        ("drain_s", 9.8, 0.05),
        ("predicted_drain_s", 9.1, 0.05),
        ("dirty_peak_bytes", 290.0 * MIB, 0.01),
        ("residual_bytes", 190.0 * MIB, 0.01),
        ("checkpoint_sync_max_s", 0.0, 0.0),
        ("latency_p99_ms", 1_450.0, 0.2),
    ];
    let small = [
        ("tps_mean", 1_780.0, 0.02),
        ("tps_peak", 4_010.0, 0.01),
        ("predicted_time_to_cliff_s", 2.6, 0.1),
        ("drain_s", 3.0, 0.05),
        ("dirty_peak_bytes", 49.0 * MIB, 0.01),
        ("latency_p99_ms", 6_200.0, 0.1),
    ];
    let ratios = [("noise_floor_tps_mean_ratio", 0.985), ("advised_drain_s_ratio", 0.31), ("extra_wait_ms", 12.0)];
    Outcome {
        scenario: "stampede".to_owned(),
        machine: machine(),
        arms: vec![arm("default", 384.0, &default), arm("small-limit", 64.0, &small)],
        outcome: ratios.map(|(name, value)| (name.to_owned(), value)).into(),
        findings: vec![finding()],
        expected: ExpectedAll { met: true },
        doubts: vec![
            "default: only 12 % of the processors were idle, so they may be the limit; ask for a lower rate".to_owned(),
        ],
        ..Outcome::default()
    }
}

/// A run with a standby: one arm as it should be, one whose standby stands behind a cap, one that could not run.
pub(crate) fn wal_lag_outcome() -> Outcome {
    let arm = |name: &str, delay_kb: f64, expected: (Option<&str>, Option<&str>)| {
        let hops = ["sent", "write", "flush", "replay"];
        let peaks = hops.iter().zip([1.0, 1.1, 1.2, 1.3]).flat_map(|(hop, times)| {
            [(format!("{hop}_delay_kb"), delay_kb * times), (format!("{hop}_delay_last_kb"), delay_kb * times * 0.9)]
        });
        let others = [
            ("wal_generated_kb_per_s", 8_117.0),
            ("heartbeat_p99_ms", 41.0),
            ("heartbeat_missed", 0.0),
            ("tps_mean", 1.0),
        ];
        let row = |call: i32| {
            let delay = delay_kb * f64::from(call) / 20.0;
            let generated = (call > 0).then_some(8_117.0 + f64::from(call));
            // In the midst the standby had said nothing.
            let known = (call != 10).then_some(delay);
            vec![
                Some(f64::from(call)),
                generated,
                known,
                known,
                known.map(|delay| delay * 1.2),
                known.map(|delay| delay * 1.3),
            ]
        };
        let columns =
            ["at_s", "wal_generated_kb_per_s", "sent_delay_kb", "write_delay_kb", "flush_delay_kb", "replay_delay_kb"];
        let labels = match expected {
            (Some(rule), Some(cause)) => {
                [("rule", rule), ("cause", cause), ("binding_queue", "pg.wal.standby_flush@standby")]
            }
            _ => [("rule", "none"), ("cause", "none"), ("binding_queue", "none")],
        };
        ArmOutcome {
            name: name.to_owned(),
            params: expected
                .0
                .map(|_| ("standby_write_iops".to_owned(), ParamValue::Number(200.0)))
                .into_iter()
                .collect(),
            metrics: peaks.chain(others.map(|(name, value)| (name.to_owned(), value))).collect(),
            labels: labels.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
            table: Some(ArmTable { columns: columns.map(str::to_owned).to_vec(), rows: (0..=20).map(row).collect() }),
            repeats: 1,
            expected: Expected { rule: expected.0.map(str::to_owned), cause: expected.1.map(str::to_owned), met: true },
            ..ArmOutcome::default()
        }
    };
    let why = "a network of its own is not possible here: tc is not installed. Install it: `apt-get install iproute2`";
    Outcome {
        scenario: "wal-lag".to_owned(),
        machine: machine(),
        arms: vec![
            arm("no-cap", 8_220.0, (None, None)),
            arm("both-capped", 97_374.0, (Some("standby-disk"), Some("cgroup-cap"))),
        ],
        expected: ExpectedAll { met: true },
        skipped: [("network-narrow".to_owned(), why.to_owned())].into(),
        ..Outcome::default()
    }
}

fn arm(name: &str, limit_mib: f64, metrics: &[(&str, f64, f64)]) -> ArmOutcome {
    let params = [("dirty_limit_bytes", limit_mib * MIB), ("write_iops", 1_500.0)];
    ArmOutcome {
        name: name.to_owned(),
        params: params.map(|(name, value)| (name.to_owned(), ParamValue::Number(value))).into(),
        metrics: metrics.iter().map(|(name, value, _)| ((*name).to_owned(), *value)).collect(),
        spread: metrics
            .iter()
            .map(|(name, value, part)| ((*name).to_owned(), [value * (1.0 - part), value * (1.0 + part)]))
            .collect(),
        repeats: 3,
        expected: Expected {
            rule: Some("dirty-throttle".to_owned()),
            cause: Some("device-limit".to_owned()),
            met: true,
        },
        ..ArmOutcome::default()
    }
}
