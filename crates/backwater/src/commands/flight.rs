//! MongoDB's flight recorder in place of a recording: a window of it, findings for all of it, or a recording made of it.

use super::source;
use crate::args::{Beside, Stretch};
use crate::terminal;
use anyhow::{Context, bail};
use backwater_diagnose::{Options, diagnose, gather};
use backwater_model::{Batch, DeclaredVolume, Finding, Moment, Point, Registry, Series, SeriesId, Unit, Window};
use backwater_probe::ProbeError;
use backwater_probe::mongodb::Flight;
use backwater_record::{Writer, export_window};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// Findings are looked for in stretches of an hour: memory stays small whatever the length.
const STRETCH_S: f64 = 3_600.0;
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
    let parts = each_stretch(&flight, from, to, options)?;
    let about = Window::new(from, to, Arc::new(flight.meta().clone()), Vec::new(), Vec::new(), Vec::new());
    Ok((gather(parts), about))
}

/// The findings of each stretch: one thread decodes, the others look.
fn each_stretch(flight: &Flight, from: Moment, to: Moment, options: &Options) -> anyhow::Result<Vec<Vec<Finding>>> {
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).clamp(1, 4));
    let (send, receive) = mpsc::sync_channel::<(usize, Window)>(workers);
    let receive = Mutex::new(receive);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((place, window)) = next else { break };
                    let findings = diagnose(&window, options);
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((place, findings));
                }
            });
        }
        let send = send;
        for (place, window) in flight.windows(from, to, STRETCH_S).enumerate() {
            // Nobody receives only where every worker has panicked, which the scope tells.
            if send.send((place, window?)).is_err() {
                break;
            }
        }
        anyhow::Ok(())
    })?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(place, _)| *place);
    Ok(found.into_iter().map(|(_, findings)| findings).collect())
}

/// Makes a recording of it, which every other command reads.
pub(crate) fn record(
    path: &Path,
    out: &Path,
    beside: &Beside,
    options: backwater_record::Options,
) -> anyhow::Result<ExitCode> {
    // Its time is the recorder's: what was recorded of another server, or of another time, is none of it.
    if out.join("meta.json").exists() {
        bail!("{} holds a recording already: give -o a directory that does not exist", out.display());
    }
    let (flight, from, to) = open(path, &Stretch::default(), beside)?;
    let registry = Arc::new(Registry::new());
    let mut writer = Writer::create(out, flight.meta().clone(), Arc::clone(&registry), options)?;
    let mut damaged = Damaged::default();
    for batch in flight.batches(from, to, &registry) {
        let Some(batch) = damaged.without(batch)? else { continue };
        writer.write(&batch)?;
        if let Some(last) = batch.points.last() {
            writer.tick(last.at)?;
        }
    }
    damaged.tell_the_rest();
    let summary = writer.close()?;
    terminal::note(&format!(
        "recorded {} points of {}: {} in all",
        Unit::Count.show(summary.points as f64),
        Unit::Seconds.show(to.seconds_since(from)),
        Unit::Bytes.show(summary.bytes as f64)
    ));
    Ok(ExitCode::SUCCESS)
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
