//! `backwater top`: who reads, writes, sends and computes, process by process, live or over a recording.

use super::source;
use crate::args::Stretch;
use crate::{signals, terminal, when};
use anyhow::{Context, bail};
use backwater_model::catalogue::PROC_CPU;
use backwater_model::{Moment, ProcessUse, SessionUse, Window};
use backwater_probe::host::{self, Roots, Scope, Top, Usage};
use backwater_probe::mongodb::Flight;
use backwater_probe::postgres::{ConnInfo, PostgresOptions, PostgresProbe};
use backwater_probe::{Observer, now};
use backwater_report::{Style, TOP_MARGIN, TopSort, TopView, top, top_of, top_unseen};
use clap::{Args, ValueEnum};
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Columns of a table that nobody looks at on a terminal.
const UNATTENDED_COLUMNS: usize = 160;
/// Lines beside those of processes: title, headers, total, notes.
const OTHER_LINES: usize = 10;
/// How long a wait goes on before somebody who wants to stop is heard.
const LISTEN: Duration = Duration::from_millis(100);

/// Who reads, writes, sends and computes, process by process
#[derive(Args)]
#[command(after_help = "\
A figure is a rate a second: bytes and calls of files (those on sockets count as calls too), bytes and segments of TCP \
(UDP and Unix sockets are not counted), share of one processor. Connections and processes that begin and end between two \
looks are not seen. Without the privilege to see other users' processes, it says which one is missing.

Examples:
  backwater top                                   every process of this host that reads, writes or sends
  backwater top postgres:///app --sort net        a server's processes, by what they send and receive
  backwater top --pid 812                         a postmaster's processes, without connecting to it
  backwater top rec --from 03:05 --to 03:15       the same figures from a recording
  backwater top --count 60 --json > top.jsonl     a minute of it for programs, one line a second")]
pub(crate) struct Arguments {
    /// A server on this host (postgres://…), `host` for every process, or the directory of a recording
    ///
    /// Devices are those of the files that a process has open for writing and, after them, the network interfaces by which its TCP
    /// connections moved bytes.
    ///
    /// In a recording, devices are told by the kind of a process (WAL, data files, or both), interfaces are not told, and clients' sessions were read every
    /// second: 200 of a server, and every fifth second those by which a host comes to more than 240 processes. Processor time of
    /// sessions that hardly compute is read every fifth second.
    target: Option<String>,
    /// A process with its children: the postmaster of a server on this host
    #[arg(long, value_name = "PID", conflicts_with = "target")]
    pid: Option<i32>,
    /// Time between two looks; over a recording: length of each stretch (one for all of it unless given) [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = when::some_seconds)]
    interval: Option<f64>,
    /// Stop after so many tables
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Which come first
    #[arg(long, value_enum, default_value = "io")]
    sort: Sort,
    #[command(flatten)]
    stretch: Stretch,
    /// Print as JSON: one line a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sort {
    /// Bytes read and written
    Io,
    /// Bytes sent and received
    Net,
    /// Processor time
    Cpu,
}

impl From<Sort> for TopSort {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Io => TopSort::Io,
            Sort::Net => TopSort::Net,
            Sort::Cpu => TopSort::Cpu,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match arguments.target.as_deref() {
        Some(target) if source::is_recording(target) => recorded(arguments, Path::new(target))?,
        _ if arguments.stretch.from.is_some() || arguments.stretch.to.is_some() => {
            bail!("--from and --to choose a part of a recording; live, it is shown what happens now")
        }
        target => live(arguments, target)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn recorded(arguments: &Arguments, dir: &Path) -> anyhow::Result<()> {
    if Flight::is_at(dir) {
        bail!(
            "{} has no readings of processes: a server's own diagnostic data tell of the host as a whole",
            dir.display()
        );
    }
    let (window, whole) = source::recorded_around(dir, &arguments.stretch, TOP_MARGIN)?;
    let was_read = window.tracks(PROC_CPU.name, &[]).any(|track| !track.points.is_empty());
    if !was_read && !window.meta.targets.iter().any(|target| target.local) {
        bail!("{} has no readings of processes: they are recorded of servers on the recorder's host", dir.display());
    }
    let here = host::facts(&Roots::default()).hostname;
    let users = if window.meta.host.hostname == here { host::users(&Roots::default()) } else { HashMap::new() };
    let out = Out::new(arguments, false);
    let length_s = arguments.interval.unwrap_or_else(|| whole.1.seconds_since(whole.0));
    let pieces = pieces(whole, length_s);
    let most = arguments.count.unwrap_or(u64::MAX);
    for (from, to) in pieces.take(usize::try_from(most).unwrap_or(usize::MAX)) {
        let (processes, read_s) = top_of(&window, (from, to), &users);
        if processes.is_empty() && arguments.interval.is_none() {
            bail!("{} has no two readings of processes there: choose another stretch, or a longer one", dir.display());
        }
        let stretch_s = to.seconds_since(from);
        let unseen = top_unseen(&processes, stretch_s, read_s);
        let usage = Usage { seconds: read_s, processes, unseen };
        out.show(&format!("recorded, {}", clock(&window, from, to)), &usage, window.meta.unix_us(to))?;
    }
    Ok(())
}

/// Stretches of this length, the last one what is left, if that is at least half as long.
fn pieces((from, to): (Moment, Moment), length_s: f64) -> impl Iterator<Item = (Moment, Moment)> {
    let count = (to.seconds_since(from) / length_s - 0.5).ceil().max(1.0) as u64;
    let at = move |piece: u64| Moment::from_seconds(from.seconds() + piece as f64 * length_s);
    (0..count).map(move |piece| (at(piece), if piece + 1 == count { to } else { at(piece + 1) }))
}

fn clock(window: &Window, from: Moment, to: Moment) -> String {
    let wall = |at| window.meta.unix_us(at).and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    let local =
        |stamp: jiff::Timestamp| stamp.to_zoned(jiff::tz::TimeZone::system()).strftime("%F %H:%M:%S").to_string();
    match (wall(from), wall(to)) {
        (Some(from), Some(to)) => format!("{} to {}", local(from), local(to)),
        _ => format!("{:.0} s to {:.0} s after boot", from.seconds(), to.seconds()),
    }
}

fn live(arguments: &Arguments, target: Option<&str>) -> anyhow::Result<()> {
    let cancel = signals::cancel_flag()?;
    let interval_s = arguments.interval.unwrap_or(1.0);
    let (scope, sessions) = scope(arguments, target)?;
    let whole_host = scope == Scope::Host;
    let name = match &scope {
        Scope::Server { target, pid } => format!("{target} (process {pid} and its children)"),
        Scope::Host => "this host".to_owned(),
    };
    let mut reader = Top::new(&Roots::default(), scope);
    let out = Out::new(arguments, true);
    let (mut applications, mut shown) = (HashMap::new(), 0);
    let mut due = now();
    while arguments.count.is_none_or(|count| shown < count) && wait_until(due, &cancel) {
        due = Moment::from_seconds(due.seconds().max(now().seconds() - interval_s) + interval_s);
        let Some(mut usage) = reader.look(now())? else { continue };
        if whole_host {
            usage.processes.retain(ProcessUse::moves_data);
        }
        if let Some(sessions) = &sessions {
            sessions.learn(&mut applications);
            usage.processes.iter_mut().for_each(|process| name_session(process, &applications));
        }
        let title = format!("{name}, the last {:.2} s", usage.seconds);
        out.show(&title, &usage, Some(backwater_probe::anchor().unix_us))?;
        shown += 1;
    }
    Ok(())
}

/// Waits; false when somebody wants to stop.
fn wait_until(due: Moment, cancel: &AtomicBool) -> bool {
    loop {
        let left = due.seconds_since(now());
        if cancel.load(Ordering::SeqCst) {
            return false;
        }
        if left <= 0.0 {
            return true;
        }
        std::thread::sleep(LISTEN.min(Duration::from_secs_f64(left)));
    }
}

/// Whose processes, and for a server that was connected to, its sessions.
fn scope(arguments: &Arguments, target: Option<&str>) -> anyhow::Result<(Scope, Option<Sessions>)> {
    if let Some(pid) = arguments.pid {
        return Ok((Scope::Server { target: "server".to_owned(), pid }, None));
    }
    let Some(target) = target.filter(|target| *target != "host") else { return Ok((Scope::Host, None)) };
    let conninfo = ConnInfo::parse(target, &|name| std::env::var(name).ok())?;
    let (probe, facts) = PostgresProbe::connect(conninfo, PostgresOptions::default())?;
    let Some(pid) = facts.postmaster_pid else {
        bail!(
            "{} does not run on this host, or its processes cannot be recognised here: run backwater top there, or give --pid",
            facts.name
        );
    };
    let registry = Arc::default();
    let (observer, batches) = Observer::start(vec![Box::new(probe)], &registry).context("cannot watch the sessions")?;
    Ok((Scope::Server { target: facts.name, pid }, Some(Sessions { _observer: observer, batches })))
}

/// A server's active sessions, as its probe reads them.
struct Sessions {
    _observer: Observer,
    batches: Receiver<backwater_model::Batch>,
}

impl Sessions {
    /// Takes what has come: the newest application_name of each session.
    fn learn(&self, applications: &mut HashMap<i32, String>) {
        for sample in self.batches.try_iter().flat_map(|batch| batch.samples) {
            if let Some(application) = sample.application {
                applications.insert(sample.pid, application.to_string());
            }
        }
    }
}

fn name_session(process: &mut ProcessUse, applications: &HashMap<i32, String>) {
    let application = applications.get(&process.pid).cloned();
    if let (Some(session), Some(application)) = (&mut process.session, application) {
        *session = SessionUse { application: Some(application), ..session.clone() };
    }
}

/// Where and how tables are written.
struct Out {
    sort: TopSort,
    json: bool,
    /// Each table replaces the one before.
    in_place: bool,
    style: Style,
}

impl Out {
    fn new(arguments: &Arguments, live: bool) -> Out {
        let attended = terminal::attended();
        let told = std::env::var_os("COLUMNS").is_some();
        let style = terminal::style();
        let style = if attended || told { style } else { Style { width: UNATTENDED_COLUMNS, ..style } };
        Out { sort: arguments.sort.into(), json: arguments.json, in_place: attended && live && !arguments.json, style }
    }

    fn show(&self, title: &str, usage: &Usage, unix_us: Option<i64>) -> anyhow::Result<()> {
        if self.json {
            let line = serde_json::json!({
                "at_unix_s": unix_us.map(|us| us as f64 / 1e6),
                "seconds": usage.seconds,
                "processes": usage.processes,
                "unseen": usage.unseen,
            });
            return terminal::print(&line.to_string());
        }
        let most = self.in_place.then(|| terminal::lines().saturating_sub(OTHER_LINES).max(3));
        let view = TopView { title, processes: &usage.processes, unseen: &usage.unseen, sort: self.sort, most };
        let text = top(&view, &self.style);
        if self.in_place {
            return terminal::redraw(&text);
        }
        terminal::print(&format!("{text}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_cut_into_stretches_and_a_short_rest_joins_the_last() {
        let lengths = |seconds, length_s| -> Vec<f64> {
            let whole = (Moment(0), Moment::from_seconds(seconds));
            pieces(whole, length_s).map(|(from, to)| to.seconds_since(from)).collect()
        };
        assert_eq!(lengths(30.0, 10.0), [10.0, 10.0, 10.0]);
        assert_eq!(lengths(34.0, 10.0), [10.0, 10.0, 14.0]);
        assert_eq!(lengths(36.0, 10.0), [10.0, 10.0, 10.0, 6.0]);
        assert_eq!((lengths(3.0, 10.0), lengths(10.0, 10.0)), (vec![3.0], vec![10.0]));
    }

    #[test]
    fn a_session_gets_its_application_and_others_nothing() {
        let applications = HashMap::from([(7, "psql".to_owned())]);
        let mut process = ProcessUse { pid: 7, session: Some(SessionUse::default()), ..ProcessUse::default() };
        name_session(&mut process, &applications);
        assert_eq!(process.session.as_ref().and_then(|session| session.application.as_deref()), Some("psql"));
        let mut other = ProcessUse { pid: 7, ..ProcessUse::default() };
        name_session(&mut other, &applications);
        assert_eq!(other.session, None);
    }
}
