//! Why that nothing was found in a window says little: servers that were not read, sessions that were hidden, and waits that no rule
//! judges.

use crate::commit::looks;
use crate::replication::allowed_since;
use backwater_model::{Event, EventKind, Holes, Moment, Track, Unit, Window};
use std::collections::BTreeMap;

/// What the probe says to be absent to a role that sees no sessions but its own.
const OTHERS: &str = "sessions of other roles";
/// A server that was seen for less of the time in which anything was recorded than this was not watched.
const SEEN_RATIO: f64 = 0.5;
/// Few rules are sure of anything in less than four seconds, of which readings cover a little more or less.
const SHORTEST_S: f64 = 3.5;
/// Seconds at the end without a reading that are more than a restart takes.
const RESTART_S: f64 = 5.0;
/// Shortest and longest pause between two readings that is bridged, in seconds.
const BRIDGED_S: (f64, f64) = (1.0, 15.0);
/// A gap that lasts is told again after a minute at the latest, and some.
const TOLD_AGAIN_S: f64 = 90.0;
/// Kinds of servers whose readings have gaps where they are not read.
const LIVE: [&str; 2] = ["postgres", "mongodb"];
/// What is read of a server by the host, or is told of one that does not answer, says nothing of what it does.
const FROM_OUTSIDE: [&str; 2] = ["host.", "pg.heartbeat"];
/// A share of session time that somebody would ask about, where more than one session waits on average.
const MUCH_RATIO: f64 = 0.5;
/// The class of waits for heavyweight locks, as PostgreSQL spells it.
const LOCK: &str = "Lock";

/// A server that was not seen, so that it may not be healthy though nothing was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blind {
    /// Which.
    pub server: String,
    /// What was not seen of it, as a sentence that may go on.
    pub why: String,
}

/// For how long servers were seen, over windows that follow one another.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    servers: BTreeMap<String, Seen>,
    /// A run of the lab: servers come and go with its arms.
    is_of_lab: bool,
}

/// Of the time in which a server was watched, in seconds: how much was recorded of anything, how much of it; for how long it was not
/// read at the end, and its sessions were hidden.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    recorded_s: f64,
    read_s: f64,
    unread_at_end_s: f64,
    hidden_s: f64,
}

/// The servers of a window that were not seen.
pub fn blind(window: &Window) -> Vec<Blind> {
    let mut sight = Sight::default();
    sight.take(window);
    sight.blind()
}

impl Sight {
    /// Takes note of a window.
    pub fn take(&mut self, window: &Window) {
        self.is_of_lab |= window.events_of(EventKind::Mark).next().is_some();
        for target in window.meta.targets.iter().filter(|target| LIVE.contains(&target.kind.as_str())) {
            let own = most(window.all_tracks().filter(|track| is_of(track, &target.name)));
            let Some((from, to)) = watched(window, own, &format!("{}.{}", target.kind, target.name)) else { continue };
            let others = window.all_tracks().filter(|track| !is_of(track, &target.name));
            let beside = most(others.map(|track| track.between(from, to)));
            let read_s = own.map_or(0.0, seconds);
            let recorded_s = beside.map_or(0.0, seconds).max(read_s);
            let end = beside.and_then(|track| track.points.last()).map(|point| point.at);
            let seen = self.servers.entry(target.name.clone()).or_default();
            seen.recorded_s += recorded_s;
            seen.read_s += read_s;
            seen.unread_at_end_s = match (own.and_then(|track| track.points.last()), end) {
                (Some(last), Some(end)) => end.seconds_since(last.at).max(0.0),
                (Some(_), None) => 0.0,
                (None, _) => seen.unread_at_end_s + recorded_s,
            };
            if sessions_are_hidden(window, &target.name) {
                seen.hidden_s += recorded_s;
            }
        }
    }

    /// The servers that were not seen while they were watched.
    pub fn blind(&self) -> Vec<Blind> {
        let of = |(server, seen): (&String, &Seen)| {
            let unread = if self.is_of_lab { None } else { seen.unread(server) };
            Some(Blind { server: server.clone(), why: unread.or_else(|| seen.hidden(server))? })
        };
        self.servers.iter().filter_map(of).collect()
    }
}

impl Seen {
    fn unread(&self, server: &str) -> Option<String> {
        let show = |seconds| Unit::Seconds.show(seconds);
        if self.read_s < SEEN_RATIO * self.recorded_s {
            let (read, recorded) = (show(self.read_s), show(self.recorded_s));
            return Some(format!("{server} could be read for {read} of {recorded} only"));
        }
        if self.recorded_s > 0.0 && self.read_s < SHORTEST_S {
            return Some(format!("{server} was read for {} only", show(self.read_s)));
        }
        let last = show(self.unread_at_end_s);
        (self.unread_at_end_s > RESTART_S).then(|| format!("{server} could not be read for the last {last}"))
    }

    fn hidden(&self, server: &str) -> Option<String> {
        let is_hidden = self.hidden_s > 0.0 && self.hidden_s >= SEEN_RATIO * self.recorded_s;
        is_hidden.then(|| format!("{OTHERS} on {server} could not be seen"))
    }
}

/// When a server was watched in a window: from its first reading to its last, and before and after where it is told that it could not
/// be read. None where neither is there: a recording may have had it at other times; but what lasts is not told again in every window
/// that is shorter than [`TOLD_AGAIN_S`].
fn watched(window: &Window, own: Option<Track<'_>>, probe: &str) -> Option<(Moment, Moment)> {
    let is_its = |event: &&Event| event.fields.get("probe").is_some_and(|of| of == probe);
    let mut told = window.events_of(EventKind::Gap).filter(is_its).map(|event| event.at).peekable();
    let Some((first, last)) = own.and_then(|track| Some((track.points.first()?.at, track.points.last()?.at))) else {
        let is_known = told.peek().is_some() || window.seconds() < TOLD_AGAIN_S;
        return is_known.then_some((window.from, window.to));
    };
    let (mut from, mut to) = (first, last);
    for at in told {
        from = if at <= first { window.from } else { from };
        to = if at > last { window.to } else { to };
    }
    Some((from, to))
}

/// For how long a track has readings: none for fewer than two.
fn seconds(track: Track<'_>) -> f64 {
    let holes = Holes::of(track, BRIDGED_S);
    holes.bridged_s() + holes.period_s()
}

/// The one with the most readings.
fn most<'a>(tracks: impl Iterator<Item = Track<'a>>) -> Option<Track<'a>> {
    tracks.max_by_key(|track| track.points.len()).filter(|track| !track.points.is_empty())
}

/// Whether it is a series of a server, of what that tells itself.
fn is_of(track: &Track<'_>, server: &str) -> bool {
    let is_its = track.series.labels.get("target").is_some_and(|target| target == server);
    is_its && !FROM_OUTSIDE.iter().any(|begin| track.series.name.starts_with(begin))
}

/// Whether its role might see no sessions but its own, as far as is told: it was given the right where one of the server's other
/// processes is seen later.
fn sessions_are_hidden(window: &Window, server: &str) -> bool {
    let is_told =
        |event: &&Event| event.source == server && event.fields.get("what").is_some_and(|what| what == OTHERS);
    let Some(told) = window.events_of(EventKind::Absent).filter(is_told).last() else { return false };
    allowed_since(window, server, told.at).is_none()
}

/// Servers whose sessions waited for one another's locks for much of their time, which is no queue that a rule judges: a sentence each.
pub fn lock_waits(window: &Window) -> Vec<String> {
    window.meta.targets.iter().filter_map(|target| lock_waits_on(window, &target.name)).collect()
}

fn lock_waits_on(window: &Window, server: &str) -> Option<String> {
    let is_active =
        |sample: &&backwater_model::Sample| *sample.target == *server && sample.state.as_deref() == Some("active");
    let (mut active, mut waiting) = (0_usize, 0_usize);
    for sample in window.samples().iter().filter(is_active) {
        active += 1;
        waiting += usize::from(sample.wait_event_type.as_deref() == Some(LOCK));
    }
    let ratio = waiting as f64 / active.max(1) as f64;
    let is_much = ratio >= MUCH_RATIO && looks(window, server).is_some_and(|looks| looks > 0 && waiting > looks);
    is_much.then(|| {
        format!(
            "Sessions on {server} waited for locks of one another for {} of their time: that is no queue that a rule judges; \
             `backwater ash` shows who waits, and pg_blocking_pids() for whom.",
            Unit::Ratio.show(ratio)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use backwater_model::{Epoch, Meta, Point, Sample, Series, SeriesId, Target, catalogue as cat};
    use std::sync::Arc;

    fn at(second: f64) -> Moment {
        Moment::from_seconds(second)
    }

    /// A window of a server that was looked at twice a second in these stretches, which is told as the recorder tells it, and of a host
    /// that was looked at ten times a second.
    fn window((from, to): (u32, u32), read: &[(u32, u32)], samples: Vec<Sample>, more: Vec<Event>) -> Window {
        let target = Target { name: "db".to_owned(), kind: "postgres".to_owned(), ..Target::default() };
        let meta = Arc::new(Meta { targets: vec![target], ..Meta::default() });
        let looks = read.iter().flat_map(|(from, to)| from * 2..to * 2).map(|half| f64::from(half) / 2.0);
        let looks = looks.filter(|second| (f64::from(from)..=f64::from(to)).contains(second));
        let point = |second| Point { at: at(second), series: SeriesId(0), epoch: Epoch(1), value: 500.0, as_of: None };
        let series = Arc::new(cat::PG_PROBE_RESPONSE.series(&[("target", "db")]));
        let cpu: (Arc<Series>, Vec<Point>) = (
            Arc::new(cat::PROC_CPU.series(&[("target", "db"), ("pid", "7"), ("what", "postmaster")])),
            (from * 10..to * 10).map(|tenth| point(f64::from(tenth) / 10.0)).collect(),
        );
        let tracks = vec![(series, looks.map(point).collect()), cpu];
        let ends = read.iter().map(|(_, end)| *end);
        let begins = read.iter().skip(1).map(|(begin, _)| Some(*begin)).chain([None]);
        let gap = |second: u32, more: &[(&str, &str)]| {
            let fields = [&[("probe", "postgres.db"), ("reason", "refused")], more].concat();
            Event::new(at(second.into()), "recorder", EventKind::Gap, "", &fields)
        };
        let mut events = more;
        for (end, begin) in ends.zip(begins) {
            events.extend((end..begin.unwrap_or(to)).step_by(60).map(|second| gap(second, &[])));
            events.extend(begin.map(|begin| gap(begin, &[("ended", "true")])));
        }
        events.retain(|event| event.kind == EventKind::Absent || (at(from.into())..=at(to.into())).contains(&event.at));
        events.sort_by_key(|event| event.at);
        Window::new(at(from.into()), at(to.into()), meta, tracks, samples, events)
    }

    fn told(windows: &[Window]) -> String {
        let mut sight = Sight::default();
        windows.iter().for_each(|window| sight.take(window));
        sight.blind().into_iter().map(|blind| blind.why).collect::<Vec<_>>().join("; ")
    }

    fn of(read: &[(u32, u32)]) -> String {
        told(&[window((100, 160), read, vec![], vec![])])
    }

    #[test]
    fn a_server_that_was_hardly_read_or_is_not_any_more_may_be_anything() {
        assert_eq!(of(&[(90, 170)]), "");
        assert_eq!(of(&[(90, 110), (120, 170)]), "", "it was restarted");
        assert_eq!(of(&[(90, 158)]), "", "it may be restarting");
        assert_eq!(of(&[(90, 150)]), "db could not be read for the last 10.4 s");
        assert_eq!(of(&[(90, 115)]), "db could be read for 15.0 s of 60.0 s only");
        assert_eq!(of(&[]), "db could be read for 0 s of 60.0 s only", "as in the midst of an outage");
        assert_eq!(of(&[(0, 70)]), "db could be read for 0 s of 60.0 s only");
    }

    #[test]
    fn a_stretch_that_is_shorter_than_what_rules_need_may_be_anything() {
        let of = |to: u32, read| told(&[window((100, to), &[read], vec![], vec![])]);
        assert_eq!(of(102, (90, 170)), "db was read for 2.50 s only");
        assert_eq!(of(104, (90, 170)), "");
        assert_eq!(of(160, (158, 170)), "db was read for 2.50 s only", "one that came late");
    }

    #[test]
    fn a_server_that_a_recording_had_at_other_times_is_not_missed() {
        assert_eq!(told(&[window((100, 400), &[], vec![], vec![])]), "");
        // It came half a minute before the end.
        let mut late = window((100, 400), &[(370, 400)], vec![], vec![]);
        assert_eq!(told(&[late.clone()]), "");
        late = window((100, 400), &[(0, 20), (370, 400)], vec![], vec![]);
        assert!(told(&[late]).starts_with("db could be read for 30.0 s of"), "it was away until then");
    }

    #[test]
    fn outages_of_a_long_past_are_added_up_and_not_joined() {
        let read = [(0, 3_600), (3_700, 90_000), (90_100, 108_000)];
        let hours: Vec<Window> =
            (0..30).map(|hour| window((hour * 3_600, hour * 3_600 + 3_600), &read, vec![], vec![])).collect();
        assert_eq!(told(&hours), "");
        let read = [(0, 3_600), (100_000, 108_000)];
        let hours: Vec<Window> =
            (0..30).map(|hour| window((hour * 3_600, hour * 3_600 + 3_600), &read, vec![], vec![])).collect();
        assert!(told(&hours).starts_with("db could be read for 193 min 21 s of 30 h 00 min"), "{}", told(&hours));
    }

    #[test]
    fn a_run_of_the_labs_has_servers_that_come_and_go() {
        let mark = Event::new(at(101.0), "lab", EventKind::Mark, "", &[("arm", "a")]);
        assert_eq!(told(&[window((100, 160), &[(100, 110)], vec![], vec![mark])]), "");
    }

    fn absent(source: &str, what: &str) -> Event {
        Event::new(at(101.0), source, EventKind::Absent, "", &[("what", what), ("why", "")])
    }

    #[test]
    fn sessions_that_a_role_may_not_see_may_be_anything_until_it_may() {
        let told = |event: Event, samples: Vec<Sample>| told(&[window((100, 160), &[(90, 170)], samples, vec![event])]);
        assert_eq!(told(absent("db", OTHERS), vec![]), "sessions of other roles on db could not be seen");
        assert_eq!(told(absent("db", "log"), vec![]), "");
        assert_eq!(told(absent("db2", OTHERS), vec![]), "");
        let sample = |kind: &str| Sample {
            at: at(130.0),
            target: "db".into(),
            backend_type: Some(kind.into()),
            ..Sample::default()
        };
        assert_eq!(told(absent("db", OTHERS), vec![sample("walwriter")]), "", "it was given the right");
        assert_ne!(told(absent("db", OTHERS), vec![sample("client backend")]), "", "its own");
    }

    #[test]
    fn much_waiting_for_locks_is_told() {
        let sample = |second: u32, wait: Option<&str>| Sample {
            at: at(second.into()),
            target: "db".into(),
            state: Some("active".into()),
            wait_event_type: wait.map(Into::into),
            ..Sample::default()
        };
        let of = |(from, to): (u32, u32), waiting: usize, busy: usize| {
            let look = |second: u32| {
                (0..waiting)
                    .map(move |_| sample(second, Some(LOCK)))
                    .chain((0..busy).map(move |_| sample(second, None)))
            };
            lock_waits(&window((100, 160), &[(90, 170)], (from..to).flat_map(look).collect(), vec![])).concat()
        };
        assert_eq!((of((100, 160), 0, 0), of((100, 160), 2, 3)), (String::new(), String::new()));
        assert_eq!(of((100, 101), 9, 1), "", "in one look of many");
        assert!(
            of((100, 160), 9, 1).starts_with("Sessions on db waited for locks of one another for 90.0 % of their time")
        );
    }
}
