//! The same table from a recording: rates over a stretch of it, by the series of processes and their connections, with
//! the sessions' names from the samples.

use backwater_model::catalogue::{self, Def};
use backwater_model::{Epoch, Meta, Moment, ProcessUse, Sample, SessionUse, Span, Target, Track, Unit, Unseen, Window};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A process of a watched server.
type Key = (String, String);

/// What a client's session is called.
const CLIENT: &str = "client backend";

/// Where a rate of a process goes.
type Place = fn(&mut ProcessUse) -> &mut Option<f64>;

const OF_PROCESSES: [(&Def, Place); 5] = [
    (&catalogue::PROC_CPU, |process| &mut process.cpu_share),
    (&catalogue::PROC_READ_BYTES, |process| &mut process.read_bytes_per_s),
    (&catalogue::PROC_READ_CALLS, |process| &mut process.read_calls_per_s),
    (&catalogue::PROC_WRITE_BYTES, |process| &mut process.write_bytes_per_s),
    (&catalogue::PROC_WRITE_CALLS, |process| &mut process.write_calls_per_s),
];
const OF_CONNECTIONS: [(&Def, Place); 4] = [
    (&catalogue::TCP_SENT, |process| &mut process.sent_bytes_per_s),
    (&catalogue::TCP_RECEIVED, |process| &mut process.received_bytes_per_s),
    (&catalogue::TCP_SEGMENTS_OUT, |process| &mut process.sent_segments_per_s),
    (&catalogue::TCP_SEGMENTS_IN, |process| &mut process.received_segments_per_s),
];

/// Readings so long before and after a stretch tell of it too: more than the longest pause between two of connections, which are read
/// more rarely on a host with very many, or of a session's processor time.
pub const TOP_MARGIN: Span = Span(35_000_000);
/// A server's own processes are read every second: what is longer without any reading is a gap.
const LONGEST_PAUSE: Span = Span(5_000_000);

/// Rates over less of a stretch that is longer would say nothing of it.
const LEAST_READ_S: f64 = 0.5;

/// Every process recorded between two moments of a window, with its mean rates over the time in which they were read: of a pause
/// between two readings that lies in part between the moments, the even share, so that a stretch may be as short as that pause. A
/// process that was there for a part of it has done nothing in the rest. Of what lies in a gap nothing is told: beside the table stands
/// for how many seconds of the stretch it is true. `users` are names of user ids, empty where they belong to another host.
pub fn top_of(window: &Window, stretch: (Moment, Moment), users: &HashMap<u32, String>) -> (Vec<ProcessUse>, f64) {
    let near = Near { window, from: stretch.0 - TOP_MARGIN, to: stretch.1 + TOP_MARGIN };
    let lives = near.lives();
    let read = near.outside_gaps(Life { from: stretch.0, to: stretch.1 });
    let whole = read.and_then(|read| lives.values().filter_map(|life| life.clip(read)).reduce(Life::and));
    let Some(whole) = whole else { return (Vec::new(), 0.0) };
    let mut all: BTreeMap<Key, ProcessUse> = BTreeMap::new();
    for (def, place) in OF_PROCESSES {
        for track in near.tracks(def).filter(|track| is_there(track, &lives, whole)) {
            let Some(key) = key(&track) else { continue };
            let is_cpu = *def == catalogue::PROC_CPU;
            let rise = if is_cpu { cpu_s(&track, &lives, whole) } else { track.rise(whole.from, whole.to) };
            let process = all.entry(key).or_default();
            process.what = track.series.labels.get("what").unwrap_or_default().to_owned();
            add(place(process), rise, whole.seconds());
        }
    }
    for track in near.tracks(&catalogue::PROC_UID).filter(|track| is_there(track, &lives, whole)) {
        if let Some((process, uid)) = key(&track).and_then(|key| all.get_mut(&key)).zip(track.last()) {
            process.uid = Some(uid as u32);
        }
    }
    if let Some(read) = near.connections_read().and_then(|life| life.clip(whole)) {
        add_connections(&near, &mut all, read);
    }
    let sessions = sessions(near.samples_to(whole.to));
    let finish = |(key, mut process): (Key, ProcessUse)| {
        process.pid = key.1.parse().unwrap_or_default();
        process.user = process.uid.and_then(|uid| users.get(&uid).cloned());
        let sample = sessions.get(&(key.0.as_str(), process.pid)).filter(|_| process.what == CLIENT);
        process.session = sample.map(|sample| session(sample));
        process.devices = devices(&process, &key.0, &window.meta);
        process.target = Some(key.0);
        process
    };
    (all.into_iter().map(finish).collect(), whole.seconds())
}

/// The part of a window from which a stretch is told.
struct Near<'a> {
    window: &'a Window,
    from: Moment,
    to: Moment,
}

impl<'a> Near<'a> {
    /// The series of this name that were read in it.
    fn tracks(&self, def: &Def) -> impl Iterator<Item = Track<'a>> + use<'a> {
        let (from, to) = (self.from, self.to);
        let tracks = self.window.tracks(def.name, &[]).map(move |track| track.between(from, to));
        tracks.filter(|track| !track.points.is_empty())
    }

    /// The lives of all processes, as far as any of their series tells.
    fn lives(&self) -> HashMap<Epoch, Life> {
        let mut lives: HashMap<_, Life> = HashMap::new();
        for track in OF_PROCESSES.iter().flat_map(|(def, _)| self.tracks(def)) {
            for points in track.points.chunk_by(|one, next| one.epoch == next.epoch) {
                let Some(here) = Life::of(&Track { points, ..track }) else { continue };
                lives.entry(points[0].epoch).and_modify(|life| *life = life.and(here)).or_insert(here);
            }
        }
        lives
    }

    /// When processes were read: a server's own ones are at each look.
    fn looks(&self) -> BTreeSet<Moment> {
        let is_own = |track: &Track<'_>| track.series.labels.get("what").is_some_and(|what| what != CLIENT);
        let own: BTreeSet<Moment> = self
            .tracks(&catalogue::PROC_CPU)
            .filter(is_own)
            .flat_map(|track| track.points)
            .map(|point| point.at)
            .collect();
        if !own.is_empty() {
            return own;
        }
        let all = OF_PROCESSES.iter().flat_map(|(def, _)| self.tracks(def)).flat_map(|track| track.points);
        all.map(|point| point.at).collect()
    }

    /// A stretch without what of it lies in a gap at its begin or its end. (Over one in its midst what a process did in all is known.)
    fn outside_gaps(&self, stretch: Life) -> Option<Life> {
        let read = self.looks();
        let (first, last) = (*read.first()?, *read.last()?);
        let mut outside = stretch.clip(Life { from: first, to: last })?;
        for (before, after) in read.iter().zip(read.iter().skip(1)).filter(|(one, next)| **next - **one > LONGEST_PAUSE)
        {
            let within = |at: Moment| *before < at && at < *after;
            outside.from = if within(outside.from) { *after } else { outside.from };
            outside.to = if within(outside.to) { *before } else { outside.to };
        }
        let least_s = LEAST_READ_S.min(stretch.seconds() / 2.0);
        (outside.from < outside.to && outside.seconds() >= least_s).then_some(outside)
    }

    /// From the first reading of any connection to the last.
    fn connections_read(&self) -> Option<Life> {
        let lives = self.tracks(&catalogue::TCP_ACKED).filter_map(|track| Life::of(&track));
        lives.reduce(Life::and)
    }

    /// Samples up to then.
    fn samples_to(&self, to: Moment) -> &'a [Sample] {
        let samples = self.window.samples();
        let at = |moment: Moment| samples.partition_point(|sample| sample.at <= moment);
        &samples[at(self.from)..at(to)]
    }
}

/// What a table of a recording's stretch lacks: a session's processor time is read more rarely than the rest, and a share needs
/// two readings; and of a stretch of so many seconds processes were read for fewer. Empty where it lacks nothing.
pub fn top_unseen(processes: &[ProcessUse], stretch_s: f64, read_s: f64) -> Vec<Unseen> {
    let mut unseen = Vec::new();
    if stretch_s - read_s > LONGEST_PAUSE.seconds() || processes.is_empty() {
        unseen.push(Unseen {
            what: format!("{} of this stretch", Unit::Seconds.show(stretch_s - read_s)),
            why: "processes were not read then".to_owned(),
            remedy: None,
        });
    }
    let lacking = processes.iter().filter(|process| process.cpu_share.is_none()).count();
    if lacking > 0 {
        let (lacking, all) = (Unit::Count.show(lacking as f64), Unit::Count.show(processes.len() as f64));
        unseen.push(Unseen {
            what: format!("processor time of {lacking} of {all} processes, which the total lacks"),
            why: "it was not read both before and after some moment of this stretch; of most sessions it is read every fifth \
                  second"
                .to_owned(),
            remedy: Some("a stretch of twelve seconds or more has it".to_owned()),
        });
    }
    unseen
}

fn key(track: &Track<'_>) -> Option<Key> {
    Some((track.series.labels.get("target")?.to_owned(), track.series.labels.get("pid")?.to_owned()))
}

/// From when to when a process was read. Its epoch tells it from another one with the same number.
#[derive(Clone, Copy)]
struct Life {
    from: Moment,
    to: Moment,
}

impl Life {
    fn and(self, other: Life) -> Life {
        Life { from: self.from.min(other.from), to: self.to.max(other.to) }
    }

    fn seconds(self) -> f64 {
        self.to.seconds_since(self.from)
    }

    /// From the first reading of a series to the last.
    fn of(track: &Track<'_>) -> Option<Life> {
        Some(Life { from: track.points.first()?.at, to: track.points.last()?.at })
    }

    /// What of it lies in another.
    fn clip(self, within: Life) -> Option<Life> {
        let clipped = Life { from: self.from.max(within.from), to: self.to.min(within.to) };
        (clipped.from < clipped.to).then_some(clipped)
    }

    /// Whether any of it lies in another; of what was read once, that reading.
    fn is_in(self, within: Life) -> bool {
        let once = self.from == self.to && within.from <= self.from && self.to <= within.to;
        once || self.clip(within).is_some()
    }
}

/// Whether any process that these readings are of was there in a stretch.
fn is_there(track: &Track<'_>, lives: &HashMap<Epoch, Life>, within: Life) -> bool {
    let mut lives = track.points.iter().filter_map(|point| lives.get(&point.epoch));
    lives.any(|life| life.is_in(within))
}

/// Processor time may be read more rarely than the rest: what it is a second between a life's first reading and its last, as far as
/// that lies in a stretch, it is taken to be for as long as that life is seen in it.
fn cpu_s(track: &Track<'_>, lives: &HashMap<Epoch, Life>, within: Life) -> Option<f64> {
    let of_each = track.points.chunk_by(|one, next| one.epoch == next.epoch).filter_map(|points| {
        let track = Track { points, ..*track };
        let read = Life::of(&track)?.clip(within)?;
        let rise = track.rise(read.from, read.to)?;
        Some(rise / read.seconds() * lives.get(&points.first()?.epoch)?.clip(within)?.seconds())
    });
    of_each.reduce(|sum, next| sum + next)
}

fn add(to: &mut Option<f64>, rise: Option<f64>, seconds: f64) {
    if let Some(rise) = rise {
        *to = Some(to.unwrap_or_default() + rise / seconds);
    }
}

fn add_connections(near: &Near<'_>, all: &mut BTreeMap<Key, ProcessUse>, read: Life) {
    let mut busiest: BTreeMap<Key, f64> = BTreeMap::new();
    let is_there = |track: &Track<'_>| Life::of(track).is_some_and(|life| life.is_in(read));
    for (def, place) in OF_CONNECTIONS {
        for track in near.tracks(def).filter(is_there) {
            let Some(process) = key(&track).and_then(|key| all.get_mut(&key)) else { continue };
            add(place(process), track.rise(read.from, read.to), read.seconds());
        }
    }
    // Old kernels do not count what was sent; what was acknowledged is nearly that.
    let counts_sent = near.tracks(&catalogue::TCP_SENT).next().is_some();
    for track in near.tracks(&catalogue::TCP_ACKED).filter(is_there) {
        let Some(key) = key(&track) else { continue };
        let Some(process) = all.get_mut(&key) else { continue };
        let rise = track.rise(read.from, read.to);
        if !counts_sent {
            add(&mut process.sent_bytes_per_s, rise, read.seconds());
        }
        process.connections = Some(process.connections.unwrap_or_default() + 1);
        let rise = rise.unwrap_or_default();
        let most = busiest.entry(key).or_insert(-1.0);
        if rise > *most {
            *most = rise;
            process.peer = track.series.labels.get("peer").map(str::to_owned);
        }
    }
}

/// The newest sample of every client's session.
fn sessions(samples: &[Sample]) -> HashMap<(&str, i32), &Sample> {
    let clients = samples.iter().filter(|sample| sample.backend_type.as_deref() == Some(CLIENT));
    clients.map(|sample| ((&*sample.target, sample.pid), sample)).collect()
}

fn session(sample: &Sample) -> SessionUse {
    let text = |text: &Option<backwater_model::Text>| text.as_deref().map(str::to_owned);
    let client = text(&sample.client_addr).map(|address| match sample.client_port {
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
        None => address,
    });
    SessionUse {
        user: text(&sample.user),
        database: text(&sample.database),
        application: text(&sample.application),
        client: client.or_else(|| Some("local".to_owned())),
    }
}

/// What a process of this kind writes to: WAL, data files, or both.
fn devices(process: &ProcessUse, target: &str, meta: &Meta) -> Vec<String> {
    let Some(target) = meta.targets.iter().find(|known| known.name == target) else { return Vec::new() };
    if process.write_bytes_per_s.is_none_or(|rate| rate <= 0.0) {
        return Vec::new();
    }
    let (data, wal) = (&target.data_device, &target.wal_device);
    let numbers = match process.what.as_str() {
        "walwriter" | "walreceiver" => [None, wal.as_deref()],
        "checkpointer" | "background writer" | "startup" => [data.as_deref(), None],
        CLIENT | "autovacuum worker" | "parallel worker" | "logical replication worker" => both(target),
        _ => [None, None],
    };
    let name = |dev: &str| meta.device(dev).map_or_else(|| dev.to_owned(), |device| device.name.clone());
    let mut names: Vec<String> = numbers.into_iter().flatten().map(name).collect();
    names.dedup();
    names
}

fn both(target: &Target) -> [Option<&str>; 2] {
    [target.data_device.as_deref(), target.wal_device.as_deref()]
}
