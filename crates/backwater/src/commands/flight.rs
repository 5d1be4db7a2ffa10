//! MongoDB's flight recorder in place of a recording: a window of it, findings for all of it, or a recording made of it.

use super::source;
use super::stretches::{self, STRETCH_S};
use crate::args::{Beside, Stretch};
use crate::terminal;
use anyhow::{Context, bail};
use backwater_diagnose::{Options, gather};
use backwater_model::{Batch, DeclaredVolume, Finding, Moment, Point, Registry, Series, SeriesId, Window};
use backwater_probe::ProbeError;
use backwater_probe::mongodb::Flight;
use backwater_record::{Summary, UNREAD, Writer, export_window};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// More than this in one window takes gigabytes.
const LONGEST_WINDOW_S: f64 = 86_400.0;

/// The one target, if it is a flight recorder's directory or file.
pub(crate) fn path(targets: &[String]) -> Option<&Path> {
    let [one] = targets else { return None };
    Some(Path::new(one)).filter(|path| Flight::is_at(path))
}

/// It, and the stretch of it that is meant.
pub(crate) fn open(path: &Path, stretch: &Stretch, beside: &Beside) -> anyhow::Result<(Flight, Moment, Moment)> {
    let mut flight = Flight::open(path)?;
    let none = || {
        let why = flight.warnings().first().map(|why| format!(": {why}")).unwrap_or_default();
        format!("no samples in {}{why}", path.display())
    };
    let span = flight.span().with_context(none)?;
    flight.add_logs(&beside.logs)?;
    let (from, to) = stretch.moments(flight.meta(), span)?;
    Ok((flight, from, to))
}

/// A part of it as a window.
pub(crate) fn window(path: &Path, stretch: &Stretch, beside: &Beside) -> anyhow::Result<Window> {
    let (flight, from, to) = open(path, stretch, beside)?;
    source::in_one_window(path, (from, to), LONGEST_WINDOW_S)?;
    Ok(flight.window(from, to)?)
}

/// The findings of all of it, each told once, and the window they are about, without its readings.
pub(crate) fn findings(
    path: &Path,
    stretch: &Stretch,
    beside: &Beside,
    volumes: &[DeclaredVolume],
    options: &Options,
) -> anyhow::Result<(Vec<Finding>, Window)> {
    let (mut flight, from, to) = open(path, stretch, beside)?;
    flight.declare(volumes.to_vec());
    let windows = flight.windows(from, to, STRETCH_S).map(|window| Ok(window?));
    let walked = stretches::walk(windows, stretches::several(), options)?;
    // Damage may be all that nothing was found of; a server that wrote nothing is no fault.
    let (source, why) = match flight.damage().into_iter().next() {
        Some(damage) if flight.lost_share() >= stretches::MISSING_SHARE => (UNREAD, damage),
        _ => ("flight recorder", "the server wrote nothing then, or its files are not here".to_owned()),
    };
    let unread = walked.missing((from, to), source, &why).into_iter().collect();
    let about = Window::new(from, to, Arc::new(flight.meta().clone()), Vec::new(), Vec::new(), unread);
    Ok((gather(walked.parts), about))
}

/// Makes a recording of it, which every other command reads. Where it is cancelled, what was written until then is a recording.
pub(crate) fn record(
    path: &Path,
    out: &Path,
    (beside, volumes): (&Beside, Vec<DeclaredVolume>),
    options: backwater_record::Options,
    cancel: &AtomicBool,
) -> anyhow::Result<Summary> {
    // Its time is the recorder's: what was recorded of another server, or of another time, is none of it.
    if out.join("meta.json").exists() {
        bail!("{} holds a recording already: give -o a directory that does not exist", out.display());
    }
    let (mut flight, from, to) = open(path, &Stretch::default(), beside)?;
    flight.declare(volumes);
    let registry = Arc::new(Registry::new());
    let mut writer = Writer::create(out, flight.meta().clone(), Arc::clone(&registry), options)?;
    let mut damaged = Damaged::default();
    for batch in flight.batches(from, to, &registry).take_while(|_| !cancel.load(Ordering::SeqCst)) {
        let Some(batch) = damaged.without(batch)? else { continue };
        writer.write(&batch)?;
        if let Some(last) = batch.points.last() {
            writer.tick(last.at)?;
        }
    }
    damaged.tell_the_rest();
    Ok(writer.close()?)
}

/// Writes its readings as JSON Lines, a chunk at a time.
pub(crate) fn export(path: &Path, stretch: &Stretch, beside: &Beside, out: &mut dyn Write) -> anyhow::Result<()> {
    let (flight, from, to) = open(path, stretch, beside)?;
    let (registry, meta) = (Arc::new(Registry::new()), Arc::new(flight.meta().clone()));
    let mut damaged = Damaged::default();
    for batch in flight.batches(from, to, &registry) {
        let Some(batch) = damaged.without(batch)? else { continue };
        let mut series: Vec<(Arc<Series>, Vec<Point>)> = Vec::new();
        for point in batch.points {
            let number = point.series.0 as usize;
            while series.len() <= number {
                let Some(named) = registry.get(SeriesId(series.len() as u32)) else { break };
                series.push((named, Vec::new()));
            }
            if let Some((_, points)) = series.get_mut(number) {
                points.push(point);
            }
        }
        let window = Window::new(from, to, Arc::clone(&meta), series, Vec::new(), batch.events);
        export_window(&window, out)?;
    }
    damaged.tell_the_rest();
    Ok(())
}

/// So many damaged places are told one by one.
const TOLD: u64 = 20;

/// Damaged places so far.
#[derive(Default)]
struct Damaged(u64);

impl Damaged {
    /// What a chunk brought; none where it is damaged, which is said.
    fn without(&mut self, batch: Result<Batch, ProbeError>) -> anyhow::Result<Option<Batch>> {
        match batch {
            Err(error @ ProbeError::FlightRecorder(ftdc::FtdcError::Damaged(_))) => {
                self.0 += 1;
                if self.0 <= TOLD {
                    terminal::note(&format!("damaged: {error}"));
                }
                Ok(None)
            }
            other => Ok(Some(other?)),
        }
    }

    fn tell_the_rest(&self) {
        if let more @ 1.. = self.0.saturating_sub(TOLD) {
            terminal::note(&format!("damaged: {more} more places"));
        }
    }
}
