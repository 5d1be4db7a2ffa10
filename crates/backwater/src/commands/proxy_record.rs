//! The recording of a proxy's decisions: a recording like any other, with events alone.

use anyhow::Context;
use backwater_gate::proxy::Tell;
use backwater_model::{Batch, Meta, Registry};
use backwater_probe::{anchor, now, session};
use backwater_record::{Options, Pump, Writer};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// Events that may wait for the disk; what comes beyond is in the log alone.
const WAITING: usize = 10_000;

/// Begins a recording, or continues the one that is there. Returns who is to be told, and what writes.
pub(super) fn start(dir: &Path) -> anyhow::Result<(Tell, Pump)> {
    let meta = Meta {
        host: session::this_host(),
        anchors: vec![anchor()],
        written_by: format!("backwater {}", env!("CARGO_PKG_VERSION")),
        ..Meta::default()
    };
    let writer = Writer::create(dir, meta, Arc::new(Registry::new()), Options::default())?;
    let (batches, arriving) = sync_channel(WAITING);
    let pump =
        Pump::start(writer, arriving, now, Box::new(|_| Batch::default())).context("cannot start the recorder")?;
    let tell = move |event| {
        // A disk that does not keep up, or has failed, must not hold sessions up.
        if batches.try_send(Batch { events: vec![event], ..Batch::default() }).is_err() {
            tracing::warn!("the recording missed an event");
        }
    };
    Ok((Arc::new(tell), pump))
}
