//! What a page costs: an hour (50 sessions looked at ten times a second) and a day (20 sessions once a second) are recorded, and
//! the time, the memory and the size of the page of each are told.
//!
//! `cargo run --profile dist -p backwater-live --example page [DIRECTORY]`: with a directory the pages are kept there, for
//! `node web/test/speed.mjs`.
#![allow(clippy::print_stdout, reason = "the figures are this program's output")]
#![allow(clippy::unwrap_used, reason = "an example that cannot write has nothing else to do")]

#[path = "../tests/common/planted.rs"]
mod planted;

use backwater_diagnose::Options;
use backwater_model::catalogue as cat;
use backwater_model::{Batch, Device, Epoch, Meta, Moment, Point, Registry, Sample, Text};
use backwater_record::{Recording, Writer};
use backwater_report::html;
use planted::MIB;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const WAITS: [(&str, &str); 4] =
    [("IO", "DataFileWrite"), ("IO", "WALSync"), ("LWLock", "WALWrite"), ("Lock", "transactionid")];

fn main() {
    let keep = std::env::args().nth(1).map(PathBuf::from);
    let dir = std::env::temp_dir().join(format!("backwater-page-{}", std::process::id()));
    println!("            recorded   readings     samples  written in  page made in  memory  page");
    for (name, seconds, sessions, looks) in [("an hour", 3_600, 50, 10), ("a day", 86_400, 20, 1)] {
        let begun = Instant::now();
        let summary = record(&dir, seconds, sessions, looks);
        let written_s = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let page = page(&dir);
        let made_s = begun.elapsed().as_secs_f64();
        std::fs::remove_dir_all(&dir).unwrap();
        if let Some(keep) = &keep {
            std::fs::write(keep.join(format!("{}.html", name.replace(' ', "-"))), &page).unwrap();
        }
        println!(
            "{name:<8} {:>7.1} MiB {:>10} {:>11} {written_s:>8.1} s {made_s:>11.1} s {:>4.0} MiB  {:.2} MiB",
            summary.bytes as f64 / MIB,
            summary.points,
            summary.samples,
            most_memory_mib(),
            page.len() as f64 / MIB
        );
    }
}

fn page(dir: &Path) -> String {
    let recording = Recording::open(dir).unwrap();
    let meta = Arc::new(recording.meta().clone());
    let read = |from, to| recording.window(Some(from), Some(to));
    let span = recording.span().unwrap();
    let document = html::document_of(span, &meta, (None, &[]), &Options::default(), read, |_, _| {}).unwrap();
    html::html(&document).unwrap()
}

/// The most memory that this process ever had, in MiB.
fn most_memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}

fn record(dir: &Path, seconds: i64, sessions: i32, looks: i64) -> backwater_record::Summary {
    let registry = Arc::new(Registry::new());
    let options = backwater_record::Options { free_floor_bytes: 0, ..Default::default() };
    let mut writer = Writer::create(dir, meta(), Arc::clone(&registry), options).unwrap();
    let mut words = Words::new();
    for second in 0..seconds {
        let mut batch = Batch { points: points(second, &registry), ..Batch::default() };
        for look in 0..looks {
            let at = Moment(second * 1_000_000 + look * 1_000_000 / looks);
            batch.points.push(point(&registry, &cat::PG_PROBE_RESPONSE, at, &[("target", "primary")], 900.0));
            batch.samples.extend((0..sessions).map(|pid| words.sample(at, pid)));
        }
        writer.write(&batch).unwrap();
        writer.tick(Moment(second * 1_000_000)).unwrap();
    }
    writer.close().unwrap()
}

fn meta() -> Meta {
    let device =
        |number: usize| Device { dev: format!("7:{number}"), name: format!("loop{number}"), ..Device::default() };
    let mut meta = planted::meta("loop0");
    meta.devices.extend((1..4).map(device));
    meta
}

fn point(registry: &Registry, def: &cat::Def, at: Moment, labels: &[(&'static str, &str)], value: f64) -> Point {
    Point { at, series: registry.number(def, labels).unwrap(), epoch: Epoch(1), value, as_of: None }
}

/// Four devices that fill and drain, the server's WAL and commits, the processors.
fn points(second: i64, registry: &Registry) -> Vec<Point> {
    let at = Moment(second * 1_000_000);
    let whole = second as f64;
    // A burst every ten minutes, and noise that does not repeat.
    let noise = ((second * 7_919) % 1_009) as f64 / 1_009.0;
    let burst = f64::from(u8::from(second % 600 > 480));
    let mut list = Vec::new();
    for dev in ["7:0", "7:1", "7:2", "7:3"] {
        let of = [("dev", dev)];
        let level = (20.0 + 180.0 * burst * ((second % 600 - 480) as f64 / 120.0) + 9.0 * noise) * MIB;
        let values = [
            (cat::BDI_RECLAIMABLE, level),
            (cat::BDI_WRITEBACK, 6.0 * MIB * noise),
            (cat::BDI_DIRTY_THRESH, 256.0 * MIB),
            (cat::BDI_GLOBAL_DIRTY_THRESH, 4_096.0 * MIB),
            (cat::BDI_BACKGROUND_THRESH, 2_048.0 * MIB),
            (cat::BDI_DIRTIED, (whole * 14.0 + noise * 3.0) * MIB),
            (cat::BDI_WRITTEN, (whole * 14.0 + noise) * MIB),
            (cat::DISK_WRITES, whole * 900.0 + noise * 300.0),
            (cat::DISK_READS, whole * 90.0 + noise * 30.0),
            (cat::DISK_WRITTEN_BYTES, (whole * 14.0 + noise) * MIB),
            (cat::DISK_READ_BYTES, (whole + noise) * MIB),
            (cat::DISK_WRITE_MS, whole * 400.0 + noise * 200.0),
            (cat::DISK_BUSY_MS, whole * 700.0 + noise * 100.0),
            (cat::DISK_IN_FLIGHT, (noise * 30.0).floor()),
            (cat::DISK_NR_REQUESTS, 128.0),
        ];
        list.extend(values.iter().map(|(def, value)| point(registry, def, at, &of, *value)));
    }
    let of = [("target", "primary")];
    let wal = (whole * 4.0 + noise) * MIB;
    let values = [(cat::PG_WAL_INSERT, wal + 20_000.0), (cat::PG_WAL_WRITE, wal + 9_000.0), (cat::PG_WAL_FLUSH, wal)];
    list.extend(values.iter().map(|(def, value)| point(registry, def, at, &of, *value)));
    let database = [("target", "primary"), ("database", "app")];
    list.push(point(registry, &cat::PG_XACT_COMMIT, at, &database, whole * 3_000.0 + noise * 900.0));
    for def in [cat::CPU_USER, cat::CPU_SYSTEM, cat::CPU_IOWAIT, cat::CPU_IDLE] {
        list.push(point(registry, &def, at, &[], whole * 0.7 + noise * 0.2));
    }
    list.push(point(registry, &cat::MEM_AVAILABLE, at, &[], (9_000.0 + noise * 500.0) * MIB));
    list
}

/// Texts that samples share.
struct Words {
    target: Text,
    state: Text,
    users: Vec<Text>,
    queries: Vec<Text>,
    waits: Vec<(Text, Text)>,
    count: usize,
}

impl Words {
    fn new() -> Words {
        Words {
            target: "primary".into(),
            state: "active".into(),
            users: (0..12).map(|number| format!("user{number}").into()).collect(),
            queries: (0..80).map(|number| format!("UPDATE t{number} SET a = $1 WHERE id = $2").into()).collect(),
            waits: WAITS.iter().map(|(class, event)| ((*class).into(), (*event).into())).collect(),
            count: 0,
        }
    }

    fn sample(&mut self, at: Moment, pid: i32) -> Sample {
        self.count = self.count.wrapping_mul(31).wrapping_add(7_919);
        let wait = self.waits.get(self.count % 6);
        Sample {
            at,
            target: Arc::clone(&self.target),
            pid,
            state: Some(Arc::clone(&self.state)),
            user: Some(Arc::clone(&self.users[self.count % 12])),
            query: Some(Arc::clone(&self.queries[self.count % 80])),
            wait_event_type: wait.map(|(class, _)| Arc::clone(class)),
            wait_event: wait.map(|(_, event)| Arc::clone(event)),
            ..Sample::default()
        }
    }
}
