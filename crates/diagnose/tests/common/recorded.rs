//! Recordings of lab runs on a real server, cut down to what the rules read, once a second: series by name and labels with
//! `at=value@as_of` (`e1`: the source's second life), samples (with the ages of statement and transaction in milliseconds,
//! where they matter), the statement of a session, log lines. PostgreSQL 15, two servers in network namespaces of their own, each on a loop device, on two
//! processors; the load is the one of `lab run wal-lag`, and of `lab blind` in `runs/blind` and where a synchronous standby is
//! stopped.

use super::Readings;
use backwater_model::catalogue as cat;
use backwater_model::{Epoch, Event, EventKind, Meta, Moment, Point, Sample, SeriesId, Window};

/// Reads one of them; `keep` says which series, samples and servers stay, by a word of theirs.
pub fn window(text: &str, keep: impl Fn(&str) -> bool) -> Window {
    let (mut readings, mut meta, mut to) = (Readings::default(), Meta::default(), 0.0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let (kind, rest) = line.split_once(' ').unwrap();
        match kind {
            "meta" => meta = serde_json::from_str(rest).unwrap(),
            "span" => to = rest.parse().unwrap(),
            "series" => {
                let points = lines.next().unwrap();
                if keep(rest) && !rest.split([' ', ',']).any(|word| gone(&meta, word, &keep)) {
                    series(&mut readings, rest, points);
                }
            }
            "sample" if keep(rest) => readings.samples.push(sample(rest)),
            "look" if keep(rest) => readings.samples.extend(look(rest)),
            "log" if keep(rest) => {
                let (at, rest) = rest.split_once(' ').unwrap();
                let (source, message) = rest.split_once(' ').unwrap();
                readings.events.push(Event::new(moment(at), source, EventKind::Log, message, &[]));
            }
            "query" => {
                let (pid, text) = rest.split_once(' ').unwrap();
                let pid: i32 = pid.parse().unwrap();
                let those = readings.samples.iter_mut().filter(|sample| sample.pid == pid);
                those.for_each(|sample| sample.query = Some(text.into()));
            }
            "sample" | "look" | "log" => {}
            other => panic!("{other}"),
        }
    }
    meta.targets.retain(|target| keep(&target.name));
    meta.devices.retain(|device| device.roles.iter().all(|(_, target)| keep(target)));
    readings.window(meta, 0.0, to)
}

/// Whether a label names a device of a server that does not stay.
fn gone(meta: &Meta, label: &str, keep: &impl Fn(&str) -> bool) -> bool {
    let device = |dev: &str| meta.devices.iter().find(|device| device.dev == dev);
    let device = label.strip_prefix("dev=").and_then(device);
    device.is_some_and(|device| device.roles.iter().any(|(_, target)| !keep(target)))
}

fn moment(text: &str) -> Moment {
    Moment::from_seconds(text.parse().unwrap())
}

fn series(readings: &mut Readings, named: &str, points: &str) {
    let (name, labels) = named.split_once(' ').unwrap();
    let def = cat::ALL.iter().find(|def| def.name == name).unwrap();
    let values: Vec<(&str, &str)> = labels.split(',').filter_map(|pair| pair.split_once('=')).collect();
    let value = |label: &str| values.iter().find(|(name, _)| *name == label).map(|(_, value)| *value);
    let labels: Vec<(&'static str, &str)> = def.labels.iter().filter_map(|name| Some((*name, value(name)?))).collect();
    for point in points.split_whitespace() {
        let (at, rest) = point.split_once('=').unwrap();
        let (rest, epoch) = rest.split_once('e').unwrap_or((rest, "0"));
        let (value, as_of) = rest.split_once('@').map_or((rest, None), |(value, as_of)| (value, Some(moment(as_of))));
        let (value, epoch) = (value.parse().unwrap(), Epoch(epoch.parse().unwrap()));
        readings.push(def, &labels, Point { at: moment(at), series: SeriesId(0), epoch, value, as_of });
    }
}

/// Sessions of one look in the same wait: as in a sample, with their process ids at the end, each with the ages of its statement
/// and of its transaction (`12:340:5600`; `12:340` where they are the same; `-` where one is unknown).
fn look(line: &str) -> impl Iterator<Item = Sample> {
    let words: Vec<&str> = line.split(' ').collect();
    let (at, target, kind, sessions) = (words[0], words[1], &words[2..8], &words[8..]);
    let whole = |session: &&str| {
        let parts: Vec<&str> = session.split(':').collect();
        let ages = match parts[1..] {
            [] => String::new(),
            [both] => format!(" {both} {both}"),
            [query, xact] => format!(" {query} {xact}"),
            _ => panic!("{line}"),
        };
        sample(&format!("{at} {target} {} {}{ages}", parts[0], kind.join(" ")))
    };
    sessions.iter().map(whole).collect::<Vec<_>>().into_iter()
}

fn sample(line: &str) -> Sample {
    let words: Vec<&str> = line.split(' ').collect();
    let (words, ages) = words.split_at(9);
    let [at, target, pid, what, state, kind, event, function, kernel] = words[..] else { panic!("{line}") };
    let age = |place: usize| ages.get(place).filter(|age| **age != "-").map(|age| age.parse().unwrap());
    let known = |word: &str| (word != "-").then(|| word.replace('_', " ").as_str().into());
    let name = |word: &str| (word != "-").then(|| word.into());
    Sample {
        at: moment(at),
        target: target.into(),
        pid: pid.parse().unwrap(),
        backend_type: known(what),
        state: known(state),
        wait_event_type: name(kind),
        wait_event: name(event),
        kernel_wait: name(function),
        kernel_state: kernel.chars().next().filter(|state| *state != '-'),
        query_age_ms: age(0),
        xact_age_ms: age(1),
        ..Sample::default()
    }
}
