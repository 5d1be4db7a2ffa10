//! Case 4 on the rig: large results and an urgent query over one narrow link, with whatever holds the results back, and
//! what both came to.

use crate::LabError;
use crate::held::Held;
use crate::limits::{Network, NetworkEnd};
use crate::metrics::overload;
use crate::rig::{Rig, RunOptions};
use crate::scenario::{LoadPart, OverloadPart};
use crate::servers::process;
use crate::workloads::overload::{BACKGROUND_NAME, Background, SendQueues, Urgent};
use crate::workloads::{self, Arrivals, Driven, LoadSpec, WorkloadError};
use backwater_model::Bytes;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often send queues are read.
const QUEUE_LOOK: Duration = Duration::from_millis(50);
/// The bounds of send buffers and the control of congestion, in the network namespace of the thread that writes.
const SEND_BUFFERS: &str = "/proc/sys/net/ipv4/tcp_wmem";
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// What was seen of the link while the urgent query was measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    pub(crate) seconds: f64,
    /// Bytes on the wire; none where the link was not narrow.
    pub(crate) link_bytes: Option<u64>,
    pub(crate) background_bytes: u64,
    pub(crate) queues: SendQueues,
}

/// Drives the arm's load for so many seconds, after it has settled.
pub(crate) fn drive(part: &LoadPart, seconds: f64, rig: &Rig, options: &RunOptions) -> Result<Driven, LabError> {
    let Some(network) = &rig.network else {
        return Err(LabError::Refused("large results need a network of the lab's own to meet on".to_owned()));
    };
    tune(network, &part.overload)?;
    let settle = Duration::from_secs_f64(part.overload.settle_s);
    let held = Held::start(&part.overload, rig, options)?;
    let result = drive_held(part, (settle, seconds), rig, network, &held, options);
    let told = held.end(&rig.journal);
    let (result, watched, cancelled) = result?;
    let figures = overload::figures(&part.overload, &result, &watched, told?.max(cancelled));
    Ok(Driven { result, figures, ..Driven::default() })
}

type Came = (workloads::LoadResult, Watched, u64);

fn drive_held(
    part: &LoadPart,
    (settle, seconds): (Duration, f64),
    rig: &Rig,
    network: &Network,
    held: &Held,
    options: &RunOptions,
) -> Result<Came, LabError> {
    let clients = &network.standby().namespace;
    let background = Background::start(&held.conninfo, part.overload.background_streams, clients)?;
    let spec = LoadSpec {
        clients: part.clients,
        rate_per_s: part.rate_per_s,
        arrivals: Arrivals::default(),
        warmup: settle,
        duration: Duration::from_secs_f64(seconds),
        seed: rand::random(),
    };
    let (begins, beginning) = channel();
    // Dropped with the load: who waits for a beginning that never comes hears of it.
    let load = {
        let (counters, spec) = (&rig.counters, &spec);
        let tell = move |began| begins.send(began).unwrap_or_default();
        move || workloads::run_telling(&held.conninfo, &Urgent, spec, counters, &options.cancel, &tell)
    };
    let (over, ended) = channel();
    let (streams, server) = (&background, network.primary().namespace.as_str());
    let (result, watched) = std::thread::scope(|scope| {
        // In the server's namespace, where its sockets are told of.
        let look = move || watch(network, streams, (settle, spec.duration), &beginning, &ended);
        let watching = scope.spawn(move || process::within(Some(server), look));
        let result = process::within(Some(clients), load);
        drop(over);
        (result, watching.join())
    });
    let watched = watched.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let cancelled = background.end().map_err(ended_with);
    let result = result?.map_err(ended_with)?;
    Ok((result, watched??, cancelled?))
}

/// Somebody's wish to end is no failure of the load.
fn ended_with(error: WorkloadError) -> LabError {
    match error {
        WorkloadError::Cancelled => LabError::Cancelled,
        other => LabError::Workload(other),
    }
}

/// Watches the link and the queues in front of it while the load is measured: from so long after its beginning, and for so long. To
/// be called in the server's network namespace.
fn watch(
    network: &Network,
    background: &Background,
    (settle, duration): (Duration, Duration),
    beginning: &Receiver<Instant>,
    ended: &Receiver<()>,
) -> Result<Watched, LabError> {
    // One that never begins has ended.
    let Ok(load_began) = beginning.recv() else { return Ok(Watched::default()) };
    let goes_on = |within: Duration| ended.recv_timeout(within) == Err(RecvTimeoutError::Timeout);
    let until = |at: Instant| at.saturating_duration_since(Instant::now());
    let end = load_began + settle + duration;
    if !goes_on(until(load_began + settle)) {
        return Ok(Watched::default());
    }
    let (begun, wire, received) = (Instant::now(), network.wire_bytes()?, background.received_bytes());
    let (mut queues, peer) = (SendQueues::default(), network.standby().address);
    while !until(end).is_zero() && goes_on(QUEUE_LOOK.min(until(end))) {
        let table = std::fs::read_to_string(workloads::overload::SOCKETS);
        queues.add(&table.map_err(LabError::file("read", workloads::overload::SOCKETS))?, peer);
    }
    let since = |before: u64, now: Option<u64>| now.map(|now| now.saturating_sub(before));
    let link_bytes = wire.map(|before| network.wire_bytes().map(|now| since(before, now))).transpose()?.flatten();
    Ok(Watched {
        seconds: begun.elapsed().as_secs_f64(),
        link_bytes,
        background_bytes: background.received_bytes() - received,
        queues,
    })
}

/// Sets how TCP behaves for whoever connects from now on, in both of the network's namespaces; what is not set is as the
/// host has it. The settings are the namespaces' own and go with them.
pub(crate) fn tune(network: &Network, part: &OverloadPart) -> Result<(), LabError> {
    let host = |path: &'static str| std::fs::read_to_string(path).map_err(LabError::file("read", path));
    let buffers = match part.send_buffer {
        Some(Bytes(bytes)) => format!("{bytes} {bytes} {bytes}"),
        None => host(SEND_BUFFERS)?,
    };
    let congestion = part.congestion.word().map_or_else(|| host(CONGESTION), |word| Ok(word.to_owned()))?;
    for NetworkEnd { namespace, .. } in [network.primary(), network.standby()] {
        for (path, value) in [(SEND_BUFFERS, &buffers), (CONGESTION, &congestion)] {
            let written = process::within(Some(namespace), || std::fs::write(path, value.trim()))?;
            written.map_err(LabError::file("write", path))?;
        }
    }
    Ok(())
}

/// How clients reach an address of the server's end.
pub(crate) fn conninfo(network: &Network, port: u16) -> String {
    format!("host={} port={port} user=postgres dbname=postgres", network.primary().address)
}

/// The rule that demotes the background, as its attributes.
pub(crate) fn rule(part: &OverloadPart) -> [(&'static str, f64); 2] {
    [("elapsedtime", part.rule_elapsed_s), ("bandwidth", part.rule_mb_per_s)]
}

/// Whose statements attach mode looks at.
pub(crate) fn background_name() -> &'static str {
    BACKGROUND_NAME
}
