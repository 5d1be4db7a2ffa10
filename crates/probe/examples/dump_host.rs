//! Prints what the host probes read, as JSON lines: one a value or event.
//!
//! `dump_host SECONDS [MAJ:MIN…] [TARGET=POSTMASTER_PID…]`
//!
//! The test of cgroup v2 runs it inside user-mode Linux; by hand it shows what a strange host lets be seen.

use backwater_model::{Batch, Registry};
use backwater_probe::host::{Roots, Server, Watch, probes};
use backwater_probe::{Observer, now};
use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().ok_or("usage: dump_host SECONDS [MAJ:MIN…] [TARGET=PID…]")?.parse()?;
    let (roots, watch, registry) = (Roots::default(), Arc::new(Watch::new()), Arc::new(Registry::new()));
    for argument in arguments {
        match argument.split_once('=') {
            Some((target, pid)) => watch.add_server(Server { target: target.into(), postmaster_pid: pid.parse()? }),
            None => watch.add_device(&roots, &argument),
        }
    }
    let end = now().seconds() + seconds;
    let (observer, batches) = Observer::start(probes(&roots, &watch), &registry)?;
    while now().seconds() < end {
        if let Ok(batch) = batches.recv_timeout(Duration::from_millis(100)) {
            print(&batch, &registry)?;
        }
    }
    observer.stop();
    Ok(())
}

fn print(batch: &Batch, registry: &Registry) -> Result<(), Box<dyn Error>> {
    let mut out = stdout().lock();
    for point in &batch.points {
        let Some(series) = registry.get(point.series) else { continue };
        let labels: serde_json::Map<_, _> =
            series.labels.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let line = serde_json::json!({
            "at_s": point.at.seconds(), "name": series.name, "labels": labels, "value": point.value,
        });
        writeln!(out, "{line}")?;
    }
    for event in &batch.events {
        writeln!(out, "{}", serde_json::to_string(event)?)?;
    }
    Ok(())
}
