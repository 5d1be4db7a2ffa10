//! Runs measured on a real PostgreSQL 15 on ext4 on a loop device, 2 cores, Linux 6.18, read five times a second.
//! The `waits` column counts sessions by kernel state and function.

use super::{Readings, meta, session};
use backwater_model::{Moment, Window, catalogue as cat};

pub struct Run {
    pub window: Window,
    /// Transactions in each whole second of the load.
    pub tps: Vec<(f64, f64)>,
    pub load_end: Moment,
    pub limit_mib: f64,
}

/// Loads begin at this moment, so that readings before it have positive times.
pub const START_S: f64 = 1000.0;

pub fn load(name: &str) -> Run {
    let path = format!("{}/tests/runs/{name}.csv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let header = |key: &str| -> f64 {
        let rest = &text[text.find(key).unwrap() + key.len()..];
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (limit_mib, cap, load_s) = (header("limit_mib="), header("cap_iops="), header("load_s="));
    let line = text.lines().find(|line| line.starts_with("# tps=")).unwrap();
    let tps: Vec<f64> = line["# tps=".len()..].split(' ').map(|tps| tps.parse().unwrap()).collect();
    let mut readings = Readings::default();
    let mut done = 0.0;
    for (second, tps) in tps.iter().enumerate() {
        readings.put(&cat::LOAD_COMPLETED, &[], START_S + second as f64, done);
        done += tps;
    }
    readings.put(&cat::LOAD_COMPLETED, &[], START_S + tps.len() as f64, done);
    let mut last = START_S;
    for row in text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit() || c == '-')) {
        last = put_row(&mut readings, row, limit_mib, cap);
    }
    let window = readings.window(meta(), START_S, last);
    let tps = tps.iter().enumerate().map(|(second, tps)| (second as f64, *tps)).collect();
    Run { window, tps, load_end: Moment::from_seconds(START_S + load_s), limit_mib }
}

fn put_row(readings: &mut Readings, row: &str, limit_mib: f64, cap: f64) -> f64 {
    let columns: Vec<&str> = row.split(',').collect();
    let at: f64 = START_S + columns[0].parse::<f64>().unwrap();
    let value = |column: usize| columns[column].parse::<f64>().unwrap();
    let (mib, kib) = (1_048_576.0, 1024.0);
    let dev = [("dev", "7:0")];
    let mut put = |def, value| readings.put(def, &dev, at, value);
    put(&cat::BDI_RECLAIMABLE, (value(1) - value(2)) * mib);
    put(&cat::BDI_WRITEBACK, value(2) * mib);
    put(&cat::BDI_DIRTY_THRESH, value(3) * mib);
    put(&cat::BDI_GLOBAL_DIRTY_THRESH, value(4) * mib);
    put(&cat::BDI_BACKGROUND_THRESH, value(4) * mib * 0.4994);
    put(&cat::BDI_DIRTIED, value(5) * kib);
    put(&cat::BDI_WRITTEN, value(6) * kib);
    put(&cat::BDI_MAX_BYTES, limit_mib * mib * 0.99998);
    put(&cat::BDI_MAX_RATIO, limit_mib / value(4));
    put(&cat::BDI_STRICT_LIMIT, 1.0);
    put(&cat::DISK_WRITES, value(7));
    put(&cat::DISK_WRITTEN_BYTES, value(8));
    put(&cat::DISK_READS, 0.0);
    put(&cat::DISK_READ_BYTES, 0.0);
    put(&cat::DISK_READ_MS, 0.0);
    put(&cat::DISK_BUSY_MS, value(9));
    put(&cat::DISK_WRITE_MS, value(10));
    readings.put(&cat::VM_DIRTY, &[], at, (value(1) - value(2)) * mib);
    readings.put(&cat::VM_WRITEBACK, &[], at, value(2) * mib);
    readings.put(&cat::VM_DIRTY_THRESHOLD, &[], at, value(4) * mib);
    readings.put(&cat::VM_BACKGROUND_THRESHOLD, &[], at, value(4) * mib * 0.4994);
    readings.put(&cat::CGROUP_IOPS_LIMIT, &[("cgroup", "/"), ("dev", "7:0"), ("op", "write")], at, cap);
    readings.put(&cat::PSI_IO_SOME, &[("cgroup", "host")], at, value(11));
    sessions(readings, at, columns[12]);
    at
}

/// Sessions by their kernel waits. Which of the page waits were reads is not known any more: all are taken for reads.
fn sessions(readings: &mut Readings, at: f64, waits: &str) {
    for (pid, wait) in waits.split_whitespace().enumerate() {
        let (state, rest) = wait.split_once(':').unwrap();
        let (function, count) = rest.split_once('=').unwrap();
        let kernel = state.chars().next().map(|state| (function, state)).filter(|_| function != "0");
        let server = match function {
            "folio_wait_bit_common" => Some(("IO", "DataFileRead")),
            "futex_do_wait" => Some(("LWLock", "BufferContent")),
            "0" => None,
            _ => Some(("IO", "DataFileWrite")),
        };
        let idle = function == "do_epoll_wait";
        for each in 0..count.parse::<i32>().unwrap() {
            let state = if idle { "idle in transaction" } else { "active" };
            let server = if idle { Some(("Client", "ClientRead")) } else { server };
            readings.samples.push(session(at, pid as i32 * 100 + each, state, server, kernel));
        }
    }
}
