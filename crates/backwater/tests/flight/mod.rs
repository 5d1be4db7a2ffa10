//! A flight recorder's file made for tests, of a small server in November 2023.

#![allow(clippy::unwrap_used)]

use ftdc::{Builder, encode};

/// What its first file is called.
pub(crate) const FILE: &str = "metrics.2023-11-14T22-13-20Z-00000";
const START_MS: i64 = 1_700_000_000_000;

/// The file's bytes: about the server, then `serverStatus` of each of these seconds, made with its time in milliseconds.
pub(crate) fn bytes(seconds: impl IntoIterator<Item = i64>, status: impl Fn(Builder, i64, i64) -> Builder) -> Vec<u8> {
    let about = Builder::new()
        .document("buildInfo", |b| b.string("version", "7.0.0"))
        .document("hostInfo", |h| h.document("system", |s| s.string("hostname", "a.example").int32("numCores", 4)))
        .finish();
    let mut bytes = encode::metadata(START_MS, &about);
    let mut encoder = encode::Encoder::new(29);
    for second in seconds {
        let at = START_MS + second * 1_000;
        let sample = Builder::new().date("start", at).document("serverStatus", |s| status(s, second, at)).finish();
        bytes.extend(encoder.add(at, &sample).unwrap().unwrap_or_default());
    }
    bytes.extend(encoder.finish().unwrap_or_default());
    bytes
}
