//! `make_recording DIR HOURS` writes a recording such as a mongod of 7.0 writes: some 2,350 metrics a second, most of which never
//! change, counters that grow by fits and starts, levels that go up and down; files of 10 MB. Under the names that rules read lies
//! a server that checkpoints every minute and, once a day at 03:10, has its threads evict for two minutes. It is started anew each
//! midnight, so that days can be made side by side. Nothing in it is measured; it is for benchmarks and for tests of memory,
//! where sizes and shapes matter and values do not.
#![allow(clippy::print_stdout)]

use ftdc::encode::{Encoder, metadata};
use ftdc::{Builder, time_text};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// 2026-01-01T00:00:00Z.
const START_MS: i64 = 1_767_225_600_000;
const DAY_S: i64 = 86_400;
const FILE_BYTES: usize = 10_000_000;
/// How the metrics of a real 7.0 server divide, roughly: the rest never changes within a chunk.
const COUNTERS: usize = 380;
const LEVELS: usize = 120;
const CONSTANTS: usize = 1_790;
/// When the day's trouble begins, in seconds after midnight, and how long it lasts.
const TROUBLE_S: (i64, i64) = (3 * 3_600 + 600, 120);

/// One day of a server.
struct Server {
    day: i64,
    random: u64,
    counters: Vec<i64>,
    levels: Vec<i64>,
    constants: Vec<i64>,
    keys: [Vec<String>; 3],
    known: Known,
}

/// What rules read.
#[derive(Default)]
struct Known {
    writes: i64,
    write_us: i64,
    wait_us: i64,
    created: i64,
    expired: i64,
    disk_writes: i64,
    disk_sectors: i64,
    disk_ms: i64,
    dirty: i64,
    checkpoint: bool,
}

fn keys(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|place| format!("{prefix} {place} of this section")).collect()
}

impl Server {
    fn new(day: i64) -> Self {
        Server {
            day,
            random: 0x9e37_79b9_7f4a_7c15 ^ day.unsigned_abs(),
            counters: vec![0; COUNTERS],
            levels: vec![50_000; LEVELS],
            constants: (0..CONSTANTS as i64).map(|place| place % 11).collect(),
            keys: [keys("events counted", COUNTERS), keys("bytes held", LEVELS), keys("times seen", CONSTANTS)],
            known: Known::default(),
        }
    }

    /// xorshift64*: the same recording every time.
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A second of the day goes by; every ten minutes there is a minute of load.
    fn tick(&mut self, second: i64) {
        let busy = second % 600 < 60;
        for place in 0..COUNTERS {
            // Few counters move every second, most now and then.
            if self.random() % 8 < if busy { 6 } else { 1 + (place % 2) as u64 } {
                let most = if place % 5 == 0 { 100_000 } else { 40 };
                self.counters[place] += (self.random() % most) as i64 + 1;
            }
        }
        for place in 0..LEVELS {
            if self.random().is_multiple_of(4) || busy {
                self.levels[place] = (self.levels[place] + (self.random() % 4_001) as i64 - 2_000).max(0);
            }
        }
        let noise = (self.random() % 200) as i64;
        self.known.tick(second, busy, noise);
    }

    fn sample(&self, second: i64) -> Vec<u8> {
        let at = START_MS + (self.day * DAY_S + second) * 1_000;
        let section = |mut built: Builder, keys: &[String], values: &[i64]| {
            for (place, (key, value)) in keys.iter().zip(values).enumerate() {
                built = match place % 7 {
                    0 => built.double(key, *value as f64),
                    1 => built.int32(key, *value as i32),
                    _ => built.int64(key, *value),
                };
            }
            built
        };
        let [counters, levels, constants] = &self.keys;
        let status = |status: Builder| {
            let status = status.date("start", at).string("host", "made.example:27017").bool("ok", true);
            let status = status.int64("pid", 4_000 + self.day).int64("uptimeMillis", second * 1_000 + 500);
            self.known
                .status(status)
                .document("counters", |b| section(b, counters, &self.counters))
                .document("levels", |b| section(b, levels, &self.levels))
                .document("others", |b| section(b, constants, &self.constants))
                .date("end", at + 4)
        };
        Builder::new()
            .date("start", at)
            .document("serverStatus", status)
            .document("systemMetrics", |metrics| self.known.host(metrics))
            .timestamp("optime", (at / 1_000) as u32, 1)
            .date("end", at + 5)
            .finish()
    }
}

impl Known {
    fn tick(&mut self, second: i64, busy: bool, noise: i64) {
        let trouble = (TROUBLE_S.0..TROUBLE_S.0 + TROUBLE_S.1).contains(&second);
        self.checkpoint = second % 60 < 8;
        let writes = if trouble { 500 } else { 2_000 + noise + i64::from(busy) * 2_000 };
        self.writes += writes;
        self.write_us += writes * if trouble { 40_000 } else { 900 + noise };
        self.wait_us += if trouble { 12_000_000 } else { 0 };
        self.created += 1 + noise % 3;
        self.expired += 40 + noise % 20;
        let mib = if self.checkpoint { 80 } else { 25 };
        self.disk_writes += mib * 8;
        self.disk_sectors += mib * 2_048;
        self.disk_ms += if trouble || self.checkpoint { 700 } else { 200 };
        let thousandths = if trouble { 205 } else { 30 + (second % 60) / 3 };
        self.dirty = 8_000_000_000 / 1_000 * thousandths;
    }

    fn status(&self, status: Builder) -> Builder {
        let pair = |b: Builder, ops: i64, us: i64| b.int64("ops", ops).int64("latency", us);
        let tickets = |b: Builder| b.int32("out", 10).int32("available", 118).int32("totalTickets", 128);
        let clients = |b: Builder| b.int32("total", 24).int32("readers", 4).int32("writers", 20);
        status
            .document("connections", |b| {
                b.int32("current", 500)
                    .int32("available", 50_000)
                    .int32("active", 24)
                    .int64("totalCreated", self.created)
            })
            .document("opLatencies", |b| {
                b.document("reads", |b| pair(b, self.writes / 2, self.write_us / 4))
                    .document("writes", |b| pair(b, self.writes, self.write_us))
                    .document("commands", |b| pair(b, self.writes / 10, self.write_us / 40))
            })
            .document("globalLock", |b| {
                b.document("currentQueue", |b| b.int32("total", 0).int32("readers", 0).int32("writers", 0))
                    .document("activeClients", clients)
            })
            .document("metrics", |b| {
                b.document("ttl", |b| b.int64("deletedDocuments", self.expired).int64("passes", self.expired / 3_000))
            })
            .document("wiredTiger", |tiger| {
                tiger
                    .document("cache", |cache| {
                        cache
                            .int64("bytes currently in the cache", 6_400_000_000)
                            .int64("tracked dirty bytes in the cache", self.dirty)
                            .int64("bytes allocated for updates", self.dirty / 3)
                            .int64("bytes written from cache", self.disk_sectors * 512)
                            .double("maximum bytes configured", 8e9)
                    })
                    .document("thread-yield", |b| {
                        b.int64("application thread time evicting (usecs)", self.wait_us)
                            .int64("application thread time waiting for cache (usecs)", self.wait_us)
                    })
                    .document("transaction", |b| {
                        b.int32("transaction checkpoint currently running", i32::from(self.checkpoint))
                    })
                    .document("concurrentTransactions", |b| b.document("read", tickets).document("write", tickets))
            })
    }

    fn host(&self, metrics: Builder) -> Builder {
        let memory =
            |b: Builder| b.int64("MemTotal_kb", 16 << 20).int64("MemAvailable_kb", 6 << 20).int64("Dirty_kb", 40_000);
        let disk = |b: Builder| {
            b.int64("reads", self.disk_writes / 9)
                .int64("read_sectors", self.disk_sectors / 9)
                .int64("writes", self.disk_writes)
                .int64("write_sectors", self.disk_sectors)
                .int64("io_time_ms", self.disk_ms)
                .int64("io_queued_ms", self.disk_ms * 3)
        };
        metrics.document("memory", memory).document("disks", |b| b.document("sda", disk))
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, hours] = arguments.as_slice() else { return Err("make_recording DIR HOURS".into()) };
    let seconds = (hours.parse::<f64>()? * 3_600.0) as i64;
    let dir = Path::new(dir);
    std::fs::create_dir_all(dir)?;
    let days = (seconds + DAY_S - 1) / DAY_S;
    let next = AtomicI64::new(0);
    let work = || -> Result<usize, Failure> {
        let mut bytes = 0;
        loop {
            let day = next.fetch_add(1, Ordering::SeqCst);
            if day >= days {
                return Ok(bytes);
            }
            bytes += make(dir, day, (seconds - day * DAY_S).min(DAY_S))?;
        }
    };
    let threads = std::thread::available_parallelism()?.get();
    let made: Result<Vec<usize>, Failure> = std::thread::scope(|scope| {
        let working: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        working.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
    });
    println!("{seconds} samples, {} bytes of chunks in {}", made?.iter().sum::<usize>(), dir.display());
    Ok(())
}

/// One day, or what there is to be of it.
fn make(dir: &Path, day: i64, seconds: i64) -> Result<usize, Failure> {
    let about = Builder::new()
        .document("buildInfo", |build| build.string("version", "7.0.0"))
        .document("hostInfo", |host| host.document("system", |s| s.string("hostname", "made.example")))
        .finish();
    let (mut server, mut encoder) = (Server::new(day), Encoder::default());
    let (mut out, mut written, mut whole) = (None, 0, 0);
    let time = |second: i64| START_MS + (day * DAY_S + second) * 1_000;
    let mut first_ms = time(0);
    for second in 0..=seconds {
        server.tick(second);
        let chunk = match second == seconds {
            true => encoder.finish(),
            false => encoder.add(time(second), &server.sample(second))?,
        };
        let Some(chunk) = chunk else { continue };
        if out.is_none() || written > FILE_BYTES {
            out = Some(begin(dir, first_ms, &metadata(first_ms, &about))?);
            written = 0;
        }
        if let Some(out) = &mut out {
            out.write_all(&chunk)?;
        }
        written += chunk.len();
        whole += chunk.len();
        first_ms = time(second + 1);
    }
    if let Some(mut out) = out {
        out.flush()?;
    }
    Ok(whole)
}

fn begin(dir: &Path, at_ms: i64, head: &[u8]) -> std::io::Result<BufWriter<File>> {
    let time = time_text(at_ms);
    let name = format!("metrics.{}Z-00000", time.get(..19).unwrap_or(&time).replace(':', "-"));
    let mut out = BufWriter::new(File::create(dir.join(name))?);
    out.write_all(head)?;
    Ok(out)
}
