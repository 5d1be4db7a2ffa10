//! How fast recordings are decoded, and whether another library's values are the same.
//!
//! `decode_speed time WAY THREADS PASSES PATH...` prints one line of JSON: seconds of each pass, what was decoded, and
//! the most memory the process had. WAY is `matrix` (every value of a chunk in memory at once), `columns` (every value,
//! one metric in memory at a time) or `select` (a dozen of WiredTiger's metrics).
//!
//! `decode_speed digests PATH...` prints a line for each metric of each chunk: its type, a hash of its values, and a
//! hash of how they differ from the first of them. Equal second hashes with unequal first
//! ones mean that two libraries disagree about where a metric starts and about nothing else.
#![allow(clippy::print_stdout)]

use ftdc::parallel::{Decoded, decode};
use ftdc::{Chunk, Decoder, Document, DocumentKind, FtdcError, Limits, Matrix, Selection, Source};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

/// What the dirty-page and eviction rules read, more or less.
const WANTED: &[&str] = &[
    "serverStatus.wiredTiger.cache.*dirty*",
    "serverStatus.wiredTiger.cache.bytes currently in the cache",
    "serverStatus.wiredTiger.cache.maximum bytes configured",
    "serverStatus.opLatencies.*",
];

/// What a pass decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Pass {
    compressed_bytes: u64,
    samples: u64,
    values: u64,
    /// The sum of all values: nothing can be left out without changing it.
    sum: i64,
}

impl Pass {
    fn add(&mut self, other: Pass) {
        self.compressed_bytes += other.compressed_bytes;
        self.samples += other.samples;
        self.values += other.values;
        self.sum = self.sum.wrapping_add(other.sum);
    }

    fn of(document: &Document, chunk: &Chunk<'_>, values: u64, sum: i64) -> Pass {
        Pass { compressed_bytes: document.bytes().len() as u64, samples: chunk.samples() as u64, values, sum }
    }
}

fn sum(values: &[i64]) -> i64 {
    values.iter().fold(0, |sum, value| sum.wrapping_add(*value))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["time", way, threads, passes, paths @ ..] if !paths.is_empty() => {
            time(way, threads.parse()?, passes.parse()?, paths)
        }
        ["digests", paths @ ..] if !paths.is_empty() => digests(paths),
        _ => Err("decode_speed time matrix|columns|select THREADS PASSES PATH... | digests PATH...".into()),
    }
}

fn time(way: &str, threads: usize, passes: usize, paths: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let mut seconds = Vec::new();
    let mut last = Pass::default();
    for _ in 0..passes {
        let start = Instant::now();
        let mut pass = Pass::default();
        for path in paths {
            let source = Source::open(path)?;
            pass.add(match way {
                "matrix" => matrix(&source, threads)?,
                "columns" => columns(&source)?,
                "select" => select(&source)?,
                other => return Err(format!("no such way: {other}").into()),
            });
        }
        seconds.push(start.elapsed().as_secs_f64());
        last = pass;
    }
    let Pass { compressed_bytes, samples, values, sum } = last;
    println!(
        "{{\"seconds\":{seconds:?},\"compressed_bytes\":{compressed_bytes},\"samples\":{samples},\"values\":{values},\
         \"sum\":{sum},\"peak_kib\":{}}}",
        peak_kib()
    );
    Ok(())
}

fn matrix(source: &Source, threads: usize) -> Result<Pass, FtdcError> {
    let mut pass = Pass::default();
    let mut failed = None;
    let make = |document: &Document, chunk: &Chunk<'_>, matrix: &Matrix| {
        let total = (0..matrix.columns()).fold(0i64, |total, place| total.wrapping_add(sum(matrix.column(place))));
        Pass::of(document, chunk, chunk.values() as u64, total)
    };
    decode(source.documents(), Limits::default(), threads, make, |decoded| {
        match decoded {
            Ok(Decoded::Chunk(one)) => pass.add(one),
            Ok(Decoded::Other(_)) => {}
            Err(error) => failed = Some(error),
        }
        true
    });
    failed.map_or(Ok(pass), Err)
}

fn columns(source: &Source) -> Result<Pass, FtdcError> {
    let mut pass = Pass::default();
    let mut decoder = Decoder::default();
    for document in source.documents() {
        let document = document?;
        if document.kind() != DocumentKind::Chunk {
            continue;
        }
        let chunk = decoder.open(&document)?;
        let mut total = 0i64;
        chunk
            .for_each_column(|_, values| total = total.wrapping_add(sum(values)))
            .map_err(|damage| document.fault(damage))?;
        pass.add(Pass::of(&document, &chunk, chunk.values() as u64, total));
    }
    Ok(pass)
}

fn select(source: &Source) -> Result<Pass, FtdcError> {
    let mut pass = Pass::default();
    for batch in source.select(&Selection::of(WANTED.iter().copied()), i64::MIN..i64::MAX) {
        let batch = batch?;
        pass.samples += batch.times_ms().len() as u64;
        for (_, values) in batch.columns() {
            pass.values += values.len() as u64;
            pass.sum = pass.sum.wrapping_add(sum(values));
        }
    }
    pass.compressed_bytes = source.files().iter().map(ftdc::SourceFile::bytes).sum();
    Ok(pass)
}

fn digests(paths: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut number = 0u64;
    for path in paths {
        let mut decoder = Decoder::default();
        for document in Source::open(path)?.documents() {
            let document = document?;
            if document.kind() != DocumentKind::Chunk {
                continue;
            }
            let chunk = decoder.open(&document)?;
            let schema = chunk.schema();
            let mut lines = String::new();
            chunk
                .for_each_column(|place, values| {
                    let kind = schema.metrics().get(place).map(|metric| metric.kind);
                    let (absolute, relative) = hashes(values);
                    let kind = kind.map(|kind| format!("{kind:?}")).unwrap_or_default();
                    let _ = writeln!(lines, "{number} {place} {kind} {absolute:016x} {relative:016x}");
                })
                .map_err(|damage| document.fault(damage))?;
            out.write_all(lines.as_bytes())?;
            number += 1;
        }
    }
    Ok(out.flush()?)
}

/// FNV-1a over the values' bytes: of the values themselves, and of each less the first of them.
fn hashes(values: &[i64]) -> (u64, u64) {
    let first = values.first().copied().unwrap_or(0);
    let hash = |values: &mut dyn Iterator<Item = i64>| {
        values
            .flat_map(i64::to_le_bytes)
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    };
    (hash(&mut values.iter().copied()), hash(&mut values.iter().map(|value| value.wrapping_sub(first))))
}

/// The most memory this process had resident, in KiB (Linux; 0 elsewhere).
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
