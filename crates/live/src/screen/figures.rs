//! Figures of a document at a moment or over a stretch, as the screen shows them.

use backwater_report::html::{Document, Lane, QueueView};

/// Flows are means over so many seconds.
const FLOW_S: f64 = 10.0;

/// The wall clock at the axis' begin, or nothing.
pub(super) fn origin(document: &Document) -> f64 {
    document.axis.from_unix_ms.unwrap_or(0.0) / 1e3
}

/// A moment of the axis by the clock, in UTC, or as seconds since its begin.
pub(super) fn clock(document: &Document, seconds: f64) -> String {
    match document.axis.from_unix_ms {
        None => format!("{seconds:.0} s"),
        Some(ms) => {
            let of_day = ((ms / 1e3 + seconds) as i64).rem_euclid(86_400);
            format!("{:02}:{:02}:{:02} UTC", of_day / 3_600, of_day / 60 % 60, of_day % 60)
        }
    }
}

fn lane(document: &Document, series: Option<usize>) -> Option<&Lane> {
    document.series.get(series?).map(|series| &series.lane)
}

/// What a series was at the end of a stretch, not long before.
pub(super) fn at(document: &Document, series: Option<usize>, end: usize) -> Option<f64> {
    let pieces = lane(document, series)?.pieces();
    let within = (FLOW_S / document.axis.step_s).ceil() as usize;
    let known = pieces.get(..end.min(pieces.len()))?.iter().rev().take(within.max(1)).flatten().next();
    known.map(|(_, most)| *most)
}

/// The mean of a series over the seconds before the end of a stretch.
pub(super) fn mean(document: &Document, series: Option<usize>, end: usize) -> Option<f64> {
    let lane = lane(document, series)?;
    let within = ((FLOW_S / document.axis.step_s).ceil() as usize).max(1);
    let end = end.min(lane.pieces().len());
    lane.mean_of(end.saturating_sub(within)..end)
}

/// Where whoever fills a queue begins to be held, as of the end of a stretch.
pub(super) fn held_from(document: &Document, queue: &QueueView, end: usize) -> Option<f64> {
    let hard = at(document, queue.hard_limit, end)?;
    if queue.held_midway { Some(f64::midpoint(at(document, queue.soft_limit, end)?, hard)) } else { Some(hard) }
}

/// Level by where whoever fills it begins to be held, at the end of a stretch.
pub(super) fn fill(document: &Document, queue: usize, end: usize) -> Option<f64> {
    let queue = document.path.queues.get(queue)?;
    let limit = held_from(document, queue, end).filter(|limit| *limit > 0.0)?;
    Some(at(document, queue.level, end)? / limit)
}

/// The most of a series column by column, over a stretch; none where nothing was read.
pub(super) fn columns_of(
    document: &Document,
    series: usize,
    (first, end): (usize, usize),
    columns: usize,
) -> Vec<Option<f64>> {
    let pieces = document.series[series].lane.pieces();
    let count = end.saturating_sub(first).max(1);
    let value = |column: usize| {
        let from = first + column * count / columns;
        let to = (first + (column + 1) * count / columns).max(from + 1).min(end);
        let most = |found: Option<f64>, piece: &Option<(f64, f64)>| match (found, piece) {
            (Some(a), Some((_, b))) => Some(a.max(*b)),
            (found, piece) => found.or(piece.map(|(_, most)| most)),
        };
        pieces.get(from..to)?.iter().fold(None, most)
    };
    (0..columns).map(value).collect()
}
