//! Recordings made for tests: what a small mongod would write, with every type, a schema that changes, and metadata.
#![allow(dead_code, clippy::unwrap_used)]

use ftdc::encode::{Encoder, metadata};
use ftdc::{Builder, Decoder, DocumentKind, Documents, Fault, FtdcError, Limits, Matrix};
use std::path::Path;

/// A second of a server's life.
pub(crate) fn sample(second: i64, extra: bool) -> Vec<u8> {
    let at = 1_700_000_000_000 + second * 1_000;
    let mount = |m: Builder, free: i64| m.document("/", |d| d.int64("free", free).int64("capacity", 1 << 40));
    let built = Builder::new().date("start", at).document("serverStatus", |s| {
        let s = s.string("host", "a.example").double("uptime", second as f64 + 0.5).bool("ok", second % 7 != 0);
        let s = s.document("wiredTiger", |w| {
            w.document("cache", |c| {
                c.int64("bytes dirty", (second * 7_919) % 100_000).double("maximum bytes configured", 1.33e11)
            })
        });
        s.array("loads", |a| a.int32("0", (second % 100) as i32).int32("1", -1).string("2", "x"))
    });
    let built = built.document("systemMetrics", |m| m.document("mounts", |m| mount(mount(m, second), second + 1)));
    let built = built.timestamp("optime", (at / 1_000) as u32, (second % 5) as u32);
    let built = if extra { built.document("extra", |e| e.int32("n", 1)) } else { built };
    built.date("end", at + 3).finish()
}

/// A file: metadata, then so many samples; from the middle on there is one metric more.
pub(crate) fn file(first_second: i64, samples: i64, per_chunk: usize) -> Vec<u8> {
    let build = Builder::new().document("buildInfo", |b| b.string("version", "7.0.0"));
    let about = build.document("hostInfo", |h| h.document("system", |s| s.string("hostname", "a.example"))).finish();
    let mut bytes = metadata(1_700_000_000_000 + first_second * 1_000, &about);
    let mut encoder = Encoder::new(per_chunk);
    for second in first_second..first_second + samples {
        let at = 1_700_000_000_000 + second * 1_000;
        let extra = second - first_second >= samples / 2;
        bytes.extend(encoder.add(at, &sample(second, extra)).unwrap().unwrap_or_default());
    }
    bytes.extend(encoder.finish().unwrap_or_default());
    bytes
}

/// A chunk whose zlib stream has one stored block and a checksum made to fit, whatever lies within; `length` is the number of
/// those bytes.
pub(crate) fn stored(inside: &[u8], length: u16) -> Vec<u8> {
    let mut data = (inside.len() as u32).to_le_bytes().to_vec();
    data.extend([0x78, 0x01, 0x01]);
    data.extend(length.to_le_bytes());
    data.extend((!length).to_le_bytes());
    data.extend(inside);
    let (mut a, mut b) = (1u32, 0u32);
    for byte in inside {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    data.extend(((b << 16) | a).to_be_bytes());
    Builder::new().date("_id", 0).int32("type", 1).binary("data", &data).finish()
}

/// What reading gives: every sample's time and values, and the faults.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Read {
    pub(crate) times: Vec<i64>,
    pub(crate) rows: Vec<Vec<i64>>,
    pub(crate) documents: usize,
    pub(crate) faults: Vec<Fault>,
}

/// Reads everything in these bytes.
pub(crate) fn read(bytes: &[u8]) -> Read {
    read_with(bytes, Limits::default())
}

/// As [`read`], with limits.
pub(crate) fn read_with(bytes: &[u8], limits: Limits) -> Read {
    let mut read = Read::default();
    let mut decoder = Decoder::new(limits);
    let mut matrix = Matrix::default();
    for document in Documents::new(bytes, Path::new("metrics.test"), limits) {
        let outcome = document.and_then(|document| {
            read.documents += 1;
            if document.kind() != DocumentKind::Chunk {
                return Ok(());
            }
            let chunk = decoder.open(&document)?;
            chunk.read_into(&mut matrix).map_err(|damage| document.fault(damage))?;
            read.times.extend(chunk.times().map_err(|damage| document.fault(damage))?);
            read.rows.extend((0..chunk.samples()).map(|row| matrix.row(row).collect::<Vec<_>>()));
            Ok(())
        });
        match outcome {
            Ok(()) => {}
            Err(FtdcError::Damaged(fault)) => read.faults.push(fault),
            Err(other) => panic!("{other}"),
        }
    }
    read
}

/// Reads these bytes in every way there is.
pub(crate) fn exercise(bytes: &[u8]) {
    let limits = Limits { values: 1 << 16, inflated_bytes: 1 << 20, ..Limits::default() };
    let mut decoder = Decoder::new(limits);
    let mut matrix = Matrix::default();
    let mut metadata = ftdc::Metadata::default();
    for document in Documents::new(bytes, Path::new("f"), limits).filter_map(Result::ok) {
        let _ = metadata.take(&document);
        let _ = metadata.version();
        let _ = ftdc::to_json(document.bytes());
        if document.kind() != DocumentKind::Chunk {
            continue;
        }
        let Ok(chunk) = decoder.open(&document) else { continue };
        let _ = chunk.times();
        let places: Vec<usize> = (0..chunk.first().len()).step_by(3).rev().collect();
        let some = chunk.read_some_into(&places, &mut matrix);
        let whole = chunk.read_into(&mut matrix);
        // What is behind the last wanted metric is not looked at, so only this way round.
        assert!(some.is_ok() || whole.is_err());
        if whole.is_ok() {
            let _ = chunk.document(&matrix, chunk.samples() - 1);
        }
    }
}
