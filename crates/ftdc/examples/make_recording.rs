//! `make_recording DIR HOURS` writes a recording such as a mongod of 7.0 writes: some 2,350 metrics a second, most of
//! which never change, counters that grow by fits and starts, levels that go up and down; files of 10 MB. Nothing in it
//! is measured; it is for benchmarks and for tests of memory, where sizes and shapes matter and values do not.
#![allow(clippy::print_stdout)]

use ftdc::encode::{Encoder, metadata};
use ftdc::{Builder, time_text};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// 2026-01-01T00:00:00Z.
const START_MS: i64 = 1_767_225_600_000;
const FILE_BYTES: usize = 10_000_000;
/// How the metrics of a real 7.0 server divide, roughly: the rest never changes within a chunk.
const COUNTERS: usize = 380;
const LEVELS: usize = 120;
const CONSTANTS: usize = 1_850;

struct Server {
    random: u64,
    counters: Vec<i64>,
    levels: Vec<i64>,
}

impl Server {
    /// xorshift64*: the same recording every time.
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A second goes by; every ten minutes there is a minute of load.
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
    }

    fn sample(&self, second: i64) -> Vec<u8> {
        let at = START_MS + second * 1_000;
        let section = |mut built: Builder, prefix: &str, values: &[i64]| {
            for (place, value) in values.iter().enumerate() {
                let key = format!("{prefix} {place} of this section");
                built = match place % 7 {
                    0 => built.double(&key, *value as f64),
                    1 => built.int32(&key, *value as i32),
                    _ => built.int64(&key, *value),
                };
            }
            built
        };
        let constants: Vec<i64> = (0..CONSTANTS as i64).map(|place| place % 11).collect();
        Builder::new()
            .date("start", at)
            .document("serverStatus", |status| {
                let status = status.date("start", at).string("host", "made.example:27017").bool("ok", true);
                let status = status.document("wiredTiger", |tiger| {
                    tiger
                        .document("cache", |cache| {
                            let cache = cache.int64("bytes currently in the cache", self.levels[0]);
                            let cache = cache.int64("tracked dirty bytes in the cache", self.levels[1]);
                            cache.double("maximum bytes configured", 8e9)
                        })
                        .document("counters", |counters| section(counters, "events counted", &self.counters))
                });
                let status = status.document("levels", |levels| section(levels, "bytes held", &self.levels));
                status.document("others", |others| section(others, "times seen", &constants)).date("end", at + 4)
            })
            .timestamp("optime", (at / 1_000) as u32, 1)
            .date("end", at + 5)
            .finish()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, hours] = arguments.as_slice() else { return Err("make_recording DIR HOURS".into()) };
    let seconds = (hours.parse::<f64>()? * 3_600.0) as i64;
    std::fs::create_dir_all(dir)?;
    let mut server =
        Server { random: 0x9e37_79b9_7f4a_7c15, counters: vec![0; COUNTERS], levels: vec![50_000; LEVELS] };
    let about = Builder::new()
        .document("buildInfo", |build| build.string("version", "7.0.0"))
        .document("hostInfo", |host| host.document("system", |s| s.string("hostname", "made.example")))
        .finish();
    let mut encoder = Encoder::default();
    let (mut out, mut written, mut whole) = (None, 0, 0);
    let mut first_ms = START_MS;
    for second in 0..=seconds {
        server.tick(second);
        let at = START_MS + second * 1_000;
        let chunk = match second == seconds {
            true => encoder.finish(),
            false => encoder.add(at, &server.sample(second))?,
        };
        let Some(chunk) = chunk else { continue };
        if out.is_none() || written > FILE_BYTES {
            out = Some(begin(Path::new(dir), first_ms, &metadata(first_ms, &about))?);
            written = 0;
        }
        if let Some(out) = &mut out {
            out.write_all(&chunk)?;
        }
        written += chunk.len();
        whole += chunk.len();
        first_ms = at + 1_000;
    }
    if let Some(mut out) = out {
        out.flush()?;
    }
    println!("{seconds} samples, {whole} bytes of chunks in {dir}");
    Ok(())
}

fn begin(dir: &Path, at_ms: i64, head: &[u8]) -> std::io::Result<BufWriter<File>> {
    let time = time_text(at_ms);
    let name = format!("metrics.{}Z-00000", time.get(..19).unwrap_or(&time).replace(':', "-"));
    let mut out = BufWriter::new(File::create(dir.join(name))?);
    out.write_all(head)?;
    Ok(out)
}
