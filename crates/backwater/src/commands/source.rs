//! Where a window comes from: a recording on disk, or a live system that is watched for a while.

use super::flight;
use crate::args::{Beside, Looked, Stretch};
use crate::{signals, terminal};
use anyhow::{Context, bail};
use backwater_model::{Moment, Window};
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
    Path::new(text).exists() || !server
}

/// The window that a subcommand is asked about.
pub(crate) fn window(looked: &Looked) -> anyhow::Result<Window> {
    let Looked { targets, stretch, live, beside, .. } = looked;
    match targets.as_slice() {
        [one] if is_recording(one) && live.is_given() => bail!(
            "--for says how long to watch a live system, and {one} is a recording: choose a part of it with --from and --to"
        ),
        [one] if is_recording(one) => recorded(Path::new(one), stretch, beside),
        several if several.iter().any(|target| is_recording(target)) => bail!(
            "one recording at a time, or servers: {} are given. What changed from one recording to the next is told by: \
             backwater compare {}",
            several.len(),
            several.join(" ")
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

/// A part of a recording.
pub(crate) fn recorded(dir: &Path, stretch: &Stretch, beside: &Beside) -> anyhow::Result<Window> {
    if Flight::is_at(dir) {
        return flight::window(dir, stretch, beside);
    }
    beside.refuse()?;
    let recording = Recording::open(dir)?;
    for warning in recording.warnings() {
        tracing::warn!("{warning}");
    }
    let span = recording.span().with_context(|| format!("the recording {} holds no readings yet", dir.display()))?;
    let (from, to) = stretch.moments(recording.meta(), span)?;
    Ok(recording.window(Some(from), Some(to))?)
}

/// What a live system shows in the next `seconds`.
fn watch(looked: &Looked, seconds: f64) -> anyhow::Result<Window> {
    let cancel = signals::cancel_flag()?;
    let setup = Setup {
        targets: looked.targets.clone(),
        volumes: looked.sight.volume.declared()?,
        keep_query_text: looked.sight.keep_query_text,
        session_period: looked.sight.session_period(),
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
    let meta = Arc::new(session.meta.clone());
    session.stop();
    let to: Moment = now();
    Ok(ring.window(Some(from), Some(to), &meta))
}
