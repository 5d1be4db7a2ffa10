//! `backwater record`: watch and write everything down, within bounds that a database host needs.

use super::lookout::Lookout;
use super::{flight, source};
use crate::args::{Beside, Watched};
use crate::{signals, terminal, when};
use anyhow::{Context, bail};
use backwater_model::{Bytes, Device, Meta, Role, Unit};
use backwater_probe::session::{Session, Setup};
use backwater_probe::{anchor, now};
use backwater_record::{Options, Pump, Summary, Writer};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A wall clock that strays this far from the recording's anchor has stepped, in microseconds.
const CLOCK_STEP_US: u64 = 500_000;
/// How often the clock, and whether the recorder still runs, are looked at.
const LOOK_S: f64 = 1.0;

/// Watch servers and this host and write everything down
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater record -o rec                                       this host alone
  backwater record postgres:///postgres -o rec --keep 7d        a server, the last seven days
  PGSERVICE=prod backwater record service=prod -o rec           by a libpq service file
  backwater record mongodb://monitor@db1,db2/ -o rec            each member of a replica set (MONGODB_PASSWORD)
  backwater record postgres:///app -o rec --volume-iops 3000 --volume-bps 125MiB
  backwater record postgres:///app -o rec --on-finding /usr/local/bin/page-the-dba
  backwater record host=db1 host=db2 -o rec --heartbeat         a primary with its standby, and what a failover
                                                                manager would see")]
pub(crate) struct Arguments {
    #[command(flatten)]
    watched: Watched,
    #[command(flatten)]
    beside: Beside,
    /// Directory of the recording; a recording that is there is continued (not with a flight recorder's)
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// Keep only so much of the past: 7d, 12h
    #[arg(long, value_name = "TIME")]
    keep: Option<String>,
    /// Keep the recording below this size: 2GB
    #[arg(long, value_name = "SIZE")]
    max_size: Option<Bytes>,
    /// Stop cleanly when the file system has less than this free
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    free_floor: Bytes,
    /// Sync to disk every second (costs a capped volume tens of I/O operations a second)
    #[arg(long)]
    durable: bool,
    /// Beat like a failover manager's check: each second connect and commit one row, in a table of its own
    /// (public.backwater_heartbeat). It is the only thing that recording ever writes to a server
    #[arg(long)]
    heartbeat: bool,
    /// A beat not answered within this time is a missed one [default: 1s]
    #[arg(long, value_name = "TIME", requires = "heartbeat", value_parser = when::some_seconds)]
    heartbeat_timeout: Option<f64>,
    /// Stop after so long: 10min
    #[arg(long = "for", value_name = "TIME")]
    length: Option<String>,
    /// Run this command (by sh -c) when a finding begins, becomes worse or ends: the finding as JSON on its input, and
    /// BACKWATER_STATE, _RULE, _CAUSE, _SEVERITY, _CONFIDENCE, _QUEUE, _SERVER, _FROM, _TO and _SUMMARY in its environment
    #[arg(long, value_name = "COMMAND")]
    on_finding: Option<String>,
    /// In the end, print as JSON what was recorded
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let cancel = signals::cancel_flag()?;
    let length_s = arguments.length.as_deref().map(when::seconds).transpose()?;
    let keep_s = arguments.keep.as_deref().map(keep_seconds).transpose()?;
    refuse_address(&arguments.out)?;
    let options = Options {
        durable: arguments.durable,
        keep: keep_s.map(Duration::from_secs_f64),
        max_size_bytes: arguments.max_size.map(|size| size.0),
        free_floor_bytes: arguments.free_floor.0,
        ..Options::default()
    };
    if let Some(path) = flight::path(&arguments.watched.targets) {
        arguments.refuse_of_the_past(path)?;
        let volumes = arguments.watched.sight.volume.declared()?;
        let summary = flight::record(path, &arguments.out, (&arguments.beside, volumes), options, &cancel)?;
        return arguments.tell(&summary);
    }
    arguments.beside.refuse()?;
    source::servers_only(&arguments.watched.targets)?;
    let setup = Setup {
        targets: arguments.watched.targets.clone(),
        volumes: arguments.watched.sight.volume.declared()?,
        keep_query_text: arguments.watched.sight.keep_query_text,
        session_period: arguments.watched.sight.session_period(),
        no_shared_memory: arguments.watched.sight.no_shared_memory,
        directories: vec![nearest_existing(&arguments.out)],
        heartbeat: arguments.heartbeat,
        heartbeat_timeout: arguments.heartbeat_timeout.map(Duration::from_secs_f64),
        ..Setup::default()
    };
    let (session, mut batches) = Session::start(setup)?;
    let mut lookout = None;
    if let Some(command) = &arguments.on_finding {
        let (seen, begun) = Lookout::start(&session, batches, command)?;
        (batches, lookout) = (seen, Some(begun));
    }
    warn_of_own_volume(&session, arguments.durable);
    let mut known = session.meta();
    let writer = Writer::create(&arguments.out, Meta::clone(&known), Arc::clone(&session.registry), options)?;
    let pump = Pump::start(writer, batches, now, session.self_readings()).context("cannot start the recorder")?;
    let what: Vec<_> = known.targets.iter().map(|target| target.name.as_str()).chain(["this host"]).collect();
    terminal::note(&format!("recording {} into {} (Ctrl-C ends it)", what.join(", "), arguments.out.display()));
    let begun = now();
    let mut meta = Meta::clone(&known);
    while !cancel.load(Ordering::SeqCst) && !pump.has_ended() {
        let left_s = length_s.map(|length| length - now().seconds_since(begun));
        if left_s.is_some_and(|left| left <= 0.0) {
            break;
        }
        // A signal ends the pause.
        std::thread::park_timeout(Duration::from_secs_f64(left_s.map_or(LOOK_S, |left| left.min(LOOK_S))));
        let has_learned = learned(session.meta(), &mut known, &mut meta);
        if clock_stepped(&mut meta) || has_learned {
            pump.update_meta(meta.clone());
        }
        lookout.iter_mut().for_each(Lookout::look);
    }
    let last = session.known().clone();
    session.stop();
    // The last look may have met a server.
    if learned(last.meta(), &mut known, &mut meta) {
        pump.update_meta(meta);
    }
    let summary = pump.stop()?;
    arguments.tell(&summary)
}

impl Arguments {
    /// What is of no use where the past is recorded from a flight recorder.
    fn refuse_of_the_past(&self, path: &Path) -> anyhow::Result<()> {
        let live = [
            ("--for", self.length.is_some()),
            ("--heartbeat", self.heartbeat),
            ("--on-finding", self.on_finding.is_some()),
        ];
        let Some((name, _)) = live.into_iter().find(|(_, given)| *given) else { return Ok(()) };
        bail!(
            "{name} is for servers that are watched live, and {} was written by MongoDB's flight recorder: what is found in it is told \
             by: backwater diagnose {}",
            path.display(),
            path.display()
        )
    }

    fn tell(&self, summary: &Summary) -> anyhow::Result<ExitCode> {
        if self.json {
            terminal::print_json(&serde_json::json!({
                "dir": self.out, "bytes": summary.bytes, "points": summary.points,
                "samples": summary.samples, "events": summary.events,
            }))?;
        }
        let size = Unit::Bytes.show(summary.bytes as f64);
        let count =
            |rows: u64, what| format!("{} {what}{}", Unit::Count.show(rows as f64), if rows == 1 { "" } else { "s" });
        terminal::note(&format!(
            "recorded {}, {} and {}: {size} in all",
            count(summary.points, "point"),
            count(summary.samples, "sample"),
            count(summary.events, "event")
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// How much of the past is kept. A bare number is no length here: who means days by it would lose all but seconds.
fn keep_seconds(text: &str) -> anyhow::Result<f64> {
    if text.trim().parse::<f64>().is_ok() {
        bail!("--keep {text}: of what? What is older is removed, so say 7d, 12h or 90min");
    }
    when::seconds(text)
}

/// A server's address where a directory is meant would become a directory of that name, with whatever password is in it.
fn refuse_address(out: &Path) -> anyhow::Result<()> {
    if ["://", "password="].iter().any(|part| out.to_string_lossy().contains(part)) {
        bail!(
            "-o names the directory of the recording, and was given a server's address; as in: backwater record ADDRESS -o rec"
        );
    }
    Ok(())
}

/// Adds a clock anchor where the wall clock no longer agrees with the last one, at most one a second.
fn clock_stepped(meta: &mut Meta) -> bool {
    let here = anchor();
    let lately = meta.anchors.last().is_some_and(|last| here.boot.seconds_since(last.boot) < 1.0);
    let agrees = meta.unix_us(here.boot).is_some_and(|told| told.abs_diff(here.unix_us) <= CLOCK_STEP_US);
    if lately || agrees {
        return false;
    }
    meta.add_anchor(here);
    true
}

/// Adds what was learned meanwhile: of servers that were away.
fn learned(now: Arc<Meta>, known: &mut Arc<Meta>, meta: &mut Meta) -> bool {
    if Arc::ptr_eq(known, &now) {
        return false;
    }
    *meta = Meta { anchors: std::mem::take(&mut meta.anchors), ..Meta::clone(&now) };
    *known = now;
    true
}

/// The directory itself or the nearest one above it that exists, to find the device it will lie on.
fn nearest_existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    absolute.ancestors().find(|above| above.exists()).map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

fn warn_of_own_volume(session: &Session, durable: bool) {
    let meta = session.meta();
    for device in &meta.devices {
        let whole = |device: &Device| device.parent.clone().unwrap_or_else(|| device.dev.clone());
        let same = meta.devices.iter().filter(|other| whole(other) == whole(device));
        let mut roles = same.flat_map(|other| &other.roles).map(|(role, _)| *role);
        let records = device.roles.iter().any(|(role, _)| *role == Role::Recording);
        if records && roles.any(|role| matches!(role, Role::Data | Role::Wal)) {
            let cost =
                if durable { "and --durable syncs it every second" } else { "and takes part of what it can write" };
            terminal::note(&format!(
                "warning: the recording lies on {}, the volume it watches, {cost}; give -o a directory on another one",
                device.name
            ));
        }
    }
}
