//! slow-reader: a client reads its result more slowly than the server could send it.
//!
//! The server has bytes to send all the time, the client's receive window is what holds them, and the session waits in
//! ClientWrite. A long way with a small window looks alike to the timer; there a whole window moves in each round trip.

use super::client_streams::{Stream, samples, streams};
use super::draft;
use crate::figures::Figures;
use crate::grid::{both, episodes, longest};
use crate::scene::Scene;
use backwater_model::{Activation, Confidence, Figure, Finding, Remedy, Sample, Severity, Unit};
use std::ops::Range;

/// Share of each second in which there must be something to send, and the client's window must hold it.
const HELD: f64 = 0.7;
const LEAST_S: usize = 10;
const BRIDGE_S: usize = 2;
/// Share of its samples in which the session waits for its client, and how many there must be.
const WAITS: f64 = 0.7;
const LEAST_SAMPLES: usize = 5;
/// A transaction open for longer than this holds back vacuum, and whoever waits for its locks.
const LONG_S: f64 = 60.0;

/// The findings of a window: at most one a connection.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    streams(scene).iter().filter_map(|stream| of_stream(scene, stream)).collect()
}

fn of_stream(scene: &Scene<'_>, stream: &Stream) -> Option<Finding> {
    let held = both(&stream.window_held.flags(|share| share >= HELD), &stream.busy.flags(|share| share >= HELD));
    let (range, _) = longest(&episodes(&held, LEAST_S, BRIDGE_S))?;
    let (from, to) = scene.grid.span(&range);
    let during: Vec<&Sample> =
        samples(scene, &stream.target, &stream.pid).filter(|sample| from <= sample.at && sample.at < to).collect();
    let waits = |sample: &&&Sample| sample.wait_event.as_deref() == Some("ClientWrite");
    let share = during.iter().filter(waits).count() as f64 / during.len().max(1) as f64;
    if during.len() < LEAST_SAMPLES || share < WAITS || long_way(stream, &range) {
        return None;
    }
    let open_s = during.iter().filter_map(|sample| sample.xact_age_ms).max().map(|ms| ms as f64 / 1e3);
    let mut finding = draft("slow-reader", "client-window", format!("host.tcp@{}", stream.target), (from, to));
    // By itself it hurts nobody but its own query.
    finding.severity = if open_s.is_some_and(|open| open >= LONG_S) { Severity::Warning } else { Severity::Info };
    finding.confidence = Confidence::High;
    finding.evidence = figures(stream, &range, share, open_s);
    finding.summary = summary(stream, &range, share, open_s);
    finding.remedies = remedies(stream);
    Some(finding)
}

/// Whether a whole window moves in about each round trip: then the way is long, and nobody reads slowly.
fn long_way(stream: &Stream, range: &Range<usize>) -> bool {
    let bound = || {
        let rtt = stream.min_rtt_s.median(range).filter(|rtt| *rtt > 0.0)?;
        Some(stream.window.median(range)? / rtt <= 2.0 * stream.sent.mean(range)?)
    };
    // A window that is shut most of the time is not what moves.
    bound().unwrap_or(false) && stream.window.median(range).is_some_and(|bytes| bytes >= 16.0 * 1024.0)
}

fn figures(stream: &Stream, range: &Range<usize>, share: f64, open_s: Option<f64>) -> Vec<Figure> {
    let mut figures = Figures::default();
    figures.add(
        "rwnd_limited_ratio",
        stream.window_held.mean(range),
        Unit::Ratio,
        "held by the client's receive window",
    );
    figures.add("client_write_ratio", Some(share), Unit::Ratio, "samples of the session in ClientWrite");
    figures.add("client_sent_bytes_per_s", stream.sent.mean(range), Unit::BytesPerSecond, "taken by the client");
    figures.add("client_queued_bytes", stream.queued.mean(range), Unit::Bytes, "standing in the send queue");
    figures.add("transaction_open_s", open_s, Unit::Seconds, "the transaction is open");
    figures.list()
}

fn summary(stream: &Stream, range: &Range<usize>, share: f64, open_s: Option<f64>) -> String {
    let mut text = format!(
        "The client of {} takes its result at {}, and no faster: its receive window held the connection {} of the time, \
         and the session waited in ClientWrite in {} of its samples.",
        stream.title(),
        Unit::BytesPerSecond.show(stream.sent.mean(range).unwrap_or_default()),
        Unit::Ratio.show(stream.window_held.mean(range).unwrap_or_default()),
        Unit::Ratio.show(share),
    );
    if let Some(open) = open_s.filter(|open| *open >= LONG_S) {
        text.push_str(&format!(
            " Its transaction has been open for {}: its snapshot holds back vacuum, and its locks whoever waits for them.",
            Unit::Seconds.show(open)
        ));
    }
    text
}

fn remedies(stream: &Stream) -> Vec<Remedy> {
    vec![Remedy {
        title: "Make the client read faster, or take the result in parts outside a long transaction".to_owned(),
        runtime: Vec::new(),
        persistent: vec![format!(
            "in the client at {}: read rows as they come instead of working on each before the next; keyset pages, or COPY \
             into a file first",
            stream.peer
        )],
        activation: Activation::Immediate,
        undo: vec!["the client as it was".to_owned()],
        predicted: Vec::new(),
        risk: "None for the server; the client needs room for what it has read.".to_owned(),
    }]
}
