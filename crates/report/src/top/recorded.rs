//! The same table from a recording: rates over a stretch of it, by the series of processes and their connections, with
//! the sessions' names from the samples.

use backwater_model::catalogue::{self, Def};
use backwater_model::{Epoch, Meta, Moment, ProcessUse, Sample, SessionUse, Span, Target, Track, Unit, Unseen, Window};
use std::collections::{BTreeMap, HashMap};

/// A process of a watched server.
type Key = (String, String);

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

/// Readings so long before and after a stretch tell of it too: more than the longest pause between two of a session's processor time.
pub const TOP_MARGIN: Span = Span(12_000_000);

/// Every process recorded between two moments of a window, with its mean rates over the time in which they were read: of a pause
/// between two readings that lies in part between the moments, the even share, so that a stretch may be as short as that pause. A
/// process that was there for a part of it has done nothing in the rest. `users` are names of user ids, empty where they belong to
/// another host.
pub fn top_of(window: &Window, (from, to): (Moment, Moment), users: &HashMap<u32, String>) -> Vec<ProcessUse> {
    let near = window.slice(from - TOP_MARGIN, to + TOP_MARGIN);
    let lives = lives(&near);
    let mut all: BTreeMap<Key, ProcessUse> = BTreeMap::new();
    let Some(whole) = lives.values().filter_map(|life| life.clip(from, to)).reduce(Life::and) else {
        return Vec::new();
    };
    for (def, place) in OF_PROCESSES {
        for track in near.tracks(def.name, &[]) {
            let Some(key) = key(&track).filter(|_| is_there(&track, &lives, whole)) else { continue };
            let rise = if *def == catalogue::PROC_CPU {
                cpu_s(&track, &lives, whole)
            } else {
                track.rise(whole.from, whole.to)
            };
            let process = all.entry(key).or_default();
            process.what = track.series.labels.get("what").unwrap_or_default().to_owned();
            add(place(process), rise, whole.seconds());
        }
    }
    for track in window.tracks(catalogue::PROC_UID.name, &[]) {
        let uid = track.between(window.from, to).last().or_else(|| track.points.first().map(|point| point.value));
        if let Some((process, uid)) = key(&track).and_then(|key| all.get_mut(&key)).zip(uid) {
            process.uid = Some(uid as u32);
        }
    }
    // Connections of a host with very many are read more rarely than processes.
    if let Some(read) = time_read(&near, &catalogue::TCP_ACKED).and_then(|life| life.clip(from, to)) {
        add_connections(&near, &mut all, read);
    }
    let sessions = sessions(near.samples().iter().filter(|sample| sample.at <= to));
    let finish = |(key, mut process): (Key, ProcessUse)| {
        process.pid = key.1.parse().unwrap_or_default();
        process.user = process.uid.and_then(|uid| users.get(&uid).cloned());
        process.session = sessions.get(&(key.0.as_str(), process.pid)).map(|sample| session(sample));
        process.devices = devices(&process, &key.0, &window.meta);
        process.target = Some(key.0);
        process
    };
    all.into_iter().map(finish).collect()
}

/// What a table of a recording's stretch lacks: a session's processor time is read more rarely than the rest, and a share needs
/// two readings. Empty where it lacks nothing.
pub fn top_unseen(processes: &[ProcessUse]) -> Vec<Unseen> {
    let lacking = processes.iter().filter(|process| process.cpu_share.is_none()).count();
    if lacking == 0 {
        return Vec::new();
    }
    let (lacking, all) = (Unit::Count.show(lacking as f64), Unit::Count.show(processes.len() as f64));
    vec![Unseen {
        what: format!("processor time of {lacking} of {all} processes, which the total lacks"),
        why: "it was read less than twice in and around this stretch; of most sessions it is read every fifth second"
            .to_owned(),
        remedy: Some(
            "a stretch of twelve seconds or more, or one within a longer part of the recording, has it".to_owned(),
        ),
    }]
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

    /// What of it lies between two moments.
    fn clip(self, from: Moment, to: Moment) -> Option<Life> {
        let clipped = Life { from: self.from.max(from), to: self.to.min(to) };
        (clipped.from < clipped.to).then_some(clipped)
    }
}

/// The lives of all processes, as far as any of their series tells.
fn lives(window: &Window) -> HashMap<Epoch, Life> {
    let mut lives: HashMap<_, Life> = HashMap::new();
    for point in OF_PROCESSES.iter().flat_map(|(def, _)| window.tracks(def.name, &[])).flat_map(|track| track.points) {
        let here = Life { from: point.at, to: point.at };
        lives.entry(point.epoch).and_modify(|life| *life = life.and(here)).or_insert(here);
    }
    lives
}

/// Whether any process that these readings are of was there in a stretch.
fn is_there(track: &Track<'_>, lives: &HashMap<Epoch, Life>, within: Life) -> bool {
    let mut lives = track.points.iter().filter_map(|point| lives.get(&point.epoch));
    lives.any(|life| life.clip(within.from, within.to).is_some())
}

/// Processor time may be read more rarely than the rest: what it is a second between a life's first reading and its last, as far as
/// that lies in a stretch, it is taken to be for as long as that life is seen in it.
fn cpu_s(track: &Track<'_>, lives: &HashMap<Epoch, Life>, within: Life) -> Option<f64> {
    let of_each = track.points.chunk_by(|one, next| one.epoch == next.epoch).filter_map(|points| {
        let read = Life { from: points.first()?.at, to: points.last()?.at }.clip(within.from, within.to)?;
        let rise = Track { points, ..*track }.rise(read.from, read.to)?;
        Some(rise / read.seconds() * lives.get(&points.first()?.epoch)?.clip(within.from, within.to)?.seconds())
    });
    of_each.reduce(|sum, next| sum + next)
}

/// From the first reading of any of these series to the last.
fn time_read(window: &Window, def: &Def) -> Option<Life> {
    let tracks = || window.tracks(def.name, &[]);
    let from = tracks().filter_map(|track| track.points.first()).map(|point| point.at).min()?;
    let to = tracks().filter_map(|track| track.points.last()).map(|point| point.at).max()?;
    Some(Life { from, to })
}

fn add(to: &mut Option<f64>, rise: Option<f64>, seconds: f64) {
    if let Some(rise) = rise {
        *to = Some(to.unwrap_or_default() + rise / seconds);
    }
}

fn add_connections(window: &Window, all: &mut BTreeMap<Key, ProcessUse>, read: Life) {
    let mut busiest: BTreeMap<Key, f64> = BTreeMap::new();
    let is_there = |track: &Track<'_>| {
        let life =
            track.points.first().zip(track.points.last()).map(|(first, last)| Life { from: first.at, to: last.at });
        life.is_some_and(|life| life.clip(read.from, read.to).is_some())
    };
    for (def, place) in OF_CONNECTIONS {
        for track in window.tracks(def.name, &[]).filter(is_there) {
            let Some(process) = key(&track).and_then(|key| all.get_mut(&key)) else { continue };
            add(place(process), track.rise(read.from, read.to), read.seconds());
        }
    }
    // Old kernels do not count what was sent; what was acknowledged is nearly that.
    let counts_sent = window.tracks(catalogue::TCP_SENT.name, &[]).any(|track| !track.points.is_empty());
    for track in window.tracks(catalogue::TCP_ACKED.name, &[]).filter(is_there) {
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
fn sessions<'a>(samples: impl Iterator<Item = &'a Sample>) -> HashMap<(&'a str, i32), &'a Sample> {
    let clients = samples.filter(|sample| sample.backend_type.as_deref() == Some("client backend"));
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
        "client backend" | "autovacuum worker" | "parallel worker" | "logical replication worker" => both(target),
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
