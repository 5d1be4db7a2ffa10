//! Where a window comes from: a recording on disk, or a live system that is watched for a while.

use super::diagnose::Judged;
use super::{flight, stretches};
use crate::args::{Beside, Looked, Stretch};
use crate::{signals, terminal};
use anyhow::{Context, bail};
use backwater_diagnose::{Options, Shards, gather};
use backwater_model::{Finding, Meta, Moment, Span, Unit, Window};
use backwater_probe::mongodb::Flight;
use backwater_probe::now;
use backwater_probe::session::{Session, Setup};
use backwater_record::{Recording, Ring};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Whether this names something on disk rather than a server. A name that is neither is taken as a path, so that
/// the error says which file is missing.
pub(crate) fn is_recording(text: &str) -> bool {
    let server = text == "host" || text.contains("://") || text.contains('=') || text.starts_with("service");
    // A directory may be called anything but a URI: one of that name was made by mistake.
    !text.contains("://") && Path::new(text).exists() || !server
}

/// Refuses what lies on disk where a server is meant.
pub(crate) fn servers_only(targets: &[String]) -> anyhow::Result<()> {
    let Some(path) =
        targets.iter().find(|target| *target != "host" && is_recording(target) && Path::new(target).exists())
    else {
        return Ok(());
    };
    bail!(
        "{path} is no server: what is recorded already is looked at by itself, as with: backwater diagnose {path} (of MongoDB's flight \
         recorders one at a time is recorded)"
    )
}

/// The window that a subcommand is asked about.
pub(crate) fn window(looked: &Looked) -> anyhow::Result<Window> {
    let Looked { targets, stretch, live, beside, .. } = looked;
    match targets.as_slice() {
        [one] if is_recording(one) && live.is_given() => bail!(
            "--for says how long to watch a live system, and {one} is a recording: choose a part of it with --from and --to"
        ),
        [one] if is_recording(one) => rated(recorded(Path::new(one), stretch, beside)?, looked),
        several if several.iter().all(|target| is_recording(target)) && several.len() > 1 => bail!(
            "one recording at a time, or servers: {} are given. What changed from one recording to the next is told by: \
             backwater compare {}",
            several.len(),
            several.join(" ")
        ),
        several if several.iter().any(|target| is_recording(target)) => bail!(
            "one recording at a time, or servers: both are given, {} being what is recorded already",
            several.iter().filter(|target| is_recording(target)).cloned().collect::<Vec<_>>().join(" and ")
        ),
        _ if stretch.from.is_some() || stretch.to.is_some() => {
            bail!("--from and --to choose a part of a recording; a live system is watched from now on (see --for)")
        }
        _ => {
            beside.refuse()?;
            watch(looked, live.seconds())
        }
    }
}

/// A window with what the user says that volumes are rated for, which goes before what was said when it was recorded.
fn rated(mut window: Window, looked: &Looked) -> anyhow::Result<Window> {
    let told = looked.sight.volume.declared()?;
    let mut meta = Meta::clone(&window.meta);
    meta.declared_volumes.splice(0..0, told);
    window.meta = Arc::new(meta);
    Ok(window)
}

/// A part of a recording.
pub(crate) fn recorded(dir: &Path, stretch: &Stretch, beside: &Beside) -> anyhow::Result<Window> {
    if Flight::is_at(dir) {
        return flight::window(dir, stretch, beside);
    }
    beside.refuse()?;
    Ok(recorded_around(dir, stretch, Span(0))?.0)
}

/// A part of a recording with what was read so long before and after it, and when the part begins and ends.
pub(crate) fn recorded_around(
    dir: &Path,
    stretch: &Stretch,
    margin: Span,
) -> anyhow::Result<(Window, (Moment, Moment))> {
    let recording = Recording::open(dir)?;
    for warning in recording.warnings() {
        tracing::warn!("{warning}");
    }
    let span = recording.span().with_context(|| format!("the recording {} holds no readings yet", dir.display()))?;
    let (from, to) = stretch.moments(recording.meta(), span)?;
    in_one_window(dir, (from, to), LONGEST_WINDOW_S)?;
    Ok((recording.window(Some(from - margin), Some(to + margin))?, (from, to)))
}

/// Refuses a stretch that is too long to be one window, which would take gigabytes.
pub(crate) fn in_one_window(path: &Path, (from, to): (Moment, Moment), longest_s: f64) -> anyhow::Result<()> {
    let seconds = to.seconds_since(from);
    if seconds > longest_s {
        bail!(
            "{} holds {}: choose at most {} of it, as with --from and --to (diagnose and report take any length)",
            path.display(),
            Unit::Seconds.show(seconds),
            Unit::Seconds.show(longest_s)
        );
    }
    Ok(())
}

/// Findings, the window they are about, shards beside one another, and whether there was a queue to judge.
pub(crate) type Found = (Vec<Finding>, Window, Shards, Judged);

/// The findings of a recording that is too long for one window, each told once, and the window they are about, without readings other
/// than the recorder's of itself; none where it is not so long.
pub(crate) fn long_findings(looked: &Looked, options: &Options) -> anyhow::Result<Option<Found>> {
    let [dir] = looked.targets.as_slice() else { return Ok(None) };
    let dir = Path::new(dir);
    if !is_recording(&looked.targets[0]) || looked.live.is_given() || Flight::is_at(dir) {
        return Ok(None);
    }
    let recording = Recording::open(dir)?;
    let Some(span) = recording.span() else { return Ok(None) };
    let (from, to) = looked.stretch.moments(recording.meta(), span)?;
    if to.seconds_since(from) <= LONGEST_WINDOW_S {
        return Ok(None);
    }
    looked.beside.refuse()?;
    for warning in recording.warnings() {
        tracing::warn!("{warning}");
    }
    let window = |(begin, end)| rated(recording.window(Some(begin), Some(end))?, looked);
    let mut walked = stretches::walk(stretches::bounds(from, to).map(window), 1, options)?;
    walked.unseen.extend(walked.missing((from, to), "recorder", "nothing was recorded then"));
    let meta = Arc::new(recording.meta().clone());
    let itself = walked.recorder();
    let about = Window::new(from, to, meta, vec![itself], Vec::new(), walked.unseen);
    let blind = walked.sight.blind();
    let judged = Judged { has_queue: walked.judged, blind };
    Ok(Some((gather(walked.parts), about, walked.shards, judged)))
}

/// More than this in one window takes gigabytes; what is longer is looked at hour by hour.
const LONGEST_WINDOW_S: f64 = 172_800.0;

/// What a live system shows in the next `seconds`.
fn watch(looked: &Looked, seconds: f64) -> anyhow::Result<Window> {
    let cancel = signals::cancel_flag()?;
    let setup = Setup {
        targets: looked.targets.clone(),
        volumes: looked.sight.volume.declared()?,
        keep_query_text: looked.sight.keep_query_text,
        session_period: looked.sight.session_period(),
        no_shared_memory: looked.sight.no_shared_memory,
        ..Setup::default()
    };
    let (session, batches) = Session::start(setup)?;
    terminal::note(&format!("watching for {seconds:.0} s (Ctrl-C ends it early)"));
    let mut ring = Ring::new(seconds + 5.0, Arc::clone(&session.registry));
    let from = now();
    while now().seconds_since(from) < seconds && !cancel.load(Ordering::SeqCst) {
        if let Ok(batch) = batches.recv_timeout(Duration::from_millis(200)) {
            ring.push(batch);
        }
    }
    let meta = session.meta();
    session.stop();
    let to: Moment = now();
    Ok(ring.window(Some(from), Some(to), &meta))
}
