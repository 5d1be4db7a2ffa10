//! A recording as JSON Lines, for programs that read neither Parquet nor Arrow.

use crate::{RecordError, Recording};
use backwater_model::{Event, Meta, Moment, Point, Sample, Series, Span, Window};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{Error, Write};

/// So much is in memory at a time.
const SLICE: Span = Span::from_millis(120_000);

impl Recording {
    /// Writes every point, sample and event between two moments as one JSON object a line, two minutes at a time and
    /// in order of time within each of these and each table. `table` says what a line is, `time` is the wall-clock
    /// time (RFC 3339, UTC), `at_us` the boot time. A value that is no number is null.
    pub fn export_jsonl(
        &self,
        from: Option<Moment>,
        to: Option<Moment>,
        out: &mut dyn Write,
    ) -> Result<(), RecordError> {
        let Some((first, last)) = self.span() else { return Ok(()) };
        let (mut start, end) = (from.unwrap_or(Moment(i64::MIN)), to.unwrap_or(Moment(i64::MAX)));
        loop {
            // The first and the last slice reach as far as was asked: events may lie outside the readings' span.
            let slice_end = Some(start.max(first) + SLICE).filter(|edge| *edge < last.min(end)).unwrap_or(end);
            let window = self.window_with(Some(start), Some(slice_end), false)?;
            write_window(&window, self.meta(), out)
                .map_err(|source| RecordError::io("write the export of", self.dir(), source))?;
            if slice_end == end {
                return Ok(());
            }
            start = slice_end + Span(1);
        }
    }
}

/// Writes a window's points, samples and events in the same way, each table in order of time.
pub fn export_window(window: &Window, out: &mut dyn Write) -> Result<(), Error> {
    write_window(window, &window.meta, out)
}

#[derive(Serialize)]
struct Line<R> {
    table: &'static str,
    time: Option<String>,
    at_us: i64,
    #[serde(flatten)]
    row: R,
}

#[derive(Serialize)]
struct PointLine<'a> {
    series: &'a str,
    unit: backwater_model::Unit,
    kind: backwater_model::Kind,
    labels: BTreeMap<&'a str, &'a str>,
    epoch: u64,
    value: f64,
    as_of_us: Option<i64>,
}

fn write_window(window: &Window, meta: &Meta, out: &mut dyn Write) -> Result<(), Error> {
    let mut points: Vec<(&Series, &Point)> = Vec::new();
    for track in window.all_tracks() {
        points.extend(track.points.iter().map(|point| (track.series, point)));
    }
    points.sort_by_key(|(_, point)| point.at);
    for (series, point) in points {
        let row = PointLine {
            series: &series.name,
            unit: series.unit,
            kind: series.kind,
            labels: series.labels.iter().collect(),
            epoch: point.epoch.0,
            value: point.value,
            as_of_us: point.as_of.map(|at| at.0),
        };
        write_line("points", point.at, row, meta, out)?;
    }
    for sample in window.samples() {
        write_line::<&Sample>("samples", sample.at, sample, meta, out)?;
    }
    for event in window.events() {
        write_line::<&Event>("events", event.at, event, meta, out)?;
    }
    Ok(())
}

fn write_line<R: Serialize>(
    table: &'static str,
    at: Moment,
    row: R,
    meta: &Meta,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let time = meta.unix_us(at).and_then(|unix_us| jiff::Timestamp::from_microsecond(unix_us).ok());
    let line = Line { table, time: time.map(|time| time.to_string()), at_us: at.0, row };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}
